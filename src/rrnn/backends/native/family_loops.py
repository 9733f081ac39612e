"""Turn programs of families into C: a family is a loop over its index around a loop over lanes.

A line of code belongs to one of four kinds: it may differ from lane to lane or be shared by the lanes of a head, and it
may depend on the index of a family or not. Where a fold over a family is read, a new *phase* begins. A phase computes
what is shared (once for all lanes), then loops over lanes, then, for each family, loops over its index and inside over
lanes. The text is as long for a family of 4 states as for one of 128.

A ⊕ that is no single operation has a loop over the index of its own, in which the elements so far are read, joined with
those of the index, and written back; for the ⊕ of all states before or after each, these are also kept for each index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rrnn.arithmetic import ALONG_FAMILY, SEMIRING_FOLDS
from rrnn.backends.native.loops import PLAIN, Lines, Loops, Store
from rrnn.ir import Op, Program
from rrnn.ir.program import Extent, Families, needed
from rrnn.ir.semiring_code import operation_code

_FIRST = "first_{s}(&seen[{{at}}][i], {0}, {1})"
_FOLDS = {  # op → (the fold of nothing, how a value is added)
    Op.SUM: ("0", "{place} += {value};"),
    Op.MOST: ("-INFINITY", "{place} = max_{s}({place}, {value});"),
    Op.LEAST: ("INFINITY", "{place} = min_{s}({place}, {value});"),
    Op.LOGSUM: (
        "-INFINITY",
        "{place} = logaddexp_{s}({place}, {value}, decay_{s}(apart_{s}({place}, {value})));",
    ),
}


class Fold(NamedTuple):
    """A fold over a family: an op, and the lines that it folds, one for each component of an element."""

    op: Op
    family: int
    folded: tuple[int, ...]
    number: int = 0
    """Of a semiring's own ⊕: which of all such folds it is. Its components share a loop."""


class Kind(NamedTuple):
    """What a value depends on: the lane (a unit of its own), and the index of a family."""

    lane: bool
    family: int | None

    def join(self, other: Kind) -> Kind:
        """Return the kind of what is computed from both."""
        assert None in (self.family, other.family) or self.family == other.family, "one family at a time"
        return Kind(self.lane or other.lane, other.family if self.family is None else self.family)


class Place(NamedTuple):
    """Where a leaf, or what is stored, lies: C text, with `k` for the index of its family; its kind; a note."""

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
        family = extent.over[0] if extent.over else None
        if extent.per == "unit":
            at = f"({start} + k)" if extent.over else str(start)
            return Place(rows.format(at), Kind(True, family), note)
        at = f"{start} + {extent.per} * {self.wide.indices(extent)}" + (" + k" if extent.over else "")
        return Place(shared.format(at), Kind(False, family), note)


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
        self.firsts = 0
        self.number: dict[int, int] = {}
        self._leaf_kinds: dict[str, Kind] = {}

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
                text = _FIRST.replace("{{at}}", str(self.firsts))
                self.firsts += 1
                self.number[n] = self.lines.add(text, *(self.number[a] for a in args))
            elif op in SEMIRING_FOLDS:
                self._add_own_fold(n, op, int(attr or 0), tuple(self.number[a] for a in args))
            elif op in ALONG_FAMILY:
                self._add_fold(n, op, int(attr or 0), self.number[args[0]])
            else:
                self.number[n] = self.lines.instruction(self.program, code[n], self.number)
            self._describe()

    def _add_fold(self, n: int, op: Op, family: int, folded: int) -> None:
        lane = self.kinds[folded].lane
        line = self.lines.add(f"folded[{len(self.folds)}][i]" if lane else f"folded_{len(self.folds)}")
        self._leaf_kinds[self.lines.lines[line].text] = Kind(lane, None)
        self.folds[line] = Fold(op, family, (folded,))
        self.number[n] = line

    def _add_own_fold(self, n: int, op: Op, attr: int, folded: tuple[int, ...]) -> None:
        family, component = divmod(attr, len(folded))
        known = [fold for fold in self.own_folds if fold[:3] == (op, family, folded)]
        fold = known[0] if known else Fold(op, family, folded, len(self.own_folds))
        if not known:
            self.own_folds.append(fold)
        place = f"so_far{fold.number}" if op is Op.FOLD else f"others{fold.number}"
        place += f"[{component}]" if op is Op.FOLD else f"[{component}][k]"
        line = self.lines.add(f"({place}[i])")  # brackets: not the line that reads it while it changes
        self._leaf_kinds[self.lines.lines[line].text] = Kind(True, None if op is Op.FOLD else family)
        self.folds[line] = fold
        self.number[n] = line

    def phase(self, fold: Fold) -> int:
        """Return the phase in which a fold runs: that of the last line that it reads."""
        return max(self.phases[n] for n in fold.folded)

    def _describe(self) -> None:
        """Find kind and phase of the lines that are new."""
        for n in range(len(self.kinds), len(self.lines.lines)):
            line = self.lines.lines[n]
            kind, phase = self._leaf_kinds.get(line.text, Kind(False, None)), 0
            if n in self.folds:
                phase = self.phase(self.folds[n]) + 1
            for a in line.args:
                kind, phase = kind.join(self.kinds[a]), max(phase, self.phases[a])
            self.kinds.append(kind)
            self.phases.append(phase)

    # ---- text ------------------------------------------------------------------------------------------------

    def text(self, written: Sequence[Written], given: Mapping[int, str] | None = None) -> str:
        """Return the C text that writes something. `given`: line → where it already lies."""
        return _Text(self, written, dict(given or {})).text()


class _Text:
    """One body's text."""

    def __init__(self, body: Body, written: Sequence[Written], given: dict[int, str]) -> None:
        self.body, self.written, self.given = body, written, given
        self.lines, self.kinds, self.phases = body.lines, body.kinds, body.phases
        self.used = self._needed(each.value for each in written)
        self.folds = {n: fold for n, fold in body.folds.items() if n in self.used}
        self.rows = 0
        self.own_rows: list[str] = []
        self.lane_rows: dict[int, int] = {}

    def _needed(self, wanted: Iterable[int]) -> set[int]:
        """Return the lines that have to be computed or read."""
        found, todo = set[int](), list(wanted)
        while todo:
            n = todo.pop()
            if n in found:
                continue
            found.add(n)
            if n in self.body.folds:
                todo += self.body.folds[n].folded
            elif n not in self.given:
                todo += self.lines.lines[n].args
        return found

    def _computed(self, kind: Kind, phase: int) -> list[int]:
        """Return the used lines of a kind and phase that are neither leaves nor given."""
        return [
            n
            for n in sorted(self.used)
            if self.lines.lines[n].args
            and n not in self.given
            and (self.kinds[n], self.phases[n]) == (kind, phase)
        ]

    def text(self) -> str:
        parts: list[str] = []
        families = range(len(self.body.wide.sizes))
        last = max((self.phases[n] for n in self.used), default=0)
        for phase in range(last + 1):
            parts += self._scalars(phase)
            for family in families:
                parts += self._shared_family(family, phase)
            parts += self._lanes(phase)
            for family in families:
                parts += self._family(family, phase)
            for fold in dict.fromkeys(self.folds.values()):
                if fold.op in SEMIRING_FOLDS and self.body.phase(fold) == phase:
                    parts += self._own_fold(fold)
        lane_folds = [n for n, fold in self.folds.items() if self.kinds[n].lane and fold.op in _FOLDS]
        declared = [f"real folded[{len(self.body.folds) + 1}][STRIP] __attribute__((aligned(64)));"] * bool(
            lane_folds
        )
        declared += [f"real lane[{len(self.lane_rows)}][STRIP] __attribute__((aligned(64)));"] * bool(
            self.lane_rows
        )
        declared += [f"real row[{self.rows}][STRIP] __attribute__((aligned(64)));"] * bool(self.rows)
        declared += self.own_rows
        sums = sum(each.summed for each in self.written)
        declared += [f"real sums[{sums}][STRIP] __attribute__((aligned(64)));"] * bool(sums)
        if self.body.firsts:
            declared.append(f"real seen[{self.body.firsts}][STRIP] __attribute__((aligned(64)));")
        return "\n".join("    " + line for line in [*declared, *parts])

    def _spell(self, n: int, name: str) -> str:
        """Return the C expression of a line; `name` begins the names of its arguments."""
        line = self.lines.lines[n]
        return line.text.format(*(self._read(a, name) for a in line.args), s=self.lines.suffix)

    def _read(self, n: int, name: str) -> str:
        """Return how a shared line reads another one."""
        if n in self.lines.numbers:
            return self.lines.lines[n].text
        if n in self.given:
            return self.given[n]
        return self.lines.lines[n].text if not self.lines.lines[n].args else f"{name}{n}"

    def _scalars(self, phase: int) -> list[str]:
        """Return the statements for what all lanes and indices share."""
        text = []
        for n in self._computed(Kind(False, None), phase):
            text.append(f"const real c{n} = {self._spell(n, 'c')};")
            self.given[n] = f"c{n}"
        return text

    def _shared_family(self, family: int, phase: int) -> list[str]:
        """Return the loops for what depends on the index, but not on the lane; then its folds."""
        size = self.body.wide.sizes[family][1]
        computed, text = self._computed(Kind(False, family), phase), []
        if computed:
            text += [f"real c{n}[{size}] __attribute__((aligned(64)));" for n in computed]
            text += ["SIMD", f"for (long k = 0; k < {size}; k++) {{"]
            for n in computed:
                text.append(f"    const real v{n} = {self._spell(n, 'v')};")
                text.append(f"    c{n}[k] = v{n};")
            text.append("}")
            for n in computed:
                self.given[n] = f"c{n}[k]"
        for n, folded, (nothing, form) in self._folds(family, phase, lane=False):
            name = self.lines.lines[n].text
            add = form.format(place=name, value=self._read(folded, "v"), s=self.lines.suffix)
            text += [f"real {name} = {nothing};", f"for (long k = 0; k < {size}; k++) {add}"]
        return text

    def _lanes(self, phase: int) -> list[str]:
        """Return the loops over lanes for what does not depend on an index."""
        kind = Kind(True, None)
        later = {
            a
            for n in self.used
            if n not in self.given and (self.kinds[n].family is not None or self.phases[n] > phase)
            for a in self.lines.lines[n].args
        }
        later |= {each.value for each in self.written if each.place.kind.family is not None}
        stores = [each.store for each in self._here(kind, phase) if not each.summed]
        for n in self._computed(kind, phase):
            if n in later:
                self.lane_rows[n] = len(self.lane_rows)
                stores.append(Store(f"lane[{self.lane_rows[n]}][i]", n))
        sums, totals = self._sums(kind, phase)
        text = self._loops(stores + sums)
        for n in self._computed(kind, phase):
            if n in self.lane_rows:
                self.given[n] = f"lane[{self.lane_rows[n]}][i]"
        return text + totals

    def _here(self, kind: Kind, phase: int) -> list[Written]:
        """Return what the loops of a kind and phase write. What lanes share is written by a loop over lanes, too."""
        return [
            each
            for each in self.written
            if (each.place.kind.family, self.phases[each.value]) == (kind.family, phase)
        ]

    def _family(self, family: int, phase: int) -> list[str]:
        """Return the loop over a family's index, with loops over lanes inside."""
        kind, size = Kind(True, family), self.body.wide.sizes[family][1]
        stores = [each.store for each in self._here(kind, phase) if not each.summed]
        before = []
        for n, folded, (nothing, form) in self._folds(family, phase, lane=True):
            place = self.lines.lines[n].text
            before += ["SIMD", f"for (long i = 0; i < n; i++) {place} = {nothing};"]
            stores.append(Store(place, folded, form=form.replace("{s}", self.lines.suffix)))
        sums, totals = self._sums(kind, phase)
        inside = self._loops(stores + sums) + totals
        if not inside:
            return before
        if self.body.firsts:
            before.append("memset(seen, 0, sizeof seen);")
        return [*before, f"for (long k = 0; k < {size}; k++) {{", *("    " + line for line in inside), "}"]

    def _folds(self, family: int, phase: int, lane: bool) -> Iterator[tuple[int, int, tuple[str, str]]]:
        """Return (line, line that it folds, row of `_FOLDS`) of the folds by one op in a phase."""
        for n, (op, along, folded, _) in self.folds.items():
            if (
                op in _FOLDS
                and (along, self.kinds[n].lane) == (family, lane)
                and self.phases[folded[0]] == phase
            ):
                yield n, folded[0], _FOLDS[op]

    def _own_fold(self, fold: Fold) -> list[str]:
        """Return the loop over a family's index that joins elements by the semiring's own ⊕."""
        ring, lines, size = self.body.program.semiring, self.lines, self.body.wide.sizes[fold.family][1]
        places = [f"so_far{fold.number}[{c}][i]" for c in range(ring.size)]
        so_far = [lines.add(place) for place in places]
        # In the order of the indices: what comes before stands on the left.
        given = [*fold.folded, *so_far] if fold.op is Op.AFTER else [*so_far, *fold.folded]
        joined = lines.operation(operation_code(ring, "plus"), given)
        stores = [Store(p, n, overwrites=old) for p, n, old in zip(places, joined, so_far, strict=True)]
        self.own_rows += [f"real so_far{fold.number}[{ring.size}][STRIP] __attribute__((aligned(64)));"]
        if fold.op is not Op.FOLD:
            others = f"others{fold.number}"
            stores = [Store(f"{others}[{c}][k][i]", n) for c, n in enumerate(so_far)] + stores
            self.own_rows += [f"real {others}[{ring.size}][{size}][STRIP] __attribute__((aligned(64)));"]
        text = list[str]()
        for place, zero in zip(places, ring.numbers_of(ring.zero), strict=True):
            value = lines.lines[lines.number(zero)].text
            text += ["SIMD", f"for (long i = 0; i < n; i++) {place} = {value};"]
        walk = f"k = {size} - 1; k >= 0; k--" if fold.op is Op.AFTER else f"k = 0; k < {size}; k++"
        return [*text, f"for (long {walk}) {{", *("    " + line for line in self._loops(stores)), "}"]

    def _sums(self, kind: Kind, phase: int) -> tuple[list[Store], list[str]]:
        """Return the stores and, after them, the statements that add up lanes for the places that they share."""
        here = [each for each in self._here(kind, phase) if each.summed]
        stores = [Store(f"sums[{j}][i]", each.value) for j, each in enumerate(here)]
        return stores, [f"{each.place.text} += total(sums[{j}], m);" for j, each in enumerate(here)]

    def _loops(self, stores: list[Store]) -> list[str]:
        if not stores:
            return []
        loops = Loops(self.lines, stores, self.given)
        self.rows = max(self.rows, len(loops.rows))
        return loops.text(0).split("\n")
