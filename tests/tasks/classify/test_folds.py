"""Cross-validation: every text is tested once, by a model that has not seen it."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path

import pytest
from tiny_classifier import tiny_config

import rrnn
from rrnn.cli import main
from rrnn.errors import DataError, RunError
from rrnn.tasks.classify import ClassifyConfig, Summary, cross_validate, train
from rrnn.tasks.classify.search import search_classifier
from rrnn.tasks.classify.trained import evaluate, labelled_texts
from rrnn.tasks.data.labelled import load_dataset
from rrnn.tasks.paper_tables import accuracies_to_markdown, accuracy_table

SMALL = ["--hidden-size", "6", "--embedding-size", "5", "--layers", "1", "--epochs", "1", "--device", "cpu"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """60 different texts, a third of them positive."""
    lines = [
        f"{'good' if i % 3 == 0 else 'bad'} film {i},{'pos' if i % 3 == 0 else 'neg'}" for i in range(60)
    ]
    path = tmp_path / "t.csv"
    path.write_text("text,label\n" + "\n".join(lines) + "\n")
    return path


def config_of(table: Path, folds: int = 4) -> ClassifyConfig:
    return tiny_config(data=str(table), folds=folds, epochs=1, hidden_size=4, layers=1)


def test_folds_are_stratified_disjoint_and_complete(table: Path) -> None:
    tested: Counter[str] = Counter()
    for fold in range(1, 6):
        data = load_dataset(table, folds=5, fold=fold, split_seed=3)
        parts = [{" ".join(each.tokens) for each in part} for part in (data.train, data.dev, data.test)]
        assert [len(part) for part in parts] == [43, 5, 12] and len(parts[0] | parts[1] | parts[2]) == 60
        assert Counter(data.labels[each.label] for each in data.test) == {"neg": 8, "pos": 4}
        tested.update(parts[2])
        assert load_dataset(table, folds=5, fold=fold, split_seed=3) == data
        assert load_dataset(table, folds=5, fold=fold, split_seed=4).test != data.test
    assert len(tested) == 60 and set(tested.values()) == {1}


def test_every_fold_is_a_run(table: Path, tmp_path: Path) -> None:
    told: list[Summary] = []
    found = cross_validate(config_of(table), tmp_path / "cv", report=told.append)
    assert list(found.folds) == told and [each.fold for each in told] == [1, 2, 3, 4]
    stored = json.loads((tmp_path / "cv" / "folds.json").read_text())
    tests = [each.test for each in told if each.test is not None]
    assert stored["test"] == {"mean": statistics.fmean(tests), "deviation": statistics.stdev(tests)}
    assert len(stored["folds"]) == 4 and stored["folds"][2]["fold"] == 3
    model = rrnn.load(tmp_path / "cv" / "fold-2")
    texts, labels = labelled_texts(model, "test")
    assert len(texts) == 15 and evaluate(model, texts, labels).accuracy == pytest.approx(tests[1])
    assert cross_validate(config_of(table)).folds[1].test == tests[1]  # without a folder


def test_a_cross_validation_is_resumed(table: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cv"
    whole = cross_validate(config_of(table), folder)
    with pytest.raises(RunError, match="already holds a cross-validation: add --resume"):
        cross_validate(config_of(table), folder)
    kept = (folder / "fold-1" / "best.safetensors").stat().st_mtime_ns
    (folder / "fold-3" / "result.json").unlink()
    (folder / "fold-3" / "last.safetensors").unlink()
    again = cross_validate(config_of(table), folder, resume=True)
    assert [each.test for each in again.folds] == [each.test for each in whole.folds]
    assert (folder / "fold-1" / "best.safetensors").stat().st_mtime_ns == kept
    with pytest.raises(RunError, match="fold-1 was trained with another setting: hidden_size 4, not 5"):
        cross_validate(config_of(table).replace(hidden_size=5), folder, resume=True)
    with pytest.raises(RunError, match="more than 3 folds, fold-4 among them"):
        cross_validate(config_of(table, 3), folder, resume=True)


def test_what_cannot_be_cross_validated(table: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has splits of its own"):
        cross_validate(config_of(Path("synthetic:not-good")))
    with pytest.raises(DataError, match="has splits of its own"):
        cross_validate(config_of(table).replace(test=str(table)))
    with pytest.raises(RunError, match="give fold, or call cross_validate"):
        train(config_of(table))
    with pytest.raises(RunError, match="fold must be at most folds, which is 4; got 5"):
        config_of(table).replace(fold=5)
    with pytest.raises(RunError, match="needs a number of folds"):
        cross_validate(tiny_config(data=str(table)))
    with pytest.raises(RunError, match=r"rrnn classify train --config .*best\.json --folds 4"):
        search_classifier(config_of(table), tmp_path / "search")
    assert not (tmp_path / "search").exists()
    train(config_of(table).replace(fold=1), tmp_path / "one")
    with pytest.raises(RunError, match="holds a single run"):
        cross_validate(config_of(table), tmp_path / "one", resume=True)


def test_the_command_line_and_the_table(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "cv")
    assert main(["classify", "train", "--data", str(table), "--folds", "3", *SMALL, "--out", out]) == 0
    printed = capsys.readouterr().out
    assert "fold 2 of 3, best epoch 1: dev accuracy" in printed and "macro-F1" in printed
    last = printed.splitlines()[-1]
    assert last.startswith("3 folds: dev accuracy ") and " ± " in last and last.endswith(f"runs: {out}")
    assert main(["classify", "train", "--out", out, "--resume"]) == 0  # with its own configuration
    assert capsys.readouterr().out.splitlines()[-1] == last
    rows = {(row.data, row.model): row for row in accuracy_table([out])}
    row = rows[f"{table} in 3 folds", "F"]
    stored = json.loads((tmp_path / "cv" / "folds.json").read_text())
    assert (row.test, row.deviation) == (stored["test"]["mean"], stored["test"]["deviation"])
    assert row.macro_f1 == stored["test_macro_f1"]["mean"] and row.seeds == (0,)
    assert "macro-F1" in accuracies_to_markdown(list(rows.values())).splitlines()[0]
    assert main(["classify", "eval", f"{out}/fold-1"]) == 0
    assert "macro-F1" in capsys.readouterr().out
