"""Emit instructions: fold constants, apply the identities of zero and one, compute equal things once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from typing import Any

from rrnn.arithmetic import ALONG_FAMILY, BY_NAME, FOLDS, SEMIRING_FOLDS, Arithmetic, Op, Operators
from rrnn.errors import ProgramError
from rrnn.ir.program import Families, Instruction, Output, Program, families_read, needed, verify
from rrnn.ir.semiring_code import adds_components, plus_and_times
from rrnn.semirings import Semiring

MAX_WORK = 1_000_000
"""The limit on emitted instructions: real cells need hundreds, a hostile text could ask for 10⁹."""


class Value(Operators):
    """An instruction's result as a number to compute with: operators and the ops of `Builder.arithmetic` emit."""

    __slots__ = ("builder", "n")

    def __init__(self, builder: Builder, n: int) -> None:
        self.builder, self.n = builder, n

    def apply(self, op: str, *values: Any) -> Value:
        """Emit an op of values and Python numbers."""
        return self.builder.on_values(BY_NAME[op])(*values)


class Builder:
    """The instructions so far, each known by its number. An element of the semiring is one number, too: where ⊕ or ⊗ is
    no single op, or elements have several components, it is the instruction `plus`, `times` or `element`."""

    def __init__(self, semiring: Semiring, wide: Families | None = None) -> None:
        self._start(semiring)
        self.wide = wide
        self._plus_op, self._times_op = plus_and_times(semiring)
        self.zero, self.one = self.constant(semiring.zero), self.constant(semiring.one)

    def _start(self, semiring: Semiring) -> None:
        self.semiring, self.wide = semiring, None
        self.instructions: list[Instruction] = []
        self.over: list[frozenset[int]] = []
        """For each instruction the families on whose index its value depends."""
        self._known: dict[Instruction, int] = {}
        self._work = 0
        self.arithmetic = Arithmetic(self.on_values)
        self.arithmetic.infinities = semiring.infinities

    # ---- emitting ------------------------------------------------------------------------------------------

    def leaf(self, op: Op, index: int | None = None) -> int:
        """Return the instruction that reads a leaf."""
        return self._add(Instruction(op, (), index))

    def const(self, value: float) -> int:
        """Return the instruction of a number."""
        return self._add(Instruction(Op.CONST, (), float(value) + 0.0))  # + 0.0: no negative zero

    def emit(self, op: Op, *args: int) -> int:
        """Return the instruction of an op, folded to a number or simplified where that is possible."""
        values = [self.value(a) for a in args]
        if all(v is not None for v in values) and op.value.meaning is not None:
            folded = op.value.meaning(*values)
            if not math.isnan(folded):
                return self.const(folded)
        if op is Op.WHERE and values[0] is not None:
            return args[1] if values[0] else args[2]
        if (moved := self._moved(args)) is not None:
            return self.move(self.emit(op, *moved[2:]), *moved[:2])
        return self._simplify(op, args, values) if len(args) == 2 else self._add(Instruction(op, args))

    def find(self, op: Op, *args: int) -> int | None:
        """Return the instruction of an op on these arguments if there is one."""
        return self._known.get(Instruction(op, args))

    def value(self, n: int) -> float | None:
        """Return the number that an instruction is known to be, or None."""
        op, _, attr = self.instructions[n]
        return float(attr) if op is Op.CONST and attr is not None else None

    def number_of(self, value: Any) -> int:
        """Return the instruction of a `Value` or a Python number."""
        return value.n if isinstance(value, Value) else self.const(value)

    def on_values(self, op: Op) -> Callable[..., Value]:
        """Return the function that emits an op on values."""
        return lambda *values: Value(self, self.emit(op, *(self.number_of(v) for v in values)))

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
            if self.wide is not None and (n := self._product(a, b)) is not None:
                return n
        elif op is Op.DIV and y == 1:
            return a
        elif op in (Op.MAX, Op.LOGADDEXP) and -math.inf in values:
            return b if x == -math.inf else a
        elif op is Op.MIN and math.inf in values:
            return b if x == math.inf else a
        elif op in (Op.MAX, Op.MIN) and a == b:
            return a
        return self._add(Instruction(op, args))

    def _add(self, instruction: Instruction) -> int:
        self._work += 1
        if self._work > MAX_WORK:
            raise ProgramError(
                f"one step of a cell takes at most {MAX_WORK} operations to compile; this one needs more. "
                "Use fewer states or ε-arcs, or a smaller epsilon_limit."
            )
        if instruction not in self._known:
            self.over.append(families_read(instruction, self.over, self.wide))
            self._known[instruction] = len(self.instructions)
            self.instructions.append(instruction)
        return self._known[instruction]

    # ---- the semiring --------------------------------------------------------------------------------------

    def element(self, components: Iterable[int]) -> int:
        """Return the element with these components."""
        numbers = tuple(components)
        return self._add(Instruction(Op.ELEMENT, numbers)) if self.semiring.components else numbers[0]

    def component(self, n: int, index: int) -> int:
        """Return a component of an element."""
        op, args, _ = self.instructions[n]
        if op is Op.ELEMENT:
            return args[index]
        return self._add(Instruction(Op.COMPONENT, (n,), index)) if self.semiring.components else n

    def values_of(self, n: int) -> Any:
        """Return an element's number as an element of values, for definitions to compute with."""
        return self.semiring.element(Value(self, self.component(n, i)) for i in range(self.semiring.size))

    def from_values(self, element: Any) -> int:
        """Return the number of an element of values."""
        return self.element(self.number_of(v) for v in self.semiring.numbers_of(element))

    def constant(self, element: Any) -> int:
        """Return an element that is known, such as the semiring's one."""
        return self.element(self.const(x) for x in self.semiring.numbers_of(element))

    def plus(self, a: int, b: int) -> int:
        """Return a ⊕ b, simplified where one of them is zero, or one absorbs."""
        if self.zero in (a, b):
            return b if a == self.zero else a
        if self.semiring.one_absorbs and self.one in (a, b):
            return self.one
        return self.emit(self._plus_op, a, b)

    def times(self, a: int, b: int) -> int:
        """Return a ⊗ b, simplified where one of them is zero or one."""
        if self.zero in (a, b):
            return self.zero
        if self.one in (a, b):
            return b if a == self.one else a
        return self.emit(self._times_op, a, b)

    def sum(self, values: Iterable[int]) -> int:
        """Return the ⊕ from left to right, so that in a tie the first wins."""
        total = self.zero
        for value in values:
            total = self.plus(total, value)
        return total

    def star(self, a: int) -> int:
        """Return a*, which `check_cell` has proved to exist."""
        if self.semiring.selective:  # `check_cell` has proved that no cycle improves a path
            return self.one
        return self.from_values(self.semiring.star_of(self.values_of(a), self.arithmetic))

    # ---- families ------------------------------------------------------------------------------------------

    def along(self, op: Op, family: int, *args: int) -> int:
        """Return the instruction of an op that looks at all indices of a family."""
        if op is not Op.FIRST and family not in self.over[args[0]]:
            return self._of_equal(op, args[0], self._size(family))
        outer, inner = self._factors(args[0])
        if op is Op.SUM and outer is not None and inner is not None:
            return self.emit(Op.MUL, outer, self.along(op, family, inner))
        if len(self.over[args[0]]) > 1 and (apart := self._apart(op, args[0], family)) is not None:
            joint, same, folded = apart
            return self.emit(joint, same, self.along(op, family, folded))
        if op is not Op.FIRST and (source := self._came_from(args[0], family)) is not None:
            return self.along(op, source, self.instructions[args[0]].args[0])
        return self._add(Instruction(op, args, family))

    def move(self, n: int, before: int, after: int) -> int:
        """Return a value over the family `before` under the index of the family `after`, which has the same size."""
        if before == after or before not in self.over[n]:
            return n
        if (source := self._came_from(n, before)) is not None:
            return self.move(self.instructions[n].args[0], source, after)
        assert after not in self.over[n], "the index is taken"
        return self._add(Instruction(Op.MOVE, (n,), before * self._families + after))

    def move_element(self, n: int, before: int, after: int) -> int:
        """Return an element over the family `before` under the index of the family `after`."""
        parts = (self.component(n, c) for c in range(self.semiring.size))
        return self.element(self.move(part, before, after) for part in parts)

    @property
    def _families(self) -> int:
        assert self.wide is not None
        return len(self.wide.sizes)

    def _came_from(self, n: int, family: int) -> int | None:
        """Return the family whose index a value had before it was moved to that of `family`, or None."""
        op, _, attr = self.instructions[n]
        if op is not Op.MOVE:
            return None
        before, after = divmod(int(attr or 0), self._families)
        return before if after == family else None

    def _moved(self, args: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return (before, after, arguments before the move) if an op of these arguments can run before they are moved,
        all from one index to another."""
        moves = {self.instructions[a].attr for a in args if self.instructions[a].op is Op.MOVE}
        if len(moves) != 1:
            return None
        before, after = divmod(int(moves.pop() or 0), self._families)
        free = [a for a in args if self.instructions[a].op is not Op.MOVE]
        if any(self.over[a] for a in free):  # pairs have the index of a source, which backends rely on
            return None
        inside = (self.instructions[a].args[0] if a not in free else a for a in args)
        return before, after, *inside

    def _apart(self, op: Op, n: int, family: int) -> tuple[Op, int, int] | None:
        """Return (the op that joins them, what is the same for all indices of a family, what depends on the index) of a
        product that is folded along it: ⊗ distributes over ⊕. None if there is nothing to take out."""
        joint = Op.MUL if op is Op.SUM else Op.ADD
        if op is Op.FIRST or (op is not Op.SUM and self._times_op is not Op.ADD):
            return None
        parts, todo = list[int](), [n]
        while todo:
            k = todo.pop()
            if self.instructions[k].op is joint and family in self.over[k]:
                todo += reversed(self.instructions[k].args)
            else:
                parts.append(k)
        same = [k for k in parts if family not in self.over[k]]
        own = [k for k in parts if family in self.over[k]]
        if not same or not own:
            return None
        emit = partial(self.emit, joint)
        return joint, reduce(emit, same), reduce(emit, own)

    def _size(self, family: int) -> int:
        assert self.wide is not None
        return self.wide.sizes[family][1]

    def _of_equal(self, op: Op, n: int, size: int) -> int:
        """Return the fold of a family whose states all have the same value."""
        if op is Op.SUM:
            return self.emit(Op.MUL, self.const(size), n)
        return self.emit(Op.ADD, n, self.const(math.log(size))) if op is Op.LOGSUM else n

    def _factors(self, n: int) -> tuple[int | None, int | None]:
        """Return the factor of a product that is the same for all indices, and the one that depends on an index."""
        if not self.over[n]:
            return n, None
        op, args, _ = self.instructions[n]
        return (args[0], args[1]) if op is Op.MUL and not self.over[args[0]] else (None, n)

    def _product(self, a: int, b: int) -> int | None:
        """Return a product with the factors that are the same for all indices multiplied first, which takes one
        multiplication in place of one for each index, or None if there is nothing to rearrange."""
        pairs = self._factors(a), self._factors(b)
        outer, inner = ([n for n in part if n is not None] for part in zip(*pairs, strict=True))
        if not inner or not outer or (len(outer) == 1 and len(inner) == 1 and not self.over[a]):
            return None
        outside = outer[0] if len(outer) == 1 else self.emit(Op.MUL, *outer)
        inside = inner[0] if len(inner) == 1 else self.emit(Op.MUL, *inner)
        return self._add(Instruction(Op.MUL, (outside, inside)))

    def fold(self, n: int, family: int) -> int:
        """Return the ⊕ of an element over all states of a family."""
        if n == self.zero:
            return n
        if self._plus_op in FOLDS:
            return self.along(FOLDS[self._plus_op], family, n)
        components = range(self.semiring.size)
        if adds_components(self.semiring):
            return self.element(self.along(Op.SUM, family, self.component(n, c)) for c in components)
        parts = [self.component(n, c) for c in components]
        if all(family not in self.over[part] for part in parts):  # n ⊕ … ⊕ n = (1̄ ⊕ … ⊕ 1̄) ⊗ n
            plus, one = self.semiring.plus, self.semiring.one
            return self.times(self.constant(reduce(plus, [one] * self._size(family))), n)
        sources = {self._came_from(part, family) for part in parts}
        if len(sources) == 1 and (source := sources.pop()) is not None:
            family, parts = source, [self.instructions[part].args[0] for part in parts]
        return self.element(self.fold_components(Op.FOLD, family, parts))

    def fold_components(self, op: Op, family: int, parts: Sequence[int]) -> list[int]:
        """Return the components of what an op of `SEMIRING_FOLDS` makes of an element with these components."""
        size = len(parts)
        return [self._add(Instruction(op, tuple(parts), family * size + c)) for c in range(size)]

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
        """Return the verified program without dead code, and old number → new number."""
        initial, outputs = tuple(initial), [Output(*o) for o in outputs]
        live = needed(self.instructions, [*initial, *(o.value for o in outputs)])
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
            self.wide,
        )
        return verify(program), number


def copy_into(b: Builder, program: Program, only: frozenset[int] | None = None) -> dict[int, int]:
    """Emit a program's instructions, or `only` some, into a builder; return old number → new number."""
    number: dict[int, int] = {}
    for n, (op, args, attr) in enumerate(program.instructions):
        if only is not None and n not in only:
            continue
        if op is Op.CONST:
            number[n] = b.const(float(attr or 0.0))
        elif op.leaf:
            number[n] = b.leaf(op, None if attr is None else int(attr))
        elif op is Op.COMPONENT:
            number[n] = b.component(number[args[0]], int(attr or 0))
        elif op in ALONG_FAMILY:
            number[n] = copy_along(b, op, int(attr or 0), *(number[a] for a in args))
        else:
            number[n] = b.emit(op, *(number[a] for a in args))
    return number


def copy_along(b: Builder, op: Op, attr: int, *args: int) -> int:
    """Emit an op that looks at other indices, from its attribute."""
    if op in SEMIRING_FOLDS:
        family, component = divmod(attr, len(args))
        return b.fold_components(op, family, args)[component]
    if op is not Op.MOVE:
        return b.along(op, attr, *args)
    assert b.wide is not None
    return b.move(args[0], *divmod(attr, len(b.wide.sizes)))
