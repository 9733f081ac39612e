"""Chunks in parallel over time, the same numbers up to rounding: compose each chunk's transition from the scan form,
join the chunks one after another, then fill in the states inside all chunks at once."""

from __future__ import annotations

import torch
from torch import Tensor

from rrnn.backends.reference import serial
from rrnn.backends.reference.interpreter import interpret
from rrnn.backends.reference.serial import Inputs
from rrnn.ir import Program, adjoint, reverse_scan_form, scan_form
from rrnn.semirings import REAL, Semiring

Entries = dict[tuple[int, int], Tensor]


def compose(semiring: Semiring, first: Entries, second: Entries) -> Entries:
    """The transition that takes `first`, then `second`."""
    out: Entries = {}
    for (i, k), a in first.items():
        for (k2, j), b in second.items():
            if k == k2:
                term = semiring.t_times(a, b)
                out[i, j] = semiring.t_plus(out[i, j], term) if (i, j) in out else term
    return out


def apply(semiring: Semiring, row: list[Tensor], step: Entries, size: int) -> list[Tensor]:
    """row ⊗ transition."""
    new: list[Tensor | None] = [None] * size
    for (i, j), a in sorted(step.items(), key=lambda item: item[0][0] != item[0][1]):
        term, old = semiring.t_times(row[i], a), new[j]
        new[j] = term if old is None else semiring.t_plus(old, term)
    return [torch.full_like(row[0], semiring.zero) if v is None else v for v in new]


def _chunks(steps: Entries, size: int, semiring: Semiring, chunk: int, mask: Tensor | None) -> list[Entries]:
    """Per position inside a chunk, the entries of all chunks: (chunks, B, D) each. Padded steps, and the steps
    that fill up the last chunk, are the identity: this is the one place that says so."""
    some = next(iter(steps.values()))
    total = some.shape[0]
    n = -(-total // chunk)
    keys = set(steps) | {(i, i) for i in range(size)}  # a state that no step renews is still kept by padding
    out: Entries = {}
    for i, j in keys:
        idle = semiring.one if i == j else semiring.zero
        value = steps.get((i, j), torch.full_like(some, semiring.zero))
        if mask is not None:
            value = torch.where(mask.unsqueeze(-1), value, idle)
        filled = torch.cat([value, value.new_full((n * chunk - total, *value.shape[1:]), idle)])
        out[i, j] = filled.reshape(n, chunk, *value.shape[1:])
    return [{key: value[:, c] for key, value in out.items()} for c in range(chunk)]


def _states(
    chunks: list[Entries], semiring: Semiring, first: list[Tensor], total: int
) -> tuple[Tensor, Tensor]:
    """(rows before each step (T, size, B, D), row at the end) of the linear recurrence, chunk-parallel."""
    size = len(first)
    whole = chunks[0]
    for step in chunks[1:]:
        whole = compose(semiring, whole, step)
    row, starts = first, []
    for c in range(next(iter(whole.values())).shape[0]):
        starts.append(torch.stack(row))
        row = apply(semiring, row, {key: value[c] for key, value in whole.items()}, size)
    inside = list(torch.stack(starts, 1).unbind(0))  # size × (chunks, B, D)
    before = []
    for step in chunks:
        before.append(torch.stack(inside, 1))
        inside = apply(semiring, inside, step, size)
    rows = torch.stack(before, 1).flatten(0, 1)[:total]  # (chunks, chunk, size, B, D)
    return rows, torch.stack(row)


def forward(program: Program, inputs: Inputs, state: Tensor, chunk: int) -> tuple[Tensor, Tensor, Tensor]:
    """As `serial.forward`, in chunks of `chunk` steps."""
    total, batch, _, units = inputs.x.shape
    form, semiring = scan_form(program), program.semiring
    if not total or not program.states:
        return serial.forward(program, inputs, state)
    values = inputs.values(form.program)
    interpret(form.program, range(len(form.program.instructions)), values, state)
    steps = {
        divmod(key, form.size): values[n].expand(total, batch, units)
        for key, n in form.program.of_kind("entry").items()
    }
    one = torch.full_like(state[0], semiring.one)
    steps[0, 0] = one.expand(total, batch, units)
    rows, end = _states(
        _chunks(steps, form.size, semiring, chunk, inputs.mask), semiring, [one, *state.unbind(0)], total
    )
    before, end = rows[:, 1:], end[1:]
    return serial.finish(program, inputs, inputs.values(program), before, end), end, before


def backward(
    program: Program, inputs: Inputs, before: Tensor, grad_out: Tensor, grad_state: Tensor, chunk: int
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """As `serial.backward`: carried' = Jᵀ(carried + direct), an affine recurrence over the reals, time reversed."""
    total, batch, _, units = inputs.x.shape
    form = reverse_scan_form(program)
    if not total or not program.states:
        return serial.backward(program, inputs, before, grad_out, grad_state)
    values = serial.backward_values(form.program, inputs, before, grad_out)
    interpret(form.program, range(len(form.program.instructions)), values, grad_state)

    def whole(n: int) -> Tensor:
        return values[n].expand(total, batch, units).flip(0)

    steps: Entries = {}
    direct = {j: whole(n) for j, n in form.program.of_kind("direct").items()}
    for key, n in form.program.of_kind("jacobian").items():
        i, j = divmod(key, form.size)  # old i gets J[i, j] · (carried j + direct j)
        jacobian = whole(n)
        steps[j + 1, i + 1] = jacobian
        pushed = jacobian * direct[j]
        steps[0, i + 1] = steps[0, i + 1] + pushed if (0, i + 1) in steps else pushed
    one = torch.ones_like(grad_state[0])
    steps[0, 0] = one.expand(total, batch, units)
    mask = None if inputs.mask is None else inputs.mask.flip(0)
    chunks = _chunks(steps, form.size + 1, REAL, chunk, mask)
    rows, end = _states(chunks, REAL, [one, *grad_state.unbind(0)], total)
    step = adjoint(program).step
    adjoint_values = serial.backward_values(step, inputs, before, grad_out)
    dx, du, di = serial.finish_backward(step, inputs, adjoint_values, rows[:, 1:].flip(0))
    return dx, du, end[1:], di
