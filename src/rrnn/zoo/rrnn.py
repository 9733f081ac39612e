"""Cells of Peng et al. 2018: RRNN(B), RRNN(B) over max-plus, RRNN(C), RRNN(F), n-gram chains, and the paper's example.

Primes mark the previous step. `gate=True` adds the output gate o = σ(W_o v + b_o) of the paper's language models:
h = tanh(o ⊙ c). `g` and `b_u` are those of the paper's u = (1 − f) ⊙ g(W_u v + b_u): its experiments have neither, so
by default g is the identity and there is no b_u.
`signed=True` lets forget gates lie in [−1, 1], f = tanh(W_f v + b_f), so that a unit can count modulo
two (Grazzi et al. 2025): c = f ⊙ c' + (1 − f) ⊙ u with f = −1 reflects c' in u, and twice is the identity.
"""

from collections.abc import Callable

from rrnn.automata import Cell, Expr, linear, log_sigmoid, one, parameter, relu, score, sigmoid, silu, tanh
from rrnn.errors import CellError, nearest

MAX_LENGTH = 64
"""The longest chain that the zoo builds."""


def b_automaton(name: str, arc: Expr, loop: Expr | float, semiring: str = "real") -> Cell:
    """Return a cell with the automaton of B: c = loop ⊗ c' ⊕ arc."""
    return (
        Cell(name, semiring)
        .initial("q0").loop("q0", one)
        .arc("q0", "q1", arc).loop("q1", loop)
        .final("q1")
    )  # fmt: skip


def check_length(what: str, name: str, value: object) -> None:
    """Raise unless `value`, the option `name` of a chain, is a whole number from 1 to 64."""
    if not isinstance(value, int) or not 1 <= value <= MAX_LENGTH:
        raise CellError(f"{what} takes {name} from 1 to {MAX_LENGTH}; got {value!r}")


NONLINEARITIES: dict[str, Callable[[Expr], Expr]] = {
    "tanh": tanh,
    "relu": relu,
    "sigmoid": sigmoid,
    "silu": silu,
}
"""The functions that the option `g` names, beside "identity"."""


def forget_gate(activation: Expr, signed: bool) -> Expr:
    """Return σ of a pre-activation, or tanh if the gate is signed."""
    return tanh(activation) if signed else sigmoid(activation)


def gates(
    suffix: str = "", g: str = "identity", b_u: bool = False, signed: bool = False
) -> tuple[Expr, Expr]:
    """Return the forget gate f = σ(W_f v + b_f), or tanh if signed, and the input u = (1 − f) ⊙ g(W_u v + b_u)."""
    if g != "identity" and g not in NONLINEARITIES:
        names = ", ".join(map(repr, NONLINEARITIES))
        raise CellError(f"g must be 'identity', {names}; got {g!r}.{nearest(g, NONLINEARITIES)}")
    if not isinstance(b_u, bool):
        raise CellError(f"b_u must be True or False; got {b_u!r}")
    f = forget_gate(linear(f"f{suffix}", bias=True), signed)
    u = linear(f"u{suffix}", bias=b_u)
    if g == "identity":
        return f, (1 - f) * u
    return f, ((1 - f) * NONLINEARITIES[g](u)).named(f"u{suffix}")


def named(name: str, signed: bool) -> str:
    """Return the name of a cell, or of its signed variant."""
    return f"{name}_signed" if signed else name


def output(gate: bool) -> Expr:
    """Return the output expression tanh(c), or tanh(o ⊙ c) with an output gate."""
    return tanh(sigmoid(linear("o", bias=True)) * score) if gate else tanh(score)


def b(gate: bool = False, g: str = "identity", b_u: bool = False, signed: bool = False) -> Cell:
    """Build RRNN(B), which finds soft unigrams: c = f ⊙ c' + u."""
    f, u = gates("", g, b_u, signed)
    return b_automaton(named("B", signed), u, f).output(output(gate))


def example(signed: bool = False) -> Cell:
    """Build the paper's motivating example: B with a tanh and a bias, u = (1 − f) ⊙ tanh(W_u v + b_u)."""
    return b(g="tanh", b_u=True, signed=signed).renamed(named("example", signed))


def b_max_plus(gate: bool = False, inputs: str = "plain") -> Cell:
    """Build RRNN(B) over max-plus: c = max(f + c', u) with f = log σ(W_f v + b_f) and u = W_u v.

    Max-plus has no negation, so there is no 1 − f. Two variants, which the paper leaves for future work, scale u in
    log space: inputs="gated" adds log σ(W_i v + b_i), the logarithm of an input gate; inputs="coupled" adds
    log(1 − exp f), which is log σ(−(W_f v + b_f)).
    """
    a, u = linear("f", bias=True), linear("u")
    if inputs not in ("plain", "gated", "coupled"):
        raise CellError(f"inputs must be 'plain', 'gated' or 'coupled'; got {inputs!r}")
    u = {"plain": u, "gated": u + log_sigmoid(linear("i", bias=True)), "coupled": u + log_sigmoid(-a)}[inputs]
    cell = b_automaton(
        "B_max_plus" if inputs == "plain" else f"B_max_plus_{inputs}",
        u if inputs == "plain" else u.named("u"),
        log_sigmoid(a),
        "max-plus",
    )
    return cell.output(tanh(log_sigmoid(linear("o", bias=True)) + score) if gate else tanh(score))


def b_max_plus_scaled() -> Cell:
    """Build RRNN(B) over max-plus as the authors' code does, unlike their paper: h = tanh(o ⊙ c) with o = σ(…).

    A closed gate makes the output 0 here. Added as a logarithm, it makes the output −1, and language models train far
    worse with that.
    """
    return b_max_plus().renamed("B_max_plus_scaled").output(output(gate=True))


def c(gate: bool = False, g: str = "identity", b_u: bool = False, signed: bool = False) -> Cell:
    """Build RRNN(C), which finds soft bigrams: c¹ = f¹ ⊙ c¹' + u¹; c² = f² ⊙ c²' + c¹' ⊙ u²."""
    return ngram(2, gate, g, b_u, signed).renamed(named("C", signed))


def f(gate: bool = False, g: str = "identity", b_u: bool = False, signed: bool = False) -> Cell:
    """Build RRNN(F), which finds unigrams and bigrams and whose ε-arc skips the first word.

    c² = f² ⊙ c²' + (c¹' + r) ⊙ u²; c = p¹ ⊙ c¹ + p² ⊙ c².
    """
    (f1, u1), (f2, u2) = gates("1", g, b_u, signed), gates("2", g, b_u, signed)
    return (
        Cell(named("F", signed))
        .initial("q0").loop("q0", one)
        .arc("q0", "q1", u1).loop("q1", f1)
        .arc("q1", "q2", u2).loop("q2", f2)
        .epsilon("q0", "q3", sigmoid(parameter("r"))).arc("q3", "q2", u2)
        .final("q1", sigmoid(parameter("p1"))).final("q2", sigmoid(parameter("p2")))
        .output(output(gate))
    )  # fmt: skip


def ngram(
    n: int = 4, gate: bool = False, g: str = "identity", b_u: bool = False, signed: bool = False
) -> Cell:
    """Build the n-gram chain of n + 1 states: cʲ = fʲ ⊙ cʲ' + cʲ⁻¹' ⊙ uʲ with c⁰ = 1. n = 1 is B, n = 2 is C."""
    check_length("an n-gram chain", "n", n)
    return chain(n, gate, g, b_u, signed)


def chain(n: int, gate: bool = False, g: str = "identity", b_u: bool = False, signed: bool = False) -> Cell:
    """Build the n-gram chain of any length n ≥ 1."""
    cell = Cell(named(f"ngram{n}", signed)).initial("q0").loop("q0", one)
    for j in range(1, n + 1):
        f, u = gates(str(j), g, b_u, signed)
        cell = cell.arc(f"q{j - 1}", f"q{j}", u).loop(f"q{j}", f)
    return cell.final(f"q{n}").output(output(gate))
