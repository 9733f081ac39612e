"""Leave-one-out: what a unit's score would be without each token, for all tokens at once.

Paths of the shortened sentence are beginnings before the token, met by ends after it: from the two tables, all
positions cost about as much as one score. A window sees the tokens before, so that the K − 1 steps after a removed
token weigh otherwise; these are computed anew, for all positions together.
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
    """T positions, B sentences, D units in the order of `units`."""

    tokens: tuple[tuple[str, ...], ...]
    units: tuple[int, ...]
    score: Tensor
    """(B, D)"""
    without: Tensor
    """(T, B, D): the score of the sentence without the token at this position; behind the end, the score."""

    @property
    def effect(self) -> Tensor:
        """(T, B, D): by how much the token raises the score."""
        same = self.score == self.without  # both may be infinite
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
    """Every unit's score with each token deleted in turn: exact, and O(T) for all of them."""
    if reading.depth:
        raise AutomatonError(
            f"a token can be deleted from what the first layer reads; layer {reading.depth} reads states that depend "
            "on it at many positions, so nothing is known of them without it. Run the model on the shorter sentence."
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
    """(T, B, D): the beginnings before each step, led over the `reach` steps after it, met by the ends."""
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
    """The parts on `reach` steps and T·B sentences: what follows each position, after what precedes it."""
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
