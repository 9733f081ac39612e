"""Forward, backward and masses over moves: a part of a reading as a trellis, all units and sentences at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rrnn.errors import AutomatonError
from rrnn.interpret.moves import Move
from rrnn.interpret.reading import CellReading, Reading
from rrnn.semirings import Semiring
from rrnn.wfsa.trellis import Edges, Scaled, Trellis

Which = Callable[[Move], bool]


def every(move: Move) -> bool:
    """Choose all moves."""
    return True


def stays(move: Move) -> bool:
    """Choose the moves that do not enter."""
    return not move.enters


def enters(move: Move) -> bool:
    """Choose the moves that enter."""
    return move.enters


def trellis(part: CellReading, valid: Tensor | None, which: Which = every) -> Trellis:
    """Return the trellis of a part over these moves; its lanes are (B, D), sentences and units."""
    index = part.moves.index
    chosen = [m for m, move in enumerate(part.moves.moves) if which(move)]
    moves = [part.moves.moves[m] for m in chosen]
    ends = ([index[m.source] for m in moves], [index[m.target] for m in moves])
    edges = Edges(len(index), *(torch.tensor(states, dtype=torch.int64) for states in ends))
    weights = part.weights if len(chosen) == len(part.moves.moves) else part.weights[:, chosen]
    lanes = part.weights.shape[2:]
    return Trellis(
        part.ring,
        [edges] * len(weights),
        weights.unbind(0) if len(weights) else (),
        part.initial.unsqueeze(1).expand(-1, *lanes),
        torch.tensor([index[end.source] for end in part.moves.ends], dtype=torch.int64),
        part.ends.unsqueeze(1).expand(-1, *lanes),
        None if valid is None else valid.unsqueeze(-1),
    )


def forward(part: CellReading, valid: Tensor | None, which: Which = every) -> Tensor:
    """Return (T + 1, S, B, D): ⊕ of all beginnings that end in each state after t symbols."""
    steps = trellis(part, valid, which)
    return steps.plain(steps.forward(), 1)


def backward(part: CellReading, valid: Tensor | None, which: Which = every) -> Tensor:
    """Return (T + 1, S, B, D): ⊕ of all ways from each state after t symbols to the end."""
    steps = trellis(part, valid, which)
    return steps.plain(steps.backward(), 1)


def total(part: CellReading, valid: Tensor | None, which: Which = every) -> Tensor:
    """Return (B, D): ⊕ of all paths."""
    steps = trellis(part, valid, which)
    return steps.plain(steps.total())


def meet(part: CellReading, alpha: Tensor, beta: Tensor) -> Tensor:
    """Return the ⊕ over states of beginnings and ends, (…, S, B, D) each."""
    return part.ring.t_sum(part.ring.t_times(alpha, beta), -3)


def masses(
    part: CellReading, before: Scaled, after: Scaled, valid: Tensor | None, which: Which = every
) -> Tensor:
    """Return (T, B, D): at each step, ⊕ of the paths that take one of these moves there; 0̄ behind the end."""
    steps, ring = trellis(part, valid, which), part.ring
    found = [
        steps.plain(Scaled(ring.t_sum(mass, 0), exponent)) for mass, exponent in steps.masses(before, after)
    ]
    return torch.stack(found) if found else part.weights.new_empty(0, *part.weights.shape[2:])


def side_by_side(parts: Sequence[CellReading], found: Sequence[Tensor], dim: int) -> Tensor:
    """Return what was found for the units of each part, in the layer's order along this dimension."""
    if len({len(part.ring.components) for part in parts}) > 1:
        names = ", ".join(dict.fromkeys(part.ring.name for part in parts))
        raise AutomatonError(
            f"units side by side need weights of equally many numbers; the cells of this layer are over {names}. "
            "Look at them in turn: reading.of_units([…])."
        )
    return torch.cat(list(found), dim)


def scores(reading: Reading) -> Tensor:
    """The score of each unit for each whole sentence, (B, D), as the cell's output expression reads it last."""
    return side_by_side(reading.parts, [total(part, reading.valid) for part in reading.parts], 1)


def rank(ring: Semiring, weight: Tensor) -> Tensor:
    """Return the ranks of weights; −∞ for 0̄."""
    return ring.on_tensors(ring.rank, weight)


def weight_of(ring: Semiring, rank: Tensor, negative: Tensor | bool = False) -> Tensor:
    """Return the weight that has this rank, with this sign."""
    if ring.logarithmic:
        return ring.bind(ring.on_tensors(ring.from_log, rank))
    size = ring.bind(ring.on_tensors(ring.from_real, rank.exp2()))
    return torch.where(torch.as_tensor(negative), -size, size)


def share(ring: Semiring, some: Tensor, whole: Tensor) -> Tensor:
    """Return how much of the whole some paths are, both ⊕ over paths of weights that cannot cancel; NaN of nothing."""
    if ring.logarithmic:
        return (ring.on_tensors(ring.to_log, some) - ring.on_tensors(ring.to_log, whole)).exp()
    return ring.on_tensors(ring.to_real, some) / ring.on_tensors(ring.to_real, whole)
