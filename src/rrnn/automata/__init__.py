"""Cells: automaton templates whose arcs carry weight functions."""

from rrnn.automata.algebra import concatenate, interpolate, relabel, scale, union
from rrnn.automata.cell import Cell, CellArc
from rrnn.automata.check import check_cell, epsilon_cycles, reachable
from rrnn.automata.evaluate import evaluate
from rrnn.automata.expressions import (
    Expr,
    exp,
    input,
    linear,
    log,
    log_sigmoid,
    one,
    parameter,
    relu,
    score,
    sigmoid,
    softplus,
    sqrt,
    step,
    tanh,
    zero,
)
from rrnn.automata.names import definitions
from rrnn.automata.ranges import range_of
from rrnn.automata.syntax import expr_text, parse_expr
from rrnn.automata.text import from_text, to_text

__all__ = [
    "Cell",
    "CellArc",
    "Expr",
    "check_cell",
    "concatenate",
    "definitions",
    "epsilon_cycles",
    "evaluate",
    "exp",
    "expr_text",
    "from_text",
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
    "softplus",
    "sqrt",
    "step",
    "tanh",
    "to_text",
    "union",
    "zero",
]
