"""A step of Adam on a GPU as a few kernels: clipping, L2, the step itself, the average of the weights.

What they read and write is the optimiser's own state, and averages like the parameters, so that checkpoints are the
same whoever made the step.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rrnn.tasks.averaging import Averages
from rrnn.tasks.update import Segment, Updater


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
