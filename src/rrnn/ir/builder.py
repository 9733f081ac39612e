"""Emits instructions: folds constants, applies the identities of zero and one, computes equal things once."""

from __future__ import annotations

import math
from collections.abc import Iterable

from rrnn.errors import ProgramError
from rrnn.ir.evaluate import MEANING
from rrnn.ir.ops import PLUS, TIMES, Instruction, Op
from rrnn.ir.program import Output, Program, verify
from rrnn.semirings import Semiring

MAX_WORK = 1_000_000
"""How many instructions may be asked for: real cells need hundreds, a hostile text could ask for 10⁹."""


class Builder:
    """Instructions so far, each known by its number."""

    def __init__(self, semiring: Semiring) -> None:
        self.semiring = semiring
        self.instructions: list[Instruction] = []
        self._known: dict[Instruction, int] = {}
        self._work = 0
        self.zero, self.one = self.const(semiring.zero), self.const(semiring.one)

    # ---- emitting ------------------------------------------------------------------------------------------

    def leaf(self, op: Op, index: int | None = None) -> int:
        return self._add(Instruction(op, (), index))

    def const(self, value: float) -> int:
        return self._add(Instruction(Op.CONST, (), float(value) + 0.0))  # + 0.0: no negative zero

    def emit(self, op: Op, *args: int) -> int:
        values = [self.value(a) for a in args]
        if all(v is not None for v in values):
            folded = MEANING[op](*values)
            if not math.isnan(folded):
                return self.const(folded)
        return self._simplify(op, args, values) if len(args) == 2 else self._add(Instruction(op, args))

    def value(self, n: int) -> float | None:
        op, _, attr = self.instructions[n]
        return float(attr) if op is Op.CONST and attr is not None else None

    def _simplify(self, op: Op, args: tuple[int, ...], values: list[float | None]) -> int:
        (a, b), (x, y) = args, values
        if op is Op.ADD:
            if x == 0:
                return b
            if y == 0:
                return a
            if x is not None and math.isinf(x):  # 0̄ ⊗ anything, in a tropical or log semiring
                return a
            if y is not None and math.isinf(y):
                return b
        elif op is Op.SUB and y == 0:
            return a
        elif op is Op.MUL:
            if x == 1 or y == 0:
                return b
            if y == 1 or x == 0:
                return a
        elif op is Op.DIV and y == 1:
            return a
        elif op in (Op.MAX, Op.LOGADDEXP) and -math.inf in values:
            return b if x == -math.inf else a
        elif op is Op.MIN and math.inf in values:
            return b if x == math.inf else a
        elif op in (Op.MAX, Op.MIN) and a == b:
            return a
        elif op in (Op.MAX, Op.MIN) and self.semiring.laws.non_negative and 0 in values:
            other = b if x == 0 else a  # all values are ≥ 0 here
            return other if op is Op.MAX else self.zero
        elif op in (Op.MAX, Op.MIN) and self.semiring.name == "boolean" and 1 in values:
            other = b if x == 1 else a  # and here ≤ 1
            return other if op is Op.MIN else self.one
        return self._add(Instruction(op, args))

    def _add(self, instruction: Instruction) -> int:
        self._work += 1
        if self._work > MAX_WORK:
            raise ProgramError(
                f"one step of a cell takes at most {MAX_WORK} operations to compile; this one needs more. "
                "Use fewer states or ε-arcs, or a smaller epsilon_limit."
            )
        if instruction not in self._known:
            self._known[instruction] = len(self.instructions)
            self.instructions.append(instruction)
        return self._known[instruction]

    # ---- the semiring --------------------------------------------------------------------------------------

    def plus(self, a: int, b: int) -> int:
        return self.emit(PLUS[self.semiring.name], a, b)

    def times(self, a: int, b: int) -> int:
        if self.zero in (a, b):
            return self.zero
        return self.emit(TIMES[self.semiring.name], a, b)

    def sum(self, values: Iterable[int]) -> int:
        """⊕ from left to right, so that in a tie the first wins."""
        total = self.zero
        for value in values:
            total = value if total == self.zero else total if value == self.zero else self.plus(total, value)
        return total

    def star(self, a: int) -> int:
        if self.semiring.name == "real":
            return self.emit(Op.DIV, self.one, self.emit(Op.SUB, self.one, a))
        if self.semiring.name == "log":
            rest = self.emit(Op.SUB, self.const(1.0), self.emit(Op.EXP, a))
            return self.emit(Op.NEG, self.emit(Op.LOG, rest))
        return self.one  # selective: `check_cell` has proved that no cycle improves a path

    # ---- finishing -----------------------------------------------------------------------------------------

    def finish(
        self,
        name: str,
        *,
        projections: tuple[str, ...],
        parameters: tuple[str, ...],
        states: tuple[str, ...],
        initial: Iterable[int],
        outputs: Iterable[tuple[str, int, int]],
    ) -> tuple[Program, dict[int, int]]:
        """The verified program without dead code, and old number → new number."""
        initial, outputs = tuple(initial), [Output(*o) for o in outputs]
        live, todo = set(), [*initial, *(o.value for o in outputs)]
        while todo:
            n = todo.pop()
            if n not in live:
                live.add(n)
                todo += self.instructions[n].args
        number = {old: new for new, old in enumerate(sorted(live))}
        instructions = tuple(
            Instruction(op, tuple(number[a] for a in args), attr)
            for old, (op, args, attr) in enumerate(self.instructions)
            if old in live
        )
        program = Program(
            name,
            self.semiring.name,
            projections,
            parameters,
            states,
            instructions,
            tuple(number[i] for i in initial),
            tuple(o._replace(value=number[o.value]) for o in outputs),
        )
        return verify(program), number
