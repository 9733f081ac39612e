"""Test backends with C that is compiled as users have it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from quick_c import optimised


@pytest.fixture(autouse=True, scope="module")
def optimised_kernels() -> Iterator[None]:
    with optimised():
        yield
