"""Generated Triton behind the common interface: which schedule, which sizes, and the launches."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from functools import cache, lru_cache
from types import ModuleType

import torch
from torch import Tensor

from rrnn.backends.base import Backend, rows
from rrnn.backends.cache import cached
from rrnn.backends.triton.chain import words
from rrnn.backends.triton.plan import Plan, plan, takes_logarithms
from rrnn.backends.triton.render import render
from rrnn.ir import Program, adjoint, reverse_scan_form, scan_form

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MANY = 64  # rows from which torch's reduction is quicker than the parameters' kernel


@cache
def installed() -> bool:
    """Asked at every call of a layer, and looking it up takes a tenth of a millisecond."""
    return importlib.util.find_spec("triton") is not None


@lru_cache(maxsize=1024)
def _plan(program: Program, steps: int, lanes: int, size: int, backward: bool) -> Plan:
    logs = takes_logarithms(program)
    return plan(steps, lanes, size, len(program.instructions), backward=backward, logs=logs)


@lru_cache(maxsize=512)
def _module(program: Program, unroll: int, every: int, stages: int) -> ModuleType:
    """The generated module, from a content-hashed file (Triton reads its source)."""
    source = render(program, unroll, every, stages)
    path = cached(source, ".py", source.encode)
    spec = importlib.util.spec_from_file_location(f"rrnn_generated_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _chain(keys: int, chunks: int, state: Tensor) -> list[Tensor]:
    """The words through which chained chunks speak: the queue of tickets, transitions, states of groups."""
    states, lanes = state.shape[0], state[0].numel()
    all_words = torch.full(
        (64 + words(chunks, keys, states) * lanes,), -1, dtype=torch.int32, device=state.device
    )
    return [all_words, all_words[64:], all_words[64 + chunks * keys * lanes :]]


def _strides(t: Tensor | None, *dims: int) -> list[int]:
    return [0] * len(dims) if t is None else [t.stride(d) for d in dims]


class Triton(Backend):
    name = "triton"
    gives_parameter_gradients = True

    def why_not(self, device: torch.device, dtype: torch.dtype, program: Program | None = None) -> str | None:
        if not installed():
            return "the triton package is not installed"
        if device.type != "cuda" and not (device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"):
            return f"it runs on CUDA devices, not on {device.type}"
        if dtype not in DTYPES:
            return f"it computes with float32, bfloat16 and float16, not {dtype}"
        return None

    def forward(
        self,
        program: Program,
        x: Tensor,
        params: Tensor,
        state: Tensor,
        mask: Tensor | None,
        inp: Tensor | None,
        every: int,
        out: Tensor,
        schedule: Plan | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        steps, batch, _, units = x.shape
        how = schedule or _plan(program, steps, batch * units, x.element_size(), False)
        kernels = _module(program, how.unroll, every, how.stages)
        x, params, state = rows(x), params.contiguous(), state.contiguous()
        inp = None if inp is None else rows(inp.to(x.dtype))
        final = torch.empty_like(state)
        saved = state.new_empty((steps + every - 1) // every, *state.shape) if every else None
        if not x.numel() or not steps:
            final.copy_(state)
            return final, saved
        chunk, chunks = how.cut(steps, every, bool(program.states))
        grid = (-(-units // how.block), batch, chunks)
        common, sizes = how.options(MASKED=mask is not None), (steps, batch, units, chunk)
        strides = [*_strides(x, 0, 1, 2), *_strides(mask, 0, 1), *_strides(inp, 0, 1)]
        bits, there = x if mask is None else mask.view(torch.uint8), x if inp is None else inp
        kept, last = final if saved is None else saved, (*strides, *_strides(out, 0, 1), *sizes)
        keys = len(scan_form(program).carried) if chunks > 1 else 0
        with on_device(x.device):
            if chunks > 1 and how.chained:
                line, many = _chain(keys, chunks, state), grid[0] * batch * chunks
                kernels.chained[(many,)](
                    x, params, state, bits, there, out, final, kept, *last, chunks, *line, **common
                )
                return final, saved
            starts = state
            if chunks > 1:
                entries = state.new_empty(chunks, keys, batch, units)
                starts = state.new_empty(chunks, *state.shape)
                kernels.summary[grid](x, params, bits, there, entries, *strides, *sizes, **common)
                joins = how.options(MASKED=None)
                kernels.join[grid[:2]](state, entries, starts, final, batch, units, chunks, 1, **joins)
            kernels.forward[grid](x, params, starts, bits, there, out, final, kept, *last, **common)
        return final, saved

    def backward(
        self,
        program: Program,
        x: Tensor,
        params: Tensor,
        mask: Tensor | None,
        inp: Tensor | None,
        every: int,
        saved: Tensor,
        grad_out: Tensor,
        grad_state: Tensor | None,
        grad_x: Tensor,
        grad_inp: Tensor | None,
        schedule: Plan | None = None,
    ) -> tuple[Tensor, Tensor]:
        steps, batch, _, units = x.shape
        how = schedule or _plan(program, steps, batch * units, x.element_size(), True)
        kernels = _module(program, how.unroll, every, how.stages)
        x, params, saved, go = rows(x), params.contiguous(), saved.contiguous(), rows(grad_out.to(x.dtype))
        inp = None if inp is None else rows(inp.to(x.dtype))
        grad_state = saved.new_zeros(saved.shape[1:]) if grad_state is None else grad_state.contiguous()
        first = torch.empty_like(grad_state)
        sums = len(adjoint(program).units)
        if not x.numel():
            grad_x.zero_()
            return torch.zeros_like(params), first.copy_(grad_state)
        chunk, chunks = how.cut(steps, every, bool(program.states))
        partial = first.new_empty(chunks, sums, batch, units)
        grid = (-(-units // how.block), batch, chunks)
        common, sizes = how.options(MASKED=mask is not None), (steps, batch, units, chunk)
        bits, there = x if mask is None else mask.view(torch.uint8), x if inp is None else inp
        strides = [*_strides(x, 0, 1, 2), *_strides(mask, 0, 1), *_strides(inp, 0, 1), *_strides(go, 0, 1)]
        read, written = (x, params, bits, there, saved, go), (grad_x, x if grad_inp is None else grad_inp)
        last = (*strides, *_strides(grad_x, 0, 1, 2), *_strides(grad_inp, 0, 1), *sizes)
        keys = len(reverse_scan_form(program).carried) + len(program.states) if chunks > 1 else 0
        with on_device(x.device):
            if chunks > 1 and how.chained:
                line, many = _chain(keys, chunks, first), grid[0] * batch * chunks
                kernels.reverse_chained[(many,)](
                    *read, grad_state, *written, first, partial, *last, chunks, *line, **common
                )
                return self._parameters(kernels, partial, params, how), first
            ends = grad_state
            if chunks > 1:
                entries = first.new_empty(chunks, keys, batch, units)
                ends = first.new_empty(chunks, *grad_state.shape)
                kernels.reverse_summary[grid](*read, entries, *strides, *sizes, **common)
                joins = how.options(MASKED=None)
                kernels.reverse_join[grid[:2]](
                    grad_state, entries, ends, first, batch, units, chunks, -1, **joins
                )
            kernels.backward[grid](*read, ends, *written, first, partial, *last, **common)
            return self._parameters(kernels, partial, params, how), first

    def _parameters(self, kernels: ModuleType, partial: Tensor, params: Tensor, how: Plan) -> Tensor:
        """Sums per chunk and sequence to gradients of parameters."""
        chunks, _, batch, units = partial.shape
        grad = torch.empty_like(params)
        if not grad.numel():
            return grad
        if chunks > 1 or batch > MANY:
            partial, batch = partial.sum((0, 2)), 1
        kernels.parameters[(-(-units // how.block),)](
            partial, params, grad, batch, units, **how.options(MASKED=None)
        )
        return grad


def on_device(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Triton launches on the current device, wherever the tensors are."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
