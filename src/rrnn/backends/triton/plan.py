"""How a program runs on a GPU: a small rule on (steps, lanes, element size, instructions), tuned on an H200. No
autotuning at run time: the same call always runs the same kernel, so its results are the same bits.

What decides is bytes in flight. A lane is walked serially, and its loads of one turn are issued together, a turn ahead;
the more instructions a step has, the fewer steps of it fit the registers. Lanes too few to fill the chip are
multiplied by cutting time into chunks, which reads the input twice. (Running chunks in segments that fit the L2 cache,
so that the second read hits it, was measured and gained nothing: the segments' launches cost what the hits save.)
"""

from __future__ import annotations

from typing import NamedTuple

FULL = 12_288  # lanes that fill the chip: from here on, chunks cost more than they gain
TARGET = {4: 65_536, 2: 131_072}  # element size → lanes times chunks to aim for
MIN_CHUNK = 64  # steps


class Plan(NamedTuple):
    """Lanes of a Triton program, its warps, steps a turn forwards, steps of a chunk (0: serial)."""

    block: int
    warps: int
    unroll: int
    chunk: int

    def options(self) -> dict[str, int | bool]:
        """What every launch is given. Fusing a·b + c is asked for: Triton's default for it is about to change."""
        return {"BLOCK": self.block, "num_warps": self.warps, "enable_fp_fusion": True}

    def cut(self, steps: int, every: int, stateful: bool) -> tuple[int, int]:
        """(steps of a chunk, number of chunks); a chunk starts where a state is saved."""
        if not self.chunk or not stateful or self.chunk >= steps:
            return -(-steps // max(every, 1)) * max(every, 1), 1
        chunk = -(-self.chunk // max(every, 1)) * max(every, 1)
        return chunk, -(-steps // chunk)


def save_every(instructions: int) -> int:
    """Steps between saved states: the backward kernel holds that many in registers."""
    return 16 if instructions <= 10 else 8 if instructions <= 20 else 4 if instructions <= 48 else 2


def plan(steps: int, lanes: int, size: int, instructions: int, *, backward: bool = False) -> Plan:
    """The kernel to run: `size` bytes an element, `instructions` of the forward program."""
    small = instructions <= 20
    unroll = 16 if small else 8 if instructions <= 48 else 4
    chunk = 0
    if lanes < FULL and steps >= 2 * MIN_CHUNK:
        wanted = -(-steps // max(1, TARGET.get(size, TARGET[4]) // lanes))
        chunk = max(MIN_CHUNK, -(-wanted // MIN_CHUNK) * MIN_CHUNK)
        chunk = 0 if chunk >= steps else chunk
    if chunk:
        return Plan(128 if small and size == 2 and not backward else 64, 1, unroll, chunk)
    return Plan(64 if small or (size == 2 and not backward) else 32, 1, unroll, 0)
