"""Choose how a program runs on a GPU, by a small rule on steps, lanes, element size and instructions.

The rule was tuned on an H200. Nothing is tuned at run time, so the same call always runs the same kernel and gives the
same bits.

Speed depends on bytes in flight. A lane is walked serially, and its loads are issued ahead of use: on long walks
through shared memory, by Triton's pipeline; on short ones a turn ahead in registers, which starts quicker. The more
instructions a step has, the fewer steps fit the registers. If lanes are too few to fill the chip, time is cut into
chunks. The bare recurrence chains them inside one launch, so that a chunk's second reading finds it in the L2 cache;
where gates are computed as well, three launches, which read everything twice, were as fast or faster.
"""

from __future__ import annotations

from typing import NamedTuple

from rrnn.ir import Op, Program

FULL = 12_288  # lanes that fill the chip: from here on, chunks cost more than they gain
TARGET = {4: 65_536, 2: 131_072}  # element size → lanes times chunks to aim for, where chunks are read twice
MIN_CHUNK = 64  # steps
LONG = 128  # steps from which a pipeline pays for its start
BARE, SMALL, LARGE = 8, 20, 48  # instructions of a bare recurrence, a small and a large program


class Plan(NamedTuple):
    """How a program runs: lanes of a Triton program, its warps, steps a turn forwards, steps of a chunk (0: serial),
    stages of the pipeline (0: a turn ahead in registers), whether chunks are chained in one launch."""

    block: int
    warps: int
    unroll: int
    chunk: int
    stages: int = 0
    chained: bool = False

    def options(self, *, MASKED: bool | None) -> dict[str, int | bool]:
        """Return the constants of a launch; `MASKED` is None for joins, which know no mask. Fusing a·b + c is asked for
        explicitly: Triton's default for it is about to change."""
        mask = {} if MASKED is None else {"MASKED": MASKED}
        return mask | {"BLOCK": self.block, "num_warps": self.warps, "enable_fp_fusion": True}

    def cut(self, steps: int, every: int, stateful: bool) -> tuple[int, int]:
        """Return (steps of a chunk, number of chunks); a chunk starts where a state is saved."""
        if not self.chunk or not stateful or self.chunk >= steps:
            return -(-steps // max(every, 1)) * max(every, 1), 1
        chunk = -(-self.chunk // max(every, 1)) * max(every, 1)
        return chunk, -(-steps // chunk)


def save_every(instructions: int) -> int:
    """Return the number of steps between saved states, as many as the backward kernel holds in registers. (It is also
    compiled with that many written out: one of Triton's passes takes the cube of a kernel's length, minutes where this
    rule is careless.)"""
    return 16 if instructions <= 10 else 8 if instructions <= SMALL else 4 if instructions <= LARGE else 1


def takes_logarithms(program: Program) -> bool:
    """Return whether a program takes logarithms. Such programs compute more than they load, and want as many lanes in
    flight as there are."""
    logs = (Op.LOG, Op.LOG_SIGMOID, Op.SOFTPLUS, Op.LOGADDEXP)
    return any(instruction.op in logs for instruction in program.instructions)


def plan(
    steps: int, lanes: int, size: int, instructions: int, *, backward: bool = False, logs: bool = False
) -> Plan:
    """Return the kernel to run, for `size` bytes an element and `instructions` of the forward program, `logs` among
    them."""
    small = instructions <= SMALL
    unroll = 16 if small else 8 if instructions <= LARGE else 2
    wide = size >= 4
    if lanes < FULL and steps >= 2 * MIN_CHUNK:
        return _chunks(steps, lanes, size, instructions, unroll, backward)
    if steps < LONG or instructions > LARGE or (logs and small and not backward):
        return Plan(64 if small or not (wide or backward) else 32, 1, unroll, 0)
    if small:
        return Plan(64, 1, unroll, 0, 2 if wide else 3) if backward or not wide else Plan(128, 1, 8, 0, 4)
    return Plan(32, 1, unroll, 0) if wide and not backward else Plan(64, 1, unroll, 0, 3)


def _chunks(steps: int, lanes: int, size: int, instructions: int, unroll: int, backward: bool) -> Plan:
    """Return the plan for few lanes: time is cut into chunks that run in parallel."""
    wide = size >= 4
    if instructions <= BARE:
        return Plan(64, 1, 16, (32 if wide else 64) if backward else (64 if wide else 128), chained=True)
    wanted = -(-steps // max(1, TARGET.get(size, TARGET[4]) // lanes))
    chunk = max(MIN_CHUNK, -(-wanted // MIN_CHUNK) * MIN_CHUNK)
    return Plan(64, 1, min(unroll, 8), 0 if chunk >= steps else chunk, 0 if wide and not backward else 3)
