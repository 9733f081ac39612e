"""Forward and backward tables of one string.

    forward(closed=False)[i, q]   ⊕ over path prefixes that derive x_1…x_i and whose last arc, if any, consumes x_i
    forward(closed=True)[i, q]    the same, and any ε-arcs after x_i
    backward(closed=False)[i, q]  ⊕ over path suffixes from q that derive x_{i+1}…x_n and begin with the arc that
                                  consumes x_{i+1} (for i = n: that stop at once)
    backward(closed=True)[i, q]   the same, and any ε-arcs before x_{i+1} (for i = n: before the end)

Prefixes carry the initial weight, suffixes the final one. One closed and one open table meet at every i:
⟦x⟧ = ⊕_q forward[i, q] ⊗ backward[i, q]. Two closed ones would count the ε-arcs at i twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rrnn.wfsa.scoring import Scale, checked_counts, scale_by
from rrnn.wfsa.strings import encode
from rrnn.wfsa.transitions import transitions

if TYPE_CHECKING:
    from rrnn.wfsa.machine import WFSA


def forward(machine: WFSA, string: Any, *, closed: bool = True) -> Tensor:
    """(n+1, Q), see above."""
    ids = encode(machine, string)
    return checked_counts(machine, lambda m: plain(*forward_table(m, ids, closed=closed)))


def backward(machine: WFSA, string: Any, *, closed: bool = True) -> Tensor:
    """(n+1, Q), see above."""
    ids = encode(machine, string)
    return checked_counts(machine, lambda m: plain(*backward_table(m, ids, closed=closed)))


def plain(table: Tensor, exponent: Tensor) -> Tensor:
    return scale_by(table, exponent.unsqueeze(1)) if bool(exponent.any()) else table


def forward_table(machine: WFSA, ids: list[int], *, closed: bool) -> tuple[Tensor, Tensor]:
    """The table and, for every row, the power of two it is to be multiplied with (0 outside plus-times)."""
    arcs = transitions(machine)
    scale = Scale(machine.semiring)
    alpha = arcs.initial(1)
    rows = [alpha if closed else arcs.initial(1, closed=False)]
    exponents = [scale.exponents(1)]
    for symbol in ids:
        landed = scale.bring_back(arcs.step(alpha, [(symbol, 1)]))
        alpha = arcs.close(landed) if arcs.close is not None else landed
        rows.append(alpha if closed else landed)
        exponents.append(scale.exponents(1))
    return torch.cat(rows), torch.cat(exponents)


def backward_table(machine: WFSA, ids: list[int], *, closed: bool) -> tuple[Tensor, Tensor]:
    """Forward on the mirrored machine: every semiring here is commutative, so the order of ⊗ is free."""
    assert machine.semiring.laws.commutative
    table, exponent = forward_table(mirrored(machine), ids[::-1], closed=closed)
    return table.flip(0), exponent.flip(0)


def mirrored(machine: WFSA) -> WFSA:
    """Arcs turned round, λ and ρ exchanged; the states and the arcs keep their places."""

    def build() -> WFSA:
        from rrnn.wfsa.machine import WFSA

        return WFSA.from_tensors(
            machine.semiring,
            machine.alphabet,
            machine.states,
            machine.arc_target,
            machine.arc_symbol,
            machine.arc_source,
            machine.arc_weight,
            machine.final_weight,
            machine.initial_weight,
            allow_empty=True,
        )

    return machine.cached("mirrored", build)
