"""Compute the masks of the kernel in `rrnn.nn.dropout` by their definition, in NumPy."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def philox(key: int, counter: list[np.ndarray]) -> list[np.ndarray]:
    """Return the random words of Philox 4x32-7, as in "Parallel random numbers: as easy as 1, 2, 3"."""
    c, low = [word.astype(np.uint64) for word in counter], np.uint64(2**32 - 1)
    k1, k0 = divmod(key, 1 << 32)
    for _ in range(7):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [b >> 32 ^ c[1] ^ np.uint64(k0), b & low, a >> 32 ^ c[3] ^ np.uint64(k1), a & low]
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c


def defined_mask(
    shape: tuple[int, int, int], each: float, shared: float, key: int, number: int, first: int = 0
) -> Tensor:
    """Return a mask of `shape` (T, B, D).

    The first unit of the first sequence has the index `first`; `number` counts the masks of a pass from 1.
    """
    steps, batch, units = shape
    place = np.broadcast_to(np.arange(first, first + batch * units), (steps, batch * units))
    t = np.broadcast_to(np.arange(steps)[:, None], place.shape)
    low, high, zero = place & (2**32 - 1), place >> 32, np.zeros_like(place)
    words = np.stack(philox(key, [low, high, t // 4, zero + 2 * number]))
    of_each = np.take_along_axis(words, (t % 4)[None], 0)[0]
    of_all = philox(key, [low, high, zero, zero + 2 * number + 1])[0]
    mask = np.ones(place.shape)
    for bits, p in ((of_each, each), (of_all, shared)):
        # compared as int32: the upper half of the numbers comes first
        below = (bits ^ np.uint64(1 << 31)).astype(np.float64) / 2**32 < p
        mask *= np.where(below, 0.0, 1 / (1 - p))
    return torch.from_numpy(mask).view(shape).float()
