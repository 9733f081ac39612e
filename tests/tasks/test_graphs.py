"""Graphs: every call does its work once, as it is, when it is captured, or when it is replayed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from rrnn.tasks.graphs import Graphs, SideStream


class Replayed:
    """Stands in for a CUDA graph."""

    def __init__(self, function: Callable[[], None], calls: list[str]) -> None:
        self.function, self.calls = function, calls

    def replay(self) -> None:
        self.calls.append("replay")
        self.function()


def test_the_first_call_warms_up_the_second_captures_later_ones_replay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graphs, calls = Graphs(torch.device("cpu")), list[str]()
    graphs.capture = True

    def warm_up(function: Callable[[], None]) -> None:
        calls.append("warm up")
        function()

    def captured(function: Callable[[], None]) -> Replayed:
        calls.append("capture")  # records the work, and does not do it
        return Replayed(function, calls)

    monkeypatch.setattr(graphs, "_warm_up", warm_up)
    monkeypatch.setattr(graphs, "_captured", captured)
    done = {"long": 0, "short": 0}

    def work(key: str) -> None:
        done[key] += 1

    for key in ("long", "short", "long", "long", "short"):
        graphs.run(key, lambda key=key: work(key))
    assert done == {"long": 3, "short": 2}
    assert calls == ["warm up", "warm up", "capture", "replay", "replay", "capture", "replay"]


def test_a_cpu_calls_functions_as_they_are() -> None:
    done: list[int] = []
    graphs = Graphs(torch.device("cpu"), torch.Generator(), alone=True)
    with graphs.on_stream():
        for i in range(3):
            graphs.run("key", lambda i=i: done.append(i))
    graphs.follow()
    graphs.wait()
    graphs.close()
    assert done == [0, 1, 2] and not graphs._graphs and graphs.stream is None
    assert SideStream(torch.device("cpu")).run(lambda t: t + 1, torch.ones(())) == 2
