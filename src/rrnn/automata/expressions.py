"""Weight functions: scalar expressions, one value per hidden unit.

`linear("u")` is a row of W·v, `parameter("r")` a learned constant, numbers and `+ - *` are ordinary arithmetic
on real numbers; ⊕ and ⊗ come from the arcs. `one` and `zero` are the semiring's. Expressions are values: equal
when written equally, whatever name (`.named("u1")`) they were given for printing.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from numbers import Real
from typing import Any

from rrnn.errors import CellError

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
        # Deeper ones would exhaust Python's stack in whatever walks them.
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

    # Written once here and remembered: dictionaries of expressions are everywhere, and a tree of n nodes would
    # otherwise be hashed in n steps each time.

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
        """The same expression under a name, so that equations and text print it."""
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


@dataclass(frozen=True, eq=False)
class Parameter(Expr):
    """A learned number per hidden unit."""

    name: str


@dataclass(frozen=True, eq=False)
class Input(Expr):
    """The layer's own input at this unit (for highway connections): input size = hidden size."""


@dataclass(frozen=True, eq=False)
class Score(Expr):
    """The automaton's score; only in the output expression."""


@dataclass(frozen=True, eq=False)
class Call(Expr):
    function: str  # a key of FUNCTIONS, or neg
    argument: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.argument,)


@dataclass(frozen=True, eq=False)
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
    return Linear(_leaf_name(name, "a projection's name"), bool(bias), window)


def parameter(name: str) -> Expr:
    """A learned number per unit."""
    return Parameter(_leaf_name(name, "a parameter's name"))


def input() -> Expr:
    """The layer's own input at this unit."""
    return Input()


def _function(name: str) -> Callable[[Operand], Expr]:
    def call(x: Operand) -> Expr:
        return Call(name, as_expr(x))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`{name}` of an expression, per unit."
    return call


sigmoid, tanh, relu = _function("sigmoid"), _function("tanh"), _function("relu")
log_sigmoid, exp, log = _function("log_sigmoid"), _function("exp"), _function("log")
softplus, sqrt, step = _function("softplus"), _function("sqrt"), _function("step")

FUNCTIONS: dict[str, Callable[[Operand], Expr]] = {
    "sigmoid": sigmoid,
    "tanh": tanh,
    "relu": relu,
    "log_sigmoid": log_sigmoid,
    "exp": exp,
    "log": log,
    "softplus": softplus,
    "sqrt": sqrt,
    "step": step,
}
"""What a cell's text may call; `neg` (unary minus) is the only other function node. `rrnn.automata.evaluate`
says what each computes."""


def as_expr(x: Operand) -> Expr:
    """Numbers become `Number`; the word "score" stands for the score, so `tanh("score")` reads well."""
    if isinstance(x, Expr):
        return x
    if isinstance(x, str) and x == "score":
        return score
    if isinstance(x, Real) and not isinstance(x, bool):
        try:
            value = float(x)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            raise CellError(
                f"a number in a weight must be finite and fit a 64-bit float; got {_short(x)}. "
                "Use `zero` for the semiring's zero."
            )
        return Number(value + 0.0)  # −0.0 becomes 0.0: they are equal, and must print equally
    raise CellError(
        f'a weight is an expression, a number or "score"; got {_short(x)}. '
        'Write linear("name") for a projection of the input, parameter("name") for a learned number.'
    )


def check_name(name: object, what: str) -> str:
    """The name, or an error: names must survive every text form and mean the same in each."""
    if (
        not isinstance(name, str)
        or len(name) > 64
        or not (name.isidentifier() and re.fullmatch(r"\w+", name))
        or not unicodedata.is_normalized("NFKC", name)
    ):
        raise CellError(
            f"{what} must be an identifier of at most 64 letters, digits and _, beginning with no digit; "
            f"got {_short(name)}"
        )
    return name


def _leaf_name(name: object, what: str) -> str:
    if name in ("input", "score"):
        raise CellError(
            f"{what} cannot be {name!r}: that word is the layer's input or the automaton's score. "
            f"Call it {name}_1 or the like."
        )
    return check_name(name, what)


def _short(x: object) -> str:
    """A value in a message, however large it is (Python refuses to print integers of over 4300 digits)."""
    try:
        text = repr(x)
    except Exception:
        text = f"a {type(x).__name__}"
    return text if len(text) <= 100 else f"{text[:100]}…"


def walk(expr: Expr) -> Iterator[Expr]:
    """Every node, children first, left to right; repeated subexpressions repeat."""
    todo = [(expr, False)]
    while todo:
        node, ready = todo.pop()
        if ready or not node.children:
            yield node
        else:
            todo.append((node, True))
            todo.extend((child, False) for child in reversed(node.children))


def depends_on_input(expr: Expr) -> bool:
    return any(isinstance(node, (Linear, Input)) for node in walk(expr))
