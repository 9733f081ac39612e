"""Fixtures of the matrix schedule's tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor


@pytest.fixture(autouse=True)
def memory_holds_rubbish(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill empty tensors, so that reading what nothing has written shows."""

    def filled(new: Any) -> Any:
        def make(*args: Any, **options: Any) -> Tensor:
            tensor = new(*args, **options)
            return tensor.fill_(float("nan") if tensor.is_floating_point() else 77)

        return make

    for owner, name in ((torch, "empty"), (torch, "empty_like"), (Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, filled(getattr(owner, name)))


@pytest.fixture
def tf32() -> Iterator[None]:
    """Let products of float32 go through TF32."""
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.fixture
def tensor_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Triton's interpreter round as a GPU does: to the nearest bfloat16, and TF32 by dropping 13 bits.

    By itself it cuts bfloat16 off, multiplies its bits as if they were integers, and knows no TF32."""
    import triton.language as tl
    from triton.runtime import interpreter

    convert: Any = interpreter._convert_float

    def converted(x: np.ndarray, given: Any, wanted: Any, mode: Any) -> np.ndarray:
        if (given, wanted) != (tl.float32, tl.bfloat16):
            return convert(x, given, wanted, mode)
        return torch.from_numpy(np.array(x)).bfloat16().view(torch.int16).numpy().view(np.uint16)

    def operand(x: Any, precision: Any) -> np.ndarray:
        if x.dtype.scalar == tl.bfloat16:
            return (x.data.astype(np.uint32) << 16).view(np.float32)
        if x.dtype.scalar == tl.float32 and "TF32" in str(precision) and "x3" not in str(precision):
            return (np.ascontiguousarray(x.data).view(np.int32) & -8192).view(np.float32)
        return x.data

    def dot(self: Any, a: Any, b: Any, d: Any, precision: Any, *_: Any) -> Any:
        product = operand(a, precision) @ operand(b, precision)
        return interpreter.TensorHandle(product + d.data, d.dtype.scalar)

    monkeypatch.setattr(interpreter, "_convert_float", converted)
    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", dot)
