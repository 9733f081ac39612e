"""Reverse-mode differentiation of programs: the program of one step backwards.

Forward values are recomputed from pre-activations, parameters and the previous stored states, which alone must be
saved. Parameters enter a step through per-unit values (σ of a parameter, a bias). A step's adjoint gives the gradients
of these, to be summed over time and batch; the *epilogue*, run once per unit, turns the sums into gradients of the
parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

from rrnn.errors import ProgramError
from rrnn.ir.builder import Builder, Value, copy_into
from rrnn.ir.program import Extent, Op, Program
from rrnn.semirings import SEMIRINGS


@dataclass(frozen=True)
class Adjoint:
    """The programs that run one step backwards."""

    step: Program  # grad_preact k, grad_input, grad_state s, grad_unit j; new_state s, to recompute with
    epilogue: Program  # grad_param p, from GRAD_UNIT j
    units: tuple[int, ...]  # unit value j is instruction units[j] of the forward program

    @cached_property
    def unit_rows(self) -> int:
        """The number of rows of all unit values: those over families have one for each index."""
        wide = self.epilogue.wide
        return len(self.units) if wide is None else sum(wide.indices(extent) for extent in wide.units)


@lru_cache(maxsize=256)
def adjoint(program: Program) -> Adjoint:
    """Return the gradient of a step, for semirings that have one."""
    if not program.semiring.has_gradient:
        others = ", ".join(name for name, ring in SEMIRINGS.items() if ring.has_gradient)
        raise ProgramError(
            f"the {program.semiring_name} semiring has no gradient: run this cell without gradients "
            f"(torch.no_grad), or use one that has: {others}"
        )
    program = program.flat
    b = Builder(program.semiring, program.wide)
    forward = copy_into(b, program)
    seeds: dict[int, int] = {}
    for k, value in program.of_kind("output").items():
        accumulate(b, seeds, forward[value], b.leaf(Op.GRAD_OUTPUT, k or None))
    for s, value in program.of_kind("state").items():
        accumulate(b, seeds, forward[value], b.leaf(Op.GRAD_STATE, s))

    units = unit_values(program)
    wanted = {forward[n] for n in units}
    grads = reverse(b, seeds, stop=wanted)
    # A leaf that no instruction reads has a gradient too: zero.
    leaves = [
        *(("grad_preact", k, Op.PREACT) for k in range(len(program.projections))),
        *([("grad_input", None, Op.INPUT)] if program.uses_input else []),
        *(("grad_state", s, Op.STATE) for s in range(len(program.states))),
    ]
    outputs = [(kind, i or 0, grads.get(b.leaf(op, i), b.const(0.0))) for kind, i, op in leaves]
    outputs += [("new_state", s, forward[value]) for s, value in program.of_kind("state").items()]
    outputs += [("grad_unit", j, grads.get(forward[n], b.const(0.0))) for j, n in enumerate(units)]
    shape = {"projections": program.projections, "parameters": program.parameters, "states": program.states}
    step, _ = b.finish(
        f"{program.name}.adjoint", **shape, initial=[b.const(0.0)] * len(program.states), outputs=outputs
    )
    return Adjoint(step, _epilogue(program, units), units)


def unit_values(program: Program) -> tuple[int, ...]:
    """Return the per-unit instructions, constants left out, that the step itself reads."""
    per_unit = program.per_unit
    used = {a for n, i in enumerate(program.instructions) if n not in per_unit for a in i.args}
    used |= {o.value for o in program.outputs}
    return tuple(n for n in sorted(used & per_unit) if program.instructions[n].op is not Op.CONST)


def _epilogue(program: Program, units: tuple[int, ...]) -> Program:
    """Return the program that turns gradients of per-unit values into gradients of parameters."""
    wide = program.wide
    if wide is not None:
        over = (Extent(tuple(sorted(program.over[n]))) for n in units)
        wide = wide._replace(projections=(), states=(), units=tuple(over))
    b = Builder(program.semiring, wide)
    forward = copy_into(b, program, only=program.per_unit)
    seeds: dict[int, int] = {}
    for j, n in enumerate(units):
        accumulate(b, seeds, forward[n], b.leaf(Op.GRAD_UNIT, j))
    grads = reverse(b, seeds)
    outputs = []
    for p in range(len(program.parameters)):
        leaf = next((n for n, i in enumerate(program.instructions) if i.op is Op.PARAM and i.attr == p), None)
        value = grads.get(forward[leaf]) if leaf is not None and leaf in forward else None
        outputs.append(("grad_param", p, b.const(0.0) if value is None else value))
    epilogue, _ = b.finish(
        f"{program.name}.epilogue",
        projections=(),
        parameters=program.parameters,
        states=(),
        initial=(),
        outputs=outputs,
    )
    return epilogue


def accumulate(b: Builder, grads: dict[int, int], n: int, g: int, over: frozenset[int] = frozenset()) -> None:
    """Add g to the gradient of instruction n, which was used for a value with indices of the families `over`. What n
    has once for all indices of a family gets the sum over them, also where g is the same for each."""
    for family in sorted((b.over[g] | over) - b.over[n]):
        g = b.along(Op.SUM, family, g)
    grads[n] = b.emit(Op.ADD, grads[n], g) if n in grads else g


def reverse(
    b: Builder, seeds: Mapping[int, int], stop: frozenset[int] | set[int] = frozenset()
) -> dict[int, int]:
    """Return instruction → its gradient, given the gradients of some (`seeds`). Instructions in `stop` are treated as
    leaves."""
    grads = dict(seeds)
    for n in range(max(seeds, default=-1), -1, -1):
        if n not in grads or n in stop:
            continue
        op, args, attr = b.instructions[n]
        if b.value(grads[n]) == 0:
            continue
        if op in (Op.MOST, Op.LEAST):  # in a tie the first index wins
            first = b.along(Op.FIRST, int(attr or 0), args[0], n)
            accumulate(b, grads, args[0], b.emit(Op.MUL, grads[n], first))
        if op is Op.FOLD:
            _through_fold(b, grads, n)
        if op is Op.MOVE:
            assert b.wide is not None
            before, after = divmod(int(attr or 0), len(b.wide.sizes))
            accumulate(b, grads, args[0], b.move(grads[n], after, before))
        if op is Op.EXP and b.wide is not None and (product := _regrouped(b, grads[n], n)) is not None:
            accumulate(b, grads, args[0], product)
            continue
        if op.value.gradient is None:
            continue
        values = [Value(b, k) for k in (*args, n, grads[n])]
        for arg, g in zip(args, op.value.gradient(b.arithmetic, *values), strict=True):
            if g is not None and b.value(arg) is None:
                accumulate(b, grads, arg, b.number_of(g), b.over[n])
    return grads


def _regrouped(b: Builder, g: int, n: int) -> int | None:
    """Return g · n as (x · n) · y if g is the product x · y and x · n is there already, or None. The gradient of a
    decay exp(…) that multiplies a state is such a product: its x · n is the gradient of the state before."""
    op, args, _ = b.instructions[g]
    if op is Op.MUL:
        for x, y in (args, args[::-1]):
            for pair in ((x, n), (n, x)):
                if (known := b.find(Op.MUL, *pair)) is not None:
                    return b.emit(Op.MUL, known, y)
    return None


def _through_fold(b: Builder, grads: dict[int, int], n: int) -> None:
    """Add the gradients of what component n of a semiring's ⊕ over a family adds up. The total is (all before ⊕ own) ⊕
    all after, for each index; it keeps the order, so that in a tie the first index wins."""
    _, args, attr = b.instructions[n]
    family, component = divmod(int(attr or 0), len(args))
    before, after = (
        b.semiring.element(Value(b, k) for k in b.fold_components(op, family, args))
        for op in (Op.BEFORE, Op.AFTER)
    )
    own = b.semiring.element(Value(b, k) for k in args)
    plus = partial(b.semiring.plus, s=b.arithmetic)
    total = b.number_of(b.semiring.numbers_of(plus(plus(before, own), after))[component])
    found = reverse(b, {total: grads[n]}, stop=set(args))
    for arg in dict.fromkeys(args):
        if arg in found and b.value(arg) is None:
            accumulate(b, grads, arg, found[arg])
