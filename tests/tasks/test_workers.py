from __future__ import annotations

import threading

import pytest
import torch

from rrnn.errors import RunError
from rrnn.tasks.threads import cpu_threads
from rrnn.tasks.workers import side_by_side


def test_side_by_side_gives_errors_as_answers() -> None:
    def half(n: int) -> int:
        if n % 2:
            raise ValueError(f"{n} is odd")
        return n // 2

    found = dict(side_by_side(half, range(4), threads=2))
    assert found[0] == 0 and found[2] == 1 and isinstance(found[1], ValueError)
    with pytest.raises(RunError, match="not both; got 2 processes and 2 threads"):
        list(side_by_side(half, range(4), threads=2, processes=2))


def test_one_cpu_thread_until_the_last_is_done() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        first, second = cpu_threads(1), cpu_threads(1)
        first.__enter__()
        second.__enter__()
        assert torch.get_num_threads() == 1
        first.__exit__(None, None, None)
        assert torch.get_num_threads() == 1
        second.__exit__(None, None, None)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 3])
def test_what_comes_of_an_answer_begins_at_once(threads: int) -> None:
    """Not when all others are done: 9 waits until the last of what 0 leads to is there."""
    last, found = threading.Event(), list[int]()

    def work(number: int) -> int:
        if number == 9 and threads > 1:
            assert last.wait(60)
        if number == 5:
            raise ValueError("five")
        return number

    def then() -> list[int]:
        return [found[-1] + 1] if found[-1] < 5 else []

    for number, answer in side_by_side(work, [0, 9], then=then, threads=threads):
        assert isinstance(answer, ValueError) if number == 5 else answer == number
        found.append(number)
        if number == 5:
            last.set()
    assert sorted(found) == [0, 1, 2, 3, 4, 5, 9] and (threads == 1 or found[-1] == 9)
