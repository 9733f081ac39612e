"""Weight functions: scalar expressions, one value per hidden unit.

`linear("u")` is a row of W·v, `parameter("r")` a learned constant, numbers and `+ - * /` are ordinary arithmetic
on real numbers; ⊕ and ⊗ come from the arcs. `one` and `zero` are the semiring's, and so are its constructors:
`complex(re, im)` is a weight of two real expressions. Expressions are values: equal when written equally, whatever name
(`.named("u1")`) they were given for printing.

A family is a row of states with one description. `linear("B", over=h, per="head")` has one value for each state of the
family h, shared by all units of a head.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from numbers import Real
from typing import Any

from rrnn.automata.families import LEVELS, Family, check_name, family, leaf_name, short  # noqa: F401
from rrnn.errors import CellError
from rrnn.semirings import SEMIRINGS

MAX_SIZE, MAX_DEPTH = 2000, 100


@dataclass(frozen=True, eq=False)
class Expr:
    """Base of all expression nodes. `label` is the name to print; it takes no part in equality."""

    label: str | None = field(default=None, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        # Names let a short text describe a huge tree (a = b * b, b = c * c, …): bound what it unfolds to.
        if self.size > MAX_SIZE:
            raise CellError(
                f"an expression has at most {MAX_SIZE} operations and leaves, written out in full; this one has "
                f"{self.size}. Split it over several arcs or projections."
            )
        # A deeper tree would exhaust Python's stack in whatever walks it.
        if self.depth > MAX_DEPTH:
            raise CellError(
                f"an expression is nested at most {MAX_DEPTH} operations deep; this one is deeper. "
                "Add a long sum in pairs, or let one projection do it."
            )

    @cached_property
    def size(self) -> int:
        return 1 + sum(child.size for child in self.children)

    @cached_property
    def depth(self) -> int:
        return 1 + max((child.depth for child in self.children), default=0)

    @cached_property
    def _content(self) -> tuple[Any, ...]:
        return (type(self).__name__, *(getattr(self, f.name) for f in fields(self) if f.compare))

    @cached_property
    def _hash(self) -> int:
        return hash(self._content)

    # Hashes are remembered: dictionaries of expressions are everywhere, and a tree of n nodes would otherwise take n
    # steps to hash each time.

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Expr):
            return NotImplemented
        return self._hash == other._hash and self._content == other._content

    def __getstate__(self) -> dict[str, Any]:
        # Hashes of strings differ from process to process: a pickled one would be wrong elsewhere.
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def named(self, label: str) -> Expr:
        """Return the same expression under a name, so that equations and text print it."""
        return replace(self, label=check_name(label, "an expression's name"))

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()

    def __add__(self, other: Operand) -> Expr:
        return Binary("+", self, as_expr(other))

    def __radd__(self, other: Operand) -> Expr:
        return Binary("+", as_expr(other), self)

    def __sub__(self, other: Operand) -> Expr:
        return Binary("-", self, as_expr(other))

    def __rsub__(self, other: Operand) -> Expr:
        return Binary("-", as_expr(other), self)

    def __mul__(self, other: Operand) -> Expr:
        return Binary("*", self, as_expr(other))

    def __rmul__(self, other: Operand) -> Expr:
        return Binary("*", as_expr(other), self)

    def __truediv__(self, other: Operand) -> Expr:
        return Binary("/", self, as_expr(other))

    def __rtruediv__(self, other: Operand) -> Expr:
        return Binary("/", as_expr(other), self)

    def __neg__(self) -> Expr:
        if isinstance(self, Number):
            return as_expr(-self.value)
        return Call("neg", self)

    def __bool__(self) -> bool:
        raise CellError(
            "an expression has no truth value: weights depend on the input, so they cannot steer `if`. "
            "Use step(…), which is 1 where its argument is positive and 0 elsewhere."
        )


Operand = Expr | float | str
_COMPLEX = complex


@dataclass(frozen=True, eq=False)
class Number(Expr):
    value: float


@dataclass(frozen=True, eq=False)
class One(Expr):
    """The semiring's one, as a whole weight."""


@dataclass(frozen=True, eq=False)
class Zero(Expr):
    """The semiring's zero, as a whole weight."""


@dataclass(frozen=True, eq=False)
class Linear(Expr):
    """A row of W·v (plus a learned bias); `window=K` sees the K latest inputs."""

    name: str
    bias: bool = False
    window: int = 1
    over: Family | None = None
    per: str = "unit"


@dataclass(frozen=True, eq=False)
class Parameter(Expr):
    """A learned number per hidden unit."""

    name: str
    over: Family | None = None
    per: str = "unit"


@dataclass(frozen=True, eq=False)
class Input(Expr):
    """The layer's own input at this unit (for highway connections): input size = hidden size."""


@dataclass(frozen=True, eq=False)
class Score(Expr):
    """The automaton's score; only in the output expression. Over a semiring of several components it is read as
    `score.re`, `score.im`."""

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("_") or not any(name in ring.components for ring in SEMIRINGS.values()):
            raise AttributeError(name)
        return Component(self, name)


@dataclass(frozen=True, eq=False)
class Component(Expr):
    """One of the numbers of the score."""

    of: Expr
    name: str

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.of,)


@dataclass(frozen=True, eq=False)
class Construct(Expr):
    """A whole weight from real expressions, by a constructor of the semiring."""

    function: str
    arguments: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.arguments


@dataclass(frozen=True, eq=False)
class Call(Expr):
    """A function of one expression or, as max, of several."""

    function: str  # a key of FUNCTIONS, or neg
    argument: Expr
    more: tuple[Expr, ...] = ()

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.argument, *self.more)


@dataclass(frozen=True, eq=False)
class Binary(Expr):
    operator: str  # a key of OPERATORS
    left: Expr
    right: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.left, self.right)


one, zero, score = One(), Zero(), Score()


def linear(
    name: str, *, bias: bool = False, window: int = 1, over: Family | None = None, per: str = "unit"
) -> Expr:
    """Return a projection of the input, `W_name · v`, one learned row per unit. `bias=True` adds a learned number;
    `window=K` sees the K latest inputs. With `over=h` there is a row for each state of a family; with `per="head"` or
    `per="group"` the units of a head, or of a group of heads, share their rows."""
    if not isinstance(window, int) or isinstance(window, bool) or not 1 <= window <= 1000:
        raise CellError(f"linear({name!r}): window must be a whole number from 1 to 1000; got {window!r}")
    name = leaf_name(name, "a projection's name")
    return Linear(name, bool(bias), window, *_extent("linear", name, over, per))


def parameter(name: str, *, over: Family | None = None, per: str = "unit") -> Expr:
    """Return a learned number per unit. With `over=h` there is one for each state of a family; with `per="head"` or
    `per="group"` the units of a head, or of a group of heads, share it."""
    name = leaf_name(name, "a parameter's name")
    return Parameter(name, *_extent("parameter", name, over, per))


def _extent(function: str, name: str, over: object, per: object) -> tuple[Family | None, str]:
    """Return what `over=` and `per=` say, or raise a `CellError`."""
    if over is not None and not isinstance(over, Family):
        raise CellError(
            f'{function}({name!r}): over takes a family, as in h = family("h", 16); got {short(over)}'
        )
    if per not in LEVELS:
        raise CellError(f'{function}({name!r}): per is "unit", "head" or "group"; got {short(per)}')
    return over, str(per)


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


def constructors() -> dict[str, tuple[str, ...]]:
    """Return the constructors of all semirings: name → names of the arguments."""
    return {
        name: arguments for ring in SEMIRINGS.values() for name, (arguments, _) in ring.constructors.items()
    }


def construct(name: str, *arguments: Operand) -> Expr:
    """Return a weight made by a constructor of the cell's semiring, as `construct("polar", r, theta)`."""
    known = constructors()
    if name not in known:
        raise CellError(f"no semiring has a constructor {name!r}; the constructors are {', '.join(known)}")
    if len(arguments) != len(known[name]):
        raise CellError(f"{name} takes {', '.join(known[name])}; got {len(arguments)} arguments")
    return Construct(name, tuple(as_expr(a) for a in arguments))


def as_expr(x: Operand) -> Expr:
    """Return a number or the word "score" as an expression, so that `tanh("score")` reads well."""
    if isinstance(x, Expr):
        return x
    if isinstance(x, str) and x == "score":
        return score
    if isinstance(x, _COMPLEX) and not isinstance(x, Real):
        return construct("complex", x.real, x.imag)
    if isinstance(x, Real) and not isinstance(x, bool):
        try:
            value = float(x)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            raise CellError(
                f"a number in a weight must be finite and fit a 64-bit float; got {short(x)}. "
                "Use `zero` for the semiring's zero."
            )
        return Number(value + 0.0)  # −0.0 becomes 0.0: they are equal, and must print equally
    raise CellError(
        f'a weight is an expression, a number or "score"; got {short(x)}. '
        'Write linear("name") for a projection of the input, parameter("name") for a learned number.'
    )


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield every node, children first, left to right; repeated subexpressions repeat."""
    todo = [(expr, False)]
    while todo:
        node, ready = todo.pop()
        if ready or not node.children:
            yield node
        else:
            todo.append((node, True))
            todo.extend((child, False) for child in reversed(node.children))


def families_of(expr: Expr) -> set[Family]:
    """Return the families on whose index an expression depends."""
    return {
        node.over for node in walk(expr) if isinstance(node, (Linear, Parameter)) and node.over is not None
    }


def depends_on_input(expr: Expr) -> bool:
    """Return whether an expression reads the current input."""
    return any(isinstance(node, (Linear, Input)) for node in walk(expr))
