"""Fixtures of the matrix schedule's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def tf32() -> Iterator[None]:
    """Let products of float32 go through TF32."""
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = False
