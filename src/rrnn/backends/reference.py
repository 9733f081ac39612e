"""The reference backend, which defines the correct result: programs interpreted with torch's own ops.

It runs one step after another, in any float dtype and on any device; double backward and vmap work. What does not
depend on the recurrence is computed for all steps at once, before and after the loop, as a person would write it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from rrnn.arithmetic import TENSORS
from rrnn.backends.extents import along, gather, join_states, split_states, spread
from rrnn.backends.interface import Backend, CellCall, Gradients, compute_dtype, first_state
from rrnn.ir import Op, Program, adjoint, interpreter


def interpret(program: Program, which: Iterable[int], values: dict[int, Tensor], like: Tensor) -> None:
    """Evaluate the instructions `which` into `values`; leaves other than constants must be there already."""

    def number(value: float) -> Tensor:
        return torch.full((), value, dtype=like.dtype, device=like.device)

    interpreter.interpret(program.instructions, which, values, TENSORS, number, along(program))


def leaves(program: Program, op: Op) -> dict[int, int]:
    """Return instruction → attribute of the leaves of one kind."""
    return {n: int(i.attr or 0) for n, i in enumerate(program.instructions) if i.op is op}


def parameter_values(program: Program, params: Tensor, units: int) -> dict[int, Tensor]:
    """Return the values of the parameters that a program reads, (D,) each."""
    rows = params if program.wide is None else spread(program.wide, program.wide.parameters, params[0], units)
    return {n: rows[p] for n, p in leaves(program, Op.PARAM).items()}


def per_unit_values(program: Program, params: Tensor, units: int) -> dict[int, Tensor]:
    """Return the values of the per-unit region, each (D,) or a scalar."""
    values = parameter_values(program, params, units)
    interpret(program, program.per_unit, values, params)
    return values


@dataclass
class Inputs:
    """Everything a program reads, in the compute dtype; padded steps hold zeros, whatever they held before."""

    x: Tensor
    params: Tensor
    mask: Tensor | None
    inp: Tensor | None
    units: int

    @staticmethod
    def of(call: CellCall) -> Inputs:
        """Convert what a call reads to the compute dtype, and clear its padded steps."""
        dtype, mask = compute_dtype(call.x.dtype), call.mask
        x, inp = call.x.to(dtype), None if call.inp is None else call.inp.to(dtype)
        if mask is not None:  # a NaN in the padding must not reach any product, not even one times zero
            x = torch.where(mask.view(*mask.shape, *[1] * (x.dim() - 2)), x, 0.0)
            inp = None if inp is None else torch.where(mask[:, :, None], inp, 0.0)
        return Inputs(x, call.params.to(dtype), mask, inp, call.units)

    def keep(self, new: Tensor, old: Tensor | float, t: int | None = None) -> Tensor:
        """Return `new` on valid steps and `old` on padded ones, of step t or of all steps."""
        if self.mask is None:
            return new
        valid = self.mask[t] if t is not None else self.mask
        return torch.where(valid.view(*valid.shape, *[1] * (new.dim() - valid.dim())), new, old)

    def values(self, program: Program) -> dict[int, Tensor]:
        """Return the per-unit values and the leaves of all steps, (T, B, D) each, with axes of families before D."""
        values, wide = per_unit_values(program, self.params, self.units), program.wide
        rows = self.x.unbind(2) if wide is None else spread(wide, wide.projections, self.x, self.units)
        values |= {n: rows[k] for n, k in leaves(program, Op.PREACT).items()}
        if self.inp is not None:
            values |= {n: self.placed(program, self.inp) for n in leaves(program, Op.INPUT)}
        return values

    def placed(self, program: Program, value: Tensor) -> Tensor:
        """Return (…, D) with an axis of size 1 for each family of the program."""
        count = 0 if program.wide is None else len(program.wide.sizes)
        return value.view(*value.shape[:-1], *[1] * count, value.shape[-1])


def carry(
    program: Program,
    inputs: Inputs,
    values: dict[int, Tensor],
    leaf: Op,
    first: Tensor,
    results: dict[int, int],
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    """Run a recurrence: `leaf` s is the carried value, `results[s]` the instruction that renews it. Values that depend
    on the carry are left to the caller. Return (carry before each step (T, S, B, D), carry at the end)."""
    steps, recurrent = inputs.x.shape[0], program.depending_on(leaf)
    loop = [
        n
        for n in sorted(program.needed_for(results.values()) & recurrent)
        if program.instructions[n].op is not leaf
    ]
    read = {a for n in loop for a in program.instructions[n].args} | set(results.values())
    ready = {n: v for n, v in values.items() if n in read}
    by_step = {n: v.unbind(0) for n, v in ready.items() if n not in program.per_unit}
    fixed = {n: v for n, v in ready.items() if n in program.per_unit}
    slots = {n: s for n, s in leaves(program, leaf).items()}
    state, before = split_states(program, first), []
    for t in range(steps - 1, -1, -1) if reverse else range(steps):
        before.append(join_states(program, state, first))
        here = fixed | {n: v[t] for n, v in by_step.items()} | {n: state[s] for n, s in slots.items()}
        interpret(program, loop, here, first)
        state = [inputs.keep(here[results[s]].expand_as(old), old, t) for s, old in enumerate(state)]
    end = join_states(program, state, first)
    if not steps:
        return first.new_empty((0, *first.shape)), end
    return torch.stack(before[::-1] if reverse else before), end


def forward(program: Program, inputs: Inputs, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Run a program over time; return (output, final state, states before each step (T, S, B, D)), differentiable."""
    values = inputs.values(program)
    recurrent = program.depending_on(Op.STATE)
    results = program.of_kind("state")
    wanted = program.needed_for([*program.of_kind("output").values(), *results.values()])
    interpret(program, wanted - recurrent, values, state)
    before, end = carry(program, inputs, values, Op.STATE, state, results, reverse=False)
    return finish(program, inputs, values, before, end), end, before


def run(call: CellCall, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return (output, final state) of a call, differentiable: packed sequences are as many calls."""
    if call.sequences is None:
        inputs = Inputs.of(call)
        out, end, _ = forward(call.program.flat, inputs, state.to(inputs.params.dtype))
        return out.to(call.x.dtype), end
    results = [run(own, state[:, i : i + 1]) for i, _, own in call.separate()]
    if not results:
        return call.x.new_empty(0, 1, call.units * call.program.output_count), state
    outputs, ends = zip(*results, strict=True)
    return torch.cat(outputs), torch.cat(ends, 1)


def finish(
    program: Program, inputs: Inputs, values: dict[int, Tensor], before: Tensor, end: Tensor
) -> Tensor:
    """Return the outputs of all steps, once the states before each step are known."""
    outputs = program.of_kind("output").values()
    after = torch.cat([before[1:], end.unsqueeze(0)]) if before.shape[0] else before
    # A padded step's output is not looked at, but its gradient of zero must not meet an infinite state.
    old, new = split_states(program, before), split_states(program, after)
    values |= {n: inputs.keep(old[s], 0.0) for n, s in leaves(program, Op.STATE).items()}
    for s, n in program.of_kind("state").items():
        # A state may have an index that its value has not: it lies there once for each.
        if program.wide is None or program.over[n].issuperset(program.wide.states[s].over):
            values.setdefault(n, inputs.keep(new[s], 0.0))
    interpret(program, program.needed_for(outputs), values, end)
    shape = *inputs.x.shape[:2], inputs.units
    whole = inputs.placed(program, inputs.x.new_empty(()).expand(shape)).shape
    found = [inputs.keep(values[n].expand(whole).reshape(shape), 0.0) for n in outputs]
    return found[0] if len(found) == 1 else torch.cat(found, -1)


def backward(
    program: Program, inputs: Inputs, before: Tensor, grad_out: Tensor, grad_state: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Run the adjoint program over time; return (dx, d unit values (U, D), d first state, d input)."""
    step = adjoint(program).step
    values = backward_values(step, inputs, before, grad_out)
    interpret(
        step, frozenset(range(len(step.instructions))) - step.depending_on(Op.GRAD_STATE), values, grad_state
    )
    results = step.of_kind("grad_state")
    carried, first = carry(step, inputs, values, Op.GRAD_STATE, grad_state, results, reverse=True)
    dx, du, di = finish_backward(step, inputs, values, carried)
    return dx, du, first, di


def backward_values(step: Program, inputs: Inputs, before: Tensor, grad_out: Tensor) -> dict[int, Tensor]:
    """Return the values that a step backwards reads, of all steps."""
    values = inputs.values(step)
    old = split_states(step, before)
    values |= {n: old[s] for n, s in leaves(step, Op.STATE).items()}
    parts = grad_out.to(before.dtype).split(inputs.units, -1)
    values |= {
        n: inputs.placed(step, inputs.keep(parts[k], 0.0)) for n, k in leaves(step, Op.GRAD_OUTPUT).items()
    }
    return values


def finish_backward(
    step: Program, inputs: Inputs, values: dict[int, Tensor], carried: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients of all steps, once dL/d new state is known for each: (dx, d unit values, d input)."""
    wide, units, (steps, batch) = step.wide, inputs.units, inputs.x.shape[:2]
    given = split_states(step, carried)
    values |= {n: given[s] for n, s in leaves(step, Op.GRAD_STATE).items()}
    interpret(step, range(len(step.instructions)), values, inputs.params)

    def whole(n: int) -> Tensor:
        axes = (
            []
            if wide is None
            else [size if f in step.over[n] else 1 for f, (_, size) in enumerate(wide.sizes)]
        )
        return inputs.keep(values[n].expand(steps, batch, *axes, units), 0.0)

    preacts = [whole(n) for n in step.of_kind("grad_preact").values()]
    if not preacts:
        dx = torch.zeros_like(inputs.x)
    else:
        dx = torch.stack(preacts, 2) if wide is None else gather(wide, wide.projections, preacts, units)
    # Those with several indices become as many rows.
    du = [whole(n).sum((0, 1)).view(_rows(step, n), units) for n in step.of_kind("grad_unit").values()]
    di = [whole(n).reshape(steps, batch, units) for n in step.of_kind("grad_input").values()]
    return dx, torch.cat(du) if du else inputs.x.new_zeros(0, units), di[0] if di else None


def _rows(step: Program, n: int) -> int:
    """Return how many rows a value has: one for each index of the families that it depends on."""
    return 1 if step.wide is None else math.prod(step.wide.sizes[f][1] for f in step.over[n])


class Reference(Backend):
    """The backend that interprets programs."""

    name = "reference"
    packs = False

    def why_not(self, device: torch.device, dtype: torch.dtype, program: Program | None = None) -> str | None:
        return None

    def forward(self, call: CellCall, state: Tensor | None, out: Tensor) -> tuple[Tensor, Tensor | None]:
        program = call.program.flat
        if state is None:
            state = first_state(program, call.batch, call.units, call.params, compute_dtype(call.x.dtype))
        if call.sequences is not None:
            return self.forward_one_by_one(call, state, out)
        inputs = Inputs.of(call)
        output, end, before = forward(program, inputs, state)
        out.copy_(output)
        return end, before[:: call.every].contiguous() if call.every else None

    def backward(self, call: CellCall, saved: Tensor, grads: Gradients) -> tuple[Tensor, Tensor | None]:
        if call.sequences is not None:
            sums = saved.new_zeros(adjoint(call.program).unit_rows, call.units)
            return self.backward_one_by_one(call, saved, grads, sums)
        inputs, program, before = Inputs.of(call), call.program.flat, saved
        grad_state = saved.new_zeros(saved.shape[1:]) if grads.state is None else grads.state
        if call.every > 1:
            first = saved[0] if saved.shape[0] else torch.zeros_like(grad_state)
            _, _, before = forward(program, inputs, first)
        dx, units, first_grad, di = backward(program, inputs, before, grads.out, grad_state)
        grads.x.copy_(dx)
        if grads.inp is not None:
            grads.inp.copy_(di if di is not None else torch.zeros_like(grads.inp))
        return units, first_grad if grads.wants_first else None
