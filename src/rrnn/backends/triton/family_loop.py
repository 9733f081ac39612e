"""Write how kernels of families walk along time: pointers, loads ahead of use, pieces of time walked back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from rrnn.arithmetic import BY_NAME
from rrnn.backends.triton.family_text import FamilyText, TileKernels
from rrnn.ir import Op, Program
from rrnn.ir.adjoint import unit_values
from rrnn.ir.program import Extent, needed

_LOADED = (Op.PREACT, Op.INPUT, Op.GRAD_OUTPUT)
_NEXT = re.compile(r"\s*(n(?:w|[iqm]?\d)\w*) = ")
"""What is loaded for the next turn: pre-activations, input, gradient, mask, and states."""
TURN = 4
"""Steps of a turn forwards."""
EARLY = 2
"""Steps before its own at which what units share is loaded."""
WAITS = 2
"""Steps before the end of a piece at which the next saved states are loaded."""
KEPT = 4
"""Steps for which the backward kernel keeps states in registers: with 16 numbers of a thread, 64."""


class FamilyLoop(TileKernels):
    """Writes loops over time; its subclass writes the kernels around them."""

    def _renew(
        self, k: FamilyText, program: Program, kind: str, j: int, tag: str, old: str, new: str
    ) -> None:
        """Write the states after step j, or their gradients before it, from those named `old`."""
        results = program.of_kind(kind)
        for s, n in results.items():
            k(f"y{s} = {k.whole(program, n, tag, self.wide.states[s].over)}")
            k("if MASKED:", f"    y{s} = tl.where(am{j} != 0, y{s}, {old}{s})")
        k(*(f"{new}{s} = y{s}" for s in results))

    # ---- loads ---------------------------------------------------------------------------------------------------

    def _pointers(self, *, grad: bool = False, store: bool = False) -> dict[str, tuple[str, str]]:
        """Return name → (where it starts, its stride in time) of what a kernel walks along."""
        places = {"xp": ("x + t * xt + b * xb", "xt")}
        if self.projections.shared:
            places["hp"] = (f"shared + (b * T + t) * {self.projections.shared}", str(self.projections.shared))
        if self.program.uses_input:
            places["ip"] = ("inp + t * it + b * ib", "it")
        if grad:
            places["gp"] = ("go + t * gt + b * gb", "gt")
        if store:
            places["xo"] = ("gx + t * gxt + b * gxb", "gxt")
            if self.program.uses_input:
                places["io"] = ("gi + t * git + b * gib", "git")
        return places

    def _loads(
        self,
        k: FamilyText,
        program: Program,
        offsets: Mapping[int, object],
        into: str = "a",
        ahead: bool | None = None,
        when: str = "",
        kinds: Iterable[str] = (),
    ) -> None:
        """Write the loads of some steps, step → offset from the pointers in steps: of what each unit has for itself,
        one number a step (`ahead`), of everything else (not `ahead`), or of all (None); for outputs of these kinds
        alone, if there are any. `when`: a condition of the whole program under which there is anything to load."""

        wanted = [o.value for o in program.outputs if not kinds or o.kind in kinds]
        code = [program.instructions[n] for n in needed(program.instructions, wanted)]
        used = sorted({(i.op.text, int(i.attr or 0)) for i in code if i.op in _LOADED})
        own = k.ok((), True, when)
        for j, at in offsets.items():
            for text, index in used:
                op = BY_NAME[text]
                few = op is not Op.PREACT or self.wide.projections[index] == Extent()
                if ahead is not None and few != ahead:
                    continue
                if op is Op.PREACT and few:
                    row = self.projections.starts[index]
                    k(f"{into}{j}_{index} = tl.load(xp + {at} * xt + {row} * D + d, mask={own}, other=0.0)")
                elif op is Op.PREACT:
                    own_row, row = f"xp + {at} * xt", f"hp + {at} * {self.projections.shared}"
                    k(f"{into}{j}_{index} = {k.load(self.projections, index, own_row, row, when)}")
                elif op is Op.INPUT:
                    k(f"{into}i{j} = tl.load(ip + {at} * it + d, mask={own}, other=0.0)")
                else:
                    k(
                        f"{into}q{j}_{index} = tl.load(gp + {at} * gt + {index} * D + d, mask={own}, other=0.0)"
                    )
            if ahead is not False:
                mask = f", mask={when}, other=0" if when else ""
                k("if MASKED:", f"    {into}m{j} = tl.load(mask + (t + {at}) * mt + b * mb{mask})")

    def _leaf(self, j: int, state: str) -> Callable[[Op, int], str]:
        """Return the function that names a leaf of step j."""

        def leaf(op: Op, index: int) -> str:
            return {
                Op.PREACT: f"a{j}_{index}.to(tl.float32)",
                Op.INPUT: f"ai{j}.to(tl.float32)",
                Op.GRAD_OUTPUT: f"aq{j}_{index}.to(tl.float32)",
                Op.STATE: f"{state}{index}",
                Op.GRAD_STATE: f"g{index}",
            }[op]

        return leaf

    def _turns(
        self,
        k: FamilyText,
        program: Program,
        steps: int,
        back: bool,
        places: Iterable[tuple[str, str]],
        body: Callable[[], None],
    ) -> None:
        """Write a loop over `turns` turns of so many steps, from t on. `places`: pointers and their strides. What
        the body loads for the next turn, under names of _NEXT, becomes current behind it."""
        way = -1 if back else 1
        self._loads(k, program, {j: j for j in range(steps)}, "a", True, "turns > 0")
        k("for turn in tl.range(0, turns, num_stages=STAGES):")
        k.depth += 1
        first = len(k.lines)
        self._loads(k, program, {j: way * steps + j for j in range(steps)}, "n", True, "turn + 1 < turns")
        body()
        k(*(f"{name} += {way * steps} * {stride}" for name, stride in places), f"t += {way * steps}")
        for name in [found[1] for line in k.lines[first:] if (found := _NEXT.match(line))]:
            own = name[1:] if name[1] == "w" else f"a{name[1:]}"
            k(f"if MASKED: {own} = {name}" if name[1] == "m" else f"{own} = {name}")
        k.depth -= 1

    # ---- forwards ------------------------------------------------------------------------------------------------

    def _forwards(
        self, k: FamilyText, program: Program, step: Callable[[int, bool], None], store: bool
    ) -> None:
        """Walk a chunk forwards, TURN steps a turn, then one by one; `step(j, whole)` writes step j of a turn."""
        places = self._pointers() | ({"op": ("out + t * ot + b * ob", "ot")} if store else {})
        k("t = c * C", "end = tl.minimum(t + C, T)", f"turns = (end - t) // {TURN}")
        k(*(f"{name} = {start}" for name, (start, _) in places.items()))
        strides = [(name, stride) for name, (_, stride) in places.items()]

        def turn() -> None:
            for j in range(TURN):
                to = j + EARLY
                if to < TURN:
                    self._loads(k, program, {to: to}, ahead=False)
                else:
                    at = f"tl.where(turn + 1 < turns, {to}, {to - TURN})"
                    self._loads(k, program, {to - TURN: at}, "n", ahead=False)
                step(j, True)

        self._loads(k, program, {j: j for j in range(EARLY)}, "a", False, "turns > 0")
        self._turns(k, program, TURN, False, strides, turn)
        k("for _ in range(0, end - t):")
        k.depth += 1
        self._loads(k, program, {0: 0})
        step(0, False)
        k(*(f"{name} += {stride}" for name, stride in strides), "t += 1")
        k.depth -= 1

    # ---- backwards -----------------------------------------------------------------------------------------------

    def _advance(self, k: FamilyText, program: Program, j: int, before: str, after: str) -> None:
        """Write the states after step j from those before it."""
        k.step(
            program, program.of_kind("new_state").values(), unit_values(program), self._leaf(j, before), "f"
        )
        self._renew(k, program, "new_state", j, "f", before, after)

    def _first_states(self, k: FamilyText, program: Program, until: str) -> None:
        """Write w0, the states before step `until`: saved ones, taken as far as needed."""
        self._load_states(k, "w0_", f"saved + ({until}) // {self.every} * {self.states.rows} * lanes")
        k(f"for i in range(({until}) // {self.every} * {self.every} - t, {until} - t):")
        k.depth += 1
        self._loads(k, program, {0: "i"}, kinds=("new_state",))
        self._advance(k, program, 0, "w0_", "w0_")
        k.depth -= 1

    def _backwards(
        self,
        k: FamilyText,
        program: Program,
        piece: int,
        step: Callable[[int, object], None],
        around: Callable[[bool], None],
        places: dict[str, tuple[str, str]],
    ) -> None:
        """Walk a chunk from its end in pieces of so many steps, with w{j}_{s} the states before step j; `step(j, at)`
        writes step j, `at` steps after t; `around(True)` and `around(False)` what comes before and behind the steps of
        a piece. A last piece that T cuts off is walked step by step, each time from saved states. What units share is
        loaded a step before its own, and a piece's saved states by the end of the piece before."""
        k(
            "begin = c * C",
            "end = tl.minimum(begin + C, T)",
            f"t = begin + (end - begin) // {piece} * {piece}",
        )
        k(*(f"{name} = {start}" for name, (start, _) in places.items()))
        if piece > 1:
            k("for past in range(0, end - t):", "    j = end - t - 1 - past")
            k.depth += 1
            self._first_states(k, program, "t + j")
            self._loads(k, program, {0: "j"})
            step(-1, "j")
            k.depth -= 1
        k(*(f"{name} -= {piece} * {stride}" for name, (_, stride) in places.items()), f"t -= {piece}")
        k(f"turns = (t - begin + {piece}) // {piece}")

        whole = piece == self.every
        walk = [*((j, ("new_state",)) for j in range(piece - 1)), *((j, ()) for j in reversed(range(piece)))]

        def load(to: int, at: object, into: str = "a", when: str = "") -> None:
            self._loads(k, program, {walk[to][0]: at}, into, False, when, walk[to][1])

        def saved(names: str, at: str, when: str = "") -> None:
            self._load_states(k, names, f"saved + {at} // {piece} * {self.states.rows} * lanes", when)

        def body() -> None:
            if not whole:
                self._first_states(k, program, "t")
                self._loads(k, program, {0: 0})
            around(True)
            for i, (j, kinds) in enumerate(walk):
                if i + 1 < len(walk):
                    load(i + 1, walk[i + 1][0])
                else:
                    load(0, f"tl.where(turn + 1 < turns, {-piece}, 0)", "n")
                if whole and i == max(0, len(walk) - WAITS):
                    saved("nw0_", f"tl.maximum(t - {piece}, begin)")
                if kinds:
                    self._advance(k, program, j, f"w{j}_", f"w{j + 1}_")
                else:
                    step(j, j)
            around(False)

        load(0, 0, when="turns > 0")
        if whole:
            saved("w0_", "tl.maximum(t, begin)", "turns > 0")
        self._turns(k, program, piece, True, [(name, stride) for name, (_, stride) in places.items()], body)

    def _piece(self) -> int:
        """Return the steps of a piece: a divisor of the interval at which states are saved."""
        return next(n for n in range(min(self.every, KEPT), 0, -1) if self.every % n == 0)
