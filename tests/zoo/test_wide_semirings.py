"""Families of states over semirings whose ⊕ is no single operation: signed-log, and some that users define."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from kernel_cases import needs_interpreter
from zoo.test_wide import close, gradients, without_families

import rrnn
from rrnn import Cell, RationalRNN, Semiring, construct, register_semiring
from rrnn.arithmetic import Range
from rrnn.automata import Expr, family, linear, log_sigmoid, one, parameter, score, sigmoid, step, tanh
from rrnn.backends.native.families import render_backward, render_forward
from rrnn.backends.triton.families import render
from rrnn.backends.triton.pair_kernels import render as render_pairs
from rrnn.ir import Program, adjoint, lower
from rrnn.ir.equations import latex
from rrnn.semirings import SEMIRINGS, get_semiring
from rrnn.theory import verify_cell

INFINITE = float("-inf")
SHARP = Semiring(  # one number: the logarithm of the length of a vector, √(e²ᵃ + e²ᵇ)
    "sharp",
    zero=INFINITE,
    one=0.0,
    plus=lambda s, a, b: s.mul(0.5, s.logaddexp(s.mul(2.0, a), s.mul(2.0, b))),
    times=lambda s, a, b: s.add(a, b),
    values=Range(INFINITE, float("inf"), high_open=True),
    has_gradient=True,
)
BOTH = Semiring(  # two numbers, added up by different operations
    "best-and-sum",
    components=("best", "total"),
    zero=(0.0, 0.0),
    one=(1.0, 1.0),
    plus=lambda s, a, b: (s.max(a[0], b[0]), s.add(a[1], b[1])),
    times=lambda s, a, b: (s.mul(a[0], b[0]), s.mul(a[1], b[1])),
    has_gradient=True,
    constructors={"both": (("best", "total"), lambda s, best, total: (best, total))},
)
TRIANGLES = Semiring(  # upper triangular matrices over max-plus: the order of factors matters
    "triangles",
    components=("a", "b", "c"),
    zero=(INFINITE, INFINITE, INFINITE),
    one=(0.0, INFINITE, 0.0),
    plus=lambda s, x, y: tuple(s.max(p, q) for p, q in zip(x, y, strict=True)),
    times=lambda s, x, y: (x[0] + y[0], s.max(x[0] + y[1], x[1] + y[2]), x[2] + y[2]),
    commutative=False,
    has_gradient=True,
    values=Range(INFINITE, float("inf"), high_open=True),
    constructors={"triangle": (("a", "b", "c"), lambda s, a, b, c: (a, b, c))},
)
OWN = (SHARP, BOTH, TRIANGLES)
NAMES = ["signed-log", *(ring.name for ring in OWN)]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    with mock.patch.dict(SEMIRINGS):
        for ring in OWN:
            register_semiring(ring)
        yield


def weight(semiring: str, make: Any, name: str, **extent: Any) -> Expr:
    """Return a weight of the semiring, from projections or parameters whose names begin with `name`."""

    def x(end: str) -> Expr:
        return make(name + end, **extent)

    match semiring:
        case "signed-log":
            return construct("signed", 2 * step(x("s")) - 1, log_sigmoid(x("")))
        case "best-and-sum":
            return construct("both", sigmoid(x("b")), tanh(x("t")))
        case "triangles":
            return construct("triangle", tanh(x("a")), tanh(x("b")), tanh(x("c")))
    return log_sigmoid(x(""))


def cell_over(semiring: str, states: int = 4) -> Cell:
    """Return a cell with a family, an arc from it into a single state, and a read-out."""
    h = family("h", states)
    entry, loop = (weight(semiring, linear, n, over=h, per="head", bias=True) for n in "uf")
    out, end = (weight(semiring, parameter, n, over=h) for n in "re")
    cell = Cell("family", semiring).initial("q0").loop("q0", one).arc("q0", h, entry).loop(h, loop)
    cell = cell.arc(h, "q2", end).loop("q2", weight(semiring, linear, "g")).read(h, out).read("q2", one)
    parts = [getattr(score, name) for name in get_semiring(semiring).components] or [score]
    return cell.output(*(tanh(part) for part in parts))


def matrix_over(semiring: str, states: int = 3) -> Cell:
    """Return a cell with a whole matrix of arcs: the ⊕ runs over one of two indices."""
    h = family("h", states)
    entry = weight(semiring, linear, "u", over=h, per="head")
    matrix = weight(semiring, linear, "m", over=(h.source, h.target), per="head")
    cell = Cell("matrix", semiring).initial("q0").loop("q0", one).arc("q0", h, entry).mix(h, h, matrix)
    cell = cell.read(h, weight(semiring, parameter, "r", over=h))
    parts = [getattr(score, name) for name in get_semiring(semiring).components] or [score]
    return cell.output(*(tanh(part) for part in parts))


CELLS = {"family": cell_over, "matrix": matrix_over}


def layer(semiring: str, dtype: torch.dtype = torch.float64, cell: str = "family") -> RationalRNN:
    torch.manual_seed(0)
    rnn = RationalRNN(CELLS[cell](semiring), 5, 6, heads=2, dtype=torch.float64)
    for value in rnn.parameters():
        torch.nn.init.normal_(value)
    return rnn.to(dtype)


@pytest.mark.parametrize("backend", ["reference", pytest.param("native", marks=pytest.mark.slow)])
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("semiring", NAMES)
def test_equal_to_the_cell_written_out(semiring: str, cell: str, backend: str) -> None:
    rnn, found = layer(semiring, cell=cell), []
    x = torch.randn(7, 3, 5, dtype=torch.float64)
    for each in (rnn, without_families(rnn)):
        v = x.clone().requires_grad_()
        with rrnn.use_backend(backend):
            out, _ = each(v)
            (grad,) = torch.autograd.grad((out * torch.arange(out.numel()).view(out.shape).cos()).sum(), v)
        found.append((out, grad))
    assert close(found[0][0], found[1][0]) and close(found[0][1], found[1][1])
    assert found[0][1].any()


@pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")  # NumPy on ∞ − ∞, in the interpreter
@pytest.mark.parametrize(
    "backend, dtype, tolerance",
    [
        pytest.param("native", torch.float64, 1e-10),
        # Where weights of both signs nearly cancel, a gradient loses three digits.
        pytest.param("triton", torch.float32, 1e-3, marks=[pytest.mark.slow, needs_interpreter]),
    ],
)
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("semiring", NAMES)
def test_backends_agree(semiring: str, cell: str, backend: str, dtype: torch.dtype, tolerance: float) -> None:
    """Outputs, last states and all gradients, of padded sequences."""
    found = []
    for name, kind in ((backend, dtype), ("reference", torch.float64)):
        rnn = layer(semiring, kind, cell)
        torch.manual_seed(2)
        x = torch.randn(5, 2, 5).to(kind).requires_grad_()
        with rrnn.use_backend(name):
            out, state = rnn(x, lengths=[5, 2])
            last = state[0].states[0].tanh()  # 0̄ may be infinite
            found.append([out, last, *gradients(rnn, x, out, last)])
    assert all(close(a, b, tolerance) for a, b in zip(*found, strict=True))


@needs_interpreter
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("semiring", ["signed-log", "triangles"])
def test_packed_sequences_and_given_states_on_triton(semiring: str, cell: str) -> None:
    """The second call starts with the states of the first one, through which its gradients go back."""
    found = []
    for name, kind in (("triton", torch.float32), ("reference", torch.float64)):
        rnn = layer(semiring, kind, cell)
        torch.manual_seed(2)
        x = torch.randn(5, 5).to(kind).requires_grad_()
        with rrnn.use_backend(name):
            packed, ends = rnn(x, cu_seqlens=[0, 3, 3, 5])
            _, between = rnn(x[:2].unsqueeze(1))
            rest, state = rnn(x[2:].unsqueeze(1), between)
        last = torch.cat([end[0].states[0] for end in (ends, state)], 1).tanh()
        out = torch.cat([packed, rest[:, 0]])
        found.append([out, last, *gradients(rnn, x, out, last)])
    assert all(close(a, b, 1e-3) for a, b in zip(*found, strict=True))


def test_gradients_are_those_of_finite_differences() -> None:
    rnn = layer("sharp")
    x = torch.randn(4, 1, 5, dtype=torch.float64, requires_grad=True)
    for backend in ("reference", "native"):
        with rrnn.use_backend(backend):
            assert torch.autograd.gradcheck(lambda v: rnn(v)[0], x)


def test_in_a_tie_the_first_state_gets_the_gradient() -> None:
    h = family("h", 3)
    cell = Cell("tie", "best-and-sum").initial("q0").loop("q0", one).arc("q0", h, one)
    cell = cell.read(h, construct("both", parameter("r", over=h), parameter("r", over=h)))
    for backend in ("reference", "native"):
        rnn = RationalRNN(cell.output(score.best), 2, 1, dtype=torch.float64)
        learned = rnn.layers[0].parameters_of(0)["r"]  # type: ignore[operator]
        torch.nn.init.constant_(learned, 0.5)
        with rrnn.use_backend(backend):
            rnn(torch.randn(1, 1, 2, dtype=torch.float64))[0].sum().backward()
        assert learned.grad is not None and learned.grad.flatten().tolist() == [1.0, 0.0, 0.0]


def forgetful(which: str) -> Cell:
    """Return a cell with a family whose states are entered, and read in the same step, alike."""
    g, h = family("g", 4), family("h", 3)
    shared, own = linear("k", over=g, per="head"), linear("r", over=g, per="head")
    cell = Cell(which, "max-plus" if which.startswith("most") else "real").initial("q0").loop("q0", one)
    if which.startswith("most"):
        read = own if which.endswith("projections") else parameter("r", over=g, per="head")
        return cell.arc("q0", g, shared).read(g, read).output(score + linear("v"))
    if which == "mixed":
        return cell.arc("q0", h, linear("u", over=h)).mix(h, g, linear("k", over=h).source).final(g)
    if which == "entered":
        return cell.arc("q0", "s", linear("u")).arc("s", g, 0.5).final(g)
    cell = cell.arc("q0", g, linear("v"))
    if which == "final":
        return cell.final(g, parameter("p", over=g) + parameter("a"))
    return cell.read(g, linear("l", over=g) - (parameter("a") if which == "parameter" else linear("m")))


@pytest.mark.parametrize("backend", ["reference", "native"])
@pytest.mark.parametrize(
    "which",
    ["parameter", "projection", "final", "mixed", "entered", "most_of_parameters", "most_of_projections"],
)
def test_families_without_memory(which: str, backend: str) -> None:
    """What all indices share gets the sum of the gradients over them, also where these are equal."""
    torch.manual_seed(0)
    heads = 2 if which.startswith("most") else 1
    rnn = RationalRNN(forgetful(which), 3, 4, heads=heads, dtype=torch.float64)
    for value in rnn.parameters():
        torch.nn.init.normal_(value)
    x = torch.randn(3, 2, 3, dtype=torch.float64, requires_grad=True)
    weights = {name: value.detach().clone().requires_grad_() for name, value in rnn.named_parameters()}

    def run(v: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        with rrnn.use_backend(backend):
            return torch.func.functional_call(rnn, dict(zip(weights, values, strict=True)), (v,))[0]

    assert torch.autograd.gradcheck(run, (x, *weights.values()))


def test_states_that_are_all_alike() -> None:
    """The ⊕ of n equal elements is (1̄ ⊕ … ⊕ 1̄) ⊗ the element."""
    h = family("h", 5)
    cell = Cell("alike", "sharp").initial(h).loop(h, one).read(h, parameter("r"))
    program = lower(cell).program
    rnn = RationalRNN(cell, 2, 3, dtype=torch.float64)
    learned = rnn.layers[0].parameters_of(0)["r"]  # type: ignore[operator]
    out, _ = rnn(torch.randn(2, 1, 2, dtype=torch.float64))
    assert close(out[0, 0], learned.detach().flatten() + 0.5 * torch.tensor(5.0).double().log())
    assert Program.parse(program.text) == program


@pytest.mark.parametrize("semiring", NAMES)
def test_the_text_does_not_grow_with_the_family(semiring: str) -> None:
    few, many = (lower(cell_over(semiring, states)).program for states in (4, 128))
    for program in (few, adjoint(few).step):
        assert Program.parse(program.text) == program
    assert len(few.text.split("\n")) == len(many.text.split("\n"))
    for write in (
        lambda p: render_forward(p, torch.float32),
        lambda p: render_backward(p, torch.float32),
    ):
        assert len(write(few).split("\n")) == len(write(many).split("\n"))
    wide = lower(cell_over(semiring, 16)).program  # from 16 states on, Triton sums over units on tensor cores
    assert len(render(wide, 8).split("\n")) == len(render(many, 8).split("\n"))
    few, many = (lower(matrix_over(semiring, states)).program for states in (4, 128))
    assert len(render_pairs(few, 8).split("\n")) == len(render_pairs(many, 8).split("\n"))


def test_equations() -> None:
    assert "⊕ᵢ z¹ᵢₜ₋₁" in rrnn.equations(cell_over("signed-log"))
    assert r"\bigoplus_i" in latex(cell_over("signed-log"))


@pytest.mark.parametrize("semiring", ["signed-log", "triangles"])
def test_layers_are_their_automata(semiring: str) -> None:
    verdict = verify_cell(cell_over(semiring))
    assert verdict.verdict == "rational" and verdict.max_error is not None and verdict.max_error < 1e-12


@pytest.mark.gpu
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("semiring", NAMES)
def test_on_a_gpu(semiring: str, cell: str) -> None:
    found = []
    for device, kind in (("cuda", torch.float32), ("cpu", torch.float64)):
        rnn = layer(semiring, kind, cell).to(device)
        torch.manual_seed(2)
        x = torch.randn(20, 3, 5).to(device, kind).requires_grad_()
        with rrnn.use_backend("triton" if device == "cuda" else "reference"):
            out, state = rnn(x, lengths=[20, 7, 1])
            last = state[0].states[0].tanh()
            weights = [x, *rnn.parameters()]
            grads = torch.autograd.grad((out**2).sum() + (last**2).sum(), weights, allow_unused=True)
        found.append([None if t is None else t.double().cpu() for t in (out, last, *grads)])
    # Gradients of sums that nearly cancel lose digits in float32.
    assert all(close(a, b, 1e-2) for a, b in zip(*found, strict=True))
