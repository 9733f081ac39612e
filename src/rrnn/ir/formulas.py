"""Write instructions as formulas: brackets where they are needed, symbols for what has a name or is worth one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from rrnn.arithmetic import ALONG_FAMILY
from rrnn.ir.notation import (
    ATOM,
    INDEX_LETTERS,
    MATRIX,
    NEGATIVE,
    PRODUCT,
    QUOTIENT,
    SUM,
    Formula,
    Notation,
    ProgramSymbols,
    Symbol,
)
from rrnn.ir.program import Op, Program
from rrnn.ir.recognised_functions import idiom
from rrnn.ir.semiring_code import plus_and_times

_LONG = 3  # symbols and numbers that make a shared expression or a weight worth a name
_SHOWN = 3  # inputs of a window that are written out


class FormulaWriter(ProgramSymbols):
    """Writes the instructions of one program, and remembers which symbols it has to define."""

    def __init__(
        self,
        program: Program,
        notation: Notation,
        names: Mapping[int, str],
        weights: frozenset[int] = frozenset(),
        windows: Mapping[str, int] | None = None,
        outputs: int = 0,
        taken: Iterable[str] = (),
    ) -> None:
        super().__init__(program, notation, names, outputs, taken)
        self.weights, self.windows = weights, windows or {}
        self._letters = {kind: self._letter(kind) for kind in "wez"}
        self._introduced: dict[int, Symbol] = {}
        self._letters_bound: frozenset[str] = (
            frozenset()
        )  # indices of the equation, and of folds around a formula
        self._counts = dict.fromkeys("wez", 0)
        self._definitions: list[tuple[str, tuple[str, str]]] = []
        self._defined: set[int] = set()
        self._known: Mapping[int, str] = {}
        self._states: set[int] = set()
        self._plus, self._times = plus_and_times(program.semiring)

    # ---- writing -------------------------------------------------------------------------------------------

    def write(
        self,
        n: int,
        known: Mapping[int, str] | None = None,
        states: set[int] | None = None,
        over: Iterable[int] = (),
    ) -> str:
        """Return the formula of an instruction, in an equation that holds for each index of the families `over`.
        `known` values have a symbol already, and those in `states` are new states. The other symbols that it uses are
        then found by `take_definitions`."""
        self._known, self._states = known or {}, states or set()
        self._letters_bound = frozenset(self._letters_of(over))
        if n in self._known or n in self.names:
            return self._text(n).text
        return self._spell(n).text

    def take_definitions(self) -> list[tuple[str, tuple[str, str]]]:
        """Return (kind, (symbol, formula)) of the symbols used since the last call, inner ones first. The kind is
        "unit" for what does not change with time, "state" for what depends on the state, and "step"."""
        taken, self._definitions = self._definitions, []
        return taken

    def indices(self, families: Iterable[int]) -> str:
        """Return for which indices an equation holds, as its end; "" for one without."""
        if self.program.wide is None or not (found := sorted(families)):
            return ""
        sizes = self.program.wide.sizes
        return self.notation.indexed([(self._letters_of([f]), sizes[f][1]) for f in found])

    def is_zero(self, n: int) -> bool:
        """Return whether an instruction is known to be the semiring's zero."""
        ring, (op, args, _) = self.program.semiring, self.program.instructions[n]
        numbers = [self.constant(a) for a in (args if op is Op.ELEMENT else [n])]
        return numbers == list(ring.numbers_of(ring.zero))

    def constant(self, n: int) -> float | None:
        """Return the number that an instruction is, or None."""
        op, _, attr = self.program.instructions[n]
        return float(attr or 0.0) if op is Op.CONST else None

    def _text(self, n: int) -> Formula:
        if n in self._known:
            return Formula(self._known[n])
        leaf = self.program.instructions[n].op.arity == 0
        if n not in self.names and (leaf or not self._is_worth_a_name(n)):
            return self._spell(n)
        if n not in self._defined:
            self._defined.add(n)
            self._define(n)
        return Formula(self._named(n))

    def _named(self, n: int) -> str:
        if n in self._introduced:
            return self.notation.symbol(self._introduced[n]._replace(index=self.index(n)))
        time = "" if n in self.program.per_unit else "t"
        return self.notation.symbol(self.names[n]._replace(time=time, index=self.index(n)))

    def _define(self, n: int) -> None:
        kind = "unit" if n in self.program.per_unit else "state" if n in self._stateful else "step"
        outside = self._letters_bound, self.index_letters
        self.index_letters = {}
        self._letters_bound = frozenset(self.index(n))
        formula = self._spell(n).text  # first, so that what it uses is defined before it
        if n not in self.names:
            letter = "w" if n in self.weights else {"unit": "e", "state": "z", "step": "w"}[kind]
            self._counts[letter] += 1
            old = kind == "state" and not self._states and n not in self._of_this_step
            time = "" if kind == "unit" else "t-1" if old else "t"
            self._introduced[n] = Symbol(self._letters[letter], str(self._counts[letter]), time)
        symbol = self._named(n)
        if symbol != formula:  # a parameter under its own name explains itself
            self._definitions.append((kind, (symbol, formula + self.indices(self.program.over[n]))))
        self._letters_bound, self.index_letters = outside

    def _is_worth_a_name(self, n: int) -> bool:
        shared = self._uses.get(n, 0) > 1
        return (shared or n in self.weights) and self._size(n, {}) >= _LONG

    def _size(self, n: int, sizes: dict[int, int]) -> int:
        """Return how many symbols and numbers it takes to write an instruction out."""
        if n not in sizes:
            args = self.program.instructions[n].args
            inner = (1 if a in self.names or a in self._known else self._size(a, sizes) for a in args)
            sizes[n] = sum(inner) if args else 1
        return sizes[n]

    @cached_property
    def _stateful(self) -> frozenset[int]:
        return self.program.depending_on(Op.STATE)

    @cached_property
    def _of_this_step(self) -> frozenset[int]:
        return self.program.depending_on(Op.PREACT, Op.INPUT)

    @cached_property
    def _uses(self) -> dict[int, int]:
        uses: dict[int, int] = {}
        for _, args, _ in self.program.instructions:
            for a in args:
                uses[a] = uses.get(a, 0) + 1
        return uses

    # ---- formulas ------------------------------------------------------------------------------------------

    def _spell(self, n: int) -> Formula:
        op, args, attr = self.program.instructions[n]
        write = self.notation
        if op is Op.CONST:
            value = float(attr or 0.0)
            return Formula(write.number(value), ATOM if value >= 0 else NEGATIVE)
        if op.arity == 0:
            return Formula(self._leaf(op, int(attr or 0)), MATRIX if op is Op.PREACT else ATOM)
        if short := idiom(self.program, n):
            inner = self._text(short.argument).text
            function = write.function(Op.LOG) if short.function == "log" else write.word(short.function)
            return Formula(write.size(inner) if short.function == "abs" else write.apply(function, inner))
        if op is Op.MOVE:
            return self._moved(int(attr or 0), args[0])
        if op in ALONG_FAMILY and len(args) == 1:
            return self._along(op, int(attr or 0), args[0])
        if op is Op.FOLD:  # a component of an element that stands further down
            code = enumerate(self.program.instructions)
            whole = next(m for m, i in code if i.op is Op.ELEMENT and n in i.args)
            return self._component(whole, int(attr or 0) % len(args))
        if (whole := self._whole_fold(n)) is not None:
            return self._along(*whole)
        if op in (Op.ADD, Op.SUB, Op.NEG):
            return self._sum(n)
        if op in (Op.MUL, Op.TIMES):
            return self._product(n)
        if op is Op.DIV:
            return write.quotient(self._text(args[0]), self._text(args[1]))
        if op.text in self.program.semiring.infix:
            sign = self.program.semiring.infix[op.text]
            pieces = (write.at_least(piece, ATOM) for piece in self._chain(n, op))
            return Formula(write.joint(sign).join(pieces), SUM if op is self._plus else PRODUCT)
        if op in (Op.MAX, Op.MIN, Op.LOGADDEXP):
            name = op.value.plain if op is Op.LOGADDEXP else op.text
            return Formula(write.choose(name, [piece.text for piece in self._chain(n, op)]))
        if op is Op.PLUS:
            sign = self.program.semiring.plus_symbol
            pieces = (write.at_least(piece, QUOTIENT) for piece in self._chain(n, op))
            return Formula(write.joint(sign).join(pieces), SUM)
        if op is Op.ELEMENT:
            return Formula(write.tuple([self._text(a).text for a in args]))
        if op is Op.COMPONENT:
            return self._component(args[0], int(attr or 0))
        if op is Op.WHERE:
            return Formula(write.apply(write.function(op), ", ".join(self._text(a).text for a in args)))
        if op in (Op.GE, Op.GT):
            joint = write.joints["≥" if op is Op.GE else ">"]
            return Formula(write.truth(joint.join(self._text(a).text for a in args)))
        if op is Op.SHARE:  # exp(a − b)
            whole, part = self._text(args[0]).text, write.at_least(self._text(args[1]), QUOTIENT)
            return Formula(write.apply(write.function(Op.EXP), whole + write.joints["−"] + part))
        if op is Op.SQRT:
            return Formula(write.root(self._text(args[0]).text))
        return Formula(write.apply(write.function(op), self._text(args[0]).text))

    def _component(self, n: int, index: int) -> Formula:
        whole = self.notation.at_least(self._text(n), ATOM)
        return Formula(self.notation.component(whole, self.program.semiring.components[index]))

    def _along(self, op: Op, family: int, n: int) -> Formula:
        """Write a fold. Where its letter already stands for another index, it has one of its own."""
        names = {Op.SUM: "Σ", Op.MOST: "max", Op.LEAST: "min", Op.LOGSUM: "logsumexp", Op.FOLD: "⊕"}
        outside = self._letters_bound, self.index_letters
        letter = self._letters_of([family])
        if letter in self._letters_bound:
            letter = next(each for each in INDEX_LETTERS if each not in self._letters_bound)
            self.index_letters = self.index_letters | {family: letter}
        self._letters_bound |= {letter}
        found = self.notation.along(names.get(op, op.text), letter, self._text(n))
        self._letters_bound, self.index_letters = outside
        return found

    def _moved(self, attr: int, n: int) -> Formula:
        """Write a value under the index of another family."""
        assert self.program.wide is not None
        before, after = divmod(attr, len(self.program.wide.sizes))
        outside = self.index_letters
        self.index_letters = outside | {before: self._letters_of([after])}
        found = self._text(n)
        self.index_letters = outside
        return found

    def _whole_fold(self, n: int) -> tuple[Op, int, int] | None:
        """Return (op, family, what is folded) if an instruction adds up a family of elements, by components or by ⊕."""
        code = self.program.instructions
        op, args, _ = code[n]
        folds, size = [code[a] for a in args], len(args)
        if op is not Op.ELEMENT or not all(fold.op in (Op.SUM, Op.FOLD) for fold in folds):
            return None
        # Each component: the op, the family, and the component of an element that it adds up.
        own = [(f, code[f.args[c if f.op is Op.FOLD else 0]]) for c, f in enumerate(folds)]
        found = {
            (f.op, int(f.attr or 0) // len(f.args), part.args) for f, part in own if part.op is Op.COMPONENT
        }
        if len(found) != 1 or [part.attr for _, part in own] != list(range(size)):
            return None
        ((fold, family, (whole,)),) = found
        return fold, family, whole

    def _leaf(self, op: Op, index: int) -> str:
        write = self.notation
        match op:
            case Op.PARAM:
                return write.symbol(self.leaf_symbol(op, index))
            case Op.PREACT:
                name = self.program.projections[index]
                window = self.windows.get(name, 1)
                times = ["t", *(f"t-{k}" for k in range(1, window))][::-1]
                shown = times if window <= _SHOWN else [times[0], times[-1]]
                inputs = [Symbol(self.input_letter, "", time) for time in shown]
                return write.matrix_times(self.leaf_symbol(op, index), inputs, len(shown) < window)
            case Op.INPUT:
                return write.symbol(Symbol(self.input_letter, "", "t"))
            case Op.STATE:
                return self.state(index, "t-1")
            case Op.GRAD_OUTPUT:
                return self.output(index, self.gradient)
            case Op.GRAD_STATE:
                return self.state(index, "t", self.gradient)
        raise AssertionError(op)

    def _chain(self, n: int, op: Op) -> list[Formula]:
        """Return the arguments of nested instructions of one op, as far as nothing among them has a symbol."""
        pieces: list[Formula] = []
        for a in self.program.instructions[n].args:
            pieces += self._chain(a, op) if self._is_inner(a, op) else [self._text(a)]
        return pieces

    def _is_inner(self, n: int, *ops: Op) -> bool:
        plain = n not in self.names and n not in self._known and not self._is_worth_a_name(n)
        return plain and self.program.instructions[n].op in ops

    def _sum(self, n: int) -> Formula:
        write = self.notation
        terms = self._terms(n, 1)
        tropical = self._times is Op.ADD and all(sign > 0 for sign, _ in terms)
        if tropical and any(self._rank(a) for _, a in terms):
            # ⊗ on a state: the weight, the state, numbers
            terms.sort(key=lambda term: 2 if self.constant(term[1]) is not None else self._rank(term[1]))
        text = ""
        for sign, a in terms:
            piece = self._text(a)
            if piece.level == NEGATIVE:
                sign, piece = -sign, Formula(piece.text.removeprefix(write.minus))
            body = write.at_least(piece, QUOTIENT)
            if text:
                text += write.joints["+" if sign > 0 else "−"] + body
            else:
                text = body if sign > 0 else write.minus + body
        negative = len(terms) == 1 and text.startswith(write.minus)
        return Formula(text, NEGATIVE if negative else SUM)

    def _terms(self, n: int, sign: int) -> list[tuple[int, int]]:
        op, args, _ = self.program.instructions[n]
        signs = {Op.ADD: (sign, sign), Op.SUB: (sign, -sign), Op.NEG: (-sign,)}[op]
        terms: list[tuple[int, int]] = []
        for a, s in zip(args, signs, strict=True):
            terms += self._terms(a, s) if self._is_inner(a, Op.ADD, Op.SUB, Op.NEG) else [(s, a)]
        return terms

    def _product(self, n: int) -> Formula:
        write = self.notation
        factors, negative = self._factors(n), False
        numbers: list[str] = []
        pieces: list[tuple[int, Formula]] = []
        for a in factors:
            piece = self._text(a)
            if piece.level == NEGATIVE:
                negative, piece = not negative, Formula(piece.text.removeprefix(write.minus))
            if self.constant(a) is None:
                pieces.append((self._rank(a), piece))
            elif piece.text != write.number(1.0):
                numbers.append(piece.text)
        sums_first = any(rank for rank, _ in pieces)

        def place(ranked: tuple[int, Formula]) -> int:
            # (sum of states) ⊙ weight, but weight ⊙ state, and weight ⊙ W v
            rank, piece = ranked
            if not self.program.semiring.commutative:
                return 0
            if sums_first and piece.level < PRODUCT:
                return 0
            return 3 if rank else 2 if piece.level == MATRIX else 1

        *before, last = (piece for _, piece in sorted(pieces, key=place))
        bodies = [write.brackets(p.text) if p.level == MATRIX else write.at_least(p, PRODUCT) for p in before]
        joint = "⊙" if self.program.instructions[n].op is Op.MUL else self._times_sign
        text = write.joint(joint).join([*bodies, write.at_least(last, PRODUCT)])
        text = " ".join([write.joints["·"].join(numbers), text]).strip()
        return Formula(write.minus + text, NEGATIVE) if negative else Formula(text, PRODUCT)

    @property
    def _times_sign(self) -> str:
        """The sign of ⊗ where it is no single op: that of the product of numbers, if it is one."""
        sign = self.program.semiring.times_symbol
        return "⊙" if sign == "·" else sign

    def _factors(self, n: int) -> list[int]:
        factors: list[int] = []
        for a in self.program.instructions[n].args:
            inner = self._is_inner(a, self.program.instructions[n].op)
            factors += self._factors(a) if inner else [a]
        return factors

    def _rank(self, n: int) -> int:
        """Return 1 for what carries a state, 0 for a weight."""
        if n in self._states:
            return 1
        return int(n in self._stateful and n not in self._known and not self._states)
