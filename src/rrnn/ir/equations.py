"""The recurrence as a person would write it, from the program: gates, constants, states, score, output.

    fₜ = σ(W_f vₜ + b_f)
    uₜ = (1 − fₜ) ⊙ W_u vₜ
    cₜ = fₜ ⊙ cₜ₋₁ + uₜ
    hₜ = tanh(cₜ)

Named expressions keep their names. What has none is written out where it stands, unless it is long: then a weight
becomes w¹, w² …, a constant of the ε-closure e¹, e² …, and a sum of states that is used twice z¹, z² ….
"""

from __future__ import annotations

from rrnn.automata import Cell
from rrnn.ir.lower import Lowered, lower
from rrnn.ir.notation import LATEX, PLAIN, Notation
from rrnn.ir.write import Writer

Lines = list[tuple[str, str]]


def equations(cell: Cell) -> str:
    """The cell's recurrence in plain text, one equation a line."""
    return PLAIN.lines(Equations(lower(cell), PLAIN).lines())


def latex(cell: Cell) -> str:
    """The cell's recurrence as a LaTeX `align` environment (amsmath)."""
    return LATEX.lines(Equations(lower(cell), LATEX).lines())


class Equations(Writer):
    """What is written, and in which order."""

    def __init__(self, lowered: Lowered, notation: Notation) -> None:
        windows = {p.name: p.window for p in lowered.projections}
        super().__init__(lowered.program, notation, lowered.names, lowered.weights, windows)

    def lines(self) -> Lines:
        p = self.program
        new, score, outputs = p.of_kind("state"), p.of_kind("score")[0], p.of_kind("output")
        one_state = len(new) == 1 and new[0] == score

        updates = [(self.state(s, "t"), self.write(value)) for s, value in new.items()]
        inside = self.take_definitions()
        starts = [
            (self.state(s, "0"), self.write(start))
            for s, start in enumerate(p.initial)
            if not self.is_zero(start)
        ]

        # A folded state's value may be read as a number: only what is computed has a symbol.
        after = {v: self.state(s, "t") for s, v in reversed(new.items()) if self.constant(v) is None}
        total = self.write(score, after, states=set(after))
        between = self.take_definitions()
        lines = [line for kind, line in inside if kind != "state"]
        lines += [line for kind, line in between if kind == "unit"]
        lines += [*starts, *(line for kind, line in inside if kind == "state"), *updates]
        lines += [line for kind, line in between if kind != "unit"]
        if not one_state:
            lines.append((self.score_symbol, total))

        known = {} if self.constant(score) is not None else {score: self.score_symbol}
        results = [(self.output(k), self.write(n, known, states=set(known))) for k, n in outputs.items()]
        lines += [line for _, line in self.take_definitions()]
        return [*lines, *results]


def state_symbols(cell: Cell) -> dict[str, str]:
    """Stored state → its symbol in the equations, without the time: {"q1": "c¹", "q2": "c²"}."""
    lowered = lower(cell)
    writer = Writer(lowered.program, PLAIN, lowered.names, lowered.weights)
    return {q: writer.state(s, "") for s, q in enumerate(lowered.program.states)}


__all__ = ["Equations", "equations", "latex", "state_symbols"]
