"""The default initialisation.

Matrices are uniform in ±√(3 / (input_size · K)) for a projection that sees K inputs (K = 1 without a window), so that
pre-activations of inputs with unit variance have unit variance; biases are 0, and so are the cell's own parameters,
which makes each sigmoid(parameter) a half. `forget_bias` is the first value of the biases of forget gates, the
projections called f, f1, f2, … or forget…: a positive one makes a layer remember longer from the start.
"""

from __future__ import annotations

import math
import re

from torch import Tensor, nn

SATURATED = 1e4  # σ of it is exactly 1, its gradient exactly 0; half precision can hold it


def is_forget_gate(projection: str) -> bool:
    return re.fullmatch(r"f\d*|forget\w*", projection) is not None


def uniform_rows(weight: Tensor, input_size: int, window: int = 1) -> None:
    """Fill rows of a matrix, in place."""
    bound = math.sqrt(3 / (max(input_size, 1) * window))
    nn.init.uniform_(weight, -bound, bound)
