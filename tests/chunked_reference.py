"""The reference backend's recurrence with chunks of time in parallel; results are the same up to rounding.

It composes each chunk's transition from the scan form, joins the chunks one after another, and then fills in the states
inside all chunks at once: the slow twin of the kernels that chunk time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rrnn.arithmetic import TENSORS
from rrnn.backends import reference
from rrnn.backends.reference import Inputs, interpret
from rrnn.ir import Program, adjoint, reverse_scan_form, scan_form
from rrnn.semirings import REAL, Semiring

Element = Any
"""A tensor, or a tuple of them: one for each component."""
Entries = dict[tuple[int, int], Element]


def compose(ring: Semiring, first: Entries, second: Entries) -> Entries:
    """Return the transition that takes `first`, then `second`."""
    out: Entries = {}
    for (i, k), a in first.items():
        for (k2, j), b in second.items():
            if k == k2:
                term = ring.times(a, b, TENSORS)
                out[i, j] = ring.plus(out[i, j], term, TENSORS) if (i, j) in out else term
    return out


def apply(ring: Semiring, row: list[Element], step: Entries) -> list[Element]:
    """Return row ⊗ transition."""
    new: list[Element | None] = [None] * len(row)
    for (i, j), a in sorted(step.items(), key=lambda item: item[0][0] != item[0][1]):
        term, old = ring.times(row[i], a, TENSORS), new[j]
        new[j] = term if old is None else ring.plus(old, term, TENSORS)
    return [constant(ring, ring.zero, row[0]) if v is None else v for v in new]


def constant(ring: Semiring, element: Any, like: Element) -> Element:
    """Return an element that is known, in the shape of another one."""
    some = ring.numbers_of(like)[0]
    return ring.element(torch.full_like(some, x) for x in ring.numbers_of(element))


def each(ring: Semiring, function: Callable[..., Tensor], *elements: Element) -> Element:
    """Apply a function to every component."""
    return ring.element(function(*parts) for parts in zip(*map(ring.numbers_of, elements), strict=True))


def _chunks(steps: Entries, size: int, ring: Semiring, chunk: int, mask: Tensor | None) -> list[Entries]:
    """Return the entries of all chunks, (chunks, B, D) each, for each position inside a chunk. Padded steps, and the
    steps that fill up the last chunk, are the identity: this is decided here alone."""
    some = next(iter(steps.values()))
    total = ring.numbers_of(some)[0].shape[0]
    n = -(-total // chunk)
    keys = set(steps) | {(i, i) for i in range(size)}  # a state that no step renews is still kept by padding
    out: Entries = {}

    def filled(value: Tensor, idle: float) -> Tensor:
        if mask is not None:
            value = torch.where(mask.unsqueeze(-1), value, idle)
        rest = value.new_full((n * chunk - total, *value.shape[1:]), idle)
        return torch.cat([value, rest]).reshape(n, chunk, *value.shape[1:])

    for i, j in keys:
        value = steps[i, j] if (i, j) in steps else constant(ring, ring.zero, some)
        out[i, j] = each(ring, filled, value, ring.one if i == j else ring.zero)
    return [
        {key: each(ring, lambda v, c=c: v[:, c], value) for key, value in out.items()} for c in range(chunk)
    ]


def _states(chunks: list[Entries], ring: Semiring, first: list[Element], total: int) -> tuple[Tensor, Tensor]:
    """Run the linear recurrence chunk by chunk; return (rows before each step (T, numbers, B, D), row at the end)."""

    def stack(row: list[Element], dim: int = 0) -> Tensor:
        return torch.stack([x for element in row for x in ring.numbers_of(element)], dim)

    whole = chunks[0]
    for step in chunks[1:]:
        whole = compose(ring, whole, step)
    row, starts = first, []
    for c in range(ring.numbers_of(next(iter(whole.values())))[0].shape[0]):
        starts.append(row)
        row = apply(ring, row, {key: each(ring, lambda v, c=c: v[c], value) for key, value in whole.items()})
    inside = [
        each(ring, lambda *parts: torch.stack(parts), *(start[i] for start in starts))
        for i in range(len(first))
    ]  # per place (chunks, B, D)
    before = []
    for step in chunks:
        before.append(stack(inside, 1))
        inside = apply(ring, inside, step)
    rows = torch.stack(before, 1).flatten(0, 1)[:total]  # (chunks, chunk, numbers, B, D)
    return rows, stack(row)


def forward(program: Program, inputs: Inputs, state: Tensor, chunk: int) -> tuple[Tensor, Tensor, Tensor]:
    """Run a program as `reference.forward` does, in chunks of `chunk` steps."""
    total, batch, _, units = inputs.x.shape
    form, ring, flat = scan_form(program), program.semiring, program.flat
    if not total or not program.states:
        return reference.forward(flat, inputs, state)
    entries, size = form.program.flat, ring.size
    values = inputs.values(entries)
    interpret(entries, range(len(entries.instructions)), values, state)
    found = {key: values[n].expand(total, batch, units) for key, n in entries.of_kind("entry").items()}
    steps: Entries = {
        divmod(key, form.size): ring.element(found[key * size + c] for c in range(size))
        for key in sorted({key // size for key in found})
    }
    steps[0, 0] = constant(ring, ring.one, ring.element(x[:total] for x in [found[next(iter(found))]] * size))
    states = state.unflatten(0, (-1, size)).unbind(0)
    first = [
        constant(ring, ring.one, ring.element([state[0]] * size)),
        *(ring.element(s.unbind(0)) for s in states),
    ]
    rows, end = _states(_chunks(steps, form.size, ring, chunk, inputs.mask), ring, first, total)
    before, end = rows[:, size:], end[size:]
    return reference.finish(flat, inputs, inputs.values(flat), before, end), end, before


def backward(
    program: Program, inputs: Inputs, before: Tensor, grad_out: Tensor, grad_state: Tensor, chunk: int
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Run a program backwards as `reference.backward` does, in chunks: carried' = Jᵀ(carried + direct) is an affine
    recurrence over the reals, with time reversed."""
    total, batch, _, units = inputs.x.shape
    form, program = reverse_scan_form(program), program.flat
    if not total or not program.states:
        return reference.backward(program, inputs, before, grad_out, grad_state)
    values = reference.backward_values(form.program, inputs, before, grad_out)
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
    adjoint_values = reference.backward_values(step, inputs, before, grad_out)
    dx, du, di = reference.finish_backward(step, inputs, adjoint_values, rows[:, 1:].flip(0))
    return dx, du, end[1:], di
