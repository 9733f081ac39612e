"""The automata of the tab *Score*: the paper's B, C, D and F or any cell, with given weights, or a WFSA as text."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from rrnn.automata import Cell, definitions, evaluate, expr_text
from rrnn.automata import expressions as ex
from rrnn.automata.unroll import is_wide
from rrnn.draw.richtext import name_text, plain
from rrnn.errors import AutomatonError, FormatError
from rrnn.semirings import get_semiring
from rrnn.wfsa import WFSA
from rrnn.wfsa.instantiate import with_weights
from rrnn.wfsa.io import from_json, from_openfst, from_pautomac
from rrnn.wfsa.io.strings import symbol_reader
from rrnn.zoo import get_cell
from rrnn.zoo.paper_automata import automaton_d

MAX_TEXT, MAX_STATES, MAX_ARCS, MAX_ALPHABET, MAX_STRING = 50_000, 40, 1000, 24, 60
"""The limits of the tab, whose table and picture show no more."""
MAX_CELL_TEXT, MAX_CELL_ARCS = 20_000, 400
"""The limits of cells: larger ones compile, but not fast enough while the user types."""

Functions = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Template:
    """An automaton whose weights are numbers that the user gives: how to make it, and the numbers shown first."""

    says: str
    make: Callable[[list[str], Functions, dict[str, float], str], WFSA]
    """Called with the alphabet, the functions and the constants by name, and the semiring."""
    functions: Functions
    """Weight functions by name, as {symbol: weight}; `""` stands for every other symbol."""
    constants: dict[str, float] = field(default_factory=dict)


_FIXED = (ex.One, ex.Zero, ex.Number)
"""Weights that are no one's to choose."""


def _of_cell(cell: Cell, says: str, functions: Functions, constants: dict[str, float]) -> Template:
    """Return the template of a cell: each of its weights is a column, or a constant, under the weight's own name."""
    names = definitions(cell)

    def make(symbols: list[str], given: Functions, fixed: dict[str, float], semiring: str) -> WFSA:
        ring = get_semiring(semiring)

        def weight(expr: ex.Expr, symbol: Hashable) -> Any:
            if isinstance(expr, _FIXED):
                return evaluate(expr, {}, ring)
            name = expr_text(expr, names)
            return given[name][str(symbol)] if name in given else fixed[name]

        return with_weights(cell, symbols, weight, ring, allow_empty=True)

    return Template(says, make, functions, constants)


def _isan(symbols: list[str], f: Functions, constants: dict[str, float], semiring: str) -> WFSA:
    matrices = {s: [[f["mu_1_1"][s], f["mu_1_2"][s]], [f["mu_2_1"][s], f["mu_2_2"][s]]] for s in symbols}
    vectors = {s: [f["eta_1"][s], f["eta_2"][s]] for s in symbols}
    return automaton_d(symbols, matrices, vectors, semiring, units=[0])[0]


_PAIR = {
    "u1": {"": 0.0, "not": 1.0},
    "f1": {"": 0.1, "so": 0.9},
    "u2": {"": 0.0, "good": 2.0},
    "f2": {"": 0.5},
}

TEMPLATES: dict[str, Template] = {
    "B": _of_cell(
        get_cell("B"),
        "one word, remembered: u matches it, f lets it fade",
        {"u": {"": 0.0, "good": 1.0, "not": -0.5}, "f": {"": 0.8, "is": 0.9}},
        {},
    ),
    "C": _of_cell(
        get_cell("C"),
        "two words with a gap: u₁ matches the first, f₁ skips, u₂ matches the second",
        _PAIR,
        {},
    ),
    "D": Template(
        "the first dimension of a two-dimensional ISAN: a matrix μ and a vector η for every word",
        _isan,
        {
            "mu_1_1": {"": 0.6},
            "mu_1_2": {"": 0.2, "good": 0.5},
            "mu_2_1": {"": 0.0, "is": 0.3},
            "mu_2_2": {"": 0.7},
            "eta_1": {"": 0.0, "good": 1.0},
            "eta_2": {"": 0.0, "not": -1.0},
        },
    ),
    "F": _of_cell(
        get_cell("F"),
        "one word or two: q₁ is final, too, and the ε-arc skips the first word",
        _PAIR,
        {"r": 0.25, "p1": 0.5, "p2": 1.0},
    ),
}


def cell_template(cell: Cell) -> Template:
    """Return the template of any cell. Its numbers are those of a unit with random weights; the output is left out."""
    weights = [weight for _, weight in cell.weights() if not isinstance(weight, _FIXED)]
    leaves = [node for weight in weights for node in ex.walk(weight) if not node.children]
    if is_wide(cell):
        raise AutomatonError(
            "the tab Score takes automata of single states; this one has families of states, or units share weights"
        )
    if cell.semiring.components:
        raise AutomatonError(
            f"the tab Score takes weights of one number; those of the {cell.semiring_name} semiring have "
            f"{len(cell.semiring.components)}. `rrnn score` reads such automata from files."
        )
    if wide := [leaf for leaf in leaves if isinstance(leaf, ex.Linear) and leaf.window > 1]:
        raise AutomatonError(
            f"the tab Score takes a weight for each symbol; {wide[0].name} sees {wide[0].window} symbols at a time"
        )
    names, random = definitions(cell), Random(0)
    fixed = {leaf.name: random.gauss() for leaf in dict.fromkeys(leaves) if isinstance(leaf, ex.Parameter)}
    functions: Functions = {}
    constants: dict[str, float] = {}
    moving = {_leaf(leaf): 0.0 for leaf in leaves if isinstance(leaf, (ex.Linear, ex.Input))}
    for symbol in ("", *dict.fromkeys(str(EXAMPLE["alphabet"]).split())):
        values = fixed | {name: random.gauss() for name in moving}
        for weight in weights:
            name, value = expr_text(weight, names), _rounded(weight, values, cell)
            if ex.depends_on_input(weight):
                functions.setdefault(name, {})[symbol] = value
            else:
                constants[name] = value
    output = ", ".join(expr_text(e, names) for e in cell.output_exprs)
    says = "the cell of the tab Design, with weights of its own for you to change"
    return _of_cell(
        cell, says if output == "score" else f"{says}; the output {output} is left out", functions, constants
    )


def shown_template(template: Template) -> dict[str, Any]:
    """Return a template for the page: each function and constant with its name, its label and its first numbers."""

    def named(name: str, value: Any) -> dict[str, Any]:
        return {"name": name, "label": plain(name_text(name)), "value": value}

    return {
        "says": template.says,
        "functions": [named(*each) for each in template.functions.items()],
        "constants": [named(*each) for each in template.constants.items()],
    }


def _leaf(node: ex.Expr) -> str:
    return node.name if isinstance(node, ex.Linear) else "input"


def _rounded(weight: ex.Expr, values: dict[str, float], cell: Cell) -> float:
    """Return the value of a weight, short enough for a table."""
    value = float(f"{evaluate(weight, values, cell.semiring):.2g}")
    if not math.isfinite(value):
        raise AutomatonError("the tab Score takes finite weights; this cell has weights that are not")
    return value


EXAMPLE: dict[str, Any] = {
    "automaton": "F",
    "alphabet": "the film is not so good",
    "string": "the film is not so good",
    "text": """{
 "format": "rrnn-wfsa", "version": 1,
 "semiring": "counting",
 "states": ["q0", "q1", "q2"],
 "alphabet": ["a", "b"],
 "initial": [[0, 1]],
 "final": [[2, 1]],
 "arcs": [
  [0, 0, 0, 1], [0, 1, 0, 1],
  [0, 0, 1, 1], [1, 1, 2, 1],
  [2, 0, 2, 1], [2, 1, 2, 1]
 ]
}
""",
    "text_string": "abbabab",
}
"""What the page shows first. The text is a machine that counts how often "ab" occurs in a string."""


def machine_of(asked: dict[str, Any]) -> WFSA:
    """Return the machine that a request describes: {"text": …}, or a template's name or a cell's text (`automaton` or
    `cell`) with semiring, alphabet, functions and constants."""
    machine = read_text(asked["text"]) if isinstance(asked.get("text"), str) else _from_template(asked)
    if (
        machine.num_states > MAX_STATES
        or machine.num_arcs > MAX_ARCS
        or len(machine.alphabet) > MAX_ALPHABET * 2
    ):
        raise AutomatonError(
            f"this page scores automata of up to {MAX_STATES} states, {MAX_ARCS} arcs and {2 * MAX_ALPHABET} symbols; "
            f"this one has {machine.num_states}, {machine.num_arcs} and {len(machine.alphabet)}. `rrnn score` has no "
            "such limit."
        )
    return machine


def read_text(text: str) -> WFSA:
    """Return the WFSA that a text describes: JSON, a PAutomaC model, or else OpenFst's format."""
    if len(text) > MAX_TEXT:
        raise FormatError(f"this page reads WFSAs of up to {MAX_TEXT} characters; got {len(text)}")
    beginning = text.lstrip()[:2]
    read = from_json if beginning[:1] == "{" else from_pautomac if beginning == "I:" else from_openfst
    return read(text)


def read_string(machine: WFSA, text: str) -> tuple[Hashable, ...]:
    """Return a text as symbols, separated by blanks; if every symbol is one character, blanks are optional."""
    letters = all(isinstance(symbol, str) and len(symbol) == 1 for symbol in machine.alphabet)
    tokens = list("".join(text.split())) if letters else text.split()
    if len(tokens) > MAX_STRING:
        raise FormatError(f"this page scores strings of up to {MAX_STRING} symbols; got {len(tokens)}")
    reader = symbol_reader(machine.alphabet)
    unknown = [token for token in tokens if reader(token) is None]
    if unknown:
        known = ", ".join(str(symbol) for symbol in machine.alphabet)[:200]
        raise FormatError(
            f"a string must be made of symbols of the alphabet ({known}), which lacks {unknown[0][:40]!r}"
        )
    return tuple(reader(token) for token in tokens)


def read_cell(text: str) -> Cell:
    """Return the cell that a text describes, if it is small enough for the page."""
    if len(text) > MAX_CELL_TEXT:
        raise FormatError(f"the page accepts cells of up to {MAX_CELL_TEXT} characters; got {len(text)}")
    cell = Cell.from_text(text)
    if len(cell.states) > MAX_STATES or len(cell.arcs) > MAX_CELL_ARCS:
        raise FormatError(
            f"the page compiles cells of up to {MAX_STATES} states and {MAX_CELL_ARCS} arcs; this one has "
            f"{len(cell.states)} and {len(cell.arcs)}. Use `rrnn derive`, which has no such limit."
        )
    return cell


def _from_template(asked: dict[str, Any]) -> WFSA:
    semiring, alphabet = asked.get("semiring"), asked.get("alphabet")
    if not isinstance(semiring, str) or len(semiring) > 40:
        raise FormatError("semiring must be the name of a semiring, of at most 40 characters")
    if not isinstance(alphabet, list) or not all(isinstance(s, str) and 0 < len(s) <= 40 for s in alphabet):
        raise FormatError("alphabet must be a list of symbols, each a string of 1 to 40 characters")
    if not 0 < len(alphabet) <= MAX_ALPHABET:
        raise FormatError(f"an alphabet must have 1 to {MAX_ALPHABET} symbols; got {len(alphabet)}")
    if twice := [symbol for i, symbol in enumerate(alphabet) if symbol in alphabet[:i]]:
        raise FormatError(f"an alphabet must have each symbol once; {twice[0]!r} occurs twice")
    template = _template(asked)
    given = _table(asked.get("functions"), template.functions, "functions")
    functions = {key: _numbers(given[key], alphabet, f"the function {key}") for key in template.functions}
    constants = _numbers(asked.get("constants"), list(template.constants), "the constants")
    return template.make(alphabet, functions, constants, semiring)


def _template(asked: dict[str, Any]) -> Template:
    if isinstance(text := asked.get("cell"), str):
        return cell_template(read_cell(text))
    name = asked.get("automaton")
    if not isinstance(name, str) or name not in TEMPLATES:
        raise FormatError(f"automaton must be one of {', '.join(TEMPLATES)}; got {str(name)[:40]!r}")
    return TEMPLATES[name]


def _table(value: Any, keys: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) != set(keys):
        raise FormatError(f"{what} must have exactly the names {', '.join(keys) or '(none)'}")
    return value


def _numbers(value: Any, keys: list[str], what: str) -> dict[str, float]:
    table = _table(value, keys, what)
    for key, number in table.items():
        if type(number) not in (int, float) or not abs(number) <= 1e100:
            raise FormatError(
                f"{what}: {key} needs a number of magnitude up to 1e100; got {str(number)[:40]!r}"
            )
    return {key: float(number) for key, number in table.items()}
