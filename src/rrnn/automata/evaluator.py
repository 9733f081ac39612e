"""What an expression computes: one evaluator, on numbers, tensors, intervals and programs.

On intervals it proves that a weight lies in its semiring (`range_of`, `weight_range`). On expressions (`EXPRESSIONS`)
it writes out what semirings define over any arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from rrnn.arithmetic import FLOATS, RANGES, Arithmetic, Op, Range
from rrnn.arithmetic.ranges import ALL
from rrnn.automata import expressions as ex
from rrnn.errors import CellError
from rrnn.semirings import Semiring, get_semiring


class Evaluator:
    """Expressions over an arithmetic. What two of them share is computed once.

    `leaf` gives the value of a projection, parameter, `input()` or `score` (of several components: an element, a tuple
    of values), `number` that of a Python number, and `at` takes a value over a family to the source or target of arcs.
    """

    def __init__(
        self,
        s: Arithmetic,
        ring: Semiring,
        leaf: Callable[[ex.Expr], Any],
        number: Callable[[float], Any] = float,
        at: Callable[[Any, str], Any] = lambda value, end: value,
    ) -> None:
        self.s, self.ring, self.leaf, self.number, self.at = s, ring, leaf, number, at
        self.known: dict[ex.Expr, Any] = {}

    def __call__(self, expr: ex.Expr) -> Any:
        """Return the value of a real expression, or the element that `one`, `zero` or a constructor is."""
        if expr not in self.known:
            self.known[expr] = self._value(expr)
        return self.known[expr]

    def weight(self, expr: ex.Expr) -> Any:
        """Return a weight as an element of the semiring; a real expression stands for a real number."""
        value = self(expr)
        if not self.ring.components or isinstance(expr, (ex.One, ex.Zero, ex.Construct)):
            return value
        return self._lifted(self.ring.from_real(value, self.s))

    def _lifted(self, element: Any) -> Any:
        """Return an element whose definition may have used Python numbers, such as a constructor's own one."""
        numbers = self.ring.numbers_of(element)
        return self.ring.element(self.number(x) if isinstance(x, (int, float)) else x for x in numbers)

    def _value(self, expr: ex.Expr) -> Any:
        s, ring = self.s, self.ring
        match expr:
            case ex.Number(value=value):
                return self.number(value)
            case ex.One() | ex.Zero():
                element = ring.one if isinstance(expr, ex.One) else ring.zero
                return ring.element(self.number(x) for x in ring.numbers_of(element))
            case ex.Call(function=function):
                return getattr(s, function)(*(self(a) for a in expr.children))
            case ex.Binary(operator="*", left=left, right=right) if left == right:
                return s.square(self(left))
            case ex.Binary(operator=operator, left=left, right=right):
                return getattr(s, ex.OPERATORS[operator])(self(left), self(right))
            case ex.Construct(function=function, arguments=arguments):
                _, make = ring.constructors[function]
                return self._lifted(make(s, *(self(a) for a in arguments)))
            case ex.Component(of=of, name=name):
                return self(of)[ring.components.index(name)]
            case ex.At(of=of, end=end):
                return self.at(self(of), end)
        return self.leaf(expr)


def evaluate(expr: ex.Expr, values: Mapping[str, float], semiring: str | Semiring) -> Any:
    """Return the value of an expression, given that of each projection (bias included) and parameter by name.

    `values["input"]` is the value of `input()`, `values["score"]` that of the score. The value is a Python float, or a
    tuple of them for a weight of several components.
    """
    ring = get_semiring(semiring)

    def leaf(node: ex.Expr) -> Any:
        name = leaf_name(node)
        if name not in values:
            raise CellError(
                f"the expression needs a value for {name!r}; values were given for {', '.join(values) or 'nothing'}"
            )
        value = values[name]
        return tuple(float(x) for x in value) if isinstance(value, tuple) else float(value)

    return Evaluator(FLOATS, ring, leaf)(expr)


def leaf_name(node: ex.Expr) -> str:
    """Return the name under which a leaf's value is given: that of a projection or parameter, "input", "score"."""
    match node:
        case ex.Linear(name=name) | ex.Parameter(name=name):
            return name
        case ex.Input():
            return "input"
        case ex.Score():
            return "score"
    raise AssertionError(node)


# ---- on intervals ----------------------------------------------------------------------------------------------


def _evaluator(semiring: Semiring) -> Evaluator:
    def leaf(node: ex.Expr) -> Any:
        return semiring.element(semiring.values) if isinstance(node, ex.Score) else ALL

    return Evaluator(RANGES, semiring, leaf, Range.of)


@lru_cache(maxsize=4096)  # the same subexpressions are asked for again and again
def range_of(expr: ex.Expr, semiring: Semiring) -> Range:
    """Return an interval that contains every value of a real expression, short of overflow and NaN."""
    return _evaluator(semiring)(expr)


@lru_cache(maxsize=4096)
def weight_range(expr: ex.Expr, semiring: Semiring) -> Any:
    """Return the range of a whole weight: of each component, if elements have several."""
    return _evaluator(semiring).weight(expr)


# ---- on expressions --------------------------------------------------------------------------------------------


def _on_expressions(op: Op) -> Callable[..., ex.Expr]:
    signs = {name: sign for sign, name in ex.OPERATORS.items()}
    if op.text in signs:
        return lambda a, b: ex.Binary(signs[op.text], _lift(a), _lift(b))
    if op is Op.NEG:
        return lambda x: -_lift(x)
    return lambda *arguments: ex.call(op.text, *map(_lift, arguments))


def _lift(x: ex.Operand) -> ex.Expr:
    """Return a number as an expression; −∞, which no expression writes as a number, becomes log(0)."""
    return ex.log(0.0) if isinstance(x, float) and x == -math.inf else ex.as_expr(x)


EXPRESSIONS = Arithmetic(_on_expressions)
"""On expressions."""
