"""Let tests import the scripts of `benchmarks/`, and undo what scripts do to torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from quick_c import optimised


@pytest.fixture(autouse=True)
def benchmark_scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the folder of the scripts on the import path; restore the number of threads afterwards."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True, scope="module")
def optimised_kernels() -> Iterator[None]:
    """Measure C that is compiled as users have it."""
    with optimised():
        yield
