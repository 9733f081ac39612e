"""The cases of the matrix schedule's race: models, the kernels of others that compute the same, and their inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from rrnn.automata import Cell, exp, family, linear, log_sigmoid, one, parameter
from rrnn.ir import lower
from rrnn.ops import rational
from rrnn.zoo import get_cell

SHAPES = [(8, 2048, 16, 64, 64), (8, 2048, 8, 128, 128), (1, 32768, 16, 64, 64)]
"""Batch, steps, heads, states, units of a head."""
Named = dict[str, Tensor]


class Model(NamedTuple):
    """A cell, and the peer that computes the same: what the peer is called, and a function of named inputs, with time
    after batch, that returns its output (B, T, H, U)."""

    cell: Callable[[int], Cell]
    peer: str
    run: Callable[[Named, int], Tensor]


def _attention(name: str, states: int, loop: Any) -> Cell:
    h = family("h", states)
    k, q = linear("k", over=h, per="head"), linear("q", over=h, per="head")
    cell = Cell(name).initial("q0").loop("q0", one).arc("q0", h, k * linear("v")).loop(h, loop)
    return cell.read(h, states**-0.5 * q)


def _gate() -> Any:
    return exp(log_sigmoid(linear("alpha", per="head")))


def _chunk_gla(x: Named, states: int) -> Tensor:
    from fla.ops.gla import chunk_gla  # pyright: ignore[reportMissingImports]

    g = F.logsigmoid(x["alpha"].float() + x["alpha.bias"].float()) / 16
    return chunk_gla(x["q"], x["k"], x["v"], g, scale=states**-0.5)[0]


def _chunk_simple_gla(x: Named, states: int) -> Tensor:
    from fla.ops.simple_gla import chunk_simple_gla  # pyright: ignore[reportMissingImports]

    g = F.logsigmoid(x["alpha"].float()).squeeze(-1)
    return chunk_simple_gla(x["q"], x["k"], x["v"], g=g, scale=states**-0.5)[0]


def _chunk_retention(x: Named, states: int) -> Tensor:
    from fla.ops.retention import chunk_retention  # pyright: ignore[reportMissingImports]

    return chunk_retention(x["q"], x["k"], x["v"], scale=states**-0.5)[0]


def _chunk_linear_attn(x: Named, states: int) -> Tensor:
    from fla.ops.linear_attn import chunk_linear_attn  # pyright: ignore[reportMissingImports]

    return chunk_linear_attn(x["q"], x["k"], x["v"], scale=states**-0.5, normalize=False)[0]


def _mamba(x: Named, states: int) -> Tensor:
    from mamba_ssm.ops.triton.ssd_combined import (  # pyright: ignore[reportMissingImports]
        mamba_chunk_scan_combined,
    )

    a, bias, d = -x["A_log"].float().exp().flatten(), x["delta.bias"].flatten(), x["D"].flatten()
    more = {"chunk_size": 256, "D": d.float(), "dt_bias": bias.float(), "dt_softplus": True}
    return mamba_chunk_scan_combined(x["input"], x["delta"].squeeze(-1), a, x["B"], x["C"], **more)


def _sdpa(x: Named, states: int) -> Tensor:
    q, k, v = (x[name].transpose(1, 2) for name in "qkv")
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def _fixed() -> Any:
    return exp(parameter("log_gamma", per="head", learned=False))


MODELS = {
    "GLA": Model(lambda n: get_cell("GLA", states=n), "fla chunk_gla", _chunk_gla),
    "simple GLA": Model(
        lambda n: _attention("SimpleGLA", n, _gate()), "fla chunk_simple_gla", _chunk_simple_gla
    ),
    "retention": Model(
        lambda n: _attention("Retention", n, _fixed()), "fla chunk_retention", _chunk_retention
    ),
    "linear attention": Model(
        lambda n: _attention("LinearAttention", n, 1.0), "fla chunk_linear_attn", _chunk_linear_attn
    ),
    "Mamba-2": Model(lambda n: get_cell("Mamba-2", states=n), "mamba_chunk_scan_combined", _mamba),
    "attention": Model(lambda n: _attention("LinearAttention", n, 1.0), "torch causal attention", _sdpa),
}


class Case:
    """One model at one shape, ours and the peer's, on the same numbers."""

    def __init__(self, model: Model, shape: tuple[int, ...], dtype: torch.dtype, device: str) -> None:
        batch, steps, heads, states, self.width = shape
        self.model, self.states, self.heads, self.units = model, states, heads, heads * self.width
        program = lower(model.cell(states)).program.with_heads(heads, 1)
        wide = program.wide
        assert wide is not None
        torch.manual_seed(0)
        self.program = program
        self.x = torch.randn(steps, batch, program.columns(self.units), device=device).to(dtype)
        count = sum(wide.numbers(e, self.units) for e in wide.parameters)
        self.params = (torch.randn(1, max(count, 1), device=device) * 0.1)[:, :count].to(torch.float32)
        self.inp, self.learned = None, count > 0
        if program.uses_input:
            self.inp = torch.randn(steps, batch, self.units, device=device).to(dtype)
        self.named: Named = {}
        at = 0
        for name, extent in zip(program.projections, wide.projections, strict=True):
            n = wide.numbers(extent, self.units)
            own = self.x[..., at : at + n].transpose(0, 1).unflatten(-1, (wide.sharers(extent, heads), -1))
            self.named[name] = own.contiguous()
            at += n
        at = 0
        for name, extent in zip(program.parameters, wide.parameters, strict=True):
            n = wide.numbers(extent, self.units)
            if name == "log_gamma":
                gamma = 1 - 2.0 ** (-5 - torch.arange(heads, dtype=torch.float64, device=device))
                self.params[0, at : at + n] = gamma.log().float()
                self.learned = False
            self.named[name] = (
                self.params[0, at : at + n].unflatten(0, (wide.sharers(extent, heads), -1)).clone()
            )
            at += n
        if self.inp is not None:
            self.named["input"] = self.inp.transpose(0, 1).unflatten(-1, (heads, -1)).contiguous()
        self.out_grad = torch.randn(steps, batch, self.units, device=device).to(dtype)
        self.peer_grad = self.out_grad.transpose(0, 1).unflatten(-1, (heads, -1)).contiguous()
        for t in (self.x, self.inp, *self.named.values(), *([self.params] if self.learned else [])):
            if t is not None:
                t.requires_grad_()

    def ours(self) -> Tensor:
        return rational(self.x, [self.params], None, [self.program], inp=self.inp, widths=[self.units]).output

    def theirs(self) -> Tensor:
        return self.model.run(self.named, self.states)

    def our_gradients(self) -> list[Tensor]:
        wanted = [self.x, *([] if self.inp is None else [self.inp])]
        wanted += [self.params] if self.learned else []
        return list(torch.autograd.grad(self.ours(), wanted, self.out_grad))

    def their_gradients(self) -> dict[str, Tensor]:
        found = torch.autograd.grad(
            self.theirs(), list(self.named.values()), self.peer_grad, allow_unused=True
        )
        return {name: g for name, g in zip(self.named, found, strict=True) if g is not None}

    def differences(self) -> dict[str, float]:
        """Return the RMS ratio of outputs and of each projection's gradient, ours against the peer's; of outputs alone
        if the peer refuses to compute gradients."""
        wide = self.program.wide
        assert wide is not None
        with torch.no_grad():
            ours, theirs = self.ours(), self.theirs().flatten(2).transpose(0, 1)
        found = {"output": ratio(ours, theirs)}
        try:
            peers, at = self.their_gradients(), 0
        except RuntimeError as error:
            print("   the peer has no gradients:", str(error)[:160])
            return found
        gx, *more = self.our_gradients()
        for name, extent in zip(self.program.projections, wide.projections, strict=True):
            n = wide.numbers(extent, self.units)
            if name in peers:
                found[name] = ratio(gx[..., at : at + n], peers[name].flatten(2).transpose(0, 1))
            at += n
        if self.inp is not None:
            found["input"] = ratio(more[0], peers["input"].flatten(2).transpose(0, 1))
        return found


def ratio(a: Tensor, b: Tensor) -> float:
    """Return ‖a − b‖ / ‖b‖."""
    return float((a.double() - b.double()).norm() / b.double().norm())
