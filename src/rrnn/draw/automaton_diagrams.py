"""Turn cells and WFSAs into diagrams.

The arcs of a cell are labelled α/u₁(α) or ε/r, and a legend says what the names stand for. In a WFSA, arcs between the
same two states share one arrow with their symbols and numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from rrnn.automata import Cell, definitions
from rrnn.automata import expressions as ex
from rrnn.automata.evaluator import EXPRESSIONS
from rrnn.draw.diagram import Diagram, Edge, Node
from rrnn.draw.richtext import (
    EPSILON,
    Span,
    Text,
    argument,
    constant_text,
    for_all,
    formula,
    indexed,
    join,
    name_text,
    number_text,
    plain,
    printable,
    roman,
    shorten,
    symbol_letter,
)
from rrnn.errors import AutomatonError
from rrnn.semirings import Semiring
from rrnn.wfsa import EPSILON as EPSILON_SYMBOL
from rrnn.wfsa import WFSA

INLINE = 12
"""The length of an unnamed weight that fits beside its arc; a longer one gets a name in the legend."""

CELL_NAME_CHARACTERS = 20
LEGEND_LINES, LEGEND_CHARACTERS = 24, 100
FORMULA_CHARACTERS = 80
"""The length of a formula of ⊕ or ⊗ in the legend; longer ones are left out."""


def diagram_of(x: Cell | WFSA | Diagram, *, legend: bool = True) -> Diagram:
    """Return the diagram of a cell or WFSA; a diagram is returned as it is."""
    match x:
        case Diagram():
            return x
        case Cell():
            return cell_diagram(x, legend=legend)
        case WFSA():
            return wfsa_diagram(x)
    raise AutomatonError(f"a cell, a WFSA or a Diagram can be drawn; got {type(x).__name__}")


# ---- cells -------------------------------------------------------------------------------------------------------


def cell_diagram(
    cell: Cell, *, legend: bool = True, rename: Callable[[str], str] = lambda name: name
) -> Diagram:
    """Return the diagram of a cell, with its weights under the names that `rename` gives them.

    Arcs of weight zero are not drawn. Initial and final weights of one are not written.
    """
    cell.check()
    weights = _Weights(cell, rename)
    initial = {q: w for q, w in cell.initials if not isinstance(w, ex.Zero)}
    final = {q: w for q, w in (*cell.finals, *cell.reads) if not isinstance(w, ex.Zero)}
    sizes = {family.name: family.size for family in cell.families}
    nodes = tuple(
        Node(
            q,
            _state_name(q, sizes.get(q, 1)),
            initial=q in initial,
            final=q in final,
            initial_weight=weights.end(initial.get(q)),
            final_weight=weights.end(final.get(q), read=q in dict(cell.reads)),
            copies=sizes.get(q, 1),
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


def _state_name(state: str, copies: int) -> Text:
    """Write a state's name, or a family's with the number of its states."""
    name = shorten(name_text(state), CELL_NAME_CHARACTERS)
    return name if copies == 1 else (*name, *roman(f" ×{copies}"))


class _Weights:
    """Writes weights as texts. Long ones without a name are given one, which the legend explains."""

    def __init__(self, cell: Cell, rename: Callable[[str], str]) -> None:
        ring = cell.semiring
        self.one, self.zero = constant_text("1", ring.one), constant_text("0", ring.zero)
        self.names = {weight: rename(name) for weight, name in definitions(cell).items()}
        taken = {re.sub(r"_?\d+$", "", name) for name in self.names.values()}
        self.letter = next(c for c in ("w", "omega", "weight", "w_long", "w_unnamed") if c not in taken)
        self.symbol = symbol_letter(self.names.values())
        self.invented = 0

    def weight(self, weight: ex.Expr) -> Text:
        """Write a weight, by a new name if it is long and has none."""
        text = formula(weight, self.names, self.one, self.zero)
        if weight not in self.names and len(plain(text)) > INLINE:
            self.invented += 1
            self.names[weight] = f"{self.letter}{self.invented}"
            text = formula(weight, self.names, self.one, self.zero)
        # An arc α/b − c would be read as (α/b) − c.
        compound = isinstance(weight, ex.Binary) and weight not in self.names
        return (Span("("), *text, Span(")")) if compound else text

    def arc(self, weight: ex.Expr, epsilon: bool) -> Text:
        """Write the label of an arc: what it consumes, and its weight."""
        symbol = self.symbol if ex.depends_on_input(weight) else for_all(self.symbol)
        consumed = EPSILON if epsilon else symbol
        return (*consumed, Span("/"), *self.weight(weight))

    def end(self, weight: ex.Expr | None, read: bool = False) -> Text | None:
        """Write an initial or final weight, unless it is one; one that sees the last symbol as α/w."""
        if weight is None or isinstance(weight, ex.One):
            return None
        return self.arc(weight, False) if read else self.weight(weight)

    def legend(self, cell: Cell) -> Iterator[Text]:
        """Yield lines that define the names, the output, ⊕ and ⊗, and the limit of ε-arcs."""
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
    """Say what ⊕ and ⊗ are: by their usual symbols, or by formulas if they have none and the formulas are short."""
    said, formulas = [], []
    for sign, word, run in (("⊕", ring.plus_legend, ring.plus), ("⊗", ring.times_symbol, ring.times)):
        if word != sign:
            said.append(f"{sign} is {word}")
        elif len(plain(text := _operation(ring, sign, run))) <= FORMULA_CHARACTERS:
            formulas.append(text)
    first = roman(f"{ring.name} semiring" + (f": {', '.join(said)}" if said else ""))
    return [first, *formulas]


def _operation(ring: Semiring, sign: str, run: Callable[..., Any]) -> Text:
    """Write an operation as ⟨p₁, r₁⟩ ⊗ ⟨p₂, r₂⟩ = ⟨p₁ · p₂, …⟩, or as a ⊗ b = …"""
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
    """Yield a line for each definition, or one line f_j(α) = …, j = 1, 2 for several that differ only in the number."""

    def line(expr: ex.Expr, name: str, index: str | None) -> Text:
        def rename(other: str) -> str:
            match = _INDEXED.fullmatch(other)
            return f"{match[1]}_j" if match and match[2] == index else other

        left = indexed(name_text(rename(name)), expr)
        left = argument(left, weights.symbol) if ex.depends_on_input(expr) else left
        right = formula(expr, weights.names, weights.one, weights.zero, rename, top=True)
        return (*left, Span(" = "), *right)

    families: dict[Text, list[tuple[ex.Expr, str]]] = {}
    for expr, name in weights.names.items():
        if not isinstance(expr, ex.Parameter):  # a learned number has no definition
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


# ---- WFSAs ------------------------------------------------------------------------------------------------------


WFSA_NAME_CHARACTERS, LINE_CHARACTERS, LINES = 16, 18, 8


def wfsa_diagram(machine: WFSA) -> Diagram:
    """Return the diagram of a WFSA. Arcs of weight zero are not drawn; `∀α/w` stands for the whole alphabet."""
    ring = machine.semiring
    initial, final = machine.initial, machine.final

    def end(weight: Any) -> Text | None:
        return None if weight is None or weight == ring.one else weight_text(weight)

    nodes = tuple(
        Node(
            q,
            shorten(state_text(q), WFSA_NAME_CHARACTERS),
            initial=q in initial,
            final=q in final,
            initial_weight=end(initial.get(q)),
            final_weight=end(final.get(q)),
        )
        for q in machine.states
    )
    between: dict[tuple[Hashable, Hashable], dict[Hashable, Any]] = {}
    for arc in machine.arcs:
        if arc.weight != ring.zero:
            between.setdefault((arc.source, arc.target), {})[arc.symbol] = arc.weight
    edges: list[Edge] = []
    for (source, target), weights in between.items():
        entries = _entries(weights, machine.alphabet)
        edges.append(Edge(source, target, _wrapped(entries), tuple(entries)))
    title = f"A weighted automaton over the {ring.name} semiring"
    return Diagram(title, nodes, tuple(edges))


def state_text(state: Hashable) -> Text:
    """Write the name of a state: q0 → q₀, a tuple of states in brackets, anything else as it prints."""
    if isinstance(state, tuple):
        return (Span("("), *join([state_text(part) for part in state], roman(",")), Span(")"))
    return name_text(state) if isinstance(state, str) and state else roman(printable(repr(state)))


def symbol_text(symbol: Hashable) -> Text:
    """Write a symbol as it prints, in quotes where it would be misread."""
    if symbol is EPSILON_SYMBOL:
        return EPSILON
    text = str(symbol)
    if isinstance(symbol, str) and (not text or text == "ε" or any(c.isspace() or c in ",/'" for c in text)):
        text = repr(text)
    return shorten(roman(printable(text)), WFSA_NAME_CHARACTERS)


def weight_text(weight: Any, digits: int = 3) -> Text:
    """Write a weight: a number, or the components of an element in angle brackets."""
    if not isinstance(weight, tuple):
        return number_text(float(weight), digits)
    return (Span("⟨"), *join([number_text(x, digits) for x in weight], roman(", ")), Span("⟩"))


def _entries(weights: dict[Hashable, Any], alphabet: tuple[Hashable, ...]) -> list[Text]:
    """Write `a/0.5` for each symbol, or once `∀α/0.5` if the whole alphabet has the same weight."""
    entries: list[Text] = []
    common: set[Any] = {weights.get(symbol) for symbol in alphabet}
    if len(alphabet) > 1 and len(common) == 1 and None not in common:
        entries.append((*for_all(), Span("/"), *weight_text(common.pop())))
        weights = {s: w for s, w in weights.items() if s is EPSILON_SYMBOL}
    return entries + [(*symbol_text(s), Span("/"), *weight_text(w)) for s, w in weights.items()]


def _wrapped(entries: list[Text]) -> tuple[Text, ...]:
    """Set the entries in lines; the last line says how many were left out."""
    lines: list[list[Text]] = []
    for entry in entries:
        if lines and sum(len(plain(e)) + 2 for e in lines[-1]) + len(plain(entry)) <= LINE_CHARACTERS:
            lines[-1].append(entry)
        else:
            lines.append([entry])
    shown = lines if len(lines) <= LINES else lines[: LINES - 1]
    texts = [(*join(line, roman(", ")), Span(",")) for line in shown]
    if len(shown) < len(lines):
        return (*texts, roman(f"… {sum(map(len, lines[LINES - 1 :]))} more"))
    return (*texts[:-1], texts[-1][:-1])
