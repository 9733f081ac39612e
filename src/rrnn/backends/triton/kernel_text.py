"""The text of one Triton kernel: ops and numbers as strings, and the frame that all kernels share."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rrnn.ir import Op, Program
from rrnn.ir.program import needed
from rrnn.ir.semiring_code import OperationCode, operation_code, single_op
from rrnn.semirings import Semiring

OPS = {op: op.value.triton for op in Op if op.value.triton}

HEAD = """\
import triton
import triton.language as tl

from rrnn.backends.triton.math import log_sigmoid, logaddexp, share, softplus, tanh
"""

# (The parameters are called theta: Triton's own launcher uses the name `params`.)
_JIT = '@triton.jit(do_not_specialize=["T", "B", "C", "chunks"])'

# Offsets are 64 bits wide: a stride that fits 32 bits may not fit when multiplied, as with projections laid out one
# after another. A cast keeps what Triton knows of a stride's divisibility, and so its wide loads.
STRIDES = re.compile(r"\b(?:g?x[tbk]|g?i[tb]|[mogh][tb])\b")
# Where a Triton program works: units d of batch row b, chunk c.
GRID = """\
    d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b = tl.program_id(1).to(tl.int64)
    c = tl.program_id(2).to(tl.int64)
"""
# The same for packed sequences, longest first: the program's own sequence is a batch of one row, to which `shift` moves
# all pointers, and T is its length.
PACKED = """\
    d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b = tl.program_id(2).to(tl.int64)
    c = b
    number = tl.load(sequences + tl.program_id(1) * 3)
    offset = tl.load(sequences + tl.program_id(1) * 3 + 1)
    T = tl.load(sequences + tl.program_id(1) * 3 + 2) - offset
    B, C = 1, T
"""
_LANES = """\
    ok = d < D
    lane = b * D + d
    lanes = tl.cast(B, tl.int64) * D
"""


def number(value: float) -> str:
    """Write a number."""
    return f'float("{value}")' if math.isinf(value) else repr(value)


EntryKeys = list[tuple[int, ...]]
"""The keys of the numbers that a chunk carries: (i, j), from state i to state j, and the component of several."""
EntryName = Callable[[tuple[int, ...]], str]
"""Returns the name of the number with this key."""


def name_of(key: tuple[int, ...]) -> str:
    """Return the end of an entry's name: _i_j, and its component if there are several."""
    return "".join(f"_{i}" for i in key)


class Elements:
    """The lines of one kernel, indented by `depth`, and how ⊕ and ⊗ of elements are written."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.combined = 0  # how often `combine` has written lines

    def __call__(self, *lines: str) -> None:
        self.lines += [("    " * self.depth + line) if line else "" for line in lines]

    def step(self, program: Any, values: Iterable[int], units: tuple[int, ...], leaf: Any, tag: str) -> None:
        """Write the instructions that `values` need, as {tag}v{n}."""
        raise NotImplementedError

    def filled(self, value: str) -> str:
        """Return a number as a block of lanes."""
        raise NotImplementedError

    def combine(self, ring: Semiring, which: str, a: Any, b: Any) -> Any:
        """Write a ⊕ b or a ⊗ b ("plus", "times") of elements of names; return the result, an element of names. A single
        op is an expression; of several, each has a line of its own, so that what they share is computed once."""
        op = single_op(ring, which)
        if op is not None:
            return f"({OPS[op].format(a, b)})"
        code, given = operation_code(ring, which), [*ring.numbers_of(a), *ring.numbers_of(b)]
        tag, self.combined = f"l{self.combined}_", self.combined + 1
        self.step(code, code.results, (), lambda _, index: given[index], tag)
        return ring.element(f"{tag}v{n}" for n in code.results)


class KernelText(Elements):
    """The lines of a kernel whose values are rows of units."""

    def filled(self, value: str) -> str:
        return whole(value, True)

    def first(
        self, names: str, pointer: str, at: Callable[[int], str], values: Sequence[float | None]
    ) -> None:
        """Write the very first states, or gradients: from `pointer`, or these numbers where it is None. (A value that
        is None is not known when kernels are written: there is always a pointer.)"""
        loads = [f"{names}{s} = tl.load({pointer} + {at(s)}, mask=ok, other=0.0)" for s in range(len(values))]
        if not values or None in values:
            self(*loads)
            return
        self(f"if {pointer} is None:")
        self(
            *(
                f"    {names}{s} = tl.full([BLOCK], {number(v or 0.0)}, tl.float32)"
                for s, v in enumerate(values)
            )
        )
        self("else:", *(f"    {load}" for load in loads))

    def units(self, program: Program, units: tuple[int, ...]) -> None:
        """Write the per-unit values, which are computed once."""
        for n in sorted(program.needed_for(units)):
            op, args, attr = program.instructions[n]
            if op is Op.CONST:
                text = number(float(attr or 0.0))
            elif op is Op.PARAM:
                text = parameter(attr)
            else:
                text = OPS[op].format(*(f"u{a}" for a in args))
            self(f"u{n} = {text}")

    def step(
        self,
        program: Program | OperationCode,
        values: Iterable[int],
        units: tuple[int, ...],
        leaf: Callable[[Op, int], str],
        tag: str,
    ) -> None:
        """Write the instructions that `values` need, as {tag}v{n}; numbers and per-unit values keep their own names."""
        for n in sorted(needed(program.instructions, values, stop=units)):
            op, args, attr = program.instructions[n]
            if op is Op.CONST:
                text = number(float(attr or 0.0))
            elif n in units:
                text = f"u{n}"
            elif op.arity == 0:
                text = leaf(op, int(attr or 0))
            else:
                text = OPS[op].format(*(f"{tag}v{a}" for a in args))
            self(f"{tag}v{n} = {text}")

    def text(self, name: str, arguments: str, place: str = GRID) -> str:
        """Return the text of the whole kernel."""
        head = [f"\n\n{_JIT}", f"def {name}({arguments}):", (place + _LANES).rstrip("\n")]
        strides = [f"    {stride} = tl.cast({stride}, tl.int64)" for stride in STRIDES.findall(arguments)]
        return "\n".join([*head, *strides, *self.lines]) + "\n"


def shift(
    k: Callable[..., None], steps: dict[str, str], rows: dict[str, str], saved: tuple[int, int] | None
) -> None:
    """Write how pointers get to the program's own packed sequence: `steps` by its offset, pointer → stride of time;
    `rows` by its number, pointer → numbers of a sequence (None is left alone); `saved`: the interval and the stored
    states of a unit."""
    k(*(f"{name} += offset * {stride}" for name, stride in steps.items()))
    for name, size in rows.items():
        k(f"if {name} is not None:", f"    {name} += number * {size}")
    if saved is not None:
        every, states = saved
        k(f"saved += (offset // {every} + number) * {states} * D")


def whole(value: str, constant: bool) -> str:
    """Return a value as a block of lanes, which a constant is not by itself."""
    return f"tl.full([BLOCK], {value}, tl.float32)" if constant else value


def parameter(index: object) -> str:
    """Return the load of a row of the parameters, which come in a dtype of their own."""
    return f"tl.load(theta + {index} * D + d, mask=ok, other=0.0).to(tl.float32)"


def is_const(program: Program, n: int) -> bool:
    """Return whether an instruction is a number."""
    return program.instructions[n].op is Op.CONST
