"""Turn programs into C expressions, and expressions into loops.

A `Line` is one C expression of earlier lines. Equal lines are merged, so that functions of the same argument share
their exponential. `Loops` orders lines into *stages*, one loop over lanes each: a stage ends at an exponential that
needs the result of another one. Short loops keep more lanes in flight than one long chain of dependences does (nearly
twice the speed), and what a later stage needs is kept in a row of scratch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rrnn.ir import Instruction, Op, Program
from rrnn.ir.program import needed
from rrnn.ir.semiring_code import OperationCode

OPS = {op: op.value.c for op in Op if op.value.c}
DECAY, HALF = "decay_{s}({0})", "half_{s}({0})"
_HEAVY = {DECAY, *(OPS[op] for op in (Op.EXP, Op.LOG, Op.TANH, Op.SHARE, Op.SIN, Op.COS))}


class Line(NamedTuple):
    """One C expression: a template over the lines that are its arguments."""

    text: str  # a template over its arguments
    args: tuple[int, ...] = ()
    note: str = ""

    @property
    def once(self) -> bool:
        """Whether this line must not be computed twice."""
        return self.text.startswith("first_")

    @property
    def heavy(self) -> bool:
        """Whether this line takes the time of an exponential."""
        return self.text in _HEAVY or self.once


class Lines:
    """The lines so far, each known by its number."""

    def __init__(self, suffix: str) -> None:
        self.suffix = suffix
        self.lines: list[Line] = []
        self.numbers: set[int] = set()
        self._known: dict[tuple[str, tuple[int, ...]], int] = {}

    def add(self, text: str, *args: int, note: str = "") -> int:
        """Return the number of a line, which is added unless an equal one exists."""
        key = (text, args)
        if key not in self._known:
            self._known[key] = len(self.lines)
            self.lines.append(Line(text, args, note))
        return self._known[key]

    def number(self, value: float) -> int:
        """Return the line of a number."""
        text = "INFINITY" if math.isinf(value) else repr(abs(value)) + ("f" if self.suffix == "f" else "")
        n = self.add(f"(-{text})" if value < 0 else text)
        self.numbers.add(n)
        return n

    def expand(
        self, program: Program, wanted: Iterable[int], leaves: Mapping[int, tuple[str, str]]
    ) -> dict[int, int]:
        """Return instruction → line for all that the `wanted` instructions need; `leaves` are instruction → (place,
        note)."""
        number: dict[int, int] = {}
        for n in sorted(needed(program.instructions, wanted, stop=leaves)):
            op, _, attr = program.instructions[n]
            if n in leaves:
                text, note = leaves[n]
                number[n] = self.add(text, note=note)
            elif op is Op.CONST:
                number[n] = self.number(float(attr or 0.0))
            else:
                number[n] = self.instruction(program, program.instructions[n], number)
        return number

    def operation(self, code: OperationCode, given: Sequence[int]) -> list[int]:
        """Return the lines of a ⊕ b or a ⊗ b: components of the result from those of a, then b."""
        number: dict[int, int] = {}
        for n, instruction in enumerate(code.instructions):
            op, _, attr = instruction
            if op is Op.STATE:
                number[n] = given[int(attr or 0)]
            elif op is Op.CONST:
                number[n] = self.number(float(attr or 0.0))
            else:
                number[n] = self.instruction(code, instruction, number)
        return [number[n] for n in code.results]

    def instruction(
        self, program: Program | OperationCode, instruction: Instruction, number: Mapping[int, int]
    ) -> int:
        """Return the line of an instruction; functions of one argument share the line of their exponential."""
        op, args, _ = instruction
        lines = [number[a] for a in args]
        match op:
            case Op.SIGMOID:
                e = self.add(DECAY, self._magnitude(lines[0]))
                return self.add("sigmoid_{s}({0}, {1}, {2})", lines[0], e, self.add(HALF, e))
            case Op.SOFTPLUS | Op.LOG_SIGMOID:
                e = self.add(DECAY, self._magnitude(lines[0]))
                return self.add(f"{op.text}_{{s}}({{0}}, {{1}})", lines[0], e)
            case Op.LOGADDEXP:
                e = self.add(DECAY, self.add("apart_{s}({0}, {1})", *lines))
                return self.add("logaddexp_{s}({0}, {1}, {2})", *lines, e)
            case Op.SHARE:
                total = program.instructions[args[1]]
                if total.op is Op.LOGADDEXP and args[0] in total.args:  # what logaddexp computed is enough
                    a, b = (number[x] for x in total.args)
                    e = self.add(DECAY, self.add("apart_{s}({0}, {1})", a, b))
                    other = b if args[0] == total.args[0] else a
                    return self.add("member_{s}({0}, {1}, {2}, {3})", lines[0], other, e, self.add(HALF, e))
        return self.add(OPS[op], *lines)

    def _magnitude(self, n: int) -> int:
        """Return a line of the same magnitude without its sign: decay(-x) is decay(x)."""
        while self.lines[n].text == OPS[Op.NEG]:
            (n,) = self.lines[n].args
        return n


PLAIN = "{place} = {value};"


class Store(NamedTuple):
    """`place = value;`, after every read of the line `overwrites` (the place's old value)."""

    place: str
    value: int
    overwrites: int | None = None
    form: str = PLAIN


class Loops:
    """The loops that compute some stores. `given`: line → where its value already lies."""

    def __init__(self, lines: Lines, stores: list[Store], given: Mapping[int, str] | None = None) -> None:
        self.lines, self.given = lines, dict(given or {})
        self.depth = self._depths()
        self.count = max([0, *(self.stage(store.value) for store in stores)]) + 1
        self.used: list[set[int]] = [set() for _ in range(self.count)]  # computed or loaded, per stage
        for store in stores:
            self._use(store.value, self.stage(store.value))
        self.stores: list[list[Store]] = [[] for _ in range(self.count)]
        for store, stage in zip(stores, self._place(stores), strict=True):
            self.stores[stage].append(store)
        self.rows: dict[int, int] = {}  # line → its row of scratch
        self.bodies = [self._body(stage) for stage in range(self.count)]

    def _simple(self, n: int) -> bool:
        """Return whether a line is read from memory or is a number."""
        return n in self.given or not self.lines.lines[n].args

    def _depths(self) -> list[int]:
        """Return, for each line, the number of exponentials on the longest way to it, its own included."""
        depth: list[int] = []
        for n, line in enumerate(self.lines.lines):  # arguments come first
            light = 0 if self._simple(n) else max(depth[a] for a in line.args)
            depth.append(light + (line.heavy and n not in self.given))
        return depth

    def stage(self, n: int) -> int:
        """Return the stage in which a line is computed."""
        return max(0, self.depth[n] - 1)

    def _use(self, n: int, stage: int) -> None:
        """Note that line n is read in this stage: compute it here, or earlier and carry it over."""
        todo = [(n, stage)]
        while todo:
            n, stage = todo.pop()
            if n in self.used[stage]:
                continue
            self.used[stage].add(n)
            if self._simple(n):
                continue
            # Light lines are computed again rather than carried.
            if self.stage(n) == stage or not self.depth[n]:
                todo += [(a, stage) for a in self.lines.lines[n].args]
            else:
                todo.append((n, self.stage(n)))

    def _place(self, stores: list[Store]) -> list[int]:
        """Return the stage of each store: where its value is computed, or later, where its place's old value is last
        read. A store that waits reads its value there, which may make another one wait, so repeat until nothing
        changes."""
        stages = [self.stage(store.value) for store in stores]
        while True:
            before = list(stages)
            for k, (_, value, overwrites, _) in enumerate(stores):
                last = max((s for s in range(self.count) if overwrites in self.used[s]), default=0)
                if last > stages[k]:
                    stages[k] = last
                    self._use(value, last)
            if stages == before:
                return stages

    def _body(self, stage: int) -> list[str]:
        """Return the statements of one loop."""
        text: list[str] = []
        for n in sorted(self.used[stage]):
            line = self.lines.lines[n]
            if n in self.lines.numbers:
                continue
            if n in self.given:
                value = self.given[n]
            elif line.args and self.stage(n) < stage and self.depth[n]:
                value = self._kept_place(n, stage)
            else:
                value = line.text.format(*(self._name(a) for a in line.args), s=self.lines.suffix)
            note = f" /* {line.note} */" if line.note else ""
            text.append(f"const real {self._name(n)} = {value};{note}")
        for store in self.stores[stage]:
            text.append(store.form.format(place=store.place, value=self._name(store.value)))
        for n in sorted(self.used[stage]):
            if self._carried(n, stage):
                self.rows[n] = len(self.rows)
                text.append(f"row[{self.rows[n]}][i] = {self._name(n)};")
        return text

    def _stored_at(self, n: int) -> tuple[int, str] | None:
        """Return (stage, place) of a plain store of this line, which later stages can load."""
        for stage, stores in enumerate(self.stores):
            for store in stores:
                if store.value == n and store.form == PLAIN:
                    return stage, store.place
        return None

    def _kept_place(self, n: int, stage: int) -> str:
        """Return where a line of an earlier stage is kept."""
        at = self._stored_at(n)
        return at[1] if at and at[0] < stage else f"row[{self.rows[n]}][i]"

    def _carried(self, n: int, stage: int) -> bool:
        """Return whether a line computed in this stage must wait in scratch for a later one."""
        if self._simple(n) or not self.depth[n] or self.stage(n) != stage:
            return False
        later = [s for s in range(stage + 1, self.count) if n in self.used[s]]
        at = self._stored_at(n)
        return any(not (at and at[0] < s) for s in later)

    def _name(self, n: int) -> str:
        return self.lines.lines[n].text if n in self.lines.numbers else f"v{n}"

    def text(self, indent: int) -> str:
        """Return the C text of all loops, in order."""
        pad = " " * indent
        out: list[str] = []
        for body in self.bodies:
            out += ["SIMD", "for (long i = 0; i < n; i++) {", *("    " + line for line in body), "}"]
        return "\n".join(pad + line for line in out)
