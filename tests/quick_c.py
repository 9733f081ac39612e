"""Choose how far the C compiler optimises kernels in tests.

Kernels of -O1 compute what their source says, as those of -O3 do, and compile in a third of the time, which is where
most of the time of layers' tests goes. What tests/backends, tests/benchmarks and tests with the fixture `optimised_c`
check is compiled as users have it. Where they try all pairs of two kinds of things, half of the pairs are, chosen by
`levels` such that each thing is compiled in both ways.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pairwise_sample import pairwise

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


@contextmanager
def quickly() -> Iterator[None]:
    """Compile kernels with -O1 where `optimised` holds, unless the user chose a compiler."""
    with pytest.MonkeyPatch.context() as patch:
        if "CC" not in os.environ:
            patch.setenv("CC", QUICK)
        _forget_kernels()
        yield
    _forget_kernels()


def levels(first: Sequence[Any], second: Sequence[Any]) -> dict[tuple[Any, Any], bool]:
    """Return every pair → whether to optimise its kernels, so that each thing is tried both ways."""
    rows = pairwise({"first": first, "second": second, "optimise": (True, False)})
    found: dict[tuple[Any, Any], bool] = {}
    for row in rows:
        pair = row["first"], row["second"]
        found[pair] = found.get(pair, False) or row["optimise"]
    return found


def _forget_kernels() -> None:
    """Empty this process's caches of compilers and loaded kernels; those on disk know how they were compiled."""
    for name, module in list(sys.modules.items()):
        if name.startswith("rrnn.backends.native"):
            for value in list(vars(module).values()):
                getattr(value, "cache_clear", lambda: None)()
