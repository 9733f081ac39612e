"""One update of all weights: clip the gradient's norm, SGD or Adam, multiplicative weight decay, averages.

On a GPU two kernels over all segments, one for the norm and one for all the rest, which never wait for the host; on a
CPU torch ops, which say the same thing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rrnn.backends.triton.backend import on_device
from rrnn.tasks.averaging import Averages
from rrnn.tasks.lm.graph import has_kernels
from rrnn.tasks.lm.weights import Weights

PARTIALS = 512  # programs that share the norm: each of an update adds theirs up, a power of two
PROGRAMS = 1024  # that share an update: about as many as an H100 or H200 holds at once
BLOCK = 1024
# Fusion is asked for, as Triton's default is about to change. Registers: a bound makes the compiler use what fits, and
# start all loads of a block at once; by itself it makes room for more programs than there are.
OPTIONS: dict[str, Any] = {"enable_fp_fusion": True, "maxnreg": 80}


class Updater:
    def __init__(
        self,
        weights: Weights,
        averages: Averages,
        *,
        adam: bool = False,
        clip: float = 5.0,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        device: torch.device,
        kernels: bool | None = None,
    ) -> None:
        self.weights, self.averages = weights, averages
        self.adam, self.clip, self.betas, self.epsilon = adam, clip, betas, epsilon
        self.kernels = has_kernels(device) if kernels is None else kernels
        self.control = torch.zeros(2, device=device)  # the rate, and what the weights keep: 1 − decay
        self._partial = torch.zeros(PARTIALS, device=device)

    def set_rate(self, rate: float, decay: float) -> None:
        """For the next steps. `decay` is the share of the weights that each takes away."""
        self.control.copy_(torch.tensor([rate, 1.0 - decay]))

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """`gradients` are flat, one a segment (`Weights.gather`); they may be overwritten."""
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
        for segment, gradient in zip(self.weights.segments, gradients, strict=True):
            g = gradient.float().mul_(factor)
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
        from rrnn.tasks.lm import kernels

        segments, sizes = self.weights.segments, tuple(g.numel() for g in gradients)
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
