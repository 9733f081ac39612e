"""Run a lowered cell step by step on Python floats, the slowest and plainest way there is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from strategies import Numbers

from rrnn.ir import Op, Program
from rrnn.ir.evaluate import initial_state, run_step


class Step(NamedTuple):
    before: list[float]
    after: list[float]
    score: float
    output: float


def parameters_of(program: Program, numbers: Numbers) -> list[float]:
    return [numbers.parameters[name] for name in program.parameters]


def leaves_of(program: Program, numbers: Numbers, symbol: str) -> dict[Op, list[float]]:
    """What a step reads at a symbol, but for the state."""
    row = numbers.preacts[symbol]
    return {
        Op.PARAM: parameters_of(program, numbers),
        Op.PREACT: [row[name] for name in program.projections],
        Op.INPUT: [row.get("input", 0.0)],
    }


def run(program: Program, numbers: Numbers, string: Iterable[str]) -> list[Step]:
    steps: list[Step] = []
    state = initial_state(program, parameters_of(program, numbers))
    for symbol in string:
        out = run_step(program, leaves_of(program, numbers, symbol) | {Op.STATE: state})
        after = [out["state", s] for s in range(len(program.states))]
        steps.append(Step(state, after, out["score", 0], out["output", 0]))
        state = after
    return steps
