"""Relatives of B: gated recurrences c = a ⊙ c' + b, which have B's automaton with other weight functions.

`signed=True`, where a cell has it, makes the forget gate f a tanh instead of a sigmoid (see `rrnn.zoo.rrnn`).
"""

from rrnn.automata import (
    Cell,
    Expr,
    exp,
    input,
    linear,
    log_sigmoid,
    parameter,
    relu,
    score,
    sigmoid,
    softplus,
    sqrt,
    tanh,
)
from rrnn.errors import CellError
from rrnn.zoo.rrnn import b_automaton, forget_gate, named


def scrn(alpha: float = 0.95) -> Cell:
    """Build the context units of SCRN (Mikolov et al. 2015): s = (1 − α) B v + α s', with a constant loop α.

    The whole SCRN, whose hidden layer is not rational, is `rrnn.zoo.controls.SCRN`.
    """
    alpha = _fraction("alpha", alpha)
    return b_automaton("SCRN", round(1 - alpha, 15) * linear("b"), alpha)


# ---- strongly typed RNNs (Balduzzi and Ghifary 2016) -----------------------------------------------------------------


def t_rnn(signed: bool = False) -> Cell:
    """Build T-RNN: c = f ⊙ c' + (1 − f) ⊙ z with z = W v and f = σ(W_f v + b_f)."""
    f = forget_gate(linear("f", bias=True), signed)
    return b_automaton(named("T_RNN", signed), (1 - f) * linear("z"), f)


def t_lstm(signed: bool = False) -> Cell:
    """Build T-LSTM: c = f ⊙ c' + (1 − f) ⊙ z; h = c ⊙ o with o = tanh(W_o v + V_o v' + b_o)."""
    z, f, o = _typed_gates(signed)
    return b_automaton(named("T_LSTM", signed), (1 - f) * z, f).output(score * o)


def t_gru(signed: bool = False) -> Cell:
    """Build T-GRU: c = f ⊙ c' + z ⊙ o. Nothing couples f to the new input."""
    z, f, o = _typed_gates(signed)
    return b_automaton(named("T_GRU", signed), z * o, f)


def _typed_gates(signed: bool) -> tuple[Expr, Expr, Expr]:
    """Return z, f and o of T-LSTM and T-GRU, which see two inputs: W_z v + V_z v' is a window of 2."""
    z, f, o = (linear(name, bias=True, window=2) for name in "zfo")
    return z, forget_gate(f, signed), tanh(o)


# ---- SRU and QRNN ----------------------------------------------------------------------------------------------------


def sru(activation: str = "tanh", signed: bool = False) -> Cell:
    """Build SRU (version 1, Lei et al. 2017): B with a highway connection, h = r ⊙ g(c) + (1 − r) ⊙ v."""
    g = {"tanh": tanh(score), "relu": relu(score), "identity": score}.get(activation)
    if g is None:
        raise CellError(f"SRU's activation must be 'tanh', 'relu' or 'identity'; got {activation!r}")
    f, r = forget_gate(linear("f", bias=True), signed), sigmoid(linear("r", bias=True))
    return b_automaton(named("SRU", signed), (1 - f) * linear("x"), f).output(r * g + (1 - r) * input())


def qrnn(window: int = 2, pooling: str = "fo", signed: bool = False) -> Cell:
    """Build QRNN (Bradbury et al. 2017): B whose gates z = tanh(…) and f, o, i = σ(…) see the `window` latest inputs.

    pooling="f":   c = f ⊙ c' + (1 − f) ⊙ z; h = c.
    pooling="fo":  c = f ⊙ c' + (1 − f) ⊙ z; h = o ⊙ c.
    pooling="ifo": c = f ⊙ c' + i ⊙ z; h = o ⊙ c.

    Zoneout, f ← 1 − dropout(1 − f) in training, is an option of the layer: `RationalRNN(…, zoneout=0.1)`. The public
    pytorch-qrnn calls the *input* gate F; `rrnn.zoo.convert.from_qrnn` loads its weights.
    """
    if pooling not in ("f", "fo", "ifo"):
        raise CellError(f"QRNN's pooling must be 'f', 'fo' or 'ifo'; got {pooling!r}")
    z, f, o, i = (linear(name, bias=True, window=window) for name in "zfoi")
    f = forget_gate(f, signed)
    new = sigmoid(i) if pooling == "ifo" else 1 - f
    cell = b_automaton(named(f"QRNN{window}_{pooling}", signed), (new * tanh(z)).named("u"), f)
    return cell.output(score if pooling == "f" else sigmoid(o) * score)


# ---- recent ones -----------------------------------------------------------------------------------------------------


def min_gru() -> Cell:
    """Build minGRU (Feng et al. 2024): c = (1 − z) ⊙ c' + z ⊙ h̃ with z = σ(W_z x + b_z), h̃ = W_h x + b_h."""
    z = sigmoid(linear("z", bias=True))
    return b_automaton("minGRU", z * linear("h", bias=True), 1 - z)


def min_lstm() -> Cell:
    """Build minLSTM (Feng et al. 2024): c = f' ⊙ c' + i' ⊙ h̃ with f' = f / (f + i), i' = i / (f + i).

    f / (f + i) is computed as σ(log f − log i), which needs no division and cannot overflow; i' is 1 − f'.
    """
    f = sigmoid(log_sigmoid(linear("f", bias=True)) - log_sigmoid(linear("i", bias=True))).named("f")
    return b_automaton("minLSTM", (1 - f) * linear("h", bias=True), f)


def hgrn(gamma: float | None = None) -> Cell:
    """Build HGRN (Qin et al. 2023) over the reals: c = f ⊙ c' + (1 − f) ⊙ silu(W_i x + b_i), h = σ(W_g x + b_g) ⊙ c.

    f = γ + (1 − γ) ⊙ σ(W_f x + b_f). The lower bound γ is the number `gamma`, or by default learned per unit as σ(γ).
    """
    bound: Expr | float = sigmoid(parameter("gamma")) if gamma is None else _fraction("gamma", gamma)
    f = (bound + (1 - bound) * sigmoid(linear("f", bias=True))).named("f")
    i = linear("i", bias=True)
    new = (1 - f) * (i * sigmoid(i))
    return b_automaton("HGRN", new, f).output(sigmoid(linear("g", bias=True)) * score)


def rg_lru() -> Cell:
    """Build RG-LRU (De et al. 2024): c = a ⊙ c' + √(1 − a²) ⊙ (i ⊙ x) with a = exp(−8 softplus(Λ) ⊙ r).

    r = σ(W_a x + b_a), i = σ(W_x x + b_x); x is the unit's own component of the layer's input.
    """
    a = exp(-8 * softplus(parameter("Lambda")) * sigmoid(linear("r", bias=True))).named("a")
    return b_automaton("RG_LRU", sqrt(1 - a * a) * (sigmoid(linear("i", bias=True)) * input()), a)


def _fraction(name: str, value: object) -> float:
    """Return `value` as a float; raise unless it is a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise CellError(f"{name} must be a number from 0 to 1; got {value!r}")
    return float(value)
