"""Write the kernels that run forwards: the recurrence along a chunk, and chunks summarised and joined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rrnn.backends.triton.chained_chunks import CHAIN, PLACE, join
from rrnn.backends.triton.kernel_text import (
    PACKED,
    EntryKeys,
    EntryName,
    KernelText,
    is_const,
    name_of,
    number,
    shift,
    whole,
)
from rrnn.backends.triton.time_loop import TimeLoop
from rrnn.ir import Program, scan_form
from rrnn.ir.adjoint import unit_values

_POINTERS = "x, theta, starts, mask, inp, out, final, saved,"
_NUMBERS = "xt, xb, xk, mt, mb, it, ib, ot, ob, T, B, D, C,"
_CONSTANTS = "MASKED: tl.constexpr, BLOCK: tl.constexpr,"


class ForwardKernels(TimeLoop):
    """Writes the kernels of the recurrence."""

    def _chunk(
        self,
        k: KernelText,
        program: Program,
        body: Callable[[int], None],
        more: dict[str, tuple[str, str]],
        again: bool = False,
    ) -> None:
        """Walk a chunk forwards, `unroll` steps a turn, then one by one. `more`: pointers that the body writes to."""
        k("t = c * C", "end = tl.minimum(t + C, T)", f"turns = (end - t) // {self.unroll}")
        places = self._pointers() | more
        k(*(f"{name} = {start}" for name, (start, _) in places.items()))

        def turn(steps: int) -> Callable[[], None]:
            def run() -> None:
                body(steps)
                k(*(f"{name} += {steps} * {stride}" for name, (_, stride) in more.items()))

            return run

        self._turns(k, program, self.unroll, False, False, False, turn(self.unroll), again)
        if self.unroll > 1:
            k("for _ in range(0, end - t):")
            k.depth += 1
            self._loads(k, program, [0], "a")
            turn(1)()
            k(*(f"{name} += {stride}" for name, (_, stride) in self._pointers().items()), "t += 1")
            k.depth -= 1

    def _recur(self, k: KernelText, again: bool = False) -> None:
        """Write the recurrence along a chunk, from the states z."""
        p, every = self.program, self.every
        units, results, outputs = unit_values(p), p.of_kind("state"), p.of_kind("output")

        def body(steps: int) -> None:
            for j in range(steps):
                fixed = bool(every) and steps % every == 0
                if every and (not fixed or j % every == 0):
                    when = "ok" if fixed else f"d < tl.where((t + {j}) % {every} == 0, D, 0)"
                    for s in range(self.S):
                        at = f"saved + ((t + {j}) // {every} * {self.S} + {s}) * lanes + lane"
                        k(f"tl.store({at}, z{s}, mask={when})")
                k.step(p, [*results.values(), *outputs.values()], units, self._leaf(j, "z"), f"s{j}_")
                for s, n in results.items():
                    self._select(k, f"y{s}", whole(f"s{j}_v{n}", is_const(p, n)), f"z{s}", j)
                k(*(f"z{s} = y{s}" for s in results))
                for i, n in outputs.items():
                    value = whole(f"s{j}_v{n}", is_const(p, n))
                    self._select(k, f"o{j}{self._part(i)}", value, "0.0", j)
            for j in range(steps):
                for i in outputs:
                    at, value = f"op + {j} * ot{self._column(i)}", f"o{j}{self._part(i)}"
                    k(f"tl.store({at}, {value}.to(out.dtype.element_ty), mask=ok)")

        self._chunk(k, p, body, {"op": ("out + t * ot + b * ob + d", "ot")}, again)
        k("if end == T:")
        k(
            *(f"    tl.store(final + {s} * lanes + lane, z{s}, mask=ok)" for s in range(self.S)),
            *([] if self.S else ["    pass"]),
        )

    def forward(self) -> str:
        """Return the kernel that runs every chunk from its first states."""
        k = KernelText()
        if self.packed:
            steps = {"x": "xt", "out": "ot"} | ({"inp": "it"} if self.program.uses_input else {})
            rows = {"starts": f"{self.S} * D", "final": f"{self.S} * D"}
            shift(k, steps, rows, (self.every, self.S) if self.every else None)
        k.units(self.program, unit_values(self.program))
        k.first("z", "starts", lambda s: f"(c * {self.S} + {s}) * lanes + lane", self.program.first_states)
        self._recur(k)
        if self.packed:
            numbers = _NUMBERS.replace(" T, B, D, C,", " D,")
            return k.text("forward", f"{_POINTERS} sequences, {numbers}\n    {_CONSTANTS}", PACKED)
        return k.text("forward", f"{_POINTERS} {_NUMBERS}\n    {_CONSTANTS}")

    def _summarise(self, k: KernelText) -> None:
        """Compose a chunk's transition: m_{i}_{j}, of each component."""
        form, ring = scan_form(self.unflattened), self.unflattened.semiring
        p, size = form.program.flat, form.size
        units, entries = unit_values(p), p.of_kind("entry")
        steps = sorted({divmod(index // ring.size, size) for index in entries})
        k.units(p, units)
        for key in self._keys():
            first = ring.numbers_of(ring.one if key[0] == key[1] else ring.zero)[key[2] if key[2:] else 0]
            k(f"m{name_of(key)} = tl.full([BLOCK], {number(first)}, tl.float32)")

        def body(count: int) -> None:
            for s in range(count):
                tag = f"s{s}_"
                k.step(p, entries.values(), units, self._leaf(s, "none"), tag)

                def entry(via: int, to: int, tag: str = tag) -> Any:
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
                for key in self._keys():
                    self._select(k, f"m{name_of(key)}", f"n{name_of(key)}", f"m{name_of(key)}", s)

        self._chunk(k, p, body, {})

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

    def _assign(self, k: KernelText, target: Any, terms: list[Any]) -> None:
        """Write target, the ⊕ of the terms, component by component."""
        ring = self.unflattened.semiring
        total = terms[0] if terms else ring.element(number(x) for x in ring.numbers_of(ring.zero))
        for term in terms[1:]:
            total = k.combine(ring, "plus", total, term)
        for name, value in zip(ring.numbers_of(target), ring.numbers_of(total), strict=True):
            k(f"{name} = {whole(value, not terms)}")

    def _apply(self, k: KernelText, entry: EntryName) -> None:
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

    def summary(self) -> str:
        """Return the kernel that composes each chunk's transition."""
        k, keys = KernelText(), self._keys()
        self._summarise(k)
        for e, key in enumerate(keys):
            k(f"tl.store(entries + (c * {len(keys)} + {e}) * lanes + lane, m{name_of(key)}, mask=ok)")
        arguments = "x, theta, mask, inp, entries, xt, xb, xk, mt, mb, it, ib, T, B, D, C,"
        return k.text("summary", f"{arguments}\n    {_CONSTANTS}")

    def join(self) -> str:
        """Return the kernel that finds the states at the start of every chunk, from the first state and the chunks'
        transitions."""
        return self._join("join", self._keys(), self._apply, self.program.first_states)

    def chained(self) -> str:
        """Return one kernel for all three parts; its second walk reads from the L2 cache what the first has read."""
        k = KernelText()
        self._summarise(k)
        join(k, self.program.first_states, self._keys(), self._apply, "starts")
        k.units(self.program, unit_values(self.program))
        self._recur(k, again=True)
        place = PLACE.format(chunk="place")
        return k.text("chained", f"{_POINTERS} {CHAIN}\n    {_NUMBERS} chunks, {_CONSTANTS}", place)
