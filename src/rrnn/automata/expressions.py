"""Weight functions: scalar expressions, one value per hidden unit.

`linear("u")` is a row of W·v, `parameter("r")` a learned constant, numbers and `+ - *` are ordinary arithmetic on
real numbers; ⊕ and ⊗ come from the arcs. `one` and `zero` are the semiring's. Expressions are values: equal when
written equally, whatever name (`.named("u1")`) they were given for printing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from rrnn.errors import CellError

MAX_SIZE = 2000


@dataclass(frozen=True)
class Expr:
    """Base of all expression nodes. `label` is the name to print; it takes no part in equality."""

    label: str | None = field(default=None, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        # Names let a short text describe a huge tree (a = b * b, b = c * c, …): bound what it unfolds to.
        if self.size > MAX_SIZE:
            raise CellError(f"an expression has at most {MAX_SIZE} operations, written out in full; split it up")

    @cached_property
    def size(self) -> int:
        return 1 + sum(child.size for child in self.children)

    def named(self, label: str) -> Expr:
        """The same expression under a name, so that equations and text print it."""
        return replace(self, label=check_name(label, "an expression's name"))

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()

    def __add__(self, other: Expr | float | str) -> Expr:
        return Binary("+", self, as_expr(other))

    def __radd__(self, other: Expr | float | str) -> Expr:
        return Binary("+", as_expr(other), self)

    def __sub__(self, other: Expr | float | str) -> Expr:
        return Binary("-", self, as_expr(other))

    def __rsub__(self, other: Expr | float | str) -> Expr:
        return Binary("-", as_expr(other), self)

    def __mul__(self, other: Expr | float | str) -> Expr:
        return Binary("*", self, as_expr(other))

    def __rmul__(self, other: Expr | float | str) -> Expr:
        return Binary("*", as_expr(other), self)

    def __neg__(self) -> Expr:
        if isinstance(self, Number):
            return Number(-self.value)
        return Call("neg", self)

    def __bool__(self) -> bool:
        raise CellError("an expression has no truth value: weights depend on the input, so they cannot steer `if`")


@dataclass(frozen=True)
class Number(Expr):
    value: float


@dataclass(frozen=True)
class One(Expr):
    """The semiring's one, as a whole weight."""


@dataclass(frozen=True)
class Zero(Expr):
    """The semiring's zero, as a whole weight."""


@dataclass(frozen=True)
class Linear(Expr):
    """A row of W·v (plus a learned bias); `window=K` sees the K latest inputs."""

    name: str
    bias: bool = False
    window: int = 1


@dataclass(frozen=True)
class Parameter(Expr):
    """A learned number per hidden unit."""

    name: str


@dataclass(frozen=True)
class Input(Expr):
    """The layer's own input at this unit (for highway connections): input size = hidden size."""


@dataclass(frozen=True)
class Score(Expr):
    """The automaton's score; only in the output expression."""


@dataclass(frozen=True)
class Call(Expr):
    function: str
    argument: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.argument,)


@dataclass(frozen=True)
class Binary(Expr):
    operator: str  # + - *
    left: Expr
    right: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.left, self.right)


one, zero, score = One(), Zero(), Score()


def linear(name: str, *, bias: bool = False, window: int = 1) -> Expr:
    """`W_name · v`, one learned row per unit; `bias=True` adds a learned number; `window=K` sees K inputs."""
    if not isinstance(window, int) or isinstance(window, bool) or not 1 <= window <= 1000:
        raise CellError(f"linear({name!r}): window must be a whole number from 1 to 1000; got {window!r}")
    return Linear(check_name(name, "a projection's name"), bool(bias), window)


def parameter(name: str) -> Expr:
    """A learned number per unit."""
    return Parameter(check_name(name, "a parameter's name"))


def input() -> Expr:
    """The layer's own input at this unit."""
    return Input()


def _function(name: str):  # noqa: ANN202
    def call(x: Expr | float | str) -> Expr:
        return Call(name, as_expr(x))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`{name}` of an expression, per unit."
    return call


sigmoid, tanh, relu = _function("sigmoid"), _function("tanh"), _function("relu")
log_sigmoid, exp, log = _function("log_sigmoid"), _function("exp"), _function("log")
softplus, sqrt, step = _function("softplus"), _function("sqrt"), _function("step")

FUNCTIONS = {f.__name__: f for f in (sigmoid, tanh, relu, log_sigmoid, exp, log, softplus, sqrt, step)}
"""What a cell's text may call; `neg` (unary minus) is the only other function node."""


def as_expr(x: Expr | float | str) -> Expr:
    """Numbers become `Number`; the word "score" stands for the score, so `tanh("score")` reads well."""
    if isinstance(x, Expr):
        return x
    if isinstance(x, str) and x == "score":
        return score
    if isinstance(x, (int, float)) and not isinstance(x, bool):
        if math.isnan(x) or math.isinf(x):
            raise CellError(f"a number in a weight must be finite; got {x!r}. Use `zero` for the semiring's zero.")
        return Number(float(x))
    raise CellError(
        f'a weight is an expression, a number or "score"; got {x!r}. '
        'Write linear("name") for a projection of the input, parameter("name") for a learned number.'
    )


def check_name(name: object, what: str) -> str:
    if not isinstance(name, str) or not name.isidentifier() or len(name) > 64:
        raise CellError(f"{what} must be an identifier of at most 64 letters, digits and _; got {name!r}")
    return name


def walk(expr: Expr) -> Iterator[Expr]:
    """Every node, children first, left to right; repeated subexpressions repeat."""
    for child in expr.children:
        yield from walk(child)
    yield expr


def depends_on_input(expr: Expr) -> bool:
    return any(isinstance(node, (Linear, Input)) for node in walk(expr))
