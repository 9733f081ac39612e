"""Mamba, GLA, S4D and their kin against their papers' equations, on every backend that runs families."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from wide_equations import TWINS, Weights
from wide_layers import build, over

import rrnn
from rrnn import RationalRNN, zoo
from rrnn.automata import (
    Cell,
    family,
    index,
    linear,
    one,
    parameter,
    scale,
    score,
    signed,
    union,
    unroll,
)
from rrnn.backends.native.families import render_backward, render_forward
from rrnn.errors import CellError, FormatError, ProgramError, RRNNError
from rrnn.ir import lower

# Compiling two kernels takes seconds, so the quick tests do it for few models.
COMPILED = [
    pytest.param(
        name, backend, marks=() if backend == "reference" or name in ("Mamba", "GLA") else pytest.mark.slow
    )
    for name in TWINS
    for backend in ("reference", "native")
]


def gradients(rnn: RationalRNN, x: Tensor, out: Tensor, state: Tensor) -> list[Tensor]:
    torch.manual_seed(1)
    weights = [x, *(p for p in rnn.parameters() if p.requires_grad)]
    loss = torch.stack([(y * torch.randn(y.shape).to(y)).sum() for y in (out, state)]).sum()
    return list(torch.autograd.grad(loss, weights, allow_unused=True))


def close(got: Tensor | None, expected: Tensor | None, tolerance: float = 1e-10) -> bool:
    if got is None or expected is None:
        return all(value is None or not value.any() for value in (got, expected))
    if not expected.numel():
        return got.shape == expected.shape
    scale = float(expected.detach().abs().max()) + 1e-30
    return float((got - expected).detach().abs().max()) <= tolerance * scale


@pytest.mark.parametrize("name, backend", COMPILED)
def test_equations(name: str, backend: str) -> None:
    rnn = build(name)
    x = torch.randn(9, 3, 12, dtype=torch.float64, requires_grad=True)
    with rrnn.use_backend(backend):
        out, state = rnn(x)
    expected, last = TWINS[name](Weights(rnn, x), 5)
    assert close(out, expected)
    assert close(state[0].states[0], last)
    found = gradients(rnn, x, out, state[0].states[0])
    wanted = gradients(rnn, x, expected, last)
    assert all(close(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("units, heads", [(1, 1), (33, 1), (33, 3), (200, 1), (130, 2)])
def test_lanes_that_fill_no_vector(units: int, heads: int) -> None:
    found = {}
    for backend in ("reference", "native"):
        rnn = build("Mamba", states=3, units=units, heads=heads)
        x = torch.linspace(-1, 1, 20 * 2 * units, dtype=torch.float64).view(20, 2, units).requires_grad_()
        with rrnn.use_backend(backend):
            out, state = rnn(x)
            found[backend] = [out, *gradients(rnn, x, out, state[0].states[0])]
    assert all(close(a, b) for a, b in zip(found["native"], found["reference"], strict=True))


@pytest.mark.parametrize("backend", ["reference", pytest.param("native", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["Mamba", "GLA", "S4D"])
def test_padding_changes_nothing(name: str, backend: str) -> None:
    rnn, lengths = build(name), [7, 3, 0]
    x = torch.randn(7, 3, 12, dtype=torch.float64)
    for b, length in enumerate(lengths):
        x[length:, b] = torch.nan
    x.requires_grad_()
    with rrnn.use_backend(backend):
        out, state = rnn(x, lengths=lengths)
        (grad,) = torch.autograd.grad(out.sum() + state[0].states[0].sum(), x)
        for b, length in enumerate(lengths):
            alone, last = rnn(x[:length, b : b + 1])
            assert close(out[:length, b], alone[:, 0]) and not out[length:, b].any()
            assert close(state[0].states[0][:, b], last[0].states[0][:, 0])
            assert not grad[length:, b].any()
            (own,) = torch.autograd.grad(alone.sum() + last[0].states[0].sum(), x)
            assert close(grad[:length, b], own[:length, b])


@pytest.mark.parametrize("name, backend", COMPILED)
def test_streaming_equals_one_pass(name: str, backend: str) -> None:
    rnn = build(name).eval()
    x = torch.randn(6, 2, 12, dtype=torch.float64)
    with rrnn.use_backend(backend), torch.no_grad():
        whole, end = rnn(x)
        _, state = rnn(x[:3])
        for t in range(3, 6):
            out, state = rnn.step(x[t], state)
            assert close(out, whole[t])
    assert close(state[0].states[0], end[0].states[0])


@pytest.mark.slow
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-4), (torch.bfloat16, 0.05)])
@pytest.mark.parametrize("name", TWINS)
def test_lower_precision(name: str, dtype: torch.dtype, tolerance: float) -> None:
    exact = build(name)
    rnn = build(name, dtype=dtype)
    rnn.load_state_dict(exact.state_dict())
    exact.load_state_dict(rnn.state_dict())  # rounded as the other's
    x = torch.randn(9, 3, 12).to(dtype)
    found = []
    for layer, v in ((rnn, x.clone().requires_grad_()), (exact, x.double().requires_grad_())):
        out, state = layer(v)
        found.append([out.double(), *(g.double() for g in gradients_like(layer, v, out, state[0].states[0]))])
    assert all(close(a, b, tolerance) for a, b in zip(*found, strict=True))


def gradients_like(rnn: RationalRNN, x: Tensor, out: Tensor, state: Tensor) -> list[Tensor]:
    weights = [x, *(p for p in rnn.parameters() if p.requires_grad)]
    found = torch.autograd.grad(out.sum() + state.sum().to(out.dtype), weights, allow_unused=True)
    return [torch.zeros_like(w) if g is None else g for w, g in zip(weights, found, strict=True)]


@pytest.mark.parametrize("name", TWINS)
def test_a_text_reads_back(name: str) -> None:
    cell = zoo.get_cell(name)
    text = cell.to_text()
    assert text.startswith("rrnn-cell 2\n")
    assert Cell.from_text(text) == cell


@pytest.mark.parametrize("name", TWINS)
def test_unrolled(name: str) -> None:
    """Written without families, a cell computes the same with each unit's own copy of what heads share."""
    rnn = build(name, states=3)
    x = torch.randn(6, 2, 12, dtype=torch.float64)
    assert close(rnn(x)[0], without_families(rnn)(x)[0])


def without_families(rnn: RationalRNN) -> RationalRNN:
    """Return a layer of the same cell, written without families, and with the same weights."""
    layer, units = rnn.layers[0], rnn.hidden_size
    thin = RationalRNN(unroll(rnn.cells[0][0]), rnn.input_size, units, dtype=torch.float64)
    own = thin.layers[0]
    with torch.no_grad():
        for unit in range(units):
            rows, values = layer.numbers_of(0, unit)  # type: ignore[operator]
            for new, (old, place) in rows.items():
                found, target = layer.projection(0, old), own.projection(0, new)  # type: ignore[operator]
                target.weight()[unit] = found.weight()[place]
                if found.bias is not None:
                    target.bias[unit] = found.bias.flatten()[place]
            for parameter, value in values.items():
                own.parameters_of(0)[parameter][unit] = value  # type: ignore[operator]
    return thin


@pytest.mark.parametrize("backend", ["reference", pytest.param("native", marks=pytest.mark.slow)])
@pytest.mark.parametrize("semiring", ["real", "log", "max-plus", "min-plus", "max-times", "complex"])
def test_any_semiring(semiring: str, backend: str) -> None:
    torch.manual_seed(0)
    rnn = RationalRNN(over(semiring), 5, 6, heads=2, dtype=torch.float64)
    for value in rnn.parameters():
        torch.nn.init.normal_(value)
    x = torch.randn(7, 3, 5, dtype=torch.float64)
    with rrnn.use_backend(backend):
        grads = []
        for layer in (rnn, without_families(rnn)):
            v = x.clone().requires_grad_()
            out, _ = layer(v)
            (grad,) = torch.autograd.grad((out * torch.arange(out.numel()).view(out.shape).cos()).sum(), v)
            grads += [out, grad]
    assert close(grads[0], grads[2]) and close(grads[1], grads[3])


def test_a_semiring_whose_sum_is_no_single_operation() -> None:
    with pytest.raises(ProgramError, match=r"signed-log semiring cannot add up a family .* one by one"):
        h = family("h", 4)
        cell = Cell("x", "signed-log").initial("q0").arc("q0", h, signed(1, linear("a", over=h)))
        lower(cell.loop("q0", one).loop(h, one).read(h, one))


@pytest.mark.parametrize(
    "run", [lambda m: union(m, zoo.get_cell("B"), output=score), lambda m: scale(m, 2.0)]
)
def test_cells_of_families_are_not_joined(run: Any) -> None:
    with pytest.raises(CellError, match=r"'Mamba' has families of states. Write them out first"):
        run(zoo.get_cell("Mamba"))
    assert run(unroll(zoo.get_cell("Mamba"))).check()


@pytest.mark.parametrize(
    "build_wrong, message",
    [
        (lambda: Cell("x").arc("q0", "q1", linear("B", over=family("h", 3))), "belongs to single states"),
        (lambda: Cell("x").output(linear("B", over=family("h", 3))).check(), "belongs to single states"),
        (
            lambda: Cell("x").loop(family("h", 3), linear("B", over=family("h", 4))),
            "with 4 values, .* has 3 states",
        ),
        (lambda: Cell("x").arc(family("g", 3), family("h", 4), 1.0), "'g' has 3 states, 'h' 4"),
        (lambda: Cell("x").epsilon("q0", family("h", 3), 1.0), "an ε-arc of a family"),
        (lambda: Cell("x").loop(family("h", 3), 1.0).loop(family("h", 4), 1.0), "families of two sizes"),
        (lambda: family("h", 0), "its size is a whole number from 1 to 1024; got 0"),
        (lambda: linear("B", over="h"), "over takes a family"),  # type: ignore[arg-type]
        (lambda: linear("B", per="unit_"), 'per is "unit", "head" or "group"'),
        (lambda: linear("B", start=1.0), "start is the first value of the bias; add bias=True"),
        (lambda: parameter("B", start=linear("x")), "made of numbers, index"),
        (lambda: parameter("B", start=index(family("h", 3))), "start depends on index"),
        (lambda: Cell("x", "max-times").read("q", linear("c")), "may be negative"),
        (lambda: RationalRNN(zoo.get_cell("GLA"), 6, 6, heads=4), "4 heads do not divide the 6 units of GLA"),
        (
            lambda: RationalRNN(zoo.get_cell("Mamba-2"), 6, 6, heads=3, groups=2),
            "2 groups do not divide 3 heads",
        ),
        (lambda: RationalRNN(zoo.get_cell("F"), 6, 6, heads=2), "F has none. Leave heads out"),
    ],
)
def test_mistakes(build_wrong: Any, message: str) -> None:
    with pytest.raises(RRNNError, match=message):
        build_wrong()


@pytest.mark.parametrize(
    "line, message",
    [
        ("family h 0", "a whole number from 1 to 1024"),
        ('B = linear("B", over=g)', "the name of a family"),
        ('B = linear("B", per="heads")', '"unit", "head" or "group"'),
        ('A = parameter("A", start=index(g))', "a family, or unit, head or group"),
    ],
)
def test_mistakes_in_text(line: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        Cell.from_text(
            f"rrnn-cell 2\ncell x\nsemiring real\nfamily h 3\n{line}\n".replace("family h 3\nfam", "fam")
        )


def test_a_text_without_families_knows_nothing_of_them() -> None:
    with pytest.raises(FormatError) as error:
        Cell.from_text('rrnn-cell 1\ncell x\nsemiring real\nu = linear("u", over=h)\n')
    assert "over" not in str(error.value).split("expected", 1)[1].split("got")[0]
    with pytest.raises(FormatError, match="cannot read 'family h 3'"):
        Cell.from_text("rrnn-cell 1\ncell x\nfamily h 3\n")


def test_the_text_of_a_kernel_does_not_grow_with_the_family() -> None:
    for render in (render_forward, render_backward):
        few, many = (render(lower(zoo.get_cell("GLA", states=n)).program, torch.float32) for n in (4, 128))
        assert len(many.split("\n")) == len(few.split("\n"))


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    rnn = build("Mamba", units=300, dtype=torch.float32)
    x, found = torch.randn(40, 3, 300), []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            v = x.clone().requires_grad_()
            out, state = rnn(v)
            found.append([out, *gradients(rnn, v, out, state[0].states[0])])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
