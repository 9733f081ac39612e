from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from search_objectives import SPACE, Hanging, failing, moody, plain

from rrnn.errors import RunError
from rrnn.tasks.search import Plan, counted, leave_out_the_dead, open_study, work
from rrnn.tasks.search_run import Standing, search
from rrnn.tasks.search_space import Real, Setting, Whole, draw_setting
from rrnn.tasks.search_workers import one_cpu_thread, side_by_side


def plan(folder: Path, **options: object) -> Plan:
    return Plan(str(folder / "journal"), "study", SPACE, **options)  # pyright: ignore[reportArgumentType]


def test_draws_stay_in_their_ranges_and_depend_on_the_number_alone() -> None:
    settings = [draw_setting(SPACE, 0, number) for number in range(300)]
    assert settings == [draw_setting(dict(reversed(SPACE.items())), 0, number) for number in range(300)]
    assert all(0 <= s["x"] <= 1 and s["n"] in (2, 4, 6, 8) and 1e-4 <= s["rate"] <= 1e-2 for s in settings)
    assert 110 < sum(s["rate"] < 1e-3 for s in settings) < 190  # a decade is half of the range
    assert {s["n"] for s in settings} == {2, 4, 6, 8}
    assert draw_setting(SPACE, 1, 0) != settings[0]


def test_the_ends_of_ranges() -> None:
    assert Whole(100, 300, step=4).at(0.0) == 100 and Whole(100, 300, step=4).at(0.999999) == 300
    assert Real(1e-4, 1e-2, log=True).at(0.5) == pytest.approx(1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["journal", "sqlite:///{}/study.db"])
def test_failures_are_recorded_and_do_not_stop_the_study(tmp_path: Path, storage: str) -> None:
    where = Plan(
        storage.format(tmp_path) if "://" in storage else str(tmp_path / storage), "s", SPACE, trials=12
    )
    seen: list[Standing] = []
    best = search(where, moody, watch=seen.append)
    settings = [draw_setting(SPACE, 0, number) for number in range(12)]
    good = [s["x"] for s in settings if s["n"] > 4]
    assert best.value == max(good) and best.setting == settings[best.number]
    assert seen[-1].done == len(good) and seen[-1].failed == 12 - len(good) > 0
    errors = {t.user_attrs["error"] for t in open_study(where).get_trials() if "error" in t.user_attrs}
    assert errors == {"ValueError: two is too few", "RunError: the trial's value is nan"}


def test_a_study_goes_on_where_it_stopped(tmp_path: Path) -> None:
    search(plan(tmp_path, trials=3), plain)
    best = search(plan(tmp_path, trials=6), plain)
    trials = open_study(plan(tmp_path)).get_trials()
    assert len(trials) == 6
    assert best.value == max(draw_setting(SPACE, 0, number)["x"] for number in range(6))
    assert search(plan(tmp_path, trials=6), failing) == best  # nothing was left to do


def test_among_equals_the_first_is_the_best(tmp_path: Path) -> None:
    assert search(plan(tmp_path, trials=3), lambda _: (1.0, {})).number == 0


def test_tpe(tmp_path: Path) -> None:
    assert 0 <= search(plan(tmp_path, trials=12, sampler="tpe"), plain).value <= 1


def test_exactly_as_many_trials_as_wanted(tmp_path: Path) -> None:
    """However many ask at once."""
    where = plan(tmp_path, trials=3)
    open_study(where)
    threads = [threading.Thread(target=work, args=(where, plain)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    trials = open_study(where).get_trials()
    assert len(counted(trials)) == 3
    assert all(trial.state.name in ("COMPLETE", "PRUNED") for trial in trials)


@pytest.mark.slow
def test_a_killed_workers_trial_is_done_anew(tmp_path: Path) -> None:
    where = plan(tmp_path, trials=4)

    def kill_the_hanging_one() -> None:
        while not (pid := tmp_path / "pid").exists() or not pid.read_text():
            time.sleep(0.05)
        os.kill(int(pid.read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill_the_hanging_one)
    killer.start()
    search(where, Hanging(tmp_path), workers=2)
    killer.join()
    trials = open_study(where).get_trials()
    killed = [t for t in trials if "left_out" in t.user_attrs and t.state.name == "FAIL"]
    assert [t.user_attrs["left_out"] for t in killed] == ["its worker was killed"]
    assert _settings_done(where) == list(range(4))  # the killed one's, too
    search(more := plan(tmp_path, trials=5), plain)
    assert _settings_done(more) == list(
        range(5)
    )  # one more: trials' numbers are no longer those of their settings


def _settings_done(where: Plan) -> list[int]:
    numbers = {draw_setting(SPACE, 0, number)["x"]: number for number in range(10)}
    trials = open_study(where).get_trials()
    return sorted(numbers[t.params["x"]] for t in trials if t.state.name == "COMPLETE")


def test_a_worker_elsewhere_is_given_up_when_it_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = open_study(plan(tmp_path))
    study.ask().set_user_attr("owner", ("elsewhere", 1))
    leave_out_the_dead(study)
    assert len(counted(study.get_trials())) == 1
    monkeypatch.setattr("rrnn.tasks.search.STALE_SECONDS", 0.0)
    leave_out_the_dead(study)
    assert counted(study.get_trials()) == []


def test_what_cannot_be_searched(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="all 2 trials failed; the first: ValueError: never works"):
        search(plan(tmp_path, trials=2), failing)
    with pytest.raises(RunError, match=r"another configuration:\n  data: was None, now 'sst'"):
        search(plan(tmp_path, about={"data": "sst"}), plain)
    with pytest.raises(RunError, match="cannot be opened"):
        open_study(Plan("nosuch://x", "s", SPACE))


def test_a_worker_that_was_given_up_finds_its_trial_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = plan(tmp_path, trials=1)

    def silent(setting: Setting) -> tuple[float, dict[str, Any]]:
        with monkeypatch.context() as patch:
            patch.setattr("rrnn.tasks.search._is_alive", lambda _: False)
            leave_out_the_dead(open_study(where))
        return plain(setting)

    objectives = iter([silent, plain])
    work(where, lambda setting: next(objectives)(setting))
    assert [trial.state.name for trial in open_study(where).get_trials()] == ["FAIL", "COMPLETE"]


def test_two_give_up_a_trial_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rrnn.tasks.search.STALE_SECONDS", 0.0)
    study = open_study(plan(tmp_path))
    study.ask().set_user_attr("owner", ("elsewhere", 1))
    storage: Any = study._storage
    write = storage.set_trial_state_values

    def second(number: int, *arguments: Any, **options: Any) -> None:
        write(number, *arguments, **options)  # the other, between this one's look and its writing
        write(number, *arguments, **options)

    monkeypatch.setattr(storage, "set_trial_state_values", second)
    leave_out_the_dead(study)
    assert counted(study.get_trials()) == []


def test_a_damaged_journal_is_named_and_can_be_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = plan(tmp_path, trials=2)
    best = search(where, plain)
    journal = Path(where.storage)
    whole = journal.read_bytes()
    for damage, message in [(b'{"op_code": 4, ', "damaged here"), (b"\xff\n{}\n", "Delete this line")]:
        journal.write_bytes(whole + damage)
        line = whole.count(b"\n") + 1
        with pytest.raises(RunError, match=rf":{line}: .*{message}"):
            open_study(where)
    lines = whole.splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-2]))  # as told: the last trial's end is lost, and comes again
    monkeypatch.setattr("rrnn.tasks.search.STALE_SECONDS", 1.0)
    assert search(where, plain).value == best.value


@pytest.mark.parametrize(
    "job",
    ["search(plan, Hanging(folder), workers=2)", "list(side_by_side(Hanging(folder), [{}], processes=2))"],
)
def test_workers_leave_with_who_started_them(tmp_path: Path, job: str) -> None:
    script = f"{SEARCH}    {job}\n"
    starter = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], cwd=Path(__file__).parents[1])
    try:
        worker = _pid_in(tmp_path / "pid")
        os.kill(worker, 0)
    finally:
        starter.kill()
        starter.wait()
    for _ in range(200):
        if not _is_running(worker):
            return
        time.sleep(0.05)
    os.kill(worker, signal.SIGKILL)
    raise AssertionError("the worker goes on by itself")


SEARCH = """
import sys
from pathlib import Path
from search_objectives import SPACE, Hanging
from rrnn.tasks.search import Plan
from rrnn.tasks.search_run import search
from rrnn.tasks.search_workers import side_by_side
if __name__ == "__main__":
    folder = Path(sys.argv[1])
    plan = Plan(str(folder / "journal"), "s", SPACE, 3)
"""


def _pid_in(path: Path) -> int:
    for _ in range(1200):
        if path.exists() and (text := path.read_text()):
            return int(text)
        time.sleep(0.05)
    raise AssertionError("no worker came")


def _is_running(pid: int) -> bool:
    """Not only a dead one that nobody has buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_side_by_side_gives_errors_as_answers() -> None:
    def half(n: int) -> int:
        if n % 2:
            raise ValueError(f"{n} is odd")
        return n // 2

    found = dict(side_by_side(half, range(4), threads=2))
    assert found[0] == 0 and found[2] == 1 and isinstance(found[1], ValueError)
    with pytest.raises(RunError, match="got both"):
        list(side_by_side(half, range(4), threads=2, processes=2))


def test_one_cpu_thread_until_the_last_is_done() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        first, second = one_cpu_thread(), one_cpu_thread()
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
