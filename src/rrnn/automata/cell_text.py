"""The `.cell` text form. Text and Python round-trip; text is parsed, never evaluated.

    rrnn-cell 1
    cell B
    semiring real
    f = sigmoid(linear("f", bias=True))
    u = (1 - f) * linear("u")
    states q0 q1
    initial q0
    loop q0 : one
    arc q0 -> q1 : u
    loop q1 : f
    final q1
    output tanh(score)

`arc+`, `loop+`, `epsilon+` add a second arc between the same states (⊕); `#` starts a comment. Where a `states`
line stands, it lists every state that the lines after it may use.

Version 2 adds `family h 16` (a row of states, to be used like a state's name; it comes before the definitions that use
it), `over=h` and `per="head"` in projections and parameters, `read h : W`, and `mix h -> h : W` for arcs from each
state of a family to each, whose weight is made of `k.source`, `k.target` and matrices over=(h.source, h.target). A cell
that needs none of them is written as version 1.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rrnn.automata import expressions as ex
from rrnn.automata.expression_parser import parse_expr, parse_list
from rrnn.automata.expression_text import RESERVED, definitions, expr_text
from rrnn.errors import CellError, FormatError, RRNNError, nearest

if TYPE_CHECKING:
    from rrnn.automata.cell import Cell

HEADER, WIDE_HEADER = "rrnn-cell 1", "rrnn-cell 2"
MAX_TEXT = 200_000

# ---- writing -----------------------------------------------------------------------------------------------


def to_text(cell: Cell) -> str:
    """Return the text of a finished cell, which `Cell.from_text` reads back as an equal one."""
    text = render(cell.check())
    if len(text) > MAX_TEXT:
        raise CellError(
            f"a cell's text has at most {MAX_TEXT} characters; that of cell {cell.name!r} would have {len(text)}. "
            "Use shorter names, or split it into several cells."
        )
    return text


def render(cell: Cell) -> str:
    """Return the text of any cell, finished or not."""
    names = definitions(cell)
    lines = [HEADER, f"cell {cell.name}", f"semiring {cell.semiring_name}"]
    lines += [f"family {family.name} {family.size}" for family in cell.families]
    if cell.epsilon_limit is not None:
        last = "" if cell.epsilon_after_last else " not after last"
        lines.append(f"epsilon_limit {cell.epsilon_limit}{last}")
    lines += [f"{name} = {expr_text(expr, names, top=True)}" for expr, name in names.items()]
    lines.append(" ".join(("states", *cell.states)))
    lines += [f"initial {q}{_suffix(w, names)}" for q, w in cell.initials]
    seen: set[tuple[str, str, bool, bool]] = set()
    for source, target, weight, epsilon, full in cell.arcs:
        plus = "+" if (source, target, epsilon, full) in seen else ""
        seen.add((source, target, epsilon, full))
        if full:
            where = f"mix{plus} {source} -> {target}"
        elif source == target and not epsilon:
            where = f"loop{plus} {source}"
        else:
            where = f"{'epsilon' if epsilon else 'arc'}{plus} {source} -> {target}"
        lines.append(f"{where} : {expr_text(weight, names)}")
    lines += [f"final {q}{_suffix(w, names)}" for q, w in cell.finals]
    lines += [f"read {q}{_suffix(w, names)}" for q, w in cell.reads]
    if cell.families or cell.reads or has_options(cell):
        lines[0] = WIDE_HEADER
    lines.append("output " + ", ".join(expr_text(e, names) for e in cell.output_exprs))
    return "\n".join(lines) + "\n"


def has_options(cell: Cell) -> bool:
    """Return whether a projection or parameter has an option that version 1 does not know."""
    nodes = (node for top in cell.expressions() for node in ex.walk(top))
    leaves = [node for node in nodes if isinstance(node, (ex.Linear, ex.Parameter))]
    return any(
        leaf.per != "unit" or leaf.start is not None or not getattr(leaf, "learned", True) for leaf in leaves
    )


def _suffix(weight: ex.Expr, names: dict[ex.Expr, str]) -> str:
    """Return ": weight", or nothing for a weight of one."""
    return "" if isinstance(weight, ex.One) and weight not in names else f" : {expr_text(weight, names)}"


# ---- reading -----------------------------------------------------------------------------------------------

_DEFINE = re.compile(r"(\w+)\s*=\s*(.+)")
_ONCE = re.compile(r"(cell|semiring|output|epsilon_limit|states)\s+(.+)")
_LIMIT = re.compile(r"([0-9]{1,4})(\s+not\s+after\s+last)?")
_ARC = re.compile(r"(arc|epsilon)(\+?)\s+(\w+)\s*->\s*(\w+)\s*:\s*(.+)")
_MIX = re.compile(r"mix(\+?)\s+(\w+)\s*->\s*(\w+)\s*:\s*(.+)")
_LOOP = re.compile(r"loop(\+?)\s+(\w+)\s*:\s*(.+)")
_ENDS = re.compile(r"(initial|final)\s+(\w+)\s*(?::\s*(.+))?")
_READ = re.compile(r"read\s+(\w+)\s*(?::\s*(.+))?")
_FAMILY = re.compile(r"family\s+(\w+)\s+([0-9]{1,9})")


def read_cell(text: str, cell: Cell, source: str) -> Cell:
    """Return the cell that a text describes, built from an empty one; a `FormatError` names the line."""
    if not isinstance(text, str):
        raise FormatError(f"a cell's text is a str; got {type(text).__name__}", source=source)
    if len(text) > MAX_TEXT:
        raise FormatError(
            f"a cell's text has at most {MAX_TEXT} characters; got {len(text)}. Is this a cell?",
            source=source,
        )
    lines = [(i, line.split("#", 1)[0].strip()) for i, line in enumerate(text.split("\n"), 1)]
    lines = [(i, line) for i, line in lines if line]
    first, got = lines[0] if lines else (1, "")
    if got.split() not in (HEADER.split(), WIDE_HEADER.split()):
        newer = re.fullmatch(r"rrnn-cell\s+[0-9]{1,9}", got)
        fix = f"; this version of rrnn also reads {WIDE_HEADER!r}, and no other" if newer else ""
        raise FormatError(
            f"a cell's text starts with the line {HEADER!r}; got {got[:60]!r}{fix}", source=source, line=first
        )
    reader = _Reader(cell, wide=got.split() == WIDE_HEADER.split())
    for number, line in lines[1:]:
        try:
            reader.read(line)
        except RRNNError as error:
            raise FormatError(_in_text(error), source=source, line=number) from None
    try:
        return reader.cell.check()
    except RRNNError as error:
        raise FormatError(_in_text(error), source=source) from None


def _in_text(error: RRNNError) -> str:
    return error.in_text if isinstance(error, CellError) else str(error)


class _Reader:
    """The cell so far, and the names its lines have defined."""

    def __init__(self, cell: Cell, wide: bool) -> None:
        self.cell, self.wide = cell, wide
        self.families: dict[str, ex.Family] = {}  # by name
        self.known: dict[str, ex.Expr] = {}
        self.lines_read: set[str] = set()

    def read(self, line: str) -> None:
        # Definitions come first: an expression may be called `output` or `states`.
        """Add one line to the cell."""
        if m := _DEFINE.fullmatch(line):
            self.define(m[1], m[2])
        elif m := _ONCE.fullmatch(line):
            if m[1] in self.lines_read:
                raise FormatError(f"a text has one {m[1]!r} line; this is the second. Remove one of them.")
            self.lines_read.add(m[1])
            self.read_once(m[1], m[2])
        elif m := _ARC.fullmatch(line):
            add = self.cell.epsilon if m[1] == "epsilon" else self.cell.arc
            self.cell = add(
                self.state(m[3]), self.state(m[4]), self.expr(m[5]), merge="plus" if m[2] else None
            )
        elif m := _LOOP.fullmatch(line):
            self.cell = self.cell.loop(self.state(m[2]), self.expr(m[3]), merge="plus" if m[1] else None)
        elif m := _ENDS.fullmatch(line):
            add = self.cell.initial if m[1] == "initial" else self.cell.final
            self.cell = add(self.state(m[2]), self.expr(m[3]) if m[3] else ex.one)
        elif self.wide and (m := _READ.fullmatch(line)):
            self.cell = self.cell.read(self.state(m[1]), self.expr(m[2]) if m[2] else ex.one)
        elif self.wide and (m := _MIX.fullmatch(line)):
            ends = self.state(m[2]), self.state(m[3])
            self.cell = self.cell.mix(*ends, self.expr(m[4]), merge="plus" if m[1] else None)
        elif self.wide and (m := _FAMILY.fullmatch(line)):
            if m[1] in self.families:
                raise FormatError(f"a family is defined once; {m[1]!r} is defined twice. Use two names.")
            self.families[m[1]] = ex.family(m[1], int(m[2]))
        elif not self.wide and any(pattern.fullmatch(line) for pattern in (_READ, _MIX, _FAMILY)):
            raise FormatError(
                f"{line[:80]!r} belongs to version 2 of the format; this text begins with {HEADER!r}. Begin it with "
                f"{WIDE_HEADER!r}."
            )
        else:
            more = ", family H N, mix H -> H : W, read Q [: W]" if self.wide else ""
            raise FormatError(
                f"cannot read {line[:80]!r}. A line is one of: cell NAME, semiring NAME, states Q…, "
                "epsilon_limit K, NAME = EXPRESSION, initial Q [: W], loop Q : W, arc Q -> Q : W, "
                f"epsilon Q -> Q : W, final Q [: W], output EXPRESSION[, …]{more}."
            )

    def expr(self, text: str) -> ex.Expr:
        return parse_expr(text, self.known, self.families if self.wide else None)

    def define(self, name: str, text: str) -> None:
        """Give an expression a name, which later lines may use."""
        if name in RESERVED:
            raise FormatError(
                f"{name!r} is a word of the cell language and cannot be defined. Use another name, such as {name}_1."
            )
        if name in self.known:
            raise FormatError(f"a name is defined once; {name!r} is defined twice. Use two names.")
        self.known[name] = self.expr(text).named(name)

    def read_once(self, word: str, rest: str) -> None:
        """Read a line that may stand once in a text: `word`, then the rest of the line."""
        cell = self.cell
        if word == "cell":
            self.cell = cell.renamed(rest)
        elif word == "semiring":
            self.cell = cell.with_semiring(rest)
        elif word == "output":
            self.cell = cell.output(*parse_list(rest, self.known, self.families if self.wide else None))
        elif word == "states":
            if cell.states:
                raise FormatError("the states line comes before all lines with states; move it up")
            if "," in rest:
                names = " ".join(rest.replace(",", " ").split())
                raise FormatError(f"the states line separates names by blanks; write: states {names[:60]}")
            self.cell = cell._meeting(*(self.families.get(q, q) for q in rest.split()))
        elif m := _LIMIT.fullmatch(rest):
            self.cell = cell.limit_epsilon(int(m[1]), after_last=m[2] is None)
        else:
            raise FormatError(f"expected epsilon_limit K [not after last], K from 0 to 64; got {rest[:60]!r}")

    def state(self, name: str) -> str | ex.Family:
        """Return a state or family by its name, checked against the `states` line if there is one."""
        if "states" in self.lines_read and name not in self.cell.states:
            hint = nearest(name[:64], self.cell.states)
            raise FormatError(
                f"unknown state {name[:64]!r}: the states line does not list it.{hint} Add it there, or correct it."
            )
        return self.families.get(name, name)
