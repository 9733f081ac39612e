"""How much of a score goes through each arc at each position: ⊕ of the weights of all paths that take it there.

Over the reals such a mass is signed and not normalised: with weights that cancel it may exceed the score, so it is no
probability. Over log (and counting) weights cannot cancel, and `posterior` divides by the score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rrnn.automata import CellArc
from rrnn.errors import AutomatonError, SemiringError
from rrnn.interpret.ranks import share
from rrnn.interpret.reading import Part, Reading
from rrnn.interpret.tables import trellis
from rrnn.semirings import get_semiring
from rrnn.wfsa.trellis import Scaled


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
        if ring.cancels or not ring.adds_probabilities:
            raise SemiringError(
                f"masses over {ring.name} are no probabilities: "
                + (
                    "paths can cancel, so they do not add up to one"
                    if ring.cancels
                    else "⊕ does not add them"
                )
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
    ring, arcs, steps = part.ring, part.cell.arcs, trellis(part, reading.valid)
    before, after = steps.forward(), steps.backward()
    found = [steps.plain(mass, 0) for mass in steps.masses(before, after)]
    batch, width = steps.lanes
    mass = ring.zeros(len(found) + 1, len(arcs), batch, width, dtype=part.weights.dtype)

    def add(arc: CellArc, value: Tensor, places: Any = slice(None)) -> None:
        (number,) = (i for i, other in enumerate(arcs) if other is arc)
        mass[places, number] = ring.t_plus(mass[places, number], value)

    for m, move in enumerate(part.moves.moves if found else ()):
        value = torch.stack([of_step[m] for of_step in found])
        for arc in move.bridge.arcs:
            add(arc, value, slice(len(found)))
        add(move.arc, reading.in_order(value), slice(len(found)))
    last = steps.plain(Scaled(before.values[-1], before.exponent[-1]), 0)
    lengths, every = torch.tensor(reading.lengths, dtype=torch.int64), torch.arange(batch)
    for end, weight in zip(part.moves.ends, part.ends, strict=True):
        value = ring.zeros(len(found) + 1, batch, width, dtype=mass.dtype)
        value[lengths, every] = ring.t_times(last[part.moves.index[end.source]], weight)
        for arc in end.bridge.arcs:
            add(arc, value)
    score = steps.plain(steps.total(before))
    return ArcMasses(part.cell.name, ring.name, reading.tokens, part.units, arcs, score, mass)
