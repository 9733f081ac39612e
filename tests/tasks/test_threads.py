"""Trainings use the processors that are free."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny_classifier import tiny, tiny_config

from rrnn.tasks import threads
from rrnn.tasks.classify import train
from rrnn.tasks.threads import ThreadChoice, allowed_cpus, free_cpus
from rrnn.tasks.training import Progress


def test_processors_that_others_use_are_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "allowed_cpus", lambda: 4)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    for others, free in ((0, 4), (3, 4), (5, 3), (7, 1), (40, 1)):
        monkeypatch.setattr(threads, "_running", lambda others=others: others)
        assert free_cpus() == free
    monkeypatch.setattr(threads, "_running", lambda: None)  # not on Linux
    assert free_cpus() == 4


@pytest.mark.skipif(not Path("/proc/loadavg").exists(), reason="only Linux tells who is running")
def test_our_own_threads_are_not_others() -> None:
    running = threads._running()
    assert running is not None and running >= 0
    assert threads._state(Path(f"/proc/self/task/{os.getpid()}")) == "R"  # we are


def test_a_container_may_have_a_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert allowed_cpus() == 8
    (tmp_path / "cpu.max").write_text("250000 100000\n")
    assert allowed_cpus() == 2
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert allowed_cpus() == 1
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert allowed_cpus() == 8
    (tmp_path / "cpu.max").unlink()
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("300000\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert allowed_cpus() == 3
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    assert allowed_cpus() == 8


@pytest.fixture
def six(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that torch uses six threads, and that two processors are free."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    monkeypatch.setattr(threads, "free_cpus", lambda: 2)


@pytest.mark.usefixtures("six")
def test_who_asks_gets_what_he_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ThreadChoice()() == 2 and not ThreadChoice().is_fixed
    assert ThreadChoice(5)() == 5
    choice = ThreadChoice()
    assert choice() == 2
    monkeypatch.setattr(threads, "free_cpus", lambda: 9)
    assert choice() == 2  # for some seconds
    choice._until = 0.0
    assert choice() == 6
    monkeypatch.setenv("OMP_NUM_THREADS", "6")
    assert ThreadChoice()() == 6 and ThreadChoice().is_fixed


@pytest.mark.parametrize("asked", [None, 3])
def test_a_training_uses_them(asked: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []
    notes: list[str] = []

    class Watch(Progress):
        def epoch(self, record: dict[str, object], is_best: bool) -> None:
            used.append(torch.get_num_threads())

        def note(self, text: str) -> None:
            notes.append(text)

    count = [4]  # threads that do not exist do not wait for each other
    monkeypatch.setattr(torch, "get_num_threads", lambda: count[0])
    monkeypatch.setattr(torch, "set_num_threads", lambda n: count.__setitem__(0, n))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "free_cpus", lambda: 2)
    monkeypatch.setattr("rrnn.tasks.classify.experiment.SMALL_STEP", 0)
    config = tiny_config(epochs=2, threads=asked, cell="LSTM")
    train(config, data=tiny(config), progress=Watch())
    assert used == [asked or 2] * 2 and torch.get_num_threads() == 4
    assert any("using 2 of 4 CPU threads" in line for line in notes) == (asked is None)


@pytest.mark.parametrize(("given", "spins"), [({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7")])
def test_the_command_lets_waiting_threads_sleep_soon(given: dict[str, str], spins: str) -> None:
    program = "import os; from rrnn.cli import main; main(['--version']); print(os.environ['GOMP_SPINCOUNT'])"
    environment = {
        k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    } | given
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-1] == spins
