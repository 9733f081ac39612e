"""What one layer of a cell can and cannot compute, read off the cell alone.

Every answer is a proposition of docs/theory.md whose conditions the cell meets, or a witness: weights, or a limit of
weights, with which a unit is the machine of the task. What neither settles is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rrnn.arithmetic import RANGES, Range
from rrnn.automata import Cell, epsilon_cycles, expr_text, reachable, unroll, weight_range
from rrnn.automata import expressions as ex
from rrnn.automata.expression_rules import is_zero
from rrnn.automata.expression_text import without_starts
from rrnn.automata.unroll import at_index, written_states
from rrnn.ir import lower
from rrnn.theory.task_machines import forms_of
from rrnn.theory.unit_automata import reach
from rrnn.theory.witnesses import Witness, find_witness
from rrnn.wfsa.graph import components

Notion = Literal["exact", "margin", "threshold"]
NOTIONS: dict[Notion, str] = {
    "exact": "exact series",
    "margin": "threshold with a margin",
    "threshold": "threshold without",
}
"""How a score solves a task, at all lengths: it is 1 on the language and 0 elsewhere; it is above θ + δ on the language
and below θ − δ elsewhere, for some δ > 0; it is above θ on the language and not elsewhere."""
TASKS = {
    "modulo 2": "parity of the number of a's",
    "modulo 3": "number of a's modulo 3",
    "at-least 1": "at least one a",
    "at-least 2": "at least two a's",
    "at-least 3": "at least three a's",
    "first": "whether the first symbol was a",
    "point": "S₃: whether a point is back in its place",
    "group": "S₃: word problem",
}
_PERIODS = {"modulo 2": 2, "modulo 3": 3, "point": 3, "group": 3}
"""The greatest n for which some strings v, v², v³, … are in the language with period n."""
Known = Literal["yes", "no", "unknown"]


@dataclass(frozen=True)
class Answer:
    """Whether a task can be solved, and by which proposition or witness this is known."""

    known: Known = "unknown"
    reason: str = ""

    @property
    def text(self) -> str:
        """The answer with the first letter and the number of its reason."""
        kind, _, number = self.reason.partition(" ")
        return f"{self.known} ({kind[0]}{number})" if self.reason else self.known


@dataclass(frozen=True)
class Statement:
    """One task and one notion: the answer for finite weights, and for limits of weights."""

    task: str
    notion: Notion
    finite: Answer
    limit: Answer

    @property
    def text(self) -> str:
        """The answers, as `no (P5); limit: yes (w1)`: by Proposition 5, and by witness 1."""
        if self.finite == self.limit:
            return self.finite.text
        return f"{self.finite.text}; limit: {self.limit.text}"


@dataclass(frozen=True)
class Power:
    """What is known of a cell: its structure, and a statement per task and notion."""

    cell: str
    semiring: str
    triangular: bool
    """Whether its only cycles are self-loops."""
    loops: dict[str, str]
    """State → weight and range of its self-loop."""
    states: int
    """The number of the automaton's states, as `rrnn zoo` lists it."""
    stored: int
    """How many of them a layer stores for each unit: not the start state, whose weight is always one, nor a state that
    only ε-arcs enter."""
    window: int
    statements: tuple[Statement, ...]
    witnesses: tuple[Witness, ...]
    """Witness n of the reasons is number n − 1."""

    def as_dict(self) -> dict[str, Any]:
        """Return what is known for JSON."""
        return {
            "cell": self.cell,
            "semiring": self.semiring,
            "triangular": self.triangular,
            "loops": self.loops,
            "states": self.states,
            "stored_states": self.stored,
            "window": self.window,
            "statements": [
                {
                    "task": s.task,
                    "notion": NOTIONS[s.notion],
                    "finite_weights": {"answer": s.finite.known, "reason": s.finite.reason},
                    "limits": {"answer": s.limit.known, "reason": s.limit.reason},
                }
                for s in self.statements
            ],
            "witnesses": [{"finite": w.finite, "values": w.text} for w in self.witnesses],
        }


def power(cell: Cell) -> Power:
    """Return what one layer of a cell can compute, cannot compute, and what is unknown."""
    given, cell = cell.check(), unroll(cell)
    structure = _Structure(cell)
    witnesses: list[Witness] = []
    statements: list[Statement] = []
    for task in _tasks(structure):
        found: dict[Notion, list[tuple[Witness, int]]] = {notion: [] for notion in NOTIONS}
        if not structure.excludes(task):
            for form in forms_of(task):
                witness = find_witness(cell, form)
                if witness is None:
                    continue
                shows = {"exact": NOTIONS, "count": ("margin", "threshold"), "support": ("threshold",)}[
                    form.kind
                ]
                if not any(_better(witness, found[notion]) for notion in shows):
                    continue
                same = next((n for n, w in enumerate(witnesses, 1) if w.values == witness.values), None)
                if same is None:
                    witnesses.append(witness)
                for notion in shows:
                    found[notion].append((witness, same or len(witnesses)))
        for notion in NOTIONS:
            statements.append(_statement(structure, task, notion, found[notion]))
    return Power(
        cell.name,
        cell.semiring_name,
        structure.triangular,
        _loops(given, structure),
        given.state_count,
        lower(given).program.state_count,
        structure.window,
        tuple(statements),
        tuple(witnesses),
    )


def _loops(cell: Cell, structure: _Structure) -> dict[str, str]:
    """Return weight and range of each self-loop. The states h_0, h_1, … of a family share a line, h_i."""
    loops, families = structure.loops, written_states(cell)
    written: dict[str, list[str]] = {}
    names = without_starts(cell)
    for arc in cell.arcs:
        if cell.family_of(arc.source) and arc.source == arc.target and not arc.epsilon:
            weight = at_index(arc.weight, ("i", "i") if arc.full else "i")
            written.setdefault(arc.source, []).append(expr_text(weight))
    shown: dict[str, str] = {}
    for state, (weight, found) in loops.items():
        family, text = families.get(state, ""), expr_text(weight, names)
        if family in written and len({loops[q][1] for q in loops if families.get(q) == family}) == 1:
            state, text = f"{family}_i", " ⊕ ".join(written[family])
        shown[state] = f"{text} in {_shown(found)}"
    return shown


def _better(witness: Witness, known: list[tuple[Witness, int]]) -> bool:
    """Return whether a witness shows more than those before it."""
    return not known or (witness.finite and not any(w.finite for w, _ in known))


def _tasks(structure: _Structure) -> list[str]:
    """Return the tasks: those of `TASKS`, and counting modulo the length of the cell's cycles."""
    longest = max((len(part) for part in structure.parts), default=1)
    more = [f"modulo {longest}"] if longest > 3 else []
    return [*list(TASKS)[:2], *more, *list(TASKS)[2:]]


def describe(task: str) -> str:
    """Return what a task asks, in words."""
    return TASKS.get(task) or f"number of a's {task}"


def _statement(
    structure: _Structure, task: str, notion: Notion, found: list[tuple[Witness, int]]
) -> Statement:
    never = structure.excludes(task)
    if never:
        return Statement(task, notion, Answer("no", never), Answer("no", never))
    finite = next((Answer("yes", f"witness {n}") for w, n in found if w.finite), None)
    if finite is not None:
        return Statement(task, notion, finite, finite)
    if notion == "exact" and (never := structure.excludes_exact(task)):
        return Statement(task, notion, Answer("no", never), Answer("no", never))
    reason = structure.excludes_finite(task, notion)
    finite = Answer("no", reason) if reason else Answer()
    limit = next((Answer("yes", f"witness {n}") for _, n in found), Answer())
    return Statement(task, notion, finite, limit)


class _Structure:
    """What the propositions ask about a cell."""

    def __init__(self, cell: Cell) -> None:
        self.cell, ring = cell, cell.semiring
        arcs = [a for a in cell.arcs if not is_zero(a.weight, ring)]
        starts = {q for q, w in cell.initials if not is_zero(w, ring)}
        ends = {q for q, w in cell.finals if not is_zero(w, ring)}
        alive = reachable(starts, arcs) & reachable(ends, arcs, backwards=True)
        states = [q for q in cell.states if q in alive]
        self.arcs = [a for a in arcs if {a.source, a.target} <= alive]
        number = {q: i for i, q in enumerate(states)}
        follows: list[list[int]] = [[] for _ in states]
        for arc in self.arcs:
            follows[number[arc.source]].append(number[arc.target])
        self.parts = components(follows)
        silent = any(a.epsilon and a.source == a.target for a in self.arcs) or epsilon_cycles(cell)
        self.triangular = not silent and all(len(part) == 1 for part in self.parts)
        self.loops = {
            a.source: (a.weight, weight_range(a.weight, ring))
            for a in self.arcs
            if a.source == a.target and not a.epsilon
        }
        # A read-out of a family is one more stored state here, since the cell is written without families.
        self.stored, self.window = len(lower(cell).program.states), reach(cell) + 1
        # The numbers that loops stand for, where scores are sums over paths
        self.sums = not ring.components and not ring.selective and ring.reads_reals
        self.factors: list[Range] = []
        if self.sums:
            self.factors = [ring.to_real(r, RANGES) for _, r in self.loops.values()]

    def excludes(self, task: str) -> str:
        """Return the proposition by which no weights solve a task in any of the notions, or ""."""
        ring, period = self.cell.semiring, _period(task)
        if self.triangular and period > 1:
            if self.sums and all(r.low >= 0 for r in self.factors):
                return "Proposition 2"
            if self.sums and period > 2:
                return "Proposition 3"
            if ring.selective and ring.ranks and not ring.components:
                return "Proposition 4"
        if task == "first" and self._one_state() and all(r.low >= -1 and r.high <= 1 for r in self.factors):
            return "Proposition 6"
        return ""

    def excludes_exact(self, task: str) -> str:
        """Return the proposition by which no weights solve a task exactly, or ""."""
        field = self.sums or self.cell.semiring.components == ("re", "im")
        return "Proposition 8" if self.triangular and field and task in ("point", "group") else ""

    def excludes_finite(self, task: str, notion: Notion) -> str:
        """Return the proposition by which no finite weights solve a task in a notion, or ""."""
        if self._fades() and notion != "threshold":
            return "Proposition 5"
        name, _, number = task.partition(" ")
        if name == "at-least" and int(number) > 1 and self._one_state() and self._fades():
            return "Proposition 7"
        return ""

    def _fades(self) -> bool:
        """Return whether every loop is strictly inside (−1, 1), but for states that are on all the time."""
        if not (self.triangular and self.cell.semiring.adds):
            return False
        entered = {a.target for a in self.arcs if a.source != a.target}
        return all(
            _inside(weight_range(w, self.cell.semiring))
            for q, (w, _) in self.loops.items()
            if not (isinstance(w, ex.One) and q not in entered)
        )

    def _one_state(self) -> bool:
        """Return whether the recurrence is c = f ⊙ c' + u over the reals, with f and u of the latest input only."""
        return self.stored == 1 and self.window == 1 and self.triangular and self.cell.semiring.adds


def _period(task: str) -> int:
    name, _, number = task.partition(" ")
    return int(number) if name == "modulo" else _PERIODS.get(task, 1)


def _inside(r: Range) -> bool:
    low = r.low > -1 or (r.low == -1 and r.low_open)
    return low and (r.high < 1 or (r.high == 1 and r.high_open))


def _shown(r: Any) -> str:
    if isinstance(r, tuple):
        return " × ".join(map(_shown, r))
    ends = (f"{x:g}".replace("-", "−").replace("inf", "∞") for x in (r.low, r.high))
    if r.constant:
        return f"{{{next(ends)}}}"
    low, high = ends
    return f"{'(' if r.low_open else '['}{low}, {high}{')' if r.high_open else ']'}"
