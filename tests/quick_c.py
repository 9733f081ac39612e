"""Choose how far the C compiler optimises kernels in tests.

Kernels of -O1 compute what their source says, as those of -O3 do, and compile in a third of the time, which is where
most of the time of layers' tests goes. What tests/backends, tests/benchmarks and tests with the fixture `optimised_c`
check is compiled as users have it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

QUICK = str(Path(__file__).with_name("quick_cc.sh"))


@contextmanager
def optimised() -> Iterator[None]:
    """Compile kernels with -O3, and use none that was compiled otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("CC") == QUICK:
            patch.delenv("CC")
        _forget_kernels()
        yield
    _forget_kernels()


def _forget_kernels() -> None:
    """Empty this process's caches of compilers and loaded kernels; those on disk know how they were compiled."""
    for name, module in list(sys.modules.items()):
        if name.startswith("rrnn.backends.native"):
            for value in list(vars(module).values()):
                getattr(value, "cache_clear", lambda: None)()
