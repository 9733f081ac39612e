"""A model's parameters, laid out for a fast step: a few flat buffers, all updated by one kernel.

Every large matrix has a buffer of its own, so that its gradient is used where the product wrote it; a layer of torch's
own has one for all its parameters, as cuDNN wants them; all small ones share the last. With products in low precision
a buffer has a copy in it, which the step reads and the update writes: the parameters themselves stay fp32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from rrnn.tasks.lm.baselines import TorchLayer
from rrnn.tasks.update import Segment

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
