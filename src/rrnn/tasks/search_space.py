"""What a random search draws from: ranges, and settings that depend on a seed and a trial's number alone.

No library is needed for it, and any number of workers draws the same settings.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Real:
    """A real number between two; with `log` its logarithm is drawn evenly."""

    low: float
    high: float
    log: bool = False

    def at(self, share: float) -> float:
        """The number at a share (0 to 1) of the range."""
        if self.log:
            return math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        return self.low + share * (self.high - self.low)


@dataclass(frozen=True)
class Whole:
    """A whole number between two, both included, in steps."""

    low: int
    high: int
    step: int = 1

    def at(self, share: float) -> int:
        count = (self.high - self.low) // self.step + 1
        return self.low + self.step * min(int(share * count), count - 1)


Range = Real | Whole
Space = Mapping[str, Range]
Setting = dict[str, float | int]


def draw(name: str, values: Range, seed: int, number: int) -> float | int:
    """One value of trial `number`: other ranges, and their order, do not matter."""
    return values.at(np.random.default_rng([seed, number, zlib.crc32(name.encode())]).random())


def draw_setting(space: Space, seed: int, number: int) -> Setting:
    """The setting of trial `number`."""
    return {name: draw(name, values, seed, number) for name, values in space.items()}
