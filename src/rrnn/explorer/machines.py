"""The automata of the page *Score*: the paper's B, C, D and F with given weights, or the text of a WFSA."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from rrnn.errors import AutomatonError, FormatError
from rrnn.wfsa import WFSA
from rrnn.wfsa.io import from_json, from_openfst, from_pautomac
from rrnn.wfsa.io.strings import symbol_reader
from rrnn.zoo.paper_automata import automaton_b, automaton_c, automaton_d, automaton_f

MAX_TEXT, MAX_STATES, MAX_ARCS, MAX_ALPHABET, MAX_STRING = 50_000, 40, 1000, 24, 60
"""The limits of the page, whose table and picture show no more."""

Functions = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Template:
    """An automaton of the paper: how to make it, and the weight functions and constants that the page shows first."""

    says: str
    make: Callable[..., WFSA]
    """Called with the alphabet, the functions and constants by name, and `semiring=`."""
    functions: Functions
    """Weight functions by name, as {symbol: weight}; `""` stands for every other symbol."""
    constants: dict[str, float] = field(default_factory=dict)


def _first_of_d(symbols: list[str], *, semiring: str, **f: dict[str, float]) -> WFSA:
    matrices = {s: [[f["mu_1_1"][s], f["mu_1_2"][s]], [f["mu_2_1"][s], f["mu_2_2"][s]]] for s in symbols}
    vectors = {s: [f["eta_1"][s], f["eta_2"][s]] for s in symbols}
    return automaton_d(symbols, matrices, vectors, semiring, units=[0])[0]


_PAIR = {
    "mu1": {"": 0.0, "not": 1.0},
    "phi1": {"": 0.1, "so": 0.9},
    "mu2": {"": 0.0, "good": 2.0},
    "phi2": {"": 0.5},
}

TEMPLATES: dict[str, Template] = {
    "B": Template(
        "one word, remembered: μ matches it, φ lets it fade",
        automaton_b,
        {"mu": {"": 0.0, "good": 1.0, "not": -0.5}, "phi": {"": 0.8, "is": 0.9}},
    ),
    "C": Template(
        "two words with a gap: μ₁ matches the first, φ₁ skips, μ₂ matches the second", automaton_c, _PAIR
    ),
    "D": Template(
        "the first dimension of a two-dimensional ISAN: a matrix μ and a vector η for every word",
        _first_of_d,
        {
            "mu_1_1": {"": 0.6},
            "mu_1_2": {"": 0.2, "good": 0.5},
            "mu_2_1": {"": 0.0, "is": 0.3},
            "mu_2_2": {"": 0.7},
            "eta_1": {"": 0.0, "good": 1.0},
            "eta_2": {"": 0.0, "not": -1.0},
        },
    ),
    "F": Template(
        "one word or two: q₁ is final, too, and the ε-arc skips the first word",
        automaton_f,
        _PAIR,
        {"gamma": 0.25, "rho1": 0.5, "rho2": 1.0},
    ),
}

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
    """Return the machine that a request describes: {"text": …}, or a template with alphabet, functions, constants."""
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


def _from_template(asked: dict[str, Any]) -> WFSA:
    name, semiring, alphabet = (asked.get(key) for key in ("automaton", "semiring", "alphabet"))
    if not isinstance(name, str) or name not in TEMPLATES:
        raise FormatError(f"automaton must be one of {', '.join(TEMPLATES)}; got {str(name)[:40]!r}")
    if not isinstance(semiring, str) or len(semiring) > 40:
        raise FormatError("semiring must be the name of a semiring, of at most 40 characters")
    if not isinstance(alphabet, list) or not all(isinstance(s, str) and 0 < len(s) <= 40 for s in alphabet):
        raise FormatError("alphabet must be a list of symbols, each a string of 1 to 40 characters")
    if not 0 < len(alphabet) <= MAX_ALPHABET:
        raise FormatError(f"an alphabet must have 1 to {MAX_ALPHABET} symbols; got {len(alphabet)}")
    if twice := [symbol for i, symbol in enumerate(alphabet) if symbol in alphabet[:i]]:
        raise FormatError(f"an alphabet must have each symbol once; {twice[0]!r} occurs twice")
    template = TEMPLATES[name]
    given = _table(asked.get("functions"), template.functions, "functions")
    functions = {key: _numbers(given[key], alphabet, f"the function {key}") for key in template.functions}
    constants = _numbers(asked.get("constants"), list(template.constants), "the constants")
    return template.make(alphabet, **functions, **constants, semiring=semiring)


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
