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

TAIL = "tail"


class Averages:
    """Averages of the weights over the steps: exponential moving averages, and the mean of a tail (ASGD).

    Both follow one rule. Before it starts, an average equals the weights; its n-th step moves it towards them by
    max(1 − decay, 1/n). So an exponential average begins as a plain mean, without a trace of the initial weights, and a
    tail is an average with decay 1. Averages that look at the weights only every m-th step follow the same rule,
    counted in looks, with the decay decayᵐ.

    `counters` holds the number of steps, then the number of steps in each average.
    """

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
        """Start the mean of the tail with the next step."""
        self._active[-1] = 1.0

    def count(self) -> None:
        """Count one more step."""
        self.counters += self._active

    def shares(self) -> Tensor:
        """Return (K,): how far each average moves towards the weights in this step."""
        # the first look replaces the average, however many steps before it the average started
        looks = (self.counters[1:] + (self.every - 1)).div(self.every, rounding_mode="floor")
        return torch.maximum(1 - self.decays, 1 / looks.clamp(min=1.0)) * (self.counters[0] % self.every == 0)

    @property
    def ready(self) -> dict[str, int | None]:
        """Name → row of everything that can be evaluated: the weights themselves, and averages that have started."""
        begun = [name != TAIL or bool(self._active[-1]) for name in self.names]
        return {"last": None} | {name: row for row, name in enumerate(self.names) if begun[row]}

    def tensors(self) -> dict[str, Tensor]:
        """Return the state that a checkpoint stores."""
        return {"counters": self.counters, "active": self._active}


# ---- the update ------------------------------------------------------------------------------------------------------


PARTIALS = (
    512  # programs that share the norm; every program of an update adds up their results; a power of two
)
PROGRAMS = 1024  # programs that share an update: about as many as an H100 or H200 holds at once
BLOCK = 1024
# Fusion is set explicitly, since Triton's default is about to change. The bound on registers makes the compiler start
# all loads of a block at once; without it, it leaves room for more programs than there are.
OPTIONS: dict[str, Any] = {"enable_fp_fusion": True, "maxnreg": 80}


class Segment:
    """Parameters in one buffer: `flat` (n) in fp32, its copy `low`, `averages` (K, n), and `moments` (2, n) of Adam."""

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        low: torch.dtype | None,
        averages: int,
        adam: bool,
        move: bool = True,
    ) -> None:
        """With `move=False` a single parameter stays where it is."""
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
        """Return the parameters as views of a buffer that is laid out as `flat`."""
        out, start = {}, 0
        for name, shape in self.shapes.items():
            out[name] = flat[start : start + shape.numel()].view(shape)
            start += shape.numel()
        return out

    def gather(self, gradients: Mapping[str, Tensor]) -> Tensor:
        """Return the gradients, given by the names of the parameters, in one flat tensor."""
        each = [gradients[name].reshape(-1) for name in self.shapes]
        return each[0] if len(each) == 1 else torch.cat(each)


class Updater:
    """Updates the parameters of all segments. `l2` is Adam's own weight decay: it is added to the clipped gradient."""

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
        """`control` is the tensor that holds the learning rate and 1 − decay."""
        self.segments, self.averages = segments, averages
        self.adam, self.clip, self.l2, self.betas, self.epsilon = adam, clip, l2, betas, epsilon
        self.kernels = has_kernels(device) if kernels is None else kernels
        self.control = torch.zeros(2, device=device) if control is None else control
        self._partial = torch.zeros(PARTIALS, device=device)

    def set_rate(self, rate: float, decay: float) -> None:
        """Set the learning rate and the weight decay, the share of the weights that each step removes."""
        self.control.copy_(torch.tensor([rate, 1.0 - decay]))

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """Update the weights with one flat gradient per segment. The gradients may be overwritten."""
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
                g = self._adam_step(segment.moments, g)
            segment.flat.mul_(keep).sub_(g.mul_(rate))
            if segment.low is not None:
                segment.low.copy_(segment.flat)
            for average, share in zip(segment.averages, shares, strict=True):
                average.lerp_(segment.flat, share)

    def _adam_step(self, moments: Tensor, g: Tensor) -> Tensor:
        """Update Adam's moments and return the direction of the step."""
        beta1, beta2 = self.betas
        first, second = moments
        first.lerp_(g, 1 - beta1)
        second.lerp_(g * g, 1 - beta2)
        steps = self.averages.counters[0]
        return (first / (1 - beta1**steps)) / ((second / (1 - beta2**steps)).sqrt_() + self.epsilon)

    def _with_kernels(self, gradients: Sequence[Tensor]) -> None:
        from rrnn.tasks import step_kernels as kernels

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


SMALL = 1 << 15  # elements: smaller matrices share a buffer


class FlatWeights:
    """The parameters of a model, moved into a few flat buffers that one kernel updates.

    Every large matrix has a buffer of its own, so that its gradient is used where the product wrote it. A module of a
    class in `together` has one buffer for all its parameters, as cuDNN requires. All small parameters share the last
    buffers. With low-precision products a buffer has a copy, which the step reads and the update writes; the parameters
    themselves stay fp32.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        together: tuple[type[nn.Module], ...] = (),
        low: torch.dtype | None = None,
        averages: int = 0,
        adam: bool = False,
    ) -> None:
        parameters = learned(model)
        self.segments: list[Segment] = []
        for names in _groups(model, together):
            group = {name: parameters[name] for name in names}
            has_matrix = any(p.dim() > 1 for p in group.values())
            self.segments.append(Segment(group, low if has_matrix else None, averages, adam))
        self.parameters = {name: parameters[name] for s in self.segments for name in s.shapes}
        # What the step reads and differentiates: the low-precision copies as leaves of their own, or the parameters.
        self.working: dict[str, Tensor] = dict(self.parameters)
        for segment in self.segments:
            if segment.low is not None:
                views = segment.views(segment.low)
                self.working |= {name: v.detach().requires_grad_() for name, v in views.items()}

    def gather(self, gradients: Mapping[str, Tensor]) -> list[Tensor]:
        """Return one flat gradient per segment from gradients by the names of the parameters."""
        return [segment.gather(gradients) for segment in self.segments]

    def named(self, what: str, row: int | None = None) -> dict[str, Tensor]:
        """Return views by parameter name, of "flat", or of a row of "averages" or "moments"."""
        views: dict[str, Tensor] = {}
        for segment in self.segments:
            buffer = getattr(segment, what)
            views |= segment.views(buffer if row is None else buffer[row])
        return views

    @torch.no_grad()
    def refresh(self) -> None:
        """Update the low-precision copies after the parameters were changed from outside."""
        for segment in self.segments:
            if segment.low is not None:
                segment.low.copy_(segment.flat)

    @contextmanager
    def averaged(self, row: int | None) -> Iterator[None]:
        """Replace the parameters by an average (None: by nothing) inside this context."""
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


def learned(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that are trained, by name: others, such as RetNet's decays, keep their first values."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def _groups(model: nn.Module, together: tuple[type[nn.Module], ...]) -> list[list[str]]:
    """Return the names of the parameters of each segment."""
    groups: list[list[str]] = []
    whole = {
        prefix: [f"{prefix}.{name}" for name, _ in module.named_parameters()]
        for prefix, module in model.named_modules()
        if isinstance(module, together)
    }
    taken = {name for names in whole.values() for name in names}
    small = []
    parameters = learned(model)
    for name, parameter in parameters.items():
        if name in taken:
            continue
        if parameter.dim() > 1 and parameter.numel() >= SMALL:
            groups.append([name])
        else:
            small.append(name)
    # small matrices stay apart from vectors, which are never rounded
    matrices = [name for name in small if parameters[name].dim() > 1]
    vectors = [name for name in small if parameters[name].dim() <= 1]
    return [*groups, *whole.values(), *(g for g in (matrices, vectors) if g)]


# ---- in place of torch.optim.Adam ------------------------------------------------------------------------------------


class FusedAdam:
    """An `Updater` in place of `clip_grad_norm_`, `torch.optim.Adam.step` and the step of the averages.

    It reads and writes the optimiser's own state, so that checkpoints do not depend on who made the step. All
    parameters move into one buffer, except for those of torch's own layers, which stay as cuDNN requires. `averages`
    are the averages of the parameters, if there are any. `control` holds the learning rate and 1 (no decay).
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
        self.named = named = learned(model)
        groups = [[name] for name, p in named.items() if id(p) in fixed]
        others = [name for name, p in named.items() if id(p) not in fixed]
        # Sizes in multiples of 16 bytes come first, so that each parameter is aligned, as matrix products require.
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
        """Update the parameters with their gradients. A parameter without a gradient has gradient zero."""
        gradients = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in self.named.items()}
        self.updater.step([segment.gather(gradients) for segment in self.updater.segments])
