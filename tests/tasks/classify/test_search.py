from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_classifier import tiny_config

from rrnn.errors import RRNNError
from rrnn.tasks.classify import search as module
from rrnn.tasks.classify.ranges import PAPER, settings
from rrnn.tasks.classify.search import search_classifier
from rrnn.tasks.paper_tables import accuracy_table
from rrnn.tasks.search import Real, Space, Whole


def test_the_ranges_are_the_papers() -> None:
    assert (PAPER["hidden_size"].low, PAPER["hidden_size"].high) == (100, 300)
    assert isinstance(PAPER["hidden_size"], Whole)
    for name in ("vertical_dropout", "recurrent_dropout", "embedding_dropout"):
        assert PAPER[name] == Real(0.0, 0.5)
    assert PAPER["lr"] == Real(1e-4, 1e-2, log=True) and PAPER["l2"] == Real(1e-7, 1e-5, log=True)
    assert PAPER["clip"] == Real(1.0, 5.0)
    assert len({config.hidden_size for config in settings(tiny_config(), 20)}) > 10


SMALL: Space = {"hidden_size": Whole(2, 8), "lr": Real(1e-3, 1e-2, log=True)}


@pytest.mark.slow
def test_two_processes_search_and_seeds_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A synthetic task, for an epoch; the settings are those that need no optuna to draw."""
    monkeypatch.setattr(module, "PAPER", SMALL)
    base = tiny_config(data="synthetic:ends-within-3", embedding_size=4, layers=1, epochs=1, batch_size=64)
    found = search_classifier(base, tmp_path, trials=3, seeds=1, workers=2)
    drawn = settings(base, 3, space=SMALL)
    assert found.config in drawn
    assert [summary.seed for summary in found.seeds] == [0]
    stored = json.loads((tmp_path / "best.json").read_text())
    assert stored["config"]["hidden_size"] == found.config.hidden_size and stored["dev"] == found.dev
    assert found.seeds[0].dev == found.dev  # the same training again: seed 0
    (row,) = [row for row in accuracy_table([tmp_path], "F") if row.data == base.data]
    assert row.seeds == (0,) and row.paper is None


@pytest.mark.slow
def test_a_search_without_processes_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAPER", SMALL)
    base = tiny_config(data="synthetic:ends-within-3", layers=1, epochs=1)
    first = search_classifier(base, tmp_path, trials=2, seeds=0)
    again = search_classifier(base, tmp_path, trials=3, seeds=1, workers=2, threads=True)
    assert again.dev >= first.dev and (tmp_path / "seed-0" / "result.json").exists()
    with pytest.raises(RRNNError, match="cell: was 'F', now 'B'"):
        search_classifier(base.replace(cell="B"), tmp_path, trials=3)


@pytest.mark.slow
def test_seeds_of_another_setting_are_not_taken_for_the_bests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAPER", SMALL)
    base = tiny_config(data="synthetic:ends-within-3", layers=1, epochs=1)
    found = search_classifier(base, tmp_path, trials=1, seeds=1)
    assert search_classifier(base, tmp_path, trials=1, seeds=1) == found
    better = found.config.replace(hidden_size=found.config.hidden_size + 1)
    with pytest.raises(RRNNError, match=r"seed-0 was trained with another setting: hidden_size"):
        module.train_seed(better, tmp_path, 0)
    with pytest.raises(RRNNError, match=r"another setting: average 0, not 0\.9\. .* Move"):
        search_classifier(base.replace(average=0.9), tmp_path, trials=1, seeds=1, study="another")


def test_bad_data_is_said_before_the_search(tmp_path: Path) -> None:
    with pytest.raises(RRNNError, match="nowhere"):
        search_classifier(tiny_config(data="nowhere"), tmp_path / "study")
    assert not (tmp_path / "study").exists()
