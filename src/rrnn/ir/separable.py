"""Separable families: a step is an outer product that is added to a decaying matrix, so chunks of time are products.

A family of N states per unit, together a matrix (N × units), is *separable* over the reals if

    new state = decay ⊙ state + key · valueᵀ,    score = queryᵀ · new state,

where keys, queries and decays depend on the state's index or the head but not on the unit, and values on the unit but
not on the index. Expressions are taken apart into factors, and the axes of each factor's leaves decide.

Decays are kept as logarithms, derived from the gate's expression: exp(e) gives e, σ(e) gives log σ(e), a product a sum.
Two families of states that turn into each other, (a, b) → r (a cos θ − b sin θ, a sin θ + b cos θ), as complex ones do,
are separable too: keys and queries that are turned back by the sum of all angles so far leave the decay r alone.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from rrnn.arithmetic import ALONG_FAMILY, RANGES
from rrnn.arithmetic.ranges import ALL, Range
from rrnn.ir.builder import Builder, copy_into
from rrnn.ir.interpreter import interpret
from rrnn.ir.program import Extent, Op, Program, needed
from rrnn.semirings import get_semiring

KEYS, QUERIES, VALUE, LOG_DECAY, SIGN, TURN = 0, 2, 4, 5, 6, 7
"""The indices of the outputs `factor`: two keys and two queries where states turn, else one of each."""
LEAST = 1e-37
"""A decay whose logarithm is not derived is at least this, so that the logarithm of zero stays finite."""
MOST = 64
"""The most factors of a weight that are looked at."""


@dataclass(frozen=True)
class Separable:
    """The parts of a separable step."""

    factors: Program
    """Outputs `factor`: KEYS, QUERIES, VALUE; LOG_DECAY unless it is zero; SIGN, a number whose sign the decay has, if
    that is not known; TURN, the angle by which states turn."""
    readout: Program
    """Outputs from the score, which is its one state."""
    scale: float | None
    """The number by which the only output is the score, if it is nothing else."""
    family: int
    size: int
    """The number of states N."""

    @property
    def turns(self) -> bool:
        """Whether two families turn into each other."""
        return TURN in self.factors.of_kind("factor")

    @property
    def decay(self) -> str:
        """On what decays depend: "none", "head" or "state"."""
        n = self.factors.of_kind("factor").get(LOG_DECAY)
        return "none" if n is None else "state" if self.factors.over[n] else "head"


class NotSeparable(Exception):
    """Raised with the reason, which ends the sentence "the family is not separable: …"."""


@lru_cache(maxsize=256)
def separable(program: Program) -> Separable | str:
    """Return the parts of a program whose family is separable; otherwise why it is not, as the end of a sentence."""
    try:
        return _Analysis(program).result()
    except NotSeparable as reason:
        return str(reason)


class _Analysis:
    """A program copied into a builder, and the linear forms of what depends on its states."""

    def __init__(self, program: Program) -> None:
        stored = len(program.states)
        self.program = program = program.flat
        wide = program.wide
        if wide is None or not wide.sizes:
            raise NotSeparable("the cell has no family of states")
        over: list[int] = [f for extent in wide.states[:1] for f in extent.over]
        if len(over) != 1 or any(list(extent.over) != over for extent in wide.states):
            raise NotSeparable("some stored state does not belong to the one family")
        if stored > 1 or len(wide.states) > 2:
            raise NotSeparable(f"{stored} families of states depend on each other")
        self.wide, self.family = wide, over[0]
        self.b = Builder(get_semiring("real"), wide)
        self.number = copy_into(self.b, program)
        self.new = [self.number[n] for n in program.of_kind("state").values()]
        self.units = self._per_unit()
        self.ranges = self._ranges()
        self.products: dict[int, tuple[float, Counter[int]]] = {}

    # ---- what values depend on ---------------------------------------------------------------------------------

    def _per_unit(self) -> set[int]:
        """Return the values that are a unit's own."""
        found: set[int] = set()
        for n, (op, args, attr) in enumerate(self.b.instructions):
            own = op.leaf and op is not Op.CONST and self.wide.extent(op, int(attr or 0)).per == "unit"
            if own or any(a in found for a in args):
                found.add(n)
        return found

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
        raise NotSeparable("a value is not linear in the states")

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

    def state_factor(self, n: int, what: str) -> int:
        """Return a value that no unit has for itself; raise for another."""
        if self.unit(n):
            raise NotSeparable(f"{what} depends on the unit")
        return n

    def result(self) -> Separable:
        b = self.b
        leaves = {b.leaf(Op.STATE, s): s for s in range(len(self.new))}
        forms = [self.linear(n, leaves) for n in self.new]
        factors = dict(self._entries([terms for _, terms in forms]))
        factors |= self._decay([form for form, _ in forms])
        score, form = self._score()
        for s, coefficient in form.items():
            factors[QUERIES + s] = self.state_factor(coefficient, "the read-out")
        return self._finish(factors, score)

    def _entries(self, entries: list[list[int]]) -> dict[int, int]:
        """Return keys and the value from the terms that enter each state."""
        keys, values = {}, []
        for s, terms in enumerate(entries):
            parts = []
            for term in terms:
                number, factors = self.product(term)
                own = Counter({f: c for f, c in factors.items() if self.unit(f) or not self.b.over[f]})
                if any(self.b.over[f] for f in own):
                    raise NotSeparable(
                        "what enters a state is no product of a factor of the state and one of the unit"
                    )
                parts.append((number, factors - own, own))
            if not parts:
                keys[KEYS + s] = self.b.const(0.0)
                continue
            common = parts[0][2]
            if any(own != common for _, _, own in parts):
                if any(key != parts[0][1] for _, key, _ in parts):
                    raise NotSeparable("what enters a state is a sum of several outer products")
                total = self.b.const(0.0)
                for number, _, own in parts:
                    total = self.b.emit(Op.ADD, total, self.multiply(number, own))
                common, parts = Counter([total]), [(1.0, parts[0][1], Counter())]
            key = self.b.const(0.0)
            for number, factors, _ in parts:
                key = self.b.emit(Op.ADD, key, self.multiply(number, factors))
            keys[KEYS + s] = key
            values.append(common)
        if not values or any(own != values[0] for own in values):
            raise NotSeparable(
                "two states have values of their own" if values else "nothing enters the family"
            )
        return keys | {VALUE: self.multiply(1.0, values[0])}

    def _decay(self, forms: list[dict[int, int]]) -> dict[int, int]:
        """Return the logarithm of the decay, its sign if that is not known, and the angle by which states turn."""
        turn: dict[int, int] = {}
        if len(forms) == 1:
            number, factors = self.product(forms[0].get(0, self.b.const(0.0)))
        else:
            number, factors, angle = self._rotation(forms)
            turn = {TURN: self.state_factor(angle, "the angle")} if angle is not None else {}
        if number == 0:
            raise NotSeparable("the family has no loop, so there is nothing to carry")
        signs: list[int] = []
        log = self.b.const(0.0)
        for factor in sorted(factors.elements()):
            log = self.b.emit(Op.ADD, log, self._log(self.state_factor(factor, "the decay"), signs))
        log = self.b.emit(Op.ADD, log, self.b.const(math.log(abs(number))))
        if number < 0:
            signs.append(self.b.const(-1.0))
        found = turn if self.b.value(log) == 0 else {LOG_DECAY: log} | turn
        if signs:
            found[SIGN] = self.multiply(1.0, Counter(signs))
        return found

    def _rotation(self, forms: list[dict[int, int]]) -> tuple[float, Counter[int], int | None]:
        """Return r and θ of states (a, b) that become r (a cos θ − b sin θ, a sin θ + b cos θ)."""
        wrong = NotSeparable("the two parts of a state are not turned by one angle")
        (re, im) = forms
        if 0 not in re or 1 not in im:
            raise wrong
        same, also = self.product(re[0]), self.product(im[1])
        if same != also:
            raise wrong
        if 1 not in re and 0 not in im:
            return *same, None
        if 1 not in re or 0 not in im:
            raise wrong
        across, back = self.product(re[1]), self.product(im[0])
        if across != (-back[0], back[1]) or same[0] != back[0]:
            raise wrong
        radius = same[1] & back[1]
        cosine, sine = list((same[1] - radius).elements()), list((back[1] - radius).elements())
        if len(cosine) != 1 or len(sine) != 1:
            raise wrong
        (first, a, _), (second, c, _) = self.b.instructions[cosine[0]], self.b.instructions[sine[0]]
        if (first, second) != (Op.COS, Op.SIN) or a != c:
            raise wrong
        return same[0], radius, a[0]

    def _log(self, n: int, signs: list[int]) -> int:
        """Return the logarithm of a factor's absolute value; factors that may be negative are noted in `signs`."""
        b = self.b
        op, args, _ = b.instructions[n]
        if (value := b.value(n)) is not None:
            return b.const(math.log(abs(value)))
        match op:
            case Op.EXP:
                return args[0]
            case Op.SIGMOID:
                return b.emit(Op.LOG_SIGMOID, args[0])
            case Op.SQRT:
                return b.emit(Op.MUL, b.const(0.5), self._log(args[0], signs))
            case Op.MUL:
                return b.emit(Op.ADD, *(self._log(a, signs) for a in args))
            case Op.DIV:
                return b.emit(Op.SUB, *(self._log(a, signs) for a in args))
        if n < len(self.ranges) and self.ranges[n].low < 0:
            if not self.fixed(n):
                raise NotSeparable(
                    "a decay that changes with the symbol may be negative, and has no logarithm then"
                )
            signs.append(n)
            n = b.emit(Op.MAX, n, b.emit(Op.NEG, n))
        return b.emit(Op.LOG, b.emit(Op.MAX, n, b.const(LEAST)))

    def _score(self) -> tuple[int, dict[int, int]]:
        """Return the sum over the family that outputs read, and the queries of its states."""
        b, new = self.b, {n: s for s, n in enumerate(self.new)}
        outputs = [self.number[n] for n in self.program.of_kind("output").values()]
        sums: set[int] = set()
        seen: set[int] = set()
        states = frozenset(b.leaf(Op.STATE, s) for s in range(len(self.new))) | frozenset(new)

        def look(n: int) -> None:
            if n in seen:
                return
            seen.add(n)
            op, args, attr = b.instructions[n]
            if op in ALONG_FAMILY and self._reaches(n, states):
                if op is not Op.SUM or attr != self.family:
                    raise NotSeparable("the states are read by something else than a sum over the family")
                sums.add(n)
            elif n in states:
                raise NotSeparable("an output reads single states")
            else:
                for a in args:
                    look(a)

        for n in outputs:
            look(n)
        if len(sums) != 1:
            raise NotSeparable(f"outputs read {len(sums)} different sums over the family, not one")
        score = sums.pop()
        form, rest = self.linear(b.instructions[score].args[0], new)
        if rest:
            raise NotSeparable("the sum over the family has a part without states")
        return score, form

    def _finish(self, factors: dict[int, int], score: int) -> Separable:
        b, program, wide = self.b, self.program, self.wide
        shape = {"projections": program.projections, "parameters": program.parameters}
        b.wide = replaced = wide._replace(states=())
        outputs = [("factor", i, n) for i, n in sorted(factors.items())]
        parts, _ = b.finish(f"{program.name}.factors", **shape, states=(), initial=(), outputs=outputs)
        r = Builder(get_semiring("real"), replaced._replace(states=(Extent(),)))
        known = {score: r.leaf(Op.STATE, 0)}
        outside = needed(
            b.instructions, [self.number[n] for n in program.of_kind("output").values()], {score}
        )
        for n in sorted(outside - {score}):
            op, args, attr = b.instructions[n]
            if op is Op.CONST:
                known[n] = r.const(float(attr or 0.0))
            elif op.leaf:
                known[n] = r.leaf(op, None if attr is None else int(attr))
            elif op in ALONG_FAMILY:
                known[n] = r.along(op, int(attr or 0), *(known[a] for a in args))
            else:
                known[n] = r.emit(op, *(known[a] for a in args))
        found, state = [known[self.number[n]] for n in program.of_kind("output").values()], known[score]
        outputs = [("state", 0, state), ("score", 0, state), *(("output", j, n) for j, n in enumerate(found))]
        readout, _ = r.finish(
            f"{program.name}.readout", **shape, states=("score",), initial=[r.const(0.0)], outputs=outputs
        )
        return Separable(parts, readout, _scale(r, found, state), self.family, wide.sizes[self.family][1])


def _scale(r: Builder, outputs: list[int], score: int) -> float | None:
    """Return the number by which the only output is the score, if it is nothing else."""
    if outputs == [score]:
        return 1.0
    op, args, _ = r.instructions[outputs[0]]
    if len(outputs) != 1 or op is not Op.MUL or score not in args:
        return None
    return r.value(args[0] if args[1] == score else args[1])
