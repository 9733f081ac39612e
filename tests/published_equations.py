"""Compute every model of the zoo by the equations of its paper, in a plain loop over time.

`PUBLISHED[name](layer, x)` returns the outputs (T, B, H) of a single layer on x (T, B, I). It reads the layer's own
parameters, so that gradients can be compared too. To test a new model, add a line to `PUBLISHED`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch import sigmoid as σ

from rrnn.nn.layer_weights import Projection

Log = F.logsigmoid
INF = float("inf")


class Read:
    """Give access to a layer's parameters by their names in the cell, and apply projections to the input."""

    def __init__(self, layer: Any, x: Tensor) -> None:
        self.layer, self.x = layer.layers[0], x
        self.units, self.batch = self.layer.hidden_size, x.shape[1]
        self.steps = range(x.shape[0])

    def __call__(self, name: str, t: int) -> Tensor:
        """Return W v_t + V v_{t−1} + … + b, of shape (B, H)."""
        return self._apply(self.layer.projection(0, name), t)

    def _apply(self, projection: Projection, t: int) -> Tensor:
        lags = range(min(projection.window, t + 1))
        total = sum(self.x[t - k] @ projection.weight(k).T for k in lags)
        return total + (0 if projection.bias is None else projection.bias)

    def number(self, name: str) -> Tensor:
        return self.layer.parameters_of(0)[name]

    def v(self, t: int) -> Tensor:
        """Return the input, or its projection where the sizes of input and layer differ."""
        projected = self.layer.own_projection("input")
        return self.x[t] if projected is None else self._apply(projected, t)

    def zeros(self) -> Tensor:
        return self.x.new_zeros(self.batch, self.units)

    def full(self, value: float) -> Tensor:
        return self.x.new_full((self.batch, self.units), value)


Step = Callable[[Read, int, Tensor], tuple[Tensor, Tensor]]


def loop(step: Step, layer: Any, x: Tensor, start: float = 0.0) -> Tensor:
    """Return h_1 … h_T of a recurrence with one state."""
    a, outputs = Read(layer, x), []
    c = a.full(start)
    for t in a.steps:
        c, h = step(a, t, c)
        outputs.append(h)
    return torch.stack(outputs)


# ---- models of the paper ---------------------------------------------------------------------------------------------


G = Callable[[Tensor], Tensor]


def identity(x: Tensor) -> Tensor:
    return x


def b_signed(a: Read, t: int, c: Tensor) -> tuple[Tensor, Tensor]:
    f = torch.tanh(a("f", t))
    c = f * c + (1 - f) * a("u", t)
    return c, torch.tanh(c)


def b(a: Read, t: int, c: Tensor, g: G = identity) -> tuple[Tensor, Tensor]:
    f = σ(a("f", t))
    c = f * c + (1 - f) * g(a("u", t))
    return c, torch.tanh(c)


def b_max_plus(a: Read, t: int, c: Tensor, inputs: str = "plain") -> tuple[Tensor, Tensor]:
    f, u = Log(a("f", t)), a("u", t)
    if inputs == "gated":
        u = u + torch.log(σ(a("i", t)))
    if inputs == "coupled":
        u = u + torch.log(1 - torch.exp(f))
    c = torch.maximum(f + c, u)
    return c, torch.tanh(c)


def b_max_plus_scaled(a: Read, t: int, c: Tensor) -> tuple[Tensor, Tensor]:
    c = torch.maximum(Log(a("f", t)) + c, a("u", t))
    return c, torch.tanh(σ(a("o", t)) * c)


def chain(layer: Any, x: Tensor, n: int, g: G = identity) -> Tensor:
    """Compute a chain of n states after the start; C is the chain of two."""
    a, c, outputs = Read(layer, x), [], []
    c = [a.zeros() for _ in range(n)]
    for t in a.steps:
        f = [σ(a(f"f{j + 1}", t)) for j in range(n)]
        u = [(1 - f[j]) * g(a(f"u{j + 1}", t)) for j in range(n)]
        c = [f[j] * c[j] + (c[j - 1] if j else 1) * u[j] for j in range(n)]
        outputs.append(torch.tanh(c[-1]))
    return torch.stack(outputs)


def f(layer: Any, x: Tensor, g: G = identity, gate: Callable[[Tensor], Tensor] = σ) -> Tensor:
    a, outputs = Read(layer, x), []
    r, p1, p2 = (σ(a.number(name)) for name in ("r", "p1", "p2"))
    c1 = c2 = a.zeros()
    for t in a.steps:
        f1, f2 = gate(a("f1", t)), gate(a("f2", t))
        u1, u2 = (1 - f1) * g(a("u1", t)), (1 - f2) * g(a("u2", t))
        c1, c2 = f1 * c1 + u1, f2 * c2 + (c1 + r) * u2
        outputs.append(torch.tanh(p1 * c1 + p2 * c2))
    return torch.stack(outputs)


# ---- models of other papers -----------------------------------------------------------------------------------------


def sru(a: Read, t: int, c: Tensor) -> tuple[Tensor, Tensor]:
    f, r = σ(a("f", t)), σ(a("r", t))
    c = f * c + (1 - f) * a("x", t)
    return c, r * torch.tanh(c) + (1 - r) * a.v(t)


def rcnn(layer: Any, x: Tensor, constant: bool = False, additive: bool = False) -> Tensor:
    a, outputs = Read(layer, x), []
    c1 = c2 = a.zeros()
    for t in a.steps:
        λ = σ(a.number("lambda") if constant else a("lambda", t))
        u1, u2 = a("u1", t), a("u2", t)
        c1, c2 = (
            λ * c1 + (1 - λ) * u1,
            λ * c2 + (1 - λ) * (c1 + u2 if additive else c1 * u2),
        )
        outputs.append(torch.tanh(c2 + a.number("b")))
    return torch.stack(outputs)


def scrn_context(a: Read, t: int, s: Tensor) -> tuple[Tensor, Tensor]:
    s = (1 - 0.95) * a("b", t) + 0.95 * s
    return s, s


def t_rnn(a: Read, t: int, c: Tensor) -> tuple[Tensor, Tensor]:
    f = σ(a("f", t))
    c = f * c + (1 - f) * a("z", t)
    return c, c


def t_lstm(a: Read, t: int, c: Tensor) -> tuple[Tensor, Tensor]:
    z, f, o = a("z", t), σ(a("f", t)), torch.tanh(a("o", t))
    c = f * c + (1 - f) * z
    return c, c * o


def t_gru(a: Read, t: int, c: Tensor) -> tuple[Tensor, Tensor]:
    z, f, o = a("z", t), σ(a("f", t)), torch.tanh(a("o", t))
    c = f * c + z * o
    return c, c


def qrnn(a: Read, t: int, c: Tensor, pooling: str = "fo") -> tuple[Tensor, Tensor]:
    z, f = torch.tanh(a("z", t)), σ(a("f", t))
    c = f * c + (σ(a("i", t)) if pooling == "ifo" else 1 - f) * z
    return c, c if pooling == "f" else σ(a("o", t)) * c


def sopa(layer: Any, x: Tensor, semiring: str = "max-plus", n: int = 4) -> Tensor:
    """Follow the update in the authors' code: ε-arcs, then main transitions and self-loops; z[0] becomes one again."""
    a, outputs = Read(layer, x), []
    plus = torch.add if semiring == "real" else torch.maximum
    times = torch.add if semiring == "max-plus" else torch.mul
    zero, one = (-INF, 0.0) if semiring == "max-plus" else (0.0, 1.0)

    def weight(score: Tensor) -> Tensor:
        return score if semiring == "max-plus" else σ(score)

    z, document = [a.full(one), *(a.full(zero) for _ in range(n))], a.full(zero)
    for t in a.steps:
        dropped = [times(z[j - 1], weight(a.number(f"e{j}"))) for j in range(1, n + 1)]
        z = [z[0], *(plus(z[j], dropped[j - 1]) for j in range(1, n + 1))]
        main = [a.full(one), *(times(z[j - 1], weight(a(f"u{j}", t))) for j in range(1, n + 1))]
        z = [plus(main[j], times(z[j], weight(a(f"s{j}", t)))) for j in range(n + 1)]
        document = plus(document, z[n])
        outputs.append(torch.tanh(document) if semiring == "max-plus" else document)
    return torch.stack(outputs)


def cnn(layer: Any, x: Tensor, n: int = 3) -> Tensor:
    """Compute each window by itself, then the maximum over the windows so far."""
    a, outputs, best = Read(layer, x), [], None
    for t in a.steps:
        if t >= n - 1:
            window = sum(a(f"w{j}", t - n + j) for j in range(1, n + 1))
            best = window if best is None else torch.maximum(best, window)
        outputs.append(a.zeros() if best is None else torch.relu(best))
    return torch.stack(outputs)


def min_gru(a: Read, t: int, c: Tensor) -> tuple[Tensor, Tensor]:
    z = σ(a("z", t))
    c = (1 - z) * c + z * a("h", t)
    return c, c


def min_lstm(a: Read, t: int, c: Tensor) -> tuple[Tensor, Tensor]:
    f, i = σ(a("f", t)), σ(a("i", t))
    c = f / (f + i) * c + i / (f + i) * a("h", t)
    return c, c


def hgrn(a: Read, t: int, c: Tensor) -> tuple[Tensor, Tensor]:
    γ = σ(a.number("gamma"))
    λ = γ + (1 - γ) * σ(a("f", t))
    c = λ * c + (1 - λ) * F.silu(a("i", t))
    return c, σ(a("g", t)) * c


def rg_lru(a: Read, t: int, c: Tensor) -> tuple[Tensor, Tensor]:
    r, i = σ(a("r", t)), σ(a("i", t))
    log_a = -8 * F.softplus(a.number("Lambda")) * r
    c = torch.exp(log_a) * c + torch.sqrt(-torch.expm1(2 * log_a)) * (i * a.v(t))
    return c, c


# ---- cells that count: matrices of permutations, drawn by breaking a stick -------------------------------------------


def permuting(layer: Any, x: Tensor, moves: list[tuple[int, ...]]) -> Tensor:
    """Multiply the distribution over states by the mixture of permutation matrices, one unit and sequence at a time."""
    a, outputs, n = Read(layer, x), [], len(moves[0])
    matrices = torch.stack([torch.eye(n, dtype=x.dtype)[list(move)] for move in moves])
    ends = torch.stack([a.zeros()[0] + 1, *(a.number(f"p{i}") for i in range(1, n))])
    c = torch.stack([a.full(1.0), *(a.zeros() for _ in range(n - 1))], -1)
    for t in a.steps:
        gates = [σ(a(name, t)) for name in ("f", *(f"g{i}" for i in range(1, len(moves) - 1)))]
        left, weights = torch.ones_like(gates[0]), []
        for gate in gates:
            weights.append(left * gate)
            left = left - left * gate
        mixture = torch.einsum("mbh,mij->bhij", torch.stack([*weights, left]), matrices)
        c = torch.einsum("bhi,bhij->bhj", c, mixture)
        outputs.append(torch.einsum("bhj,jh->bh", c, ends))
    return torch.stack(outputs)


# ---- layers that are no cells: they have parameters of their own -----------------------------------------------------


def scrn(layer: Any, x: Tensor) -> Tensor:
    s = loop(scrn_context, layer.context, x)
    h, outputs = x.new_zeros(x.shape[1], layer.hidden_size), []
    for t in range(x.shape[0]):
        h = σ(s[t] @ layer.P.T + x[t] @ layer.A.T + h @ layer.R.T)
        outputs.append(torch.cat([h, s[t]], -1))
    return torch.stack(outputs)


def state_rcnn(layer: Any, x: Tensor) -> Tensor:
    p, outputs = layer.layers[0], []
    W_λ, W_1, W_2 = p.weight.chunk(3)
    b_λ, bias = p.bias
    c1 = c2 = x.new_zeros(x.shape[1], layer.hidden_size)
    for v in x:
        λ = σ(c2 @ p.recurrent.T + v @ W_λ.T + b_λ)
        c1, c2 = λ * c1 + (1 - λ) * (v @ W_1.T), λ * c2 + (1 - λ) * c1 * (v @ W_2.T)
        outputs.append(torch.tanh(c2 + bias))
    return torch.stack(outputs)


def sru_v2(layer: Any, x: Tensor) -> Tensor:
    p, outputs = layer.layers[0], []
    W, W_f, W_r, *W_x = p.weight.split(layer.hidden_size)
    c = x.new_zeros(x.shape[1], layer.hidden_size)
    for v in x:
        f = σ(v @ W_f.T + p.peephole[0] * c + p.bias[0])
        r = σ(v @ W_r.T + p.peephole[1] * c + p.bias[1])
        c = f * c + (1 - f) * (v @ W.T)
        outputs.append(r * c + (1 - r) * (v @ W_x[0].T if W_x else v))
    return torch.stack(outputs)


def isan(layer: Any, x: Tensor) -> Tensor:
    c, outputs = layer.weight.new_zeros(x.shape[1], layer.hidden_size), []
    for symbols in x:
        c = torch.stack([layer.weight[s] @ c[b] + layer.bias[s] for b, s in enumerate(symbols.tolist())])
        outputs.append(c)
    return torch.stack(outputs)


def linear_elman(layer: Any, x: Tensor) -> Tensor:
    c, outputs = x.new_zeros(x.shape[1], layer.hidden_size), []
    for v in x:
        c = c @ layer.weight_hh.T + v @ layer.weight_ih.T + layer.bias
        outputs.append(c)
    return torch.stack(outputs)


def lstm(layer: Any, x: Tensor) -> Tensor:
    h = c = x.new_zeros(x.shape[1], layer.hidden_size)
    outputs = []
    for v in x:
        gates = v @ layer.weight_ih_l0.T + layer.bias_ih_l0 + h @ layer.weight_hh_l0.T + layer.bias_hh_l0
        i, f, g, o = gates.chunk(4, -1)
        c = σ(f) * c + σ(i) * torch.tanh(g)
        h = σ(o) * torch.tanh(c)
        outputs.append(h)
    return torch.stack(outputs)


def gru(layer: Any, x: Tensor) -> Tensor:
    h, outputs = x.new_zeros(x.shape[1], layer.hidden_size), []
    for v in x:
        ir, iz, in_ = (v @ layer.weight_ih_l0.T + layer.bias_ih_l0).chunk(3, -1)
        hr, hz, hn = (h @ layer.weight_hh_l0.T + layer.bias_hh_l0).chunk(3, -1)
        z = σ(iz + hz)
        h = (1 - z) * torch.tanh(in_ + σ(ir + hr) * hn) + z * h
        outputs.append(h)
    return torch.stack(outputs)


def rnn(layer: Any, x: Tensor) -> Tensor:
    h, outputs = x.new_zeros(x.shape[1], layer.hidden_size), []
    for v in x:
        gates = v @ layer.weight_ih_l0.T + layer.bias_ih_l0 + h @ layer.weight_hh_l0.T + layer.bias_hh_l0
        h = torch.tanh(gates)
        outputs.append(h)
    return torch.stack(outputs)


PUBLISHED: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "B": partial(loop, b),
    "B-max-plus": partial(loop, b_max_plus, start=-INF),
    "B-max-plus-gated": partial(loop, partial(b_max_plus, inputs="gated"), start=-INF),
    "B-max-plus-coupled": partial(loop, partial(b_max_plus, inputs="coupled"), start=-INF),
    "B-max-plus-scaled": partial(loop, b_max_plus_scaled, start=-INF),
    "C": partial(chain, n=2),
    "F": f,
    "ngram4": partial(chain, n=4),
    "example": partial(loop, partial(b, g=torch.tanh)),
    "B:g=relu,b_u": partial(loop, partial(b, g=torch.relu)),
    "C:g=tanh,b_u": partial(chain, n=2, g=torch.tanh),
    "F:g=tanh,b_u": partial(f, g=torch.tanh),
    "F:b_u": f,
    "ngram3:g=sigmoid": partial(chain, n=3, g=σ),
    "SRU": partial(loop, sru),
    "RCNN2": rcnn,
    "RCNN2-constant": partial(rcnn, constant=True),
    "RCNN2-additive": partial(rcnn, additive=True),
    "SCRN-context": partial(loop, scrn_context),
    "T-RNN": partial(loop, t_rnn),
    "T-LSTM": partial(loop, t_lstm),
    "T-GRU": partial(loop, t_gru),
    "QRNN2": partial(loop, qrnn),
    "QRNN2-f": partial(loop, partial(qrnn, pooling="f")),
    "QRNN2-ifo": partial(loop, partial(qrnn, pooling="ifo")),
    "QRNN3-ifo": partial(loop, partial(qrnn, pooling="ifo")),
    "SoPa4": sopa,
    "SoPa4-real": partial(sopa, semiring="real"),
    "SoPa4-max-times": partial(sopa, semiring="max-times"),
    "SoPa2": partial(sopa, n=2),
    "CNN3": cnn,
    "CNN1": partial(cnn, n=1),
    "minGRU": partial(loop, min_gru),
    "minLSTM": partial(loop, min_lstm),
    "HGRN": partial(loop, hgrn),
    "RG-LRU": partial(loop, rg_lru),
    "B-signed": partial(loop, b_signed),
    "F-signed": partial(f, gate=torch.tanh),
    "ring3": partial(permuting, moves=[(0, 1, 2), (1, 2, 0), (2, 0, 1)]),
    "ring2": partial(permuting, moves=[(0, 1), (1, 0)]),
    "S3": partial(permuting, moves=[(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]),
    "ISAN": isan,
    "linear-Elman": linear_elman,
    "SCRN": scrn,
    "RCNN2-state": state_rcnn,
    "SRU-v2": sru_v2,
    "LSTM": lstm,
    "GRU": gru,
    "RNN": rnn,
}
