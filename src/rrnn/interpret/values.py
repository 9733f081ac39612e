"""Weight functions on tensors: every unit, position and sentence at once.

`rrnn.automata.evaluate` is the definition, in Python floats; tests hold this to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from rrnn.automata import expressions as ex
from rrnn.semirings import Semiring

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "neg": torch.neg,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "log_sigmoid": F.logsigmoid,
    "exp": torch.exp,
    "log": torch.log,
    "softplus": lambda x: -F.logsigmoid(-x),  # F.softplus switches to x beyond a threshold
    "sqrt": torch.sqrt,
    "step": lambda x: (x > 0).to(x.dtype),
}


class Evaluator:
    """Expressions at given values of their leaves: projections (bias included) and parameters by name, "input" and
    "score". What two weights share is computed once."""

    def __init__(self, leaves: Mapping[str, Tensor], ring: Semiring, like: Tensor) -> None:
        self.leaves, self.ring, self.like = leaves, ring, like
        self.known: dict[ex.Expr, Tensor] = {}

    def __call__(self, expr: ex.Expr) -> Tensor:
        if expr not in self.known:
            self.known[expr] = self._value(expr)
        return self.known[expr]

    def _value(self, expr: ex.Expr) -> Tensor:
        match expr:
            case ex.Number(value=value):
                return self.like.new_tensor(value)
            case ex.One():
                return self.like.new_tensor(self.ring.one)
            case ex.Zero():
                return self.like.new_tensor(self.ring.zero)
            case ex.Linear(name=name) | ex.Parameter(name=name):
                return self.leaves[name]
            case ex.Input():
                return self.leaves["input"]
            case ex.Score():
                return self.leaves["score"]
            case ex.Call(function=function, argument=argument):
                return FUNCTIONS[function](self(argument))
            case ex.Binary(operator=operator, left=left, right=right):
                a, b = self(left), self(right)
                return a + b if operator == "+" else a - b if operator == "-" else a * b
        raise AssertionError(expr)
