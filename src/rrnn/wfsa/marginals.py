"""How much of a string's score goes through each arc, at each position.

`arc_marginals(machine, x)[i, a]` is the ⊕ of the scores of all paths deriving x that take arc a when i symbols
have been consumed: for an arc that consumes, i is the (0-based) position of the symbol it reads, and the entry is
0̄ where x has another symbol there; for an ε-arc, i counts the symbols before it, so row n (after the last symbol)
has ε-arcs only. What that means depends on the semiring:

- real: a sum of path scores, signed and not normalised. With negative weights it may exceed the score.
- log: the logarithm of that sum.  - counting: how many paths.  - boolean: is there one.
- max-plus, min-plus, max-times: the score of the best path through that arc at that position.

With an ε-cycle a path may take one arc several times at one position, and is then summed once for each time: over
the reals entries are weighted numbers of uses (and weight · ∂score/∂weight, summed over i, always).

`normalize=True` divides by the score, which gives the posterior probability of the arc at that position (with
ε-cycles: the expected number of uses), as plain numbers in every semiring. It needs weights that are not negative:
real with none below 0, log, counting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rrnn.errors import AutomatonError, SemiringError
from rrnn.wfsa.scoring import finish
from rrnn.wfsa.strings import encode
from rrnn.wfsa.tables import backward_table, forward_table, plain

if TYPE_CHECKING:
    from rrnn.wfsa.machine import WFSA


def arc_marginals(machine: WFSA, string: Any, *, normalize: bool = False) -> Tensor:
    """(n+1, A): the mass through arc a when i symbols have been consumed."""
    ids = encode(machine, string)
    if not normalize:
        return _mass(machine, ids)
    require_non_negative(machine, "arc_marginals(normalize=True)")
    if machine.semiring.name == "counting":
        machine = machine.with_semiring("real")
    return _mass(machine, ids, string)


def _mass(machine: WFSA, ids: list[int], divided_for: Any = None) -> Tensor:
    """The mass, or (given the string, for a message) the mass over the score."""
    ring = machine.semiring
    before, before_scale = forward_table(machine, ids, closed=True)
    after, after_scale = backward_table(machine, ids, closed=True)
    score, score_scale = finish(machine, before[-1:]), before_scale[-1:]
    if divided_for is not None and float(score.detach()) == ring.zero:
        raise AutomatonError(f"probabilities of arcs need a string with a path; none derives {divided_for!r}")

    def through(rows: Tensor, rows_scale: Tensor, landing: Tensor, landing_scale: Tensor) -> Tensor:
        middle = ring.t_times(rows[:, machine.arc_source], machine.arc_weight)
        mass, scale = ring.t_times(middle, landing[:, machine.arc_target]), rows_scale + landing_scale
        if divided_for is None:
            return plain(mass, scale)
        return (mass - score).exp() if ring.name == "log" else plain(mass / score, scale - score_scale)

    nothing = ring.zero if divided_for is None else 0.0
    # An arc that consumes lands one row further on, so there is none in the last row; ε stays in its row.
    consuming = through(before[:-1], before_scale[:-1], after[1:], after_scale[1:])
    symbols = torch.tensor(ids, dtype=torch.int64).unsqueeze(1)
    consuming = consuming.where(machine.arc_symbol == symbols, consuming.new_full((), nothing))
    consuming = torch.cat((consuming, consuming.new_full((1, machine.num_arcs), nothing)))
    if not machine.has_epsilon:
        return consuming
    return consuming.where(machine.arc_symbol >= 0, through(before, before_scale, after, after_scale))


def require_non_negative(machine: WFSA, what: str) -> None:
    """Weights that stand for probabilities, or proportional to them."""
    ring = machine.semiring
    if ring.name not in ("real", "log", "counting"):
        raise SemiringError(
            f"{what} needs a semiring whose ⊕ adds probabilities: real, log or counting; this machine is over "
            f"{ring.name}. Convert it: with_semiring('real')."
        )
    if ring.name == "real":
        lowest = min((float(w.detach().min()) for w in machine.weights if w.numel()), default=0.0)
        if lowest < 0:
            raise SemiringError(
                f"{what} needs weights that are not negative, so that they are proportional to "
                f"probabilities; this machine has {lowest!r}"
            )
