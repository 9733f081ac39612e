"""Choose whether the matrix schedule pays, and its sizes, by a small rule on sizes, dtype and the device."""

from __future__ import annotations

import torch

from rrnn.backends.matrix.factors import Tiles, Walk, padded
from rrnn.backends.triton.plan import Gpu
from rrnn.ir.separable import SIGN, Separable

LEAST_STATES = 16
"""Fewer states do not fill a tile of the tensor cores, and on a CPU compiled loops are as fast as torch's products."""
PROGRAMS = 2
"""Programs for each multiprocessor, at least, that segments are cut for."""


def pays(parts: Separable, device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether the matrix schedule is expected to be faster than the scalar one, and as exact. (A decay that is a
    bare parameter has a gradient at 0, which its logarithm has not.)"""
    if SIGN in parts.factors.of_kind("factor") and not parts.turns:
        return False
    return parts.size >= LEAST_STATES


def on_cpu(chunk: int = 64) -> Tiles:
    """Return the sizes for torch's products: states are saved before each chunk."""
    none = Walk(0, 0, 0, 0)
    return Tiles(chunk, chunk, none, none, none, none, none)


def needs(C: int, walk: Walk, decay: str, size: int, tensors: tuple[int, int]) -> int:
    """Return about how many bytes of shared memory a kernel needs that reads so many tensors of states and of units:
    what it loads ahead, the running sums, and operands of products that are computed."""
    N, U, stages = walk.states, walk.units, max(1, walk.stages - 1)
    loads = C * (tensors[0] * N + tensors[1] * U) * size + (4 * C * N if decay == "state" else 0)
    return stages * loads + size * (N * U + C * C + (C * N if decay == "state" else 0))


def tiles_of(
    states: int, units: int, decay: str, dtype: torch.dtype, gpu: Gpu, steps: int, columns: int
) -> Tiles:
    """Return the sizes for so many states and units of a head, steps, and columns (sequences times heads). If no tiles
    fit the GPU's shared memory, torch's products are left."""
    N, U = padded(states), padded(units)
    size = 2 if dtype == torch.bfloat16 else 4
    for C, numbers, stages in (
        (64, 4096, 3),
        (64, 4096, 2),
        (32, 4096, 2),
        (32, 4096, 1),
        (16, 4096, 1),
        (16, 2048, 1),
    ):
        if size == 4 and C == 64:
            continue

        def walk(n: int, u: int, stages: int = stages) -> Walk:
            return Walk(n, u, 4 if n * u <= 4096 else 8, stages)

        together = 4 * numbers >= N * U
        outputs = walk(N, max(16, min(U, numbers // N)))
        keys = walk(N, U) if together else walk(max(16, min(N, numbers // U)), U)
        values = outputs
        enter = walk(min(N, 64), min(U, 64))
        most = max(
            needs(C, outputs, decay, size, (2, 1)),
            needs(C, keys, decay, size, (2, 2)),
            needs(C, enter, decay, size, (1, 1)),
        )
        if most <= gpu.shared_per_block - 2048:
            programs = columns * -(-U // outputs.units)
            wanted = max(1, -(-PROGRAMS * gpu.multiprocessors // max(1, programs)))
            length = -(-steps // wanted)
            return Tiles(C, max(1, -(-length // C)) * C, enter, outputs, keys, keys, values)
    return on_cpu()
