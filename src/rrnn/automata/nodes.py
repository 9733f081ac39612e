"""The nodes of expressions: what a weight function is made of. `rrnn.automata.expressions` builds them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from numbers import Real
from typing import Any

from rrnn.automata.families import Over, check_name, short
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

    @property
    def source(self) -> Expr:
        """The same expression of the state that an arc leaves, in the weight of arcs from each state to each."""
        return At(self, "source")

    @property
    def target(self) -> Expr:
        """The same expression of the state that an arc enters, in the weight of arcs from each state to each."""
        return At(self, "target")

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
    over: Over = None
    per: str = "unit"
    start: Expr | None = None
    """The first value of the bias; by default 0."""


@dataclass(frozen=True, eq=False)
class Parameter(Expr):
    """A learned number per hidden unit."""

    name: str
    over: Over = None
    per: str = "unit"
    start: Expr | None = None
    """The first value; by default 0."""
    learned: bool = True


@dataclass(frozen=True, eq=False)
class Index(Expr):
    """The number, from 0, of a family's state, of a head, of a group or of a unit. Only first values depend on it."""

    of: str


@dataclass(frozen=True, eq=False)
class Uniform(Expr):
    """A number drawn uniformly from an interval, for each unit and index anew. Only first values are drawn."""

    low: float
    high: float
    draw: int = 0
    """Draws of one number other than 0 are the same draw, so that two parameters can begin in step."""


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
class At(Expr):
    """An expression over a family, at the index of an arc's source or target."""

    of: Expr
    end: str

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
