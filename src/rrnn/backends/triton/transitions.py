"""Write how transitions of steps compose to those of chunks, and how states pass through a chunk.

Forwards an entry is an element of the semiring, from state i − 1 before the chunk (0: from the constant one) to state
j − 1 after it; backwards a number, what state i's gradient before the chunk gets from state j's after it.
"""

from __future__ import annotations

from typing import Any

from rrnn.backends.triton.kernel_text import Elements, EntryKeys, EntryName, name_of, number
from rrnn.ir import Program, reverse_scan_form, scan_form


class Transitions:
    """Writes the arithmetic of transitions; m_{i}_{j} are a chunk's entries, n_{i}_{j} those with one more step."""

    unflattened: Program

    def _keys(self) -> EntryKeys:
        """Return the keys (i, j) of what goes from state i − 1 before the chunk (0: from the constant one) to state j −
        1 after it, one for each component."""
        carried, size = sorted(scan_form(self.unflattened).carried), self.unflattened.semiring.size
        return [(*key, c) if size > 1 else key for key in carried for c in range(size)]

    def _element(self, letter: str, i: int, j: int) -> Any:
        """Return the names of an entry's components, as an element of texts."""
        ring = self.unflattened.semiring
        parts = [(i, j, c) if ring.size > 1 else (i, j) for c in range(ring.size)]
        return ring.element(f"{letter}{name_of(key)}" for key in parts)

    def _assign(self, k: Elements, target: Any, terms: list[Any]) -> None:
        """Write target, the ⊕ of the terms, component by component."""
        ring = self.unflattened.semiring
        total = terms[0] if terms else ring.element(number(x) for x in ring.numbers_of(ring.zero))
        for term in terms[1:]:
            total = k.combine(ring, "plus", total, term)
        for name, value in zip(ring.numbers_of(target), ring.numbers_of(total), strict=True):
            k(f"{name} = {value if terms else k.filled(value)}")

    def _compose(self, k: Elements, tag: str) -> None:
        """Write n, the entries m of a chunk and then a step, whose values have this tag."""
        form, ring = scan_form(self.unflattened), self.unflattened.semiring
        entries, size = form.program.flat.of_kind("entry"), form.size
        steps = sorted({divmod(index // ring.size, size) for index in entries})

        def entry(via: int, to: int) -> Any:
            numbers = (entries[(via * size + to) * ring.size + c] for c in range(ring.size))
            return ring.element(f"{tag}v{n}" for n in numbers)

        for i, j in sorted(form.carried):
            terms = []
            for via, to in steps:
                if to == j and (i, via) in form.carried:
                    terms.append(k.combine(ring, "times", self._element("m", i, via), entry(via, to)))
                elif to == j and i == via == 0:  # the constant one reaches itself with weight one
                    terms.append(entry(via, to))
            self._assign(k, self._element("n", i, j), terms)

    def _apply(self, k: Elements, entry: EntryName) -> None:
        """Write n, the states z taken through a chunk."""
        form, ring = scan_form(self.unflattened), self.unflattened.semiring
        size = ring.size

        def state(letter: str, s: int) -> Any:
            return ring.element(f"{letter}{s * size + c}" for c in range(size))

        def carried(i: int, j: int) -> Any:
            keys = [(i, j, c) if size > 1 else (i, j) for c in range(size)]
            return ring.element(entry(key) for key in keys)

        for j in range(1, form.size):
            terms = [carried(0, j)] if (0, j) in form.carried else []
            for i in range(1, form.size):
                if (i, j) in form.carried:
                    terms.append(k.combine(ring, "times", state("z", i - 1), carried(i, j)))
            self._assign(k, state("n", j - 1), terms)

    def _reverse_keys(self) -> EntryKeys:
        """Return the keys (i, j) of what state i's gradient before the chunk gets from state j's after it; j = S is the
        constant part."""
        form = reverse_scan_form(self.unflattened)
        return sorted(form.carried) + [(i, form.size) for i in range(form.size)]

    def _reverse_compose(self, k: Elements, tag: str) -> None:
        """Write n, a step backwards, whose values have this tag, before the entries m of a chunk."""
        form, keys = reverse_scan_form(self.unflattened), self._reverse_keys()
        size, direct = form.size, form.program.of_kind("direct")
        jacobian = {divmod(i, size): n for i, n in form.program.of_kind("jacobian").items()}
        for i, j in keys:
            terms = []
            for (old, via), n in sorted(jacobian.items()):
                if old == i and j == size:
                    terms.append(f"{tag}v{n} * (m_{via}_{j} + {tag}v{direct[via]})")
                elif old == i and (via, j) in keys:
                    terms.append(f"{tag}v{n} * m_{via}_{j}")
            k(f"n_{i}_{j} = {' + '.join(terms) or k.filled('0.0')}")

    def _reverse_apply(self, k: Elements, entry: EntryName) -> None:
        """Write n, the gradients z taken back through a chunk."""
        keys, size = self._reverse_keys(), reverse_scan_form(self.unflattened).size
        for i in range(size):
            terms = [f"z{j} * {entry((i, j))}" for j in range(size) if (i, j) in keys]
            k(f"n{i} = {' + '.join([*terms, entry((i, size))])}")
