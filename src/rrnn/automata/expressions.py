"""Weight functions: scalar expressions, one value per hidden unit.

`linear("u")` is a row of W·v, `parameter("r")` a learned constant, numbers and `+ - * /` are ordinary arithmetic
on real numbers; ⊕ and ⊗ come from the arcs. `one` and `zero` are the semiring's, and so are its constructors:
`complex(re, im)` is a weight of two real expressions. Expressions are values: equal when written equally, whatever name
(`.named("u1")`) they were given for printing.

A family is a row of states with one description. `linear("B", over=h, per="head")` has one value for each state of the
family h, shared by all units of a head. On arcs from each state of a family to each, `k.source` and `k.target` are its
values at both ends, and `parameter("A", over=(h.source, h.target))` is a whole matrix.
"""

from __future__ import annotations

from collections.abc import Callable

from rrnn.automata.families import ENDS, LEVELS, End, Family, Over, check_name, family, leaf_name, short
from rrnn.automata.nodes import (
    MAX_DEPTH,
    MAX_SIZE,
    At,
    Binary,
    Call,
    Component,
    Construct,
    Expr,
    Index,
    Input,
    Linear,
    Number,
    One,
    Operand,
    Parameter,
    Score,
    Uniform,
    Zero,
    as_expr,
    construct,
    constructors,
    one,
    score,
    walk,
    zero,
)
from rrnn.errors import CellError


def linear(
    name: str,
    *,
    bias: bool = False,
    window: int = 1,
    over: Over = None,
    per: str = "unit",
    start: Operand | None = None,
) -> Expr:
    """Return a projection of the input, `W_name · v`, one learned row per unit. `bias=True` adds a learned number,
    `start` at first; `window=K` sees the K latest inputs. With `over=h` there is a row for each state of a family, with
    `over=(h.source, h.target)` one for each pair of states; with `per="head"` or `per="group"` the units of a head, or
    of a group of heads, share their rows."""
    if not isinstance(window, int) or isinstance(window, bool) or not 1 <= window <= 1000:
        raise CellError(f"linear({name!r}): window must be a whole number from 1 to 1000; got {window!r}")
    name = leaf_name(name, "a projection's name")
    if start is not None and not bias:
        raise CellError(f"linear({name!r}): start is the first value of the bias; add bias=True")
    return Linear(name, bool(bias), window, *_extent("linear", name, over, per, start))


def parameter(
    name: str,
    *,
    over: Over = None,
    per: str = "unit",
    start: Operand | None = None,
    learned: bool = True,
) -> Expr:
    """Return a number per unit, learned unless `learned=False`. With `over=h` there is one for each state of a family,
    with `over=(h.source, h.target)` one for each pair of states; with `per="head"` or `per="group"` the units of a
    head, or of a group of heads, share it. Its first value is `start`: an expression of numbers, `index(h)` and
    `uniform(low, high)`."""
    name = leaf_name(name, "a parameter's name")
    if not isinstance(learned, bool):
        raise CellError(f"parameter({name!r}): learned is True or False; got {short(learned)}")
    return Parameter(name, *_extent("parameter", name, over, per, start), learned)


def index(of: Family | End | str) -> Expr:
    """Return the number, from 0, of a family's state, or of the "unit", "head" or "group", for a first value. That of a
    matrix depends on `index(h.source)` and `index(h.target)`."""
    if not isinstance(of, (Family, End)) and of not in LEVELS:
        raise CellError(f'index takes a family, "unit", "head" or "group"; got {short(of)}')
    return Index(str(of))


def uniform(low: float, high: float, draw: int = 0) -> Expr:
    """Return a number drawn uniformly from an interval, for a first value. Parameters of one extent that use the same
    `draw`, a number above 0, get the same draws."""
    first, last = as_expr(low), as_expr(high)
    if not isinstance(first, Number) or not isinstance(last, Number) or first.value > last.value:
        raise CellError(f"uniform takes two numbers, the smaller one first; got {short(low)}, {short(high)}")
    if not isinstance(draw, int) or draw < 0:
        raise CellError(
            f"uniform(…, draw): draw is a whole number, 0 for a draw of its own; got {short(draw)}"
        )
    return Uniform(first.value, last.value, draw)


def _extent(
    function: str, name: str, over: object, per: object, start: Operand | None
) -> tuple[Over, str, Expr | None]:
    """Return what `over=`, `per=` and `start=` say, or raise a `CellError`."""
    ends = tuple(getattr(end, "end", None) for end in over) if isinstance(over, tuple) else ENDS
    if over is not None and (ends != ENDS or not isinstance(over, (Family, tuple))):
        got = f"({', '.join(map(str, over))})" if isinstance(over, tuple) else short(over)
        got = str(over) if isinstance(over, End) else got
        raise CellError(
            f'{function}({name!r}): over takes a family, as in h = family("h", 16), or the source and then the target '
            f"of arcs from each state to each, as in (h.source, h.target); got {got}"
        )
    if per not in LEVELS:
        raise CellError(f'{function}({name!r}): per is "unit", "head" or "group"; got {short(per)}')
    first = None if start is None else as_expr(start)
    indices = over if isinstance(over, tuple) else () if over is None else (over,)
    known = {str(per), *map(str, indices)}
    for node in () if first is None else walk(first):
        if isinstance(node, (Linear, Parameter, Input, Score, One, Zero, Construct, At)):
            raise CellError(
                f"{function}({name!r}): start is a first value, made of numbers, index(…) and uniform(…) alone; it "
                f"contains {type(node).__name__.lower()}. Leave that out, or multiply by it where the weight is used."
            )
        if isinstance(node, Index) and node.of not in known:
            raise CellError(
                f"{function}({name!r}): start depends on index({node.of!r}), but there is one value for each "
                f"{' and '.join(sorted(known))}. Add over=… or per=…, or use the index of one of these."
            )
    return over, str(per), first  # pyright: ignore[reportReturnType]


def input() -> Expr:
    """Return the layer's own input at this unit."""
    return Input()


def _function(name: str) -> Callable[[Operand], Expr]:
    """Return the Python function that calls a function of the cell language."""

    def call(x: Operand) -> Expr:
        return Call(name, as_expr(x))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`{name}` of an expression, per unit."
    return call


def call(name: str, *arguments: Operand) -> Expr:
    """Return a function of expressions by its name, with as many arguments as it takes."""
    count = 1 if name in FUNCTIONS else FUNCTIONS_OF_SEVERAL.get(name)
    if count is None:
        known = ", ".join((*FUNCTIONS, *FUNCTIONS_OF_SEVERAL))
        raise CellError(f"{name!r} is not a function of the cell language; the functions are {known}")
    if len(arguments) != count:
        raise CellError(f"{name} takes {count} argument{'s' * (count > 1)}; got {len(arguments)}")
    first, *more = (as_expr(a) for a in arguments)
    return Call(name, first, tuple(more))


sigmoid, tanh, relu, silu = (_function(name) for name in ("sigmoid", "tanh", "relu", "silu"))
log_sigmoid, exp, log = _function("log_sigmoid"), _function("exp"), _function("log")
softplus, sqrt, step = _function("softplus"), _function("sqrt"), _function("step")
sin, cos = _function("sin"), _function("cos")

FUNCTIONS: dict[str, Callable[[Operand], Expr]] = {
    **{
        f.__name__: f
        for f in (sigmoid, tanh, relu, log_sigmoid, exp, log, softplus, sqrt, step, sin, cos, silu)
    },
    **{name: _function(name) for name in ("abs", "sign")},
}
"""The functions of one argument that a cell's text may call; `neg` (unary minus) is the only other such node.
`rrnn.arithmetic` defines what each computes."""
FUNCTIONS_OF_SEVERAL = {"max": 2, "min": 2, "logaddexp": 2, "gt": 2, "ge": 2, "where": 3}
"""The functions of several arguments that it may call: name → number of arguments."""
OPERATORS = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
"""Operator → its op."""


def indices_of(leaf: Linear | Parameter) -> tuple[Family | End, ...]:
    """Return the indices on which a projection or parameter depends."""
    return leaf.over if isinstance(leaf.over, tuple) else () if leaf.over is None else (leaf.over,)


def families_of(expr: Expr) -> set[Family]:
    """Return the families on whose index an expression depends."""
    leaves = (node for node in walk(expr) if isinstance(node, (Linear, Parameter)))
    return {i.family if isinstance(i, End) else i for leaf in leaves for i in indices_of(leaf)}


def depends_on_input(expr: Expr) -> bool:
    """Return whether an expression reads the current input."""
    return any(isinstance(node, (Linear, Input)) for node in walk(expr))


__all__ = [
    "ENDS",
    "FUNCTIONS",
    "FUNCTIONS_OF_SEVERAL",
    "LEVELS",
    "MAX_DEPTH",
    "MAX_SIZE",
    "OPERATORS",
    "At",
    "Binary",
    "Call",
    "Component",
    "Construct",
    "End",
    "Expr",
    "Family",
    "Index",
    "Input",
    "Linear",
    "Number",
    "One",
    "Operand",
    "Over",
    "Parameter",
    "Score",
    "Uniform",
    "Zero",
    "as_expr",
    "call",
    "check_name",
    "construct",
    "constructors",
    "cos",
    "depends_on_input",
    "exp",
    "families_of",
    "family",
    "index",
    "indices_of",
    "input",
    "linear",
    "log",
    "log_sigmoid",
    "one",
    "parameter",
    "relu",
    "score",
    "sigmoid",
    "silu",
    "sin",
    "softplus",
    "sqrt",
    "step",
    "tanh",
    "uniform",
    "walk",
    "zero",
]
