"""Families of states in Triton's interpreter, against the reference backend."""

from __future__ import annotations

import pytest
import torch
from zoo.test_wide import build, close, gradients

import rrnn
from rrnn import zoo
from rrnn.backends.triton.family_kernels import render
from rrnn.ir import lower

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["GLA", "Mamba-2", "S4D", "Gated-DeltaNet"])
def test_equal_to_the_reference(name: str) -> None:
    found, lengths = [], [4, 2]
    for backend, dtype in (("triton", torch.float32), ("reference", torch.float64)):
        rnn = build(name, states=3, units=8).to(dtype)
        torch.manual_seed(2)
        x = torch.randn(4, 2, 8).to(dtype).requires_grad_()
        with rrnn.use_backend(backend):
            out, state = rnn(x, lengths=lengths)
            found.append([out, *gradients(rnn, x, out, state[0].states[0])])
    assert all(close(a, b, 1e-4) for a, b in zip(*found, strict=True))


def test_the_text_does_not_grow_with_the_family() -> None:
    few, many = (render(lower(zoo.get_cell("GLA", states=n)).program, 8) for n in (16, 128))
    assert len(many.split("\n")) == len(few.split("\n"))
