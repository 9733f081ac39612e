"""Values of a program as linear forms and as products, and what they depend on: the words of `separable`."""

from __future__ import annotations

from collections import Counter

from rrnn.arithmetic import RANGES
from rrnn.arithmetic.ranges import ALL, Range
from rrnn.ir.builder import Builder, copy_into
from rrnn.ir.families import Families
from rrnn.ir.interpreter import interpret
from rrnn.ir.program import Op, Program, needed
from rrnn.semirings import get_semiring

MOST = 64
"""The most factors of a weight that are looked at."""


class NotSeparable(Exception):
    """Raised with the reason, which ends the sentence "the family is not separable: …"."""


class Forms:
    """A program copied into a builder, and forms of its values."""

    def __init__(self, program: Program, wide: Families) -> None:
        self.b = Builder(get_semiring("real"), wide)
        self.number = copy_into(self.b, program)
        self.units = wide.own_values(self.b.instructions)
        self.ranges = self._ranges()
        self.products: dict[int, tuple[float, Counter[int]]] = {}

    # ---- what values depend on ---------------------------------------------------------------------------------

    def _ranges(self) -> dict[int, Range]:
        """Return which values each instruction can have."""
        known = {n: ALL for n, i in enumerate(self.b.instructions) if i.op.leaf and i.op is not Op.CONST}
        interpret(
            self.b.instructions,
            range(len(self.b.instructions)),
            known,
            RANGES,
            Range.of,
            lambda op, family, *values: values[0] if op in (Op.MOST, Op.LEAST) else ALL,
        )
        return known

    def unit(self, n: int) -> bool:
        """Return whether a value is a unit's own; those emitted since the start are products of known ones."""
        return not self.units.isdisjoint(needed(self.b.instructions, [n]))

    def fixed(self, n: int) -> bool:
        """Return whether a value is the same at all steps."""
        code = self.b.instructions
        return not any(code[m].op in (Op.PREACT, Op.INPUT, Op.STATE) for m in needed(code, [n]))

    # ---- linear forms ------------------------------------------------------------------------------------------

    def linear(self, n: int, leaves: dict[int, int]) -> tuple[dict[int, int], list[int]]:
        """Return a value as Σ coefficient · leaf + Σ terms: leaf → coefficient, and the terms."""
        b = self.b
        if n in leaves:
            return {leaves[n]: b.const(1.0)}, []
        if not self._reaches(n, frozenset(leaves)):
            return {}, [n]
        op, args, _ = b.instructions[n]
        if op in (Op.ADD, Op.SUB):
            (first, terms), (second, more) = (self.linear(a, leaves) for a in args)
            if op is Op.SUB:
                second = {s: b.emit(Op.NEG, c) for s, c in second.items()}
                more = [b.emit(Op.NEG, m) for m in more]
            for s, c in second.items():
                first[s] = b.emit(Op.ADD, first[s], c) if s in first else c
            return first, [*terms, *more]
        inside = [a for a in args if self._reaches(a, frozenset(leaves))]
        if op is Op.NEG or (
            op in (Op.MUL, Op.DIV) and len(inside) == 1 and not (op is Op.DIV and inside[0] != args[0])
        ):
            form, terms = self.linear(inside[0], leaves)

            def times(c: int) -> int:
                if op is Op.NEG:
                    return b.emit(Op.NEG, c)
                return b.emit(op, c, args[1]) if inside[0] == args[0] else b.emit(op, args[0], c)

            return {s: times(c) for s, c in form.items()}, list(map(times, terms))
        mixed = op in (Op.SUM, Op.MOVE)
        raise NotSeparable(
            "each new state depends on all old ones" if mixed else "a value is not linear in the states"
        )

    def _reaches(self, n: int, leaves: frozenset[int]) -> bool:
        """Return whether a value is computed from some of these."""
        return not leaves.isdisjoint(needed(self.b.instructions, [n]))

    # ---- products ----------------------------------------------------------------------------------------------

    def product(self, n: int) -> tuple[float, Counter[int]]:
        """Return a value as a number times factors, each as often as it occurs."""
        if n not in self.products:
            self.products[n] = self._product(n)
            if self.products[n][1].total() > MOST:
                raise NotSeparable(f"a weight has more than {MOST} factors")
        return self.products[n]

    def _product(self, n: int) -> tuple[float, Counter[int]]:
        op, args, _ = self.b.instructions[n]
        if (value := self.b.value(n)) is not None:
            return value, Counter()
        if op is Op.NEG:
            number, factors = self.product(args[0])
            return -number, factors
        if op is Op.MUL:
            (x, first), (y, second) = map(self.product, args)
            return x * y, first + second
        if op is Op.DIV:
            x, first = self.product(args[0])
            below = self.b.value(args[1])
            if below:
                return x / below, first
            return x, first + Counter([self.b.emit(Op.DIV, self.b.const(1.0), args[1])])
        return 1.0, Counter([n])

    def multiply(self, number: float, factors: Counter[int]) -> int:
        """Return the value of a product."""
        n = self.b.const(1.0)
        for factor in sorted(factors.elements()):
            n = self.b.emit(Op.MUL, n, factor)
        return self.b.emit(Op.MUL, self.b.const(number), n)
