"""Write the C statements of programs of families: the loops into which `family_loops` sorts their lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rrnn.arithmetic import SEMIRING_FOLDS
from rrnn.backends.native.family_loops import Body, Fold, Kind, Written
from rrnn.backends.native.loops import Loops, Store
from rrnn.ir import Op
from rrnn.ir.semiring_code import operation_code

_FOLDS = {  # op → (the fold of nothing, how a value is added)
    Op.SUM: ("0", "{place} += {value};"),
    Op.MOST: ("-INFINITY", "{place} = max_{s}({place}, {value});"),
    Op.LEAST: ("INFINITY", "{place} = min_{s}({place}, {value});"),
    Op.LOGSUM: (
        "-INFINITY",
        "{place} = logaddexp_{s}({place}, {value}, decay_{s}(apart_{s}({place}, {value})));",
    ),
}
_ALIGNED = "__attribute__((aligned(64)))"
KEPT_BY_THREAD = "static _Thread_local "
"""What large arrays are declared as: a thread's stack may be too small for them."""


def statements(body: Body, written: Sequence[Written], given: Mapping[int, str] | None = None) -> str:
    """Return the C text that writes something. `given`: line → where it already lies."""
    return _Text(body, written, dict(given or {})).text()


class _Text:
    """One body's text."""

    def __init__(self, body: Body, written: Sequence[Written], given: dict[int, str]) -> None:
        self.body, self.written, self.given = body, written, given
        self.lines, self.kinds, self.phases = body.lines, body.kinds, body.phases
        self.used = self._needed(each.value for each in written)
        self.folds = {n: fold for n, fold in body.folds.items() if n in self.used}
        self.pairs = sorted({self.kinds[n].over for n in self.used if len(self.kinds[n].over) == 2})
        self.rows = 0
        self.lane_rows: dict[int, int] = {}
        self.declared: list[str] = []

    def _needed(self, wanted: Iterable[int]) -> set[int]:
        """Return the lines that have to be computed or read."""
        found, todo = set[int](), list(wanted)
        while todo:
            n = todo.pop()
            if n in found:
                continue
            found.add(n)
            if n in self.body.moved:
                todo.append(self.body.moved[n])
            elif n in self.body.folds:
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
        # Pairs in which only places extend over both indices, not values, have loops as well.
        self.pairs = sorted(
            {*self.pairs, *(w.place.kind.over for w in self.written if len(w.place.kind.over) == 2)}
        )
        indices = [*((f,) for f in families), *self.pairs]
        last = max((self.phases[n] for n in self.used), default=0)
        for phase in range(last + 1):
            parts += self._scalars(phase)
            for over in indices:
                parts += self._shared(over, phase)
            parts += self._lanes(phase)
            for over in indices:
                parts += self._family(over, phase)
            for fold in dict.fromkeys(self.folds.values()):
                if fold.op in SEMIRING_FOLDS and self.body.phase(fold) == phase:
                    parts += self._own_fold(fold)
        for n, fold in self.folds.items():
            if fold.op in _FOLDS:
                self._declare(self.lines.lines[n].text, self.kinds[n])
        for number, others in self._firsts().values():
            self._declare(f"seen{number}", Kind(True, others))
        rows = {
            "lane": len(self.lane_rows),
            "row": self.rows,
            "sums": sum(each.summed for each in self.written),
        }
        self.declared += [f"real {name}[{count}][STRIP] {_ALIGNED};" for name, count in rows.items() if count]
        return "\n".join("    " + line for line in [*self.declared, *parts])

    def _declare(self, place: str, kind: Kind, components: int = 0) -> None:
        """Declare the array of a place such as "folded3[k1][i]", or of elements of several components. A scalar is
        declared where it is set."""
        if not kind.over and not kind.lane:
            return
        sizes = [components] * bool(components)
        sizes += [self._size(f) for f in kind.over] + ["STRIP"] * kind.lane
        by_thread = KEPT_BY_THREAD if len(sizes) > 1 else ""
        name = place.partition("[")[0]
        self.declared.append(f"{by_thread}real {name}{''.join(f'[{size}]' for size in sizes)} {_ALIGNED};")

    def _size(self, family: int) -> int:
        return self.body.wide.sizes[family][1]

    def _firsts(self) -> dict[int, tuple[int, tuple[int, ...]]]:
        return {n: first for n, first in self.body.firsts.items() if n in self.used}

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

    def _around(self, over: tuple[int, ...], inside: list[str], simd: bool = False) -> list[str]:
        """Return loops over indices around some lines. Of a pair, the larger number is outside: that of the source."""
        for f in over:
            loop = f"for (long k{f} = 0; k{f} < {self._size(f)}; k{f}++) {{"
            inside = [
                *(["SIMD"] if simd and f == over[0] else []),
                loop,
                *("    " + line for line in inside),
                "}",
            ]
        return inside

    def _folds_here(self, over: tuple[int, ...], phase: int, lane: bool) -> list[tuple[int, Op, int]]:
        """Return the folds (line, op, line that it folds) of values with these indices."""
        return [
            (n, fold.op, fold.folded[0])
            for n, fold in self.folds.items()
            if fold.op in _FOLDS
            and self.body.phase(fold) == phase
            and self.kinds[n].lane == lane
            and tuple(sorted({fold.family, *self.kinds[n].over})) == over
        ]

    def _scalars(self, phase: int) -> list[str]:
        """Return the statements for what all lanes and indices share."""
        text = []
        for n in self._computed(Kind(False), phase):
            text.append(f"const real c{n} = {self._spell(n, 'c')};")
            self.given[n] = f"c{n}"
        return text

    def _shared(self, over: tuple[int, ...], phase: int) -> list[str]:
        """Return the loops for what depends on indices, but not on the lane; then its folds."""
        computed, text = self._computed(Kind(False, over), phase), []
        at = "".join(f"[k{f}]" for f in reversed(over))
        if computed:
            inside = []
            for n in computed:
                sizes = "".join(f"[{self._size(f)}]" for f in reversed(over))
                self.declared.append(f"{KEPT_BY_THREAD * (len(over) > 1)}real c{n}{sizes} {_ALIGNED};")
                inside += [f"const real v{n} = {self._spell(n, 'v')};", f"c{n}{at} = v{n};"]
            text += self._around(over, inside, simd=True)
            for n in computed:
                self.given[n] = f"c{n}{at}"
        for n, op, folded in self._folds_here(over, phase, lane=False):
            nothing, form = _FOLDS[op]
            place, rest = self.lines.lines[n].text, self.kinds[n].over
            add = form.format(place=place, value=self._read(folded, "v"), s=self.lines.suffix)
            text += self._around(rest, [f"{place} = {nothing};"]) if rest else [f"real {place} = {nothing};"]
            text += self._around(over, [add])
        return text

    def _lanes(self, phase: int) -> list[str]:
        """Return the loops over lanes for what does not depend on an index."""
        kind = Kind(True)
        later = {
            a
            for n in self.used
            if n not in self.given and (self.kinds[n].over or self.phases[n] > phase)
            for a in self.lines.lines[n].args
        }
        later |= {each.value for each in self.written if each.place.kind.over}
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
            if (each.place.kind.over, self.phases[each.value]) == (kind.over, phase)
        ]

    def _family(self, over: tuple[int, ...], phase: int) -> list[str]:
        """Return the loops over indices, with loops over lanes inside."""
        kind = Kind(True, over)
        stores = [each.store for each in self._here(kind, phase) if not each.summed]
        before, kept = [], self._read_by_pairs(kind, phase)
        for n, op, folded in self._folds_here(over, phase, lane=True):
            nothing, form = _FOLDS[op]
            place = self.lines.lines[n].text
            clear = ["SIMD", f"for (long i = 0; i < n; i++) {place} = {nothing};"]
            before += self._around(self.kinds[n].over, clear)
            stores.append(Store(place, folded, form=form.replace("{s}", self.lines.suffix)))
        for n in kept:
            self._declare(f"kept{n}", kind)
            stores.append(Store(f"kept{n}[k{over[0]}][i]", n))
        sums, totals = self._sums(kind, phase)
        inside = self._loops(stores + sums) + totals
        if not inside:
            return before
        for number, _ in self._firsts().values():
            before.append(f"memset(seen{number}, 0, sizeof seen{number});")
        self.given |= {n: f"kept{n}[k{over[0]}][i]" for n in kept}
        return before + self._around(over, inside)

    def _own_fold(self, fold: Fold) -> list[str]:
        """Return the loop over a family's index that joins elements by the semiring's own ⊕."""
        ring, lines, k = self.body.program.semiring, self.lines, f"k{fold.family}"
        kind = self.body.own_fold_kind(fold)
        kept, name = kind.without(fold.family), f"so_far{fold.number}"
        places = [f"{name}[{c}]{kept.place}" for c in range(ring.size)]
        so_far = [lines.add(place) for place in places]
        # In the order of the indices: what comes before stands on the left.
        given = [*fold.folded, *so_far] if fold.op is Op.AFTER else [*so_far, *fold.folded]
        joined = lines.operation(operation_code(ring, "plus"), given)
        stores = [Store(p, n, overwrites=old) for p, n, old in zip(places, joined, so_far, strict=True)]
        self._declare(name, kept, ring.size)
        if fold.op is not Op.FOLD:
            others = f"others{fold.number}"
            stores = [Store(f"{others}[{c}]{kind.place}", n) for c, n in enumerate(so_far)] + stores
            self._declare(others, kind, ring.size)
        zeros = list[str]()
        for place, zero in zip(places, ring.numbers_of(ring.zero), strict=True):
            value = lines.lines[lines.number(zero)].text
            zeros += ["SIMD", f"for (long i = 0; i < n; i++) {place} = {value};"]
        last = f"{self._size(fold.family)} - 1"
        walk = f"{k} = {last}; {k} >= 0; {k}--" if fold.op is Op.AFTER else f"{k} = 0; {k} <= {last}; {k}++"
        inside = [f"for (long {walk}) {{", *("    " + line for line in self._loops(stores)), "}"]
        return self._around(kept.over, [*zeros, *inside])

    def _read_by_pairs(self, kind: Kind, phase: int) -> list[int]:
        """Return the lines with one index that lines with two read: they are computed once, not in the inner loop."""
        if len(kind.over) != 1:
            return []
        wanted = {a for n in self.used if len(self.kinds[n].over) == 2 for a in self.lines.lines[n].args}
        return [n for n in self._computed(kind, phase) if n in wanted]

    def _sums(self, kind: Kind, phase: int) -> tuple[list[Store], list[str]]:
        """Return the stores and, after them, the statements that add up lanes for the places that they share."""
        here = [each for each in self._here(kind, phase) if each.summed]
        values = list(dict.fromkeys(each.value for each in here))
        stores = [Store(f"sums[{j}][i]", n) for j, n in enumerate(values)]
        totals = [f"const real total{j} = total(sums[{j}], m);" for j in range(len(values))]
        totals += [f"{each.place.text} += total{values.index(each.value)};" for each in here]
        return stores, ["{", *totals, "}"] if totals else []

    def _loops(self, stores: list[Store]) -> list[str]:
        if not stores:
            return []
        loops = Loops(self.lines, stores, self.given)
        self.rows = max(self.rows, len(loops.rows))
        return loops.text(0).split("\n")
