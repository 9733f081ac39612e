from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState
from search_objectives import SPACE, Hanging, failing, moody, pid_in, plain

from rrnn.errors import RunError
from rrnn.tasks.search import (
    Plan,
    Real,
    Setting,
    Standing,
    Whole,
    draw_setting,
    open_study,
    retry_abandoned,
    search,
    standing,
    work,
)

pytestmark = pytest.mark.slow


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


@pytest.fixture(params=["journal", "sqlite"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "journal") if request.param == "journal" else f"sqlite:///{tmp_path}/study.db"


def trials_of(where: Plan) -> list[FrozenTrial]:
    with open_study(where) as study:
        return study.get_trials()


def settings_done(where: Plan) -> list[int]:
    """Return the numbers of the settings that were trained, known by their values."""
    numbers = {draw_setting(SPACE, 0, number)["x"]: number for number in range(10)}
    return sorted(numbers[t.params["x"]] for t in trials_of(where) if t.state.name == "COMPLETE")


def test_failures_are_recorded_and_do_not_stop_the_study(storage: str) -> None:
    where = Plan(storage, "s", SPACE, trials=12)
    seen: list[Standing] = []
    best = search(where, moody, watch=seen.append)
    settings = [draw_setting(SPACE, 0, number) for number in range(12)]
    good = [s["x"] for s in settings if s["n"] > 4]
    assert best.value == max(good) and best.params == settings[best.number]
    assert seen[-1].done == len(good) and seen[-1].failed == 12 - len(good) > 0
    errors = {t.user_attrs["error"] for t in trials_of(where) if "error" in t.user_attrs}
    assert errors == {"ValueError: two is too few", "RunError: the trial's value is nan"}


def test_a_study_goes_on_where_it_stopped(tmp_path: Path) -> None:
    search(plan(tmp_path, trials=3), plain)
    best = search(plan(tmp_path, trials=6), plain)
    assert len(trials_of(plan(tmp_path, trials=6))) == 6
    assert best.value == max(draw_setting(SPACE, 0, number)["x"] for number in range(6))
    assert search(plan(tmp_path, trials=6), failing) == best  # nothing was left to do
    assert search(plan(tmp_path, trials=3), failing) == best
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]


def test_a_study_of_version_0_1_goes_on(tmp_path: Path) -> None:
    """It drew each setting when its trial started, and marked the trials whose workers were killed."""
    where, settings = plan(tmp_path, trials=3), [draw_setting(SPACE, 0, number) for number in range(3)]
    storage = JournalStorage(JournalFileBackend(where.storage))
    study = optuna.create_study(storage=storage, study_name=where.name, direction="maximize")
    study.set_user_attr("about", {})
    for number, state in enumerate(("COMPLETE", "FAIL", "RUNNING")):
        study.add_trial(
            FrozenTrial(
                number=number,
                state=TrialState[state],
                value=settings[0]["x"] if state == "COMPLETE" else None,
                params=settings[number],
                distributions={
                    "x": FloatDistribution(0.0, 1.0),
                    "n": IntDistribution(2, 8, step=2),
                    "rate": FloatDistribution(1e-4, 1e-2, log=True),
                },
                user_attrs={"setting": number, "owner": ["elsewhere", 1]}
                | ({"left_out": "its worker was killed"} if state == "FAIL" else {}),
                system_attrs={},
                intermediate_values={},
                datetime_start=datetime(2026, 1, 1),
                datetime_complete=None if state == "RUNNING" else datetime(2026, 1, 2),
                trial_id=number,
            )
        )
    search(where, plain)
    # The worker and the process that waits for it may both enqueue the lost trial's setting; one of them is trained.
    states = [trial.state.name for trial in trials_of(where)]
    assert settings_done(where) == [0, 1, 2]
    assert (states.count("COMPLETE"), states.count("FAIL"), states.count("RUNNING")) == (3, 2, 0)


def test_among_equals_the_first_is_the_best(tmp_path: Path) -> None:
    assert search(plan(tmp_path, trials=3), lambda _: (1.0, {})).number == 0


def test_tpe(tmp_path: Path) -> None:
    where = plan(tmp_path, trials=12, sampler="tpe")
    assert 0 <= (search(where, plain).value or -1) <= 1
    assert sorted(t.user_attrs["setting"] for t in trials_of(where)) == list(range(12))


def test_searches_that_start_at_the_same_moment_train_each_setting_once(storage: str) -> None:
    where, trained, barrier = Plan(storage, "s", SPACE, trials=4), list[float](), threading.Barrier(4)

    def objective(setting: Setting) -> tuple[float, dict[str, Any]]:
        trained.append(setting["x"])
        return setting["x"], {}

    def start() -> None:
        barrier.wait(60)
        work(where, objective)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(trained) == sorted(draw_setting(SPACE, 0, number)["x"] for number in range(4))
    assert settings_done(where) == [0, 1, 2, 3]
    enqueued = [trial for trial in trials_of(where) if "setting" in trial.user_attrs]
    assert len(enqueued) == 4


def test_what_is_enqueued_twice_is_pruned_before_it_trains(storage: str) -> None:
    where = Plan(storage, "s", SPACE, trials=3)
    with open_study(where) as study:
        for number in (1, 0):
            study.enqueue_trial(draw_setting(SPACE, 0, number), user_attrs={"setting": number})
    search(more := Plan(storage, "s", SPACE, trials=4), plain)
    assert [t.state.name for t in trials_of(more)] == ["COMPLETE"] * 3 + ["PRUNED"] * 2 + ["COMPLETE"]
    assert settings_done(more) == [0, 1, 2, 3]


def test_a_killed_workers_trial_is_trained_again(tmp_path: Path) -> None:
    where = plan(tmp_path, trials=4)
    killer = threading.Thread(target=lambda: os.kill(pid_in(tmp_path / "pid"), signal.SIGKILL))
    killer.start()
    search(where, Hanging(tmp_path), workers=2)
    killer.join()
    assert settings_done(where) == list(range(4))  # the killed one's, too
    (killed,) = [t for t in trials_of(where) if t.state.name == "FAIL"]
    (again,) = [t for t in trials_of(where) if t.system_attrs.get("failed_trial") == killed.number]
    assert again.params == killed.params and again.state.name == "COMPLETE"
    search(more := plan(tmp_path, trials=5), plain)
    assert settings_done(more) == list(range(5))
    assert not list(tmp_path.glob("journal.*"))


def test_a_silent_worker_of_a_database_is_given_up(tmp_path: Path) -> None:
    """Even if it was killed before its first heartbeat."""
    where = Plan(f"sqlite:///{tmp_path}/study.db", "s", SPACE, trials=2, heartbeat_seconds=1, grace_seconds=1)
    with open_study(where) as study:
        storage: Any = study._storage
        for trial in study.get_trials():
            storage.set_trial_state_values(trial._trial_id, TrialState.RUNNING)
        storage.record_heartbeat(study.get_trials()[0]._trial_id)
        retry_abandoned(study, where)
        assert standing(study, where).running == 2
        time.sleep(2.5)
        retry_abandoned(study, where)
        assert [t.state.name for t in study.get_trials()] == ["FAIL", "FAIL", "WAITING", "WAITING"]
    search(where, plain)
    assert settings_done(where) == [0, 1]


def test_what_cannot_be_searched(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="all 2 trials failed; the first: ValueError: never works"):
        search(plan(tmp_path, trials=2), failing)
    with pytest.raises(RunError, match=r"another configuration:\n  data: was None, now 'sst'"):
        search(plan(tmp_path, about={"data": "sst"}), plain)
    with pytest.raises(RunError, match="search_seed: was 0, now 1"):
        search(plan(tmp_path, seed=1), plain)


def test_storage_errors_say_what_to_do_and_hide_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    def error_of(url: str) -> str:
        where = Plan(url, "s", SPACE)
        with pytest.raises(RunError) as caught, open_study(where):
            pass
        text = "".join(traceback.format_exception(caught.value)) + repr(where)
        assert "geheim" not in text, text
        return str(caught.value)

    assert "cannot be used: Can't load plugin" in error_of("nosuch://x:geheim@host/db")
    refused = error_of("postgresql://me:geheim@127.0.0.1:1/db?sslpassword=geheim")
    assert "the database postgresql://me:***@127.0.0.1:1/db cannot be used: " in refused
    assert "refused" in refused and "Check that its server is running" in refused
    for url in ("me:ge@geheim@host/db", "m/e:geheim@host/db", "me:x@host:geheim/db"):
        assert "percent-encoded" in error_of(f"postgresql://{url}")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for url in ("postgresql://me:geheim@host/db", "postgres://host/db"):
        assert "needs the driver psycopg: pip install 'rrnn[postgresql]'" in error_of(url)


def test_a_worker_that_was_given_up_finds_its_trial_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = plan(tmp_path, trials=1)

    def silent(setting: Setting) -> tuple[float, dict[str, Any]]:
        with monkeypatch.context() as patch, open_study(where) as study:
            patch.setattr("rrnn.tasks.search.is_abandoned", lambda *_: True)
            retry_abandoned(study, where)
        return plain(setting)

    objectives = iter([silent, plain])
    work(where, lambda setting: next(objectives)(setting))
    assert [trial.state.name for trial in trials_of(where)] == ["FAIL", "COMPLETE"]


def test_two_give_up_a_trial_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = plan(tmp_path, trials=1)
    with open_study(where) as study, monkeypatch.context() as patch:
        study.ask()
        storage: Any = study._storage
        write = storage.set_trial_state_values

        def second(number: int, *arguments: Any, **options: Any) -> None:
            write(number, *arguments, **options)  # the other, between this one's look and its writing
            write(number, *arguments, **options)

        patch.setattr("rrnn.tasks.search.is_abandoned", lambda *_: True)
        patch.setattr(storage, "set_trial_state_values", second)
        retry_abandoned(study, where)
    search(where, plain)  # the other one died before it enqueued the setting again
    assert [trial.state.name for trial in trials_of(where)] == ["FAIL", "COMPLETE"]


def test_a_damaged_journal_is_named_and_can_be_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = plan(tmp_path, trials=2)
    best = search(where, plain)
    journal = Path(where.storage)
    whole = journal.read_bytes()
    for damage in (b'{"op_code": 4, ', b"\xff\n{}\n"):
        journal.write_bytes(whole + damage)
        line = whole.count(b"\n") + 1
        with pytest.raises(RunError, match=rf":{line}: .*damaged from here on. Delete this line"):
            trials_of(where)
    lines = whole.splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-2]))  # as told: the last trial's end is lost, and comes again
    monkeypatch.setattr("rrnn.tasks.search_storage.START_SECONDS", 1.0)
    assert search(where, plain).value == best.value


@pytest.mark.parametrize(
    "job",
    ["search(plan, Hanging(folder), workers=2)", "list(side_by_side(Hanging(folder), [{}], processes=2))"],
)
def test_workers_leave_with_who_started_them(tmp_path: Path, job: str) -> None:
    script = f"{SEARCH}    {job}\n"
    starter = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], cwd=Path(__file__).parents[1])
    try:
        worker = pid_in(tmp_path / "pid")
        os.kill(worker, 0)
    finally:
        starter.kill()
        starter.wait()
    for _ in range(200):
        if not is_running(worker):
            return
        time.sleep(0.05)
    os.kill(worker, signal.SIGKILL)
    raise AssertionError("the worker goes on by itself")


SEARCH = """
import sys
from pathlib import Path
from search_objectives import SPACE, Hanging
from rrnn.tasks.search import Plan, search
from rrnn.tasks.workers import side_by_side
if __name__ == "__main__":
    folder = Path(sys.argv[1])
    plan = Plan(str(folder / "journal"), "s", SPACE, 3)
"""


def is_running(pid: int) -> bool:
    """Not only a dead one that nobody has buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
