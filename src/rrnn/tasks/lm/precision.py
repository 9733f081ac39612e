"""How matrix products are computed. Parameters, states, losses and updates are fp32 in any case."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch

from rrnn.errors import RunError

Precision = Literal["fp32", "tf32", "bf16"]


def low_dtype(precision: Precision) -> torch.dtype | None:
    """Of the weights' copies that products read; None: the weights themselves."""
    if precision not in ("fp32", "tf32", "bf16"):
        raise RunError(f"precision is fp32, tf32 or bf16; got {precision!r}")
    return torch.bfloat16 if precision == "bf16" else None


@contextmanager
def products(precision: Precision) -> Iterator[None]:
    """Inside, fp32 products on a GPU are rounded to TF32, unless precision is fp32."""
    switches: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [switch.allow_tf32 for switch in switches]
    for switch in switches:
        switch.allow_tf32 = precision != "fp32"
    try:
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.allow_tf32 = value
