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

from rrnn.arithmetic import ALONG_FAMILY
from rrnn.ir.builder import Builder
from rrnn.ir.forms import Forms, NotSeparable
from rrnn.ir.program import Extent, Op, Program, needed
from rrnn.semirings import get_semiring

KEYS, QUERIES, VALUE, LOG_DECAY, SIGN, TURN, WEIGHT, SKIP = 0, 2, 4, 5, 6, 7, 8, 9
"""The indices of the outputs `factor`: two keys and two queries where states turn, else one of each."""
LEAST = 1e-37
"""A decay whose logarithm is not derived is at least this, so that the logarithm of zero stays finite."""


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
    in_place: Separable | None = None
    """The same, if it can be had, with a projection or the input as it stands for the value, so that nothing has to be
    computed for each unit: WEIGHT is the head's number by which it enters, SKIP the one by which it is added to the
    output, which else is the score times a number."""

    @property
    def turns(self) -> bool:
        """Whether two families turn into each other."""
        return TURN in self.factors.of_kind("factor")

    @property
    def decay(self) -> str:
        """On what decays depend: "none", "head" or "state"."""
        n = self.factors.of_kind("factor").get(LOG_DECAY)
        return "none" if n is None else "state" if self.factors.over[n] else "head"


@lru_cache(maxsize=256)
def separable(program: Program) -> Separable | str:
    """Return the parts of a program whose family is separable; otherwise why it is not, as the end of a sentence."""
    try:
        return _Analysis(program).result()
    except NotSeparable as reason:
        return str(reason)


class _Analysis(Forms):
    """The parts of one program."""

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
            raise NotSeparable(f"the states of {stored} families are stored")
        super().__init__(program, wide)
        self.wide, self.family = wide, over[0]
        self.new = [self.number[n] for n in program.of_kind("state").values()]

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

    def _in_place(self, factors: dict[int, int], score: int) -> tuple[dict[int, int], float] | None:
        """Return the factors with a leaf as value, with its weight and skip, and the number by which the output is the
        score. None if there is no such leaf, or nothing but the leaf. (Kernels take such numbers beside the decays of a
        head.)"""
        b = self.b
        outputs = [self.number[n] for n in self.program.of_kind("output").values()]
        found = self._of_leaf(factors[VALUE])
        known = {SIGN, TURN}.isdisjoint(factors) and LOG_DECAY in factors and not b.over[factors[LOG_DECAY]]
        if found is None or not known or len(outputs) != 1:
            return None
        leaf, weight = found
        try:
            form, terms = self.linear(outputs[0], {score: 0})
        except NotSeparable:  # the output is no linear function of the score
            return None
        scale, skip = b.value(form[0]), b.const(0.0)
        for part in map(self._of_leaf, terms):
            if part is None or part[0] != leaf:
                return None
            skip = b.emit(Op.ADD, skip, part[1])
        if scale is None or (b.value(weight) == 1 and b.value(skip) == 0):
            return None
        more = {WEIGHT: weight} if b.value(weight) != 1 else {}
        more |= {SKIP: skip} if b.value(skip) != 0 else {}
        return factors | {VALUE: leaf} | more, scale

    def _of_leaf(self, n: int) -> tuple[int, int] | None:
        """Return a value as a unit's projection or input times a number of the head, if it is that."""
        number, factors = self.product(n)
        own = [f for f in factors.elements() if self.unit(f)]
        if len(own) != 1 or self.b.instructions[own[0]].op not in (Op.PREACT, Op.INPUT):
            return None
        weight = self.multiply(number, factors - Counter(own))
        return None if self.b.over[weight] else (own[0], weight)

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
        b, program = self.b, self.program
        in_place = self._in_place(factors, score)
        b.wide = self.wide._replace(states=())
        r = Builder(get_semiring("real"), b.wide._replace(states=(Extent(),)))
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
        other = None
        if in_place is not None:
            own, scale = in_place
            other = self._parts(own, r, [r.emit(Op.MUL, r.const(scale), state)], state, scale, None)
        return self._parts(factors, r, found, state, _scale(r, found, state), other)

    def _parts(
        self,
        factors: dict[int, int],
        r: Builder,
        found: list[int],
        state: int,
        scale: float | None,
        in_place: Separable | None,
    ) -> Separable:
        program, wide = self.program, self.wide
        shape = {"projections": program.projections, "parameters": program.parameters}
        outputs = [("factor", i, n) for i, n in sorted(factors.items())]
        parts, _ = self.b.finish(f"{program.name}.factors", **shape, states=(), initial=(), outputs=outputs)
        outputs = [("state", 0, state), ("score", 0, state), *(("output", j, n) for j, n in enumerate(found))]
        readout, _ = r.finish(
            f"{program.name}.readout", **shape, states=("score",), initial=[r.const(0.0)], outputs=outputs
        )
        return Separable(parts, readout, scale, self.family, wide.sizes[self.family][1], in_place)


def _scale(r: Builder, outputs: list[int], score: int) -> float | None:
    """Return the number by which the only output is the score, if it is nothing else."""
    if outputs == [score]:
        return 1.0
    op, args, _ = r.instructions[outputs[0]]
    if len(outputs) != 1 or op is not Op.MUL or score not in args:
        return None
    return r.value(args[0] if args[1] == score else args[1])
