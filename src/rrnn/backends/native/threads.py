"""How many threads a kernel runs on, and whose.

Kernels use torch's own OpenMP pool, through the address of GOMP_parallel (in GNU's, LLVM's and Intel's runtime alike):
nothing is linked, so there is never a second pool of threads that spins against the first, and any C compiler will do.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch

from rrnn.backends.fork import in_forked_child

SMALL = 1 << 14
"""Numbers to compute: below this, waking threads costs more than it gains."""


@cache
def parallel_address() -> int:
    """GOMP_parallel as torch itself finds it: among all libraries' names, or in what torch links; 0 if nowhere."""
    for library in (None, Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"):
        try:
            function = ctypes.CDLL(None if library is None else str(library)).GOMP_parallel
        except (AttributeError, OSError):
            continue
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    return 0


def threads_for(work: int) -> int:
    """Threads for a call that computes `work` numbers: torch's number, one for little work or in a forked child."""
    return 1 if work < SMALL or in_forked_child() else torch.get_num_threads()
