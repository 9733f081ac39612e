"""Write ONNX nodes: graphs in the making, and one row per op of the table.

`Graph` builds a graph of its own. `rrnn.exporters.torch_onnx` has a second kind of `Emitter`, which adds the same nodes
to the graph that torch's exporter is building, so that a cell is translated in one place only (`onnx_cells`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np
import onnx_ir as ir

from rrnn.arithmetic import Arithmetic, Op

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


def _logsum(g: Emitter, a: ir.Value, axis: ir.Value) -> ir.Value:
    most = g.add("ReduceMax", a, axis, keepdims=1)
    dead = g.add("IsInf", most)  # ∞ − ∞ would be NaN
    safe = g.add("Where", dead, g.number(0.0), most)
    total = g.add("ReduceSum", g.add("Exp", g.add("Sub", a, safe)), axis, keepdims=1)
    return g.add("Where", dead, most, g.add("Add", g.add("Log", total), safe))


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

ALONG: dict[Op, Callable[..., ir.Value]] = {
    Op.SUM: lambda g, a, axis: g.add("ReduceSum", a, axis, keepdims=1),
    Op.LOGSUM: _logsum,
    Op.MOST: lambda g, a, axis: g.add("ReduceMax", a, axis, keepdims=1),
    Op.LEAST: lambda g, a, axis: g.add("ReduceMin", a, axis, keepdims=1),
}
"""Op along a family → function of an emitter, the argument and the axis, which keeps the axis with size 1. (`first` is
in gradients only.)"""


def arithmetic(g: Emitter) -> Arithmetic:
    """Return the ops as functions on ONNX values and numbers, which add nodes to `g`."""

    def value(x: ir.Value | float) -> ir.Value:
        return x if isinstance(x, ir.Value) else g.number(x)

    return Arithmetic(lambda op: lambda *values: ROWS[op](g, *map(value, values)))
