"""OpenFst's text format for acceptors, as `fstprint --acceptor` writes and `fstcompile --acceptor` reads it.

    0	1	a	0.5        arc: source, target, label, cost (0 when left out)
    1	1	b
    1	0.25           final state and its cost

The source of the first line is the start state. States are integers, labels are integers, or names when a
symbol table is given; label 0 is ε. Lines of transducers, `source target input output [cost]`, are read, too, if input
and output are equal. `rrnn.wfsa.io.labels_and_costs` explains symbol tables and costs.

Reading keeps the state numbers as the names of states, and adds parallel arcs, which OpenFst allows, by ⊕.
Writing numbers the states 0, 1, … in their order; JSON keeps their names. An OpenFst machine has one start
state, of weight one. If a WFSA has several, or one of another weight, the file gets a new start state,
numbered after all others, with an ε-arc of the initial weight to each of them, which gives the same scores.
"""

from __future__ import annotations

import math
import os
from collections.abc import Hashable
from typing import NamedTuple

from rrnn.errors import FormatError, RRNNError
from rrnn.semirings import Semiring, get_semiring
from rrnn.wfsa.automaton import indexed_arcs
from rrnn.wfsa.io.files import (
    PathLike,
    Source,
    brief,
    checked_weight,
    fields_of,
    lines_of,
    natural,
    number,
    plain_name,
    read_text,
    require_plain_numbers,
    shown,
    write_text,
)
from rrnn.wfsa.io.labels_and_costs import (
    LARGEST_LABEL,
    Costs,
    SymbolTable,
    cost_of,
    load_symbols,
    resolve_costs,
    symbols_for,
    symbols_text,
    weight_of,
)
from rrnn.wfsa.machine import WFSA
from rrnn.wfsa.symbols import EPSILON


def load_openfst(
    path: PathLike,
    *,
    semiring: str | Semiring = "min-plus",
    isymbols: PathLike | SymbolTable | None = None,
    costs: Costs | None = None,
    acceptor: bool | None = None,
    allow_empty: bool = False,
) -> WFSA:
    """Read an acceptor. The file does not name its semiring; the default is OpenFst's own, tropical costs.

    With `isymbols` (a file or a dictionary name → id), the alphabet is all names of the table; without it, the
    integers that occur. `acceptor` says whether arcs are `s t label [cost]` (True) or `s t input output
    [cost]` (False); by default this is detected, which fails only if every line could be both.
    """
    table = load_symbols(isymbols) if isinstance(isymbols, str | os.PathLike) else isymbols
    return from_openfst(
        read_text(path),
        semiring=semiring,
        isymbols=table,
        costs=costs,
        acceptor=acceptor,
        allow_empty=allow_empty,
        source=os.fspath(path),
    )


def save_openfst(
    wfsa: WFSA,
    path: PathLike,
    *,
    isymbols: PathLike | None = None,
    costs: Costs | None = None,
) -> None:
    """Write an acceptor and, if `isymbols` is a path, its symbol table.

    Without a table, the symbols must be integers of at least 1, as 0 is ε.
    """
    table = symbols_for(wfsa.alphabet) if isymbols is not None else None
    text = to_openfst(wfsa, isymbols=table, costs=costs)  # this may fail, so do it before writing
    if isymbols is not None and table is not None:
        write_text(isymbols, symbols_text(table))
    write_text(path, text)


# ---- reading -----------------------------------------------------------------------------------------------


class _Line(NamedTuple):
    number: int
    fields: list[str]


class _Reader(Source):
    """Read the states, labels and costs of one file."""

    def __init__(
        self, semiring: Semiring, costs: Costs, table: SymbolTable | None, source: str | None
    ) -> None:
        super().__init__(source)
        self.semiring, self.table = semiring, table
        self.costs: Costs = costs

    def state(self, token: str, line: int) -> int:
        value = natural(token)
        if value is None:
            self.fail(f"a state must be an integer of at least 0; got {shown(token)}", line)
        return value

    def is_label(self, token: str) -> bool:
        return token in self.table if self.table is not None else natural(token) is not None

    def label(self, token: str, line: int) -> Hashable:
        if not self.is_label(token):
            if self.table is not None:
                self.fail(f"label {shown(token)} is not in the symbol table", line)
            self.fail(
                "without a symbol table (isymbols), a label must be an integer of at least 0, which is ε; "
                f"got {shown(token)}",
                line,
            )
        key = natural(token) if self.table is None else self.table[token]
        return EPSILON if key == 0 else token if self.table is not None else key

    def weight(self, token: str | None, line: int) -> float:
        if token is None:
            return self.semiring.one
        cost = number(token)
        if cost is None:
            self.fail(f"a cost must be a number, Infinity or -Infinity; got {shown(token)}", line)
        try:
            return weight_of(cost, self.semiring, self.costs)
        except RRNNError as error:
            self.fail(str(error), line)

    def add(self, a: float, b: float, line: int) -> float:
        """Return the ⊕ of parallel arcs, or fail if it overflows."""
        try:
            return checked_weight(self.semiring.plus(a, b), self.semiring, "sum of parallel arcs")
        except RRNNError as error:
            self.fail(str(error), line)


def from_openfst(
    text: str,
    *,
    semiring: str | Semiring = "min-plus",
    isymbols: SymbolTable | None = None,
    costs: Costs | None = None,
    acceptor: bool | None = None,
    allow_empty: bool = False,
    source: str | None = None,
) -> WFSA:
    """Return the WFSA that an acceptor's text describes; see `load_openfst`."""
    ring = get_semiring(semiring)
    require_plain_numbers(ring, "OpenFst", source)
    reader = _Reader(ring, resolve_costs(ring, costs), isymbols, source)
    lines = [_Line(i, fields) for i, line in enumerate(lines_of(text), 1) if (fields := fields_of(line))]
    if not lines:
        reader.fail("the file is empty; its first line must name the start state")
    if acceptor is None:
        acceptor = _is_acceptor(lines, reader)

    final: dict[int, float] = {}
    weights: dict[tuple[int, Hashable, int], float] = {}
    for line, fields in lines:
        if len(fields) <= 2:
            state = reader.state(fields[0], line)
            if state in final:
                reader.fail(f"a state can have one final cost; state {state} has two", line)
            final[state] = reader.weight(fields[1] if len(fields) == 2 else None, line)
            continue
        arc, weight = _arc(fields, acceptor, line, reader)
        weights[arc] = reader.add(weights[arc], weight, line) if arc in weights else weight

    start = reader.state(lines[0].fields[0], lines[0].number)
    states = sorted({start, *final, *(arc[0] for arc in weights), *(arc[2] for arc in weights)})
    alphabet = (
        sorted({arc[1] for arc in weights if arc[1] is not EPSILON}, key=_as_int)
        if isymbols is None
        else [name for name, key in sorted(isymbols.items(), key=lambda item: item[1]) if key != 0]
    )
    try:
        return WFSA(
            ring,
            alphabet=alphabet,
            arcs=[(*arc, weight) for arc, weight in weights.items()],
            states=states,
            initial={start: ring.one},
            final=final,
            allow_empty=allow_empty,
        )
    except RRNNError as error:
        raise FormatError(brief(error), source=source) from error


def _as_int(symbol: Hashable) -> int:
    assert isinstance(symbol, int)  # without a table every label is an integer
    return symbol


def _arc(
    fields: list[str], acceptor: bool, line: int, reader: _Reader
) -> tuple[tuple[int, Hashable, int], float]:
    most = 4 if acceptor else 5
    if not most - 1 <= len(fields) <= most:
        form = "source target label [cost]" if acceptor else "source target input output [cost]"
        reader.fail(f"a line must be `{form}` or `state [cost]`; got {len(fields)} fields", line)
    source, target = reader.state(fields[0], line), reader.state(fields[1], line)
    symbol = reader.label(fields[2], line)
    if not acceptor and reader.label(fields[3], line) != symbol:
        reader.fail(
            f"the input label {shown(fields[2])} and the output label {shown(fields[3])} differ: "
            "a WFSA has no output labels. Project the transducer first (`fstproject`).",
            line,
        )
    return (source, symbol, target), reader.weight(fields[most - 1] if len(fields) == most else None, line)


def _is_acceptor(lines: list[_Line], reader: _Reader) -> bool:
    """Return whether arcs have one label. Four fields may be `s t label cost` or `s t input output`."""
    four = [line for line in lines if len(line.fields) == 4]
    if any(len(line.fields) == 3 for line in lines):
        return True
    if any(len(line.fields) == 5 for line in lines):
        return False
    if not four:
        return True
    odd = [line for line in four if number(line.fields[3]) is None]
    if odd:  # a name in the place of the cost: two labels, or a mistake
        return not all(reader.is_label(line.fields[3]) for line in odd)
    if all(line.fields[2] == line.fields[3] and reader.is_label(line.fields[3]) for line in four):
        reader.fail(
            "every arc reads `source target x x`: a label and its cost, or an input and an output label? "
            "Pass acceptor=True or acceptor=False (--acceptor yes or no).",
            four[0].number,
        )
    return True


# ---- writing -----------------------------------------------------------------------------------------------


class _Writer:
    """Write the labels and costs of one machine; errors name what cannot be written."""

    def __init__(self, wfsa: WFSA, isymbols: SymbolTable | None, costs: Costs | None) -> None:
        self.states, self.semiring = wfsa.states, wfsa.semiring
        self.costs: Costs = resolve_costs(wfsa.semiring, costs)
        self.labels = [_label(symbol, isymbols) for symbol in wfsa.alphabet]
        self.epsilon = "0" if isymbols is None else next((n for n, key in isymbols.items() if key == 0), None)

    def arc(self, q: int, label: str | None, r: int, weight: float, what: str = "the arc") -> str:
        if label is None:
            raise FormatError(f"{what} needs an ε-arc, but the symbol table has no name with id 0")
        name = f"{what} {shown(self.states[q])} —{label}→ " if q < len(self.states) else f"{what} of "
        return f"{q}\t{r}\t{label}{self.cost(weight, name + shown(self.states[r]))}"

    def cost(self, weight: float, what: str) -> str:
        if weight == self.semiring.one:
            return ""
        try:
            cost = float(value := cost_of(weight, self.semiring, self.costs))
        except RRNNError as error:
            raise FormatError(f"{what}: {error}") from None
        if math.isinf(cost):
            return "\tInfinity" if cost > 0 else "\t-Infinity"
        # 2 as 2.0, so that it cannot be taken for a label; but a count above 2⁵³ is no float64
        return f"\t{cost!r}" if cost == value else f"\t{value!r}"


def to_openfst(wfsa: WFSA, *, isymbols: SymbolTable | None = None, costs: Costs | None = None) -> str:
    """Return the text of an acceptor. With `isymbols`, labels are names and must be in the table."""
    require_plain_numbers(wfsa.semiring, "OpenFst")
    writer, one, zero = _Writer(wfsa, isymbols, costs), wfsa.semiring.one, wfsa.semiring.zero
    blocks: list[list[str]] = [[] for _ in wfsa.states]
    for q, a, r, weight in indexed_arcs(wfsa):
        blocks[q].append(writer.arc(q, writer.labels[a] if a >= 0 else writer.epsilon, r, weight))
    for q, weight in enumerate(wfsa.final_weight.tolist()):
        if weight != zero or not blocks[q]:  # fstprint, too, writes a lone state as final with weight zero
            blocks[q].append(f"{q}{writer.cost(weight, f'the final weight of {shown(wfsa.states[q])}')}")

    # The first line names the start state.
    initial = {q: weight for q, weight in enumerate(wfsa.initial_weight.tolist()) if weight != zero}
    if list(initial.values()) == [one]:
        first = blocks.pop(*initial)
    else:
        new = wfsa.num_states
        first = [
            writer.arc(new, writer.epsilon, q, weight, "the initial weight") for q, weight in initial.items()
        ]
    if not first:
        raise FormatError("an OpenFst file names its start state, but this machine has no initial state")
    return "".join(line + "\n" for block in (first, *blocks) for line in block)


def _label(symbol: Hashable, isymbols: SymbolTable | None) -> str:
    name = str(symbol) if type(symbol) is int else symbol
    if isymbols is not None:
        if not isinstance(name, str) or isymbols.get(name, 0) == 0:
            raise FormatError(f"the symbol {shown(symbol)} is not in the symbol table")
        return plain_name(name)
    if type(symbol) is not int or not 1 <= symbol <= LARGEST_LABEL:
        raise FormatError(
            f"without a symbol table, symbols must be integers from 1 to {LARGEST_LABEL} (0 is ε); "
            f"got {shown(symbol)}. Pass a path for the table: isymbols=…"
        )
    return str(symbol)
