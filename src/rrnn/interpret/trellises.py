"""Turn a reading into trellises, and compute forward and backward tables, scores, masses and ranks on them.

The functions take the reading of one cell's units and compute all units and sentences at once.

Paths compare by their ranks: ranks add up along a path, and the path with the greatest rank is the strongest. Over
the reals and other numbers that multiply, a rank is log₂ of the magnitude (exact for powers of two), without the sign.
Logarithms are their own ranks, and so are costs with the sign reversed.
"""

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
    """Select all moves."""
    return True


def stays(move: Move) -> bool:
    """Select the moves that do not enter."""
    return not move.enters


def enters(move: Move) -> bool:
    """Select the moves that enter."""
    return move.enters


def trellis(part: CellReading, valid: Tensor | None, which: Which = every) -> Trellis:
    """Return the trellis of a cell's reading over the selected moves; its lanes are (B, D), sentences and units."""
    index, (edges, weights) = part.moves.index, _edges(part, which)
    lanes = part.weights.shape[2:]
    return Trellis(
        part.ring,
        [edges] * len(weights),
        weights,
        part.initial.unsqueeze(1).expand(-1, *lanes),
        torch.tensor([index[end.source] for end in part.moves.ends], dtype=torch.int64),
        part.ends.unsqueeze(1).expand(-1, *lanes),
        None if valid is None else valid.unsqueeze(-1),
    )


def _edges(part: CellReading, which: Which) -> tuple[Edges, Tensor]:
    """Return the selected moves as edges, and their weights (T, edges, B, D)."""
    index = part.moves.index
    chosen = [m for m, move in enumerate(part.moves.moves) if which(move)]
    moves = [part.moves.moves[m] for m in chosen]
    ends = ([index[m.source] for m in moves], [index[m.target] for m in moves])
    edges = Edges(len(index), *(torch.tensor(states, dtype=torch.int64) for states in ends))
    weights = part.weights if len(chosen) == len(part.moves.moves) else part.weights[:, chosen]
    return edges, weights


def forward(part: CellReading, valid: Tensor | None, which: Which = every) -> Tensor:
    """Return (T + 1, S, B, D): the ⊕ of all beginnings of paths that reach each state after t symbols."""
    steps = trellis(part, valid, which)
    return steps.plain(steps.forward(), 1)


def backward(part: CellReading, valid: Tensor | None, which: Which = every) -> Tensor:
    """Return (T + 1, S, B, D): the ⊕ of all endings of paths from each state after t symbols."""
    steps = trellis(part, valid, which)
    return steps.plain(steps.backward(), 1)


def total(part: CellReading, valid: Tensor | None, which: Which = every) -> Tensor:
    """Return (B, D): the ⊕ of all paths."""
    steps = trellis(part, valid, which)
    return steps.plain(steps.total())


def meet(part: CellReading, alpha: Tensor, beta: Tensor) -> Tensor:
    """Join beginnings and endings, (…, S, B, D) each: return the ⊕ of their products over states."""
    return part.ring.t_sum(part.ring.t_times(alpha, beta), -3)


def masses(
    part: CellReading, before: Scaled, after: Scaled, valid: Tensor | None, which: Which = every
) -> Tensor:
    """Return (T, B, D): the ⊕ of the paths that take a selected move at each step; 0̄ after the end."""
    ring, (edges, weights) = part.ring, _edges(part, which)
    middle = ring.t_times(before.values[:-1, edges.source], weights)
    found = ring.t_sum(ring.t_times(middle, after.values[1:, edges.target]), 1)
    steps = trellis(part, valid, which)
    found = steps.plain(Scaled(found, before.exponent[:-1] + after.exponent[1:]))
    return found if valid is None else ring.where(valid.unsqueeze(-1), found, ring.zeros(dtype=found.dtype))


def side_by_side(parts: Sequence[CellReading], found: Sequence[Tensor], dim: int) -> Tensor:
    """Concatenate the results of each cell's units along this dimension, in the layer's order."""
    if len({len(part.ring.components) for part in parts}) > 1:
        names = ", ".join(dict.fromkeys(part.ring.name for part in parts))
        raise AutomatonError(
            f"the cells of this layer are over {names}, whose weights have different numbers of components, so their "
            "results do not fit into one tensor. Look at one cell's units at a time: reading.of_units([…])."
        )
    return torch.cat(list(found), dim)


def scores(reading: Reading) -> Tensor:
    """Return the score of each unit for each whole sentence, (B, D)."""
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
    """Return the fraction of the whole that some paths make up, for weights that cannot cancel; NaN for no paths."""
    if ring.logarithmic:
        return (ring.on_tensors(ring.to_log, some) - ring.on_tensors(ring.to_log, whole)).exp()
    return ring.on_tensors(ring.to_real, some) / ring.on_tensors(ring.to_real, whole)
