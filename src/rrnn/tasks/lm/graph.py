"""A training step on a GPU as one captured CUDA graph: launched by one call, however many kernels it has."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

import torch
from torch import Tensor

from rrnn.backends.triton.backend import on_device

T = TypeVar("T")
WARM_UP = 1  # calls before a capture: kernels are compiled, libraries have their workspaces


class Steps:
    """Runs functions of static tensors: a key's first calls as they are, the next is captured, later ones are replayed.
    Every call does its work exactly once. On a CPU, or with `capture=False`, functions are simply called.

    Random numbers come from the device's default generator, which graphs advance at each replay.
    """

    def __init__(self, device: torch.device, *, capture: bool = True) -> None:
        self.device = device
        self.capture = capture and device.type == "cuda"
        self._calls: dict[Hashable, int] = {}
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        # above all that is done beside it: what waits for a place on the GPU goes first if it is the step's own
        self._stream = torch.cuda.Stream(device, priority=-1) if self.capture else None

    def run(self, key: Hashable, function: Callable[[], None]) -> None:
        if not self.capture:
            return function()
        if (graph := self._graphs.get(key)) is not None:
            return graph.replay()
        calls = self._calls[key] = self._calls.get(key, 0) + 1
        with on_device(self.device):
            if calls <= WARM_UP:
                return self._beside(function)
            graph = torch.cuda.CUDAGraph()
            pool = next(iter(self._graphs.values())).pool() if self._graphs else None
            with torch.cuda.graph(graph, pool=pool, stream=self._stream):
                function()
            self._graphs[key] = graph
            graph.replay()

    def _beside(self, function: Callable[[], None]) -> None:
        """On the stream that captures, so that what libraries keep per stream is there already."""
        assert self._stream is not None
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._stream):
            function()
        torch.cuda.current_stream(self.device).wait_stream(self._stream)


class Beside:
    """A second stream, for what is wanted at the end of a step only, such as gradients of weights: it fills the part of
    the GPU that a serial walk over time leaves idle. On a CPU all is done at once, in order."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._device = device
        self._held: list[object] = []

    def run(self, function: Callable[..., T], *tensors: Tensor) -> T:
        """function(*tensors), to be read after `join` only. Until then the tensors are held: their memory must not be
        given to what runs meanwhile."""
        if self._stream is None:
            return function(*tensors)
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            out = function(*tensors)
        self._held.append((tensors, out))
        return out

    def join(self) -> None:
        """What comes after waits for all that was run beside."""
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)
            self._held.clear()
