"""Choose how a program runs on a GPU, by a small rule on steps, lanes, element size, instructions and the GPU.

The rule was tuned on an H200. What depends on the GPU is derived from the H200's figures and this GPU's properties: the
lanes that fill it (bandwidth, multiprocessors), whether and how far chunks are chained (L2 cache), and how much a
pipeline may hold (shared memory). Nothing is tuned at run time, so the same call on the same kind of GPU always runs
the same kernel and gives the same bits.

Speed depends on bytes in flight. A lane is walked serially, and its loads are issued ahead of use: on long walks
through shared memory, by Triton's pipeline; on short ones a turn ahead in registers, which starts quicker. The more
instructions a step has, the fewer steps fit the registers. If lanes are too few to fill the chip, time is cut into
chunks. The bare recurrence chains them inside one launch, so that a chunk's second reading finds it in the L2 cache;
where gates are computed as well, three launches, which read everything twice, were as fast or faster.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rrnn.ir import Op, Program, scan_form

MOST_CARRIED = 48  # numbers of a chunk's transition
FULL = 12_288  # lanes that fill an H200: from here on, chunks cost more than they gain
TARGET = {
    4: 65_536,
    2: 131_072,
}  # element size → lanes times chunks to aim for on it, where chunks are read twice
MIN_CHUNK = 64  # steps
LONG = 128  # steps from which a pipeline pays for its start
BARE, SMALL, LARGE = 8, 20, 48  # instructions of a bare recurrence, a small and a large program
LANES = 64  # of a usual Triton program
RESERVED = 1024  # bytes of shared memory that CUDA takes for each program


class Gpu(NamedTuple):
    """The properties of a GPU that plans depend on: memory in bytes, bandwidth in bytes per second (0: unknown)."""

    multiprocessors: int
    shared_per_block: int
    shared_per_multiprocessor: int
    l2_cache: int
    bandwidth: float = 0.0

    @staticmethod
    def of(properties: Any) -> Gpu:
        """Return what torch's properties of a device say. Not every version of torch has all of them."""
        together = getattr(properties, "shared_memory_per_multiprocessor", 0) or 49_152 + RESERVED
        most = getattr(properties, "shared_memory_per_block_optin", 0) or together - RESERVED
        clock, width = (getattr(properties, f"memory_{name}", 0) for name in ("clock_rate", "bus_width"))
        bandwidth = (
            2.0 * 1e3 * clock * width / 8
        )  # two transfers per cycle; the clock is in kHz, the width in bits
        l2 = getattr(properties, "L2_cache_size", 0)
        return Gpu(properties.multi_processor_count, most, together, l2, bandwidth)

    def lanes(self, on_h200: int) -> int:
        """Return how many lanes keep this GPU as busy as `on_h200` lanes keep an H200. Lanes hold bytes in flight, and
        bandwidth says how many bytes it takes; but every multiprocessor gets at least one program."""
        share = (
            self.bandwidth / H200.bandwidth if self.bandwidth else self.multiprocessors / H200.multiprocessors
        )
        share = max(1, round(16 * share)) / 16  # so that a slightly different clock does not change kernels
        full = max(FULL * share, self.multiprocessors * LANES)
        return round(full * on_h200 / FULL)

    def l2_share(self) -> float:
        """Return the L2 cache of a multiprocessor's share, relative to an H200's."""
        return self.l2_cache / self.multiprocessors / (H200.l2_cache / H200.multiprocessors)

    def shared(self) -> int:
        """Return the bytes of shared memory that a Triton program may use, such that two share a multiprocessor."""
        return min(self.shared_per_block, self.shared_per_multiprocessor // 2 - RESERVED)


H200 = Gpu(132, 232_448, 233_472, 62_914_560, 4.9e12)
"""The GPU that the rule was tuned on. Triton's interpreter uses its plans."""


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


def takes_chunks(program: Program) -> bool:
    """Return whether a program can run in chunks: it has states, and not so many paths between them that composing a
    chunk's transitions costs more than chunks gain. (With 16 states, each connected to each, the kernels of chunks
    alone would be 5 MB of text.)"""
    return bool(program.states) and len(scan_form(program).carried) * program.semiring.size <= MOST_CARRIED


def takes_logarithms(program: Program) -> bool:
    """Return whether a program takes logarithms. Such programs compute more than they load, and want as many lanes in
    flight as there are."""
    logs = (Op.LOG, Op.LOG_SIGMOID, Op.SOFTPLUS, Op.LOGADDEXP)
    return any(instruction.op in logs for instruction in program.instructions)


def turn_bytes(program: Program, steps: int, size: int, backward: bool) -> int:
    """Return the most bytes that a lane loads in a turn of so many steps, for `size` bytes an element of x. (Inputs and
    gradients of outputs may be float32 beside a narrower x; states are float32.)"""
    wide = program.uses_input + program.output_count * backward
    states = len(program.flat.states) * backward
    return steps * (len(program.projections) * size + 4 * wide) + 4 * states


def plan_of(
    program: Program, steps: int, lanes: int, size: int, every: int, backward: bool, gpu: Gpu = H200
) -> Plan:
    """Return the plan of a call of a program, whose states are saved every `every` steps."""
    flat = program.flat
    logs = takes_logarithms(flat)
    how = plan(steps, lanes, size, len(flat.instructions), backward=backward, logs=logs, gpu=gpu)
    if not takes_chunks(program):
        how = how._replace(chunk=0, chained=False)
    return _fitted(how, turn_bytes(program, every if backward else how.unroll, size, backward), gpu.shared())


def _fitted(how: Plan, turn: int, room: int) -> Plan:
    """Return the plan with as many stages and lanes as fit `room` bytes of shared memory; a lane loads `turn` bytes a
    turn, and Triton keeps all but one of the stages there."""
    while how.stages and (how.stages - 1) * how.block * turn > room:
        if how.stages > 2:
            how = how._replace(stages=how.stages - 1)
        elif how.block > 32:
            how = how._replace(block=how.block // 2)
        else:
            how = how._replace(stages=0)
    return how


def plan(
    steps: int,
    lanes: int,
    size: int,
    instructions: int,
    *,
    backward: bool = False,
    logs: bool = False,
    gpu: Gpu = H200,
) -> Plan:
    """Return the kernel to run, for `size` bytes an element and `instructions` of the forward program, `logs` among
    them, whatever shared memory it takes."""
    small = instructions <= SMALL
    unroll = 16 if small else 8 if instructions <= LARGE else 2
    wide = size >= 4
    if lanes < gpu.lanes(FULL) and steps >= 2 * MIN_CHUNK:
        return _chunks(steps, lanes, size, instructions, unroll, backward, gpu)
    if steps < LONG or instructions > LARGE or (logs and small and not backward):
        return Plan(64 if small or not (wide or backward) else 32, 1, unroll, 0)
    if small:
        return Plan(64, 1, unroll, 0, 2 if wide else 3) if backward or not wide else Plan(128, 1, 8, 0, 4)
    return Plan(32, 1, unroll, 0) if wide and not backward else Plan(64, 1, unroll, 0, 3)


def _chunks(
    steps: int, lanes: int, size: int, instructions: int, unroll: int, backward: bool, gpu: Gpu
) -> Plan:
    """Return the plan for few lanes: time is cut into chunks that run in parallel. They are chained only where the L2
    cache holds the chunks that are under way, which are shorter where it is small."""
    wide, l2 = size >= 4, gpu.l2_share()
    if instructions <= BARE and l2 >= 0.25:
        chunk = (32 if wide else 64) if backward else (64 if wide else 128)
        return Plan(64, 1, 16, chunk if l2 >= 0.5 else chunk // 2, chained=True)
    wanted = -(-steps // max(1, gpu.lanes(TARGET.get(size, TARGET[4])) // lanes))
    chunk = max(MIN_CHUNK, -(-wanted // MIN_CHUNK) * MIN_CHUNK)
    return Plan(64, 1, min(unroll, 8), 0 if chunk >= steps else chunk, 0 if wide and not backward else 3)
