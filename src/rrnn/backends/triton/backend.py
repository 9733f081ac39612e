"""The Triton backend: choose a schedule and sizes for a call, and launch the generated kernels."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from rrnn.backends.interface import (
    Backend,
    CellCall,
    Gradients,
    by_sequence,
    by_state,
    first_state,
    units_contiguous,
)
from rrnn.backends.triton import families, pairs
from rrnn.backends.triton.chained_chunks import words
from rrnn.backends.triton.module import Kernels, kernels_of
from rrnn.backends.triton.plan import H200, Gpu, Plan, plan_of
from rrnn.ir import Program, adjoint, reverse_scan_form, scan_form

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_HERE = contextlib.nullcontext()
ENOUGH = 1 << 30  # lanes that fill any GPU
MANY_ROWS = 64  # rows from which torch's reduction is quicker than the parameters' kernel


@cache
def installed() -> bool:
    """Return whether triton is installed. Every call of a layer asks, and a look-up takes a tenth of a millisecond."""
    return importlib.util.find_spec("triton") is not None


def has_kernels(device: torch.device) -> bool:
    """Return whether Triton's kernels run on this device; elsewhere torch ops stand in for them."""
    return device.type == "cuda" and installed()


@cache
def gpu_of(device: torch.device) -> Gpu:
    """Return the properties of a CUDA device; Triton's interpreter has an H200's."""
    return Gpu.of(torch.cuda.get_device_properties(device)) if device.type == "cuda" else H200


_plan = lru_cache(maxsize=1024)(plan_of)  # hashing its arguments is quicker than choosing again


def _schedule(call: CellCall, backward: bool) -> Plan:
    """Return the plan of a call. Packed sequences are walked serially, each by programs of its own: to cut them into
    chunks, the host would have to know their lengths."""
    steps, batch, device = call.x.shape[0], call.batch, call.x.device
    lanes = batch * call.units
    if call.sequences is not None:
        steps, lanes = steps // max(1, batch), ENOUGH
    return _plan(call.program, steps, lanes, call.x.element_size(), call.every, backward, gpu_of(device))


def _family_schedule(call: CellCall, backward: bool) -> Plan:
    """Return the plan of a call of a program of families."""
    sizes = call.x.shape[0], call.batch, call.units
    return families.plan_of(call.program, *sizes, call.sequences is not None, backward, gpu_of(call.x.device))


def _chain(keys: int, chunks: int, state: Tensor) -> list[Tensor]:
    """Return the words through which chained chunks communicate: queue of tickets, transitions, states of groups."""
    states, lanes = state.shape[0], state[0].numel()
    all_words = torch.full(
        (64 + words(chunks, keys, states) * lanes,), -1, dtype=torch.int32, device=state.device
    )
    return [all_words, all_words[64:], all_words[64 + chunks * keys * lanes :]]


def _strides(t: Tensor | None, dims: int = 2) -> tuple[int, ...]:
    """Return the strides of the first dimensions: time and batch, and projections. Zeros for None."""
    return (0,) * dims if t is None else t.stride()[:dims]


class Triton(Backend):
    """The backend that runs generated Triton kernels on CUDA devices."""

    name = "triton"

    def why_not(self, device: torch.device, dtype: torch.dtype, program: Program | None = None) -> str | None:
        if not installed():
            return "the triton package is not installed"
        if device.type != "cuda" and not (device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"):
            return f"it runs on CUDA devices, not on {device.type}"
        if dtype not in DTYPES:
            return f"it computes with float32, bfloat16 and float16, not {dtype}"
        return pairs.why_not(program) if program is not None and program.mixes else None

    def interval(self, x: Tensor, programs: Sequence[Program], widths: Sequence[int]) -> int | None:
        wide = [families.interval(program) for program in programs if program.wide is not None]
        return min(wide) if wide and len(wide) == len(programs) else None

    def gives_parameter_gradients(self, program: Program) -> bool:
        return program.wide is None

    def forward(
        self, call: CellCall, state: Tensor | None, out: Tensor, schedule: Plan | None = None
    ) -> tuple[Tensor, Tensor | None]:
        if call.program.mixes:
            with on_device(call.x.device):
                return pairs.forward(call, state, out)
        if call.program.wide is not None:
            with on_device(call.x.device):
                return families.forward(call, state, out, schedule or _family_schedule(call, False))
        program, x, params, mask, inp, every, _, packed = call
        steps, batch, units = x.shape[0], call.batch, call.units
        how = schedule or _schedule(call, False)
        launch = kernels_of(program, how.unroll, every, how.stages, packed is not None)
        shape = (len(program.flat.states), batch, units)
        x, params = units_contiguous(x), params.contiguous()
        inp = None if inp is None else units_contiguous(inp)
        final = x.new_empty(shape, dtype=torch.float32)
        saved = call.new_saved(final, shape[0])
        if not (steps and batch and units):  # x is also empty where nothing is projected
            return final.copy_(first_state(program, batch, units, params) if state is None else state), saved
        state, table, final = _own_states(state, final, packed)
        chunk, chunks = how.cut(steps, every, bool(program.states))
        grid = (-(-units // how.block), batch, chunks)
        sizes = (steps, batch, units, chunk) if packed is None else (units,)
        read, masked = (*_strides(x, 3), *_strides(mask), *_strides(inp)), mask is not None
        bits, there = x if mask is None else mask.view(torch.uint8), x if inp is None else inp
        written, numbers = (final if saved is None else saved), (*read, *_strides(out), *sizes)
        keys = len(scan_form(program).carried) * program.semiring.size if chunks > 1 else 0
        with on_device(x.device):
            if chunks > 1 and how.chained:
                tensors = (x, params, state, bits, there, out, final, written, *_chain(keys, chunks, final))
                launch("chained", (math.prod(grid), 1, 1), tensors, (*numbers, chunks), how, masked)
                return final, saved
            starts = state
            if chunks > 1:
                entries = final.new_empty((chunks, keys, batch, units))
                starts = final.new_empty((chunks, *shape))
                launch("summary", grid, (x, params, bits, there, entries), (*read, *sizes), how, masked)
                joined = (*grid[:2], 1), (state, entries, starts, final), (batch, units, chunks, 1)
                launch("join", *joined, how)
            tensors = (x, params, starts, bits, there, out, final, written, *table)
            launch("forward", grid, tensors, numbers, how, masked)
        return by_state(final, packed), saved

    def backward(
        self, call: CellCall, saved: Tensor, grads: Gradients, schedule: Plan | None = None
    ) -> tuple[Tensor, Tensor | None]:
        if call.program.mixes:
            with on_device(call.x.device):
                return pairs.backward(call, saved, grads)
        if call.program.wide is not None:
            with on_device(call.x.device):
                return families.backward(call, saved, grads, schedule or _family_schedule(call, True))
        program, x, params, mask, inp, every, _, packed = call
        grad_out, grad_state, grad_x, grad_inp, wants_first, _ = grads
        steps, batch, units = x.shape[0], call.batch, call.units
        how = schedule or _schedule(call, True)
        launch = kernels_of(program, how.unroll, every, how.stages, packed is not None)
        shape = (len(program.flat.states), batch, units)
        x, params, saved = units_contiguous(x), params.contiguous(), saved.contiguous()
        go = units_contiguous(grad_out)
        inp = None if inp is None else units_contiguous(inp)
        first = saved.new_empty(shape) if wants_first else None
        if not (steps and batch and units):
            grad_x.zero_()
            if first is not None:
                first = first.zero_() if grad_state is None else first.copy_(grad_state)
            return torch.zeros_like(params), first
        grad_state, table, first = _own_states(grad_state, first, packed)
        chunk, chunks = how.cut(steps, every, bool(program.states))
        sums = len(adjoint(program).units)
        partial = saved.new_empty((chunks, sums, batch, units) if packed is None else (batch, sums, 1, units))
        grid = (-(-units // how.block), batch, chunks)
        sizes = (steps, batch, units, chunk) if packed is None else (units,)
        bits, there = x if mask is None else mask.view(torch.uint8), x if inp is None else inp
        strides, masked = (*_strides(x, 3), *_strides(mask), *_strides(inp), *_strides(go)), mask is not None
        read, written = (x, params, bits, there, saved, go), (grad_x, x if grad_inp is None else grad_inp)
        numbers = (*strides, *_strides(grad_x, 3), *_strides(grad_inp), *sizes)
        keys = len(reverse_scan_form(program).carried) + shape[0] if chunks > 1 else 0
        with on_device(x.device):
            if chunks > 1 and how.chained:
                line = _chain(keys, chunks, saved[0])
                tensors = (*read, grad_state, *written, first, partial, *line)
                launch("reverse_chained", (math.prod(grid), 1, 1), tensors, (*numbers, chunks), how, masked)
                return _parameters(launch, partial, params, how), first
            ends = grad_state
            if chunks > 1:
                entries = saved.new_empty((chunks, keys, batch, units))
                ends = saved.new_empty((chunks, *shape))
                launch("reverse_summary", grid, (*read, entries), (*strides, *sizes), how, masked)
                joined = (*grid[:2], 1), (grad_state, entries, ends, first), (batch, units, chunks, -1)
                launch("reverse_join", *joined, how)
            launch("backward", grid, (*read, ends, *written, first, partial, *table), numbers, how, masked)
            return _parameters(launch, partial, params, how), None if first is None else by_state(
                first, packed
            )


def _own_states(
    given: Tensor | None, made: Tensor | None, packed: Tensor | None
) -> tuple[Tensor | None, tuple[Tensor, ...], Any]:
    """Return the states that a kernel reads, its table of packed sequences, and the (still empty) ones that it writes.
    States of packed sequences lie one sequence after another."""
    given = None if given is None else by_sequence(given, packed)
    if packed is None:
        return given, (), made
    return given, (packed,), None if made is None else made.view(made.shape[1], made.shape[0], made.shape[2])


def _parameters(launch: Kernels, partial: Tensor, params: Tensor, how: Plan) -> Tensor:
    """Return the gradients of parameters from the sums per chunk and sequence."""
    chunks, _, batch, units = partial.shape
    grad = torch.empty_like(params)
    if not grad.numel():
        return grad
    if chunks > 1 or batch > MANY_ROWS:
        partial, batch = partial.sum((0, 2)), 1
    launch("parameters", (-(-units // how.block), 1, 1), (partial, params, grad), (batch, units), how)
    return grad


def on_device(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Return a context in which Triton launches on this device; by itself it uses the current one."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return _HERE
    return torch.cuda.device(device)
