"""The affine backend: programs in which one matrix takes the states of a head to the next step, for all its units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rrnn.backends.affine.parts import form_of, of_rows, reads_own
from rrnn.backends.affine.scan import IDENTITY, gradients, scan
from rrnn.backends.interface import Backend, CellCall, Gradients, compute_dtype, first_state
from rrnn.ir import Program

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
TILE = 128
"""Up to this many states, generated Triton kernels run all steps in one launch."""


class _Recurrence(NamedTuple):
    """The recurrence of a call, with heads as further sequences: symbols (T, B·heads), matrices, u (T, B·heads, n)."""

    symbols: Tensor
    matrices: Tensor
    u: Tensor
    read: Tensor  # (n, units)


class Affine(Backend):
    """The backend that runs affine programs: in C on the CPU, with torch's products elsewhere."""

    name = "affine"
    packs = False
    shares_states = True

    def why_not(self, device: torch.device, dtype: torch.dtype, program: Program | None = None) -> str | None:
        if dtype not in DTYPES:
            return f"it computes with floating-point numbers, not {dtype}"
        if program is None or program.shares_states:
            return None
        return "its units share no states, as those of an affine family do with as many states as units of a head"

    def pays(self, device: torch.device, dtype: torch.dtype, program: Program, steps: int | None) -> bool:
        return device.type == "cpu" or dtype == torch.float64 or form_of(program).size > TILE

    def gives_parameter_gradients(self, program: Program) -> bool:
        return True

    def interval(self, x: Tensor, programs: Sequence[Program], widths: Sequence[int]) -> int | None:
        return 1  # the states of all steps are the output

    def forward(self, call: CellCall, state: Tensor | None, out: Tensor) -> tuple[Tensor, Tensor | None]:
        dtype = compute_dtype(call.x.dtype)
        if state is None:
            state = first_state(call.program, call.batch, call.units, call.params, dtype)
        if call.sequences is not None:
            return self.forward_one_by_one(call, state, out)
        with torch.no_grad():
            how = _recurrence(call, call.x.to(dtype), call.params.to(dtype))
            states = self._states(call, how, state)
            found = _read(call, how.read, states)
            out.copy_(found if call.mask is None else torch.where(call.mask.unsqueeze(-1), found, 0.0))
            before = torch.cat([state, states])  # (T + 1, B, D)
            saved = before[: -1 : call.every].unsqueeze(1).contiguous() if call.every else None
            return before[-1:].clone(), saved

    def _states(self, call: CellCall, how: _Recurrence, state: Tensor) -> Tensor:
        """Return the states after each step, (T, B, D)."""
        first = state.reshape(-1, how.u.shape[-1])
        states = scan(how.symbols, how.matrices.mT, how.u, first, False, "auto")
        return states.view(*call.x.shape[:2], call.units)

    def _states_again(self, call: CellCall, how: _Recurrence, saved: Tensor) -> Tensor:
        """Return the states after each step, from those that were saved."""
        if call.every > 1:
            return self._states(call, how, saved[0])
        last = call._replace(x=call.x[-1:])  # those before each step are saved: one is missing
        end = self._states(last, how._replace(symbols=how.symbols[-1:], u=how.u[-1:]), saved[-1])
        return torch.cat([saved[1:, 0], end])

    def backward(self, call: CellCall, saved: Tensor, grads: Gradients) -> tuple[Tensor, Tensor | None]:
        if call.sequences is not None:
            sums = torch.zeros_like(call.params, dtype=saved.dtype)
            return self.backward_one_by_one(call, saved, grads, sums)
        if not (call.x.shape[0] and call.batch):
            grads.x.zero_()
            first = saved.new_zeros(1, call.batch, call.units) if grads.state is None else grads.state
            return torch.zeros_like(call.params), first if grads.wants_first else None
        with torch.enable_grad():
            x = call.x.detach().to(saved.dtype).requires_grad_()
            params = call.params.detach().to(saved.dtype).requires_grad_()
            how = _recurrence(call, x, params)
        with torch.no_grad():
            plain = _Recurrence(*(t.detach() for t in how))
            states = self._states_again(call, plain, saved)
            given = grads.out.to(saved.dtype)
            given = given if call.mask is None else torch.where(call.mask.unsqueeze(-1), given, 0.0)
            to_states, to_read = _read_back(call, plain.read, states, given)
            if grads.state is not None:
                to_states[-1] += grads.state[0]
            first = saved[0].reshape(plain.u.shape[1:])
            rows = states.view(plain.u.shape), to_states.view(plain.u.shape)
            to_matrices, to_u, to_first = gradients(plain.symbols, plain.matrices, first, *rows, "auto")
        wanted = [(how.matrices, to_matrices), (how.u, to_u), (how.read, to_read)]
        wanted = [(value, grad) for value, grad in wanted if value.requires_grad and grad is not None]
        values, given_grads = zip(*wanted, strict=True)
        to_x, to_params = torch.autograd.grad(values, [x, params], given_grads, allow_unused=True)
        grads.x.zero_() if to_x is None else grads.x.copy_(to_x)
        learned = torch.zeros_like(params) if to_params is None else to_params
        return learned.detach(), to_first.view(1, call.batch, call.units) if grads.wants_first else None


def _recurrence(call: CellCall, x: Tensor, params: Tensor) -> _Recurrence:
    """Return the recurrence of a call, differentiable in x and params. Padding reaches nothing."""
    form, mask = form_of(call.program), call.mask
    steps, batch = x.shape[:2]
    if mask is not None:
        x = torch.where(mask.unsqueeze(-1), x, 0.0)
    matrix, entry, read = of_rows(form, x, params, call.units)
    heads, size = matrix.shape[-1], form.size
    places = torch.arange(steps * batch * heads if form.changes else heads, device=x.device)
    if form.changes:
        matrices = matrix.movedim(-1, -3).reshape(-1, size, size)
        symbols = places.view(steps, batch * heads)
    else:
        matrices, symbols = matrix.movedim(-1, 0), places.repeat(batch).expand(steps, batch * heads)
    u = entry.movedim(-1, -2).expand(steps, batch, heads, size)
    if mask is not None:
        symbols = torch.where(mask.repeat_interleave(heads, 1), symbols, IDENTITY)
        u = torch.where(mask[:, :, None, None], u, 0.0)
    return _Recurrence(symbols, matrices, u.reshape(steps, batch * heads, size), read)


def _read(call: CellCall, read: Tensor, states: Tensor) -> Tensor:
    """Return the outputs (T, B, D) of states (T, B, D)."""
    heads = _heads(call.program)
    if reads_own(read, heads):
        return states
    by_head = read.view(read.shape[0], heads, -1)
    return torch.einsum("tbhn,nhw->tbhw", states.unflatten(-1, (heads, -1)), by_head).flatten(-2)


def _read_back(call: CellCall, read: Tensor, states: Tensor, grad: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of the states and of what units read, from that of the outputs."""
    heads = _heads(call.program)
    by_head, after, given = (
        read.view(read.shape[0], heads, -1),
        states.unflatten(-1, (heads, -1)),
        grad.unflatten(-1, (heads, -1)),
    )
    to_read = torch.einsum("tbhn,tbhw->nhw", after, given).flatten(-2)
    if reads_own(read, heads):
        return grad.clone(), to_read
    return torch.einsum("tbhw,nhw->tbhn", given, by_head).flatten(-2), to_read


def _heads(program: Program) -> int:
    assert program.wide is not None
    return program.wide.heads
