"""The queue of language models: what is begun, and what is left alone."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

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
    named = [part for parts in re.findall(r"parts=\((.*?)\)", script) for part in parts.split()]
    assert len(named) == 6 and set(named) <= set(lm_plan.PARTS)


def test_the_choice_waits_for_all_trials(tmp_path: Path) -> None:
    import lm_plan

    tried = lm_plan.trials("B-24m")
    settings = [training.settings for training in lm_plan.trials("F-24m")]
    assert [training.settings for training in tried] == settings  # equal terms
    for number, trial in enumerate(tried):
        assert not any(t.label == "equal" for t in lm_plan.equal(tmp_path))
        (tmp_path / trial.place).mkdir(parents=True)
        result = json.dumps({"dev_ppl": abs(number - 2)})
        (tmp_path / trial.place / "result.json").write_text(result, encoding="utf-8")
    (tmp_path / "equal" / "F-10m+trial-0-seed-0").mkdir(parents=True)  # of another size
    finals = [t for t in lm_plan.equal(tmp_path) if t.label == "equal"]
    assert [(t.row, t.seed, t.test) for t in finals] == [("B-24m", seed, True) for seed in (0, 1, 2)]
    chosen = {**tried[2].settings, "emas": lm_plan.AVERAGED["emas"], "epochs": lm_plan.FINAL_EPOCHS}
    assert all(t.settings == chosen for t in finals)
    labels = {row: lm_plan.equal_label(row) for row in ("F-24m", "B-max-plus-10m", "B-max-plus-24m")}
    assert [*labels.values()] == ["equal", "equal-scaled", "equal-scaled"]  # which gate m+ has


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
    assert lm_queue.next_in_time([long, short], 1000, 1.0) is long
    assert lm_queue.next_in_time([long, short], 150, 1.0) is short
    assert lm_queue.next_in_time([long, short], 150, 2.0) is None
    assert lm_queue.next_in_time([], 150, 1.0) is None


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
