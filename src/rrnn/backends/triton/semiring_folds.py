"""Triton functions that fold a family by a semiring's own ⊕, for those whose ⊕ is no single op.

`plus` is ⊕ on the components of two elements. Folds run along an axis of tiles, one tile for each component; padding
holds 0̄. The ⊕ of all states before each one, and of all after it, are found in log₂ N steps, in which blocks of 1, 2,
4, … states are joined: of two neighbouring blocks, the states of the right one have all of the left one before them,
and those of the left one have all of the right one after them. Blocks are exchanged as in `tl.sort`.
(`tl.associative_scan` is wrong in triton 3.6 for some layouts in which lanes or registers repeat a number, as those of
small tiles do: pull requests 9185 and 9189 of triton-lang/triton.)
"""

from __future__ import annotations

from functools import lru_cache

from rrnn.arithmetic import SEMIRING_FOLDS
from rrnn.backends.triton.kernel_text import OPS, number
from rrnn.ir import Op, Program
from rrnn.ir.semiring_code import operation_code
from rrnn.semirings import Semiring

_NEIGHBOUR = """

@triton.jit
def neighbour(v, stride: tl.constexpr):
    bits = tl.reshape(v.to(tl.int32, bitcast=True), [v.numel // (2 * stride), 2, stride])
    return tl.reshape(bits ^ tl.xor_sum(bits, 1, keep_dims=True), v.shape).to(tl.float32, bitcast=True)
"""
"""Returns the values of the states whose index differs in one bit."""


def fold_functions(program: Program) -> str:
    """Return the functions that a program's folds call; none for a program without such folds."""
    return _functions(program.semiring) if any(i.op in SEMIRING_FOLDS for i in program.instructions) else ""


@lru_cache(maxsize=64)
def _functions(ring: Semiring) -> str:
    def names(letter: str) -> str:
        return ", ".join(f"{letter}{c}" for c in range(ring.size))

    def function(head: str, lines: list[str]) -> str:
        return f"\n\n@triton.jit\ndef {head}:\n" + "".join(f"    {line}\n" for line in lines)

    def each(text: str) -> list[str]:
        """Write a line for each component c, whose zero is z."""
        return [text.format(c=c, z=number(z)) for c, z in enumerate(ring.numbers_of(ring.zero))]

    instructions, results = operation_code(ring, "plus")
    plus, leaves = [], [f"{letter}{c}" for letter in "ab" for c in range(ring.size)]
    for n, (op, args, attr) in enumerate(instructions):
        if op is Op.CONST:
            text = number(float(attr or 0.0))
        else:
            text = leaves[int(attr or 0)] if op.leaf else OPS[op].format(*(f"v{k}" for k in args))
        plus.append(f"v{n} = {text}")
    plus.append("return " + ", ".join(f"v{n}" for n in results))

    given = f"({names('a')})" if ring.size > 1 else "a0"
    # p and q: all before and after a state in its block, of which a is the ⊕; b is the ⊕ of the neighbouring block.
    around = [
        *each("p{c} = tl.full(a{c}.shape, {z}, tl.float32)"),
        *each("q{c} = p{c}"),
        "for level in tl.static_range(levels):",
        "    right = ((k >> level) & 1) == 1",
        *each("    b{c} = neighbour(a{c}, stride << level)"),
        *each("    s{c} = tl.where(right, p{c}, q{c})"),
        f"    {names('s')} = plus({names('s')}, {names('b')})",
        *each("    p{c} = tl.where(right, s{c}, p{c})"),
        *each("    q{c} = tl.where(right, q{c}, s{c})"),
        "    if level + 1 < levels:",
        *each("        s{c} = tl.where(right, b{c}, a{c})"),
        *each("        b{c} = tl.where(right, a{c}, b{c})"),
        f"        {names('a')} = plus({names('s')}, {names('b')})",
        f"return {names('p')}, {names('q')}",
    ]
    where = f"{names('a')}, k, levels: tl.constexpr, stride: tl.constexpr"
    return "".join(
        [
            function(f"plus({names('a')}, {names('b')})", plus),
            function(
                f"fold({names('a')}, axis: tl.constexpr)",
                [f"return tl.reduce({given}, axis, plus, keep_dims=True)"],
            ),
            _NEIGHBOUR,
            function(f"around({where})", around),
        ]
    )
