"""Compare kernels with the definition: which cases to run, how to run them, and how far results may differ."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
from cell_calls import GRADIENT_SEMIRINGS, cell, random_cell
from torch import Tensor

from rrnn.automata import Cell, linear, log_sigmoid, one, parameter, score, sigmoid, tanh
from rrnn.backends import Backend, get_backend
from rrnn.backends.interface import CellCall, Gradients
from rrnn.backends.layer_call import epilogue
from rrnn.ir import Program, lower
from rrnn.ops import initial_state

NAN = float("nan")

needs_interpreter = pytest.mark.skipif(
    find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") != "1",
    reason="needs triton and, before it is imported, TRITON_INTERPRET=1",
)


class Schedule(NamedTuple):
    """How a kernel walks through time: the steps unrolled per turn, the steps of a chunk (0: no chunks), the steps
    between saved states, the stages of the pipeline of loads, and whether chunks are chained in one launch."""

    unroll: int
    chunk: int
    every: int
    stages: int = 0
    chained: bool = False

    def plan(self, block: int) -> Any:
        from rrnn.backends.triton.plan import Plan

        return Plan(block, 1, self.unroll, self.chunk, self.stages, self.chained)


@dataclass(frozen=True)
class Case:
    """One case of the matrix: a cell and everything that changes its kernel."""

    cell: str
    dtype: str
    shape: tuple[int, int, int]  # (T, B, D)
    mask: str  # "whole", "padded" (with NaN in the padding), or "dead": a sequence that is all padding
    schedule: Schedule
    start: str  # "initial": λ; "given": random; "own": none is passed, states have no gradient, params have x's dtype
    layout: (
        str  # "dense"; "strided": slices of wider tensors, batch first; "columns": units are not contiguous
    )
    device: str = "cpu"
    block: int = 16

    def __str__(self) -> str:
        how = "-".join(map(str, self.schedule))
        size = "x".join(map(str, self.shape))
        words = self.device, self.cell, self.dtype, size, self.mask, how, self.start, self.layout
        return "_".join(words)


# ---- cells ---------------------------------------------------------------------------------------------------------


def unfused() -> Cell:
    """Return c = f·c' + u with the weights given: the bare recurrence."""
    cell = Cell("unfused").initial("q0").loop("q0", one).arc("q0", "q1", linear("u")).loop("q1", linear("f"))
    return cell.final("q1").output(score)


def log_b() -> Cell:
    cell = Cell("B_log", "log").initial("q0").loop("q0", one).arc("q0", "q1", linear("u"))
    return cell.loop("q1", log_sigmoid(linear("f", bias=True))).final("q1").output(tanh(score))


def memoryless() -> Cell:
    """Return a cell without a stored state."""
    cell = Cell("memoryless").initial("q0").loop("q0", one).final("q0", sigmoid(parameter("r")))
    return cell.output(tanh(score) * sigmoid(linear("o")))


def idle() -> Cell:
    """Return a cell with a state that is initial and final but has no arcs: it counts only before the first symbol."""
    cell = Cell("idle").initial("q0").initial("q2", 0.5).loop("q0", one).arc("q0", "q1", linear("u"))
    return cell.final("q1").final("q2").output(tanh(score))


OWN = {"unfused": unfused, "log-B": log_b, "memoryless": memoryless, "idle": idle} | {
    f"small-{semiring}": partial(random_cell, semiring, 1, states=3, density=0.2)
    for semiring in GRADIENT_SEMIRINGS
}
"""Cells besides those of the zoo. Random cells have three states, since Triton's interpreter takes seconds for more."""


@cache
def program_of(name: str) -> Program:
    return lower(OWN[name]() if name in OWN else cell(name)).program


# ---- arguments -----------------------------------------------------------------------------------------------------


@dataclass
class Arguments:
    """The arguments of a backend's forward and backward passes."""

    program: Program
    x: Tensor
    params: Tensor
    state: Tensor | None
    mask: Tensor | None
    inp: Tensor | None
    grad_out: Tensor
    grad_state: Tensor | None
    wants_first: bool = True

    def to(self, device: str, dtype: torch.dtype | None = None) -> Arguments:
        """Return the same arguments on another device, floating-point tensors converted to `dtype`."""
        moved = {
            name: t.to(device) if dtype is None or t.dtype == torch.bool else t.to(device, dtype)
            for name, t in vars(self).items()
            if isinstance(t, Tensor)
        }
        return Arguments(**{**vars(self), **moved})


def arguments(case: Case, seed: int = 0) -> Arguments:
    """Return random arguments, the same on every device, in the case's dtype but contiguous."""
    program, dtype = program_of(case.cell), getattr(torch, case.dtype)
    (steps, batch, units), g = case.shape, torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=g)

    x = draw(steps, batch, len(program.projections), units)
    if case.cell == "unfused":
        x = x.sigmoid()  # weights below one, so that the recurrence does not explode
    params, state = draw(len(program.parameters), units), draw(len(program.flat.states), batch, units)
    if program.semiring_name == "max-times":
        state = state.abs()
    if program.semiring_name == "signed-log":
        state[::2] = 1.0
    if case.start != "given":
        state = initial_state(program, params, batch)
    own = case.start == "own" and None not in program.flat.first_states
    inp = draw(steps, batch, units) if program.uses_input else None
    mask = None
    if case.mask != "whole":
        mask = torch.rand(steps, batch, generator=g) < 0.6
        if case.mask == "dead":
            mask[:, 0] = False
        x[~mask] = NAN
        if inp is not None:
            inp[~mask] = NAN
    grad_out = draw(steps, batch, program.output_count * units)
    return Arguments(
        program,
        x.to(dtype),
        params.to(dtype) if own else params,
        None if own else state,
        mask,
        None if inp is None else inp.to(dtype),
        grad_out.to(dtype),
        None if own else draw(*state.shape),
        not own,
    )


def lay_out(t: Tensor, layout: str) -> Tensor:
    """Return the same numbers with other strides."""
    if layout == "dense":
        return t
    if layout == "columns":
        return t.transpose(0, -1).contiguous().transpose(0, -1)
    return _wide(t.transpose(0, 1)).copy_(t.transpose(0, 1)).transpose(0, 1)


def _wide(t: Tensor) -> Tensor:
    """Return a view of the shape of t inside a larger tensor of NaNs."""
    whole = t.new_full((*t.shape[:-1], t.shape[-1] + 5), NAN)
    return whole[..., 2:-3]


# ---- running -------------------------------------------------------------------------------------------------------

Results = dict[str, Tensor]


def run(backend: Backend, a: Arguments, every: int, *, layout: str = "dense", **options: Any) -> Results:
    """Run forward and backward into tensors full of NaN, and check that nothing outside them is written."""
    strided = layout != "dense"
    x, inp, grad_out = (None if t is None else lay_out(t, layout) for t in (a.x, a.inp, a.grad_out))
    mask = None if a.mask is None else lay_out(a.mask.float(), layout).to(torch.bool) if strided else a.mask
    assert x is not None and grad_out is not None

    def target(t: Tensor) -> Tensor:
        return _wide(t) if strided else torch.full_like(t, NAN)

    out, grad_x = target(a.grad_out), target(a.x)
    grad_inp = None if a.inp is None else target(a.inp)
    call = CellCall(a.program, x, a.params, mask, inp, every)
    final, saved = backend.forward(call, a.state, out, **options)
    assert saved is not None
    grads = Gradients(grad_out, a.grad_state, grad_x, grad_inp, a.wants_first)
    grad_params, first = backend.backward(call, saved, grads, **options)
    if strided:
        for t in (out, grad_x, *([] if grad_inp is None else [grad_inp])):
            assert t._base is not None
            around = torch.cat([t._base[..., :2], t._base[..., -3:]], -1)
            assert around.isnan().all(), "a kernel wrote outside the view that it was given"
    if not backend.gives_parameter_gradients(a.program):
        grad_params = epilogue(a.program, a.params, grad_params, call.units)
    found = {"output": out, "final state": final, "dx": grad_x, "dparams": grad_params}
    more = {"dstate": first, "dinput": grad_inp}
    return found | {name: t for name, t in more.items() if t is not None}


def expected(a: Arguments) -> Results:
    """Return the results of the reference, in float64 on the CPU."""
    return run(get_backend("reference"), a.to("cpu", torch.float64), 1)


@contextmanager
def poisoned() -> Iterator[None]:
    """Fill memory that is allocated without a value with NaN, so that an entry that no kernel writes is seen."""

    def fill(make: Any) -> Any:
        def made(*args: Any, **options: Any) -> Tensor:
            t = make(*args, **options)
            return t.fill_(NAN) if t.is_floating_point() else t

        return made

    with (
        mock.patch.object(torch, "empty", fill(torch.empty)),
        mock.patch.object(torch, "empty_like", fill(torch.empty_like)),
        mock.patch.object(torch.Tensor, "new_empty", fill(torch.Tensor.new_empty)),
    ):
        yield


# ---- comparing -----------------------------------------------------------------------------------------------------

# Kernels compute in float32 whatever the dtype of the inputs, and the reference gets the same rounded inputs. Only
# results in the inputs' dtype are rounded again, by half an ulp at most.
TOLERANCE = {torch.float32: 2e-5, torch.float16: 6e-4, torch.bfloat16: 4e-3}
INTERPRETED = {torch.bfloat16: 8e-3}  # Triton's interpreter truncates to bfloat16 instead of rounding


def tolerance(t: Tensor) -> float:
    return TOLERANCE[t.dtype] if t.is_cuda else INTERPRETED.get(t.dtype, TOLERANCE[t.dtype])


def relative_rms(ours: Tensor, theirs: Tensor) -> float:
    """Return the RMS of the difference divided by the RMS of `theirs`; infinity if infinities or NaNs differ."""
    ours, theirs = ours.detach().double().cpu(), theirs.detach().double().cpu()
    finite = theirs.isfinite()
    if ours.shape != theirs.shape or not torch.equal(ours[~finite], theirs[~finite]):
        return float("inf")
    if not finite.any():
        return 0.0
    difference, size = (ours[finite] - theirs[finite]).norm(), theirs[finite].norm()
    return (difference / size.clamp_min(1e-30)).nan_to_num(torch.inf).item()


def compare(ours: Results, theirs: Results, looser: float = 1.0) -> None:
    assert ours.keys() == theirs.keys()
    far = {
        name: error
        for name, t in ours.items()
        if (error := relative_rms(t, theirs[name])) > looser * tolerance(t)
    }
    assert not far, f"relative RMS against the reference: {far}"


def schedule_options(case: Case) -> dict[str, Any]:
    """Return options of the Triton backend that fix the case's schedule."""
    return {"schedule": case.schedule.plan(case.block)}


def run_triton(case: Case, a: Arguments) -> Results:
    moved = a.to(case.device)
    options = schedule_options(case)
    return run(get_backend("triton"), moved, case.schedule.every, layout=case.layout, **options)


def check(case: Case) -> None:
    """Compare one case of the Triton backend with the definition."""
    given = arguments(case)
    with poisoned():
        ours = run_triton(case, given)
    compare(ours, expected(given))
