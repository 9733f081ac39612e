"""Write ONNX nodes: one row per op of the table, and the recurrence of a cell as a `Scan`.

`Graph` builds a graph of its own. `rrnn.exporters.torch_onnx` has a second kind of `Emitter`, which adds the same nodes
to the graph that torch's exporter is building, so that a cell is translated in one place only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np
import onnx_ir as ir

from rrnn.arithmetic import Arithmetic, Op
from rrnn.ir import Program
from rrnn.ir.interpreter import interpret
from rrnn.ir.program import needed

OPSET = 18
"""The version of the ONNX operators that exported graphs use."""
IR_VERSION = 8
"""The version of ONNX's file format that came with this opset, so that older runtimes read the files, too."""


class Emitter(ABC):
    """Whatever nodes are added to. `dtype` is the type of all real numbers in the graph."""

    def __init__(self, dtype: np.dtype[Any], names: Iterator[str]) -> None:
        self.dtype, self.names = dtype, names
        self.type = ir.DataType.from_numpy(dtype)

    @abstractmethod
    def add(self, op: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        """Add a node, and return its first output."""

    @abstractmethod
    def add_several(
        self, op: str, outputs: int, *inputs: ir.Value | None, **attributes: Any
    ) -> Sequence[ir.Value]:
        """Add a node with several outputs, and return them."""

    @abstractmethod
    def constant(self, array: np.ndarray) -> ir.Value:
        """Return a value that holds these numbers."""

    def number(self, value: float) -> ir.Value:
        """Return a real number."""
        return self.constant(np.array(value, self.dtype))

    def integers(self, *values: int) -> ir.Value:
        """Return a list of integers, as shapes and axes are given."""
        return self.constant(np.array(values, np.int64))

    def size(self, value: ir.Value, axis: int) -> ir.Value:
        """Return one dimension of a value, as a list of one integer."""
        return self.add("Shape", value, start=axis, end=axis + 1)

    def slice(self, value: ir.Value, start: int, stop: int, axis: int) -> ir.Value:
        """Return the part of a value from `start` to before `stop` along an axis."""
        return self.add(
            "Slice", value, self.integers(start), self.integers(stop), self.integers(axis), self.integers(1)
        )

    def join(self, parts: Sequence[ir.Value], axis: int) -> ir.Value:
        """Return values side by side along an axis."""
        return parts[0] if len(parts) == 1 else self.add("Concat", *parts, axis=axis)

    def expand(self, value: ir.Value, *shape: ir.Value) -> ir.Value:
        """Return a value broadcast to a shape, which is given as lists of integers."""
        return self.add("Expand", value, self.join(shape, 0))

    def unsqueeze(self, value: ir.Value, *axes: int) -> ir.Value:
        """Return a value with further axes of size 1."""
        return self.add("Unsqueeze", value, self.integers(*axes))


class Graph(Emitter):
    """A graph, or with `outer` the body of a `Scan`, which reads values of the graph around it."""

    def __init__(self, dtype: np.dtype[Any], outer: Emitter | None = None) -> None:
        super().__init__(dtype, outer.names if outer else (f"value_{n}" for n in count()))
        self.outer, self.nodes = outer, list[ir.Node]()
        self.initializers: dict[tuple[Any, ...], ir.Value] = {}

    def add(self, op: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        return self.add_several(op, 1, *inputs, **attributes)[0]

    def add_several(
        self, op: str, outputs: int, *inputs: ir.Value | None, **attributes: Any
    ) -> Sequence[ir.Value]:
        node = ir.node(op, inputs, attributes, num_outputs=outputs)
        for value in node.outputs:
            value.name = next(self.names)
        self.nodes.append(node)
        return node.outputs

    def constant(self, array: np.ndarray, name: str | None = None) -> ir.Value:
        if self.outer is not None:
            return self.outer.constant(array)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.initializers:
            name = name or next(self.names)
            value = ir.Value(
                name=name,
                shape=ir.Shape(array.shape),
                type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
                const_value=ir.tensor(array, name=name),
            )
            self.initializers[key] = value
        return self.initializers[key]

    def input(self, name: str, shape: Sequence[int | str], dtype: ir.DataType | None = None) -> ir.Value:
        """Return a new input of the graph; a name in the shape is a dimension that callers choose."""
        return ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(dtype or self.type))

    def finish(self, name: str, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]) -> ir.Graph:
        """Return the finished graph."""
        opsets = {} if self.outer else {"": OPSET}
        held = list(self.initializers.values())
        return ir.Graph(inputs, outputs, nodes=self.nodes, initializers=held, opset_imports=opsets, name=name)


# ---- one row per op --------------------------------------------------------------------------------------------------


def _node(name: str) -> Callable[..., ir.Value]:
    return lambda g, *args: g.add(name, *args)


def _comparison(name: str) -> Callable[..., ir.Value]:
    return lambda g, a, b: g.add("Cast", g.add(name, a, b), to=g.type)


def _logaddexp(g: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    high, low = g.add("Max", a, b), g.add("Min", a, b)
    total = g.add("Add", high, g.add("Softplus", g.add("Sub", low, high)))
    infinite = g.add("IsInf", high)  # ∞ − ∞ would be NaN
    return g.add("Where", infinite, high, total)


def _share(g: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    dead = g.add("IsInf", a, detect_positive=0)
    return g.add("Where", dead, g.number(0.0), g.add("Exp", g.add("Sub", a, b)))


def _log_sigmoid(g: Emitter, x: ir.Value) -> ir.Value:
    return g.add("Neg", g.add("Softplus", g.add("Neg", x)))


def _where(g: Emitter, condition: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    return g.add("Where", g.add("Cast", condition, to=ir.DataType.BOOL), a, b)


ROWS: dict[Op, Callable[..., ir.Value]] = {
    Op.ADD: _node("Add"),
    Op.SUB: _node("Sub"),
    Op.MUL: _node("Mul"),
    Op.DIV: _node("Div"),
    Op.NEG: _node("Neg"),
    Op.MAX: _node("Max"),
    Op.MIN: _node("Min"),
    Op.LOGADDEXP: _logaddexp,
    Op.EXP: _node("Exp"),
    Op.LOG: _node("Log"),
    Op.SQRT: _node("Sqrt"),
    Op.SIN: _node("Sin"),
    Op.COS: _node("Cos"),
    Op.SIGMOID: _node("Sigmoid"),
    Op.TANH: _node("Tanh"),
    Op.LOG_SIGMOID: _log_sigmoid,
    Op.SOFTPLUS: _node("Softplus"),
    Op.GE: _comparison("GreaterOrEqual"),
    Op.GT: _comparison("Greater"),
    Op.WHERE: _where,
    Op.SHARE: _share,
}
"""Op → function of an emitter and the arguments' values, which adds the nodes that compute the op."""


def arithmetic(g: Emitter) -> Arithmetic:
    """Return the ops as functions on ONNX values, which add nodes to `g`."""
    return Arithmetic(lambda op: lambda *values: ROWS[op](g, *values))


# ---- a cell ----------------------------------------------------------------------------------------------------------


def cell_nodes(
    g: Emitter,
    program: Program,
    leaves: dict[int, ir.Value],
    state: ir.Value | None,
    mask: ir.Value | None,
    shape: Sequence[ir.Value],
) -> tuple[ir.Value, ir.Value | None]:
    """Add the nodes of a cell over time; return (outputs (T, B, N·D), next state (S, B, D)).

    `leaves` are the values of parameters (D,), projections and input (T, B, D) by instruction of `program.flat`, or of
    anything computed from them already. `state` is (S, B, D), None for a cell without one; `mask` (T, B, 1) is true at
    valid steps, None if all are; `shape` is T, B and D, each as a list of one integer.

    As in the reference backend, what does not depend on the state is computed for all steps at once before the loop,
    and the outputs after it, so that a step of the `Scan` has few nodes: each costs a runtime about a microsecond.
    """
    program = program.flat
    recurrent, results = program.depending_on(Op.STATE), program.of_kind("state")
    outputs, values = program.of_kind("output").values(), dict(leaves)
    on_graph = arithmetic(g)
    code = program.instructions
    wanted = needed(code, [*outputs, *results.values()], stop=leaves)
    interpret(code, wanted - recurrent, values, on_graph, g.number)
    final = None
    if results:
        assert state is not None
        read = needed(code, outputs, stop={*values, *results.values()})
        traces, final = _scan(g, program, values, state, mask, shape, read)
        values |= traces
        interpret(code, needed(code, outputs, stop=values), values, on_graph, g.number)
    found = [g.expand(values[n], *shape) for n in outputs]
    if mask is not None:
        found = [g.add("Where", mask, value, g.number(0.0)) for value in found]
    return g.join(found, 2), final


def _scan(
    g: Emitter,
    program: Program,
    values: dict[int, ir.Value],
    state: ir.Value,
    mask: ir.Value | None,
    shape: Sequence[ir.Value],
    read_later: Container[int],
) -> tuple[dict[int, ir.Value], ir.Value]:
    """Add the loop over time; return (the values (T, B, D) of states before and after each step that are read later, by
    instruction, and the last states (S, B, D))."""
    recurrent, results = program.depending_on(Op.STATE), program.of_kind("state")
    loop = program.needed_for(results.values()) & recurrent
    read = {a for n in loop for a in program.instructions[n].args} | set(results.values())
    per_step = program.depending_on(Op.PREACT, Op.INPUT)
    sliced = [n for n in sorted(read - recurrent) if n in per_step]
    slots = {n: int(i.attr or 0) for n, i in enumerate(program.instructions) if i.op is Op.STATE}
    body = Graph(g.dtype, g)

    def body_input(*dims: int | str, dtype: ir.DataType | None = None) -> ir.Value:
        return body.input(next(g.names), dims, dtype)

    old = [body_input("batch", "units") for _ in results]
    here = [body_input("batch", "units") for _ in sliced]
    scanned = [values[n] for n in sliced]
    inside = {n: values[n] for n in read - recurrent} | dict(zip(sliced, here, strict=True))
    inside |= {n: old[s] for n, s in slots.items()}
    interpret(program.instructions, loop, inside, arithmetic(body), g.number)
    like = body.add("Shape", old[0])
    new = [body.add("Expand", inside[n], like) for n in results.values()]
    if mask is not None:
        valid = body_input("batch", 1, dtype=ir.DataType.BOOL)
        new = [body.add("Where", valid, a, b) for a, b in zip(new, old, strict=True)]
        here, scanned = [*here, valid], [*scanned, mask]
    if not scanned:  # a recurrence that reads nothing still takes as many steps as the input has
        here, scanned = [body_input()], [g.expand(g.number(0.0), shape[0])]
    traced = {n: old[s] for n, s in slots.items() if n in read_later}
    traced |= {n: new[s] for s, n in results.items() if n in read_later and n not in slots}
    traces = [body.add("Identity", value) for value in traced.values()]
    graph = body.finish(f"{program.name}_step", [*old, *here], [*new, *traces])
    size = len(results)
    first = [g.add("Squeeze", g.slice(state, s, s + 1, 0), g.integers(0)) for s in range(size)]
    ends = g.add_several(
        "Scan", size + len(traces), *first, *scanned, body=graph, num_scan_inputs=len(scanned)
    )
    final = g.join([g.unsqueeze(end, 0) for end in ends[:size]], 0)
    return dict(zip(traced, ends[size:], strict=True)), final
