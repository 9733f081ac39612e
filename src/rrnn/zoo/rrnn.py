"""The paper's four models: RRNN(B), RRNN(B) over max-plus, RRNN(C), RRNN(F).

`gate=True` adds the output gate o = σ(W_o v + b_o) of the paper's language models: h = tanh(o ⊙ c).
"""

from rrnn.automata import Cell, Expr, linear, log_sigmoid, one, parameter, score, sigmoid, tanh


def gates(suffix: str = "") -> tuple[Expr, Expr]:
    """f = σ(W_f v + b_f) and u = (1 − f) ⊙ W_u v."""
    f = sigmoid(linear(f"f{suffix}", bias=True))
    return f, (1 - f) * linear(f"u{suffix}")


def output(gate: bool) -> Expr:
    """h = tanh(c), or tanh(o ⊙ c)."""
    return tanh(sigmoid(linear("o", bias=True)) * score) if gate else tanh(score)


def b(gate: bool = False) -> Cell:
    """c = f ⊙ c' + u: soft unigrams."""
    f, u = gates()
    return (
        Cell("B")
        .initial("q0").loop("q0", one)
        .arc("q0", "q1", u).loop("q1", f)
        .final("q1")
        .output(output(gate))
    )  # fmt: skip


def b_max_plus(gate: bool = False) -> Cell:
    """c = max(f + c', u) with f = log σ(W_f v + b_f), u = W_u v."""
    h = tanh(log_sigmoid(linear("o", bias=True)) + score) if gate else tanh(score)
    return (
        Cell("B_max_plus", semiring="max-plus")
        .initial("q0").loop("q0", one)
        .arc("q0", "q1", linear("u")).loop("q1", log_sigmoid(linear("f", bias=True)))
        .final("q1")
        .output(h)
    )  # fmt: skip


def c(gate: bool = False) -> Cell:
    """c¹ = f¹ ⊙ c¹' + u¹; c² = f² ⊙ c²' + c¹' ⊙ u²: soft bigrams."""
    (f1, u1), (f2, u2) = gates("1"), gates("2")
    return (
        Cell("C")
        .initial("q0").loop("q0", one)
        .arc("q0", "q1", u1).loop("q1", f1)
        .arc("q1", "q2", u2).loop("q2", f2)
        .final("q2")
        .output(output(gate))
    )  # fmt: skip


def f(gate: bool = False) -> Cell:
    """c² = f² ⊙ c²' + (c¹' + r) ⊙ u²; c = p¹ ⊙ c¹ + p² ⊙ c²: unigrams and bigrams, an ε-arc skips a word."""
    (f1, u1), (f2, u2) = gates("1"), gates("2")
    return (
        Cell("F")
        .initial("q0").loop("q0", one)
        .arc("q0", "q1", u1).loop("q1", f1)
        .arc("q1", "q2", u2).loop("q2", f2)
        .epsilon("q0", "q3", sigmoid(parameter("r"))).arc("q3", "q2", u2)
        .final("q1", sigmoid(parameter("p1"))).final("q2", sigmoid(parameter("p2")))
        .output(output(gate))
    )  # fmt: skip
