"""Choose whether the matrix schedule pays, and its sizes, by a small rule on sizes, dtype and the device."""

from __future__ import annotations

import torch

from rrnn.backends.matrix.factors import Tiles, Walk, full_precision, padded, sums_dtype
from rrnn.backends.triton.plan import Gpu
from rrnn.ir.separable import SIGN, Separable

LEAST_STATES = 16
"""Fewer states do not fill a tile of the tensor cores. From so many on, this schedule was faster on an H200, for 16
steps and more, in bfloat16, TF32 and float32, with each kind of decay (see benchmarks/matrix_or_scalar.py; float16 goes
through TF32)."""
MOST_FOR_A_STEP = 64
"""A single step with a decay per state took 1.5 to 2.2 times as long by this schedule; more states were not timed."""
ON_GPU = (torch.bfloat16, torch.float16, torch.float32)
"""The dtypes that have kernels."""
NUMBERS = 8192
"""The most numbers of a tile of the state: four warps keep them in 64 registers of each thread."""
CHOICES = (
    *(
        (64, 3, NUMBERS),
        (64, 2, NUMBERS),
        (64, 1, NUMBERS),
        (32, 2, NUMBERS),
        (32, 1, NUMBERS),
        (16, 1, NUMBERS),
    ),
    *((32, 2, 4096), (32, 1, 4096), (16, 1, 4096), (16, 1, 2048)),
)
"""Steps of a chunk, stages of loads, and the most numbers of a tile of the state; the best first."""
FULL = ((16, 1, 4096), (16, 1, 2048), (16, 1, 1024))
"""The same for float32 at full precision, whose products are written out as single multiplications. With tiles of 8192
numbers, four warps and chunks of 32 steps, ptxas 12.8 gives most kernels 32 registers and keeps 5 to 18 KB of each
thread in memory; with these, eight warps, and kernels of their own for values, it is below 600 bytes but for those of
values with 256 states. Decays per state may have narrow tiles then: no product reads through descriptors."""
PARTS = {"none": (4, 1, 64), "head": (4, 2, 64), "state": (8, 1, 64)}
"""For tiles that are parts of a head's state, by decay: warps, programs on a multiprocessor in training, and the most
states of tiles for what segments enter."""
NARROW = 64
"""The least rows and columns of tiles with decays on tensor cores. Operands of products that are computed lie one after
the other at the same place of shared memory, and bfloat16 rows of 32 have 64 bytes there instead of 128. ptxas 12.8,
which triton 3.6 takes for Hopper, then derives the second operand's descriptors from uniform registers that it never
writes, so that products read anywhere in shared memory: results were wrong and changed, or the access was illegal, on
an H200. The PTX is right: with `TRITON_PTXAS_PATH` set to the wheel's own `ptxas-blackwell`, which is 12.9, the same
tiles were right there (chunks of 64 steps, 32 or 64 states and 32 units: outputs were off by 83 % with 12.8, by 0.3 %
with 12.9). `test_machine_code` looks for such reads. With a decay per head, tiles of 16 × 16, 32 × 32 and 64 × 32 were
right, but outputs of 128 states and 32 units, with weights, read outside of memory, although each register is written.
So with such a decay tiles are narrow only if the head has fewer states and also fewer units. (Triton's issue 11366 and
flash-linear-attention's pull request 1262 report the like.)"""
BLOCKS = (128, 64)
"""The most states and units of blocks into which heads are cut where a tile of all of them does not fit."""
LENGTH = 64
"""Segments are a number of chunks, whichever of these is chosen."""


def pays(parts: Separable, device: torch.device, dtype: torch.dtype, steps: int | None) -> bool:
    """Return whether the matrix schedule is expected to be faster than the scalar one, and as exact. (A decay that is a
    bare parameter has a gradient at 0, which its logarithm has not.)"""
    if device.type == "cuda" and steps == 1 and parts.decay == "state" and parts.size <= MOST_FOR_A_STEP:
        return False
    if SIGN in parts.factors.of_kind("factor") and not parts.turns:
        return False
    return parts.size >= LEAST_STATES and (device.type != "cuda" or dtype in ON_GPU)


def on_cpu(chunk: int = 64) -> Tiles:
    """Return the sizes for torch's products: states are saved before each chunk."""
    none = Walk(0, 0, 0, 0)
    return Tiles(chunk, chunk, none, none, none, none, None)


def needs(C: int, walk: Walk, decay: str, dtype: torch.dtype, tensors: tuple[int, int]) -> int:
    """Return how many bytes of shared memory a kernel needs that reads so many tensors of states and of units: what it
    loads ahead, the running sums, and operands of products that are computed."""
    size = 2 if dtype == torch.bfloat16 else 4
    N, U = walk.states, walk.units
    loads = C * (tensors[0] * N + tensors[1] * U) * size + (
        sums_dtype(dtype).itemsize * C * N if decay == "state" else 0
    )
    return walk.stages * loads + size * (2 * N * U + C * C + C * N)


def segment_of(steps: int, programs: int, gpu: Gpu, each: int) -> int:
    """Return the steps of a segment such that a multiprocessor has about `each` programs, where `programs` have a
    sequence each."""
    wanted = max(1, round(each * gpu.multiprocessors / max(1, programs)))
    return max(1, -(-steps // (wanted * LENGTH))) * LENGTH


def tiles_of(
    states: int,
    units: int,
    decay: str,
    dtype: torch.dtype,
    gpu: Gpu,
    steps: int,
    columns: int,
    training: bool = True,
) -> list[Tiles]:
    """Return sizes for so many states and units of a head, steps, and columns (sequences times heads), that should fit
    the GPU's shared memory, the best first; torch's products are the last.

    Heads are cut into blocks where no tile fits otherwise, as with a decay and more than 128 states or units.
    Kernels with decays wait for more than memory. So a second program on a multiprocessor pays where sequences have to
    be cut anyway, and where there is a gradient it pays even for one more pass over keys and values; but not for large
    tiles with a decay per state."""
    N, U = padded(states), padded(units)
    if not full_precision(dtype) and (decay == "state" or (decay == "head" and max(N, U) >= NARROW)):
        N, U = max(N, NARROW), max(U, NARROW)
    found: list[Tiles] = []
    for most in (max(N, U), *(size for size in BLOCKS if size < max(N, U))):
        block = None if most == max(N, U) else (_part(states, most), _part(units, most))
        found += _tiles_of(min(N, most), min(U, most), block, decay, dtype, gpu, steps, columns, training)
    return [*found, on_cpu()]


def _part(count: int, most: int) -> int:
    """Return the size of the fewest equal parts of at most this size. (Triton compiles anew for sizes and addresses
    that are not multiples of 16: equal parts share kernels.)"""
    return -(-count // -(-count // most))


def _tiles_of(
    N: int,
    U: int,
    block: tuple[int, int] | None,
    decay: str,
    dtype: torch.dtype,
    gpu: Gpu,
    steps: int,
    columns: int,
    training: bool,
) -> list[Tiles]:
    """Return sizes for blocks that fill tiles of so many states and units."""
    programs = columns * -(-U * N // NUMBERS)
    warps, beside, most_enter = 4, 1 if decay == "state" and N * U > NARROW**2 else 2, 64
    if N * U > NUMBERS:
        warps, beside, most_enter = PARTS[decay]
    full = full_precision(dtype)
    warps = 8 if full else warps
    alone = not training or beside == 1
    each = 1 if decay == "none" or (alone and 3 * programs > 2 * gpu.multiprocessors) else 2
    segment, found = segment_of(steps, programs, gpu, each), []
    for C, stages, numbers in FULL if full else CHOICES:
        if dtype != torch.bfloat16 and C == 64:
            continue
        whole, rows = not full and numbers >= N * U, max(16, min(N, numbers // U))
        outputs = Walk(N, max(16, min(U, numbers // N)), warps, stages)
        keys = Walk(N if whole else rows, U, warps, min(stages, 2))
        values = None if whole else outputs._replace(stages=keys.stages)
        enter = Walk(min(N, most_enter), min(U, 64), 4, stages)
        most = max(needs(C, outputs, decay, dtype, (2, 1)), needs(C, keys, decay, dtype, (2, 2)))
        if decay != "none" and not full and min(outputs.units, keys.states) < NARROW <= max(N, U):
            continue
        if most <= gpu.shared_per_block:
            found.append(Tiles(C, segment, enter, outputs, keys, keys, values, block))
    return found
