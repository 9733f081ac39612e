"""Run training steps on a GPU as captured CUDA graphs, and run work beside them on a second stream.

A graph is launched by one call, however many kernels it has; small steps are bound by such launches. On a CPU functions
are simply called.
"""

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

from rrnn.errors import RunError

T = TypeVar("T")

_CAPTURE = threading.Lock()
"""Allows one capture at a time: concurrent trainings in one process share the allocator."""
_STREAMS: WeakKeyDictionary[Graphs, torch.cuda.Stream] = WeakKeyDictionary()
_POOL = 32
"""The number of streams that torch hands out, over and over."""


@cache
def _streams(device: int, priority: int) -> list[torch.cuda.Stream]:
    """Return all streams in a fixed order. A stream keeps memory for itself (cached blocks, cuBLAS's workspace), so the
    next training should take one that was used before."""
    return [torch.cuda.Stream(device, priority=priority) for _ in range(_POOL)]


def _own_stream(who: Graphs, device: torch.device, priority: int) -> torch.cuda.Stream:
    """Return a stream that no other training uses; a capture on a shared one would record the other's work, too."""
    index = torch.cuda.current_device() if device.index is None else device.index
    with _CAPTURE:
        if len(_STREAMS) >= _POOL:
            gc.collect()  # trainings that failed may linger
        for stream in _streams(index, priority):
            if stream not in _STREAMS.values():
                _STREAMS[who] = stream
                return stream
    raise RunError(f"at most {_POOL} trainings can share a GPU in one process; use fewer threads")


class Graphs:
    """Runs functions that read and write static tensors. The first call of a key runs the function as it is, which is
    also the warm-up; the second captures it as a graph; later calls replay the graph. Every call does the work once.

    Captures use a stream of their own. Calls may come from any stream. Trainings that run concurrently, each in its
    thread, stay on their own streams (`on_stream`), so that they share the GPU.
    """

    def __init__(
        self,
        device: torch.device,
        generator: torch.Generator | None = None,
        *,
        capture: bool = True,
        alone: bool = False,
    ) -> None:
        """`generator` is what the functions draw random numbers from, besides the device's default generator, whose
        state a graph always advances. With `capture=False` all functions run as they are. `alone` is for the only
        training on the GPU: its stream goes before others, and captures may free all memory that torch has cached."""
        self.device, self.generator, self.alone = device, generator, alone
        self.capture = capture and device.type == "cuda"
        self.stream = _own_stream(self, device, -1 if alone else 0) if device.type == "cuda" else None
        self._seen: set[Hashable] = set()
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._pool = None
        self.follow()  # weights and data were made on the current stream

    def on_stream(self) -> AbstractContextManager[object]:
        """Return a context whose work goes to the stream of the captures."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def follow(self) -> None:
        """Make future work on the stream wait for the current stream: tensors that come from there may not be written
        yet. Call this only where tensors come in: in every step, concurrent trainings, which share the current stream,
        would wait for each other."""
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(self.device))

    def wait(self) -> None:
        """Wait until all work on the stream is done, before its tensors are read or freed elsewhere."""
        if self.stream is not None:
            self.stream.synchronize()

    def close(self) -> None:
        """Wait, then release the stream and the memory of the graphs, which torch would otherwise keep for this
        process."""
        self.wait()
        self.capture = False
        if self.stream is not None:
            with _CAPTURE:  # a graph that is destroyed would spoil another's capture
                self._graphs.clear()
                _STREAMS.pop(self, None)
                torch.cuda.empty_cache()

    def run(self, key: Hashable, function: Callable[[], None]) -> None:
        """Run the function, or the graph that was captured under this key, on the current stream."""
        if key in self._graphs:
            self._graphs[key].replay()
        elif not self.capture:
            function()
        elif key not in self._seen:
            self._seen.add(key)
            self._warm_up(function)
        else:
            self._graphs[key] = self._captured(function)
            self._graphs[key].replay()

    def _warm_up(self, function: Callable[[], None]) -> None:
        """Run the function on the stream of the captures, so that what libraries keep per stream is there already."""
        assert self.stream is not None
        self.follow()
        with torch.cuda.stream(self.stream):
            function()
        torch.cuda.current_stream(self.device).wait_stream(self.stream)

    def _captured(self, function: Callable[[], None]) -> torch.cuda.CUDAGraph:
        # `with torch.cuda.graph(…)` would collect garbage and wait for the whole device at every capture.
        assert self.stream is not None
        graph = torch.cuda.CUDAGraph()
        if self.generator is not None:
            graph.register_generator_state(self.generator)  # pyright: ignore[reportAttributeAccessIssue]
        self.follow()
        with _CAPTURE, torch.cuda.stream(self.stream):
            self.stream.synchronize()
            if self.alone:  # graphs have memory of their own, so what the warm-up used is wanted no longer
                gc.collect()
                torch.cuda.empty_cache()
            pool = () if self._pool is None else (self._pool,)
            collecting = gc.isenabled()
            gc.disable()  # a graph of another training that is destroyed meanwhile would spoil this one
            graph.capture_begin(*pool, capture_error_mode="thread_local")
            try:
                function()
            finally:
                graph.capture_end()
                if collecting:
                    gc.enable()
        self._pool = graph.pool()
        return graph


class SideStream:
    """A second stream for work whose result is needed only at the end of a step, such as gradients of weights. It fills
    the part of the GPU that a serial walk over time leaves idle. On a CPU the work is done at once, in order."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._device = device
        self._held: list[object] = []

    def run(self, function: Callable[..., T], *tensors: Tensor) -> T:
        """Call function(*tensors) on the side stream; its result may be read after `join`. The tensors are held until
        then, so that their memory is not reused meanwhile."""
        if self._stream is None:
            return function(*tensors)
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            out = function(*tensors)
        self._held.append((tensors, out))
        return out

    def join(self) -> None:
        """Make the current stream wait for everything that was run on the side."""
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)
            self._held.clear()
