"""Corners of the Triton backend, in its interpreter: nothing to do, no states, autograd, what it cannot run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from cell_calls import Call, make_call
from kernel_cases import (
    Case,
    Schedule,
    arguments,
    check,
    compare,
    expected,
    needs_interpreter,
    run_triton,
    schedule_options,
)

from rrnn.automata import Cell, one, parameter, score, sigmoid, tanh
from rrnn.backends import get_backend, resolve, use_backend
from rrnn.backends.interface import CellCall, Gradients
from rrnn.backends.triton.chained_chunks import GROUP
from rrnn.errors import BackendError
from rrnn.nn import RationalRNN
from rrnn.ops import rational
from rrnn.zoo import get_cell

pytestmark = [
    pytest.mark.slow,
    needs_interpreter,
    pytest.mark.filterwarnings("ignore::RuntimeWarning:triton"),
]

CPU = torch.device("cpu")


def tiny(cell: str, shape: tuple[int, int, int], schedule: Schedule, mask: str = "whole") -> Case:
    return Case(cell, "float32", shape, mask, schedule, "given", "dense")


@pytest.mark.parametrize("shape", [(0, 2, 3), (3, 0, 3), (3, 2, 0), (0, 0, 0)], ids=str)
@pytest.mark.parametrize("name", ["B", "SRU", "memoryless"])
def test_nothing_to_do(name: str, shape: tuple[int, int, int]) -> None:
    check(tiny(name, shape, Schedule(2, 0, 2)))


@pytest.mark.parametrize("schedule", [Schedule(1, 0, 1), Schedule(8, 16, 8)], ids=str)
def test_a_single_step(schedule: Schedule) -> None:
    check(tiny("B", (1, 1, 1), schedule))


def test_a_chunk_that_is_all_padding() -> None:
    case = tiny("B", (9, 1, 2), Schedule(1, 3, 3))
    a = arguments(case)
    a.mask = torch.ones(9, 1, dtype=torch.bool)
    a.mask[3:6] = False
    a.x[3:6] = float("nan")
    compare(run_triton(case, a), expected(a))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["B", "F+o", "B-max-plus"])
def test_chained_chunks_of_several_groups(name: str) -> None:
    check(tiny(name, (2 * GROUP + 3, 1, 2), Schedule(1, 1, 1, chained=True), "padded"))


def test_a_chained_nan_of_any_bits_is_handed_on() -> None:
    """Words that are all ones mean "not yet there": a NaN of these bits, waited for, would come never."""
    case = tiny("unfused", (4, 1, 2), Schedule(1, 1, 1, chained=True))
    a = arguments(case)
    a.x[:] = torch.tensor(-1, dtype=torch.int32).view(torch.float32)
    with given_up_after(60):
        assert run_triton(case, a)["final state"].isnan().all()


@contextmanager
def given_up_after(seconds: int) -> Iterator[None]:
    def give_up(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def gradients_of(call: Call) -> list[torch.Tensor]:
    out, finals = rational(
        call.x, call.params, call.states, call.programs, mask=call.mask, inp=call.inp, save_every=2
    )
    loss = out.double().square().sum() + sum(s.double().square().sum() for s in finals)
    return [out, *finals, *torch.autograd.grad(loss, call.leaves, materialize_grads=True)]


def test_through_autograd() -> None:
    """Cells side by side write into slices of one output, read slices of one input; parameters get gradients."""
    call = make_call("B", "SRU", steps=3, batch=1, dtype=torch.float32, seed=4)
    call.mask = torch.tensor([[True], [False], [True]])
    with use_backend("reference"):
        theirs = gradients_of(call.detached())
    with use_backend("triton"):
        ours = gradients_of(call.detached())
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "schedule", [Schedule(2, 0, 2), Schedule(1, 2, 2, chained=True)], ids=["serial", "chained"]
)
def test_wide_inputs_beside_narrow_projections_are_not_rounded(schedule: Schedule) -> None:
    """Under autocast x is bfloat16, while the layer's input and the gradient of the output may be float32."""
    case = tiny("SRU", (5, 1, 3), schedule)
    a = arguments(case)
    a.x = a.x.bfloat16()
    ours, theirs = run_triton(case, a), expected(a)
    assert a.inp is not None and a.grad_out.dtype == ours["dinput"].dtype == torch.float32
    assert ours["dx"].dtype == torch.bfloat16
    compare(ours, theirs)  # float32 results to 2e-5: rounding either of them to bfloat16 gives 1e-3


def test_autocast_gives_the_references_results() -> None:
    torch.manual_seed(0)
    layer, x = RationalRNN(get_cell("SRU"), 3, 3), torch.randn(4, 2, 3)
    found = []
    for backend in ("reference", "triton"):
        given = x.clone().requires_grad_()
        with use_backend(backend), torch.autocast("cpu", dtype=torch.bfloat16):
            out, _ = layer(given)
        out.float().square().sum().backward()
        assert given.grad is not None
        found.append((out.float(), given.grad))
    # The interpreter truncates to bfloat16 where torch rounds.
    torch.testing.assert_close(found[1], found[0], rtol=1e-2, atol=1e-2)


def test_inference_saves_nothing() -> None:
    call = make_call("B", steps=3, batch=1, dtype=torch.float32, grad=False)
    x = call.x.unflatten(-1, (2, 3))
    out = torch.full((3, 1, 3), float("nan"))
    own = CellCall(call.programs[0], x, call.params[0])
    _, saved = get_backend("triton").forward(own, call.states[0], out)
    assert saved is None and out.isfinite().all()


def test_it_is_not_chosen_where_it_is_interpreted() -> None:
    call = make_call("B")
    for dtype in (torch.float16, torch.float32):
        assert resolve("auto", CPU, dtype, call.programs).name != "triton"
    assert resolve("triton", CPU, torch.float32, call.programs).name == "triton"
    with pytest.raises(BackendError, match=r"float32, bfloat16 and float16, not torch\.float64"):
        resolve("triton", CPU, torch.float64, call.programs)


def test_offsets_beyond_32_bits() -> None:
    """Projections far apart: every stride fits 32 bits, four times it does not. The memory between is never touched."""
    case = replace(tiny("F+o", (2, 1, 2), Schedule(1, 0, 1)), dtype="bfloat16")
    a = arguments(case)
    theirs, k, far = expected(a), len(a.program.projections), 2**29 + 16
    assert k * far > 2**31 > far
    room = torch.empty(k * far, dtype=torch.bfloat16)
    x, grad_x = (room.as_strided((2, 1, k, 2), (2, 2, far, 1), offset) for offset in (0, 8))
    x.copy_(a.x)
    out, options = torch.empty_like(a.grad_out), schedule_options(case)
    backend = get_backend("triton")
    call = CellCall(a.program, x, a.params, every=1)
    final, saved = backend.forward(call, a.state, out, **options)
    assert saved is not None
    grads = Gradients(a.grad_out, a.grad_state, grad_x)
    grad_params, first = backend.backward(call, saved, grads, **options)
    ours = {"output": out, "final state": final, "dx": grad_x, "dparams": grad_params, "dstate": first}
    compare(ours, theirs)


def test_a_cell_that_projects_nothing() -> None:
    """Its input is an empty tensor, and its output is not."""
    cell = Cell("constant").loop("q0", one).arc("q0", "q1", sigmoid(parameter("a"))).loop("q1", 0.5)
    layer = RationalRNN(cell.initial("q0").final("q1").output(tanh(score)), 3, 4)
    found = []
    for backend in ("reference", "triton"):
        with use_backend(backend):
            out, (state,) = layer(torch.randn(5, 2, 3))
            (grad,) = torch.autograd.grad(out.square().sum(), [layer.layers[0].parameters_of(0)["a"]])
            found.append([out, *state.states, grad])
    torch.testing.assert_close(found[1], found[0])
