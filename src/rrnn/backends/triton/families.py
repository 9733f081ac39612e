"""Launch the Triton kernels of programs of families."""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from rrnn.backends.interface import CellCall, Gradients, by_sequence, by_state, first_state
from rrnn.backends.native.family_loops import Addresses
from rrnn.backends.triton.family_chunks import FamilyChunks
from rrnn.backends.triton.family_kernels import MATH, FamilyKernels
from rrnn.backends.triton.family_loop import KEPT, TURN
from rrnn.backends.triton.family_text import padded
from rrnn.backends.triton.kernel_text import HEAD
from rrnn.backends.triton.module import imported
from rrnn.backends.triton.plan import MIN_CHUNK, Gpu, Plan
from rrnn.backends.triton.semiring_folds import fold_functions
from rrnn.ir import Program, adjoint, has_scan_form

TILE = 512
"""How many numbers of all families a warp has at most: 16 a thread."""
STAGES = {False: 3, True: 2}
"""Stages of the pipeline forwards, and backwards."""
FEW = {False: 0.5, True: 1.0}
"""Warps for each of a multiprocessor's four schedulers up to which time is cut into chunks, forwards and backwards."""
FILL = {False: 2, True: 4}
"""Warps for each scheduler to aim for then."""


def render(program: Program, every: int, packed: bool = False) -> str:
    """Return the source of a module with the kernels of a program; without `every`, none of the gradient."""
    kernels = FamilyKernels(program, every, packed)
    about = f'"""{program.name}, generated: families of states, saved every {every} steps."""\n\n'
    parts = [about, HEAD, MATH, fold_functions(kernels.program), kernels.forward()]
    parts += [kernels.backward()] if every else []
    if not packed and has_scan_form(program):
        chunks = FamilyChunks(program, every)
        parts += [chunks.summary(), chunks.join()]
        parts += [chunks.reverse_summary(), chunks.reverse_join()] if every else []
    return "".join(parts)


@lru_cache(maxsize=256)
def _module(program: Program, every: int, packed: bool) -> ModuleType:
    return imported(render(program, every, packed))


def interval(program: Program) -> int:
    """Return the interval at which states are saved: as many steps as the backward kernel keeps."""
    return KEPT


@lru_cache(maxsize=1024)
def plan_of(
    program: Program, steps: int, batch: int, units: int, packed: bool, backward: bool, gpu: Gpu
) -> Plan:
    """Return how a program runs: in Triton programs of one warp, with a tile of up to TILE numbers. A single warp keeps
    its scheduler waiting most of the time; where there are few, time is cut into chunks, although every step is then
    computed about twice."""
    wide = program.flat.wide
    assert wide is not None
    numbers = sum(padded(wide.sizes[e.over[0]][1]) for e in wide.states if e.over)
    block = max(1, min(padded(max(1, units // wide.heads)), TILE // max(1, numbers), 32))
    warps, schedulers = wide.heads * -(-(units // wide.heads) // block) * batch, 4 * gpu.multiprocessors
    chunks = 1
    if not packed and warps <= FEW[backward] * schedulers and has_scan_form(program):
        chunks = max(1, min(steps // MIN_CHUNK, FILL[backward] * schedulers // max(1, warps)))
    return Plan(block, 1, TURN, -(-steps // chunks) if chunks > 1 else 0, STAGES[backward])


def _rows(x: Tensor) -> Tensor:
    """Return a tensor with its last axis side by side, as kernels read it."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _strides(t: Tensor | None) -> tuple[int, int]:
    return (0, 0) if t is None else (t.stride(0), t.stride(1))


class _Launch:
    """What all launches of a call share: what kernels read, their numbers and constants."""

    def __init__(self, call: CellCall, how: Plan) -> None:
        self.call, self.how, self.program = call, how, call.program
        wide = call.program.wide
        assert wide is not None
        self.module = _module(call.program, call.every, call.sequences is not None)
        self.table = Addresses(wide, wide.projections)
        x, inp, mask = _rows(call.x), None if call.inp is None else _rows(call.inp), call.mask
        # Each thread reads all that units share: a conversion there takes a tenth of the recurrence's instructions, and
        # steps that lie side by side need no addresses of their own.
        few = call.x[..., self.table.rows * call.units :].transpose(0, 1)
        shared = torch.empty(few.shape, dtype=torch.float32, device=x.device).copy_(few)
        self.x, self.params = (x, shared), call.params.contiguous()
        self.other = x if mask is None else mask.view(torch.uint8), x if inp is None else inp
        self.strides = (*_strides(x), *_strides(mask), *_strides(inp))
        chunk, self.chunks = how.cut(x.shape[0], call.every, True)
        self.sizes = (*x.shape[:2], call.units, chunk, 0)
        self.blocks = -(-(call.units // wide.heads) // how.block)
        self.programs = wide.heads * self.blocks, call.batch
        full = call.units // wide.heads % how.block == 0
        self.constants: dict[str, Any] = how.options(MASKED=mask is not None) | {
            "FULL": full,
            "STAGES": how.stages,
        }

    def __call__(self, name: str, tensors: tuple[Tensor, ...], numbers: tuple[int, ...], **more: Any) -> None:
        """Launch a kernel of all chunks, or of all but one, whose summary nobody needs."""
        packed = () if self.call.sequences is None else (self.call.sequences,)
        chunks = self.chunks - name.endswith("summary")
        kernel = getattr(self.module, name)[(*self.programs, chunks)]
        kernel(*tensors, *packed, *numbers, *self.sizes, **self.constants, **more)

    def join(self, name: str, first: Tensor, entries: Tensor) -> Tensor:
        """Return the states before each chunk, or the gradients behind it."""
        starts = first.new_empty(self.chunks, *first.shape)
        steps, columns, units, _, zero = self.sizes
        how = self.how.options(MASKED=None) | {"STAGES": self.how.stages}
        numbers = (steps, columns, units, self.chunks, zero)
        getattr(self.module, name)[(*self.programs, 1)](first, entries, starts, *numbers, **how)
        return starts

    def entries(self, rows: int) -> Tensor:
        """Return room for what chunks carry."""
        shape = self.chunks, rows, self.call.batch, self.call.units
        return self.params.new_empty(shape, dtype=torch.float32)


def forward(call: CellCall, state: Tensor | None, out: Tensor, how: Plan) -> tuple[Tensor, Tensor | None]:
    """Run a program of families on Triton, as `Backend.forward` describes it."""
    program, packed = call.program, call.sequences
    state = first_state(program, call.batch, call.units, call.params) if state is None else state.float()
    saved = call.new_saved(state, state.shape[0])
    if not (call.x.shape[0] and call.batch and call.units):
        return state.clone(), saved
    launch = _Launch(call, how)
    state = by_sequence(state, packed)
    final = torch.empty_like(state)
    target = out if out.stride(-1) == 1 else torch.empty_like(out, memory_format=torch.contiguous_format)
    if launch.chunks > 1:
        entries = launch.entries(FamilyChunks(program, call.every).entries.rows)
        launch("summary", (*launch.x, launch.params, *launch.other, entries), launch.strides)
        state = launch.join("join", state, entries)
    mask, inp = launch.other
    written = (target, final, final if saved is None else saved)
    tensors = (*launch.x, launch.params, state, mask, inp, *written)
    launch("forward", tensors, (*launch.strides, *_strides(target)))
    if target is not out:
        out.copy_(target)
    return by_state(final, packed), saved


def backward(call: CellCall, saved: Tensor, grads: Gradients, how: Plan) -> tuple[Tensor, Tensor | None]:
    """Run the gradient of a program of families, as `Backend.backward` describes it; per-unit values get gradients."""
    program, packed, units = call.program, call.sequences, call.units
    wide = program.wide
    assert wide is not None
    steps, columns = call.x.shape[:2]
    saved, go = saved.contiguous(), _rows(grads.out)
    shape = (program.flat.state_count, call.batch, units)
    gfinal = saved.new_zeros(shape) if grads.state is None else grads.state.float()
    rows = adjoint(program).unit_rows
    if not (steps and call.batch and units):
        grads.x.zero_()
        return saved.new_zeros(rows, units), gfinal.clone() if grads.wants_first else None
    launch = _Launch(call, how)
    gfinal = by_sequence(gfinal, packed)
    first = torch.empty_like(gfinal)
    read = (*launch.x, launch.params, *launch.other, saved, go)
    strides = (*launch.strides, *_strides(go))
    if launch.chunks > 1:
        entries = launch.entries(FamilyChunks(program, call.every).derivatives.rows)
        launch("reverse_summary", (*read, entries), strides)
        gfinal = launch.join("reverse_join", gfinal, entries)
    grouped = any(e.per == "group" for e in wide.projections)
    slots = launch.blocks * (wide.heads // wide.groups if grouped else 1)
    # What heads share is summed in the first slots alone, and packed sequences may leave steps out.
    new = saved.new_zeros if grouped or packed is not None else saved.new_empty
    shared = new(slots, columns, steps, launch.table.shared)
    sums = saved.new_empty(launch.chunks * call.batch, rows, units)
    into = (
        grads.x
        if grads.x.stride(-1) == 1
        else torch.empty_like(grads.x, memory_format=torch.contiguous_format)
    )
    into_inp = None if grads.inp is None else _rows(grads.inp)
    written = (into, into if into_inp is None else into_inp, first, sums, shared)
    # A tensor core's 10 bits are enough for sums that are rounded to 16-bit numbers.
    exact = call.x.dtype == torch.float32
    numbers = (*strides, *_strides(into), *_strides(into_inp))
    launch("backward", (*read, gfinal, *written), numbers, EXACT=exact)
    if launch.table.shared:
        into[..., launch.table.rows * units :] = shared.sum(0).transpose(0, 1)
    if into is not grads.x:
        grads.x.copy_(into)
    if into_inp is not None and grads.inp is not None and into_inp is not grads.inp:
        grads.inp.copy_(into_inp)
    return sums.sum(0), by_state(first, packed) if grads.wants_first else None
