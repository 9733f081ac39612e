"""Affine programs: a family of states that one matrix takes to the next step, the same for all units of a head.

A program over the reals is *affine* if its one state is a family with

    new state = matrix · state + entry,    output = Σ read ⊙ new state,

where matrix and entry depend on no unit, so that the units of a head have the same states and differ in what they read.
Then one product of the matrix with the states serves all units. Expressions are taken apart into terms and factors, and
the extents of their leaves decide.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, reduce

from rrnn.ir.builder import Builder, copy_into
from rrnn.ir.program import Extent, Op, Program

MATRIX, ENTRY, READ = 0, 1, 2
"""The indices of the outputs `factor`."""
_NO_MATRIX = "no whole matrix takes its states to the next step"


@dataclass(frozen=True)
class Affine:
    """The parts of an affine step."""

    factors: Program
    """Outputs `factor`: MATRIX over (target, source), ENTRY over the target, READ over the target, per unit."""
    target: int
    source: int
    size: int
    """The number of states."""

    @property
    def changes(self) -> bool:
        """Whether the matrix depends on the input."""
        return self.factors.of_kind("factor")[MATRIX] not in self.factors.per_unit


class NotAffine(Exception):
    """Raised with the reason, which ends the sentence "the family is not affine: …"."""


@lru_cache(maxsize=256)
def affine(program: Program) -> Affine | str:
    """Return the parts of an affine program; otherwise why it is not affine, as the end of a sentence."""
    try:
        return _parts(program)
    except NotAffine as reason:
        return str(reason)


def _parts(program: Program) -> Affine:
    wide = program.wide
    if wide is None or program.has_elements or len(wide.states) != 1 or len(wide.states[0].over) != 1:
        raise NotAffine("it is not one family of states of one number each")
    (target,) = wide.states[0].over
    b = Builder(program.semiring, wide)
    number = copy_into(b, program)
    state, unknown = b.leaf(Op.STATE, 0), program.depending_on(Op.STATE)
    recurrent = {number[n] for n in unknown}
    (new,), outputs = program.of_kind("state").values(), list(program.of_kind("output").values())
    if program.first_states != (0.0,):
        raise NotAffine("its first state is not zero")

    matrix: tuple[int, int] | None = None  # (source, instruction)
    entries: list[int] = []
    for term in _apart(b, number[new], Op.ADD):
        if term not in recurrent:
            entries.append(term)
            continue
        outside = _apart(b, term, Op.MUL)  # what does not depend on the source was taken out of the sum
        sums = [n for n in outside if n in recurrent]
        op, args, attr = b.instructions[sums[0]]
        if len(sums) != 1 or op is not Op.SUM or matrix is not None:
            raise NotAffine("its states are not the sum of a product with a matrix and what enters")
        source = int(attr or 0)
        factors = [*(n for n in outside if n != sums[0]), *_apart(b, args[0], Op.MUL)]
        moved = [n for n in factors if n in recurrent]
        if source == target:  # weights of the source and of the target, without a pair of indices
            raise NotAffine(_NO_MATRIX)
        if len(moved) != 1 or moved[0] != b.move(state, target, source):
            raise NotAffine("a state enters otherwise than by a factor of its own")
        others = [n for n in factors if n not in recurrent]
        matrix = source, reduce(lambda x, y: b.emit(Op.MUL, x, y), others, b.const(1.0))
    if matrix is None or b.over[matrix[1]] != {target, matrix[0]}:
        raise NotAffine(_NO_MATRIX)
    entry = reduce(lambda x, y: b.emit(Op.ADD, x, y), entries, b.const(0.0))
    if wide.own_values(b.instructions) & {matrix[1], entry}:
        raise NotAffine("its weights differ from unit to unit")

    op, args, _ = b.instructions[number[outputs[0]]]
    factors = _apart(b, args[0], Op.MUL) if op is Op.SUM and len(outputs) == 1 else []
    reads = [n for n in factors if n != number[new]]
    read = reduce(lambda x, y: b.emit(Op.MUL, x, y), reads, b.const(1.0))
    fixed = {number[n] for n in program.per_unit}
    if factors.count(number[new]) != 1 or any(n not in fixed for n in reads) or b.over[read] != {target}:
        raise NotAffine("its output is not a sum of states, each times a number")
    b.wide = wide._replace(states=())
    parts, _ = b.finish(
        f"{program.name}.factors",
        projections=program.projections,
        parameters=program.parameters,
        states=(),
        initial=(),
        outputs=[("factor", MATRIX, matrix[1]), ("factor", ENTRY, entry), ("factor", READ, read)],
    )
    return Affine(parts, target, matrix[0], wide.sizes[target][1])


def share_states(program: Program, units: int) -> Program:
    """Return an affine program of this many units with its states stored once for a head, not once for each unit, if a
    head has as many states as units: a row of states is then a row of units."""
    wide, found = program.wide, affine(program)
    if wide is None or isinstance(found, str) or found.size * wide.heads != units:
        return program
    return replace(program, wide=wide._replace(states=(Extent((found.target,), "head"),)))


def _apart(b: Builder, n: int, op: Op) -> list[int]:
    """Return the terms of a sum, or the factors of a product."""
    parts, todo = list[int](), [n]
    while todo:
        k = todo.pop()
        if b.instructions[k].op is op:
            todo += reversed(b.instructions[k].args)
        else:
            parts.append(k)
    return parts
