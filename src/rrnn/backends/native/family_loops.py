"""Sort the instructions of programs of families into loops: a family is a loop over its index around one over lanes.

A line of code has a kind: it may differ from lane to lane or be shared by the lanes of a head, and it may depend on the
index of one family, of two, or of none. Where a fold over a family is read, a new *phase* begins. A phase computes what
is shared (once for all lanes), then loops over lanes, then, for each family, loops over its index and inside over
lanes; for each pair of families two loops over indices are around the one over lanes. The index of family f is the
variable k<f>, so that a move from one index to another renames a variable. The text is as long for a family of 4 states
as for one of 128.

A ⊕ that is no single operation has a loop over the index of its own, in which the elements so far are read, joined with
those of the index, and written back; for the ⊕ of all states before or after each, these are also kept for each index.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rrnn.arithmetic import ALONG_FAMILY, SEMIRING_FOLDS
from rrnn.backends.native.loops import PLAIN, Lines, Store
from rrnn.ir import Op, Program
from rrnn.ir.program import Extent, Families, needed

_FIRST = "first_{{s}}(&seen{at}[i], {{0}}, {{1}})"


class Fold(NamedTuple):
    """A fold over a family: an op, and the lines that it folds, one for each component of an element."""

    op: Op
    family: int
    folded: tuple[int, ...]
    number: int = 0
    """Of a semiring's own ⊕: which of all such folds it is. Its components share a loop."""


class Kind(NamedTuple):
    """What a value depends on: the lane (a unit of its own), and the indices of families, in ascending order."""

    lane: bool
    over: tuple[int, ...] = ()

    def join(self, other: Kind) -> Kind:
        """Return the kind of what is computed from both."""
        return Kind(self.lane or other.lane, tuple(sorted({*self.over, *other.over})))

    def without(self, family: int) -> Kind:
        """Return the kind of what no longer depends on the index of a family."""
        return Kind(self.lane, tuple(f for f in self.over if f != family))

    @property
    def place(self) -> str:
        """Return how an array of values of this kind is indexed."""
        return "".join(f"[k{f}]" for f in self.over) + "[i]" * self.lane

    def renamed(self, before: int, after: int) -> Kind:
        """Return the kind under another index."""
        return Kind(self.lane, tuple(sorted(after if f == before else f for f in self.over)))


class Place(NamedTuple):
    """Where a leaf, or what is stored, lies: C text, with k0, k1, … for indices of families; its kind; a note."""

    text: str
    kind: Kind
    note: str = ""


class Written(NamedTuple):
    """A place that is written, in the loop over its family, and the line that goes there."""

    place: Place
    value: int
    form: str = PLAIN
    summed: bool = False
    """Whether the place gets the sum over all lanes."""

    @property
    def store(self) -> Store:
        return Store(self.place.text, self.value, form=self.form)


class Addresses:
    """Where the extents of one table lie: rows with a number per unit come first, then what is shared."""

    def __init__(self, wide: Families, extents: Sequence[Extent]) -> None:
        self.wide, self.rows, self.shared = wide, 0, 0
        self.starts: list[int] = []
        for extent in extents:
            if extent.per == "unit":
                assert not self.shared, "what units share comes last"
                self.starts.append(self.rows)
                self.rows += wide.indices(extent)
            else:
                self.starts.append(self.shared)
                self.shared += wide.numbers(extent, 0)
        self.extents = tuple(extents)

    def place(self, index: int, rows: str, shared: str = "", note: str = "") -> Place:
        """Return the place of entry `index`, given how rows ("a[{0} * xk + i]") and shared numbers ("w[{0}]") are
        written."""
        extent, start = self.extents[index], self.starts[index]
        over, at = tuple(sorted(extent.over)), self.number(extent)
        if extent.per == "unit":
            return Place(rows.format(f"({start} + {at})" if over else str(start)), Kind(True, over), note)
        first = f"{start} + {extent.per} * {self.wide.indices(extent)}"
        return Place(shared.format(f"{first} + {at}" if over else first), Kind(False, over), note)

    def number(self, extent: Extent) -> str:
        """Return which of an extent's indices k0, k1, … stand for: of a pair, the second one runs faster."""
        text = "0"
        for k, f in enumerate(extent.over):
            text = f"({text} * {self.wide.sizes[f][1]} + k{f})" if k else f"k{f}"
        return text


class Body:
    """The statements that compute some stores from leaves."""

    def __init__(self, program: Program, suffix: str) -> None:
        assert program.wide is not None
        self.program, self.wide = program, program.wide
        self.lines = Lines(suffix)
        self.kinds: list[Kind] = []
        self.phases: list[int] = []
        self.folds: dict[int, Fold] = {}  # line → the fold whose result (or a component of it) it reads
        self.own_folds: list[Fold] = []  # by a semiring's own ⊕
        self.moved: dict[int, int] = {}  # line of a fold under another index → line of the fold
        self.firsts: dict[int, tuple[int, tuple[int, ...]]] = {}  # line → (its number, the other indices)
        self.number: dict[int, int] = {}
        self._leaf_kinds: dict[str, Kind] = {}
        self._renamed: dict[tuple[int, int, int], int] = {}

    def expand(self, wanted: Iterable[int], leaves: Mapping[int, Place]) -> None:
        """Add the lines of all instructions that the wanted ones need."""
        code = self.program.instructions
        for n in sorted(needed(code, wanted, stop=leaves)):
            op, args, attr = code[n]
            if n in self.number:
                continue
            if n in leaves:
                self._leaf_kinds[leaves[n].text] = leaves[n].kind
                self.number[n] = self.lines.add(leaves[n].text, note=leaves[n].note)
            elif op is Op.CONST:
                self.number[n] = self.lines.number(float(attr or 0.0))
            elif op is Op.FIRST:
                self.number[n] = self._add_first(int(attr or 0), [self.number[a] for a in args])
            elif op is Op.MOVE:
                self.number[n] = self._rename(
                    self.number[args[0]], *divmod(int(attr or 0), len(self.wide.sizes))
                )
            elif op in SEMIRING_FOLDS:
                self._add_own_fold(n, op, int(attr or 0), tuple(self.number[a] for a in args))
            elif op in ALONG_FAMILY:
                self._add_fold(n, op, int(attr or 0), self.number[args[0]])
            else:
                self.number[n] = self.lines.instruction(self.program, code[n], self.number)
            self._describe()

    def _add_first(self, family: int, args: list[int]) -> int:
        """Add the line of a `first` along a family: for each other index it remembers whether there was one."""
        both = self.kinds[args[0]].join(self.kinds[args[1]])
        return self._new_first(tuple(f for f in both.over if f != family), args)

    def _new_first(self, others: tuple[int, ...], args: list[int]) -> int:
        at = "".join(f"[k{f}]" for f in others)
        line = self.lines.add(_FIRST.format(at=f"{len(self.firsts)}{at}"), *args)
        self.firsts[line] = len(self.firsts), others
        return line

    def _add_fold(self, n: int, op: Op, family: int, folded: int) -> None:
        kind = self.kinds[folded].without(family)
        at = kind.place
        line = self.lines.add(f"folded{len(self.folds)}{at}")
        self._leaf_kinds[self.lines.lines[line].text] = kind
        self.folds[line] = Fold(op, family, (folded,))
        self.number[n] = line

    def _add_own_fold(self, n: int, op: Op, attr: int, folded: tuple[int, ...]) -> None:
        family, component = divmod(attr, len(folded))
        known = [fold for fold in self.own_folds if fold[:3] == (op, family, folded)]
        fold = known[0] if known else Fold(op, family, folded, len(self.own_folds))
        if not known:
            self.own_folds.append(fold)
        kind = self.own_fold_kind(fold)
        name = f"so_far{fold.number}" if op is Op.FOLD else f"others{fold.number}"
        line = self.lines.add(
            f"({name}[{component}]{kind.place})"
        )  # brackets: not the line that reads it as it changes
        self._leaf_kinds[self.lines.lines[line].text] = kind
        self.folds[line] = fold
        self.number[n] = line

    def own_fold_kind(self, fold: Fold) -> Kind:
        """Return the kind of what a fold by a semiring's own ⊕ gives; `before` and `after` keep the index."""
        kind = Kind(True)
        for n in fold.folded:
            kind = kind.join(self.kinds[n])
        return kind.without(fold.family) if fold.op is Op.FOLD else kind.join(Kind(True, (fold.family,)))

    def phase(self, fold: Fold) -> int:
        """Return the phase in which a fold runs: that of the last line that it reads."""
        return max(self.phases[n] for n in fold.folded)

    def _rename(self, n: int, before: int, after: int) -> int:
        """Return the line that is line n under another index."""
        key = n, before, after
        if before not in self.kinds[n].over:
            return n
        if key not in self._renamed:
            line = self.lines.lines[n]
            args = [self._rename(a, before, after) for a in line.args]
            if n in self.firsts:
                others = (after if f == before else f for f in self.firsts[n][1])
                self._renamed[key] = self._new_first(tuple(others), args)
            else:
                text = re.sub(rf"\bk{before}\b", f"k{after}", line.text)
                if not args:
                    self._leaf_kinds[text] = self.kinds[n].renamed(before, after)
                self._renamed[key] = self.lines.add(text, *args, note=line.note)
                if n in self.folds or n in self.moved:
                    self.moved[self._renamed[key]] = self.moved.get(n, n)
            self._describe()
        return self._renamed[key]

    def _describe(self) -> None:
        """Find kind and phase of the lines that are new."""
        for n in range(len(self.kinds), len(self.lines.lines)):
            line = self.lines.lines[n]
            kind = Kind(n in self.firsts)  # whether there was a `first` is noted by lane
            kind, phase = self._leaf_kinds.get(line.text, kind), 0
            if n in self.folds:
                phase = self.phase(self.folds[n]) + 1
            elif n in self.moved:
                phase = self.phases[self.moved[n]]
            for a in line.args:
                kind, phase = kind.join(self.kinds[a]), max(phase, self.phases[a])
            self.kinds.append(kind)
            self.phases.append(phase)
