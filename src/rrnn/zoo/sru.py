"""SRU (version 1, 2017): B with a highway connection, h = r ⊙ g(c) + (1 − r) ⊙ v; g is tanh, relu or nothing."""

from rrnn.automata import Cell, input, linear, one, relu, score, sigmoid, tanh
from rrnn.errors import CellError


def sru(activation: str = "tanh") -> Cell:
    g = {"tanh": tanh(score), "relu": relu(score), "identity": score}.get(activation)
    if g is None:
        raise CellError(f"SRU's activation is 'tanh', 'relu' or 'identity'; got {activation!r}")
    f, r = sigmoid(linear("f", bias=True)), sigmoid(linear("r", bias=True))
    return (
        Cell("SRU")
        .initial("q0").loop("q0", one)
        .arc("q0", "q1", (1 - f) * linear("x")).loop("q1", f)
        .final("q1")
        .output(r * g + (1 - r) * input())
    )  # fmt: skip
