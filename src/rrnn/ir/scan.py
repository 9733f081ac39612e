"""The scan form: a step is linear over the semiring, so steps compose, and chunks of time can run in parallel.

The state row is extended by a constant one, index 0, for what enters from always-on states; stored state s has index
s + 1. `entry i·n + j` (n = states + 1) is the weight with which index i reaches index j in one step. Which entries of a
*composed* transition can be non-zero follows from reachability: B carries 2 numbers, C and F carry 5.

Backwards, dL/d state follows a recurrence that is linear over the reals, whatever the semiring:
carried' = Jᵀ · (carried + direct), with the Jacobian J and the part `direct` that comes from the step's own output.

States of a family have these forms where each depends on those of its own index alone: entries are then of one index
alike, as instructions are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rrnn.arithmetic import ALONG_FAMILY
from rrnn.errors import ProgramError
from rrnn.ir.adjoint import accumulate, reverse
from rrnn.ir.builder import Builder, copy_into
from rrnn.ir.program import Op, Program
from rrnn.ir.semiring_code import plus_and_times

Pattern = frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Scan:
    """The scan form of a program: per-step entries, and which ones a chunk carries."""

    program: Program  # outputs `entry i*n+j`, elements of the semiring; `program.flat` has their components
    size: int  # n: stored states + 1
    step: Pattern  # entries of one step, without (0, 0), which is one
    carried: Pattern  # entries of a composed chunk: the reflexive, transitive closure of `step`


@dataclass(frozen=True)
class ReverseScan:
    """The scan form of the gradient: Jacobian entries of a step, and which ones a chunk carries."""

    program: Program  # outputs `jacobian i*S+j` = ∂ new j / ∂ old i, `direct j`, `new_state j`
    size: int  # S stored states
    step: Pattern
    carried: Pattern


def compose_closure(size: int, step: Pattern) -> Pattern:
    """Return the entries that a product of any number of steps, none included, can have."""
    reach = {(i, i) for i in range(size)} | set(step)
    for k in range(size):
        for i in range(size):
            for j in range(size):
                if (i, k) in reach and (k, j) in reach:
                    reach.add((i, j))
    return frozenset(reach)


_ONE_INDEX = (
    "a state of a family depends on states of another index, so chunks of time would carry whole matrices"
)


def _check_index(program: Program, old: int, new: int) -> None:
    """Raise unless state `old` (below 0: the constant one) reaches state `new` at its own index alone."""
    if (
        program.wide is not None
        and old >= 0
        and program.wide.states[old].over != program.wide.states[new].over
    ):
        raise ProgramError(_ONE_INDEX)


@lru_cache(maxsize=256)
def has_scan_form(program: Program) -> bool:
    """Return whether a program has a scan form, and a reverse one if its semiring has a gradient."""
    try:
        scan_form(program)
        return not program.semiring.has_gradient or bool(reverse_scan_form(program))
    except ProgramError:
        return False


@lru_cache(maxsize=256)
def scan_form(program: Program) -> Scan:
    """Return the scan form of a program: the linear form of every new state, read off its instructions."""
    b = Builder(program.semiring, program.wide)
    number = copy_into(b, program)
    plus, times = plus_and_times(program.semiring)
    # instruction → {index i: coefficient}, of those that read the state
    forms: dict[int, dict[int, int]] = {}
    stateful = program.depending_on(Op.STATE)
    for n in sorted(program.needed_for(program.of_kind("state").values())):
        op, args, attr = program.instructions[n]
        if op is Op.STATE:
            forms[n] = {int(attr or 0) + 1: b.one}
        elif n in stateful:
            parts = [forms[a] if a in stateful else {0: number[a]} for a in args]
            if op is plus:
                forms[n] = {
                    i: b.sum(p[i] for p in parts if i in p) for i in sorted({i for p in parts for i in p})
                }
            elif op is times and sum(a in stateful for a in args) == 1:
                state = 0 if args[0] in stateful else 1
                factor = number[args[1 - state]]
                forms[n] = {i: b.times(x, factor) for i, x in parts[state].items()}
            else:
                raise ProgramError(
                    f"%{n} ({op.text}) is not linear in the state over {program.semiring_name}"
                )
    size = len(program.states) + 1
    outputs, step = [], set()
    for s, value in program.of_kind("state").items():
        row = forms[value] if value in forms else {0: number[value]}
        for i, coefficient in row.items():
            if coefficient != b.zero:
                _check_index(program, i - 1, s)
                outputs.append(("entry", i * size + s + 1, coefficient))
                step.add((i, s + 1))
    scan, _ = b.finish(
        f"{program.name}.scan",
        projections=program.projections,
        parameters=program.parameters,
        states=program.states,
        initial=[b.zero] * len(program.states),
        outputs=outputs,
    )
    return Scan(scan, size, frozenset(step), compose_closure(size, frozenset(step)) - {(0, 0)})


@lru_cache(maxsize=256)
def reverse_scan_form(program: Program) -> ReverseScan:
    """Return the Jacobian and the direct part of a step backwards, for every stored number."""
    program = program.flat
    b = Builder(program.semiring, program.wide)
    forward = copy_into(b, program)
    stateful = program.depending_on(Op.STATE)
    for n in program.needed_for(program.of_kind("state").values()) & stateful:
        if program.instructions[n].op in ALONG_FAMILY:
            raise ProgramError(_ONE_INDEX)
    new = {s: forward[v] for s, v in program.of_kind("state").items()}
    old = {s: b.leaf(Op.STATE, s) for s in new}
    size, outputs, step = len(program.states), [], set()
    for j, value in new.items():
        grads = reverse(b, {value: b.const(1.0)})
        for i, leaf in old.items():
            if leaf in grads and b.value(grads[leaf]) != 0:
                _check_index(program, i, j)
                outputs.append(("jacobian", i * size + j, grads[leaf]))
                step.add((i, j))
    seeds: dict[int, int] = {}
    for k, value in program.of_kind("output").items():
        accumulate(b, seeds, forward[value], b.leaf(Op.GRAD_OUTPUT, k or None))
    through = reverse(b, seeds, stop=set(new.values()))
    for j, value in new.items():  # two states of one value: the gradient that reached it counts once
        outputs.append(("direct", j, through.pop(value, b.const(0.0))))
        outputs.append(("new_state", j, value))
    form, _ = b.finish(
        f"{program.name}.reverse_scan",
        projections=program.projections,
        parameters=program.parameters,
        states=program.states,
        initial=[b.const(0.0)] * size,
        outputs=outputs,
    )
    return ReverseScan(form, size, frozenset(step), compose_closure(size, frozenset(step)))
