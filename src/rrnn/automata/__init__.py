"""Cells: automaton templates whose arcs carry weight functions."""

from functools import partial
from typing import TYPE_CHECKING, Any

from rrnn.automata.cell import Cell, CellArc
from rrnn.automata.cell_algebra import concatenate, interpolate, relabel, scale, union
from rrnn.automata.cell_rules import check_cell, epsilon_cycles, reachable
from rrnn.automata.cell_text import to_text
from rrnn.automata.evaluator import Evaluator, evaluate, range_of, weight_range
from rrnn.automata.expression_parser import parse_expr
from rrnn.automata.expression_text import definitions, expr_text
from rrnn.automata.expressions import (
    Expr,
    Family,
    Operand,
    construct,
    constructors,
    cos,
    exp,
    family,
    index,
    input,
    linear,
    log,
    log_sigmoid,
    one,
    parameter,
    relu,
    score,
    sigmoid,
    silu,
    sin,
    softplus,
    sqrt,
    step,
    tanh,
    uniform,
    zero,
)
from rrnn.automata.unroll import unroll

from_text = Cell.from_text

if TYPE_CHECKING:

    def complex(re: Operand, im: Operand) -> Expr: ...
    def polar(r: Operand, theta: Operand) -> Expr: ...
    def pair(p: Operand, r: Operand) -> Expr: ...
    def valued(p: Operand, v: Operand) -> Expr: ...
    def signed(sign: Operand, log: Operand) -> Expr: ...
else:

    def __getattr__(name: str) -> Any:
        """Return the constructor of a semiring by its name, as `complex` and `polar`."""
        if name not in constructors():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        made = partial(construct, name)
        made.__doc__ = f"Return a weight made by the constructor {name}({', '.join(constructors()[name])})."
        globals()[name] = made  # so that the next access does not come here
        return made


__all__ = [
    "Cell",
    "CellArc",
    "Evaluator",
    "Expr",
    "Family",
    "check_cell",
    "concatenate",
    "construct",
    "constructors",
    "cos",
    "definitions",
    "epsilon_cycles",
    "evaluate",
    "exp",
    "expr_text",
    "family",
    "from_text",
    "index",
    "input",
    "interpolate",
    "linear",
    "log",
    "log_sigmoid",
    "one",
    "parameter",
    "parse_expr",
    "range_of",
    "reachable",
    "relabel",
    "relu",
    "scale",
    "score",
    "sigmoid",
    "silu",
    "sin",
    "softplus",
    "sqrt",
    "step",
    "tanh",
    "to_text",
    "uniform",
    "union",
    "unroll",
    "weight_range",
    "zero",
]
