"""Arcs from each state of a family to each, compiled to C and to Triton, against the reference backend."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from automata.test_family_rules import CELLS, RINGS, matrix
from kernel_cases import needs_interpreter
from quick_c import levels, quickly
from torch import Tensor
from zoo.test_wide import close, gradients

import rrnn
from rrnn import RationalRNN
from rrnn.automata import Cell, family, linear, one, parameter, score, tanh
from rrnn.backends import get_backend
from rrnn.backends.native import families as native
from rrnn.explorer.design_tab import triton_code
from rrnn.ir import lower

COMPILED = [
    pytest.param(name, ring, marks=() if (name, ring) == ("matrix", "real") else pytest.mark.slow)
    for name in CELLS
    for ring in RINGS
]
OPTIMISED = levels(list(CELLS), RINGS)


def layer(cell: Cell, units: int, dtype: torch.dtype = torch.float64, heads: int = 2) -> RationalRNN:
    torch.manual_seed(0)
    rnn = RationalRNN(cell, 5, units, heads=heads, dtype=torch.float64)
    for value in rnn.parameters():
        torch.nn.init.normal_(value)
    return rnn.to(dtype)


def results(backend: str, rnn: RationalRNN, x: Tensor, **options: Any) -> list[Tensor]:
    """Return outputs, final states and all gradients. (States that are infinite, the zero of log and max-plus, are not
    part of the loss.)"""
    v = x.clone().requires_grad_()
    with rrnn.use_backend(backend):
        out, state = rnn(v, **options)
        final = state[0].states[0]
        return [out, final.nan_to_num(0, 0, 0), *gradients(rnn, v, out, final.nan_to_num(0, 0, 0))]


@pytest.mark.parametrize("name, semiring", COMPILED)
def test_c_agrees_with_the_reference(name: str, semiring: str) -> None:
    with nullcontext() if OPTIMISED[name, semiring] else quickly():
        for units, options in ((4, {}), (26, {"lengths": [9, 4, 0]})):
            rnn, x = layer(CELLS[name](semiring), units), torch.randn(9, 3, 5, dtype=torch.float64)
            found, expected = (results(backend, rnn, x, **options) for backend in ("native", "reference"))
            assert all(close(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend, tolerance", [("native", 1e-10), pytest.param("triton", 1e-4, marks=needs_interpreter)]
)
def test_packed_sequences_and_steps(backend: str, tolerance: float) -> None:
    dtype = torch.float64 if backend == "native" else torch.float32
    rnn, x = layer(matrix("real"), 4, dtype), torch.randn(7, 5).to(dtype)
    options = {"cu_seqlens": [0, 4, 4, 7]}
    found, expected = (results(name, rnn, x, **options) for name in (backend, "reference"))
    assert all(close(a, b, tolerance) for a, b in zip(found, expected, strict=True))
    with rrnn.use_backend(backend):
        whole, end = rnn(x[:4].unsqueeze(1))
        _, state = rnn(x[:3].unsqueeze(1))
        last, after = rnn.step(x[3:4], state)
    assert close(last, whole[3], tolerance) and close(after[0].states[0], end[0].states[0], tolerance)


@needs_interpreter
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")  # NumPy on ∞ − ∞, in the interpreter
@pytest.mark.parametrize("semiring", RINGS)
@pytest.mark.parametrize("name", CELLS)
def test_triton_agrees_with_the_reference(name: str, semiring: str) -> None:
    x = torch.randn(4, 2, 5, dtype=torch.float64)
    found = results("triton", layer(CELLS[name](semiring), 4, torch.float32), x.float(), lengths=[4, 2])
    expected = results("reference", layer(CELLS[name](semiring), 4), x, lengths=[4, 2])
    assert all(close(a, b, 1e-4) for a, b in zip(found, expected, strict=True))


@pytest.mark.slow
def test_bfloat16_in_c() -> None:
    rnn, x = layer(matrix("real"), 4), torch.randn(9, 3, 5, dtype=torch.float64)
    expected = results("reference", rnn, x)
    found = results("native", rnn.to(torch.bfloat16), x.bfloat16())
    assert all(close(a.double(), b, 0.05) for a, b in zip(found, expected, strict=True))


def square(size: int) -> Cell:
    """A family with a learned matrix and a matrix of the input."""
    h = family("h", size)
    cell = Cell("square").initial("q0").loop("q0", one).arc("q0", h, linear("u"))
    w = parameter("A", over=(h.source, h.target)) * tanh(linear("B", over=(h.source, h.target), per="head"))
    return cell.mix(h, h, w).final(h).output(score)


def test_the_text_does_not_grow_with_the_family() -> None:
    few, many = (lower(square(n)).program for n in (4, 128))
    for render in (native.render_forward, native.render_backward):
        a, b = (render(program, torch.float32).split("\n") for program in (few, many))
        assert len(a) == len(b)


@needs_interpreter
def test_triton_refuses_matrices_larger_than_a_tile() -> None:
    from rrnn.backends.triton.pair_kernels import render

    few, many, too_many = (lower(square(n)).program for n in (4, 128, 129))
    assert "tl.permute" in triton_code(few)  # what `rrnn derive --triton` prints
    assert len(render(few, 8).split("\n")) == len(render(many, 8).split("\n"))
    triton, cpu = get_backend("triton"), torch.device("cpu")
    assert triton.why_not(cpu, torch.float32, many) is None
    assert "have 65536 numbers" in (triton.why_not(cpu, torch.float32, too_many) or "")


@pytest.mark.slow
def test_large_matrices_fit_a_thread() -> None:
    """Buffers for pairs of states do not lie on the stack of a thread."""
    rnn, x = layer(square(200), 3, heads=1), torch.randn(2, 1, 5, dtype=torch.float64)
    found, expected = (results(backend, rnn, x) for backend in ("native", "reference"))
    assert all(close(a, b) for a, b in zip(found, expected, strict=True))
