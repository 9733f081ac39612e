"""`rational`: gradients of every order, padding, dtypes, and the registered ops under torch's own checks."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from cell_calls import ALL_CELLS, ALL_CELLS_SOME_SLOW, MECHANICS_CELLS, Call, make_call
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import rrnn.ops
from rrnn.backends import use_backend
from rrnn.errors import BackendError
from rrnn.ops import rational

MIX = ("B", "B-max-plus", "SRU")  # side by side, different widths, one of them reads the layer's input


@pytest.fixture(autouse=True)
def reference() -> object:
    with use_backend("reference"):
        yield


def run(call: Call) -> list[Tensor]:
    """Output and final states."""
    out, finals = rational(
        call.x, call.params, call.states, call.programs, mask=call.mask, inp=call.inp, save_every=2
    )
    return [out, *finals]


def run_op(call: Call, every: int) -> list[Tensor]:
    """The same through the registered op."""
    texts, widths = [p.text for p in call.programs], [p.shape[-1] for p in call.params]
    out, finals, _ = torch.ops.rrnn.forward(
        call.x, call.params, call.states, call.mask, call.inp, texts, widths, every, "reference"
    )
    return [out, *finals]


def loss_of(results: list[Tensor]) -> Tensor:
    """Every output and state with weights of its own; infinite states (0̄) are constants."""
    g = torch.Generator().manual_seed(7)
    weighed = [
        torch.where(r.isfinite(), r, 0.0) * torch.randn(r.shape, generator=g, dtype=torch.float64)
        for r in results
    ]
    return torch.stack([w.double().sum() for w in weighed]).sum()


def gradients_of(call: Call, results: list[Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad(loss_of(results), call.leaves, materialize_grads=True))


# ---- gradients -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL_CELLS_SOME_SLOW)
def test_first_and_second_gradients(name: str) -> None:
    masks = [None, torch.tensor([[True, False], [False, True], [True, True]])]
    for mask in masks if name in MECHANICS_CELLS else masks[:1]:
        check_gradients(replace(make_call(name, steps=3, batch=2, units=2, seed=1), mask=mask))


def check_gradients(call: Call) -> None:
    """Compare first and second gradients with differences of function values."""

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        rest = list(tensors)
        x, inp = rest.pop(0), None if call.inp is None else rest.pop(0)
        return tuple(run(replace(call, x=x, inp=inp, params=rest[:1], states=rest[1:])))

    # fast_mode compares random projections of the Jacobians: entry by entry would take a minute a cell
    assert gradcheck(function, call.leaves, fast_mode=True)
    assert gradgradcheck(function, call.leaves, fast_mode=True)


@pytest.mark.parametrize(("name", "every"), [*product(ALL_CELLS, [2]), *product(MECHANICS_CELLS, [1, 16])])
def test_the_op_equals_plain_torch(name: str, every: int) -> None:
    call = make_call(name, steps=5, seed=2)
    expected, results = run(call), run_op(call, every)
    torch.testing.assert_close(results, expected)
    torch.testing.assert_close(gradients_of(call, results), gradients_of(call, expected))


def test_cells_side_by_side_equal_each_alone() -> None:
    call = make_call(*MIX, steps=4)
    assert call.inp is not None
    out, *finals = run(call)
    starts, column, unit = [], 0, 0
    for i, (program, p) in enumerate(zip(call.programs, call.params, strict=True)):
        width = p.shape[-1]
        columns = len(program.projections) * width
        alone = Call(
            [program],
            call.x[..., column : column + columns],
            [p],
            [call.states[i]],
            call.inp[..., unit : unit + width] if program.uses_input else None,
        )
        ours, end = run(alone)
        torch.testing.assert_close(out[..., unit : unit + width], ours)
        torch.testing.assert_close(finals[i], end)
        starts.append(unit)
        column, unit = column + columns, unit + width
    assert column == call.x.shape[-1] and unit == out.shape[-1]


def test_strided_arguments() -> None:
    """Slices of wider tensors, and time and batch swapped, as layers with extra projections pass them."""
    call = make_call(*MIX, steps=4, grad=False)
    wide = torch.randn(*call.x.shape[1::-1], call.x.shape[2] + 5, dtype=torch.float64)
    wide[..., 2:-3] = call.x.transpose(0, 1)
    strided = replace(call, x=wide[..., 2:-3].transpose(0, 1))
    for every in (0, 1):
        torch.testing.assert_close(run_op(strided, every), run_op(call, every))


def test_final_state_starts_the_rest() -> None:
    call = make_call(*MIX, steps=6)
    assert call.inp is not None
    whole, *finals = run(call)
    first, *middle = run(replace(call, x=call.x[:4], inp=call.inp[:4]))
    second, *end = run(replace(call, x=call.x[4:], inp=call.inp[4:], states=middle))
    torch.testing.assert_close(torch.cat([first, second]), whole)
    torch.testing.assert_close(end, finals)
    grads = gradients_of(call, [torch.cat([first, second]), *end])
    torch.testing.assert_close(grads, gradients_of(call, [whole, *finals]))


# ---- padding -------------------------------------------------------------------------------------------------------

PADDING = {
    "left": [[False, False, True, True, True], [False, True, True, True, True]],
    "right": [[True, True, True, False, False], [True, True, True, True, False]],
    "inside": [[True, False, True, False, True], [True, True, False, False, True]],
    "all": [[False, False, False, False, False], [True, True, True, True, True]],
}


@pytest.mark.parametrize("op", [False, True], ids=["torch", "op"])
@pytest.mark.parametrize("where", PADDING)
@pytest.mark.parametrize("name", MECHANICS_CELLS)
def test_nothing_depends_on_what_padding_holds(name: str, where: str, op: bool) -> None:
    def results(fill: float) -> tuple[list[Tensor], list[Tensor]]:
        call = make_call(name, steps=5, random_state=where == "all")
        call.mask = torch.tensor(PADDING[where]).T.contiguous()
        with torch.no_grad():
            call.x[~call.mask] = fill
            if call.inp is not None:
                call.inp[~call.mask] = fill
        found = run_op(call, 2) if op else run(call)
        # a loss that reads the outputs at padded steps too: they are zeros, and their gradient goes nowhere
        grads = gradients_of(call, found)
        assert not found[0][~call.mask].any()
        for grad in grads[: 1 if call.inp is None else 2]:
            assert not grad[~call.mask].any()
        assert all(g.isfinite().all() for g in grads)
        return found, grads

    expected = results(0.0)
    for fill in (float("nan"), float("inf"), -float("inf"), 1e30):
        torch.testing.assert_close(results(fill), expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", MECHANICS_CELLS)
def test_padded_steps_equal_no_steps(name: str) -> None:
    call = make_call(name, steps=5, random_state=False)
    mask = torch.tensor(PADDING["inside"]).T
    out, *finals = run(replace(call, mask=mask))
    for b in range(2):
        kept = mask[:, b]
        alone = replace(
            call,
            x=call.x[kept, b : b + 1],
            inp=None if call.inp is None else call.inp[kept, b : b + 1],
            states=[s[:, b : b + 1] for s in call.states],
        )
        ours, *ends = run(alone)
        torch.testing.assert_close(out[kept, b : b + 1], ours)
        torch.testing.assert_close([f[:, b : b + 1] for f in finals], ends)


# ---- dtypes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", [False, True], ids=["torch", "op"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_mixed_dtypes(dtype: torch.dtype, op: bool) -> None:
    """Low-precision activations around float32 parameters and states: the arithmetic between is float32."""
    call = make_call(*MIX, dtype=dtype)
    assert call.x.dtype == dtype and call.params[0].dtype == call.states[0].dtype == torch.float32
    out, *finals = results = run_op(call, 2) if op else run(call)
    assert out.dtype == dtype and all(f.dtype == torch.float32 for f in finals)
    exact = make_call(*MIX, dtype=dtype).to(torch.float32)
    expected = run(exact)
    torch.testing.assert_close(out, expected[0].to(dtype))
    torch.testing.assert_close(finals, expected[1:])
    for grad, leaf in zip(gradients_of(call, results), call.leaves, strict=True):
        assert grad.dtype == leaf.dtype and grad.isfinite().all()


def test_autocast_leaves_states_alone() -> None:
    call = make_call("F", dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        results = run(call)
    torch.testing.assert_close(results, run(call), rtol=0, atol=0)


# ---- vmap ----------------------------------------------------------------------------------------------------------


def test_vmap_over_weights_and_inputs() -> None:
    calls = [make_call("F", seed=s, grad=False) for s in range(3)]
    programs = calls[0].programs

    def one(x: Tensor, params: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        out, finals = rational(x, [params], [state], programs)
        return out, finals[0]

    stacked = [torch.stack(ts) for ts in zip(*((c.x, c.params[0], c.states[0]) for c in calls), strict=True)]
    out, final = torch.vmap(one)(*stacked)
    for i, call in enumerate(calls):
        torch.testing.assert_close([out[i], final[i]], run(call))
    jacobians = torch.func.vmap(torch.func.jacrev(lambda s: one(calls[0].x, calls[0].params[0], s)[0].sum()))(
        stacked[2]
    )
    assert jacobians.shape == stacked[2].shape


# ---- torch.library, torch.compile, torch.export --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("every", [0, 2])
@pytest.mark.parametrize("name", ["F", "SRU", "B-max-plus"])
def test_opcheck(name: str, every: int) -> None:
    call = make_call(name, dtype=torch.float32, grad=every > 0)
    call.mask = torch.tensor(PADDING["inside"]).T
    texts, widths = [p.text for p in call.programs], [p.shape[-1] for p in call.params]
    args = (call.x, call.params, call.states, call.mask, call.inp, texts, widths, every, "reference")
    torch.library.opcheck(torch.ops.rrnn.forward.default, args)
    if every:
        out, finals, saved = torch.ops.rrnn.forward(*args)
        fixed = [t.detach() for t in saved]
        args = (
            *(call.x.detach(), [p.detach() for p in call.params], call.mask),
            *(None if call.inp is None else call.inp.detach(), fixed),
            *(torch.ones_like(out), [torch.ones_like(f) for f in finals], texts, widths, every, "reference"),
        )
        torch.library.opcheck(torch.ops.rrnn.backward.default, args)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_without_graph_breaks(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Inductor keeps what it compiled on disk, where a change of the op would not be seen.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    call = make_call(*MIX, dtype=torch.float32)
    call.mask = torch.tensor(PADDING["inside"]).T

    def function(x: Tensor, inp: Tensor, params: list[Tensor], states: list[Tensor]) -> list[Tensor]:
        # Inductor gets the op alone: it then has no C++ to compile, which would take half a minute.
        x = x * 2 if backend == "aot_eager" else x
        out, finals = rational(x, params, states, call.programs, mask=call.mask, inp=inp)
        return [out, *finals]

    args = (call.x, call.inp, call.params, call.states)
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    expected, results = function(*args), compiled(*args)
    torch.testing.assert_close(results, expected)
    torch.testing.assert_close(gradients_of(call, results), gradients_of(call, expected))
    with torch.no_grad():
        torch.testing.assert_close(compiled(*args), expected)


class Module(torch.nn.Module):
    def __init__(self, call: Call) -> None:
        super().__init__()
        self.programs = call.programs
        self.params = torch.nn.ParameterList(call.params)

    def forward(self, x: Tensor, inp: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        return tuple(rational(x, list(self.params), states, self.programs, inp=inp))


@pytest.mark.slow
def test_export_with_dynamic_time_and_batch_reloads_elsewhere(tmp_path: Path) -> None:
    call = make_call(*MIX, steps=5, batch=2, dtype=torch.float32)
    module = Module(call)
    steps, batch = torch.export.Dim("steps"), torch.export.Dim("batch")
    shapes = {"x": {0: steps, 1: batch}, "inp": {0: steps, 1: batch}, "states": [{1: batch}] * 3}
    exported = torch.export.export(module, (call.x, call.inp, call.states), dynamic_shapes=shapes)
    # more steps than are saved once, and gradients: it was exported with gradients enabled
    other = make_call(*MIX, steps=2 * rrnn.ops.SAVE_EVERY + 3, batch=3, dtype=torch.float32, grad=False)
    expected = module(other.x, other.inp, other.states)
    out, states = exported.module()(other.x, other.inp, other.states)
    torch.testing.assert_close((out, states), expected)
    torch.testing.assert_close(
        torch.autograd.grad(out.sum(), list(exported.module().parameters()), allow_unused=True),
        torch.autograd.grad(expected[0].sum(), list(module.parameters())),
    )
    expected = torch.utils._pytree.tree_map(torch.Tensor.detach, expected)

    torch.export.save(exported, tmp_path / "module.pt2")
    torch.save((other.x, other.inp, other.states, expected), tmp_path / "data.pt")
    code = (
        "import sys, torch, rrnn.ops\n"
        "module = torch.export.load(sys.argv[1] + '/module.pt2').module()\n"
        "x, inp, states, expected = torch.load(sys.argv[1] + '/data.pt')\n"
        "torch.testing.assert_close(module(x, inp, states), expected)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_inference_saves_nothing() -> None:
    call = make_call("F", grad=False)
    texts = [p.text for p in call.programs]
    *_, saved = torch.ops.rrnn.forward(
        call.x, call.params, call.states, None, None, texts, [3], 0, "reference"
    )
    assert saved == []
    call = make_call("F", steps=5)
    for every, kept in ((1, 5), (2, 3), (16, 1)):
        *_, saved = torch.ops.rrnn.forward(
            call.x, call.params, call.states, None, None, texts, [3], every, "reference"
        )
        assert saved[0].numel() == kept * call.states[0].numel()
    assert rrnn.ops.SAVE_EVERY == 16


def test_training_a_graph_made_for_inference_is_refused() -> None:
    out, *_ = run_op(make_call("F"), 0)
    with pytest.raises(BackendError, match="kept no states for a backward pass"):
        out.sum().backward()


@pytest.mark.parametrize("constant", [True, False], ids=["sum", "squares"])
def test_second_gradients_of_kernels_are_refused(constant: bool) -> None:
    """Also where the incoming gradient is a constant, where torch's once_differentiable would give wrong numbers."""
    call = make_call("F")
    with use_backend("native"):
        out, *_ = run(call)
    loss = out.sum() if constant else out.square().sum()
    (gradient,) = torch.autograd.grad(loss, call.x, create_graph=True)
    with pytest.raises(BackendError, match=r'use_backend\("reference"\)'):
        torch.autograd.grad(gradient.sum(), call.x, allow_unused=True)


def test_transforms_of_torch_func_see_torch_ops_by_default() -> None:
    call = make_call("B", grad=False)
    with use_backend("auto"):
        tangent = torch.func.jvp(
            lambda x: rational(x, call.params, call.states, call.programs).output, (call.x,), (call.x,)
        )
    assert tangent[1].isfinite().all()
