"""Train one layer data-parallel in two processes: `python data_parallel.py RANK FOLDER`.

Each process runs `train` on its half of a batch. It ends without taking the interpreter down: torch's
DistributedDataParallel never releases the process group, so gloo's threads live on after `destroy_process_group`. One
process once died with SIGABRT on a busy machine. That these threads were the cause is a guess: it did not happen again
in 40 starts of both processes that ended as usual, on two cores at a load of 5 to 9, beside one that never sleeps.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


def _gradients_file(rank: int, folder: str) -> Path:
    return Path(folder) / f"gradients-{rank}.pt"


def train_in_two_processes(folder: str) -> list[dict[str, Tensor | None]]:
    """Return the gradients that each of two processes computes on its half, after averaging over both."""
    command = [sys.executable, __file__]
    both = [subprocess.Popen([*command, str(rank), folder]) for rank in (0, 1)]
    try:
        assert [process.wait(timeout=120) for process in both] == [0, 0]
    finally:
        for process in both:
            process.kill()
    return [torch.load(_gradients_file(rank, folder), weights_only=True) for rank in (0, 1)]


def gradients_of_one() -> dict[str, Tensor | None]:
    """Return the gradients that one process computes on the whole batch."""
    layer = _layer()
    return _gradients(layer, layer, inputs(5, 4, 4))


if __name__ == "__main__":
    number, place = int(sys.argv[1]), sys.argv[2]
    torch.save(train(number, str(Path(place) / "store")), _gradients_file(number, place))
    os._exit(0)
