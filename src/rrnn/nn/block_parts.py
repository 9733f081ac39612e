"""The parts of a block around its cell: linear layers, norms, the short convolution, the MLP."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rrnn.nn.product import linear
from rrnn.nn.sequences import Window


class Dense(nn.Linear):
    """A linear layer that uses the product of rrnn's layers."""

    def forward(self, input: Tensor) -> Tensor:
        """Return W x + b."""
        y = linear(input, self.weight)
        return y if self.bias is None else y + self.bias.to(y.dtype)


class PartNorm(nn.Module):
    """An RMSNorm or LayerNorm of equal parts of a vector, each with weights of its own, in float32 at least."""

    def __init__(self, kind: str, size: int, parts: int, eps: float, device: Any, dtype: Any) -> None:
        super().__init__()
        self.kind, self.parts, self.eps = kind, parts, eps
        self.weight = nn.Parameter(torch.ones(size, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(size, device=device, dtype=dtype)) if kind == "layer" else None

    def reset_parameters(self) -> None:
        """Set the weights to one and the biases to zero."""
        nn.init.ones_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised x (…, size)."""
        y = x if x.dtype == torch.float64 else x.float()
        y = y if self.parts == 1 else y.unflatten(-1, (self.parts, -1))
        norm = F.rms_norm if self.kind == "rms" else F.layer_norm
        y = norm(y, y.shape[-1:], eps=self.eps)
        y = y if self.parts == 1 else y.flatten(-2)
        y = y * self.weight if self.bias is None else torch.addcmul(self.bias, y, self.weight)
        return y.to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.kind}, {len(self.weight)}" + (f", parts={self.parts}" if self.parts > 1 else "")


class ShortConvolution(nn.Module):
    """A depthwise causal convolution over time, and a SiLU: silu(b + Σ_k w_k ⊙ x_{t−k}). Row k of `weight` (K,
    channels) is w_k."""

    def __init__(self, channels: int, reach: int, bias: bool, device: Any, dtype: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(reach, channels, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(channels, device=device, dtype=dtype)) if bias else None

    def reset_parameters(self) -> None:
        """Draw weights and biases as `nn.Conv1d` does."""
        for p in self.parameters():
            nn.init.uniform_(p, -(len(self.weight) ** -0.5), len(self.weight) ** -0.5)

    def forward(
        self, x: Tensor, tail: Tensor | None, mask: Tensor | None, prefix: bool
    ) -> tuple[Tensor, Tensor]:
        """Return (output, next tail) of x (T, B, channels) after `tail` (K − 1, B, channels)."""
        reach = len(self.weight)
        tail = x.new_zeros(reach - 1, *x.shape[1:]) if tail is None else tail
        window = Window(x, tail, mask, prefix)
        weight = self.weight.to(x.dtype)
        y = x * weight[0] if self.bias is None else torch.addcmul(self.bias.to(x.dtype), x, weight[0])
        for k in range(1, reach):
            y = torch.addcmul(y, window.lag(k), weight[k])
        return F.silu(y), window.latest()

    def extra_repr(self) -> str:
        return f"{self.weight.shape[1]}, steps={len(self.weight)}"


class MLP(nn.Module):
    """A SwiGLU: W_down (SiLU(W_gate x) ⊙ W_up x)."""

    def __init__(self, size: int, hidden: int, device: Any, dtype: Any) -> None:
        super().__init__()
        self.up = Dense(size, 2 * hidden, bias=False, device=device, dtype=dtype)
        self.down = Dense(hidden, size, bias=False, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Return the MLP of x (…, size)."""
        gate, up = self.up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)
