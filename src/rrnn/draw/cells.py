"""A cell as a diagram: arcs labelled α/u₁(α), ε/r, with a legend that says what the names stand for."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from rrnn.automata import Cell, definitions
from rrnn.automata import expressions as ex
from rrnn.automata.evaluator import EXPRESSIONS
from rrnn.draw.diagram import Diagram, Edge, Node
from rrnn.draw.maths import ALPHA, EPSILON, FOR_ALL, argument, constant_text, formula
from rrnn.draw.text import Span, Text, join, name_text, plain, roman, shorten
from rrnn.semirings import Semiring

INLINE = 12
"""Characters of an unnamed weight that still fits beside its arc; a longer one gets a name in the legend."""

NAME_CHARACTERS = 20
LEGEND_LINES, LEGEND_CHARACTERS = 24, 100
FORMULA_CHARACTERS = 80
"""Of ⊕ or ⊗, in the legend; longer ones are left out."""


def cell_diagram(cell: Cell, *, legend: bool = True) -> Diagram:
    """The diagram of a cell. Arcs of weight zero are not drawn, and a weight one of an end is not written."""
    cell.check()
    weights = _Weights(cell)
    initial = {q: w for q, w in cell.initials if not isinstance(w, ex.Zero)}
    final = {q: w for q, w in cell.finals if not isinstance(w, ex.Zero)}
    nodes = tuple(
        Node(
            q,
            shorten(name_text(q), NAME_CHARACTERS),
            initial=q in initial,
            final=q in final,
            initial_weight=weights.end(initial.get(q)),
            final_weight=weights.end(final.get(q)),
        )
        for q in cell.states
    )
    labels: dict[tuple[Hashable, Hashable], list[Text]] = {}
    for arc in cell.arcs:
        if not isinstance(arc.weight, ex.Zero):
            labels.setdefault(arc[:2], []).append(weights.arc(arc.weight, arc.epsilon))
    edges = tuple(Edge(source, target, tuple(lines)) for (source, target), lines in labels.items())
    title = f"The automaton of cell {cell.name} over the {cell.semiring_name} semiring"
    return Diagram(title, nodes, edges, tuple(weights.legend(cell)) if legend else ())


class _Weights:
    """Weights as texts. Long ones without a name are given one, which the legend explains."""

    def __init__(self, cell: Cell) -> None:
        ring = cell.semiring
        self.one, self.zero = constant_text("1", ring.one), constant_text("0", ring.zero)
        self.names = dict(definitions(cell))
        taken = {re.sub(r"_?\d+$", "", name) for name in self.names.values()}
        self.letter = next(c for c in ("w", "omega", "weight", "w_long", "w_unnamed") if c not in taken)
        self.invented = 0

    def weight(self, weight: ex.Expr) -> Text:
        text = formula(weight, self.names, self.one, self.zero)
        if weight not in self.names and len(plain(text)) > INLINE:
            self.invented += 1
            self.names[weight] = f"{self.letter}{self.invented}"
            text = formula(weight, self.names, self.one, self.zero)
        # a/b − c would be read as (a/b) − c
        compound = isinstance(weight, ex.Binary) and weight not in self.names
        return (Span("("), *text, Span(")")) if compound else text

    def arc(self, weight: ex.Expr, epsilon: bool) -> Text:
        consumed = EPSILON if epsilon else ALPHA if ex.depends_on_input(weight) else FOR_ALL
        return (*consumed, Span("/"), *self.weight(weight))

    def end(self, weight: ex.Expr | None) -> Text | None:
        return None if weight is None or isinstance(weight, ex.One) else self.weight(weight)

    def legend(self, cell: Cell) -> Iterator[Text]:
        lines = [line for line in _defined(self) if line]
        outputs = [formula(e, self.names, self.one, self.zero) for e in cell.output_exprs]
        if not isinstance(cell.output_exprs[0], ex.Score):
            lines.append((Span("output"), Span(" = "), *join(outputs, roman(", "))))
        ring = cell.semiring
        if ring.legend:
            lines += _operations(ring)
        if cell.epsilon_limit is not None:
            last = "" if cell.epsilon_after_last else ", none after the last symbol"
            lines.append((Span(f"at most {cell.epsilon_limit} "), *EPSILON, Span(f" in a row{last}")))
        hidden = len(lines) - LEGEND_LINES
        if hidden > 0:
            lines[LEGEND_LINES - 1 :] = [roman(f"… and {hidden + 1} more")]
        yield from (shorten(line, LEGEND_CHARACTERS) for line in lines)


# ---- the legend: what ⊕ and ⊗ are ------------------------------------------------------------------------------


def _operations(ring: Semiring) -> list[Text]:
    """⊕ and ⊗ by their symbols, or by formulas where they have no symbols of their own and the formulas are short."""
    said, formulas = [], []
    for sign, word, run in (("⊕", ring.plus_legend, ring.plus), ("⊗", ring.times_symbol, ring.times)):
        if word != sign:
            said.append(f"{sign} is {word}")
        elif len(plain(text := _operation(ring, sign, run))) <= FORMULA_CHARACTERS:
            formulas.append(text)
    first = roman(f"{ring.name} semiring" + (f": {', '.join(said)}" if said else ""))
    return [first, *formulas]


def _operation(ring: Semiring, sign: str, run: Callable[..., Any]) -> Text:
    """⟨p₁, r₁⟩ ⊗ ⟨p₂, r₂⟩ = ⟨p₁ · p₂, …⟩, or a ⊗ b = …"""
    names = [[f"{c}{i}" for c in ring.components] for i in (1, 2)] if ring.components else [["a"], ["b"]]
    values = [[ex.parameter(name) for name in some] for some in names]
    result = run(*(ring.element(some) for some in values), EXPRESSIONS)
    number = constant_text("1", 1.0)  # the formulas have neither one nor zero

    def show(element: Any) -> Text:
        parts = [formula(ex.as_expr(e), {}, number, number) for e in ring.numbers_of(element)]
        inside = join(parts, roman(", "))
        return (Span("⟨"), *inside, Span("⟩")) if ring.components else inside

    left, right = (show(ring.element(some)) for some in values)
    return (*left, Span(f" {sign} "), *right, Span(" = "), *show(result))


# ---- the legend: a line for each family of definitions ---------------------------------------------------------


def _defined(weights: _Weights) -> Iterator[Text]:
    """f₁(α) = …, f₂(α) = … as one line f_j(α) = …, j = 1, 2 where they differ only in the number."""

    def line(expr: ex.Expr, name: str, index: str | None) -> Text:
        def rename(other: str) -> str:
            match = _INDEXED.fullmatch(other)
            return f"{match[1]}_j" if match and match[2] == index else other

        left = name_text(rename(name))
        left = argument(left) if ex.depends_on_input(expr) else left
        right = formula(expr, weights.names, weights.one, weights.zero, rename, top=True)
        return (*left, Span(" = "), *right)

    families: dict[Text, list[tuple[ex.Expr, str]]] = {}
    for expr, name in weights.names.items():
        if not isinstance(expr, ex.Parameter):  # a learned number: there is nothing to say
            match = _INDEXED.fullmatch(name)
            families.setdefault(line(expr, name, match[2] if match else None), []).append((expr, name))
    for text, members in families.items():
        if len(members) == 1:
            yield line(*members[0], None)
        else:
            yield (*text, Span(",  "), Span("j", italic=True), Span(" = "), *_range([n for _, n in members]))


_INDEXED = re.compile(r"(.*?[^\W\d_])_?(\d+)")


def _range(names: list[str]) -> Text:
    numbers = [int(m[2]) for name in names if (m := _INDEXED.fullmatch(name))]
    if len(numbers) > 3 and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return roman(f"{numbers[0]}, …, {numbers[-1]}")
    return join([roman(str(n)) for n in numbers], roman(", "))
