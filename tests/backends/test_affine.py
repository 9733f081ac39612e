"""Affine programs: what the analysis finds, and the backend that runs them, against the reference."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from automata.test_family_rules import CELLS
from torch import Tensor
from zoo.test_wide import close, gradients

import rrnn
from rrnn import RationalRNN, zoo
from rrnn.automata import Cell, Expr, family, linear, one, parameter, score, sigmoid, tanh
from rrnn.backends.registry import resolve
from rrnn.errors import BackendError
from rrnn.ir import Program, lower
from rrnn.ir.affine import affine, share_states

H = family("h", 3)
PAIRS = H.source, H.target


def cell(matrix: Expr, read: Expr | None = None, entry: Expr | None = None, output: Expr = score) -> Cell:
    entry = linear("u", over=H, per="head", bias=True) if entry is None else entry
    start = Cell("mixed").initial("q0").loop("q0", one).arc("q0", H, entry).mix(H, H, matrix)
    return start.read(H, parameter("r", over=H) if read is None else read).output(output)


AFFINE = {
    "of the input": cell(tanh(linear("W", over=PAIRS, per="head"))),
    "learned": cell(parameter("W", over=PAIRS, per="head")),
    "both": cell(sigmoid(linear("f", per="head")) * parameter("W", over=PAIRS, per="head")),
    "of nothing": cell(parameter("W", over=PAIRS, per="head"), entry=parameter("b", over=H, per="head")),
    "of a group": cell(parameter("W", over=PAIRS, per="group"), sigmoid(parameter("r", over=H))),
}
OTHERS = {
    "its weights differ from unit to unit": cell(parameter("W", over=PAIRS)),
    "its output is not a sum of states": cell(parameter("W", over=PAIRS, per="head"), output=tanh(score)),
    "each times a number": cell(parameter("W", over=PAIRS, per="head"), linear("q", over=H)),
    "sum of a product with a matrix and": cell(parameter("W", over=PAIRS, per="head")).loop(
        H, linear("f", per="head")
    ),
    "no whole matrix": cell(linear("k", over=H, per="head").source * linear("g", over=H, per="head").target),
}


def layer(name: str) -> RationalRNN:
    torch.manual_seed(0)
    rnn = RationalRNN(AFFINE[name], 4, 6, heads=2, dtype=torch.float64)
    for value in rnn.parameters():
        torch.nn.init.normal_(value, std=0.5)
    return rnn


def results(
    backend: str, rnn: RationalRNN, x: Tensor, first: Tensor | None = None, **options: Any
) -> list[Tensor]:
    v = x.clone().requires_grad_()
    start = rnn.init_state(3 if "cu_seqlens" not in options else 2)
    given = start[0].states[0] if first is None else first.clone().requires_grad_()
    state = (start[0]._replace(states=(given,)),)
    with rrnn.use_backend(backend):
        out, end = rnn(v, state, **options)
        last = end[0].states[0]
        found = [out, last, *gradients(rnn, v, out, last)]
        return (
            found
            if first is None
            else [*found, *torch.autograd.grad(rnn(v, state, **options)[0].sum(), [given])]
        )


@pytest.mark.parametrize("name", AFFINE)
def test_equal_to_the_reference(name: str) -> None:
    rnn, x = layer(name), torch.randn(7, 3, 4, dtype=torch.float64)
    assert rnn.init_state(3)[0].states[0].shape == (1, 3, 6)  # one row: each head has as many states as units
    first = torch.randn(1, 3, 6, dtype=torch.float64)
    mask = torch.rand(7, 3, generator=torch.Generator().manual_seed(3)) < 0.6
    ways: list[dict[str, Any]] = [{}, {"mask": mask}, {"lengths": [7, 2, 0]}]
    for options in ways:
        found, expected = (results(backend, rnn, x, first, **options) for backend in ("affine", "reference"))
        assert all(close(a, b) for a, b in zip(found, expected, strict=True))
    packed: dict[str, Any] = {"cu_seqlens": [0, 3, 7]}
    found, expected = (results(backend, rnn, x[:, 0], **packed) for backend in ("affine", "reference"))
    assert all(close(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", AFFINE)
def test_no_steps_and_no_sequences(name: str) -> None:
    rnn = layer(name)
    for shape in ((0, 2, 4), (3, 0, 4)):
        out, state = rnn(torch.zeros(shape, dtype=torch.float64))
        assert out.shape == (*shape[:2], 6) and state[0].states[0].shape == (1, shape[1], 6)
        (out.sum() + state[0].states[0].sum()).backward()
        assert all(p.grad is None or not p.grad.any() for p in rnn.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("name", AFFINE)
def test_generated_code_agrees(name: str) -> None:
    """Kernels that keep states for each unit give and take the same rows of states."""
    rnn, x, first = (
        layer(name),
        torch.randn(20, 3, 4, dtype=torch.float64),
        torch.randn(1, 3, 6, dtype=torch.float64),
    )
    found, expected = (results(backend, rnn, x, first) for backend in ("native", "reference"))
    assert all(close(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.slow
def test_compiled_graphs() -> None:
    """There, states are saved every few steps, and recomputed."""
    rnn, x = layer("both"), torch.randn(20, 3, 4, dtype=torch.float64, requires_grad=True)
    compiled = torch.compile(rnn, fullgraph=True, backend="aot_eager")
    found = [gradients(rnn, x, out, state[0].states[0]) for out, state in (compiled(x), rnn(x))]
    assert all(close(a, b) for a, b in zip(*found, strict=True))


def test_padding_reaches_nothing() -> None:
    rnn, x = layer("of the input"), torch.randn(5, 3, 4, dtype=torch.float64)
    filled = x.clone()
    filled[2:, 1] = float("nan")
    found = [results("affine", rnn, v, lengths=[5, 2, 5]) for v in (x, filled)]
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_which_backend_runs() -> None:
    program = share_states(lower(zoo.get_cell("ISAN", units=4)).program, 4)
    assert program.shares_states and Program.parse(program.text) == program
    assert resolve("auto", torch.device("cpu"), torch.float32, [program]).name == "affine"
    other = share_states(lower(zoo.get_cell("ISAN", units=4)).program, 5)  # the fifth unit reads nothing
    assert not other.shares_states
    with rrnn.use_backend("affine"), pytest.raises(BackendError, match="its units share no states"):
        RationalRNN("B", 3, 3)(torch.randn(2, 1, 3))


@pytest.mark.parametrize("why", OTHERS)
def test_what_is_not_affine(why: str) -> None:
    assert why in str(affine(lower(OTHERS[why]).program))
    for build in CELLS.values():
        assert isinstance(affine(lower(build("real")).program), str)
        assert isinstance(affine(lower(build("max-plus")).program), str)


@pytest.mark.slow
def test_no_other_model_is_affine() -> None:
    for name in zoo.CELLS:
        assert isinstance(affine(lower(zoo.get_cell(name)).program), str)
