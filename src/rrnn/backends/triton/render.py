"""Programs to Triton: a table of strings over the IR, and the loops around it.

All kernels share one frame. A Triton program owns BLOCK units of one batch row and one chunk of time; it walks its
chunk serially, `unroll` steps at a time, with all loads issued ahead of the arithmetic. One chunk is the serial
schedule. With several, `summary` first composes each chunk's transition (the scan form), `join` runs the states from
chunk to chunk, and `forward` starts every chunk from its joined state; `chained` does all three in one launch.
Backwards the same with the reverse scan form.
"""

from __future__ import annotations

from functools import lru_cache

from rrnn.backends.triton.backwards import Backwards
from rrnn.backends.triton.forwards import Forwards
from rrnn.backends.triton.kernel import HEAD
from rrnn.ir import Program


@lru_cache(maxsize=256)
def render(program: Program, unroll: int, every: int, stages: int = 0) -> str:
    """A module with the kernels of a program: `unroll` steps at a time forwards, states saved every `every` steps
    (0: none, and then no backward kernels), loads `stages` turns ahead in shared memory (0: one turn, in registers)."""
    forwards = Forwards(program, unroll, every, stages)
    about = f"{program.name}, generated: unroll {unroll}, states saved every {every} steps, {stages} stages."
    parts = [f'"""{about}"""\n\n', HEAD, forwards.forward()]
    if program.states:
        parts += [forwards.summary(), forwards.join(), forwards.chained()]
    if every:
        backwards = Backwards(program, unroll, every, stages)
        parts += [backwards.backward(), backwards.parameters()]
        if program.states:
            parts += [backwards.reverse_summary(), backwards.reverse_join(), backwards.reverse_chained()]
    return "".join(parts)
