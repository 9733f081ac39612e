"""Leave-one-out: compute what a unit's score would be without each token, for all tokens at once.

A path of the shortened sentence is a beginning before the token joined with an ending after it. With the forward and
backward tables, all positions together cost about as much as one score. A window sees earlier tokens, so the weights of
the K − 1 steps after a deleted token change; these are recomputed, for all positions together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rrnn.errors import AutomatonError
from rrnn.interpret.paths import finite
from rrnn.interpret.reading import CellReading, Reading, weigh
from rrnn.interpret.trellises import backward, forward, meet, side_by_side, trellis


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """The result of `leave_one_out`, for T positions, B sentences and D units in the order of `units`."""

    tokens: tuple[tuple[str, ...], ...]
    units: tuple[int, ...]
    score: Tensor
    """(B, D)"""
    without: Tensor
    """(T, B, D): the score of the sentence without the token at this position; after its end, the score itself."""

    @property
    def effect(self) -> Tensor:
        """(T, B, D): how much the token adds to the score."""
        same = self.score == self.without  # also where both are infinite
        return torch.where(same, 0.0, self.score - self.without)

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {
                "tokens": list(words),
                "units": [
                    {
                        "unit": unit,
                        "score": finite(self.score[b, d].tolist()),
                        "without": finite(self.without[: len(words), b, d].tolist()),
                    }
                    for d, unit in enumerate(self.units)
                ],
            }
            for b, words in enumerate(self.tokens)
        ]


def leave_one_out(reading: Reading) -> LeaveOneOut:
    """Compute every unit's score with each token deleted in turn: exactly, and in O(T) for all tokens."""
    if reading.depth:
        raise AutomatonError(
            f"leave_one_out needs a reading of the first layer; layer {reading.depth} reads states that depend on a "
            "token at many positions. Run the model on the shortened sentence instead."
        )
    valid = reading.valid
    reach = reading.layer.window - 1
    around = _around(reading, reach) if reach else reading.parts
    scores, found = [], []
    for part, near in zip(reading.parts, around, strict=True):
        alpha, beta = forward(part, valid), backward(part, valid)
        scores.append(meet(part, alpha[-1], beta[-1]))
        found.append(_without(reading, near, alpha[:-1], beta, reach))
    score = side_by_side(reading.parts, scores, 1)
    without = reading.in_order(side_by_side(reading.parts, found, 2))
    if valid is not None:
        without = torch.where(valid.view(*valid.shape, *[1] * (without.dim() - 2)), without, score)
    return LeaveOneOut(reading.tokens, reading.units, score, without)


def _without(reading: Reading, near: CellReading, alpha: Tensor, beta: Tensor, reach: int) -> Tensor:
    """Return (T, B, D): beginnings before each step, advanced over the `reach` steps after it, joined with endings."""
    steps = torch.arange(len(alpha))
    if reach:
        lengths = torch.tensor(reading.lengths, dtype=torch.int64)
        there = steps[:, None] + 1 + torch.arange(reach)[:, None, None] < lengths  # (reach, T, B)
        over = trellis(near, there.flatten(1))
        led = replace(over, initial=alpha.transpose(0, 1).flatten(1, 2))
        row = over.plain(led.forward(), 1)[-1]
        alpha = row.unflatten(1, alpha[:, 0].shape[:2]).transpose(0, 1)
    return meet(near, alpha, beta[(steps + 1 + reach).clamp_max(len(alpha))])


def _around(reading: Reading, reach: int) -> list[CellReading]:
    """Return readings of `reach` steps and T·B sentences: the tokens after each position, following those before it."""
    x = reading.x
    steps, batch, size = x.shape
    padding = x.new_zeros(reach, batch, size)
    padded = torch.cat([padding, x, padding])
    before = torch.stack([padded[k : k + steps] for k in range(reach)])
    after = torch.stack([padded[reach + 1 + k : reach + 1 + k + steps] for k in range(reach)])
    with torch.no_grad():
        parts = weigh(reading.layer, after.flatten(1, 2), before.flatten(1, 2))
    owner = {unit: (part, c) for part in parts for c, unit in enumerate(part.units)}
    return [owner[p.units[0]][0].only([owner[unit][1] for unit in p.units]) for p in reading.parts]
