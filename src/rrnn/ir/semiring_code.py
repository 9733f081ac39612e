"""Write ⊕ and ⊗ of a semiring as instructions on components: single ops where they are, short code elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from rrnn.arithmetic import Arithmetic, Op
from rrnn.semirings import Semiring

if TYPE_CHECKING:
    from rrnn.ir.program import Instruction


class OperationCode(NamedTuple):
    """A ⊕ b or a ⊗ b. The leaves `state` 0, 1, … are the components of a, then those of b."""

    instructions: tuple[Instruction, ...]
    results: tuple[int, ...]
    """The instructions that are the components of the result."""


@lru_cache(maxsize=256)
def operation_code(ring: Semiring, which: str) -> OperationCode:
    """Return the code of ⊕ ("plus") or ⊗ ("times")."""
    from rrnn.ir.builder import Builder, Value

    b = Builder.__new__(Builder)
    b._start(ring)
    leaves = [Value(b, b.leaf(Op.STATE, i)) for i in range(2 * ring.size)]
    first, second = ring.element(leaves[: ring.size]), ring.element(leaves[ring.size :])
    result = ring.numbers_of(getattr(ring, which)(first, second, b.arithmetic))
    results = tuple(b.number_of(value) for value in result)
    return OperationCode(tuple(b.instructions), results)


@lru_cache(maxsize=256)
def single_op(ring: Semiring, which: str) -> Op | None:
    """Return the op that ⊕ ("plus") or ⊗ ("times") is, if it is one op of two numbers."""
    if ring.size > 1:
        return None
    instructions, (last,) = operation_code(ring, which)
    op, args, _ = instructions[last]
    return op if args == (0, 1) and len(instructions) == 3 else None


def plus_and_times(ring: Semiring) -> tuple[Op, Op]:
    """Return the ops that ⊕ and ⊗ are in programs: single ops on numbers where they are, else PLUS and TIMES."""
    return single_op(ring, "plus") or Op.PLUS, single_op(ring, "times") or Op.TIMES


def adds_components(ring: Semiring) -> bool:
    """Return whether ⊕ adds each component by itself."""
    instructions, results = operation_code(ring, "plus")
    wanted = [(Op.ADD, (c, ring.size + c)) for c in range(ring.size)]
    return [instructions[n][:2] for n in results] == wanted


def fold_elements(ring: Semiring, s: Arithmetic, op: Op, elements: Sequence[Any], zero: Any) -> list[Any]:
    """Return the ⊕ of all elements in a list, or that of all before or after each one (an op of `SEMIRING_FOLDS`)."""
    if op is Op.FOLD:
        return [reduce(lambda a, b: ring.plus(a, b, s), elements)]
    if op is Op.BEFORE:
        return list(accumulate(elements[:-1], lambda a, b: ring.plus(a, b, s), initial=zero))
    return list(accumulate(elements[:0:-1], lambda a, b: ring.plus(b, a, s), initial=zero))[::-1]
