"""The training loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from toy_task import CONFIG, STEPS, ToyTask, train

from rrnn.errors import RunError
from rrnn.tasks.runs import Run
from rrnn.tasks.training import Group, Progress, fit


def test_in_memory_as_in_a_folder(tmp_path: Path) -> None:
    task = ToyTask()
    ours, theirs = fit(task, epochs=3), train(tmp_path / "run")
    assert [r["dev_distance"] for r in ours.history] == [r["dev_distance"] for r in theirs.history]
    assert ours.best and theirs.best and ours.best.weights["weight"].equal(theirs.best.weights["weight"])


def test_the_loop_by_hand() -> None:
    """The twin: what fit does, without looks, checkpoints and records."""
    twin, distances = ToyTask(), []
    for epoch in (1, 2, 3):
        for index in range(twin.begin_epoch(epoch)):
            twin.step(index)
        distances.append(twin.evaluate("dev"))
        twin.end_epoch(epoch, distances[-1])
    task = ToyTask()
    outcome = fit(task, epochs=3)
    assert task.weight.equal(twin.weight)
    assert [r["dev_distance"] for r in outcome.history] == [d["distance"] for d in distances]
    best = min(range(3), key=lambda i: distances[i]["distance"])
    assert outcome.best and outcome.best.epoch == best + 1


def test_records(tmp_path: Path) -> None:
    outcome = train(tmp_path / "run")
    records = Run.open(tmp_path / "run").records()
    assert records == outcome.history
    assert [record["epoch"] for record in records] == [1, 2, 3]
    assert records[0].keys() == {"epoch", "train_loss", "lr", "seconds", "tokens_per_s", "dev_distance"}
    assert [record["lr"] for record in records] == pytest.approx([0.1, 0.09, 0.081])


def test_best_is_the_model_as_evaluated(tmp_path: Path) -> None:
    train(tmp_path / "run")
    best = Run.open(tmp_path / "run").load("best")
    assert best
    task = ToyTask()
    task.average = best.tensors["weight"]
    assert task.evaluate("dev")["distance"] == best.meta["value"]


@pytest.mark.parametrize(("aim", "worst"), [("min", 3), ("max", 1)])
def test_what_best_means(monkeypatch: pytest.MonkeyPatch, aim: str, worst: int) -> None:
    monkeypatch.setattr(ToyTask, "metric", ("score", aim))
    monkeypatch.setattr(ToyTask, "evaluate", lambda self, split: {"score": -float(self.epoch)})
    outcome = fit(ToyTask(), epochs=3)
    assert outcome.best and outcome.best.epoch == (1 if aim == "max" else 3) and outcome.best.epoch == worst


def test_the_task_may_stop_and_stays_stopped(tmp_path: Path) -> None:
    assert len(train(tmp_path / "run", epochs=9, stop_at=2).history) == 2
    notes = Notes()
    assert len(train(tmp_path / "run", epochs=9, progress=notes).history) == 2
    assert notes.heard == [
        "resumed after epoch 2, when it had already stopped: there is nothing left to train"
    ]


@pytest.mark.parametrize(
    ("epoch", "said"), [(1, "no checkpoint was written before"), (2, "resumed after epoch 1")]
)
def test_the_first_epoch_is_kept_however_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epoch: int, said: str
) -> None:
    def interrupted(
        task: ToyTask, number: int, dev: dict[str, float], honest: Any = ToyTask.end_epoch
    ) -> bool:
        if number == epoch:
            raise KeyboardInterrupt
        return honest(task, number, dev)

    with (
        monkeypatch.context() as patch,
        Run.create(tmp_path / "run", {"task": "toy"}) as run,
        pytest.raises(KeyboardInterrupt),
    ):
        patch.setattr(ToyTask, "end_epoch", interrupted)
        fit(ToyTask(), run, epochs=3)
    notes = Notes()
    with Run.create(tmp_path / "run", {"task": "toy"}, resume=True) as run:
        assert len(fit(ToyTask(), run, epochs=3, progress=notes).history) == 3
    assert notes.heard[0].startswith(said)


def test_a_finished_run_goes_on_where_more_epochs_are_asked_for(tmp_path: Path) -> None:
    train(tmp_path / "run", epochs=2)
    before = (tmp_path / "run" / "last.safetensors").read_bytes()
    assert len(train(tmp_path / "run", epochs=2).history) == 2
    assert (tmp_path / "run" / "last.safetensors").read_bytes() == before
    assert len(train(tmp_path / "run", epochs=3).history) == 3


class Notes(Progress):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def note(self, text: str) -> None:
        self.heard.append(text)


def test_a_damaged_best_is_said(tmp_path: Path) -> None:
    train(tmp_path / "run", epochs=2)
    best = tmp_path / "run" / "best.safetensors"
    best.rename(tmp_path / "run" / "best.previous.safetensors")
    best.write_bytes(b"damaged")
    notes = Notes()
    train(tmp_path / "run", epochs=2, progress=notes)
    assert any("best.previous.safetensors, is used" in note for note in notes.heard)


def test_a_best_of_epochs_to_come_gives_way(tmp_path: Path) -> None:
    """A process killed between the two writes leaves a `best` newer than `last`; on a GPU it may not come again."""
    ours = train(tmp_path / "run", epochs=2).best
    assert ours is not None
    with Run.create(tmp_path / "run", {**CONFIG, "epochs": 3}, "cell text", resume=True) as run:
        run.save("best", ours.weights, {"epoch": 3, "value": -1.0})
    best = train(tmp_path / "run", epochs=2).best
    assert best is not None and (best.epoch, best.value) == (ours.epoch, ours.value)


def test_a_lost_best(tmp_path: Path) -> None:
    train(tmp_path / "run", epochs=2)
    for path in (tmp_path / "run").glob("best.*"):
        path.unlink()
    with pytest.raises(RunError, match="has lost its checkpoint `best`, and no epoch is left"):
        train(tmp_path / "run", epochs=2)
    notes = Notes()
    outcome = train(tmp_path / "run", epochs=3, progress=notes)
    assert outcome.best is not None and outcome.best.epoch == 3
    assert any("the best of the remaining epochs" in note for note in notes.heard)


def test_a_loss_that_is_no_number_stops_with_advice(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"training loss became inf in epoch 2.*learning rate \(it is 0.09\)"):
        train(tmp_path / "run", explode_at=2)
    run = Run.open(tmp_path / "run")
    assert [record["epoch"] for record in run.records()] == [1]
    last = run.load("last")
    assert last and last.meta["epoch"] == 1 and last.meta["index"] == 0


def test_a_dev_metric_that_is_no_number_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToyTask, "evaluate", lambda self, split: {"distance": float("nan")})
    with pytest.raises(RunError, match="the dev distance became nan"):
        fit(ToyTask(), epochs=2)


def test_checkpoints_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that a step moves by one second."""
    now, written = [0.0], []

    def tick(self: ToyTask, index: int, step: Any = ToyTask.step) -> None:
        now[0] += 1
        step(self, index)

    def save(self: Run, name: str, *_: object) -> None:
        if name == "last":
            written.append(now[0])

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr(ToyTask, "step", tick)
    monkeypatch.setattr(Run, "save", save)
    with Run.create(tmp_path / "run", {"task": "toy"}) as run:
        fit(ToyTask(), run, epochs=4, checkpoint_seconds=3)
    assert written == [STEPS, STEPS + 3, STEPS + 6, 4 * STEPS]


def test_progress_hears_of_all() -> None:
    heard: list[str] = []

    class Listener(Progress):
        def begin(self, epochs: int, history: list[Any]) -> None:
            heard.append(f"begin {epochs}")

        def step(self, epoch: int, done: int, steps: int, loss: float, speed: float) -> None:
            heard.append(f"step {epoch}.{done}/{steps}")

        def epoch(self, record: Any, is_best: bool) -> None:
            heard.append(f"epoch {record['epoch']} {is_best}")

        def end(self) -> None:
            heard.append("end")

    fit(ToyTask(), epochs=1, checkpoint_seconds=0, progress=Listener())
    assert heard == ["begin 1", "step 1.1/2", "step 1.2/2", "epoch 1 True", "end"]


def test_alone_a_group_changes_nothing() -> None:
    assert Group().broadcast({"a": 1.5}) == {"a": 1.5} and Group().sum([1.0, 2.0]) == [1.0, 2.0]
