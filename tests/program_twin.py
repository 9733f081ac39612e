"""Run a lowered cell step by step on Python floats, the slow twin of every backend."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from runnable_cell_strategies import Numbers

from rrnn.ir import Op, Program
from rrnn.ir.interpreter import initial_state, run_step


class Step(NamedTuple):
    """One step: the stored numbers before and after it, the score (a tuple if it has several components), outputs."""

    before: list[float]
    after: list[float]
    score: Any
    outputs: tuple[float, ...]

    @property
    def output(self) -> float:
        """Return the first output."""
        return self.outputs[0]


def parameters_of(program: Program, numbers: Numbers) -> list[float]:
    return [numbers.parameters[name] for name in program.parameters]


def leaves_of(program: Program, numbers: Numbers, symbol: str) -> dict[Op, list[float]]:
    """Return what a step reads at a symbol, except the state."""
    row = numbers.preacts[symbol]
    return {
        Op.PARAM: parameters_of(program, numbers),
        Op.PREACT: [row[name] for name in program.projections],
        Op.INPUT: [row.get("input", 0.0)],
    }


def run(program: Program, numbers: Numbers, string: Iterable[str]) -> list[Step]:
    steps: list[Step] = []
    ring, state = program.semiring, initial_state(program, parameters_of(program, numbers))
    for symbol in string:
        out = run_step(program, leaves_of(program, numbers, symbol) | {Op.STATE: state})
        after = [out["state", s] for s in range(len(state))]
        score = ring.element(out["score", i] for i in range(ring.size))
        outputs = tuple(out["output", i] for i in range(program.output_count))
        steps.append(Step(state, after, score, outputs))
        state = after
    return steps


def elements(program: Program, numbers: list[float]) -> list[Any]:
    """Group stored numbers into elements of the semiring."""
    ring = program.semiring
    return [ring.element(numbers[i : i + ring.size]) for i in range(0, len(numbers), ring.size)]
