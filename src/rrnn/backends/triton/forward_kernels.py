"""Write the kernels that run forwards: the recurrence along a chunk, and chunks summarised and joined."""

from __future__ import annotations

from collections.abc import Callable

from rrnn.backends.triton.chained_chunks import CHAIN, PLACE, join
from rrnn.backends.triton.kernel_text import (
    PACKED,
    KernelText,
    is_const,
    name_of,
    number,
    shift,
    whole,
)
from rrnn.backends.triton.time_loop import TimeLoop
from rrnn.backends.triton.transitions import Transitions
from rrnn.ir import Program, scan_form
from rrnn.ir.adjoint import unit_values

_POINTERS = "x, theta, starts, mask, inp, out, final, saved,"
_NUMBERS = "xt, xb, xk, mt, mb, it, ib, ot, ob, T, B, D, C,"
_CONSTANTS = "MASKED: tl.constexpr, BLOCK: tl.constexpr,"


class ForwardKernels(TimeLoop, Transitions):
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
        p = form.program.flat
        units, entries = unit_values(p), p.of_kind("entry")
        k.units(p, units)
        for key in self._keys():
            first = ring.numbers_of(ring.one if key[0] == key[1] else ring.zero)[key[2] if key[2:] else 0]
            k(f"m{name_of(key)} = tl.full([BLOCK], {number(first)}, tl.float32)")

        def body(count: int) -> None:
            for s in range(count):
                tag = f"s{s}_"
                k.step(p, entries.values(), units, self._leaf(s, "none"), tag)
                self._compose(k, tag)
                for key in self._keys():
                    self._select(k, f"m{name_of(key)}", f"n{name_of(key)}", f"m{name_of(key)}", s)

        self._chunk(k, p, body, {})

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
