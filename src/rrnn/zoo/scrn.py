"""Context units of SCRN (Mikolov et al. 2015): B with a constant loop, s = (1 − α) B v + α s', α = 0.95.

The whole SCRN, whose hidden layer is not shown to be rational, is `rrnn.zoo.modules.SCRN`.
"""

from rrnn.automata import Cell, linear, one
from rrnn.zoo.options import share


def scrn(alpha: float = 0.95) -> Cell:
    alpha = share("alpha", alpha)
    return (
        Cell("SCRN")
        .initial("q0").loop("q0", one)
        .arc("q0", "q1", round(1 - alpha, 15) * linear("b")).loop("q1", alpha)
        .final("q1")
    )  # fmt: skip
