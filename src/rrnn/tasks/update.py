"""Update all weights at once: clip the gradient's norm, SGD or Adam, weight decay, averages of the weights.

On a GPU this takes two Triton kernels, one for the norm and one for everything else, which never wait for the host. On
a CPU torch operations compute the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from rrnn.backends.triton.backend import has_kernels, on_device
from rrnn.tasks.lm.model import TorchLayer

TAIL = "tail"


class Averages:
    """Which averages are kept, and how far they are. `counters` holds the number of steps, then each average's; in
    every `every`-th step they look at the weights."""

    def __init__(self, emas: Sequence[float], tail: bool, device: torch.device, every: int = 1) -> None:
        self.names, self.every = [f"ema{decay:g}" for decay in emas] + [TAIL] * tail, every
        self.decays = torch.tensor([decay**every for decay in (*emas, *[1.0] * tail)], device=device)
        self.counters = torch.zeros(1 + len(self.names), device=device)
        self._active = torch.ones_like(self.counters)
        if tail:
            self._active[-1] = 0.0

    def __len__(self) -> int:
        return len(self.names)

    def start_tail(self) -> None:
        """From the next step on."""
        self._active[-1] = 1.0

    def count(self) -> None:
        """One more step."""
        self.counters += self._active

    def shares(self) -> Tensor:
        """(K,): how far the averages move towards the weights in this step."""
        # the first look counts whole, however late before it the average began
        looks = (self.counters[1:] + (self.every - 1)).div(self.every, rounding_mode="floor")
        return torch.maximum(1 - self.decays, 1 / looks.clamp(min=1.0)) * (self.counters[0] % self.every == 0)

    @property
    def ready(self) -> dict[str, int | None]:
        """Name → row of what there is to evaluate: the weights as they are, and averages that have begun."""
        begun = [name != TAIL or bool(self._active[-1]) for name in self.names]
        return {"last": None} | {name: row for row, name in enumerate(self.names) if begun[row]}

    def tensors(self) -> dict[str, Tensor]:
        return {"counters": self.counters, "active": self._active}


# ---- the update ------------------------------------------------------------------------------------------------------


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
        from rrnn.tasks import kernels

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


# ---- a model's parameters in a few buffers ---------------------------------------------------------------------------


SMALL = 1 << 15


class Weights:
    """All parameters of a model, which become views of the buffers."""

    def __init__(
        self, model: nn.Module, *, low: torch.dtype | None = None, averages: int = 0, adam: bool = False
    ) -> None:
        parameters = dict(model.named_parameters())
        self.segments: list[Segment] = []
        for names in _groups(model):
            group = {name: parameters[name] for name in names}
            has_matrix = any(p.dim() > 1 for p in group.values())
            self.segments.append(Segment(group, low if has_matrix else None, averages, adam))
        self.parameters = {name: parameters[name] for s in self.segments for name in s.shapes}
        # What the step reads and differentiates by: the low copies as leaves of their own, or the parameters.
        self.working: dict[str, Tensor] = dict(self.parameters)
        for segment in self.segments:
            if segment.low is not None:
                views = segment.views(segment.low)
                self.working |= {name: v.detach().requires_grad_() for name, v in views.items()}

    def gather(self, gradients: Mapping[str, Tensor]) -> list[Tensor]:
        """Per segment its flat gradient, of gradients by the parameters' names."""
        return [segment.gather(gradients) for segment in self.segments]

    def named(self, what: str, row: int | None = None) -> dict[str, Tensor]:
        """Views by parameter name: of "flat", or of a row of "averages" or "moments"."""
        views: dict[str, Tensor] = {}
        for segment in self.segments:
            buffer = getattr(segment, what)
            views |= segment.views(buffer if row is None else buffer[row])
        return views

    @torch.no_grad()
    def refresh(self) -> None:
        """After the parameters were changed from outside: the low copies anew."""
        for segment in self.segments:
            if segment.low is not None:
                segment.low.copy_(segment.flat)

    @contextmanager
    def averaged(self, row: int | None) -> Iterator[None]:
        """Inside, the model's parameters are an average's (None: as they are)."""
        if row is None:
            yield
            return
        with torch.no_grad():
            kept = [segment.flat.clone() for segment in self.segments]
            try:
                for segment in self.segments:
                    segment.flat.copy_(segment.averages[row])
                yield
            finally:
                for segment, flat in zip(self.segments, kept, strict=True):
                    segment.flat.copy_(flat)


def _groups(model: nn.Module) -> list[list[str]]:
    """Names of parameters, segment by segment."""
    groups: list[list[str]] = []
    torch_layers = {
        prefix: [f"{prefix}.{name}" for name, _ in module.named_parameters()]
        for prefix, module in model.named_modules()
        if isinstance(module, TorchLayer)
    }
    taken = {name for names in torch_layers.values() for name in names}
    small = []
    for name, parameter in model.named_parameters():
        if name in taken:
            continue
        if parameter.dim() > 1 and parameter.numel() >= SMALL:
            groups.append([name])
        else:
            small.append(name)
    # matrices too small for a buffer of their own stay apart from vectors, which are never rounded
    shapes = dict(model.named_parameters())
    matrices = [name for name in small if shapes[name].dim() > 1]
    vectors = [name for name in small if shapes[name].dim() <= 1]
    return [*groups, *torch_layers.values(), *(g for g in (matrices, vectors) if g)]


# ---- in place of torch.optim.Adam ------------------------------------------------------------------------------------


class FusedAdam:
    """`clip_grad_norm_`, `optimiser.step()` and the averages' step at once. All parameters move into one buffer, but
    for those of torch's own layers, which lie as cuDNN wants them.

    `averages` are the parameters' averages, if there are some. control: the learning rate, and 1, which weights keep.
    """

    def __init__(
        self,
        model: nn.Module,
        optimiser: torch.optim.Adam,
        averaging: Averages,
        *,
        control: Tensor,
        clip: float,
        kernels: bool | None = None,
    ) -> None:
        (group,) = optimiser.param_groups
        rnns = [module for module in model.modules() if isinstance(module, nn.RNNBase)]
        fixed = {id(parameter) for rnn in rnns for parameter in rnn.parameters()}
        self.named = named = dict(model.named_parameters())
        groups = [[name] for name, p in named.items() if id(p) in fixed]
        others = [name for name, p in named.items() if id(p) not in fixed]
        # Those of whole sixteen bytes first, so that each begins at a multiple of them, as products want matrices to.
        groups.append(sorted(others, key=lambda name: (named[name].numel() % 4 > 0, -named[name].dim())))
        kept = len(averaging)
        segments = [
            Segment(
                {name: named[name] for name in names}, None, kept, True, move=id(named[names[0]]) not in fixed
            )
            for names in groups
        ]
        averages: dict[str, Tensor] = {}
        for segment in segments:
            first, second = (segment.views(moment) for moment in segment.moments)
            for name in segment.shapes:
                state = {"step": averaging.counters[0], "exp_avg": first[name], "exp_avg_sq": second[name]}
                optimiser.state[named[name]] = state
            if kept:
                averages |= segment.views(segment.averages[0])
        self.averages = [averages[name] for name in named] if kept else []
        self.updater = Updater(
            segments,
            averaging,
            adam=True,
            clip=clip,
            l2=group["weight_decay"],
            betas=group["betas"],
            epsilon=group["eps"],
            device=control.device,
            control=control,
            kernels=kernels,
        )

    def step(self) -> None:
        """With the parameters' gradients; what nothing depends on has none, which is zero."""
        gradients = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in self.named.items()}
        self.updater.step([segment.gather(gradients) for segment in self.updater.segments])
