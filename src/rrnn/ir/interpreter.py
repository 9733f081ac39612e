"""Run programs on Python floats, op by op: the definition that all backends are held to.

`check_output` uses it to prove what lowering promises beyond a well-formed program: a layer whose output stays finite.
A score can be the semiring's zero (a C is 0, or −∞ in max-plus, after its first symbol). The output expression must
map that to a finite value with a finite gradient: tanh(score) does; in max-plus tanh(o * score) gives 0·∞.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rrnn.arithmetic import ALONG_FAMILY, FLOATS, Arithmetic
from rrnn.automata.cell_rules import outside_level
from rrnn.errors import CellError, OutputWarning
from rrnn.ir.adjoint import reverse
from rrnn.ir.builder import Builder, copy_into
from rrnn.ir.program import Instruction, Op, Program
from rrnn.ir.semiring_code import plus_and_times
from rrnn.semirings import Semiring


def _alone(op: Op, attr: int, *values: Any) -> Any:
    """Run an op along a family that has one state."""
    if op is Op.FIRST:
        return float(values[0] == values[1])
    return values[attr % len(values)] if op is Op.FOLD else values[0]


def _alone_in(ring: Semiring) -> Callable[..., Any]:
    """Return `_alone` for programs of gradients, too: before and after a state that is alone there is 0̄."""
    zero = ring.numbers_of(ring.zero)

    def run(op: Op, attr: int, *values: Any) -> Any:
        return zero[attr % len(zero)] if op in (Op.BEFORE, Op.AFTER) else _alone(op, attr, *values)

    return run


def interpret(
    instructions: Sequence[Instruction],
    which: Iterable[int],
    values: dict[int, Any],
    s: Arithmetic = FLOATS,
    number: Callable[[float], Any] = float,
    along: Callable[..., Any] = _alone,
) -> None:
    """Evaluate the instructions `which` into `values`, over any arithmetic: on floats this is the definition that all
    backends are held to. Leaves other than constants, which `number` makes, must be there already. `along(op, family,
    *arguments)` runs the ops that look at a whole family; by default, families have one state."""
    for n in sorted(which):
        if n not in values:
            op, args, attr = instructions[n]
            if op is Op.CONST:
                values[n] = number(float(attr or 0.0))
            elif op in ALONG_FAMILY:
                values[n] = along(op, int(attr or 0), *(values[a] for a in args))
            else:
                values[n] = getattr(s, op.text)(*(values[a] for a in args))


def evaluate(
    instructions: Sequence[Instruction],
    leaves: Mapping[int, float],
    fixed: Mapping[int, float] | None = None,
    along: Callable[..., Any] = _alone,
) -> list[float]:
    """Return the values of all instructions. `leaves` are given by instruction number, without constants; `fixed`
    overrides the value of any instruction."""
    values = {n: x for n, x in leaves.items() if instructions[n].op is not Op.CONST} | dict(fixed or {})
    # A builder's own zero and one may be elements, which no flat program reads.
    values |= {n: math.nan for n, i in enumerate(instructions) if i.op is Op.ELEMENT}
    interpret(instructions, range(len(instructions)), values, along=along)
    return [values[n] for n in range(len(instructions))]


def run_step(program: Program, leaves: Mapping[Op, Sequence[float]]) -> dict[tuple[str, int], float]:
    """Return (kind, index) → value of every output of one step. `leaves` are numbers by kind and index, as in
    `{Op.PREACT: [0.5, -1.0], Op.STATE: [0.0]}`."""
    program = program.flat
    numbers = {
        n: leaves[op][int(attr or 0)]
        for n, (op, _, attr) in enumerate(program.instructions)
        if op.leaf and op is not Op.CONST
    }
    values = evaluate(program.instructions, numbers)
    return {(o.kind, o.index): values[o.value] for o in program.outputs}


def initial_state(program: Program, parameters: Sequence[float]) -> list[float]:
    """Return the stored states before the first symbol."""
    program = program.flat
    # Only per-unit values are asked for, so whatever stands in for the step's own leaves does not matter.
    numbers = {
        n: parameters[int(attr or 0)] if op is Op.PARAM else 0.0
        for n, (op, _, attr) in enumerate(program.instructions)
        if op.leaf
    }
    values = evaluate(program.instructions, numbers)
    return [values[i] for i in program.initial]


def check_output(program: Program, *, may_cancel: bool = False) -> None:
    """Raise `CellError` where the score can be zero and the output has no finite value or gradient then.

    With `may_cancel`, the score is zero for some values of the weights only: then warn.
    """
    certain = score_may_be_zero(program)
    if not certain and not may_cancel:
        return
    ring, program = program.semiring, program.flat
    b = Builder(ring, program.wide)
    number = copy_into(b, program)
    scores = [number[n] for n in program.of_kind("score").values()]
    watched = [number[n] for n in program.of_kind("output").values()]
    if ring.has_gradient:
        for output in list(watched):
            grads = reverse(b, {output: b.const(1.0)}, stop=set(scores))
            watched += [g for n, g in grads.items() if n in scores or b.instructions[n].op.leaf]
    rng = random.Random(0)
    for _ in range(8):
        leaves = {n: rng.uniform(-2, 2) for n, i in enumerate(b.instructions) if i.op.leaf}
        found = []
        for score in (ring.zero, ring.one):
            parts = zip(scores, ring.numbers_of(score), strict=True)
            fixed = {n: x for n, x in parts if b.value(n) is None}
            found.append(evaluate(b.instructions, leaves, fixed, _alone_in(ring)))
        values, usual = found
        # What is not finite with a score of one either (√ of a negative gate) is not the score's fault.
        if any(math.isfinite(usual[n]) and not math.isfinite(values[n]) for n in watched):
            message = (
                f"cell {program.name!r}: its score can be the {ring.name} semiring's zero "
                f"({ring.zero}), and its output expression then has no finite value or gradient. "
            )
            if not certain:
                warnings.warn(
                    f"{message}It is zero where a weight is 0 or where paths cancel, and the loss becomes NaN. Read a "
                    f"number that stays finite there, such as {_finite_reading(ring)}.",
                    OutputWarning,
                    stacklevel=outside_level(),
                )
                return
            raise CellError(
                f"{message}Squash the score so that it saturates, as tanh(score) or tanh(o + score) do; "
                "o * score gives 0·∞ where zero is infinite, log(score) and sqrt(score) are steep at 0."
            )


def _finite_reading(ring: Semiring) -> str:
    infinite = [c for c, z in zip(ring.components, ring.numbers_of(ring.zero), strict=False) if math.isinf(z)]
    return " or ".join(f"tanh(score.{c})" for c in infinite) or "tanh(score)"


def score_may_be_zero(program: Program) -> bool:
    """Return whether some score is zero, by running the support of the state (zero or not, with every weight taken as
    non-zero) until it repeats."""
    ring = program.semiring
    plus, times = plus_and_times(ring)
    zeros = ring.numbers_of(ring.zero)

    def support(state: tuple[bool, ...] | None) -> list[bool]:
        alive: list[bool] = []
        for op, args, attr in program.instructions:
            if op is Op.CONST:
                alive.append(ring.size > 1 or attr != ring.zero)
            elif op is Op.ELEMENT:
                known = [program.instructions[a] for a in args]
                zero = all(i.op is Op.CONST and i.attr == z for i, z in zip(known, zeros, strict=True))
                alive.append(not zero and any(alive[a] for a in args))
            elif op is Op.COMPONENT:
                alive.append(alive[args[0]])
            elif op is Op.STATE:
                alive.append(bool(state and state[int(attr or 0)]))
            elif op in ALONG_FAMILY:
                alive.append(alive[args[0]])
            elif op is plus:
                alive.append(any(alive[a] for a in args))
            elif op is times:
                alive.append(all(alive[a] for a in args))
            else:
                alive.append(True)
        return alive

    first = support(None)
    state = tuple(first[i] for i in program.initial)
    seen: set[tuple[bool, ...]] = set()
    while state not in seen:
        seen.add(state)
        alive = support(state)
        if not alive[program.of_kind("score")[0]]:
            return True
        state = tuple(alive[v] for v in program.of_kind("state").values())
    return False
