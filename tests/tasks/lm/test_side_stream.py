"""What a GPU's step does on the side, on a CPU: seeds of its dropouts (the kernel is interpreted), and a second stream,
for which something stands in that is as late as can be."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import pytest
import torch
from kernel_cases import needs_interpreter
from torch import Tensor

from rrnn.backends import use_backend
from rrnn.nn import dropout
from rrnn.tasks.graphs import SideStream
from rrnn.tasks.lm.config import LMConfig
from rrnn.tasks.lm.model import model_of
from rrnn.tasks.lm.trainer import LanguageTask
from rrnn.tasks.training import ALONE, Group


def task_of(group: Group = ALONE, **options: Any) -> LanguageTask:
    config = LMConfig(
        hidden_size=4, layers=1, batch_size=2, bptt=3, embedding_dropout=0.3, **options
    ).resolved(4)
    torch.manual_seed(0)
    ids = torch.tensor([(i * i + i // 7) % 9 + 1 for i in range(20)])
    return LanguageTask(model_of(config, 10), {"train": ids, "dev": ids}, config, group=group)


# ---- seeds -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def seeds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of every launch."""
    seen: list[int] = []
    real = dropout._launch

    def spy(x: Tensor, seed: Tensor, *how: Any) -> Tensor:
        seen.append(int(seed))
        return real(x, seed, *how)

    monkeypatch.setattr(dropout, "_launch", spy)
    return seen


def seeds_of(task: LanguageTask, seeds: list[int], steps: range, epoch: int = 1) -> list[int]:
    """One a step."""
    if epoch:
        task.begin_epoch(epoch)
    found = []
    for index in steps:
        seeds.clear()
        with use_backend("triton"):
            task.step(index)
        assert len(seeds) > 1 and len(set(seeds)) == 1  # of all masks, forwards and backwards
        found.append(seeds[0])
    return found


@pytest.mark.slow
@needs_interpreter
def test_a_seed_a_step_another_epoch_other_seeds(seeds: list[int]) -> None:
    task = task_of()
    first, second = (seeds_of(task, seeds, range(3), epoch) for epoch in (1, 2))
    assert [b - a for a, b in pairwise(first)] == [1, 1]
    assert first[0] != second[0] and seeds_of(task_of(), seeds, range(3)) == first
    assert seeds_of(task_of(seed=1), seeds, range(1)) != first[:1]


@pytest.mark.slow
@needs_interpreter
def test_processes_have_seeds_of_their_own(seeds: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LanguageTask, "_averaged_over_group", lambda self, gradients: gradients)
    ours, theirs = (seeds_of(task_of(Group(rank, 2)), seeds, range(1)) for rank in (0, 1))
    assert ours != theirs


@pytest.mark.slow
@needs_interpreter
def test_a_checkpoint_keeps_the_seed(seeds: list[int]) -> None:
    task, other = task_of(), task_of()
    begun = seeds_of(task, seeds, range(2))
    tensors, meta = task.state()
    assert seeds_of(task, seeds, range(2, 3), 0) == [begun[-1] + 1]
    other.begin_epoch(1)
    other.load_state(tensors, meta)
    assert seeds_of(other, seeds, range(2, 3), 0) == [begun[-1] + 1]
    assert all(
        torch.equal(a, b) for a, b in zip(task.model.parameters(), other.model.parameters(), strict=True)
    )


# ---- a second stream -------------------------------------------------------------------------------------------------


class Late(SideStream):
    """All that is run beside is done when it joins, and not a moment earlier."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.left: list[Callable[[], object]] = []
        self.runs = 0

    def run(self, function: Callable[..., Any], *tensors: Tensor) -> Any:
        self.runs += 1
        if not tensors:
            self.left.append(function)
            return None
        made = function(*tensors)
        out = tuple(torch.full_like(t, torch.nan) for t in made)
        self.left += [lambda a=a, b=b: a.copy_(b) for a, b in zip(out, made, strict=True)]
        return out

    def join(self) -> None:
        for each in self.left:
            each()
        self.left.clear()


def test_a_step_waits_for_what_runs_beside_it() -> None:
    task, late = task_of(), task_of()
    late.side = beside = Late()
    for each in (task, late):
        for index in range(each.begin_epoch(1)):
            each.step(index)
            assert not beside.left
    assert beside.runs == 2 * 3  # steps: the gradients of the softmax, and the way to the next window
    for name, tensor in task._changing().items():
        assert torch.equal(late._changing()[name], tensor), name


def test_tensors_are_held_until_the_stream_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream:
        def __init__(self) -> None:
            self.waited: list[object] = []

        def wait_stream(self, other: object) -> None:
            self.waited.append(other)

    own, second = Stream(), Stream()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: own)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    beside = SideStream(torch.device("cpu"))
    beside._stream = second  # pyright: ignore[reportAttributeAccessIssue]
    given = torch.ones(3)
    made = beside.run(lambda t: t + 1, given)
    assert (second.waited, own.waited) == ([own], [])
    alive = [weakref.ref(given), weakref.ref(made)]
    del given, made
    assert all(ref() is not None for ref in alive)
    beside.join()
    assert own.waited == [second] and not any(ref() for ref in alive)
