"""Forward and backward tables of one string, and arc marginals.

    forward(closed=False)[i, q]   ⊕ over path prefixes that derive x_1…x_i and whose last arc, if any, consumes x_i
    forward(closed=True)[i, q]    the same, and any ε-arcs after x_i
    backward(closed=False)[i, q]  ⊕ over path suffixes from q that derive x_{i+1}…x_n and begin with the arc that
                                  consumes x_{i+1} (for i = n: that stop at once)
    backward(closed=True)[i, q]   the same, and any ε-arcs before x_{i+1} (for i = n: before the end)

Prefixes include the initial weight, suffixes the final one. The tables are those of a trellis whose step i takes the
arcs that consume x_{i+1}, and whose silent edges are the ε-arcs; it steps by the machine's matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from rrnn.errors import AutomatonError, SemiringError
from rrnn.wfsa.automaton import Automaton
from rrnn.wfsa.scoring import checked_counts, require_probabilities
from rrnn.wfsa.transitions import Transitions, transitions
from rrnn.wfsa.trellis import Edges, Scaled, Trellis


class ForwardBackward(Automaton):
    """Methods of `WFSA` that return a table with one row for each position of a string."""

    def forward(self, string: Any, *, closed: bool = True) -> Tensor:
        """Return (n+1, Q): row i holds the ⊕ over all path prefixes that derive x_1…x_i and end in q.

        `closed=False` leaves out the ε-arcs after x_i: the paths that land in q *just* after consuming x_i.
        """
        ids = self.encode(string)

        def table(m: Automaton) -> Tensor:
            steps = trellis(m, ids)
            return steps.plain(steps.forward(closed=closed), 1)

        return checked_counts(self, table)

    def backward(self, string: Any, *, closed: bool = True) -> Tensor:
        """Return (n+1, Q): row i holds the ⊕ over all path suffixes from q that derive x_{i+1}…x_n, final weight
        included.

        `closed=False` leaves out the ε-arcs before x_{i+1}. For every i, ⟦x⟧ = ⊕_q forward(closed=True)[i, q] ⊗
        backward(closed=False)[i, q], and likewise with the flags swapped.
        """
        ids = self.encode(string)

        def table(m: Automaton) -> Tensor:
            steps = trellis(m, ids)
            return steps.plain(steps.backward(closed=closed), 1)

        return checked_counts(self, table)

    def arc_marginals(self, string: Any, *, normalize: bool = False) -> Tensor:
        """Return (n+1, A): entry [i, a] is the ⊕ of the scores of all paths that derive the string and take arc a when
        i symbols have been consumed.

        For an arc that consumes a symbol, i is the (0-based) position of that symbol, and the entry is 0̄ where the
        string has another symbol there; for an ε-arc, i counts the symbols before it, so row n (after the last symbol)
        has entries of ε-arcs only. The meaning depends on the semiring:

        - real: a sum of path scores, signed and not normalised. With negative weights it may exceed the score.
        - log: the logarithm of that sum.
        - counting: the number of paths.
        - boolean: whether there is a path.
        - max-plus, min-plus, max-times: the score of the best path through that arc at that position.

        With an ε-cycle, a path may take one arc several times at one position, and is then summed once for each time:
        over the reals, entries are weighted numbers of uses (and, summed over i, always weight · ∂score/∂weight).

        `normalize=True` divides by the score. This gives the posterior probability of the arc at that position (with
        ε-cycles: the expected number of uses), as plain numbers in every semiring. It needs weights that are not
        negative: real with none below 0, log, counting.
        """
        ids = self.encode(string)
        if not normalize:
            return _mass(self, ids)
        require_probabilities(self, "arc_marginals(normalize=True)")
        machine = self.with_semiring("real") if self.semiring.integers else self
        return _mass(machine, ids, string)


class ArcsBySymbol:
    """Hold the arcs of a machine as edges, by symbol and then by source; ε is symbol −1."""

    def __init__(self, machine: Automaton) -> None:
        self.machine = machine
        symbol, states = machine.arc_symbol, machine.num_states
        self.order = ((symbol + 1) * states + machine.arc_source).argsort(stable=True)
        self.begin = torch.searchsorted(symbol[self.order], torch.arange(-1, len(machine.alphabet) + 1))
        self._found: dict[int, tuple[Tensor, Edges, Tensor]] = {}

    def __call__(self, symbol: int) -> tuple[Tensor, Edges, Tensor]:
        """Return the numbers, the edges and the weights of the arcs of a symbol."""
        if symbol not in self._found:
            machine = self.machine
            arcs = self.order[self.begin[symbol + 1] : self.begin[symbol + 2]]
            edges = Edges(machine.num_states, machine.arc_source[arcs], machine.arc_target[arcs])
            self._found[symbol] = (arcs, edges, machine.arc_weight[arcs])
        return self._found[symbol]


@dataclass(frozen=True, eq=False, kw_only=True)
class StringTrellis(Trellis):
    """Unroll a machine over one string."""

    machine: Automaton
    ids: list[int]
    arcs: list[Tensor]
    """The number of each edge's arc, by step."""
    silent_arcs: Tensor

    @cached_property
    def _forwards(self) -> Transitions:
        return transitions(self.machine)

    @cached_property
    def _backwards(self) -> Transitions:
        return transitions(_mirrored(self.machine))

    def ahead(self, t: int, row: Tensor) -> Tensor:
        return self._forwards.step(row.unsqueeze(0), [(self.ids[t], 1)]).squeeze(0)

    def back(self, t: int, row: Tensor) -> Tensor:
        if not self.ring.commutative:
            raise SemiringError(
                "backward tables are computed on the mirrored machine, which multiplies in the other order, and need a "
                f"commutative ⊗; that of {self.ring.name} is not. Score the strings, or list their paths."
            )
        return self._backwards.step(row.unsqueeze(0), [(self.ids[t], 1)]).squeeze(0)

    def close(self, row: Tensor) -> Tensor:
        return row if self._forwards.close is None else self._forwards.close(row.unsqueeze(0)).squeeze(0)

    def close_back(self, row: Tensor) -> Tensor:
        return row if self._backwards.close is None else self._backwards.close(row.unsqueeze(0)).squeeze(0)


def trellis(machine: Automaton, ids: list[int]) -> StringTrellis:
    """Return the machine unrolled over a string."""
    by_symbol = machine.cached("by symbol", lambda: ArcsBySymbol(machine))
    steps = [by_symbol(symbol) for symbol in ids]
    silent_arcs, silent, silent_weight = by_symbol(-1)
    return StringTrellis(
        machine.semiring,
        [edges for _, edges, _ in steps],
        [weight for _, _, weight in steps],
        machine.initial_weight,
        torch.arange(machine.num_states),
        machine.final_weight,
        silent=(silent, silent_weight) if len(silent) else None,
        machine=machine,
        ids=ids,
        arcs=[arcs for arcs, _, _ in steps],
        silent_arcs=silent_arcs,
    )


def _mirrored(machine: Automaton) -> Automaton:
    """Return the machine with arcs turned round and λ and ρ exchanged; states and arcs keep their places."""
    return machine.cached(
        "mirrored",
        lambda: machine.replace(
            source=machine.arc_target,
            target=machine.arc_source,
            initial=machine.final_weight,
            final=machine.initial_weight,
        ),
    )


def _mass(machine: Automaton, ids: list[int], divided_for: Any = None) -> Tensor:
    """Return the masses of arcs, divided by the score if the string (for a message) is given."""
    ring, steps = machine.semiring, trellis(machine, ids)
    before, after = steps.forward(), steps.backward()
    score, score_exponent = steps.total(before)
    if divided_for is not None and bool(ring.is_zero(score.detach())):
        raise AutomatonError(
            f"probabilities of arcs need a string that some path derives; none derives {divided_for!r}"
        )

    def value(mass: Scaled) -> Tensor:
        if divided_for is None:
            return steps.plain(mass, 0)
        if ring.logarithmic:
            return (mass.values - score).exp()
        return steps.plain(Scaled(mass.values / score, mass.exponent - score_exponent), 0)

    parts = [
        (t, arcs, value(m))
        for t, (arcs, m) in enumerate(zip(steps.arcs, steps.masses(before, after), strict=True))
    ]
    if steps.silent is not None:
        parts += [(t, steps.silent_arcs, value(m)) for t, m in enumerate(steps.silent_masses(before, after))]
    shape, dtype = (len(ids) + 1, machine.num_arcs), before.values.dtype
    found = ring.zeros(*shape, dtype=dtype) if divided_for is None else torch.zeros(shape, dtype=dtype)
    if not parts:
        return found
    rows = torch.cat([torch.full_like(arcs, t) for t, arcs, _ in parts])
    columns = torch.cat([arcs for _, arcs, _ in parts])
    return found.index_put((rows, columns), torch.cat([values for _, _, values in parts]))
