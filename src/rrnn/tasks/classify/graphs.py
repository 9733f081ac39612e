"""Small training steps are launch-bound on a GPU: CUDA graphs replay them whole. On a CPU there is nothing to it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext

import torch

_CAPTURE = threading.Lock()
"""One capture at a time: trainings side by side in one process share the allocator."""


class Graphs:
    """Runs functions of static tensors: each key's first call as it is (which is also the warm-up), the second is
    captured, later ones are replayed. Every call does the work exactly once.

    All calls run on one stream of their own, so several such objects, one a thread, share the GPU.
    """

    def __init__(self, device: torch.device, generator: torch.Generator, *, capture: bool = True) -> None:
        """`generator` is what the functions draw random numbers from; `capture=False` runs everything as it is."""
        self.device, self.generator = device, generator
        self.capture = capture and device.type == "cuda"
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._seen: set[Hashable] = set()
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._pool = None
        if self.stream is not None:  # weights and data were made on the current one
            self.stream.wait_stream(torch.cuda.current_stream(device))

    def on_stream(self) -> AbstractContextManager[object]:
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def wait(self) -> None:
        if self.stream is not None:
            self.stream.synchronize()

    def run(self, key: Hashable, function: Callable[[], None]) -> None:
        """`function`, or the graph that it became under this key. Call it under `on_stream`."""
        graph = self._graphs.get(key)
        if graph is None and self.capture and key in self._seen:
            graph = self._graphs[key] = self._captured(function)
        if graph is None:
            self._seen.add(key)
            function()
        else:
            graph.replay()

    def _captured(self, function: Callable[[], None]) -> torch.cuda.CUDAGraph:
        # Not `with torch.cuda.graph(…)`: it collects garbage and waits for the whole device at every capture.
        assert self.stream is not None
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)  # pyright: ignore[reportAttributeAccessIssue]
        with _CAPTURE:
            self.stream.synchronize()
            pool = () if self._pool is None else (self._pool,)
            collecting = gc.isenabled()
            gc.disable()  # a graph of another training that dies in between would spoil this one
            graph.capture_begin(*pool, capture_error_mode="thread_local")
            try:
                function()
            finally:
                graph.capture_end()
                if collecting:
                    gc.enable()
        self._pool = graph.pool()
        return graph
