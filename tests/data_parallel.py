"""Train one layer data-parallel in two processes, each of which runs `train` on its half of a batch."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from layer_cases import inputs, make_layer
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rrnn.nn import RationalRNN


def _layer() -> RationalRNN:
    return make_layer("mixed", num_layers=2, bidirectional=True)


def _gradients(layer: RationalRNN, run: nn.Module, x: Tensor) -> dict[str, Tensor | None]:
    out, _ = run(x)
    (out**2).sum(-1).mean().backward()
    return {name: p.grad for name, p in layer.named_parameters()}


def train(rank: int, store: str) -> dict[str, Tensor | None]:
    """Run one backward pass as process `rank` of two, which find each other through the file `store`."""
    if sys.platform == "linux":  # works without a network, and if the host name does not resolve
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    layer = _layer()
    found = _gradients(layer, DistributedDataParallel(layer), inputs(5, 4, 4)[:, 2 * rank : 2 * rank + 2])
    dist.barrier()
    dist.destroy_process_group()
    return found


def gradients_of_one() -> dict[str, Tensor | None]:
    """Return the gradients that one process computes on the whole batch."""
    layer = _layer()
    return _gradients(layer, layer, inputs(5, 4, 4))
