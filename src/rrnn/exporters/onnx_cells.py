"""The recurrence of a cell as an ONNX `Scan`, with or without families of states.

Without families a value is (T, B, D) before and after the loop, and (B, D) in a step. In a step, what depends on the
index of a family has an axis for each family, (B, families, D), as in the reference backend. Such values exist inside
the loop only: over all steps at once they would take as much memory as the states of all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from rrnn.arithmetic import Op
from rrnn.errors import ExportError
from rrnn.exporters.onnx_nodes import ALONG, Emitter, Graph, arithmetic
from rrnn.ir import Program
from rrnn.ir.interpreter import interpret
from rrnn.ir.program import Extent, Families, needed


def cell_nodes(
    g: Emitter,
    program: Program,
    leaves: dict[int, ir.Value],
    state: ir.Value | None,
    mask: ir.Value | None,
    units: int,
    shape: Sequence[ir.Value],
) -> tuple[ir.Value, ir.Value | None]:
    """Add the nodes of a cell over time; return (outputs (T, B, N·D), next state (S, B, D)).

    `leaves` are the values of parameters (families, D), projections and input (T, B, D) by instruction of
    `program.flat`, or of anything computed from them already; a projection of a program with families is as its layer
    has it, (T, B, numbers). `state` is (S, B, D), None for a cell without one; `mask` (T, B, 1) is true at valid steps,
    None if all are; `shape` is T, B and D = `units`, each as a list of one integer.

    As in the reference backend, what does not depend on the state is computed for all steps at once before the loop,
    and the outputs after it, so that a step of the `Scan` has few nodes: each costs a runtime about a microsecond.
    """
    if program.shares_states:
        raise ExportError(
            f"{program.name} cannot be exported as a cell: its units share one family of states. Export the layer ISAN "
            "or LinearElman, which has the same recurrence."
        )
    program = program.flat
    code, over, wide = program.instructions, program.over, program.wide
    recurrent, outputs = program.depending_on(Op.STATE), program.of_kind("output").values()
    ready = dict(leaves)
    if wide is not None:
        for n, value in leaves.items():
            if code[n].op is Op.PREACT and not over[n]:
                ready[n] = spread(g, wide, wide.extent(Op.PREACT, int(code[n].attr or 0)), value, units, 2)
    outside = {n for n in range(len(code)) if n in program.per_unit or (n not in recurrent and not over[n])}
    wanted = needed(code, [*outputs, *program.of_kind("state").values()], stop=leaves)
    # A value without families can be a sum along one: what its argument needs is in the loop, and so is the sum.
    for n in sorted(wanted & outside):
        if n not in ready and any(a not in outside for a in code[n].args):
            outside.discard(n)
    interpret(code, wanted & outside, ready, arithmetic(g), g.number, _along(g, program, 0))
    final = None
    if program.states or wide is not None:
        traced = _traced(program, ready)
        traces, final = _Loop(g, program, ready, mask, units, shape).run(state, traced)
        ready |= traces
        interpret(code, needed(code, outputs, stop=ready), ready, arithmetic(g), g.number)
    found = [g.expand(ready[n], *shape) for n in outputs]
    if mask is not None:
        found = [g.add("Where", mask, value, g.number(0.0)) for value in found]
    return g.join(found, 2), final


def _traced(program: Program, ready: dict[int, ir.Value]) -> list[int]:
    """Return the instructions whose values at all steps the outputs are computed from, after the loop: states before
    and after a step, and what is summed up over families."""
    code, over, results = program.instructions, program.over, program.of_kind("state").values()
    found: list[int] = []
    todo = list(program.of_kind("output").values())
    while todo:
        n = todo.pop()
        if n in found or n in ready:
            continue
        inside = any(over[a] for a in code[n].args)
        if code[n].op is Op.STATE or n in results or inside:
            assert not over[n], "outputs read sums over families only"
            found.append(n)
        else:
            todo += code[n].args
    return sorted(found)


class _Loop:
    """The `Scan` over time of one cell."""

    def __init__(
        self,
        g: Emitter,
        program: Program,
        ready: dict[int, ir.Value],
        mask: ir.Value | None,
        units: int,
        shape: Sequence[ir.Value],
    ) -> None:
        self.g, self.program, self.ready, self.mask = g, program, ready, mask
        self.units, self.shape = units, shape
        self.body = Graph(g.dtype, g)
        self.axes = 0 if program.wide is None else len(program.wide.sizes)

    def run(
        self, state: ir.Value | None, traced: Sequence[int]
    ) -> tuple[dict[int, ir.Value], ir.Value | None]:
        """Add the loop; return (the values (T, B, D) of the traced instructions, the last states (S, B, D))."""
        g, body, program = self.g, self.body, self.program
        code, results = program.instructions, program.of_kind("state")
        slots = {n: int(i.attr or 0) for n, i in enumerate(code) if i.op is Op.STATE}
        old = [self._input("batch", *self._axes(s), "units") for s in results]
        inside = {n: old[s] for n, s in slots.items()}
        per_step = program.depending_on(Op.PREACT, Op.INPUT)
        loop = needed(code, [*results.values(), *traced], stop={*self.ready, *slots})
        here, scanned = list[ir.Value](), list[ir.Value]()
        for n in sorted(loop & self.ready.keys()):
            if n not in per_step:
                inside[n] = self.ready[n]
                continue
            own = program.over[n]
            value = self._input("batch", "columns" if own else "units")
            here, scanned = [*here, value], [*scanned, self.ready[n]]
            inside[n] = self._columns(n, value) if own else self._placed(value)
        interpret(code, loop, inside, arithmetic(body), g.number, _along(body, program, 1))
        new = [body.add("Expand", inside[n], body.add("Shape", old[s])) for s, n in results.items()]
        if self.mask is not None:
            valid = self._input("batch", 1, dtype=ir.DataType.BOOL)
            placed = self._placed(valid)
            new = [body.add("Where", placed, a, b) for a, b in zip(new, old, strict=True)]
            here, scanned = [*here, valid], [*scanned, self.mask]
        if not scanned:  # a recurrence that reads nothing still takes as many steps as the input has
            here, scanned = [self._input()], [g.expand(g.number(0.0), self.shape[0])]
        after = dict(zip(results.values(), new, strict=True))
        traces = [self._trace(after.get(n, inside[n]) if n not in slots else inside[n]) for n in traced]
        graph = body.finish(f"{program.name}_step", [*old, *here], [*new, *traces])
        first = [self._split(state, s) for s in results]
        ends = g.add_several(
            "Scan", len(results) + len(traces), *first, *scanned, body=graph, num_scan_inputs=len(scanned)
        )
        final = g.join([self._rows(end) for end in ends[: len(results)]], 0) if results else None
        return dict(zip(traced, ends[len(results) :], strict=True)), final

    # ---- shapes ------------------------------------------------------------------------------------------------------

    def _input(self, *dims: int | str, dtype: ir.DataType | None = None) -> ir.Value:
        return self.body.input(next(self.g.names), dims, dtype)

    def _axes(self, state: int) -> list[int]:
        """Return the sizes of the families' axes of a state."""
        wide = self.program.wide
        return [] if wide is None else sizes(wide, wide.states[state])

    def _placed(self, value: ir.Value) -> ir.Value:
        """Return (B, D) with an axis of size 1 for each family."""
        return self.body.unsqueeze(value, *range(1, 1 + self.axes)) if self.axes else value

    def _trace(self, value: ir.Value) -> ir.Value:
        """Return (B, D) of a value whose axes of families have size 1."""
        if not self.axes:
            return self.body.add("Identity", value)
        return self.body.add("Squeeze", value, self.g.integers(*range(1, 1 + self.axes)))

    def _columns(self, n: int, value: ir.Value) -> ir.Value:
        """Return a projection's (B, families, D) at a step from the columns (B, numbers) that the layer computes."""
        wide, (op, _, attr) = self.program.wide, self.program.instructions[n]
        assert wide is not None and op is Op.PREACT
        return spread(self.body, wide, wide.extent(op, int(attr or 0)), value, self.units, 1)

    def _split(self, state: ir.Value | None, s: int) -> ir.Value:
        """Return one state (B, families, D) of the rows (S, B, D) of all."""
        assert state is not None
        g, rows = self.g, self.program.state_rows[s]
        own = g.slice(state, rows.start, rows.stop, 0)
        if self.program.wide is None:
            return g.add("Squeeze", own, g.integers(0))
        own = g.add("Transpose", own, perm=[1, 0, 2])
        return g.add("Reshape", own, g.integers(0, *self._axes(s), self.units))

    def _rows(self, end: ir.Value) -> ir.Value:
        """Return the rows (indices, B, D) of one state (B, families, D)."""
        g = self.g
        if self.program.wide is None:
            return g.unsqueeze(end, 0)
        return g.add("Transpose", g.add("Reshape", end, g.integers(0, -1, self.units)), perm=[1, 0, 2])


# ---- families --------------------------------------------------------------------------------------------------------


def sizes(wide: Families, extent: Extent) -> list[int]:
    """Return the sizes of the families' axes: 1 for those on whose index an extent does not depend."""
    return [size if f in extent.over else 1 for f, (_, size) in enumerate(wide.sizes)]


def spread(g: Emitter, wide: Families, extent: Extent, value: ir.Value, units: int, leading: int) -> ir.Value:
    """Return (…, families, D) of the numbers (…, C) of an extent, after so many leading axes; what units share is
    repeated. Without a family in the extent there are no axes of families: (…, D)."""
    axes = sizes(wide, extent) if extent.over else []
    if extent.per == "unit":
        return g.add("Reshape", value, g.integers(*[0] * leading, *axes, units))
    ends = [list(wide.places(extent, units, unit).values()) for unit in range(units)]
    places = np.array(ends, np.int64).T.reshape(*axes, units)
    return g.add("Gather", value, g.constant(places), axis=leading)


def _along(g: Emitter, program: Program, leading: int) -> Callable[..., ir.Value]:
    """Return the function that runs an op along a family on values (…, families, D), after so many leading axes."""
    wide, ring, s = program.wide, program.semiring, arithmetic(g)
    count = 0 if wide is None else len(wide.sizes)

    def run(op: Op, family: int, *values: ir.Value) -> ir.Value:
        if op is Op.FOLD:
            return fold(family, values)
        if op is not Op.MOVE:
            return ALONG[op](g, *values, g.integers(family - count - 1))
        axes = list(range(leading + count + 1))
        before, after = (leading + axis for axis in divmod(family, count))
        axes[before], axes[after] = axes[after], axes[before]
        return g.add("Transpose", values[0], perm=axes)

    def fold(attr: int, parts: Sequence[ir.Value]) -> ir.Value:
        """Add one half of a family to the other by the semiring's own ⊕, until one state is left."""
        assert wide is not None
        family, component = divmod(attr, len(parts))
        axis, size = family - count - 1, wide.sizes[family][1]
        shape = [1] * (count + 1)
        shape[family] = size
        element = ring.element(g.add("Expand", part, g.integers(*shape)) for part in parts)
        rest = list[Any]()

        def cut(start: int, stop: int) -> Any:
            return ring.element(g.slice(part, start, stop, axis) for part in ring.numbers_of(element))

        while size > 1:
            if size % 2:
                rest.append(cut(size - 1, size))
            size //= 2
            element = ring.plus(cut(0, size), cut(size, 2 * size), s)
        for last in rest:
            element = ring.plus(element, last, s)
        return ring.numbers_of(element)[component]

    return run
