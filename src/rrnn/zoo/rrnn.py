"""The paper's four models, RRNN(B), RRNN(B) over max-plus, RRNN(C), RRNN(F), and the example it starts from.

`gate=True` adds the output gate o = σ(W_o v + b_o) of the paper's language models: h = tanh(o ⊙ c).
"""

from rrnn.automata import Cell, Expr, linear, log_sigmoid, one, parameter, score, sigmoid, tanh
from rrnn.errors import CellError


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


def example() -> Cell:
    """The paper's motivating example: B with g = tanh and a bias, u = (1 − f) ⊙ tanh(W_u v + b_u)."""
    f = sigmoid(linear("f", bias=True))
    return (
        Cell("example")
        .initial("q0").loop("q0", one)
        .arc("q0", "q1", ((1 - f) * tanh(linear("u", bias=True))).named("u")).loop("q1", f)
        .final("q1")
        .output(tanh(score))
    )  # fmt: skip


def b_max_plus(gate: bool = False, inputs: str = "plain") -> Cell:
    """c = max(f + c', u) with f = log σ(W_f v + b_f), u = W_u v.

    Max-plus has no negation, so there is no 1 − f. Two inputs that the paper leaves for future work scale u in
    log space: "gated" adds log σ(W_i v + b_i), the log of an input gate; "coupled" adds log(1 − exp f), which is
    log σ(−(W_f v + b_f)).
    """
    a, u = linear("f", bias=True), linear("u")
    if inputs not in ("plain", "gated", "coupled"):
        raise CellError(f"inputs is 'plain', 'gated' or 'coupled'; got {inputs!r}")
    u = {"plain": u, "gated": u + log_sigmoid(linear("i", bias=True)), "coupled": u + log_sigmoid(-a)}[inputs]
    return (
        Cell("B_max_plus" if inputs == "plain" else f"B_max_plus_{inputs}", semiring="max-plus")
        .initial("q0").loop("q0", one)
        .arc("q0", "q1", u if inputs == "plain" else u.named("u")).loop("q1", log_sigmoid(a))
        .final("q1")
        .output(tanh(log_sigmoid(linear("o", bias=True)) + score) if gate else tanh(score))
    )  # fmt: skip


def b_max_plus_scaled() -> Cell:
    """As the authors' code has it, unlike their paper: the output gate is σ and multiplies the score, h = tanh(o ⊙ c).

    Shut, it makes an output 0; added as a logarithm, it makes it −1, and language models train far worse with that.
    """
    return b_max_plus().renamed("B_max_plus_scaled").output(output(gate=True))


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
