"""Read and write WFSAs as JSON, exactly: weights, order and names are read back unchanged.

    {
      "format": "rrnn-wfsa", "version": 1,
      "semiring": "real",
      "states": ["q0", 7, {"tuple": ["q", 1]}],
      "alphabet": ["a", "b"],
      "initial": [[0, 1.0]],
      "final": [[2, 0.5]],
      "arcs": [[0, 0, 1, 0.25], [1, null, 2, 1.0]]
    }

`initial`, `final` and `arcs` refer to states and symbols by their indices in the lists `states` and `alphabet`. An arc
is `[source, symbol, target, weight]`, with `null` in the place of the symbol for ε, so that no name is mistaken for it.
A state without an initial or final weight has the semiring's zero.

Weights are written with all the digits that are needed to restore them bit by bit; infinities are the strings
`"Infinity"` and `"-Infinity"`. States and symbols may be strings, integers, floats, true, false, null and
tuples of these, written `{"tuple": [...]}`; an infinite float is `{"float": "Infinity"}`.

Over a semiring of several components (complex, expectation, signed-log) a weight is the list of its numbers, in the
order of the components: `[0, 0, 1, [0.5, -0.25]]`. Such a file has version 2, since version 1 has no such weights;
all others have version 1. A semiring of your own must be registered before its files are read.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from typing import Any, NoReturn

from rrnn.errors import FormatError, RRNNError
from rrnn.semirings import Semiring, get_semiring
from rrnn.wfsa.automaton import indexed_arcs
from rrnn.wfsa.io.files import (
    PathLike,
    Source,
    brief,
    checked_weight,
    read_text,
    shown,
    write_text,
)
from rrnn.wfsa.machine import WFSA
from rrnn.wfsa.symbols import EPSILON

FORMAT = "rrnn-wfsa"
VERSION, COMPONENTS_VERSION = 1, 2  # the second where a weight has several components
_KEYS = {"format", "version", "semiring", "states", "alphabet", "initial", "final", "arcs"}
_INFINITIES = {"Infinity": math.inf, "-Infinity": -math.inf}
_DEEPEST = 50  # the deepest nesting of tuples, far below Python's recursion limit


def save_json(wfsa: WFSA, path: PathLike) -> None:
    """Write a WFSA as JSON. Gradients are not stored."""
    write_text(path, to_json(wfsa))


def load_json(path: PathLike, *, allow_empty: bool = False) -> WFSA:
    """Read a WFSA written by `save_json`; `allow_empty` as in `WFSA`."""
    return from_json(read_text(path), source=os.fspath(path), allow_empty=allow_empty)


# ---- writing -----------------------------------------------------------------------------------------------


def to_json(wfsa: WFSA) -> str:
    """Return the JSON text, with one state, symbol or arc on a line, so that files can be compared by line."""
    ring = wfsa.semiring
    vectors = {"initial": ring.numbers(wfsa.initial_weight), "final": ring.numbers(wfsa.final_weight)}
    parts = {
        "format": _dump(FORMAT),
        "version": _dump(COMPONENTS_VERSION if ring.components else VERSION),
        "semiring": _dump(ring.name),
        "states": _rows(_label(state, "state") for state in wfsa.states),
        "alphabet": _rows(_label(symbol, "symbol") for symbol in wfsa.alphabet),
        **{
            key: _rows([i, _weight(weight)] for i, weight in enumerate(vector) if weight != ring.zero)
            for key, vector in vectors.items()
        },
        "arcs": _rows(
            [q, None if a < 0 else a, r, _weight(weight)] for q, a, r, weight in indexed_arcs(wfsa)
        ),
    }
    return "{\n" + ",\n".join(f" {_dump(key)}: {text}" for key, text in parts.items()) + "\n}\n"


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _rows(values: Any) -> str:
    rows = ",\n".join(f"  {_dump(value)}" for value in values)
    return f"[\n{rows}\n ]" if rows else "[]"


def _weight(weight: Any) -> Any:
    if isinstance(weight, tuple):
        return [_weight(number) for number in weight]
    return weight if math.isfinite(weight) else "Infinity" if weight > 0 else "-Infinity"


def _label(label: Any, what: str, depth: int = 0) -> Any:
    if label is None or label is True or label is False:
        return label
    kind = type(label)  # not isinstance: an enum or a NumPy number would be read back as another type
    if kind is str and _is_unicode(label):
        return label
    if kind is int and abs(label) < 10**4000:  # Python parses no longer numbers
        return label
    if kind is float and math.isfinite(label):
        return label
    if kind is float and math.isinf(label):
        return {"float": _weight(label)}
    if kind is tuple and depth < _DEEPEST:
        return {"tuple": [_label(item, what, depth + 1) for item in label]}
    raise FormatError(
        "in JSON a state or symbol must be a str, int, float (not NaN), bool, None or a tuple of these, nested "
        f"at most {_DEEPEST} deep; got the {what} {shown(label)} ({kind.__name__}). Rename it before saving."
    )


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


# ---- reading -----------------------------------------------------------------------------------------------


def from_json(text: str, *, source: str | None = None, allow_empty: bool = False) -> WFSA:
    """Return the WFSA that a JSON text describes."""
    reader = _Reader(source)
    data = reader.parse(text)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        reader.fail(f'a WFSA in JSON must be an object with "format": "{FORMAT}"; this is something else')
    if type(data.get("version")) is not int or data["version"] not in (VERSION, COMPONENTS_VERSION):
        reader.fail(
            f"this rrnn reads versions {VERSION} and {COMPONENTS_VERSION} of the format; the file has "
            f"{shown(data.get('version'))}"
        )
    if set(data) != _KEYS:
        odd = sorted(set(data) ^ _KEYS)[0]
        keys = ", ".join(sorted(_KEYS))
        reader.fail(f"the keys must be {keys}; {shown(odd)} is {'missing' if odd in _KEYS else 'unknown'}")
    try:
        return reader.machine(data, allow_empty)
    except FormatError:
        raise
    except RRNNError as error:
        raise FormatError(brief(error), source=source) from error


class _Reader(Source):
    """Read the parts of a WFSA from parsed JSON."""

    def parse(self, text: str) -> Any:
        def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
            found = dict(items)
            if len(found) != len(items):
                raise ValueError("an object has the same key twice")
            return found

        def decimal(token: str) -> float:
            if math.isinf(value := float(token)):
                raise ValueError(
                    f'the number {shown(token)} is too large; an infinity is the string "Infinity"'
                )
            return value

        def constant(token: str) -> NoReturn:
            raise ValueError(f'{token} is not JSON; infinities are the strings "Infinity" and "-Infinity"')

        try:
            return json.loads(text, object_pairs_hook=pairs, parse_float=decimal, parse_constant=constant)
        except json.JSONDecodeError as error:
            self.fail(f"this is not JSON: {error.msg} (column {error.colno})", error.lineno)
        except RecursionError:
            self.fail("this is not a WFSA: its JSON is nested too deeply")
        except ValueError as error:
            self.fail(f"this is not a WFSA: {error}")

    def machine(self, data: dict[str, Any], allow_empty: bool) -> WFSA:
        name = data["semiring"]
        if not isinstance(name, str) or len(name) > 40:  # the search for a similar name would be slow
            self.fail(f"semiring must be the name of a semiring; got {shown(name)}")
        semiring = get_semiring(name)
        if semiring.components and data["version"] != COMPONENTS_VERSION:
            self.fail(
                f"weights over {semiring.name} have several components, "
                f"which need version {COMPONENTS_VERSION} of the format"
            )
        states = [self.label(v, f"states[{i}]") for i, v in enumerate(self.items(data, "states"))]
        alphabet = [self.label(v, f"alphabet[{i}]") for i, v in enumerate(self.items(data, "alphabet"))]
        if not alphabet:
            self.fail("alphabet must have at least one symbol")
        initial: dict[Any, Any] = {}
        final: dict[Any, Any] = {}
        for key, vector in (("initial", initial), ("final", final)):
            for i, row in enumerate(self.items(data, key)):
                where = f"{key}[{i}]"
                state, weight = self.row(row, "[state, weight]", 2, where)
                state = self.pick(states, state, "state", where)
                if state in vector:
                    self.fail(f"{where}: the state {shown(state)} has two weights")
                vector[state] = self.weight(weight, semiring, where)
        arcs = []
        for i, row in enumerate(self.items(data, "arcs")):
            where = f"arcs[{i}]"
            q, a, r, weight = self.row(row, "[source, symbol, target, weight]", 4, where)
            source, target = (self.pick(states, state, "state", where) for state in (q, r))
            symbol = EPSILON if a is None else self.pick(alphabet, a, "symbol", where)
            arcs.append((source, symbol, target, self.weight(weight, semiring, where)))
        return WFSA(
            semiring,
            alphabet=alphabet,
            arcs=arcs,
            initial=initial,
            final=final,
            states=states,
            allow_empty=allow_empty,
        )

    def items(self, data: dict[str, Any], key: str) -> Sequence[Any]:
        if not isinstance(data[key], list):
            self.fail(f"{key} must be a list; got {shown(data[key])}")
        return data[key]

    def row(self, row: Any, form: str, length: int, where: str) -> Sequence[Any]:
        if not isinstance(row, list) or len(row) != length:
            self.fail(f"{where} must be {form}; got {shown(row)}")
        return row

    def pick(self, items: Sequence[Any], index: Any, what: str, where: str) -> Any:
        if type(index) is not int or not 0 <= index < len(items):
            self.fail(f"{where}: a {what} must be a number from 0 to {len(items) - 1}; got {shown(index)}")
        return items[index]

    def weight(self, value: Any, semiring: Semiring, where: str) -> Any:
        def number(part: Any) -> Any:
            found = _INFINITIES.get(part) if isinstance(part, str) else part
            if type(found) is not int and type(found) is not float:  # not isinstance: true is no weight
                self.fail(
                    f'{where}: a weight must be a number, "Infinity" or "-Infinity"; got {shown(value)}'
                )
            return found

        if semiring.components:
            if not isinstance(value, list) or len(value) != semiring.size:
                names = ", ".join(semiring.components)
                self.fail(
                    f"{where}: a weight over {semiring.name} must be a list of {semiring.size} numbers ({names}); "
                    f"got {shown(value)}"
                )
            weight = tuple(number(part) for part in value)
        else:
            weight = number(value)
        try:
            return checked_weight(weight, semiring)
        except RRNNError as error:
            self.fail(f"{where}: {brief(error)}")

    def label(self, value: Any, where: str, depth: int = 0) -> Any:
        if value is None or isinstance(value, str | int | float):
            return value
        if isinstance(value, dict) and len(value) == 1 and depth < _DEEPEST:
            ((kind, inner),) = value.items()
            if kind == "float" and isinstance(inner, str) and inner in _INFINITIES:
                return _INFINITIES[inner]
            if kind == "tuple" and isinstance(inner, list):
                return tuple(self.label(item, where, depth + 1) for item in inner)
        self.fail(
            f'{where}: a name must be a string, a number, true, false, null or {{"tuple": [...]}}; got {shown(value)}'
        )
