"""Kernels that run forwards: the recurrence itself, and chunks summarised and joined."""

from __future__ import annotations

from collections.abc import Callable

from rrnn.backends.triton.chain import CHAIN, PLACE, join
from rrnn.backends.triton.kernel import OPS, Kernel, is_const, number, whole
from rrnn.backends.triton.walk import Walk
from rrnn.ir import Program, scan_form
from rrnn.ir.adjoint import unit_values
from rrnn.ir.ops import PLUS, TIMES

_POINTERS = "x, theta, starts, mask, inp, out, final, saved,"
_NUMBERS = "xt, xb, xk, mt, mb, it, ib, ot, ob, T, B, D, C,"
_CONSTANTS = "MASKED: tl.constexpr, BLOCK: tl.constexpr,"


class Forwards(Walk):
    def _chunk(
        self,
        k: Kernel,
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

    def _recur(self, k: Kernel, again: bool = False) -> None:
        """The recurrence along a chunk, from the states z."""
        p, every = self.program, self.every
        units, results, output = unit_values(p), p.of_kind("state"), p.of_kind("output")[0]

        def body(steps: int) -> None:
            for j in range(steps):
                fixed = bool(every) and steps % every == 0
                if every and (not fixed or j % every == 0):
                    when = "ok" if fixed else f"d < tl.where((t + {j}) % {every} == 0, D, 0)"
                    for s in range(self.S):
                        at = f"saved + ((t + {j}) // {every} * {self.S} + {s}) * lanes + lane"
                        k(f"tl.store({at}, z{s}, mask={when})")
                k.step(p, [*results.values(), output], units, self._leaf(j, "z"), f"s{j}_")
                for s, n in results.items():
                    self._select(k, f"y{s}", whole(f"s{j}_v{n}", is_const(p, n)), f"z{s}", j)
                k(*(f"z{s} = y{s}" for s in results))
                self._select(k, f"o{j}", whole(f"s{j}_v{output}", is_const(p, output)), "0.0", j)
            for j in range(steps):
                k(f"tl.store(op + {j} * ot, o{j}.to(out.dtype.element_ty), mask=ok)")

        self._chunk(k, p, body, {"op": ("out + t * ot + b * ob + d", "ot")}, again)
        k("if end == T:")
        k(
            *(f"    tl.store(final + {s} * lanes + lane, z{s}, mask=ok)" for s in range(self.S)),
            *([] if self.S else ["    pass"]),
        )

    def forward(self) -> str:
        k = Kernel()
        k.units(self.program, unit_values(self.program))
        k.first("z", "starts", lambda s: f"(c * {self.S} + {s}) * lanes + lane", self.program.first_states)
        self._recur(k)
        return k.text("forward", f"{_POINTERS} {_NUMBERS}\n    {_CONSTANTS}")

    def _summarise(self, k: Kernel) -> None:
        """Compose a chunk's transition: m_{i}_{j}."""
        form = scan_form(self.program)
        p, size = form.program, form.size
        units, entries = unit_values(p), {divmod(i, size): n for i, n in p.of_kind("entry").items()}
        semiring = self.program.semiring
        plus, times = (OPS[t[semiring.name]].format for t in (PLUS, TIMES))
        k.units(p, units)
        for i, j in self._keys():
            first = number(semiring.one if i == j else semiring.zero)
            k(f"m_{i}_{j} = tl.full([BLOCK], {first}, tl.float32)")

        def body(steps: int) -> None:
            for s in range(steps):
                tag = f"s{s}_"
                k.step(p, entries.values(), units, self._leaf(s, "none"), tag)
                for i, j in self._keys():
                    terms = []
                    for (via, to), n in sorted(entries.items()):
                        if to == j and (i, via) in form.carried:
                            terms.append(f"({times(f'm_{i}_{via}', f'{tag}v{n}')})")
                        elif to == j and i == via == 0:  # the constant one reaches itself with weight one
                            terms.append(f"{tag}v{n}")
                    text = terms[0] if terms else number(semiring.zero)
                    for term in terms[1:]:
                        text = f"({plus(text, term)})"
                    k(f"n_{i}_{j} = {whole(text, not terms)}")
                for i, j in self._keys():
                    self._select(k, f"m_{i}_{j}", f"n_{i}_{j}", f"m_{i}_{j}", s)

        self._chunk(k, p, body, {})

    def _keys(self) -> list[tuple[int, int]]:
        """(i, j): what goes from state i − 1 before the chunk (0: from the constant one) to state j − 1 after it."""
        return sorted(scan_form(self.program).carried)

    def _apply(self, k: Kernel, entry: Callable[[int, int], str]) -> None:
        """n: the states z taken through a chunk."""
        form, semiring = scan_form(self.program), self.program.semiring
        plus, times = (OPS[t[semiring.name]].format for t in (PLUS, TIMES))
        for j in range(1, form.size):
            terms = [entry(0, j)] if (0, j) in form.carried else []
            terms += [
                f"({times(f'z{i - 1}', entry(i, j))})" for i in range(1, form.size) if (i, j) in form.carried
            ]
            text = terms[0]
            for term in terms[1:]:
                text = f"({plus(text, term)})"
            k(f"n{j - 1} = {text}")

    def summary(self) -> str:
        k, keys = Kernel(), self._keys()
        self._summarise(k)
        for e, (i, j) in enumerate(keys):
            k(f"tl.store(entries + (c * {len(keys)} + {e}) * lanes + lane, m_{i}_{j}, mask=ok)")
        arguments = "x, theta, mask, inp, entries, xt, xb, xk, mt, mb, it, ib, T, B, D, C,"
        return k.text("summary", f"{arguments}\n    {_CONSTANTS}")

    def join(self) -> str:
        """States at the start of every chunk, from the first state and the chunks' transitions."""
        return self._join("join", self._keys(), self._apply, self.program.first_states)

    def chained(self) -> str:
        """All three in one kernel; the second walk reads from the L2 what the first has read."""
        k = Kernel()
        self._summarise(k)
        join(k, self.program.first_states, self._keys(), self._apply, "starts")
        k.units(self.program, unit_values(self.program))
        self._recur(k, again=True)
        place = PLACE.format(chunk="place")
        return k.text("chained", f"{_POINTERS} {CHAIN}\n    {_NUMBERS} chunks, {_CONSTANTS}", place)
