"""How much of a score goes through each arc at each position: ⊕ of the weights of all paths that take it there.

Over the reals such a mass is signed and not normalised: with weights that cancel it may exceed the score, so it is no
probability. Over log (and counting) weights cannot cancel, and `posterior` divides by the score.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rrnn.automata import CellArc
from rrnn.errors import AutomatonError, SemiringError
from rrnn.interpret.moves import Bridge
from rrnn.interpret.ranks import share
from rrnn.interpret.reading import Part, Reading
from rrnn.interpret.tables import backward, forward, meet
from rrnn.semirings import get_semiring


@dataclass(frozen=True, eq=False)
class ArcMasses:
    """The units of one cell: T positions, B sentences, D units in the order of `units`."""

    cell: str
    semiring: str
    tokens: tuple[tuple[str, ...], ...]
    units: tuple[int, ...]
    arcs: tuple[CellArc, ...]
    score: Tensor
    """(B, D)"""
    mass: Tensor
    """(T + 1, arcs, B, D): of an arc that consumes, at the position of its token; of an ε-arc, after so many tokens in
    the order of reading."""

    @property
    def posterior(self) -> Tensor:
        """`mass` as a share of the score: the probability of the arc there, where no weight can be negative."""
        ring = get_semiring(self.semiring)
        if ring.laws.selective or ring.laws.has_negation:
            raise SemiringError(
                f"masses over {ring.name} are no probabilities: "
                + ("they are signed and do not add up to one" if ring.laws.has_negation else "⊕ does not add")
                + ". Use a cell over log, or look at `mass`."
            )
        return share(ring, self.mass, self.score)


def arc_masses(reading: Reading) -> list[ArcMasses]:
    """The masses of all arcs, cell by cell of the layer."""
    return [_masses(reading, part) for part in reading.parts]


def _masses(reading: Reading, part: Part) -> ArcMasses:
    if any(bridge.star for bridge in part.moves.bridges):
        raise AutomatonError(
            f"the ε-arcs of {part.cell.name} form a cycle, which paths take any number of times: the mass of an arc in "
            "it is not told apart. Say .limit_epsilon(k)."
        )
    ring, arcs, valid = part.ring, part.cell.arcs, reading.valid
    alpha, beta = forward(part, valid), backward(part, valid)
    lengths, (batch, width) = torch.tensor(reading.lengths, dtype=torch.int64), alpha.shape[2:]
    mass = torch.full((alpha.shape[0], len(arcs), batch, width), ring.zero, dtype=alpha.dtype)

    def add(arc: CellArc, value: Tensor) -> None:
        (number,) = (i for i, other in enumerate(arcs) if other is arc)
        mass[:, number] = ring.t_plus(mass[:, number], value)

    def nothing() -> Tensor:
        return torch.full((alpha.shape[0], batch, width), ring.zero, dtype=alpha.dtype)

    def over(bridge: Bridge, value: Tensor) -> None:
        for arc in bridge.arcs:
            add(arc, value)

    for source, target, move, weight in part.graph:
        value = nothing()
        value[:-1] = ring.t_times(ring.t_times(alpha[:-1, source], weight), beta[1:, target])
        if valid is not None:
            value[:-1] = torch.where(valid.unsqueeze(-1), value[:-1], ring.zero)
        over(move.bridge, value)
        value[:-1] = reading.in_order(value[:-1])
        add(move.arc, value)
    for end, weight in zip(part.moves.ends, part.ends, strict=True):
        value = nothing()
        value[lengths, torch.arange(batch)] = ring.t_times(alpha[-1, part.moves.index[end.source]], weight)
        over(end.bridge, value)
    score = meet(part, alpha[-1], beta[-1])
    return ArcMasses(part.cell.name, ring.name, reading.tokens, part.units, arcs, score, mass)
