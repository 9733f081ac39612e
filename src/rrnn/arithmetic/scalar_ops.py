"""The whole instruction set, one row per op: what it means, its derivative, its range, and how renderers write it.

A row's `meaning` is a function of Python floats, the definition that all backends are held to. `tensor` is the torch
function with the same meaning, whose own gradient is correct wherever the function has one. `gradient(s, *arguments,
y, g)` returns the gradients of the arguments from that of the result y = op(arguments). It is written over the ops
themselves, so it runs on whatever values the arithmetic `s` has. A function that can be composed of other ops without
loss is not an op but one of `COMPOSITES`; if it is an op nevertheless, `why` gives the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rrnn.arithmetic import ranges
from rrnn.arithmetic.ranges import Range, RangeRule


@dataclass(frozen=True, eq=False)
class OpRow:
    """Everything about one op. `attribute` says what the number beside a leaf is: "number", "index", or "output", an
    index that may be left out for 0."""

    name: str
    arity: int = 0
    attribute: str | None = None
    meaning: Callable[..., float] | None = None
    tensor: Callable[[Any], Callable[..., Any]] | None = None
    """Given the module torch, the function on tensors."""
    gradient: Callable[..., tuple[Any, ...]] | None = None
    """None for a leaf and for a piecewise constant function."""
    range: RangeRule | None = None
    c: str = ""
    """A C expression of {0}, {1}, …; {s} is the suffix of the type. `backends.native.loops` splits some further."""
    triton: str = ""
    plain: str = ""
    latex: str = ""
    why: str = ""
    """Why this function is an op, where it could be composed of others."""


def _logaddexp(a: float, b: float) -> float:
    if a != a or b != b:
        return math.nan
    hi, lo = (a, b) if a >= b else (b, a)
    return hi if math.isinf(hi) or lo == -math.inf else hi + math.log1p(math.exp(lo - hi))


def _sigmoid(x: float) -> float:
    # Either branch takes exp of a negative number only, so that nothing overflows.
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x))) if x == x else x


def _div(a: float, b: float) -> float:
    if b != 0:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf if x == 0 else math.nan


def _finite(f: Callable[[float], float]) -> Callable[[float], float]:
    """Return f with NaN in place of an error at infinities and NaN."""
    return lambda x: f(x) if math.isfinite(x) else math.nan


def _select(first_wins: str) -> Callable[[Any], Callable[..., Any]]:
    """Return max or min on tensors: in a tie the first argument wins, and an infinite result passes no gradient on."""

    def on(torch: Any) -> Callable[..., Any]:
        wins = getattr(torch, first_wins)

        def op(a: Any, b: Any) -> Any:
            a, b = _tensors(torch, a, b)
            best = torch.where(wins(a, b) | a.isnan(), a, b)  # a NaN must not be lost in a comparison
            return torch.where(best.isinf(), best.detach(), best) if torch.is_grad_enabled() else best

        return op

    return on


def _tensors(torch: Any, *values: Any) -> list[Any]:
    """Return the values as tensors of the dtype and device of those that are tensors; float64 if none is."""
    like = next((v for v in values if isinstance(v, torch.Tensor)), None)
    if like is None:
        return [torch.as_tensor(v, dtype=torch.float64) for v in values]
    return [v if isinstance(v, torch.Tensor) else like.new_tensor(v) for v in values]


def _tensor_logaddexp(torch: Any) -> Callable[..., Any]:
    """Return logaddexp on tensors, safe at −∞ in value and in gradient, where torch's own gives NaN."""

    def logaddexp(a: Any, b: Any) -> Any:
        a, b = _tensors(torch, a, b)
        hi, lo = a.maximum(b), a.minimum(b)
        # −∞ − (−∞) and ∞ − ∞ must stay out of the graph: a NaN there would come back as a NaN gradient.
        gap = (lo - hi).where(~lo.isinf(), lo.new_full((), -math.inf))
        total = hi + gap.exp().log1p()
        return total.where(hi != -math.inf, hi.new_full((), -math.inf))

    return logaddexp


def _tensor_share(torch: Any) -> Callable[..., Any]:
    def share(a: Any, total: Any) -> Any:
        a, total = _tensors(torch, a, total)
        dead = a == -math.inf
        return torch.where(dead, 0.0, torch.where(dead, 0.0, a - total).exp())

    return share


def _compare(name: str) -> Callable[[Any], Callable[..., Any]]:
    """Return a comparison on tensors that gives 1.0 and 0.0 in place of truth values."""

    def on(torch: Any) -> Callable[..., Any]:
        def op(a: Any, b: Any) -> Any:
            a, b = _tensors(torch, a, b)
            truth = getattr(torch, name)(a, b)
            return truth.to(a.dtype if a.is_floating_point() else torch.float64)

        return op

    return on


def _tensor_where(torch: Any) -> Callable[..., Any]:
    def where(condition: Any, a: Any, b: Any) -> Any:
        condition, a, b = _tensors(torch, condition, a, b)
        return torch.where(condition != 0, a, b)

    return where


def _unary(name: str) -> Callable[[Any], Callable[..., Any]]:
    """Return torch's function of one argument by its name."""

    def on(torch: Any) -> Callable[..., Any]:
        f = getattr(torch, name)
        return lambda x: f(_tensors(torch, x)[0])

    return on


def _max_gradient(s: Any, a: Any, b: Any, y: Any, g: Any) -> tuple[Any, Any]:
    """Give ties to the first argument; a −∞ that stands for the semiring's zero never gets a gradient."""
    first = s.mul(g, s.ge(a, b))
    if -math.inf in s.infinities:
        first = s.mul(first, s.gt(a, -math.inf))
    return first, s.mul(g, s.gt(b, a))


def _min_gradient(s: Any, a: Any, b: Any, y: Any, g: Any) -> tuple[Any, Any]:
    first = s.mul(g, s.ge(b, a))
    if math.inf in s.infinities:
        first = s.mul(first, s.gt(math.inf, a))
    return first, s.mul(g, s.gt(a, b))


def _div_gradient(s: Any, a: Any, b: Any, y: Any, g: Any) -> tuple[Any, Any]:
    to_a = s.div(g, b)
    return to_a, s.neg(s.mul(to_a, y))


class Op(Enum):
    """The ops. Leaves, which a program reads, come first."""

    CONST = OpRow("const", attribute="number")
    PARAM = OpRow("param", attribute="index")  # a learned number per unit, or a bias
    PREACT = OpRow("preact", attribute="index")  # a projection W·v of this step, without its bias
    INPUT = OpRow("input")  # the layer's own input of this step
    STATE = OpRow("state", attribute="index")  # a stored state after the previous step
    GRAD_OUTPUT = OpRow("grad_output", attribute="output")  # adjoints only: dL/d output of this step
    GRAD_STATE = OpRow("grad_state", attribute="index")  # adjoints only: dL/d new state, from later steps
    GRAD_UNIT = OpRow("grad_unit", attribute="index")  # epilogues only: summed dL/d per-unit value

    # Elements of a semiring whose ⊕ or ⊗ is not a single op here, or that has several components; `Program.flat`
    # expands them.
    ELEMENT = OpRow("element", -1)  # its components in order
    COMPONENT = OpRow("component", 1, "index")  # one of them
    PLUS = OpRow("plus", 2)
    TIMES = OpRow("times", 2)

    # over the index of a family, whose number is the attribute; `ir.builder` emits them
    SUM = OpRow("sum", 1, "index", gradient=lambda s, a, y, g: (g,))
    LOGSUM = OpRow("logsum", 1, "index", gradient=lambda s, a, y, g: (s.mul(g, s.share(a, y)),))
    MOST = OpRow("most", 1, "index")
    LEAST = OpRow("least", 1, "index")
    FIRST = OpRow("first", 2, "index")  # 1.0 at the first index at which {0} equals {1}, else 0.0

    # The ⊕ over the index of a family where it is no single op, of elements whose components are the arguments: for the
    # attribute family·(number of components) + c, component c; and the ⊕ of all states before or after each one.
    FOLD = OpRow("fold", -1, "index")
    BEFORE = OpRow("before", -1, "index")
    AFTER = OpRow("after", -1, "index")

    # the same values under the index of another family of the same size: from·F + to, of F families
    MOVE = OpRow("move", 1, "index")

    # arithmetic
    ADD = OpRow(
        "add", 2, None, lambda a, b: a + b, lambda torch: lambda a, b: a + b, lambda s, a, b, y, g: (g, g),
        ranges.add, "{0} + {1}", "{0} + {1}",
    )  # fmt: skip
    SUB = OpRow(
        "sub", 2, None, lambda a, b: a - b, lambda torch: lambda a, b: a - b,
        lambda s, a, b, y, g: (g, s.neg(g)), lambda a, b: a - b, "{0} - {1}", "{0} - {1}",
        why="a + (−b) would write every difference as a sum, and cost an instruction",
    )  # fmt: skip
    MUL = OpRow(
        "mul", 2, None, lambda a, b: a * b, lambda torch: lambda a, b: a * b,
        lambda s, a, b, y, g: (s.mul(g, b), s.mul(g, a)), ranges.multiply, "{0} * {1}", "{0} * {1}",
    )  # fmt: skip
    DIV = OpRow(
        "div", 2, None, _div, lambda torch: lambda a, b: a / b, _div_gradient, ranges.divide,
        "{0} / {1}", "{0} / {1}",
    )  # fmt: skip
    NEG = OpRow(
        "neg", 1, None, lambda a: -a, lambda torch: lambda a: -a, lambda s, a, y, g: (s.neg(g),),
        lambda a: -a, "-{0}", "-{0}",
    )  # fmt: skip
    MAX = OpRow(  # in a tie the first argument wins; a NaN must not be lost in a comparison
        "max", 2, None, lambda a, b: a if a >= b or a != a else b, _select("ge"), _max_gradient,
        ranges.maximum, "max_{s}({0}, {1})", "tl.where({0} >= {1}, {0}, {1})", "max", r"\max",
    )  # fmt: skip
    MIN = OpRow(
        "min", 2, None, lambda a, b: a if a <= b or a != a else b, _select("le"), _min_gradient,
        ranges.minimum, "min_{s}({0}, {1})", "tl.where({0} <= {1}, {0}, {1})", "min", r"\min",
        why="−max(−a, −b) would lose the first argument's precedence in ties and cost three sign changes",
    )  # fmt: skip
    LOGADDEXP = OpRow(
        "logaddexp", 2, None, _logaddexp, _tensor_logaddexp,
        lambda s, a, b, y, g: (s.mul(g, s.share(a, y)), s.mul(g, s.share(b, y))), ranges.rising(_logaddexp),
        "logaddexp_{s}({0}, {1})", "logaddexp({0}, {1})", "logsumexp", r"\operatorname{logsumexp}",
        why="log(eᵃ + eᵇ) overflows",
    )  # fmt: skip

    # functions
    EXP = OpRow(
        "exp", 1, None, _exp, _unary("exp"), lambda s, x, y, g: (s.mul(g, y),), ranges.rising(_exp),
        "exp_{s}({0})", "tl.exp({0})", "exp", r"\exp",
    )  # fmt: skip
    LOG = OpRow(
        "log", 1, None, _log, _unary("log"), lambda s, x, y, g: (s.div(g, x),),
        ranges.rising(_log, 0.0), "log_{s}({0})", "tl.log({0})", "log", r"\log",
    )  # fmt: skip
    SQRT = OpRow(
        "sqrt", 1, None, lambda x: math.sqrt(x) if x >= 0 else math.nan, _unary("sqrt"),
        lambda s, x, y, g: (s.div(s.mul(g, 0.5), y),), ranges.rising(math.sqrt, 0.0),
        "sqrt_{s}({0})", "tl.sqrt({0})", "√", r"\sqrt",
        why="exp(log(x) / 2) is slower and less precise than the processor's own",
    )  # fmt: skip
    SIN = OpRow(
        "sin", 1, None, _finite(math.sin), _unary("sin"), lambda s, x, y, g: (s.mul(g, s.cos(x)),),
        ranges.always(Range(-1.0, 1.0)), "sin_{s}({0})", "tl.sin({0})", "sin", r"\sin",
    )  # fmt: skip
    COS = OpRow(
        "cos", 1, None, _finite(math.cos), _unary("cos"), lambda s, x, y, g: (s.neg(s.mul(g, s.sin(x))),),
        ranges.always(Range(-1.0, 1.0)), "cos_{s}({0})", "tl.cos({0})", "cos", r"\cos",
        why="sin(x + π/2) rounds its argument",
    )  # fmt: skip
    SIGMOID = OpRow(
        "sigmoid", 1, None, _sigmoid, _unary("sigmoid"),
        lambda s, x, y, g: (s.mul(g, s.mul(y, s.sub(1.0, y))),), ranges.rising(_sigmoid),
        "sigmoid_{s}({0})", "tl.sigmoid({0})", "σ", r"\sigma",
        why="1 / (1 + e⁻ˣ) overflows, and its gradient from y alone needs no exponential",
    )  # fmt: skip
    TANH = OpRow(
        "tanh", 1, None, math.tanh, _unary("tanh"),
        lambda s, x, y, g: (s.mul(g, s.sub(1.0, s.mul(y, y))),), ranges.rising(math.tanh),
        "tanh_{s}({0})", "tanh({0})", "tanh", r"\tanh",
        why="2σ(2x) − 1 cancels near 0",
    )  # fmt: skip
    LOG_SIGMOID = OpRow(
        "log_sigmoid", 1, None, lambda x: -_softplus(-x),
        lambda torch: lambda x: torch.nn.functional.logsigmoid(_tensors(torch, x)[0]),
        lambda s, x, y, g: (s.mul(g, s.sigmoid(s.neg(x))),), ranges.rising(lambda x: -_softplus(-x)),
        "log_sigmoid_{s}({0})", "log_sigmoid({0})", "log σ", r"\log\sigma",
        why="the log of a gate is one instruction, as the gate is; −softplus(−x) would be three",
    )  # fmt: skip
    SOFTPLUS = OpRow(
        "softplus", 1, None, _softplus,
        # torch's own switches to x beyond a threshold
        lambda torch: lambda x: -torch.nn.functional.logsigmoid(-_tensors(torch, x)[0]),
        lambda s, x, y, g: (s.mul(g, s.sigmoid(x)),), ranges.rising(_softplus),
        "softplus_{s}({0})", "softplus({0})", "softplus", r"\operatorname{softplus}",
        why="log(1 + eˣ) overflows",
    )  # fmt: skip

    # comparisons, 1.0 or 0.0, and what they choose
    GE = OpRow(
        "ge", 2, None, lambda a, b: float(a >= b), _compare("ge"), None, ranges.at_least,
        "{0} >= {1} ? (real)1 : (real)0", "tl.where({0} >= {1}, 1.0, 0.0)", "≥", r"\ge",
    )  # fmt: skip
    GT = OpRow(
        "gt", 2, None, lambda a, b: float(a > b), _compare("gt"), None, ranges.greater,
        "{0} > {1} ? (real)1 : (real)0", "tl.where({0} > {1}, 1.0, 0.0)", ">", ">",
    )  # fmt: skip
    WHERE = OpRow(
        "where", 3, None, lambda c, a, b: a if c else b, _tensor_where,
        lambda s, c, a, b, y, g: (None, s.where(c, g, 0.0), s.where(c, 0.0, g)), ranges.choose,
        "{0} != 0 ? {1} : {2}", "tl.where({0} != 0.0, {1}, {2})", "where", r"\operatorname{where}",
        why="c·a + (1 − c)·b is NaN where the other one is infinite",
    )  # fmt: skip
    SHARE = OpRow(  # exp(a − b), and 0 where a is −∞: what a contributed to the logaddexp b
        "share", 2, None, lambda a, b: 0.0 if a == -math.inf else _exp(a - b), _tensor_share,
        lambda s, a, b, y, g: (s.mul(g, y), s.neg(s.mul(g, y))),
        ranges.always(Range(0.0, math.inf, high_open=True)), "share_{s}({0}, {1})", "share({0}, {1})",
        why="−∞ − (−∞) is NaN",
    )  # fmt: skip

    def __reduce_ex__(self, protocol: Any) -> Any:  # by name: rows hold functions, which cannot be pickled
        return getattr, (Op, self.name)

    @property
    def text(self) -> str:
        """The op's name in programs."""
        return self.value.name

    @property
    def arity(self) -> int:
        """The number of arguments; −1 stands for as many as the semiring has components."""
        return self.value.arity

    @property
    def attribute(self) -> str | None:
        """What the number beside a leaf is: "number", "index", "output", or None for an op without one."""
        return self.value.attribute

    @property
    def leaf(self) -> bool:
        """Whether the op reads something that no instruction computes."""
        return self.value.arity == 0


BY_NAME = {op.text: op for op in Op}
SEMIRING_FOLDS = (Op.FOLD, Op.BEFORE, Op.AFTER)
ALONG_FAMILY = (Op.SUM, Op.LOGSUM, Op.MOST, Op.LEAST, Op.FIRST, Op.MOVE, *SEMIRING_FOLDS)
"""The ops that look at other indices of a family than their result's own."""
FOLDS = {Op.ADD: Op.SUM, Op.LOGADDEXP: Op.LOGSUM, Op.MAX: Op.MOST, Op.MIN: Op.LEAST}
"""Each ⊕ that is one op, and the op that adds up a family by it."""

COMPOSITES: dict[str, Callable[..., Any]] = {
    "relu": lambda s, x: s.max(0.0, x),  # 0 first: at a tie x gets no gradient, as in torch
    "step": lambda s, x: s.gt(x, 0.0),
    "silu": lambda s, x: s.mul(x, s.sigmoid(x)),
    "abs": lambda s, x: s.max(x, s.neg(x)),
    "sign": lambda s, x: s.sub(s.gt(x, 0.0), s.gt(0.0, x)),
    "eq": lambda s, a, b: s.mul(s.ge(a, b), s.ge(b, a)),
    "square": lambda s, x: s.mul(x, x),
}
"""Functions that are composed of ops, and run wherever these do."""
