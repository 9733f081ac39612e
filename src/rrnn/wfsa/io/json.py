"""WFSAs as JSON that round-trips exactly: weights, order and names come back as they were.

    {
      "format": "rrnn-wfsa", "version": 1,
      "semiring": "real",
      "states": ["q0", 7, {"tuple": ["q", 1]}],
      "alphabet": ["a", "b"],
      "initial": [[0, 1.0]],
      "final": [[2, 0.5]],
      "arcs": [[0, 0, 1, 0.25], [1, null, 2, 1.0]]
    }

Numbers in `initial`, `final` and `arcs` count in the lists `states` and `alphabet` (from 0), so an arc is
`[source, symbol, target, weight]`, with `null` in the place of the symbol for ε: no name is mistaken for it.
A state without an initial or final weight has the semiring's zero.

Weights are written with all the digits that they need to come back bit by bit; infinities are the strings
`"Infinity"` and `"-Infinity"`. States and symbols may be strings, integers, floats, true, false, null and
tuples of these, written `{"tuple": [...]}`; an infinite float is `{"float": "Infinity"}`.

Over a semiring of several components (complex, expectation, signed-log) a weight is the list of its numbers, in the
order of the components: `[0, 0, 1, [0.5, -0.25]]`. Such a file has version 2, since older readers know no such weights;
all others keep version 1. A semiring of your own must be registered before a file of it is read.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from typing import Any, NoReturn

from rrnn.errors import FormatError, RRNNError
from rrnn.semirings import Semiring, get_semiring
from rrnn.wfsa.io.costs import checked
from rrnn.wfsa.io.files import PathLike, brief, indexed_arcs, read_text, shown, write_text
from rrnn.wfsa.machine import WFSA
from rrnn.wfsa.symbols import EPSILON

FORMAT = "rrnn-wfsa"
VERSION, COMPONENTS_VERSION = 1, 2  # the second where a weight has several components
_KEYS = {"format", "version", "semiring", "states", "alphabet", "initial", "final", "arcs"}
_INFINITIES = {"Infinity": math.inf, "-Infinity": -math.inf}
_DEEPEST = 50  # nested tuples: far below Python's own limit, which would end in a RecursionError


def save_json(wfsa: WFSA, path: PathLike) -> None:
    """Write a WFSA as JSON. Gradients are not kept."""
    write_text(path, to_json(wfsa))


def load_json(path: PathLike, *, allow_empty: bool = False) -> WFSA:
    """Read a WFSA written by `save_json`; `allow_empty` as in `WFSA`."""
    return from_json(read_text(path), source=os.fspath(path), allow_empty=allow_empty)


# ---- writing -----------------------------------------------------------------------------------------------


def to_json(wfsa: WFSA) -> str:
    """The JSON text: one state, symbol or arc a line, so that files can be compared line by line."""
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
    kind = type(label)  # not isinstance: an enum or a NumPy number would not come back as what it was
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
        "in JSON a state or symbol is a str, int, float (not NaN), bool, None or a tuple of these, nested "
        f"{_DEEPEST} deep at most; got the {what} {shown(label)} ({kind.__name__}). Rename it before saving."
    )


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


# ---- reading -----------------------------------------------------------------------------------------------


def from_json(text: str, *, source: str | None = None, allow_empty: bool = False) -> WFSA:
    """The WFSA that a JSON text describes."""

    def fail(message: str, line: int | None = None) -> NoReturn:
        raise FormatError(message, source=source, line=line)

    data = _parse(text, fail)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        fail(f'a WFSA in JSON is an object with "format": "{FORMAT}"; this is something else')
    if type(data.get("version")) is not int or data["version"] not in (VERSION, COMPONENTS_VERSION):
        fail(
            f"this rrnn reads versions {VERSION} and {COMPONENTS_VERSION} of the format; the file has "
            f"{shown(data.get('version'))}"
        )
    if set(data) != _KEYS:
        odd = sorted(set(data) ^ _KEYS)[0]
        keys = ", ".join(sorted(_KEYS))
        fail(f"the keys are {keys}; {shown(odd)} is {'missing' if odd in _KEYS else 'unknown'}")
    try:
        return _build(data, fail, allow_empty)
    except FormatError:
        raise
    except RRNNError as error:
        raise FormatError(brief(error), source=source) from error


def _parse(text: str, fail: Callable[..., NoReturn]) -> Any:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) != len(items):
            raise ValueError("a key stands twice in one object")
        return found

    def decimal(token: str) -> float:
        if math.isinf(value := float(token)):
            raise ValueError(f'the number {shown(token)} is too large; an infinity is the string "Infinity"')
        return value

    def constant(token: str) -> NoReturn:
        raise ValueError(f'{token} is not JSON; infinities are the strings "Infinity" and "-Infinity"')

    try:
        return json.loads(text, object_pairs_hook=pairs, parse_float=decimal, parse_constant=constant)
    except json.JSONDecodeError as error:
        fail(f"this is not JSON: {error.msg} (column {error.colno})", error.lineno)
    except RecursionError:
        fail("this is no WFSA: its JSON is nested too deeply")
    except ValueError as error:
        fail(f"this is no WFSA: {error}")


def _build(data: dict[str, Any], fail: Callable[..., NoReturn], allow_empty: bool) -> WFSA:
    name = data["semiring"]
    if not isinstance(name, str) or len(name) > 40:  # a longer one costs time in the search for a near name
        fail(f"semiring must be the name of one; got {shown(name)}")
    semiring = get_semiring(name)
    if semiring.components and data["version"] != COMPONENTS_VERSION:
        fail(
            f"weights over {semiring.name} have several components, "
            f"which version {COMPONENTS_VERSION} of the format has"
        )
    states = [_read_label(v, f"states[{i}]", fail) for i, v in enumerate(_list(data, "states", fail))]
    alphabet = [_read_label(v, f"alphabet[{i}]", fail) for i, v in enumerate(_list(data, "alphabet", fail))]
    if not alphabet:
        fail("alphabet must have at least one symbol")
    initial: dict[Any, Any] = {}
    final: dict[Any, Any] = {}
    for key, vector in (("initial", initial), ("final", final)):
        for i, row in enumerate(_list(data, key, fail)):
            where = f"{key}[{i}]"
            state, weight = _row(row, "[state, weight]", 2, where, fail)
            state = _pick(states, state, "state", where, fail)
            if state in vector:
                fail(f"{where}: the state {shown(state)} has two weights")
            vector[state] = _read_weight(weight, semiring, where, fail)
    arcs = []
    for i, row in enumerate(_list(data, "arcs", fail)):
        where = f"arcs[{i}]"
        q, a, r, weight = _row(row, "[source, symbol, target, weight]", 4, where, fail)
        arcs.append(
            (
                _pick(states, q, "state", where, fail),
                EPSILON if a is None else _pick(alphabet, a, "symbol", where, fail),
                _pick(states, r, "state", where, fail),
                _read_weight(weight, semiring, where, fail),
            )
        )
    return WFSA(
        semiring,
        alphabet=alphabet,
        arcs=arcs,
        initial=initial,
        final=final,
        states=states,
        allow_empty=allow_empty,
    )


def _list(data: dict[str, Any], key: str, fail: Callable[..., NoReturn]) -> list[Any]:
    return data[key] if isinstance(data[key], list) else fail(f"{key} must be a list; got {shown(data[key])}")


def _row(row: Any, form: str, length: int, where: str, fail: Callable[..., NoReturn]) -> list[Any]:
    return (
        row
        if isinstance(row, list) and len(row) == length
        else fail(f"{where} must be {form}; got {shown(row)}")
    )


def _pick(items: list[Any], index: Any, what: str, where: str, fail: Callable[..., NoReturn]) -> Any:
    if type(index) is not int or not 0 <= index < len(items):
        fail(f"{where}: a {what} is a number from 0 to {len(items) - 1}; got {shown(index)}")
    return items[index]


def _read_weight(value: Any, semiring: Semiring, where: str, fail: Callable[..., NoReturn]) -> Any:
    def number(part: Any) -> Any:
        found = _INFINITIES.get(part) if isinstance(part, str) else part
        if type(found) is not int and type(found) is not float:  # not isinstance: true is no weight
            fail(f'{where}: a weight is a number, "Infinity" or "-Infinity"; got {shown(value)}')
        return found

    if semiring.components:
        if not isinstance(value, list) or len(value) != semiring.size:
            names = ", ".join(semiring.components)
            fail(
                f"{where}: a weight over {semiring.name} is a list of {semiring.size} numbers ({names}); "
                f"got {shown(value)}"
            )
        weight = tuple(number(part) for part in value)
    else:
        weight = number(value)
    try:
        return checked(weight, semiring)
    except RRNNError as error:
        fail(f"{where}: {brief(error)}")


def _read_label(value: Any, where: str, fail: Callable[..., NoReturn], depth: int = 0) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, dict) and len(value) == 1 and depth < _DEEPEST:
        ((kind, inner),) = value.items()
        if kind == "float" and isinstance(inner, str) and inner in _INFINITIES:
            return _INFINITIES[inner]
        if kind == "tuple" and isinstance(inner, list):
            return tuple(_read_label(item, where, fail, depth + 1) for item in inner)
    fail(
        f'{where}: a name is a string, a number, true, false, null or {{"tuple": [...]}}; got {shown(value)}'
    )
