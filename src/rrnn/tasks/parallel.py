"""Data-parallel training under torchrun: each process has its share of every batch, and the first one writes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Group:
    """The processes that train one model. Alone (the default), every method is the identity."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # which device of its machine this process should take
    backend: str = "gloo"

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def broadcast(self, value: dict[str, Any] | None) -> dict[str, Any]:
        """The first process's dict (of JSON values), for all. The others give None."""
        if self.size == 1:
            assert value is not None
            return value
        data = torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8, device=self._device)
        length = torch.tensor([len(data)], device=self._device)
        dist.broadcast(length, 0)
        data = data if self.is_first else data.new_empty(int(length))
        dist.broadcast(data, 0)
        return json.loads(bytes(data.tolist()))

    def sum(self, values: list[float]) -> list[float]:
        """Each number summed over the processes."""
        if self.size == 1:
            return values
        totals = torch.tensor(values, dtype=torch.float64, device=self._device)
        dist.all_reduce(totals)
        return totals.tolist()

    @property
    def _device(self) -> str:
        return f"cuda:{self.local_rank}" if self.backend == "nccl" else "cpu"


ALONE = Group()


def is_first_process() -> bool:
    """Of those that torchrun started; without it there is one."""
    return os.environ.get("RANK", "0") == "0"


def local_processes() -> int:
    """How many of them share this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


@contextmanager
def join_group(device: str = "cpu") -> Iterator[Group]:
    """The group that torchrun started this process in, or `ALONE`."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ALONE
        return
    backend = "nccl" if device.startswith("cuda") else "gloo"
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if backend == "nccl":
        torch.cuda.set_device(local_rank)
    dist.init_process_group(backend)
    try:
        yield Group(dist.get_rank(), size, local_rank, backend)
    finally:
        dist.destroy_process_group()
