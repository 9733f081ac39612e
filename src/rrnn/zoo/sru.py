"""SRU (version 1, 2017): B with a highway connection, h = r ⊙ tanh(c) + (1 − r) ⊙ v."""

from rrnn.automata import Cell, input, linear, one, score, sigmoid, tanh


def sru() -> Cell:
    f, r = sigmoid(linear("f", bias=True)), sigmoid(linear("r", bias=True))
    return (
        Cell("SRU")
        .initial("q0").loop("q0", one)
        .arc("q0", "q1", (1 - f) * linear("x")).loop("q1", f)
        .final("q1")
        .output(r * tanh(score) + (1 - r) * input())
    )  # fmt: skip
