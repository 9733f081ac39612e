"""Programs to Triton: a table of strings over the IR, and the loops around it.

All kernels share one frame. A Triton program owns BLOCK units of one batch row and one chunk of time; it walks its
chunk serially, `unroll` steps at a time with all loads issued before the arithmetic. One chunk is the serial schedule.
With several chunks, `summary` first composes each chunk's transition (the scan form), `join` runs the states from chunk
to chunk, and `forward` starts every chunk from its joined state; backwards the same with the reverse scan form.
"""

from __future__ import annotations

from functools import lru_cache

from rrnn.backends.triton.backwards import Backwards
from rrnn.backends.triton.forwards import Forwards
from rrnn.backends.triton.kernel import HEAD
from rrnn.ir import Program


@lru_cache(maxsize=256)
def render(program: Program, unroll: int, every: int) -> str:
    """A module with the kernels of a program: `unroll` steps at a time forwards, states saved every `every` steps
    (0: none, and then no backward kernels)."""
    forwards = Forwards(program, unroll, every)
    parts = [
        f'"""{program.name}, generated: unroll {unroll}, states saved every {every} steps."""\n\n',
        HEAD,
        forwards.forward(),
    ]
    if program.states:
        parts += [forwards.summary(), forwards.join()]
    if every:
        backwards = Backwards(program, unroll, every)
        parts.append(backwards.backward())
        if program.states:
            parts += [backwards.reverse_summary(), backwards.reverse_join()]
    return "".join(parts)
