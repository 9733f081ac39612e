"""The script that fills the paper's table of classifiers, on small models of synthetic texts."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MODELS, SETTINGS, SPLITS = ("B", "F"), 3, 2
TINY = ["epochs=1", "hidden_size=8", "embedding_size=8"]
OPTIONS = ["--models", *MODELS, "--datasets", "synthetic:not-good", "--vectors", "", "--device", "cpu"]
OPTIONS += ["--settings", str(SETTINGS), "--splits", str(SPLITS), "--label", "tiny", "--again", "0"]

Fill = Callable[..., list[Any]]


@pytest.fixture
def fill(monkeypatch: pytest.MonkeyPatch) -> Fill:
    """Return a function that runs the script and returns the configurations it trained, in order, each with whether it
    had a test set. The script is interrupted before training number `interrupt`."""
    import paper_classify

    train = paper_classify.train

    def run(folder: Path, *more: str, changes: list[str] = TINY, interrupt: int | None = None) -> list[Any]:
        trained: list[Any] = []

        def counting(config: Any, folder: Path, *, resume: bool, data: Any) -> Any:
            if len(trained) == interrupt:
                raise KeyboardInterrupt
            trained.append((config, "test" in data.splits))
            return train(config, folder, resume=resume, data=data)

        monkeypatch.setattr(paper_classify, "train", counting)
        monkeypatch.setattr(sys, "argv", ["x", str(folder), *OPTIONS, "--set", *changes, *more])
        if interrupt is None:
            paper_classify.main()
        else:
            with pytest.raises(KeyboardInterrupt):
                paper_classify.main()
        return trained

    return run


def lines(folder: Path, model: str) -> list[dict[str, Any]]:
    text = (folder / f"{model}-synthetic-not-good+tiny.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def timeless(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key not in ("seconds", "meta")} for line in found]


def test_choose_on_dev_then_read_test_once(
    tmp_path: Path, fill: Fill, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = fill(tmp_path, changes=[*TINY, "epochs=2"])
    each = SETTINGS + SPLITS
    assert [final for _, final in trained] == [False] * SETTINGS * 2 + [True] * SPLITS * 2
    settings = [config for config, final in trained if not final]
    for one, other in zip(settings[:SETTINGS], settings[SETTINGS:], strict=True):
        assert one.cell == "B" and one.replace(cell="F") == other  # the same budget for every model
    table = json.loads((tmp_path / "table.json").read_text())
    for model, row in zip(MODELS, table["rows"], strict=True):
        head, *rest = lines(tmp_path, model)
        assert head["config"]["cell"] == model and head["pinned"] == {"hidden_size": 8} and len(rest) == each
        tried, finals = rest[:SETTINGS], rest[SETTINGS:]
        assert not any("test" in line for line in tried)
        best = max(tried, key=lambda line: line["dev"])  # the first of equals
        assert {line["number"] for line in finals} == {best["number"]}
        assert [(line["split"], line["seed"]) for line in finals] == [(0, 0), (1, 1)]
        assert all(len(line["curve"]) == line["epochs"] == 2 for line in finals)
        assert all(line["dev"] == max(line["curve"]) for line in finals)
        assert row["setting"] == best["setting"] | {"hidden_size": 8}
        assert row["mean"] == pytest.approx(statistics.fmean(line["test"] for line in finals), abs=1e-3)
        assert row["std"] == pytest.approx(statistics.stdev(line["test"] for line in finals), abs=1e-3)
        assert (row["model"], row["label"], row["paper"]) == (f"RRNN({model})", "tiny", None)
        assert (row["seeds"], row["splits"], row["trials"]) == (SPLITS, SPLITS, SETTINGS)
    (difference,) = table["differences"]
    b, f = (row["mean"] for row in table["rows"])
    assert difference["mean"] == pytest.approx(f - b, abs=1e-2) and difference["reference"] == "RRNN(B)"
    assert difference["low"] <= difference["mean"] <= difference["high"]
    out = capsys.readouterr().out
    assert "RRNN(F) + tiny" in out and "95 % interval" in out


def test_the_best_are_trained_again_without_test(tmp_path: Path, fill: Fill) -> None:
    trained = fill(tmp_path, "--models", "F", "--best", "2", "--again", "3")
    assert [final for _, final in trained] == [False] * (SETTINGS + 2 * 3) + [True] * SPLITS
    _, *rest = lines(tmp_path, "F")
    settings = sorted(rest[:SETTINGS], key=lambda line: -line["dev"])
    again, finals = rest[SETTINGS:-SPLITS], rest[-SPLITS:]
    assert [line["kind"] for line in again] == ["again"] * 6 and not any("test" in line for line in again)
    assert {line["number"] for line in again} == {line["number"] for line in settings[:2]}
    assert {(line["split"], line["seed"]) for line in again} == {(1, 101), (2, 102), (3, 103)}
    means = {
        line["number"]: statistics.fmean(
            [line["dev"], *(other["dev"] for other in again if other["number"] == line["number"])]
        )
        for line in settings[:2]
    }
    assert {line["number"] for line in finals} == {max(means, key=lambda n: means[n])}
    assert not fill(tmp_path, "--models", "F", "--best", "2", "--again", "3")


@pytest.mark.parametrize(
    ("data", "places"), [("cr", [(1, 101), (2, 102)]), ("sst", [(0, 101), (0, 102)])], ids=["cr", "sst"]
)
def test_each_stage_waits_for_the_one_before(
    tmp_path: Path, fill: Fill, data: str, places: list[tuple[int, int]]
) -> None:
    from evidence import Evidence
    from paper_classify import again_of, finals_of

    from rrnn.tasks.classify.config import ClassifyConfig

    base = ClassifyConfig(data=data)
    args = argparse.Namespace(settings=3, best=2, again=2, held_out=0, seeds=1, splits=1, seeds_per_split=1)
    devs = enumerate((70.0, 90.0, 80.0))
    tried = [{"kind": "setting", "number": n, "dev": dev, "setting": {}} for n, dev in devs]
    evidence = Evidence(tmp_path / "x", [{"kind": "row"}, *tried[:2]])
    assert not again_of(args, "x", base, evidence) and not finals_of(args, "x", base, evidence)
    evidence.append(tried[2])
    jobs = again_of(args, "x", base, evidence)
    assert [(job.number, job.base.split_seed, job.base.seed) for job in jobs] == [
        (number, *place) for number in (1, 2) for place in places
    ]
    for job in jobs:
        assert not finals_of(args, "x", base, evidence)
        evidence.append(job.key | {"dev": 75.0})
    (final,) = finals_of(args, "x", base, evidence)
    assert (final.number, final.base.split_seed, final.base.seed, final.kind) == (1, 0, 0, "final")


def test_parts_of_the_training_texts_judge_where_the_split_is_published(
    tmp_path: Path, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    import paper_classify

    monkeypatch.setattr(paper_classify, "PUBLISHED_SPLIT", ("synthetic:not-good",))
    whole = paper_classify.prepare(paper_classify.ClassifyConfig(data="synthetic:not-good"))
    left: list[tuple[int, ...]] = []
    taken = paper_classify.without

    def watched(data: Any, part: int, parts: int) -> Any:
        found = taken(data, part, parts)
        held = found.splits["test"][0]
        left.extend(map(tuple, held))
        assert len(found.splits["train"][0]) + len(held) == len(whole.splits["train"][0])
        return found

    monkeypatch.setattr(paper_classify, "without", watched)
    fill(tmp_path, "--models", "F", "--best", "2", "--held-out", "3", "--seeds", "1")
    texts = [tuple(text) for text in whole.splits["train"][0]]
    assert sorted(left) == sorted(
        texts * 2
    )  # each text once for each of the two settings, and none of test's
    _, *rest = lines(tmp_path, "F")
    judged = [line for line in rest if line["kind"] == "held out"]
    assert len(judged) == 6 and not any("test" in line for line in judged)
    assert {(line["part"], line["parts"]) for line in judged} == {(0, 3), (1, 3), (2, 3)}
    means = {
        n: statistics.fmean(line["held_out"] for line in judged if line["number"] == n)
        for n in {line["number"] for line in judged}
    }
    (final,) = (line for line in rest if line["kind"] == "final")
    assert final["number"] in means and means[final["number"]] == max(means.values())
    assert not fill(tmp_path, "--models", "F", "--best", "2", "--held-out", "3", "--seeds", "1")


@pytest.mark.parametrize("parts", ["1", "-2"])
def test_too_few_parts_are_said(
    tmp_path: Path, fill: Fill, parts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        fill(tmp_path, "--held-out", parts)
    assert f"2 parts or more, or 0 for none; got {parts}" in capsys.readouterr().err


def test_goes_on_where_it_was_killed(tmp_path: Path, fill: Fill) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    count = len(fill(whole))
    done = len(fill(cut, interrupt=2))
    with (cut / "B-synthetic-not-good+tiny.jsonl").open("a") as file:
        file.write('{"kind":"setting","num')  # killed while it wrote
    done += len(fill(cut, interrupt=6))
    done += len(fill(cut))
    assert done == count and not fill(cut)
    for model in MODELS:
        assert timeless(lines(cut, model)) == timeless(lines(whole, model))


def test_a_training_goes_on_from_its_checkpoint(
    tmp_path: Path, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, options = (
        [*TINY, "epochs=2", "checkpoint_seconds=0"],
        ("--models", "F", "--settings", "1", "--splits", "1"),
    )
    fill(tmp_path / "whole", *options, changes=changes)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    cut = tmp_path / "cut"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("rrnn.tasks.classify.experiment._summarise", killed)
        fill(cut, *options, changes=changes)
    (metrics,) = cut.glob(".F-synthetic-not-good+tiny-setting-0/metrics.jsonl")
    records = [json.loads(line) | {"seconds": 1000} for line in metrics.read_text().splitlines()]
    metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    fill(cut, *options, changes=changes)
    assert timeless(lines(cut, "F")) == timeless(lines(tmp_path / "whole", "F"))
    assert lines(cut, "F")[1]["seconds"] > 1000 * len(records) == 2000  # what was trained before counts
    assert not list(cut.glob(".*"))


def test_a_finished_training_is_not_lost_before_its_line_is_written(
    tmp_path: Path, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evidence import Evidence

    options = ("--models", "F", "--settings", "1", "--splits", "1")
    fill(tmp_path / "whole", *options)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    cut = tmp_path / "cut"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Evidence, "take", killed)
        fill(cut, *options)
    (metrics,) = cut.glob(".F-synthetic-not-good+tiny-setting-0/metrics.jsonl")
    before = [json.loads(line) for line in metrics.read_text().splitlines()]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Evidence, "take", killed)
        fill(cut, *options)
    after = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert after == before  # times, too: nothing was trained again
    fill(cut, *options)
    assert timeless(lines(cut, "F")) == timeless(lines(tmp_path / "whole", "F"))
    assert not list(cut.glob(".*"))


def test_a_training_that_cannot_run_is_not_a_setting_that_was_tried(
    tmp_path: Path, fill: Fill, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".F-synthetic-not-good+tiny-setting-0").mkdir()
    (tmp_path / ".F-synthetic-not-good+tiny-setting-0" / "config.json").write_text('{"another": "run"}')
    fill(tmp_path, "--models", "F", "--settings", "1")
    assert "RunError" in capsys.readouterr().out and len(lines(tmp_path, "F")) == 1


def test_a_file_may_be_older_than_an_option(tmp_path: Path, fill: Fill) -> None:
    options = ("--models", "F", "--settings", "1", "--splits", "1")
    fill(tmp_path, *options)
    path = tmp_path / "F-synthetic-not-good+tiny.jsonl"
    head, *rest = path.read_text(encoding="utf-8").splitlines()
    old = json.loads(head)
    assert old["config"].pop("word_dropout") == 0.0
    path.write_text("\n".join([json.dumps(old), *rest]) + "\n", encoding="utf-8")
    assert not fill(tmp_path, *options)
    with pytest.raises(SystemExit, match=r"other options: config\.word_dropout 0\.0, not 0\.1"):
        fill(tmp_path, *options, changes=[*TINY, "word_dropout=0.1"])


def test_begins_nothing_late_and_no_final_before_all_settings(
    tmp_path: Path, fill: Fill, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fill(tmp_path, "--minutes", "-1") == []
    assert "no row is complete yet" in capsys.readouterr().out
    assert json.loads((tmp_path / "table.json").read_text())["rows"] == []
    more = fill(tmp_path, "--models", "F", "--settings", "1", "--splits", "1", "--seeds-per-split", "2")
    assert [(config.split_seed, config.seed) for config, final in more if final] == [(0, 0), (0, 1)]
    capsys.readouterr()
    assert fill(tmp_path, "--table") == []
    assert len(json.loads((tmp_path / "table.json").read_text())["rows"]) == 1


def test_a_setting_that_diverges_counts_as_tried(
    tmp_path: Path, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    import paper_classify

    from rrnn.errors import DivergedError

    train = paper_classify.train
    trained: list[Any] = []

    def diverging(config: Any, folder: Path, **options: Any) -> Any:
        trained.append(config)
        found = train(config, folder, **options)
        if len(trained) == 2:
            raise DivergedError("the training loss became nan in epoch 1")
        return found

    monkeypatch.setattr(paper_classify, "train", diverging)
    command = ["x", str(tmp_path), *OPTIONS, "--models", "F", "--splits", "1", "--set", *TINY]
    monkeypatch.setattr(sys, "argv", command)
    paper_classify.main()
    _, *rest = lines(tmp_path, "F")
    assert "error" in rest[1] and "dev" not in rest[1]
    (row,) = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert (row["trials"], row["failed"], row["std"]) == (SETTINGS, 1, None)


def test_other_options_need_another_label(tmp_path: Path, fill: Fill) -> None:
    fill(tmp_path, "--minutes", "-1")
    with pytest.raises(SystemExit, match=r"config\.pooling 'last', not 'max'.*--label"):
        fill(tmp_path, changes=[*TINY, "pooling=max"])
    with pytest.raises(SystemExit):
        fill(tmp_path, "--label", "")
    with pytest.raises(SystemExit, match="Did you mean 'pooling'"):
        fill(tmp_path, changes=["poolin=max"])
    with pytest.raises(SystemExit, match="'G'"):
        fill(tmp_path, "--models", "G")


def test_vectors_are_told(tmp_path: Path, fill: Fill) -> None:
    (tmp_path / "v.txt").write_text("good 1 0 0\nnot 0 1 0\n")
    changes = ["epochs=1", "hidden_size=4"]
    more = ["--models", "B", "--settings", "1", "--splits", "1", "--vectors", str(tmp_path / "v.txt")]
    for config, _ in fill(tmp_path / "out", *more, changes=changes):
        assert (config.vectors, config.cleaning, config.unknown) == (str(tmp_path / "v.txt"), "glove", "own")
    (row,) = json.loads((tmp_path / "out" / "table.json").read_text())["rows"]
    assert (row["vector_width"], row["unknown"]) == (3, "own")


def test_curves(tmp_path: Path, fill: Fill) -> None:
    import plots

    assert plots.best_so_far([[50.0, 70.0, 60.0], [60.0, 50.0]]) == [55.0, 65.0, 65.0]
    fill(tmp_path)
    text = plots.classifiers(tmp_path)
    assert "synthetic:not-good, tiny" in text and "RRNN(B)" in text and "RRNN(F)" in text
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit, match="no final trainings"):
        plots.classifiers(tmp_path / "empty")
