"""Strongly typed RNNs (Balduzzi and Ghifary 2016). T-LSTM and T-GRU see two inputs: W_z v + V_z v' is a window of 2."""

from rrnn.automata import Cell, Expr, linear, one, score, sigmoid, tanh


def t_rnn() -> Cell:
    """z = W v, f = σ(W_f v + b_f); c = f ⊙ c' + (1 − f) ⊙ z."""
    f = sigmoid(linear("f", bias=True))
    return _b("T_RNN", (1 - f) * linear("z"), f)


def t_lstm() -> Cell:
    """c = f ⊙ c' + (1 − f) ⊙ z; h = c ⊙ o, with o = tanh(W_o v + V_o v' + b_o)."""
    z, f, o = _gates()
    return _b("T_LSTM", (1 - f) * z, f).output(score * o)


def t_gru() -> Cell:
    """c = f ⊙ c' + z ⊙ o: nothing couples f to what is new."""
    z, f, o = _gates()
    return _b("T_GRU", z * o, f)


def _gates() -> tuple[Expr, Expr, Expr]:
    z, f, o = (linear(name, bias=True, window=2) for name in "zfo")
    return z, sigmoid(f), tanh(o)


def _b(name: str, u: Expr, f: Expr) -> Cell:
    return Cell(name).initial("q0").loop("q0", one).arc("q0", "q1", u).loop("q1", f).final("q1")
