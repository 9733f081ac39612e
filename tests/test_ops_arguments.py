"""What `rational` takes in more than one way: parameters as rows, states unsaid, the product inside."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
import torch.nn.functional as F
from cell_calls import Call, make_call
from kernel_cases import program_of
from torch import Tensor

import rrnn.nn.layer
from rrnn.automata import Cell, linear, one, parameter, score, sigmoid, tanh
from rrnn.backends import use_backend
from rrnn.errors import BackendError
from rrnn.ir import Program, lower
from rrnn.nn import RationalRNN
from rrnn.ops import initial_states, rational
from rrnn.zoo import get_cell

BACKENDS = ["reference", "native"]
MIX = ("B", "F", "SRU")  # one parameter, several, the layer's input


@pytest.fixture(params=BACKENDS, autouse=True)
def backend(request: pytest.FixtureRequest) -> object:
    with use_backend(request.param):
        yield request.param


def results(out: Tensor, finals: list[Tensor], leaves: list[Tensor]) -> list[Tensor]:
    """Values and gradients."""
    loss = out.double().square().sum() + sum(s.double().cos().sum() for s in finals)
    return [out, *finals, *torch.autograd.grad(loss, leaves, materialize_grads=True)]


def equal(ours: list[Tensor], theirs: list[Tensor]) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def run(call: Call, **changed: object) -> tuple[Tensor, list[Tensor]]:
    arguments = {"params": call.params, "states": call.states} | changed
    return rational(call.x, programs=call.programs, inp=call.inp, save_every=2, **arguments)  # pyright: ignore


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_parameters_as_rows(dtype: torch.dtype) -> None:
    call = make_call(*MIX, dtype=dtype, seed=3)
    rows = [[row.detach().to(dtype).requires_grad_() for row in p] for p in call.params]
    tables = [torch.stack(r) for r in rows]
    leaves = [call.x, *(row for r in rows for row in r)]
    equal(results(*run(call, params=rows), leaves), results(*run(call, params=tables), leaves))
    equal([*run(call, params=rows)[1]], [*run(call, params=tables)[1]])
    with torch.no_grad():
        equal([run(call, params=rows)[0]], [run(call, params=tables)[0]])


def learned_start() -> Program:
    cell = Cell("start").initial("q0").initial("q1", sigmoid(parameter("l"))).loop("q0", one)
    cell = cell.arc("q0", "q1", linear("u")).loop("q1", sigmoid(linear("f", bias=True))).final("q1")
    return lower(cell.output(tanh(score))).program


@pytest.mark.parametrize("name", ["B", "B-max-plus", "idle", "memoryless", "small-real", "learned"])
def test_states_unsaid(name: str) -> None:
    program = learned_start() if name == "learned" else program_of(name)
    assert (None in program.first_states) == (name == "learned")
    call = Call(
        [program],
        torch.randn(5, 2, len(program.projections) * 3, dtype=torch.float64, requires_grad=True),
        [torch.randn(len(program.parameters), 3, dtype=torch.float64, requires_grad=True)],
        [],
        torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True) if program.uses_input else None,
    )
    said = list(initial_states(call.programs, call.params, 2))
    equal(results(*run(call, states=None), call.leaves), results(*run(call, states=said), call.leaves))
    with torch.no_grad():
        equal([*run(call, states=None)[1]], [*run(call, states=said)[1]])


@pytest.mark.slow
def test_the_first_call_can_be_a_compiled_one() -> None:
    """Nothing that a trace reads of a program is still to be computed. (Other tests call layers before.)"""
    program = learned_start()
    fresh = Program(**{f.name: getattr(program, f.name) for f in fields(program)})
    x, params = torch.randn(5, 2, 6, requires_grad=True), torch.randn(len(program.parameters), 3)

    def function(x: Tensor, *rows: Tensor) -> Tensor:
        return rational(x, [rows], None, [fresh])[0]

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    out = compiled(x, *params)
    torch.testing.assert_close(out, function(x, *params))


def test_states_that_want_gradients_beside_one_that_does_not() -> None:
    call = make_call(*MIX, dtype=torch.float64)
    call.states[1] = call.states[1].detach()
    with use_backend("reference"):
        expected = results(*run(call), call.leaves)
    torch.testing.assert_close(results(*run(call), call.leaves), expected)


@pytest.mark.parametrize("frozen", [None, "x", "weight"])
@pytest.mark.parametrize("layout", ["dense", "batch first"])
def test_the_product_inside(frozen: str | None, layout: str) -> None:
    call = make_call(*MIX, dtype=torch.float64)
    shape = (5, 2, 4) if layout == "dense" else (2, 5, 4)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=frozen != "x")
    seen = x if layout == "dense" else x.transpose(0, 1)
    weight = torch.randn(call.x.shape[-1], 4, dtype=torch.float64, requires_grad=frozen != "weight")
    leaves = [t for t in (x, weight, *call.leaves[1:]) if t.requires_grad]

    def both(inside: bool) -> list[Tensor]:
        y, w = (seen, weight) if inside else (F.linear(seen, weight), None)
        call.x = y
        return results(*run(call, weight=w), leaves)

    torch.testing.assert_close(both(True), both(False), rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        call.x = seen
        assert run(call, weight=weight)[0].shape == (5, 2, sum(p.shape[-1] for p in call.params))


def test_a_product_without_rows() -> None:
    cell = Cell("constant").loop("q0", one).arc("q0", "q1", sigmoid(parameter("a"))).loop("q1", 0.5)
    program, a = (
        lower(cell.initial("q0").final("q1").output(tanh(score))).program,
        torch.randn(3, requires_grad=True),
    )
    x, weight = torch.randn(5, 2, 4, requires_grad=True), torch.zeros(0, 4, requires_grad=True)
    out, _ = rational(x, [[a]], None, [program], weight=weight)
    to_x, to_weight, to_a = torch.autograd.grad(out.sum(), [x, weight, a], materialize_grads=True)
    assert not to_x.any() and to_weight.shape == (0, 4) and to_a.all()


@pytest.mark.parametrize("shape", [(0, 2, 4), (5, 0, 4), (5, 2, 0)], ids=str)
@pytest.mark.parametrize("projects", [True, False])
def test_the_product_of_nothing(shape: tuple[int, int, int], projects: bool) -> None:
    """Without steps, sequences or inputs; and of a cell without projections."""
    still = Cell("constant").loop("q0", one).arc("q0", "q1", sigmoid(parameter("a"))).loop("q1", 0.5)
    still = still.initial("q0").final("q1").output(tanh(score))
    program = lower(get_cell("B") if projects else still).program
    x, params = torch.randn(shape, requires_grad=True), torch.randn(1, 3, requires_grad=True)
    weight = torch.randn(3 * len(program.projections), shape[2], requires_grad=True)

    def both(inside: bool) -> list[Tensor]:
        y, w = (x, weight) if inside else (F.linear(x, weight), None)
        out, finals = rational(y, [params], None, [program], weight=w)
        return results(
            out, [*finals, params], [x, weight, params]
        )  # params: so that something has a gradient

    equal(both(True), both(False))


def test_second_gradients_through_the_product_are_refused(backend: str) -> None:
    call = make_call("B", dtype=torch.float64)
    x, weight = torch.randn(5, 2, 4, dtype=torch.float64), torch.randn(6, 4, dtype=torch.float64)
    call.x = x.requires_grad_()
    out, _ = run(call, weight=weight.requires_grad_())
    (grad,) = torch.autograd.grad(out.sum(), weight, create_graph=True)
    if backend == "reference":
        assert torch.autograd.grad(grad.sum(), x)[0].isfinite().all()
        return
    with pytest.raises(BackendError, match="second derivative"):
        torch.autograd.grad(grad.sum(), x)


@pytest.mark.parametrize(
    ("cell", "options"),
    [
        ("B", {}),
        ("F", {"num_layers": 2, "bias": False, "dropout": 0.3}),
        ("SRU", {"recurrent_dropout": 0.5}),
        ("B", {"skip": "residual", "norm": "layer", "bidirectional": True}),
        ("B", {"zoneout": 0.5}),
        ("B", {"skip": "highway"}),
    ],
    ids=str,
)
def test_layers_are_the_same_with_it(
    cell: str, options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    rnn = RationalRNN(get_cell(cell), 6, 6, dtype=torch.float64, **options)  # pyright: ignore
    x = torch.randn(5, 2, 6, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, True]] * 4 + [[True, False]])

    def both(inside: bool) -> list[Tensor]:
        monkeypatch.setattr(rrnn.nn.layer, "in_one_node", lambda *_: inside)
        torch.manual_seed(1)
        out, state = rnn(x, mask=mask)
        return results(out, [s for layer in state for s in layer.states], [x, *rnn.parameters()])

    torch.testing.assert_close(both(True), both(False), rtol=1e-12, atol=1e-12)
