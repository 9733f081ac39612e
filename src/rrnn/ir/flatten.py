"""Write out the elements of a semiring: the flat program, which computes with numbers alone. Backends run it, and
gradients are taken of it."""

from __future__ import annotations

from rrnn.arithmetic import ALONG_FAMILY
from rrnn.ir.builder import Builder, copy_along
from rrnn.ir.program import Op, Program


def flatten(program: Program) -> Program:
    """Return the program with every ⊕ and ⊗ written out, and as many states as elements have components."""
    ring = program.semiring
    if not program.has_elements:  # with several components every program has some, at least its first states
        return program
    wide, size = program.wide, ring.size
    if wide is not None:
        wide = wide._replace(states=tuple(e for e in wide.states for _ in range(size)))
    b = Builder(ring, wide)
    number: dict[int, int] = {}  # scalars
    elements: dict[
        int, int
    ] = {}  # elements, as instructions `element` of the builder, all of which are removed

    def single(n: int) -> int:
        """Return a number; an element of one component is one, too."""
        return number[n] if n in number else elements[n]

    for n, (op, args, attr) in enumerate(program.instructions):
        if op is Op.CONST:
            number[n] = b.const(float(attr or 0.0))
        elif op is Op.STATE:
            elements[n] = b.element(b.leaf(op, int(attr or 0) * size + c) for c in range(size))
        elif op.leaf:
            number[n] = b.leaf(op, None if attr is None else int(attr))
        elif op is Op.ELEMENT:
            elements[n] = b.element(number[a] for a in args)
        elif op is Op.COMPONENT:
            number[n] = b.component(elements[args[0]], int(attr or 0))
        elif op in (Op.PLUS, Op.TIMES):
            given = [b.values_of(elements[a] if a in elements else number[a]) for a in args]
            run = ring.plus if op is Op.PLUS else ring.times
            elements[n] = b.from_values(run(given[0], given[1], b.arithmetic))
        elif op in ALONG_FAMILY:
            number[n] = copy_along(b, op, int(attr or 0), *map(single, args))
        else:
            number[n] = b.emit(op, *map(single, args))

    def spread(n: int, index: int) -> list[tuple[int, int]]:
        """Return (index, number) of each component."""
        if n in elements:
            return [(index * size + c, b.component(elements[n], c)) for c in range(size)]
        return [(index, number[n])]

    states = [f"{q}.{c}" if c else q for q in program.states for c in ring.components or ("",)]
    flat, _ = b.finish(
        program.name,
        projections=program.projections,
        parameters=program.parameters,
        states=tuple(states),
        initial=[value for n in program.initial for _, value in spread(n, 0)],
        outputs=[(o.kind, i, value) for o in program.outputs for i, value in spread(o.value, o.index)],
    )
    return flat
