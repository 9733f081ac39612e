"""The queue of language models: what is begun, and what is left alone."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

TINY = {
    "hidden_size": 16,
    "layers": 1,
    "batch_size": 64,
    "epochs": 1,
    "device": "cpu",
}


def test_the_plan_names_each_training_once_with_settings_that_exist(tmp_path: Path) -> None:
    import lm_plan
    from paper_lm import ROWS

    from rrnn.tasks.lm.config import LMConfig

    trainings = lm_plan.planned(tmp_path)
    assert len({training.place for training in trainings}) == len(trainings) > 50
    every = [training for part in lm_plan.PARTS.values() for training in part(tmp_path)]
    assert all(training in trainings for training in every)  # none has the place of another one
    for training in trainings:
        assert training.row in ROWS and 20 < training.seconds < 1500
        LMConfig.from_dict({"hidden_size": 16, **training.settings})


def test_the_best_setting_is_the_preset() -> None:
    import lm_plan

    from rrnn.tasks.lm.config import LMConfig, preset

    assert preset("best-24m") == LMConfig.from_dict({"data": "ptb", **lm_plan.BEST})


def test_the_script_for_whole_tables_names_parts_of_the_plan() -> None:
    import lm_plan

    script = Path(lm_plan.__file__).with_name("run_paper.sh").read_text(encoding="utf-8")
    named = re.search(r"parts=\(--parts (.*?)\)", script, re.DOTALL)
    assert named and len(named[1].split()) == 7 and set(named[1].split()) <= set(lm_plan.PARTS)


def test_the_choice_waits_for_all_trials(tmp_path: Path) -> None:
    import lm_plan

    tried = lm_plan.trials("B-24m", tmp_path)
    settings = [training.settings for training in lm_plan.trials("F-24m", tmp_path)]
    assert [training.settings for training in tried] == settings  # equal terms
    for number, trial in enumerate(tried):
        assert not any(t.label == "equal" and t.ready(tmp_path) for t in lm_plan.equal(tmp_path))
        finish(tmp_path, trial, abs(number - 2))
    finals = [t for t in lm_plan.equal(tmp_path) if t.label == "equal" and t.ready(tmp_path)]
    assert [(t.row, t.seed, t.test) for t in finals] == [("B-24m", seed, True) for seed in (0, 1, 2)]
    chosen = {**tried[2].settings, "emas": lm_plan.AVERAGED["emas"], "epochs": lm_plan.FINAL_EPOCHS}
    assert all(t.settings == chosen for t in finals)
    labels = {row: lm_plan.equal_label(row) for row in ("F-24m", "B-max-plus-10m", "B-max-plus-24m")}
    assert [*labels.values()] == ["equal", "equal-scaled", "equal-scaled"]  # which gate m+ has


def finish(folder: Path, training: Any, dev: float) -> None:
    (folder / training.place).mkdir(parents=True)
    (folder / training.place / "result.json").write_text(json.dumps({"dev_ppl": dev}), encoding="utf-8")


def test_c_gets_the_start_that_was_best_on_dev(tmp_path: Path) -> None:
    import lm_plan
    import lm_rows

    starts = lm_rows.starts()
    for number, start in enumerate(starts):
        waiting = [*lm_rows.literal_start(tmp_path), *lm_plan.trials("C-24m", tmp_path)]
        assert not any(training.ready(tmp_path) for training in waiting)
        finish(tmp_path, start, abs(number - 3))
    rows, trials = lm_rows.literal_start(tmp_path), lm_plan.trials("C-24m", tmp_path)
    assert [(row.seed, row.test, row.ready(tmp_path)) for row in rows] == [(s, True, True) for s in (0, 1, 2)]
    best = list(lm_rows.STARTS.values())[3]
    assert best == {"rnn_gain": 6.0, "clip": 1.0} and all(
        row.settings.items() >= best.items() for row in rows
    )
    others = lm_plan.trials("F-24m", tmp_path)
    assert [trial.settings for trial in trials] == [{**other.settings, **best} for other in others]


def test_the_plan_repeats_no_start_that_diverged() -> None:
    """A seed is left out where the recorded one was worse than a uniform guess at the 10,000 words."""
    import lm_plan

    folder = Path(__file__).parents[2] / "docs" / "results" / "lm-ptb"
    diverged = list[str]()
    for place in folder.glob("[!.]*-seed-0"):
        epochs = (place / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        if max(json.loads(epoch)["dev_ppl"] for epoch in epochs) > 10_000:
            diverged.append(place.name.removesuffix("-seed-0"))
    assert diverged == ["C-24m+literal"]
    planned = {training.place for training in lm_plan.planned(folder)}
    assert not planned & {f"{name}-seed-{seed}" for name in diverged for seed in (1, 2)}


@pytest.mark.parametrize(("best", "labels"), [(0, []), (3, ["searched"] * 3)])
def test_a_better_embedding_or_shuffle_is_trained_in_full(
    best: int, labels: list[str], tmp_path: Path
) -> None:
    import lm_plan

    tried = lm_plan.knob_trials("F-24m")
    assert sum(t.label == "searched" for t in lm_plan.knobs(tmp_path)) == 4  # the list counts them
    for number, trial in enumerate(tried):
        assert not trial.test and not any(t.ready(tmp_path) for t in lm_plan.knobs(tmp_path) if t.after)
        finish(tmp_path, trial, 60 if number == best else 61)
    finals = [t for t in lm_plan.knobs(tmp_path) if t.after and t.row == "F-24m"]
    assert [t.label for t in finals] == labels and all(t.ready(tmp_path) for t in finals)
    for final in finals:
        assert final.settings == {**tried[best].settings, "epochs": lm_plan.BEST["epochs"]}


def test_f_and_the_lstm_have_the_same_embeddings_and_shuffles() -> None:
    import lm_plan

    ours, theirs = (
        [
            {key: t.settings.get(key) for key in ("embedding_size", "partial_shuffle", "shift", "kept_units")}
            for t in lm_plan.knob_trials(row)
        ]
        for row in ("F-24m", "lstm-24m")
    )
    assert ours == theirs and len({str(settings) for settings in ours}) == len(lm_plan.KNOBS)


def test_the_list_counts_what_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import lm_plan
    import lm_queue

    lm_queue.show(tmp_path, list(lm_plan.PARTS))
    lines = capsys.readouterr().out.splitlines()[2:]
    total = sum(training.seconds for training in lm_plan.planned(tmp_path))
    assert lines[-1].split()[-1] == f"{total:.0f}"
    waiting = [line.split()[0] for line in lines if "waits" in line]
    assert {"B-24m+equal-seed-2", "C-24m+literal-start-seed-0", "lstm-24m+searched-seed-0"} <= {*waiting}
    assert not {*waiting} & {t.place for t in lm_queue.waiting(tmp_path, list(lm_plan.PARTS))}


def test_what_is_there_already_has_the_settings_of_the_plan() -> None:
    import lm_plan

    folder, found = Path(__file__).parents[2] / "docs" / "results" / "lm-ptb", 0
    for training in lm_plan.planned(folder):
        if (place := folder / training.place).exists():
            config, found = json.loads((place / "config.json").read_text()), found + 1
            for key, value in training.settings.items():
                was = config.get(key, value)  # one is older than a setting that it has by default
                assert was == (list(value) if isinstance(value, tuple) else value), (training.place, key)
    assert found >= 12


def test_a_training_is_begun_only_if_it_ends_in_time() -> None:
    import lm_queue
    from lm_plan import Training

    long, short = Training("F-24m", "x", 0, {}), Training("F-10m", "x", 0, {})
    assert lm_queue.in_time([long, short], 1000, 1.0) == [long, short]
    assert lm_queue.in_time([long, short], 150, 1.0) == [short]
    assert lm_queue.in_time([long, short], 150, 2.0) == []
    assert lm_queue.in_time([], 150, 1.0) == []


def test_the_queue_trains_what_is_missing_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import lm_plan
    import lm_queue
    from lm_plan import Training

    text = tmp_path / "text.txt"
    text.write_text("a b c d\n" * 400, encoding="utf-8")
    tiny = {**TINY, "data": str(text)}
    wrong = Training("F-10m", "wrong", 0, {**tiny, "cell": "none"})
    trainings = [
        wrong,
        *(Training("F-10m", "tiny", seed, tiny, folder="tried", test=False) for seed in (0, 1)),
    ]
    monkeypatch.setattr(lm_plan, "PARTS", {"tiny": lambda _: trainings})
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "tried" / "F-10m+tiny-seed-0").mkdir(parents=True)
    lm_queue.work(here, ["tiny"], 1000, there)
    kept = {file.name for file in (there / "tried" / "F-10m+tiny-seed-1").iterdir()}
    assert kept == {"config.json", "metrics.jsonl", "result.json"}
    assert not any((here / "tried" / "F-10m+tiny-seed-0").iterdir())
    assert json.loads((here / "tried" / "F-10m+tiny-seed-1" / "result.json").read_text())["test_ppl"] is None
    assert "F-10m+wrong-seed-0: " in capsys.readouterr().out  # the others are trained all the same
    shutil.rmtree(there / "tried" / "F-10m+tiny-seed-1")  # as if the call had ended before it was copied
    lm_queue.work(here, ["tiny"], 0, there)
    assert {file.name for file in (there / "tried" / "F-10m+tiny-seed-1").iterdir()} == kept
    capsys.readouterr()
    lm_queue.show(here, ["tiny"])
    lines = capsys.readouterr().out.splitlines()
    assert sum("there" in line for line in lines) == 2 and len(lines) == 5


def test_several_queues_share_a_folder(tmp_path: Path) -> None:
    import lm_queue

    place = tmp_path / "tried" / "x"
    with lm_queue.claimed(place) as ours, lm_queue.claimed(place) as theirs:
        assert ours and not theirs
    with lm_queue.claimed(place) as ours:
        assert ours  # the first one gave it up
        place.mkdir()
    with lm_queue.claimed(place) as ours:
        assert not ours
    assert [*place.parent.iterdir()] == [place]


def test_queues_begin_what_no_other_one_has_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import lm_plan
    import lm_queue
    from lm_plan import Training

    first, second = (Training("F-10m", "tiny", seed, {}) for seed in (0, 1))
    then = Training("F-10m", "then", 0, {}, after=(first.place,))
    monkeypatch.setattr(lm_plan, "PARTS", {"tiny": lambda _: [first, second, then]})
    trained, naps = list[str](), list[float]()

    def train(folder: Path, training: Training) -> bool:
        trained.append(training.name)
        (folder / training.place).mkdir()
        return True

    def sleep(seconds: float) -> None:  # the other one ends meanwhile
        naps.append(seconds)
        (tmp_path / first.place).mkdir()
        theirs.__exit__(None, None, None)

    monkeypatch.setattr(lm_queue, "train", train)
    monkeypatch.setattr(lm_queue.time, "sleep", sleep)
    theirs = lm_queue.claimed(tmp_path / first.place)
    assert theirs.__enter__()
    lm_queue.work(tmp_path, ["tiny"], 1000, None, rows=["F-24m"])
    assert not trained
    lm_queue.work(tmp_path, ["tiny"], 1000, None)
    assert trained == [second.name, then.name] and len(naps) == 1
