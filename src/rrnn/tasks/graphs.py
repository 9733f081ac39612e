"""Run training steps on a GPU as captured CUDA graphs, and work beside them on a second stream."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from rrnn.backends.triton.backend import on_device
from rrnn.errors import RunError

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


_CAPTURE = threading.Lock()
"""One capture at a time: trainings side by side in one process share the allocator."""
_STREAMS: WeakKeyDictionary[Graphs, torch.cuda.Stream] = WeakKeyDictionary()
_POOL = 32
"""So many streams torch hands out, over and over."""


@cache
def _streams(device: int) -> list[torch.cuda.Stream]:
    """In an order that stays: a stream keeps memory for itself (what is cached, cuBLAS's workspace), so the next
    training takes one that others had rather than a new one."""
    return [torch.cuda.Stream(device) for _ in range(_POOL)]


def _own_stream(who: Graphs, device: torch.device) -> torch.cuda.Stream:
    """One that no other training is using: else a capture would take up the other's work, too."""
    index = torch.cuda.current_device() if device.index is None else device.index
    with _CAPTURE:
        if len(_STREAMS) >= _POOL:
            gc.collect()  # trainings that failed may linger
        for stream in _streams(index):
            if stream not in _STREAMS.values():
                _STREAMS[who] = stream
                return stream
    raise RunError(f"at most {_POOL} trainings share a GPU in one process; use fewer threads")


class Graphs:
    """Runs functions of static tensors: each key's first call as it is (which is also the warm-up), the second is
    captured, later ones are replayed. Every call does the work exactly once.

    All calls run on one stream of their own, so several such objects, one a thread, share the GPU.
    """

    def __init__(self, device: torch.device, generator: torch.Generator, *, capture: bool = True) -> None:
        """`generator` is what the functions draw random numbers from; `capture=False` runs everything as it is."""
        self.device, self.generator = device, generator
        self.capture = capture and device.type == "cuda"
        self.stream = _own_stream(self, device) if device.type == "cuda" else None
        self._seen: set[Hashable] = set()
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._pool = None
        self.follow()  # weights and data were made on the current stream

    def on_stream(self) -> AbstractContextManager[object]:
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def follow(self) -> None:
        """What runs on the stream from now on waits for what the current one still has to do: tensors that come from
        there may not be written yet. Only where tensors come in: in every step, trainings side by side, which share
        the current stream, would wait for one another."""
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(self.device))

    def wait(self) -> None:
        """Until all is done: before tensors of the stream are read, or freed, elsewhere."""
        if self.stream is not None:
            self.stream.synchronize()

    def close(self) -> None:
        """Waits, then lets others have the stream and the memory, also those in other processes: torch would keep the
        graphs' until this process needs it."""
        self.wait()
        self.capture = False
        if self.stream is not None:
            with _CAPTURE:  # a graph that dies would spoil another's capture
                self._graphs.clear()
                _STREAMS.pop(self, None)
                torch.cuda.empty_cache()

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
