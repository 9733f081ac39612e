"""Which steps are valid: masks from users' masks and lengths, and the inputs of a window behind them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rrnn.errors import ShapeError


def check_mask(mask: Tensor, shape: tuple[int, ...], layout: str) -> Tensor:
    """A user's mask, checked: bool, True at valid steps, of the input's own leading shape."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        came = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise ShapeError(
            f"mask must be a bool tensor, True at valid steps; got {came}. Write mask.bool(), or ids != padding_id."
        )
    if mask.dim() != len(shape) or any(a != b for a, b in zip(mask.shape, shape, strict=True)):
        raise ShapeError(
            f"expected mask of shape {shape}, {layout} as the input; got {tuple(mask.shape)}. "
            "Transpose it, or check batch_first."
        )
    return mask


def mask_of_lengths(lengths: Tensor | Sequence[int], steps: int, batch: int, device: torch.device) -> Tensor:
    """(T, B) bool, True at the first `lengths[b]` steps of each sequence."""
    if not isinstance(lengths, Tensor):
        given = list(lengths)
        lengths = torch.tensor(given) if given else torch.zeros(0, dtype=torch.int64)
    if lengths.dim() != 1 or lengths.shape[0] != batch:
        raise ShapeError(f"expected {batch} lengths, one per sequence; got shape {tuple(lengths.shape)}")
    if lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise ShapeError(f"lengths must be whole numbers; got {lengths.dtype}")
    # Only where looking is free: on a GPU it would wait for the device, and a compiler cannot look.
    if lengths.device.type == "cpu" and not torch.compiler.is_compiling() and batch:
        low, high = int(lengths.min()), int(lengths.max())
        if low < 0 or high > steps:
            raise ShapeError(
                f"lengths must lie between 0 and the {steps} steps of the input; got {low if low < 0 else high}"
            )
    return torch.arange(steps, device=device).unsqueeze(1) < lengths.to(device)


def zero_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """Zeros at padded steps, whatever they held: 0 · NaN would reach the weights' gradients through a product."""
    return x if mask is None else torch.where(mask.unsqueeze(-1), x, 0.0)


class Window:
    """Earlier inputs: the valid ones of this call, and before them those that the state remembers."""

    def __init__(self, x: Tensor, history: Tensor, mask: Tensor | None, prefix: bool) -> None:
        """x (T, B, I), history (K−1, B, I), oldest first; `prefix`: valid steps come before all padding."""
        self.steps, self.reach = x.shape[0], history.shape[0]
        self.inputs = torch.cat([history.to(x.dtype), x])  # (K−1+T, B, I)
        self.mask, self.prefix = mask, prefix
        if mask is not None:
            # order[r] is where in `inputs` the valid input number r − (K−1) stands
            times = torch.argsort(~mask, dim=0, stable=True) + self.reach
            remembered = torch.arange(self.reach, device=x.device).unsqueeze(1).expand(-1, x.shape[1])
            self.order = torch.cat([remembered, times])

    def lag(self, k: int, inputs: Tensor | None = None) -> Tensor:
        """(T, B, I): at each valid step the input k valid steps earlier; anything finite elsewhere."""
        start, inputs = self.reach - k, self.inputs if inputs is None else inputs
        if self.mask is None or self.prefix:
            return inputs[start : start + self.steps]
        rank = self.mask.cumsum(0) - 1
        return self._take(self.order.gather(0, (rank + start).clamp_min(0)), inputs)

    def latest(self) -> Tensor:
        """The last K−1 valid inputs: the next history."""
        if self.mask is None:
            return self.inputs[self.steps :].clone()  # a view would keep the whole piece alive
        ranks = self.mask.sum(0) + torch.arange(self.reach, device=self.inputs.device).unsqueeze(1)
        return self._take(self.order.gather(0, ranks), self.inputs)

    def _take(self, where: Tensor, inputs: Tensor) -> Tensor:
        return inputs.gather(0, where.unsqueeze(-1).expand(-1, -1, inputs.shape[-1]))
