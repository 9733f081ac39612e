"""Generated kernels for what surrounds the matrix schedule: factors and outputs from a step's expressions, and back.

Computed by torch ops, every operation of a gate is a pass over memory. Here a program of the kernel owns a chunk of
steps of one head: it reads each leaf once, computes all values, and writes each result once. Values are tiles (steps,
index): an index of the family (axis 0), a unit of the head (axis 1), or one number. Gradients of parameters are partial
sums over the chunk; torch adds these up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rrnn.backends.matrix.leaves import Leaf, leaves_of
from rrnn.backends.triton.kernel_text import HEAD, OPS, number
from rrnn.backends.triton.module import imported
from rrnn.ir import Op, Program
from rrnn.ir.adjoint import accumulate, reverse
from rrnn.ir.builder import Builder
from rrnn.ir.families import Extent, Families
from rrnn.ir.program import needed
from rrnn.semirings import get_semiring

INDEX, UNIT = 0, 1
"""The axes of values: the index of a family, and the unit of a head."""
SCORE: Leaf = (Op.STATE, 0)
PUT, SUMS, PARTIAL = "put", "sums", "partial"
"""What is written: values, running sums of values from the start of each chunk, sums over all steps of a chunk."""
QUICK = True
"""Whether sums over steps may be products, where inputs have half precision."""


class Generated(NamedTuple):
    """A kernel, the leaves that it reads, the gradients of which values, and what it writes."""

    kernel: Any
    reads: tuple[Leaf, ...]
    seeds: tuple[int, ...]
    """The values, as places in the list of wanted ones, whose gradients are read after the leaves."""
    writes: tuple[Leaf | int, ...]
    """Places in the list of wanted values; the leaves whose gradients these are."""
    modes: tuple[str, ...]


class _Copy:
    """A program's values in a builder that knows units as one more family, so that gradients of what units share are
    summed over them like those of what states share."""

    def __init__(self, program: Program, wanted: Sequence[int]) -> None:
        wide = program.wide
        assert wide is not None
        self.leaves = leaves_of(program, wanted)
        code = program.instructions
        for n in sorted(program.needed_for(wanted)):
            if code[n].op is Op.STATE:
                self.leaves[SCORE] = n
        self.axis = {leaf: _axis(wide, leaf) for leaf in self.leaves}
        steps = [leaf for leaf in self.leaves if leaf[0] is not Op.PARAM]
        params = [leaf for leaf in self.leaves if leaf[0] is Op.PARAM]
        axes = {n: self._axis_of(program, n) for n in wanted}
        shape = tuple(_extent(self.axis[leaf]) for leaf in steps) + tuple(_extent(axes[n]) for n in wanted)
        sizes = (("index", 2), ("unit", 2))
        self.b = Builder(
            get_semiring("real"), Families(sizes, shape, tuple(_extent(self.axis[p]) for p in params))
        )
        self.place = {leaf: self.b.leaf(Op.PREACT, i) for i, leaf in enumerate(steps)}
        self.place |= {leaf: self.b.leaf(Op.PARAM, i) for i, leaf in enumerate(params)}
        known = {n: self.place[leaf] for leaf, n in self.leaves.items()}
        for n in sorted(program.needed_for(wanted)):
            op, args, attr = code[n]
            if n not in known:
                known[n] = (
                    self.b.const(float(attr or 0.0))
                    if op is Op.CONST
                    else self.b.emit(op, *(known[a] for a in args))
                )
        self.values = [known[n] for n in wanted]
        self.seeds = [self.b.leaf(Op.PREACT, len(steps) + j) for j in range(len(wanted))]

    def _axis_of(self, program: Program, n: int) -> int | None:
        found = {self.axis[leaf] for leaf in [*leaves_of(program, [n])]}
        found |= {UNIT for m in program.needed_for([n]) if program.instructions[m].op is Op.STATE}
        return next((a for a in (UNIT, INDEX) if a in found), None)


def _extent(axis: int | None) -> Extent:
    return Extent(() if axis is None else (axis,), "head")


def _axis(wide: Families, leaf: Leaf) -> int | None:
    extent = Extent() if leaf[0] in (Op.INPUT, Op.STATE) else wide.extent(*leaf)
    return UNIT if extent.per == "unit" else INDEX if extent.over else None


def possible(program: Program, wanted: Sequence[int]) -> bool:
    """Return whether these values can be generated: element by element, from nothing that the heads of a group share
    (its gradient is a sum over heads)."""
    wide, code = program.wide, program.instructions
    assert wide is not None
    if any(code[n].op not in OPS and not code[n].op.leaf for n in program.needed_for(wanted)):
        return False
    several = wide.heads > wide.groups
    read = [wide.extent(*leaf) for leaf in leaves_of(program, wanted) if leaf[0] is not Op.INPUT]
    return not any(several and extent.per == "group" for extent in read)


@lru_cache(maxsize=256)
def forward(
    program: Program, wanted: tuple[int, ...], modes: tuple[str, ...], axes: tuple[int | None, ...]
) -> Generated:
    """Return the kernel that computes values of a program, to be written along these axes."""
    copy = _Copy(program, wanted)
    reads = tuple(copy.leaves)
    text = _text(copy, [copy.place[leaf] for leaf in reads], copy.values, modes, axes)
    return Generated(imported(text).evaluate, reads, (), tuple(range(len(wanted))), modes)


@lru_cache(maxsize=256)
def backward(program: Program, wanted: tuple[int, ...], summed: int | None = None) -> Generated:
    """Return the kernel that computes gradients of leaves from those of values. The gradient of value number `summed`
    is a sum from each step to the end of its chunk."""
    copy, seeds = _Copy(program, wanted), {}
    for value, seed in zip(copy.values, copy.seeds, strict=True):
        accumulate(copy.b, seeds, value, seed)
    found = reverse(copy.b, seeds)
    writes = tuple(leaf for leaf, n in copy.place.items() if n in found and copy.b.value(found[n]) != 0)
    grads = [found[copy.place[leaf]] for leaf in writes]
    live = needed(copy.b.instructions, grads)
    reads = tuple(leaf for leaf, n in copy.place.items() if n in live)
    given = tuple(j for j, n in enumerate(copy.seeds) if n in live)
    sums = None if summed is None else copy.seeds[summed]
    modes = tuple(PARTIAL if leaf[0] is Op.PARAM else PUT for leaf in writes)
    places = [*(copy.place[leaf] for leaf in reads), *(copy.seeds[j] for j in given)]
    text = _text(copy, places, grads, modes, [copy.axis[leaf] for leaf in writes], sums)
    return Generated(imported(text).evaluate, reads, given, writes, modes)


def _text(
    copy: _Copy,
    reads: list[int],
    writes: list[int],
    modes: Sequence[str],
    axes: Sequence[int | None],
    summed: int | None = None,
) -> str:
    """Return the source of a kernel. Pointers r0, r1, … are read and w0, w1, … written, each with strides of parts,
    steps, columns, groups and heads. PARTS0, PARTS1, … say of how many tensors what is read is the sum, ADD0, ADD1, …
    whether to add to what is there. `summed` is read as sums from each step to the end of its chunk."""
    b = copy.b
    names = [f"r{i}" for i in range(len(reads))] + [f"w{i}" for i in range(len(writes))]
    strides = [f"{name}{axis}" for name in names for axis in "ntbgh"]
    constants = [f"PARTS{i}" for i in range(len(reads))] + [f"ADD{i}" for i in range(len(writes))]
    constants += ["C", "B0", "B1", "MILD", "QUICK"]
    lines = [
        HEAD,
        "from rrnn.backends.matrix.decay_kernels import chunk_sums, note_harsh\n",
        "from rrnn.backends.matrix.kernels import _program, _rows, _segment\n\n",
        "@triton.jit",
        f"def evaluate({', '.join([*names, 'mask', 'table', 'harsh', *strides, 'mt', 'mb'])},",
        f"    T, B, H, HG, X0, X1, S, {', '.join(f'{c}: tl.constexpr' for c in constants)}):",
        "    slot, b, head = _program(B, H)",
        "    first, stop, _ = _segment(table, slot, T, C)",
        "    t, ok, _ = _rows(first, stop, b, mask, mt, mb, C)",
        "    t, ok, g, h = t[:, None], ok[:, None], head // HG, head % HG",
        "    none = tl.arange(0, 1)[None, :]",
        "    x0, x1 = tl.arange(0, B0)[None, :], tl.arange(0, B1)[None, :]",
    ]
    x = {None: ("none", "none < 1"), INDEX: ("x0", "x0 < X0"), UNIT: ("x1", "x1 < X1")}

    def at(name: str, axis: int | None, row: str | None) -> str:
        rows = "" if row is None else f"{row} * {name}t + b * {name}b + "
        return f"{name} + {rows}g * {name}g + h * {name}h + {x[axis][0]}"

    for i, n in enumerate(reads):
        step, axis = b.instructions[n].op is Op.PREACT, next(iter(b.over[n]), None)
        rows = "t < stop" if n == summed else "ok"  # sums go through padded steps
        there = f"({rows}) & ({x[axis][1]})" if step else x[axis][1]
        place = at(f"r{i}", axis, "t" if step else None)
        lines += [
            f"    v{n} = tl.load({place}, mask={there}, other=0.0).to(tl.float32)",
            f"    part{i} = r{i}",
            f"    for _ in range(1, PARTS{i}):",
            f"        part{i} += r{i}n",
            f"        v{n} += tl.load(part{place[1:]}, mask={there}, other=0.0).to(tl.float32)",
        ]
        if n == summed:
            lines.append(f"    v{n} = chunk_sums(v{n}, True, QUICK)")
    for n in sorted(needed(b.instructions, writes, set(reads)) - set(reads)):
        op, args, attr = b.instructions[n]
        if op is Op.CONST:
            text = number(float(attr or 0.0))
        elif op is Op.SUM:
            text = f"tl.sum(tl.where({x[int(attr or 0)][1]}, v{args[0]}, 0.0), 1)[:, None]"
        else:
            text = OPS[op].format(*(f"v{a}" for a in args))
        lines.append(f"    v{n} = {text}")
    for i, (n, mode, axis) in enumerate(zip(writes, modes, axes, strict=True)):
        lines.append(f"    y, there = tl.where(ok & ({x[axis][1]}), v{n}, 0.0), (t < stop) & ({x[axis][1]})")
        if mode == SUMS:
            lines.append(f"    y = chunk_sums(y.to(w{i}.dtype.element_ty), False, QUICK)")
            if axis is not None:
                lines.append("    note_harsh(y, harsh, table, slot, S, B, b, H, head, MILD, C)")
        if mode == PARTIAL:
            lines.append(f"    y, there = tl.sum(y, 0)[None, :], {x[axis][1]}")
        lines += [
            f"    place = {at(f'w{i}', axis, 'slot.to(tl.int64)' if mode == PARTIAL else 't')}",
            f"    if ADD{i}:",
            "        y += tl.load(place, mask=there, other=0.0).to(tl.float32)",
            f"    tl.store(place, y.to(w{i}.dtype.element_ty), mask=there)",
        ]
    return "\n".join(lines) + "\n"


class Place(NamedTuple):
    """Where a call's chunks are: its steps, columns, heads, heads of a group, states, units; the steps of chunks and
    segments; what is mild; the mask; the table of packed sequences' chunks."""

    T: int
    B: int
    H: int
    HG: int
    N: int
    U: int
    chunk: int
    segment: int
    mild: float
    mask: Tensor | None
    table: Tensor | None

    @property
    def chunks(self) -> int:
        return -(-self.T // self.chunk) if self.table is None else self.table.shape[0]


def launch(
    found: Generated,
    reads: Sequence[Tensor],
    writes: Sequence[Tensor],
    add: Sequence[bool],
    at: Place,
    harsh: Tensor | None = None,
) -> None:
    """Run a kernel. Tensors are views by heads: (T, B, groups, heads of a group, X), (groups, heads of a group, X) of
    parameters, (chunks, B, groups, heads of a group, X) of partial sums; X is of size 1 where there is no axis. One
    more axis before these has parts that are added up. Running sums over states note in `harsh` which segments are not
    mild."""
    strides: list[int] = []
    for t in (*reads, *writes):
        assert t.stride(-1) == 1 or t.shape[-1] == 1, "the last axis lies side by side"
        more = (0,) * (6 - t.dim())
        own, shape = (*more, *t.stride()[:-1]), (*more, *t.shape[:-1])
        strides += [0 if size == 1 else stride for size, stride in zip(shape, own, strict=True)]
    mask = None if at.mask is None else at.mask.view(torch.uint8)
    sizes = at.T, at.B, at.H, at.HG, at.N, at.U, at.segment
    numbers = (*strides, *((0, 0) if mask is None else mask.stride()[:2]), *sizes)
    flags: dict[str, int] = {f"ADD{i}": flag for i, flag in enumerate(add)}
    flags |= {f"PARTS{i}": t.shape[0] if t.dim() == 6 else 1 for i, t in enumerate(reads)}
    blocks = {f"B{axis}": 1 << (size - 1).bit_length() for axis, size in ((0, at.N), (1, at.U))}
    warps = 8 if max(blocks.values()) > 128 else 4 if any(t.shape[-1] > 1 for t in (*reads, *writes)) else 1
    found.kernel[(at.chunks * at.B * at.H,)](
        *reads,
        *writes,
        mask,
        at.table,
        harsh,
        *numbers,
        **flags,
        C=at.chunk,
        **blocks,
        MILD=at.mild,
        QUICK=QUICK and any(t.element_size() == 2 for t in reads),
        num_warps=warps,
    )
