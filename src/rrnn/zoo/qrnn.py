"""QRNN (Bradbury et al. 2017): B whose gates see the `window` latest inputs, z = tanh, f = σ, o = σ, i = σ.

f-pooling:   c = f ⊙ c' + (1 − f) ⊙ z; h = c.
fo-pooling:  the same, h = o ⊙ c.
ifo-pooling: c = f ⊙ c' + i ⊙ z; h = o ⊙ c.

Zoneout, f ← 1 − dropout(1 − f) in training, is an option of the layer: `RationalRNN(…, zoneout=0.1)`. The public
pytorch-qrnn calls the *input* gate F; `rrnn.zoo.convert.from_qrnn` loads its weights.
"""

from rrnn.automata import Cell, linear, one, score, sigmoid, tanh
from rrnn.errors import CellError


def qrnn(window: int = 2, pooling: str = "fo") -> Cell:
    if pooling not in ("f", "fo", "ifo"):
        raise CellError(f"QRNN's pooling is 'f', 'fo' or 'ifo'; got {pooling!r}")
    z, f, o, i = (linear(name, bias=True, window=window) for name in "zfoi")
    f = sigmoid(f)
    new = sigmoid(i) if pooling == "ifo" else 1 - f
    return (
        Cell(f"QRNN{window}_{pooling}")
        .initial("q0").loop("q0", one)
        .arc("q0", "q1", (new * tanh(z)).named("u")).loop("q1", f)
        .final("q1")
        .output(score if pooling == "f" else sigmoid(o) * score)
    )  # fmt: skip
