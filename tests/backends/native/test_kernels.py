"""Native kernels against the reference in float64: outputs, final states and every gradient."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from cell_calls import ALL_CELLS_SOME_SLOW, GRADIENT_SEMIRINGS, MECHANICS_CELLS, Call, make_call
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from quick_c import levels, quickly
from runnable_cell_strategies import cells
from torch import Tensor

from rrnn.arithmetic import ALONG_FAMILY
from rrnn.automata import Cell, linear, one, tanh
from rrnn.backends import get_backend, use_backend
from rrnn.backends.interface import CellCall, Gradients
from rrnn.backends.native.loops import OPS
from rrnn.ir import Op, lower
from rrnn.ops import initial_state, rational

SLOW = ("complex-1", "log-1", "min-plus-2")
SLOW_CELLS = [pytest.param(name, marks=pytest.mark.slow) for name in SLOW]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 4e-6, torch.bfloat16: 3e-2}


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that a kernel forgets to write shows up as NaN."""
    for owner, name in ((torch, "empty"), (torch, "empty_like"), (Tensor, "new_empty")):
        make = getattr(owner, name)

        def poison(*args: object, make: object = make, **kwargs: object) -> Tensor:
            made = make(*args, **kwargs)  # pyright: ignore[reportCallIssue]
            return made.fill_(float("nan")) if made.is_floating_point() else made

        monkeypatch.setattr(owner, name, poison)


def run(call: Call, backend: str, every: int = 16) -> tuple[list[Tensor], list[Tensor]]:
    """(output and final states, gradients of everything that has one)."""
    with use_backend(backend):
        out, states = rational(
            call.x, call.params, call.states, call.programs, mask=call.mask, inp=call.inp, save_every=every
        )
    results = [out, *states]
    g = torch.Generator().manual_seed(7)
    loss = torch.zeros((), dtype=torch.float64)
    for r in results:  # infinite states (0̄) are constants
        weight = torch.randn(r.shape, generator=g, dtype=torch.float64)
        loss = loss + (torch.where(r.isfinite(), r, 0.0).double() * weight).sum()
    if not (call.leaves and torch.is_grad_enabled()):
        return results, []
    return results, list(torch.autograd.grad(loss, call.leaves, materialize_grads=True))


def assert_near(ours: list[Tensor], true: list[Tensor], tolerance: float) -> None:
    """Infinities agree, and so do the others, relative to their root mean square."""
    for i, (a, b) in enumerate(zip(ours, true, strict=True)):
        a, b = a.detach().double(), b.detach().double()
        assert a.shape == b.shape
        finite = b.isfinite()
        assert torch.equal(a[~finite], b[~finite]), f"tensor {i}: infinities differ"
        a, b = a[finite], b[finite]
        if b.numel():
            error = (a - b).square().mean().sqrt() / b.square().mean().sqrt().clamp_min(1e-6)
            assert error < tolerance, f"tensor {i}: {error:.2e}"


def in_double(call: Call) -> Call:
    """The same numbers for the reference."""
    fresh = call.detached()

    def double(t: Tensor) -> Tensor:
        return t.detach().double().requires_grad_(t.requires_grad)

    inp = None if fresh.inp is None else double(fresh.inp)
    params, states = [double(p) for p in fresh.params], [double(s) for s in fresh.states]
    return replace(fresh, x=double(fresh.x), inp=inp, params=params, states=states)


def check(call: Call, *, every: int = 16, grow: float = 1.0) -> None:
    tolerance = grow * TOLERANCE[call.x.dtype]
    ours, true = run(call, "native", every), run(in_double(call), "reference")
    assert_near(ours[0], true[0], tolerance)
    assert_near(ours[1], true[1], tolerance * 3)  # gradients of parameters are sums over time and batch


def mask_of(steps: int, batch: int) -> Tensor:
    mask = torch.rand(steps, batch, generator=torch.Generator().manual_seed(5)) < 0.7
    if batch > 2:
        mask[:, -1] = False  # nothing but padding
    return mask


# ---- the matrix ----------------------------------------------------------------------------------------------------

OPTIMISED = {f"{ring}-{n}": yes for (ring, n), yes in levels(GRADIENT_SEMIRINGS, (1, 2, 3)).items()}
"""Whether to optimise the kernels of a random cell; those of others are."""
OPTIMISED_DTYPES = levels(("B-max-plus", "F", *SLOW), (torch.float64, torch.bfloat16))


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("name", ALL_CELLS_SOME_SLOW)
def test_every_cell(name: str, masked: bool) -> None:
    call = make_call(name, steps=23, batch=3, units=37, dtype=torch.float32, seed=4)
    with nullcontext() if OPTIMISED.get(name, True) else quickly():
        check(replace(call, mask=mask_of(23, 3) if masked else None), every=5)


@pytest.mark.parametrize("every", [1, 16])
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("name", MECHANICS_CELLS)
def test_states_saved_more_and_less_often(name: str, masked: bool, every: int) -> None:
    call = make_call(name, steps=23, batch=3, units=37, dtype=torch.float32, seed=4)
    check(replace(call, mask=mask_of(23, 3) if masked else None), every=every)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("name", ["B-max-plus", "F", *SLOW_CELLS])
def test_other_dtypes(name: str, masked: bool, dtype: torch.dtype) -> None:
    call = make_call(name, steps=9, batch=2, units=45, dtype=dtype, seed=6)
    with nullcontext() if OPTIMISED_DTYPES[name, dtype] else quickly():
        check(replace(call, mask=mask_of(9, 2) if masked else None), every=4)


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 1, 15), (3, 5, 16), (17, 2, 17), (5, 1, 129), (4, 2, 1601)])
@pytest.mark.parametrize("name", ["B", "F", "SRU"])
def test_odd_sizes(name: str, shape: tuple[int, int, int]) -> None:
    steps, batch, units = shape
    check(make_call(name, steps=steps, batch=batch, units=units, dtype=torch.float32), every=4)


@pytest.mark.parametrize("shape", [(0, 2, 3), (3, 0, 4), (3, 2, 0)])
def test_empty_sizes(shape: tuple[int, int, int]) -> None:
    steps, batch, units = shape
    call = make_call("F", steps=steps, batch=batch, units=units, dtype=torch.float32)
    ours, true = run(call, "native"), run(in_double(call), "reference")
    assert_near(ours[0], true[0], 1e-6)
    assert_near(ours[1], true[1], 1e-6)


@pytest.mark.parametrize("name", ["B-max-plus", "C", *SLOW_CELLS])
def test_from_the_cells_own_initial_state(name: str) -> None:
    """Where zero is infinite, states start infinite."""
    check(make_call(name, steps=6, units=20, dtype=torch.float32, random_state=False))


def test_cells_side_by_side() -> None:
    """They write slices of one output, and read slices of one tensor."""
    call = make_call("B", "B-max-plus", "SRU", steps=7, batch=2, units=19, dtype=torch.float32)
    check(replace(call, mask=mask_of(7, 2)))


def test_a_cell_without_memory() -> None:
    """No stored state at all: everything enters from the always-on start."""
    cell = Cell("plain").initial("q0").loop("q0", one).arc("q0", "q1", linear("u")).final("q1")
    program = lower(cell.output(tanh("score"))).program
    x = torch.randn(5, 2, len(program.projections) * 3, requires_grad=True)
    params = torch.zeros(len(program.parameters), 3)
    check(Call([program], x, [params], [initial_state(program, params, 2)], None))


def test_long_sequences_of_saturated_gates() -> None:
    """Huge pre-activations: gates of exactly 0 and 1, no NaN in values or gradients."""
    call = make_call("F+o", steps=40, batch=2, units=33, dtype=torch.float32)
    call.x = (call.x.detach() * 1e4).requires_grad_()
    results, grads = run(call, "native")
    assert all(t.isfinite().all() for t in [*results, *grads])
    check(call)


# ---- random cells --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=8)
@given(st.data())
def test_random_cells(data: st.DataObject) -> None:
    """Any automaton over any semiring. Where ⊕ selects, two paths may tie, and rounding decides between gradients."""
    cell = data.draw(cells(states=4))
    program = lower(cell).program
    smooth = cell.semiring_name in ("real", "log")
    steps, batch, units = 4, 2, 18
    g = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=g, dtype=torch.float64).requires_grad_(smooth)

    params, x = draw(len(program.parameters), units), draw(steps, batch, len(program.projections) * units)
    inp = draw(steps, batch, units) if program.uses_input else None
    state = initial_state(program, params, batch).detach()
    call = Call([program], x, [params], [state], inp, mask_of(steps, batch))
    with torch.no_grad():  # a machine that explodes proves nothing
        assume(all(r[r.isfinite()].abs().sum() < 1e6 for r in run(call, "reference")[0]))
    results, grads = run(call, "native", every=3)
    expected, expected_grads = run(call.detached(), "reference")
    assert_near(results, expected, 1e-10)
    assert_near(grads, expected_grads, 1e-8)


# ---- strides, sizes, numbers -----------------------------------------------------------------------------------------


def strided_copy(t: Tensor, kind: str) -> Tensor:
    """The same numbers in another layout."""
    if kind == "time and batch swapped":
        return t.transpose(0, 1).contiguous().transpose(0, 1)
    if kind == "inside a wider tensor":
        wide = torch.full((*t.shape[:2], t.shape[2] + 7), float("nan"), dtype=t.dtype)
        wide[..., 3:-4] = t
        return wide[..., 3:-4]
    return t.transpose(1, 2).contiguous().transpose(1, 2)


LAYOUTS = ("time and batch swapped", "inside a wider tensor", "units not side by side")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_arguments_and_gradients(layout: str) -> None:
    call = make_call("SRU", steps=6, batch=3, units=21, dtype=torch.float32)
    mask = mask_of(6, 3)
    assert call.inp is not None

    def outcome(x: Tensor, inp: Tensor, grad: Tensor, mask: Tensor) -> list[Tensor]:
        x, inp = x.detach().requires_grad_(), inp.detach().requires_grad_()
        with use_backend("native"):
            out = rational(x, call.params, call.states, call.programs, mask=mask, inp=inp).output
        return [out.detach(), *torch.autograd.grad(out, (x, inp, *call.params, *call.states), grad)]

    grad = torch.randn(6, 3, 21)
    plain = outcome(call.x, call.inp, grad, mask)
    moved = (strided_copy(t, layout) for t in (call.x.detach(), call.inp.detach(), grad))
    other = outcome(*moved, mask.T.contiguous().T)
    assert all(torch.equal(a, b) for a, b in zip(plain, other, strict=True))


def test_outputs_of_any_layout() -> None:
    """The backend writes into the view it is given, whatever its strides."""
    call = make_call("B", steps=4, batch=2, units=21, dtype=torch.float32, grad=False)
    (program,), (params,), (state,) = call.programs, call.params, call.states
    backend = get_backend("native")
    whole = CellCall(program, call.x.view(4, 2, 2, 21), params, every=1)
    plain = torch.empty(4, 2, 21)
    _, saved = backend.forward(whole, state, plain)
    assert saved is not None
    grads = torch.randn(4, 2, 21), torch.randn_like(state)
    expected = torch.empty(4, 2, 2, 21)
    rest = backend.backward(whole, saved, Gradients(*grads, expected))
    for layout in LAYOUTS:
        out = strided_copy(torch.zeros(4, 2, 21), layout)
        backend.forward(whole._replace(every=0), state, out)
        assert torch.equal(out, plain)
        into = torch.zeros(2, 21, 4, 2).permute(2, 3, 0, 1)
        others = backend.backward(whole, saved, Gradients(*grads, into))
        assert torch.equal(into, expected)
        assert all(torch.equal(a, b) for a, b in zip(rest, others, strict=True))


def test_offsets_beyond_32_bits() -> None:
    """A view whose steps lie 2³¹ numbers apart; only the pages that are touched become memory."""
    try:
        huge = torch.from_numpy(np.zeros(2**32 + 2**12, np.uint16)).view(torch.bfloat16)
    except MemoryError:
        pytest.skip("this machine does not promise 8 GB of memory")
    call = make_call("B", steps=3, batch=1, units=40, dtype=torch.bfloat16, grad=False)
    view = huge.as_strided((3, 1, 80), (2**31, 80, 1))
    view.copy_(call.x)
    with use_backend("native"):
        near = rational(call.x, call.params, call.states, call.programs)
        far = rational(view, call.params, call.states, call.programs)
    assert torch.equal(near.output, far.output)


@pytest.mark.parametrize("where", [0, 5, 11])
def test_nan_goes_where_it_should_and_nowhere_else(where: int) -> None:
    """A NaN in one lane stays in that lane, from its step on; in padding it does not count."""
    call = make_call("B-max-plus", steps=12, batch=2, units=18, dtype=torch.float32, grad=False)
    clean = run(call, "native")[0][0]
    call.x[where, 1, 3] = float("nan")
    dirty = run(call, "native")[0][0]
    bad = dirty.isnan()
    assert bad[where:, 1, 3].all() and bad.sum() == 12 - where
    assert torch.equal(dirty[~bad], clean[~bad])
    mask = torch.ones(12, 2, dtype=torch.bool)
    mask[where, 1] = False
    assert not run(replace(call, mask=mask), "native")[0][0].isnan().any()


def test_no_gradient_reaches_padding() -> None:
    call = make_call("F", steps=6, batch=3, units=20, dtype=torch.float32)
    mask = mask_of(6, 3)
    with torch.no_grad():
        call.x[~mask] = float("nan")
    _, (gx, *rest) = run(replace(call, mask=mask), "native", every=2)
    assert (gx[~mask] == 0).all() and all(g.isfinite().all() for g in rest)


def test_every_op_has_c() -> None:
    elements = {Op.ELEMENT, Op.COMPONENT, Op.PLUS, Op.TIMES}  # `Program.flat` has none of them
    families = set(ALONG_FAMILY)  # they are loops, not expressions
    assert {op for op in Op if op.arity} == OPS.keys() | elements | families


@pytest.mark.parametrize("name", ["B", "F", "SRU"])
@pytest.mark.parametrize("read", ["output", "state"])
def test_gradients_where_nothing_depends_on_the_other_result(name: str, read: str) -> None:
    """Neither a missing gradient of the output nor one of the final states is anything but zero."""
    grads = {}
    for backend in ("native", "reference"):
        call = make_call(name, steps=5, batch=3, units=7)
        with use_backend(backend):
            out, (state,) = rational(call.x, call.params, call.states, call.programs, inp=call.inp)
            loss = (out if read == "output" else state).square().sum()
            grads[backend] = torch.autograd.grad(loss, call.leaves, materialize_grads=True)
    torch.testing.assert_close(grads["native"], grads["reference"])
