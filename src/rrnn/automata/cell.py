"""A cell: an automaton template × a semiring × an output expression, built arc by arc.

Cells are values: every builder method returns a new cell. A mistake in one arc raises an error when that arc is added.
Mistakes that only the whole automaton shows are found by `Cell.check`, which lowering, drawing and the text form call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from rrnn.automata import expressions as ex
from rrnn.automata.cell_rules import check_cell, warn_of_growth
from rrnn.automata.cell_text import read_cell, render, to_text
from rrnn.automata.expression_rules import check_output, check_weight
from rrnn.automata.family_rules import check_ends, check_index, check_pairs
from rrnn.errors import CellError, SemiringError
from rrnn.semirings import Semiring, get_semiring


class CellArc(NamedTuple):
    source: str
    target: str
    weight: ex.Expr
    epsilon: bool = False
    full: bool = False
    """Whether there is an arc from each state of the source, a family, to each of the target."""


State = str | ex.Family
"""A state by its name, or a family of states."""

# Templates are small. These limits bound what a hostile text can ask for.
MAX_STATES, MAX_ARCS, MAX_VOLUME = 256, 4096, 50_000


@dataclass(frozen=True, eq=False)
class Cell:
    """An automaton whose arcs carry weight functions. B of the paper, for example:

    `Cell("B").initial("q0").loop("q0", one).arc("q0", "q1", u).loop("q1", f).final("q1").output(tanh("score"))`
    """

    name: str
    semiring_name: str
    states: tuple[str, ...] = ()
    arcs: tuple[CellArc, ...] = ()
    initials: tuple[tuple[str, ex.Expr], ...] = ()
    finals: tuple[tuple[str, ex.Expr], ...] = ()
    given_outputs: tuple[ex.Expr, ...] = ()
    epsilon_limit: int | None = None
    epsilon_after_last: bool = True
    families: tuple[ex.Family, ...] = ()
    reads: tuple[tuple[str, ex.Expr], ...] = ()

    def __init__(self, name: str, semiring: str | Semiring = "real") -> None:
        object.__setattr__(self, "name", ex.check_name(name, "a cell's name"))
        object.__setattr__(self, "semiring_name", get_semiring(semiring).name)

    @property
    def semiring(self) -> Semiring:
        return get_semiring(self.semiring_name)

    # ---- builder -------------------------------------------------------------------------------------------

    def initial(self, state: State, weight: ex.Operand = ex.one) -> Cell:
        """Return the cell with `state` as a start of paths, with the initial weight λ."""
        return self._meeting(state)._weigh("initial", str(state), weight, self.initials)

    def final(self, state: State, weight: ex.Operand = ex.one) -> Cell:
        """Return the cell with `state` as an end of paths, with the final weight ρ."""
        return self._meeting(state)._weigh("final", str(state), weight, self.finals)

    def read(self, state: State, weight: ex.Operand = ex.one) -> Cell:
        """Return the cell with `state` as an end of paths whose final weight sees the symbol just consumed. (The empty
        sequence has the final weights alone.)"""
        return self._meeting(state)._weigh("read", str(state), weight, self.reads)

    def arc(self, source: State, target: State, weight: ex.Operand, *, merge: str | None = None) -> Cell:
        """Return the cell with an arc that consumes a symbol. `merge="plus"` allows a second arc between the same
        states (⊕). Between two families of one size there is an arc for each index."""
        return self._arc(source, target, weight, False, merge)

    def mix(self, source: State, target: State, weight: ex.Operand, *, merge: str | None = None) -> Cell:
        """Return the cell with arcs from each state of a family to each state of a family, which may be the same. Their
        weight depends on both ends: `k.source * k.target`, or `parameter("A", over=(h.source, h.target))`."""
        return self._arc(source, target, weight, False, merge, full=True)

    def loop(self, state: State, weight: ex.Operand, *, merge: str | None = None) -> Cell:
        """Return the cell with a self-loop that consumes a symbol."""
        return self._arc(state, state, weight, False, merge)

    def epsilon(self, source: State, target: State, weight: ex.Operand, *, merge: str | None = None) -> Cell:
        """Return the cell with an arc that consumes nothing; its weight uses only parameters and numbers."""
        return self._arc(source, target, weight, True, merge)

    def output(self, *exprs: ex.Operand) -> Cell:
        """Return the cell with these output expressions of `score`, projections, parameters and `input()`. With several
        expressions, each unit returns several values."""
        if not exprs:
            raise CellError("output takes at least one expression; got none")
        outputs = tuple(check_output(ex.as_expr(e), self.semiring) for e in exprs)
        for output in outputs:
            check_index(output, "the output expression", ())
        return self._with(given_outputs=outputs)

    @property
    def output_exprs(self) -> tuple[ex.Expr, ...]:
        """The output expressions of each unit; by default the score, or all of its components."""
        components = tuple(ex.Component(ex.score, c) for c in self.semiring.components)
        return self.given_outputs or components or (ex.score,)

    @property
    def output_expr(self) -> ex.Expr:
        """The output expression; the first one if there are several."""
        return self.output_exprs[0]

    def limit_epsilon(self, limit: int, *, after_last: bool = True) -> Cell:
        """Return the cell with at most `limit` consecutive ε-arcs on a path. With `after_last=False` there are none
        after the last symbol, as in SoPa."""
        if not isinstance(limit, int) or isinstance(limit, bool) or not 0 <= limit <= 64:
            raise CellError(f"epsilon_limit must be a whole number from 0 to 64; got {limit!r}")
        return self._with(epsilon_limit=limit, epsilon_after_last=bool(after_last))

    def with_semiring(self, semiring: str | Semiring) -> Cell:
        """Return the same automaton over another semiring. Weights are not changed: `check` tells whether they fit, and
        a warning comes now if loops over the new semiring grow without bound."""
        cell = self._with(semiring_name=get_semiring(semiring).name)
        with suppress(CellError, SemiringError):  # `check` reports weights that do not fit
            for place, weight in cell.weights():
                check_weight(weight, place, cell.semiring, constant=False)
            warn_of_growth(cell)
        return cell

    def renamed(self, name: str) -> Cell:
        """Return the cell under another name."""
        return self._with(name=ex.check_name(name, "a cell's name"))

    # ---- reading -------------------------------------------------------------------------------------------

    def weights(self) -> Iterator[tuple[str, ex.Expr]]:
        """Yield every weight, with the words that name its place in messages."""
        for state, weight in self.initials:
            yield _end_place("initial", state), weight
        for arc in self.arcs:
            yield _arc_place(arc.source, arc.target, arc.epsilon, arc.full), arc.weight
        for state, weight in self.finals:
            yield _end_place("final", state), weight
        for state, weight in self.reads:
            yield _end_place("read", state), weight

    def expressions(self) -> Iterator[ex.Expr]:
        """Yield every expression in the order in which a path meets them: λ, arcs, ρ, then the output."""
        yield from (weight for _, weight in self.initials)
        yield from (arc.weight for arc in self.arcs)
        yield from (weight for _, weight in self.finals)
        yield from (weight for _, weight in self.reads)
        yield from self.output_exprs

    @property
    def state_count(self) -> int:
        """The number of states, with each state of a family counted."""
        return len(self.states) + sum(family.size - 1 for family in self.families)

    def to_text(self) -> str:
        """Return the `.cell` text, which `Cell.from_text` reads back."""
        return to_text(self)

    @staticmethod
    def from_text(text: str, source: str = "cell text") -> Cell:
        """Read a cell from its text; a `FormatError` names the line, and `source` is the file's name in it."""
        return read_cell(text, Cell("cell"), source)

    def check(self) -> Cell:
        """Raise a `CellError` for what only the whole automaton shows; return the cell."""
        check_cell(self)
        return self

    @cached_property
    def _key(self) -> Any:
        """What equality compares: the cell's text. Names that would be printed count, however they were given."""
        try:
            return render(self)
        except CellError:  # names in conflict: this cell has no text yet
            labels = tuple(node.label for top in self.expressions() for node in ex.walk(top))
            return (*(getattr(self, field) for field in self.__dataclass_fields__), labels)

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, Cell) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"<Cell {self.name}: {self.state_count} states, {len(self.arcs)} arcs, {self.semiring_name}>"

    # ---- inside --------------------------------------------------------------------------------------------

    @cached_property
    def _volume(self) -> int:
        return sum(e.size for e in self.expressions())

    def _with(self, *, volume: int | None = None, **fields: Any) -> Cell:
        """Return a copy with these fields, unchecked but for the limits on a cell's size. `volume` is that of the copy,
        if known."""
        cell = Cell.__new__(Cell)
        for field in self.__dataclass_fields__:
            object.__setattr__(cell, field, fields.pop(field) if field in fields else getattr(self, field))
        assert not fields, fields
        if volume is not None:  # adding n arcs one by one should not take n² steps
            cell.__dict__["_volume"] = volume
        for what, count, most in (
            ("states", len(cell.states), MAX_STATES),
            ("arcs", len(cell.arcs), MAX_ARCS),
            ("operations in its expressions, written out in full", cell._volume, MAX_VOLUME),
        ):
            if count > most:
                raise CellError(
                    f"a cell has at most {most} {what}; cell {cell.name!r} would have {count}. "
                    "Split it into several cells."
                )
        return cell

    def family_of(self, state: str) -> ex.Family | None:
        """Return the family of this name, or None for a single state."""
        return next((f for f in self.families if f.name == state), None)

    def _meeting(self, *states: State) -> Cell:
        """Return the cell with these states, and with the families among them."""
        families = self.families
        for state in states:
            if isinstance(state, ex.Family) and state not in families:
                if state.name in self.states:
                    raise CellError(
                        f"the name {state.name!r} stands for one state or for one family; cell {self.name!r} has both, "
                        "or families of two sizes. Use two names."
                    )
                families = (*families, state)
        plain = [q.name if isinstance(q, ex.Family) else q for q in states]
        names = (*self.states, *(ex.check_name(q, "a state's name") for q in plain))
        return self._with(states=tuple(dict.fromkeys(names)), families=families, volume=self._volume)

    def _weigh(
        self, word: str, state: str, weight: ex.Operand, given: tuple[tuple[str, ex.Expr], ...]
    ) -> Cell:
        """Return the cell with the initial, final or read weight of one more state added to `given`."""
        if any(q == state for q, _ in given):
            raise CellError(f"a state has one {word} weight; {state!r} is given a second. Remove one.")
        place = _end_place(word, state)
        checked = check_weight(ex.as_expr(weight), place, self.semiring, constant=word != "read")
        check_index(checked, place, [self.family_of(state)])
        fields: dict[str, Any] = {f"{word}s": (*given, (state, checked))}
        return self._with(**fields)

    def _arc(
        self,
        first: State,
        second: State,
        weight: ex.Operand,
        epsilon: bool,
        merge: str | None,
        full: bool = False,
    ) -> Cell:
        source, target, met = str(first), str(second), self._meeting(first, second)
        if merge not in (None, "plus"):
            raise CellError(f'merge is None or "plus" (⊕); got {merge!r}')
        if merge is None and any(
            (a.source, a.target, a.epsilon, a.full) == (source, target, epsilon, full) for a in self.arcs
        ):
            raise CellError(
                f"{'ε-arc' if epsilon else 'arcs' if full else 'arc'} {source!r} → {target!r} "
                f"{'are' if full else 'is'} given twice. ",
                call='Pass merge="plus" to let both count (⊕), or write one weight.',
                line=f"Write {'mix+' if full else 'arc+ (loop+, epsilon+)'} to let both count (⊕), or write one "
                "weight.",
            )
        place = _arc_place(source, target, epsilon, full)
        expression = check_weight(ex.as_expr(weight), place, self.semiring, constant=epsilon)
        ends = met.family_of(source), met.family_of(target)
        check_ends(place, *ends, epsilon, full, source == target)
        if full:
            check_pairs(expression, place, *ends)
        else:
            check_index(expression, place, ends)
        arcs = (*self.arcs, CellArc(source, target, expression, epsilon, full))
        return met._with(arcs=arcs, volume=self._volume + expression.size)


def _end_place(word: str, state: str) -> str:
    return f"the {word} weight of {state!r}"


def _arc_place(source: str, target: str, epsilon: bool, full: bool = False) -> str:
    kind = "ε-arc" if epsilon else "arcs" if full else "arc"
    return f"the weight of the {kind} {source!r} → {target!r}"
