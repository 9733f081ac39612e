"""One update of all weights: clip the gradient's norm, SGD or Adam, multiplicative weight decay, averages.

On a GPU two kernels over all segments, one for the norm and one for all the rest, which never wait for the host; on a
CPU torch ops, which say the same thing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rrnn.backends.triton.backend import has_kernels, on_device
from rrnn.tasks.averaging import Averages

PARTIALS = 512  # programs that share the norm: each of an update adds theirs up, a power of two
PROGRAMS = 1024  # that share an update: about as many as an H100 or H200 holds at once
BLOCK = 1024
# Fusion is asked for, as Triton's default is about to change. Registers: a bound makes the compiler use what fits, and
# start all loads of a block at once; by itself it makes room for more programs than there are.
OPTIONS: dict[str, Any] = {"enable_fp_fusion": True, "maxnreg": 80}


class Segment:
    """Some parameters side by side: `flat` fp32, `low` the copy, `averages` (K, n), `moments` (2, n) of Adam."""

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        low: torch.dtype | None,
        averages: int,
        adam: bool,
        move: bool = True,
    ) -> None:
        """`move=False` leaves a single parameter where it is."""
        self.shapes = {name: p.shape for name, p in parameters.items()}
        if move:
            self.flat = torch.cat([p.detach().reshape(-1) for p in parameters.values()])
        else:
            (parameter,) = parameters.values()
            self.flat = parameter.detach().view(-1)
        self.low = None if low is None else self.flat.to(low)
        self.averages = self.flat.repeat(averages, 1)
        self.moments = self.flat.new_zeros(2 if adam else 0, len(self.flat))
        for name, view in self.views(self.flat).items():
            parameters[name].data = view

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """The parameters in a buffer laid out as `flat`."""
        out, start = {}, 0
        for name, shape in self.shapes.items():
            out[name] = flat[start : start + shape.numel()].view(shape)
            start += shape.numel()
        return out

    def gather(self, gradients: Mapping[str, Tensor]) -> Tensor:
        """The flat gradient, of gradients by the parameters' names."""
        each = [gradients[name].reshape(-1) for name in self.shapes]
        return each[0] if len(each) == 1 else torch.cat(each)


class Updater:
    """`l2` is Adam's own weight decay, as torch's: a part of the gradient, after clipping."""

    def __init__(
        self,
        segments: Sequence[Segment],
        averages: Averages,
        *,
        adam: bool = False,
        clip: float = 5.0,
        l2: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        device: torch.device,
        control: Tensor | None = None,
        kernels: bool | None = None,
    ) -> None:
        """`control`: where the rate lies, and what the weights keep: 1 − decay."""
        self.segments, self.averages = segments, averages
        self.adam, self.clip, self.l2, self.betas, self.epsilon = adam, clip, l2, betas, epsilon
        self.kernels = has_kernels(device) if kernels is None else kernels
        self.control = torch.zeros(2, device=device) if control is None else control
        self._partial = torch.zeros(PARTIALS, device=device)

    def set_rate(self, rate: float, decay: float) -> None:
        """For the next steps. `decay` is the share of the weights that each takes away."""
        self.control.copy_(torch.tensor([rate, 1.0 - decay]))

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """`gradients` are flat, one a segment; they may be overwritten."""
        self.averages.count()
        if self.kernels:
            with on_device(self.control.device):
                self._with_kernels(gradients)
        else:
            self._with_torch(gradients)

    def _with_torch(self, gradients: Sequence[Tensor]) -> None:
        norms = [torch.linalg.vector_norm(g, dtype=torch.float32) for g in gradients]
        factor = (self.clip / (torch.stack(norms).norm() + 1e-6)).clamp(max=1.0)
        rate, keep = self.control
        shares = self.averages.shares()
        for segment, gradient in zip(self.segments, gradients, strict=True):
            g = gradient.float().mul_(factor).add_(segment.flat, alpha=self.l2)
            if self.adam:
                g = self._moved(segment.moments, g)
            segment.flat.mul_(keep).sub_(g.mul_(rate))
            if segment.low is not None:
                segment.low.copy_(segment.flat)
            for average, share in zip(segment.averages, shares, strict=True):
                average.lerp_(segment.flat, share)

    def _moved(self, moments: Tensor, g: Tensor) -> Tensor:
        beta1, beta2 = self.betas
        first, second = moments
        first.lerp_(g, 1 - beta1)
        second.lerp_(g * g, 1 - beta2)
        steps = self.averages.counters[0]
        return (first / (1 - beta1**steps)) / ((second / (1 - beta2**steps)).sqrt_() + self.epsilon)

    def _with_kernels(self, gradients: Sequence[Tensor]) -> None:
        from rrnn.tasks import update_kernels as kernels

        segments, sizes = self.segments, tuple(g.numel() for g in gradients)
        run: Any = kernels.squares[(len(self._partial),)]
        run(tuple(gradients), sizes, self._partial, BLOCK=4 * BLOCK, num_warps=8, **OPTIONS)
        run = kernels.update[(min(sum(-(-n // BLOCK) for n in sizes), PROGRAMS),)]
        run(
            tuple(segment.flat for segment in segments),
            tuple(gradients),
            tuple(segment.low for segment in segments),
            tuple(segment.averages for segment in segments),
            tuple(segment.moments for segment in segments),
            sizes,
            self._partial,
            self.control,
            self.averages.decays,
            self.averages.counters,
            self.clip,
            self.l2,
            *self.betas,
            self.epsilon,
            PARTIALS=len(self._partial),
            AVERAGES=len(self.averages),
            EVERY=self.averages.every,
            ADAM=self.adam,
            BLOCK=BLOCK,
            num_warps=4,
            **OPTIONS,
        )
