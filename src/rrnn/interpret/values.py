"""Weight functions on tensors: every unit, position and sentence at once, by the one evaluator."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from rrnn.arithmetic import TENSORS
from rrnn.automata import Evaluator
from rrnn.automata.evaluator import leaf_name
from rrnn.semirings import Semiring


class Weights(Evaluator):
    """Expressions at given values of their leaves: projections (bias included) and parameters by name, "input" and
    "score"."""

    def __init__(self, leaves: Mapping[str, Tensor], ring: Semiring, like: Tensor) -> None:
        super().__init__(TENSORS, ring, lambda node: leaves[leaf_name(node)], like.new_tensor)
        self.leaves, self.like = leaves, like
