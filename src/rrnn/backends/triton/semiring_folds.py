"""Triton functions that fold a family by a semiring's own ⊕, for those whose ⊕ is no single op.

`plus` is ⊕ on the components of two elements. Folds run along an axis of tiles, one tile for each component; padding
holds 0̄. For the ⊕ of all states before (or after) each one, a scan carries pairs: the ⊕ of a stretch of states without
its last (or first) one, and that one.
"""

from __future__ import annotations

from functools import lru_cache

from rrnn.arithmetic import SEMIRING_FOLDS
from rrnn.backends.triton.kernel_text import OPS, number
from rrnn.ir import Op, Program
from rrnn.ir.semiring_code import operation_code
from rrnn.semirings import Semiring


def fold_functions(program: Program) -> str:
    """Return the functions that a program's folds call; none for a program without such folds."""
    return _functions(program.semiring) if any(i.op in SEMIRING_FOLDS for i in program.instructions) else ""


@lru_cache(maxsize=64)
def _functions(ring: Semiring) -> str:
    def names(letter: str) -> str:
        return ", ".join(f"{letter}{c}" for c in range(ring.size))

    def function(name: str, arguments: list[str], lines: list[str], axis: str = "") -> str:
        head = f"\n\n@triton.jit\ndef {name}({', '.join(map(names, arguments))}{axis}):\n"
        return head + "".join(f"    {line}\n" for line in lines)

    instructions, results = operation_code(ring, "plus")
    plus, leaves = [], [f"{letter}{c}" for letter in "ab" for c in range(ring.size)]
    for n, (op, args, attr) in enumerate(instructions):
        if op is Op.CONST:
            text = number(float(attr or 0.0))
        else:
            text = leaves[int(attr or 0)] if op.leaf else OPS[op].format(*(f"v{k}" for k in args))
        plus.append(f"v{n} = {text}")
    plus.append("return " + ", ".join(f"v{n}" for n in results))

    def join(first: str, *others: str) -> list[str]:
        """Write the ⊕ of some elements, from left to right, into s."""
        lines, left = [], first
        for right in others:
            lines.append(f"{names('s')} = plus({names(left)}, {names(right)})")
            left = "s"
        return lines

    def scan(name: str, reverse: bool) -> str:
        empty = [f"e{c} = tl.full(a{c}.shape, {number(z)}, tl.float32)" for c, z in enumerate(zero)]
        call = f"tl.associative_scan(({names('e')}, {names('a')}), axis, {name}_joined, reverse={reverse})"
        lines = [*empty, f"{names('r')}, {names('x')} = {call}", f"return {names('r')}"]
        return function(name, ["a"], lines, axis)

    zero, axis = ring.numbers_of(ring.zero), ", axis: tl.constexpr"
    given = f"({names('a')})" if ring.size > 1 else "a0"
    return "".join(
        [
            function("plus", ["a", "b"], plus),
            function("fold", ["a"], [f"return tl.reduce({given}, axis, plus, keep_dims=True)"], axis),
            # (a without its last state x) and (b without its last state y)
            function(
                "before_joined",
                ["a", "x", "b", "y"],
                [*join("a", "x", "b"), f"return {names('s')}, {names('y')}"],
            ),
            scan("before", False),
            # A scan from the right begins with the right one, a: its first state is x.
            function(
                "after_joined",
                ["a", "x", "b", "y"],
                [*join("b", "x", "a"), f"return {names('s')}, {names('y')}"],
            ),
            scan("after", True),
        ]
    )
