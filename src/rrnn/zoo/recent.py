"""Recent relatives of B: the same automaton with other weight functions. c = a ⊙ c' + b in each of them."""

from rrnn.automata import (
    Cell,
    Expr,
    exp,
    input,
    linear,
    log_sigmoid,
    one,
    parameter,
    score,
    sigmoid,
    softplus,
    sqrt,
)
from rrnn.zoo.options import share


def min_gru() -> Cell:
    """minGRU (Feng et al. 2024): c = (1 − z) ⊙ c' + z ⊙ h̃ with z = σ(W_z x + b_z), h̃ = W_h x + b_h."""
    z = sigmoid(linear("z", bias=True))
    return _b("minGRU", 1 - z, z * linear("h", bias=True))


def min_lstm() -> Cell:
    """minLSTM (Feng et al. 2024): c = f' ⊙ c' + i' ⊙ h̃ with f' = f / (f + i), i' = i / (f + i).

    f / (f + i) is σ(log f − log i), which needs no division and cannot overflow; i' is one minus it.
    """
    f = sigmoid(log_sigmoid(linear("f", bias=True)) - log_sigmoid(linear("i", bias=True))).named("f")
    return _b("minLSTM", f, (1 - f) * linear("h", bias=True))


def hgrn(gamma: float | None = None) -> Cell:
    """HGRN (Qin et al. 2023) over the reals: c = f ⊙ c' + (1 − f) ⊙ silu(W_i x + b_i), h = σ(W_g x + b_g) ⊙ c, with
    f = γ + (1 − γ) ⊙ σ(W_f x + b_f). The lower bound γ is a number, or learned per unit: σ(γ)."""
    bound: Expr | float = sigmoid(parameter("gamma")) if gamma is None else share("gamma", gamma)
    f = (bound + (1 - bound) * sigmoid(linear("f", bias=True))).named("f")
    i = linear("i", bias=True)
    return _b("HGRN", f, (1 - f) * (i * sigmoid(i))).output(sigmoid(linear("g", bias=True)) * score)


def rg_lru() -> Cell:
    """RG-LRU (De et al. 2024): c = a ⊙ c' + √(1 − a²) ⊙ (i ⊙ x) with a = exp(−8 softplus(Λ) ⊙ r), r = σ(W_a x + b_a),
    i = σ(W_x x + b_x); x is the layer's own input at the unit."""
    a = exp(-8 * softplus(parameter("Lambda")) * sigmoid(linear("r", bias=True))).named("a")
    return _b("RG_LRU", a, sqrt(1 - a * a) * (sigmoid(linear("i", bias=True)) * input()))


def _b(name: str, loop: Expr, arc: Expr) -> Cell:
    return Cell(name).initial("q0").loop("q0", one).arc("q0", "q1", arc).loop("q1", loop).final("q1")
