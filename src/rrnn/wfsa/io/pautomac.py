"""Read and write models of the PAutomaC competition: probabilistic automata in four sections.

    I: (state)
        (0) 1.0
    F: (state)
        (1) 0.25
    S: (state,symbol)
        (0,0) 0.5
        (0,1) 0.5
        (1,1) 1.0
    T: (state,symbol,state)
        (0,0,1) 1.0
        (0,1,0) 1.0
        (1,1,1) 1.0

I(q) is the probability of starting in q, and F(q) that of stopping there; if the automaton does not stop, it emits the
symbol a with probability S(q, a) and goes to r with probability T(q, a, r). Over the reals that is

    initial weight I(q),   final weight F(q),   weight of q —a→ r:  (1 − F(q)) · S(q, a) · T(q, a, r).

Numbers that are not listed are 0. I and every row of S and T must sum to one, up to the rounding of the printed digits:
half a unit in the last place of every number of the row, and at most 1e-3. A state that always stops (F = 1)
may lack its row of S; a row of T is needed if S(q, a) > 0. States and symbols are non-negative integers.
"""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from typing import NamedTuple

from rrnn.errors import FormatError, RRNNError
from rrnn.wfsa.automaton import indexed_arcs
from rrnn.wfsa.io.files import (
    PathLike,
    Source,
    brief,
    lines_of,
    natural,
    number,
    read_text,
    require_plain_numbers,
    shown,
    write_text,
)
from rrnn.wfsa.machine import WFSA

SECTIONS = {"I": "(state)", "F": "(state)", "S": "(state,symbol)", "T": "(state,symbol,state)"}
_HEADER = re.compile(r"([A-Za-z]+)[ \t]*:[ \t]*(.*)")
_ENTRY = re.compile(r"\(([^()]*)\)[ \t]*([^ \t]+)")
_LOOSEST = 1e-3  # the greatest difference from one that is allowed for any row, however few digits it has
_TIGHTEST = 1e-9  # the difference that is allowed for the sum of numbers printed in full


class Entry(NamedTuple):
    """Hold one number of a section: its value, its text and its line."""

    value: float
    text: str
    line: int


Section = dict[tuple[int, ...], Entry]


def load_pautomac(path: PathLike, *, tolerance: float | None = None, allow_empty: bool = False) -> WFSA:
    """Read a model. Its alphabet is the symbols that it lists.

    `tolerance` is how far the sum of a row may be from one; by default, the printed digits decide (see above).
    """
    return from_pautomac(
        read_text(path), source=os.fspath(path), tolerance=tolerance, allow_empty=allow_empty
    )


def save_pautomac(wfsa: WFSA, path: PathLike, *, tolerance: float = _TIGHTEST) -> None:
    """Write a WFSA that has the form above: real, without ε, with probabilities that sum to one.

    Sums may differ from one by `tolerance`. The written rows are normalised, so weights that are read back may differ
    by as much.
    """
    write_text(path, to_pautomac(wfsa, tolerance=tolerance))


# ---- reading -----------------------------------------------------------------------------------------------


def from_pautomac(
    text: str, *, source: str | None = None, tolerance: float | None = None, allow_empty: bool = False
) -> WFSA:
    """Return the WFSA over the reals that a model's text describes."""
    sections = _parse(text, Source(source))
    _check_sums(sections, Source(source), tolerance)

    stop = {state: entry.value for (state,), entry in sections["F"].items()}
    emit = {key: entry.value for key, entry in sections["S"].items()}
    states: set[int] = {state for (state,) in (*sections["I"], *sections["F"])}
    states.update(state for state, _ in sections["S"])
    arcs = []
    for (q, a, r), entry in sections["T"].items():
        states.update((q, r))
        weight = (1.0 - stop.get(q, 0.0)) * emit.get((q, a), 0.0) * entry.value
        if weight:
            arcs.append((q, a, r, weight))
    alphabet = {key[1] for name in ("S", "T") for key in sections[name]}
    try:
        return WFSA(
            "real",
            alphabet=sorted(alphabet),
            arcs=arcs,
            states=sorted(states),
            initial={state: entry.value for (state,), entry in sections["I"].items() if entry.value},
            final={state: value for state, value in stop.items() if value},
            allow_empty=allow_empty,
        )
    except RRNNError as error:
        raise FormatError(brief(error), source=source) from error


def _parse(text: str, source: Source) -> dict[str, Section]:
    sections: dict[str, Section] = {}
    name = ""
    for line, raw in enumerate(lines_of(text), 1):
        content = raw.strip(" \t")
        if not content:
            continue
        if header := _HEADER.fullmatch(content):
            name = header[1]
            form = SECTIONS.get(name)
            if form is None or header[2].replace(" ", "").replace("\t", "") not in (form, ""):
                forms = ", ".join(f"`{key}: {value}`" for key, value in SECTIONS.items())
                source.fail(f"the sections must be {forms}; got {shown(content)}", line)
            if name in sections:
                source.fail(f"each section must occur once; section {name} occurs twice", line)
            sections[name] = {}
        elif not name:
            source.fail(f"the first line must be a section, `I: (state)`; got {shown(content)}", line)
        else:
            key, entry = _entry(content, name, line, source)
            if key in sections[name]:
                source.fail(f"each number must be given once; {name}{_key(key)} is given twice", line)
            sections[name][key] = entry
    for name, form in SECTIONS.items():
        if name not in sections:
            source.fail(f"a model must have the sections I, F, S and T; `{name}: {form}` is missing")
    return sections


def _entry(content: str, name: str, line: int, source: Source) -> tuple[tuple[int, ...], Entry]:
    form = SECTIONS[name]
    match = _ENTRY.fullmatch(content)
    key = tuple(natural(part.strip(" \t")) for part in match[1].split(",")) if match else ()
    if match is None or None in key or len(key) != form.count(",") + 1:
        source.fail(
            f"a line of section {name} must be `{form} probability`, with integers; got {shown(content)}",
            line,
        )
    value = number(match[2])
    if value is None or not 0.0 <= value <= 1.0:
        source.fail(f"a probability must be a number from 0 to 1; got {shown(match[2])}", line)
    return key, Entry(value, match[2], line)  # pyright: ignore[reportReturnType]  # no None in key: checked above


def _check_sums(sections: dict[str, Section], source: Source, tolerance: float | None) -> None:
    """Raise for the first row (in the order of the file) that does not sum to one, or is missing."""
    for name, fixed in (("I", 0), ("S", 1), ("T", 2)):
        rows: dict[tuple[int, ...], list[Entry]] = defaultdict(list)
        for key, entry in sections[name].items():
            rows[key[:fixed]].append(entry)
        if name == "I" and not rows:
            source.fail("section I is empty, so the automaton has no initial state")
        for key, row in rows.items():
            total = math.fsum(entry.value for entry in row)
            allowed = _printed_tolerance(row) if tolerance is None else tolerance
            if abs(total - 1.0) > allowed:
                what = f"row {name}{_key(key)}" if key else "section I"
                source.fail(
                    f"{what} must sum to one, but its {len(row)} numbers sum to {total!r} "
                    f"(allowed for the digits printed: {allowed:.1e})",
                    row[0].line,
                )
        if name == "S":
            _need_emission(sections, set(rows), source)
        elif name == "T":
            for key, entry in sections["S"].items():
                if entry.value > 0 and key not in rows and _goes_on(sections, key[0]):
                    source.fail(
                        f"S{_key(key)} is {entry.text}, so row T{_key(key)} must be given", entry.line
                    )


def _goes_on(sections: dict[str, Section], state: int) -> bool:
    """Return whether a state does not always stop."""
    stop = sections["F"].get((state,))
    return stop is None or stop.value < 1.0


def _need_emission(sections: dict[str, Section], rows: set[tuple[int, ...]], source: Source) -> None:
    """Raise for the first state that does not always stop but has no row of S."""
    seen: dict[int, int] = {}  # the line that first names each state
    for key, entry in (*sections["I"].items(), *sections["F"].items()):
        seen.setdefault(key[0], entry.line)
    for key, entry in sections["T"].items():
        seen.setdefault(key[0], entry.line)
        seen.setdefault(key[2], entry.line)
    for state, line in seen.items():
        if (state,) not in rows and _goes_on(sections, state):
            stop = sections["F"].get((state,))
            given = stop.text if stop else "0 (not given)"
            source.fail(
                f"row S({state}) is missing, but F({state}) is {given}: only a state with F = 1 needs no row of S",
                line,
            )


def _printed_tolerance(row: list[Entry]) -> float:
    """Return half a unit in the last place of each number, for a row of fixed decimals or of significant digits."""
    shapes = [_digits(entry) for entry in row]
    decimals = max(decimal for decimal, _, _ in shapes)
    significant = max(count for _, count, _ in shapes)
    units = (10.0 ** max(-decimals, exponent - significant + 1) for _, _, exponent in shapes)
    return min(_LOOSEST, 0.5 * math.fsum(units)) + _TIGHTEST


def _digits(entry: Entry) -> tuple[int, int, int]:
    """Return the decimals, the significant digits and the exponent of the leading digit of a printed number."""
    whole, _, fraction = entry.text.lower().partition("e")[0].lstrip("+").partition(".")
    if not entry.value:
        return len(fraction), 1, -400
    # Use the value, since the exponent in the text may have a thousand digits.
    exponent = int(f"{entry.value:.17e}".partition("e")[2])
    significant = len((whole + fraction).lstrip("0"))
    return significant - 1 - exponent, significant, exponent


def _key(key: tuple[int, ...]) -> str:
    return f"({','.join(map(str, key))})"


# ---- writing -----------------------------------------------------------------------------------------------


def to_pautomac(wfsa: WFSA, *, tolerance: float = _TIGHTEST) -> str:
    """Return the model's text, with all digits of the numbers. States are numbered unless all are integers."""
    _check_form(wfsa)
    symbols: list[int] = list(wfsa.alphabet)  # pyright: ignore[reportAssignmentType]  # integers: just checked
    integers = all(type(state) is int and state >= 0 for state in wfsa.states)
    names = list(wfsa.states) if integers else range(wfsa.num_states)

    initial, final = wfsa.initial_weight.tolist(), wfsa.final_weight.tolist()
    out: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
    for q, a, r, weight in indexed_arcs(wfsa):
        if weight:
            out[q, a][r] = out[q, a].get(r, 0.0) + weight
    emitted: dict[int, dict[int, float]] = defaultdict(dict)
    for (q, a), row in out.items():
        emitted[q][a] = math.fsum(row.values())

    _need_equal(math.fsum(initial), 1.0, tolerance, "the initial weights must sum to one")
    lines: dict[str, list[str]] = {name: [] for name in SECTIONS}
    for q, name in enumerate(names):
        total = math.fsum(emitted[q].values())
        # Relative to the probability of not stopping: if that is tiny, a tiny difference changes every arc.
        rule = f"the arcs out of state {shown(wfsa.states[q])} must sum to one minus its final weight"
        _need_equal(total, 1.0 - final[q], tolerance * min(1.0, 1e3 * (1.0 - final[q])), rule)
        if initial[q]:
            lines["I"].append(f"({name}) {initial[q]!r}")
        if final[q]:
            lines["F"].append(f"({name}) {final[q]!r}")
        for a, weight in sorted(emitted[q].items()):
            lines["S"].append(f"({name},{symbols[a]}) {_share(weight, total)!r}")
            for r, part in sorted(out[q, a].items()):
                lines["T"].append(f"({name},{symbols[a]},{names[r]}) {_share(part, weight)!r}")
    return "".join(
        f"{name}: {form}\n" + "".join(f"\t{line}\n" for line in lines[name])
        for name, form in SECTIONS.items()
    )


def _check_form(wfsa: WFSA) -> None:
    rule = "a PAutomaC model must be a probabilistic automaton over the reals, without ε, over symbols 0, 1, 2, …; "
    require_plain_numbers(wfsa.semiring, "PAutomaC")
    if not wfsa.semiring.adds:
        raise FormatError(f"{rule}this one is over the {wfsa.semiring.name} semiring")
    for symbol in wfsa.alphabet:
        if type(symbol) is not int or symbol < 0:
            raise FormatError(
                f"{rule}this one has the symbol {shown(symbol)}. Number the symbols before saving."
            )
    if bool((wfsa.arc_symbol < 0).any()):
        raise FormatError(f"{rule}this one has ε-arcs. Remove them before saving.")
    for weights, what in (
        (wfsa.initial_weight, "initial"),
        (wfsa.final_weight, "final"),
        (wfsa.arc_weight, "arc"),
    ):
        bad = [weight for weight in weights.tolist() if not 0.0 <= weight <= 1.0]
        if bad:
            raise FormatError(f"{rule}this one has the {what} weight {bad[0]!r}, which is not a probability")


def _need_equal(found: float, wanted: float, tolerance: float, rule: str) -> None:
    if abs(found - wanted) > tolerance:
        raise FormatError(
            f"in a PAutomaC model, {rule} ({wanted!r}); here they sum to {found!r}. "
            "Normalise the weights, or allow a larger tolerance."
        )


def _share(part: float, total: float) -> float:
    return min(1.0, part / total)  # rounding must not make it exceed one
