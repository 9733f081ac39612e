"""The whole instruction set: scalar ops of one time step, on one screen."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Op(Enum):
    """`value` is (name in text, number of arguments, what the attribute is)."""

    # leaves
    CONST = ("const", 0, "number")
    PARAM = ("param", 0, "index")  # a learned number per unit (biases too)
    PREACT = ("preact", 0, "index")  # a projection W·v of this step, without its bias
    INPUT = ("input", 0, None)  # the layer's own input of this step
    STATE = ("state", 0, "index")  # a stored state after the previous step
    GRAD_OUTPUT = ("grad_output", 0, None)  # adjoints only: dL/d output of this step
    GRAD_STATE = ("grad_state", 0, "index")  # adjoints only: dL/d new state, from later steps
    GRAD_UNIT = ("grad_unit", 0, "index")  # epilogues only: summed dL/d per-unit value
    # arithmetic
    ADD = ("add", 2, None)
    SUB = ("sub", 2, None)
    MUL = ("mul", 2, None)
    DIV = ("div", 2, None)
    NEG = ("neg", 1, None)
    MAX = ("max", 2, None)  # ⊕ of the selective semirings: in a tie the first argument wins
    MIN = ("min", 2, None)
    LOGADDEXP = ("logaddexp", 2, None)
    # functions
    EXP = ("exp", 1, None)
    LOG = ("log", 1, None)
    SQRT = ("sqrt", 1, None)
    SIGMOID = ("sigmoid", 1, None)
    TANH = ("tanh", 1, None)
    RELU = ("relu", 1, None)
    LOG_SIGMOID = ("log_sigmoid", 1, None)
    SOFTPLUS = ("softplus", 1, None)
    STEP = ("step", 1, None)  # 1 where x > 0, else 0
    # comparisons, for adjoints: 1.0 or 0.0
    GE = ("ge", 2, None)
    GT = ("gt", 2, None)
    SHARE = ("share", 2, None)  # exp(a − b), and 0 where a is −∞: what a contributed to the logaddexp b

    @property
    def text(self) -> str:
        return self.value[0]

    @property
    def arity(self) -> int:
        return self.value[1]

    @property
    def attribute(self) -> str | None:
        return self.value[2]


BY_TEXT = {op.text: op for op in Op}


class Instruction(NamedTuple):
    """Single assignment: its number is its place in the program."""

    op: Op
    args: tuple[int, ...] = ()
    attr: float | int | None = None


# What ⊕ and ⊗ lower to, the only thing in which semirings differ here.
PLUS = {
    "real": Op.ADD,
    "counting": Op.ADD,
    "log": Op.LOGADDEXP,
    "max-plus": Op.MAX,
    "min-plus": Op.MIN,
    "max-times": Op.MAX,
    "boolean": Op.MAX,
}
TIMES = {
    "real": Op.MUL,
    "counting": Op.MUL,
    "log": Op.ADD,
    "max-plus": Op.ADD,
    "min-plus": Op.ADD,
    "max-times": Op.MUL,
    "boolean": Op.MIN,
}
