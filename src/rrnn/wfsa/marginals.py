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
from rrnn.wfsa.strings import encode
from rrnn.wfsa.tables import trellis
from rrnn.wfsa.trellis import Scaled

if TYPE_CHECKING:
    from rrnn.wfsa.machine import WFSA


def arc_marginals(machine: WFSA, string: Any, *, normalize: bool = False) -> Tensor:
    """Return (n + 1, A): the mass through arc a when i symbols have been consumed."""
    ids = encode(machine, string)
    if not normalize:
        return _mass(machine, ids)
    require_non_negative(machine, "arc_marginals(normalize=True)")
    if machine.semiring.integers:
        machine = machine.with_semiring("real")
    return _mass(machine, ids, string)


def _mass(machine: WFSA, ids: list[int], divided_for: Any = None) -> Tensor:
    """Return the mass, or (given the string, for a message) the mass over the score."""
    ring, steps = machine.semiring, trellis(machine, ids)
    before, after = steps.forward(), steps.backward()
    score, score_exponent = steps.total(before)
    if divided_for is not None and bool(ring.is_zero(score.detach())):
        raise AutomatonError(f"probabilities of arcs need a string with a path; none derives {divided_for!r}")

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


def require_non_negative(machine: WFSA, what: str) -> None:
    """Raise unless weights stand for probabilities, or numbers proportional to them."""
    ring = machine.semiring
    if not ring.adds_probabilities:
        raise SemiringError(
            f"{what} needs a semiring whose ⊕ adds probabilities: real, log or counting; this machine is over "
            f"{ring.name}. Convert it: with_semiring('real')."
        )
    if ring.cancels:
        lowest = min((float(w.detach().min()) for w in machine.weights if w.numel()), default=0.0)
        if lowest < 0:
            raise SemiringError(
                f"{what} needs weights that are not negative, so that they are proportional to "
                f"probabilities; this machine has {lowest!r}"
            )
