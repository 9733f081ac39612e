"""Test backends with C that is compiled as users have it, and Triton's interpreter made faster before its first use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from quick_c import optimised
from quick_interpreter import hurry


@pytest.fixture(autouse=True, scope="module")
def optimised_kernels() -> Iterator[None]:
    with optimised():
        yield


@pytest.fixture(autouse=True, scope="session")
def quick_interpreter() -> None:
    if find_spec("triton") is not None and os.environ.get("TRITON_INTERPRET") == "1":
        hurry()
