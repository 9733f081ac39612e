"""Others' kernels for c = f·c' + u on the same numbers: flash-linear-attention's HGRN and accelerated-scan.

Each wants its own layout and, for HGRN, the logarithm of f, which is taken beforehand. `own` times it on tensors in
that layout; `from (T,B,D)` adds the copies that lead there and back. Gradients come in the inputs' dtype, as autograd
would return them. A peer that is not installed says so.

    pip install --no-deps fla-core einops accelerated-scan
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from cuda_timing import Function, Job
from torch import Tensor

# HGRN tunes itself, once per width: in the process that times it, not in those that only compile.
os.environ.setdefault("FLA_CACHE_RESULTS", "0")


class Context:
    """What autograd hands to a Function, without autograd (whose graph cannot be captured in halves)."""

    saved_tensors: tuple[Any, ...] = ()
    needs_input_grad = (True,) * 5

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors


@dataclass
class Peer:
    name: str
    load: Callable[[], Any]  # the autograd.Function
    to_own: Callable[[Tensor], Tensor]  # from (T, B, D)
    from_own: Callable[[Tensor, int], Tensor]  # back, to so many steps
    log: bool  # whether it wants log f
    gate_first: bool  # the order of its arguments
    _function: Any = field(default=None, repr=False)

    def forward(self, f: Tensor, u: Tensor) -> tuple[Tensor, Context]:
        """In its own layout; the tensors that it wants."""
        if self._function is None:
            self._function = self.load()
        context = Context()
        found = self._function.forward(context, *((f, u) if self.gate_first else (u, f)))
        return (found[0] if isinstance(found, tuple) else found), context

    def backward(self, context: Context, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of (f, u)."""
        first, second = self._function.backward(context, grad)[:2]
        both = (first, second) if self.gate_first else (second, first)
        return both[0].to(grad.dtype), both[1].to(grad.dtype)

    def gate(self, f: Tensor) -> Tensor:
        return f.log() if self.log else f

    def passes(self, f: Tensor, u: Tensor, grad: Tensor) -> Iterator[tuple[str, str, Function]]:
        """(layout, pass, what to time); f, u and grad are (T, B, D)."""
        gate, steps = self.gate(f), f.shape[0]
        own = [self.to_own(t) for t in (gate, u, grad)]
        _, context = self.forward(own[0], own[1])

        def both() -> object:
            _, kept = self.forward(own[0], own[1])
            return self.backward(kept, own[2])

        yield "own", "forward", lambda: self.forward(own[0], own[1])
        yield "own", "backward", lambda: self.backward(context, own[2])
        yield "own", "forward_backward", both

        def there() -> tuple[Tensor, Context]:
            out, kept = self.forward(self.to_own(gate), self.to_own(u))
            return self.from_own(out, steps), kept

        def back(kept: Context) -> list[Tensor]:
            return [self.from_own(t, steps) for t in self.backward(kept, self.to_own(grad))]

        yield "from (T,B,D)", "forward", there
        yield "from (T,B,D)", "backward", lambda: back(context)
        yield "from (T,B,D)", "forward_backward", lambda: back(there()[1])

    def output(self, f: Tensor, u: Tensor) -> Tensor:
        """(T, B, D), to check that it computes the same."""
        out, _ = self.forward(self.to_own(self.gate(f)), self.to_own(u))
        return self.from_own(out, f.shape[0])


# ---- layouts -------------------------------------------------------------------------------------------------------


def batch_first(t: Tensor) -> Tensor:
    return t.transpose(0, 1).contiguous()


def time_first(t: Tensor, steps: int) -> Tensor:
    return t.transpose(0, 1).contiguous()


def time_last(t: Tensor) -> Tensor:
    """(B, D, T), padded to a power of two of at least 32 steps."""
    steps = t.shape[0]
    whole = max(32, 1 << (steps - 1).bit_length())
    if whole == steps:
        return t.permute(1, 2, 0).contiguous()
    padded = t.new_zeros(*t.shape[1:], whole)
    padded[..., :steps] = t.permute(1, 2, 0)
    return padded


def from_time_last(t: Tensor, steps: int) -> Tensor:
    return t[..., :steps].permute(2, 0, 1).contiguous()


# ---- the peers -----------------------------------------------------------------------------------------------------


def _fused() -> Any:
    from fla.ops.hgrn.fused_recurrent import FusedRecurrentHGRNFunction  # pyright: ignore

    return FusedRecurrentHGRNFunction


def _chunk() -> Any:
    from fla.ops.hgrn.chunk import ChunkHGRNFunction  # pyright: ignore

    return ChunkHGRNFunction


def _warp() -> Any:
    from accelerated_scan.warp import Scan  # pyright: ignore

    return Scan


PEERS = {
    peer.name: peer
    for peer in (
        Peer("fla hgrn fused", _fused, batch_first, time_first, log=True, gate_first=False),
        Peer("fla hgrn chunk", _chunk, batch_first, time_first, log=True, gate_first=False),
        Peer("accelerated-scan warp", _warp, time_last, from_time_last, log=False, gate_first=True),
    )
}


def peer_jobs(dtypes: list[str], widths: list[int]) -> list[Job]:
    """What to compile beforehand. accelerated-scan is one library, built once by nvcc; it takes longest."""
    first, *_ = jobs = [
        (warm, (name, getattr(torch, dtype), units))
        for name in reversed(PEERS)
        for dtype in dtypes
        for units in widths
    ]
    return [first, *(job for job in jobs if not job[1][0].startswith("accelerated"))]


def warm(name: str, dtype: torch.dtype, units: int) -> None:
    """Compile what the peer needs at this width."""
    f, u, grad = torch.rand(3, 64, 2, units, device="cuda").to(dtype).clamp_min(0.1)
    for _, _, run in PEERS[name].passes(f, u, grad):
        run()
    torch.cuda.synchronize()
