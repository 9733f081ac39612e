"""A concrete WFSA as a diagram: arcs between the same two states share one, with their symbols and numbers."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from rrnn.draw.diagram import Diagram, Edge, Node
from rrnn.draw.maths import EPSILON, FOR_ALL, number_text
from rrnn.draw.text import Span, Text, join, name_text, plain, printable, roman, shorten
from rrnn.wfsa import EPSILON as EPSILON_SYMBOL
from rrnn.wfsa import WFSA

LINE_CHARACTERS, LINES = 18, 8
NAME_CHARACTERS = 16


def wfsa_diagram(machine: WFSA) -> Diagram:
    """The diagram of a WFSA. Arcs of weight zero are not drawn; `∀α/w` stands for the whole alphabet."""
    ring = machine.semiring
    initial, final = machine.initial, machine.final

    def end(weight: Any) -> Text | None:
        return None if weight is None or weight == ring.one else weight_text(weight)

    nodes = tuple(
        Node(
            q,
            shorten(state_text(q), NAME_CHARACTERS),
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
    """A state's name: q0 → q₀, a pair of states in brackets, anything else as it prints."""
    if isinstance(state, tuple):
        return (Span("("), *join([state_text(part) for part in state], roman(",")), Span(")"))
    return name_text(state) if isinstance(state, str) and state else roman(printable(repr(state)))


def symbol_text(symbol: Hashable) -> Text:
    """A symbol as it prints, in quotes where it would be misread."""
    if symbol is EPSILON_SYMBOL:
        return EPSILON
    text = str(symbol)
    if isinstance(symbol, str) and (not text or text == "ε" or any(c.isspace() or c in ",/'" for c in text)):
        text = repr(text)
    return shorten(roman(printable(text)), NAME_CHARACTERS)


def weight_text(weight: Any, digits: int = 3) -> Text:
    """A number, or the components of an element in angle brackets."""
    if not isinstance(weight, tuple):
        return number_text(float(weight), digits)
    return (Span("⟨"), *join([number_text(x, digits) for x in weight], roman(", ")), Span("⟩"))


def _entries(weights: dict[Hashable, Any], alphabet: tuple[Hashable, ...]) -> list[Text]:
    """`a/0.5` for each symbol, or one `∀α/0.5` where the whole alphabet has one weight."""
    entries: list[Text] = []
    common: set[Any] = {weights.get(symbol) for symbol in alphabet}
    if len(alphabet) > 1 and len(common) == 1 and None not in common:
        entries.append((*FOR_ALL, Span("/"), *weight_text(common.pop())))
        weights = {s: w for s, w in weights.items() if s is EPSILON_SYMBOL}
    return entries + [(*symbol_text(s), Span("/"), *weight_text(w)) for s, w in weights.items()]


def _wrapped(entries: list[Text]) -> tuple[Text, ...]:
    """The entries set in lines of a few, the last of which says what was left out."""
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
