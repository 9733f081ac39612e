"""A cell: an automaton template × a semiring × an output expression, built arc by arc.

Cells are values: every builder method returns a new cell. Mistakes that one arc shows are raised at that arc; what
needs the whole automaton is checked by `Cell.check`, which lowering, drawing and the text form call.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from rrnn.automata import expressions as ex
from rrnn.automata.ranges import range_of
from rrnn.errors import CellError
from rrnn.semirings import Semiring, get_semiring


class CellArc(NamedTuple):
    source: str
    target: str
    weight: ex.Expr
    epsilon: bool = False


MAX_STATES, MAX_ARCS = 256, 4096  # a template is small; these bound what a hostile text can ask for


@dataclass(frozen=True, eq=False)
class Cell:
    """`Cell("B").initial("q0").loop("q0", one).arc("q0", "q1", u).loop("q1", f).final("q1").output(tanh("score"))`"""

    name: str
    semiring_name: str
    states: tuple[str, ...] = ()
    arcs: tuple[CellArc, ...] = ()
    initials: tuple[tuple[str, ex.Expr], ...] = ()
    finals: tuple[tuple[str, ex.Expr], ...] = ()
    output_expr: ex.Expr = ex.score
    epsilon_limit: int | None = None
    epsilon_after_last: bool = True

    def __init__(self, name: str, semiring: str | Semiring = "real", **fields: object) -> None:
        set_ = object.__setattr__
        set_(self, "name", ex.check_name(name, "a cell's name"))
        set_(self, "semiring_name", get_semiring(semiring).name)
        for key, default in _DEFAULTS.items():
            set_(self, key, fields.pop(key, default))
        if fields:
            raise CellError(f"Cell has no field {next(iter(fields))!r}")

    @property
    def semiring(self) -> Semiring:
        return get_semiring(self.semiring_name)

    # ---- builder -------------------------------------------------------------------------------------------

    def initial(self, state: str, weight: ex.Expr | float = ex.one) -> Cell:
        """Paths may start in `state`, with this weight λ."""
        return self._weigh("initials", "initial", state, weight)

    def final(self, state: str, weight: ex.Expr | float = ex.one) -> Cell:
        """Paths may end in `state`, with this weight ρ."""
        return self._weigh("finals", "final", state, weight)

    def arc(self, source: str, target: str, weight: ex.Expr | float, *, merge: str | None = None) -> Cell:
        """An arc that consumes a symbol. `merge="plus"` allows a second one between the same states (⊕)."""
        return self._arc(source, target, weight, False, merge)

    def loop(self, state: str, weight: ex.Expr | float, *, merge: str | None = None) -> Cell:
        """A self-loop that consumes a symbol."""
        return self._arc(state, state, weight, False, merge)

    def epsilon(self, source: str, target: str, weight: ex.Expr | float, *, merge: str | None = None) -> Cell:
        """An arc that consumes nothing; its weight uses only parameters and numbers."""
        return self._arc(source, target, weight, True, merge)

    def output(self, expr: ex.Expr | str) -> Cell:
        """What the layer returns, from `score`, projections, parameters and `input()`."""
        expression = ex.as_expr(expr)
        _no_semiring_constants(expression, "the output expression")
        return self._with(output_expr=expression)

    def limit_epsilon(self, limit: int, *, after_last: bool = True) -> Cell:
        """Allow at most `limit` consecutive ε-arcs; `after_last=False`: none after the last symbol (as SoPa)."""
        if not isinstance(limit, int) or isinstance(limit, bool) or not 0 <= limit <= 64:
            raise CellError(f"epsilon_limit must be a whole number from 0 to 64; got {limit!r}")
        return self._with(epsilon_limit=limit, epsilon_after_last=bool(after_last))

    def with_semiring(self, semiring: str | Semiring) -> Cell:
        """The same automaton over another semiring (its weights are not changed)."""
        return self._with(semiring_name=get_semiring(semiring).name)

    def renamed(self, name: str) -> Cell:
        return self._with(name=ex.check_name(name, "a cell's name"))

    # ---- reading -------------------------------------------------------------------------------------------

    def weights(self) -> Iterable[tuple[str, ex.Expr]]:
        """Every weight with the words that name its place in messages."""
        for state, weight in self.initials:
            yield f"the initial weight of {state!r}", weight
        for arc in self.arcs:
            kind = "the ε-arc" if arc.epsilon else "the arc"
            yield f"the weight of {kind} {arc.source!r} → {arc.target!r}", arc.weight
        for state, weight in self.finals:
            yield f"the final weight of {state!r}", weight

    def expressions(self) -> Iterable[ex.Expr]:
        yield from (weight for _, weight in self.weights())
        yield self.output_expr

    def to_text(self) -> str:
        """The `.cell` text; `Cell.from_text` reads it back."""
        from rrnn.automata.text import to_text

        return to_text(self)

    @staticmethod
    def from_text(text: str, source: str = "cell text") -> Cell:
        from rrnn.automata.text import from_text

        return from_text(text, source)

    def check(self) -> Cell:
        """Raise a `CellError` for what only the whole automaton shows; return the cell."""
        from rrnn.automata.check import check_cell

        check_cell(self)
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cell) and self.to_text() == other.to_text()

    def __hash__(self) -> int:
        return hash(self.to_text())

    def __repr__(self) -> str:
        return f"<Cell {self.name}: {len(self.states)} states, {len(self.arcs)} arcs, {self.semiring_name}>"

    # ---- inside --------------------------------------------------------------------------------------------

    def _with(self, **fields: object) -> Cell:
        values = {"name": self.name, "semiring": self.semiring_name} | {k: getattr(self, k) for k in _DEFAULTS}
        if "semiring_name" in fields:
            fields["semiring"] = fields.pop("semiring_name")
        return Cell(**(values | fields))  # type: ignore[arg-type]

    def _states_with(self, *names: str) -> tuple[str, ...]:
        new = tuple(dict.fromkeys((*self.states, *(ex.check_name(n, "a state's name") for n in names))))
        if len(new) > MAX_STATES:
            raise CellError(f"a cell has at most {MAX_STATES} states; this one has more")
        return new

    def _weigh(self, place: str, word: str, state: str, weight: ex.Expr | float) -> Cell:
        given = getattr(self, place)
        if state in dict(given):
            raise CellError(f"state {state!r} is given an {word} weight twice; give it once")
        expression = _checked(ex.as_expr(weight), f"the {word} weight of {state!r}", self.semiring, constant=True)
        return self._with(**{place: (*given, (state, expression)), "states": self._states_with(state)})

    def _arc(self, source: str, target: str, weight: ex.Expr | float, epsilon: bool, merge: str | None) -> Cell:
        kind = "ε-arc" if epsilon else "arc"
        if merge not in (None, "plus"):
            raise CellError(f'merge is None or "plus"; got {merge!r}')
        if merge is None and any(a[:2] == (source, target) and a.epsilon == epsilon for a in self.arcs):
            raise CellError(
                f"{kind} {source!r} → {target!r} is given twice. "
                'Say merge="plus" to let both count (⊕), or write one weight.'
            )
        if epsilon and source == target and self.epsilon_limit is None and weight == ex.one:
            raise CellError(f"an ε-loop of weight one on {source!r} adds nothing to any path; leave it out")
        place = f"the weight of the {kind} {source!r} → {target!r}"
        expression = _checked(ex.as_expr(weight), place, self.semiring, constant=epsilon)
        arcs = (*self.arcs, CellArc(source, target, expression, epsilon))
        if len(arcs) > MAX_ARCS:
            raise CellError(f"a cell has at most {MAX_ARCS} arcs; this one has more")
        return self._with(arcs=arcs, states=self._states_with(source, target))


_DEFAULTS: dict[str, object] = {
    "states": (),
    "arcs": (),
    "initials": (),
    "finals": (),
    "output_expr": ex.score,
    "epsilon_limit": None,
    "epsilon_after_last": True,
}


def _no_semiring_constants(expr: ex.Expr, place: str) -> None:
    for node in ex.walk(expr):
        if isinstance(node, (ex.One, ex.Zero)) and node is not expr:
            raise CellError(
                f"{place} uses `one` or `zero` inside arithmetic; they are the semiring's and stand alone as a "
                "whole weight. Write the number 1 or 0 instead."
            )


def _checked(expr: ex.Expr, place: str, semiring: Semiring, *, constant: bool) -> ex.Expr:
    _no_semiring_constants(expr, place)
    if any(isinstance(node, ex.Score) for node in ex.walk(expr)):
        raise CellError(f"{place} uses `score`, which exists only after the arcs; use it in the output expression")
    if constant and ex.depends_on_input(expr):
        raise CellError(
            f"{place} depends on the input. Initial, ε and final weights use only parameters and numbers, "
            'since they consume no symbol: use parameter("name") instead of linear(…) or input().'
        )
    bad = _outside(expr, semiring)
    if bad:
        raise CellError(f"{place} {bad}")
    return expr


def _outside(expr: ex.Expr, semiring: Semiring) -> str | None:
    """Why this weight may leave the semiring's set, or None. Only provable weights are allowed where it matters."""
    if isinstance(expr, ex.Number) and not semiring.contains(expr.value):
        return f"is {expr.value!r}, outside the {semiring.name} semiring's set {semiring.set_description}"
    if not semiring.laws.non_negative:
        return None
    low, high, integral = range_of(expr, semiring)
    if semiring.name == "max-times" and low < 0:
        return (
            "may be negative, and max-times needs weights that are provably non-negative: "
            "wrap it in sigmoid, exp, softplus or relu"
        )
    if semiring.name == "boolean" and not (integral and low >= 0 and high <= 1):
        return "must be provably 0 or 1 in the boolean semiring: use one, zero or step(…)"
    if semiring.name == "counting" and not (integral and low >= 0):
        return "must be provably a natural number in the counting semiring: use whole numbers and step(…)"
    return None


def relabel(cell: Cell, states: dict[str, str] | None = None, prefix: str = "") -> Cell:
    """The cell with states renamed and `prefix` put before every projection's and parameter's name."""
    states = states or {}

    def expr(e: ex.Expr) -> ex.Expr:
        label = prefix + e.label if e.label and prefix else e.label
        match e:
            case ex.Linear() | ex.Parameter():
                return replace(e, name=prefix + e.name, label=label)
            case ex.Call():
                return replace(e, argument=expr(e.argument), label=label)
            case ex.Binary():
                return replace(e, left=expr(e.left), right=expr(e.right), label=label)
        return e

    def state(q: str) -> str:
        return states.get(q, q)

    return cell._with(
        states=tuple(map(state, cell.states)),
        arcs=tuple(CellArc(state(a.source), state(a.target), expr(a.weight), a.epsilon) for a in cell.arcs),
        initials=tuple((state(q), expr(w)) for q, w in cell.initials),
        finals=tuple((state(q), expr(w)) for q, w in cell.finals),
        output_expr=expr(cell.output_expr),
    )
