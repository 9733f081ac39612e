"""The recurrences of `rrnn.zoo.wide` as their papers print them: loops over time in float64, each unit by itself.

Nothing here uses programs or backends. A layer's weights are read by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from rrnn import RationalRNN


class Weights:
    """The projections of an input and the parameters of a layer of one cell, each unit with its own copy."""

    def __init__(self, rnn: RationalRNN, x: Tensor) -> None:
        self.layer, self.x, self.rnn = rnn.layers[0], x, rnn
        self.units = rnn.hidden_size

    def _per_unit(self, flat: Tensor, states: int | None, per: str) -> Tensor:
        """Return (…, states, units) or (…, units) of numbers laid out as the layer has them."""
        sharers = {"unit": self.units, "head": self.rnn.heads, "group": self.rnn.groups}[per]
        if per == "unit":
            return flat if states is None else flat.unflatten(-1, (states, self.units))
        value = flat if states is None else flat.unflatten(-1, (sharers, states)).transpose(-1, -2)
        return value.repeat_interleave(self.units // sharers, -1)

    def projection(self, name: str, states: int | None = None, per: str = "unit") -> Tensor:
        found = self.layer.projection(0, name)  # type: ignore[operator]
        value = self.x @ found.weight().T
        value = value if found.bias is None else value + found.bias.flatten()
        return self._per_unit(value, states, per)

    def parameter(self, name: str, states: int | None = None, per: str = "unit") -> Tensor:
        return self._per_unit(self.layer.parameters_of(0)[name].flatten(), states, per)  # type: ignore[operator]


Twin = Callable[[Weights, int], tuple[Tensor, Tensor]]
"""(weights, states of the family) → outputs (T, B, units) and the last states (states, B, units)."""


def loop(decay: Tensor, entry: Tensor, read: Tensor) -> tuple[Tensor, Tensor]:
    """Return Σ_i read_i z_i and the last z, with z_i(t) = decay_i(t) z_i(t − 1) + entry_i(t), (T, B, states, units)."""
    entry = entry + torch.zeros_like(decay)
    z, out = torch.zeros_like(entry[0]), []
    for t in range(entry.shape[0]):
        z = decay.expand_as(entry)[t] * z + entry[t]
        out.append((read.expand_as(entry)[t] * z).sum(-2))
    return torch.stack(out), z


def rows(z: Tensor) -> Tensor:
    """Return the last states as a layer has them: rows of states, first all real, then all imaginary parts."""
    z = z.movedim(-2, 0)
    return torch.cat([z.real, z.imag]) if z.is_complex() else z


def linear_attention(w: Weights, n: int) -> tuple[Tensor, Tensor]:
    k, q = (F.elu(w.projection(name, n, "head")) + 1 for name in "kq")
    out, z = loop(torch.ones_like(k), k * w.projection("v").unsqueeze(-2), q)
    return out, rows(z)


def retnet(w: Weights, n: int) -> tuple[Tensor, Tensor]:
    k, q = (
        torch.complex(w.projection(f"{a}_re", n, "head"), w.projection(f"{a}_im", n, "head")) for a in "kq"
    )
    heads = torch.arange(w.rnn.heads, dtype=torch.float64).repeat_interleave(w.units // w.rnn.heads)
    theta = 10000.0 ** (-torch.arange(n, dtype=torch.float64) / n)
    decay = torch.polar((1 - 2 ** (-5 - heads)).expand(n, -1), theta.unsqueeze(-1).expand(-1, w.units))
    entry = k.conj() * w.projection("v").unsqueeze(-2) * (2 * n) ** -0.5
    out, z = loop(decay.expand_as(entry), entry, q)
    return out.real, rows(z)


def gla(w: Weights, n: int) -> tuple[Tensor, Tensor]:
    alpha = torch.sigmoid(w.projection("alpha", n, "head")) ** (1 / 16)
    entry = w.projection("k", n, "head") * w.projection("v").unsqueeze(-2)
    out, z = loop(alpha, entry, w.projection("q", n, "head") / n**0.5)
    return out, rows(z)


def hgrn2(w: Weights, n: int) -> tuple[Tensor, Tensor]:
    f = torch.sigmoid(w.projection("f", n, "head"))
    out, z = loop(f, (1 - f) * w.projection("v").unsqueeze(-2), w.projection("q", n, "head"))
    return out, rows(z)


def mamba(w: Weights, n: int) -> tuple[Tensor, Tensor]:
    delta, a = F.softplus(w.projection("delta")).unsqueeze(-2), -torch.exp(w.parameter("A_log", n))
    b, c = w.projection("B", n, "head"), w.projection("C", n, "head")
    out, z = loop(torch.exp(delta * a), delta * b * w.x.unsqueeze(-2), c)
    return out + w.parameter("D") * w.x, rows(z)


def mamba2(w: Weights, n: int) -> tuple[Tensor, Tensor]:
    delta = F.softplus(w.projection("delta", per="head")).unsqueeze(-2)
    a = -torch.exp(w.parameter("A_log", per="head"))
    b, c = w.projection("B", n, "group"), w.projection("C", n, "group")
    out, z = loop(torch.exp(delta * a).expand_as(b), delta * b * w.x.unsqueeze(-2), c)
    return out + w.parameter("D", per="head") * w.x, rows(z)


def mamba3(w: Weights, n: int) -> tuple[Tensor, Tensor]:
    """Turn keys and queries by the sum of all angles so far, as the authors' code does, instead of the state."""
    delta = F.softplus(w.projection("delta", per="head"))
    a = torch.clamp(-F.softplus(w.projection("A", per="head")), max=-1e-4)
    trap = torch.sigmoid(w.projection("lambda_", per="head"))
    alpha = torch.exp(delta * a)
    beta, gamma = (1 - trap) * delta * alpha, trap * delta
    angle = (math.pi * torch.tanh(w.projection("theta", n, "group")) * delta.unsqueeze(-2)).cumsum(0)

    def turned(name: str) -> Tensor:
        re, im = (
            w.projection(f"{name}_{part}", n, "group") + w.parameter(f"{name}_{part}_1", n, "head")
            for part in ("re", "im")
        )
        return torch.complex(re, im) * torch.polar(torch.ones_like(angle), angle)

    k, q, v = turned("B"), turned("C"), w.projection("x")
    entry = k * v.unsqueeze(-2)
    s, before, out = torch.zeros_like(entry[0]), torch.zeros_like(entry[0]), []
    for t in range(v.shape[0]):
        s = alpha[t].unsqueeze(-2) * s + beta[t].unsqueeze(-2) * before + gamma[t].unsqueeze(-2) * entry[t]
        before = entry[t]
        out.append((q[t].conj() * s).sum(-2).real)
    back = torch.polar(torch.ones_like(angle[-1]), -angle[-1])
    last = torch.cat([rows(s * back), rows(before * back)])
    return torch.stack(out) + w.parameter("D", per="head") * v, last


def rwkv6(w: Weights, n: int) -> tuple[Tensor, Tensor]:
    k, r = (w.projection(name, n, "head") for name in "kr")
    decay = torch.exp(-torch.exp(w.projection("w", n, "head")))
    u, kv = w.parameter("u", n, "head"), k * w.projection("v").unsqueeze(-2)
    z, out, read = torch.zeros_like(kv[0]), [], torch.zeros_like(kv[0, :, 0])
    for t in range(kv.shape[0]):
        read = (r[t] * z).sum(-2)
        out.append((r[t] * (z + u * kv[t])).sum(-2))
        z = decay[t] * z + kv[t]
    return torch.stack(out), torch.cat([rows(z), read.unsqueeze(0), rows(kv[-1])])


def _delta(w: Weights, n: int, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """Run S = α (I − β k kᵀ) S + β k vᵀ with matrices, a head at a time."""
    heads, d = w.rnn.heads, w.units // w.rnn.heads
    k, q = (w.projection(name, n, "head").unflatten(-1, (heads, d))[..., 0] for name in "kq")
    beta = torch.sigmoid(w.projection("beta", per="head")).unflatten(-1, (heads, d))[..., 0]
    alpha = alpha.expand(*beta.shape[:2], w.units).unflatten(-1, (heads, d))[..., 0]
    v = w.projection("v").unflatten(-1, (heads, d))
    s, out = v.new_zeros(v.shape[1], heads, n, d), []
    for t in range(v.shape[0]):
        key, b, a = k[t].transpose(-1, -2), beta[t][..., None, None], alpha[t][..., None, None]
        eye = torch.eye(n, dtype=v.dtype)
        s = a * (eye - b * key.unsqueeze(-1) * key.unsqueeze(-2)) @ s + b * key.unsqueeze(-1) * v[
            t
        ].unsqueeze(-2)
        out.append((q[t].transpose(-1, -2).unsqueeze(-2) @ s).flatten(1))
    return torch.stack(out), s.transpose(1, 2).flatten(2).transpose(0, 1)


def delta_net(w: Weights, n: int) -> tuple[Tensor, Tensor]:
    return _delta(w, n, torch.ones((), dtype=w.x.dtype))


def gated_delta_net(w: Weights, n: int) -> tuple[Tensor, Tensor]:
    step = F.softplus(w.projection("alpha", per="head"))
    return _delta(w, n, torch.exp(-torch.exp(w.parameter("A_log", per="head")) * step))


def s4d(w: Weights, n: int) -> tuple[Tensor, Tensor]:
    delta = torch.exp(w.parameter("log_delta"))
    a = torch.complex(-torch.exp(w.parameter("A_re", n)), w.parameter("A_im", n))
    c = torch.complex(w.parameter("C_re", n), w.parameter("C_im", n))
    decay = torch.exp(delta * a)
    entry = (decay - 1) / a * w.x.unsqueeze(-2)
    out, z = loop(decay.expand_as(entry), entry, 2 * c)
    return out.real + w.parameter("D") * w.x, rows(z)


def lru(w: Weights, n: int) -> tuple[Tensor, Tensor]:
    lam = torch.polar(torch.exp(-torch.exp(w.parameter("nu"))), torch.exp(w.parameter("theta")))
    entry = torch.exp(w.parameter("gamma")) * torch.complex(w.projection("B_re"), w.projection("B_im"))
    z, out = torch.zeros_like(entry[0]), []
    for t in range(entry.shape[0]):
        z = lam * z + entry[t]
        out.append(torch.cat([z.real, z.imag], -1))
    return torch.stack(out), torch.stack([z.real, z.imag])


TWINS: dict[str, Twin] = {
    "linear-attention": linear_attention,
    "RetNet": retnet,
    "GLA": gla,
    "HGRN2": hgrn2,
    "Mamba": mamba,
    "Mamba-2": mamba2,
    "Mamba-3": mamba3,
    "RWKV-6": rwkv6,
    "DeltaNet": delta_net,
    "Gated-DeltaNet": gated_delta_net,
    "S4D": s4d,
    "LRU": lru,
}
