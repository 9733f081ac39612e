"""The benchmark of rules: its rules can be read, subsamples are fair, it resumes, and its table is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_classifier import tiny, tiny_config

from rrnn.tasks.classify.rules import read_rules

FILES = sorted((Path(__file__).parents[2] / "benchmarks" / "rules").glob("*.rules"))


@pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])
def test_the_rules_can_be_read(file: Path) -> None:
    rules = read_rules(file)
    assert set(rules.patterns) == {"negative", "positive"} and rules.default in rules.patterns
    assert len(rules.words) > 50


def test_subsamples_keep_the_share_of_labels() -> None:
    from rules import subsample

    data = tiny(tiny_config())
    labels = data.splits["train"][1]
    some = [subsample(data, 0.5, seed).splits["train"] for seed in (0, 0, 1)]
    for label in (0, 1):
        assert abs(some[0][1].count(label) - labels.count(label) / 2) <= 0.5
    assert [text.tolist() for text in some[0][0]] == [text.tolist() for text in some[1][0]]
    assert [text.tolist() for text in some[0][0]] != [text.tolist() for text in some[2][0]]
    assert subsample(data, 1, 0) is data
    assert sorted(set(subsample(data, 0.001, 0).splits["train"][1])) == [
        0,
        1,
    ]  # at least one text of each label


def test_resuming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import rules

    done: list[tuple[str | None, float, int]] = []

    def measure(data: Any, fraction: float, seed: int) -> dict[str, Any]:
        done.append((data.config.rules, fraction, seed))
        return {"texts": int(fraction * 60), "test": 50.0 + seed + (10 if data.config.rules else 0)}

    monkeypatch.setattr(rules, "measure", measure)
    monkeypatch.setattr(rules, "HERE", tmp_path)
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "tiny.rules").write_text("yes good\n")
    monkeypatch.setattr(rules, "prepare", lambda config: tiny(tiny_config(rules=config.rules)))
    file = tmp_path / "r.json"
    rows = rules.run(file, ["tiny"], [0.0, 0.5], 2, {})
    assert len(rows) == 3 + 4 == len(done)  # the rules alone are measured once: nothing is random in them
    kept = json.loads(file.read_text())
    assert kept["meta"]["rules"] == {"tiny": "yes good\n"} and "versions" in kept["meta"]
    kept["rows"] = kept["rows"][:-2]
    file.write_text(json.dumps(kept))
    done.clear()
    assert rules.run(file, ["tiny"], [0.0, 0.5], 2, {}) == rows and len(done) == 2
    assert rules.table(rows)[1:] == [
        ["tiny", "0 (0%)", "60.0", "60.0", "50.5 ± 0.7"],
        ["tiny", "30 (50%)", "60.0", "60.5 ± 0.7", "50.5 ± 0.7"],
    ]


def test_untrained_and_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import rules

    file = tmp_path / "tiny.rules"
    file.write_text("yes ^[^bad]* good\nno\n")
    monkeypatch.setattr(rules, "SCHEDULES", ((1.0, {"epochs": 1, "batch_size": 8}, (1e-3, 1e-2)),))
    data = tiny(tiny_config(rules=str(file)))
    assert rules.measure(data, 0.0, 0) == {"texts": 0, "test": 100.0}  # this rule is the truth
    row = rules.measure(data, 0.5, 3)
    assert abs(row["texts"] - 30) <= 1 and row["lr"] in (1e-3, 1e-2) and row["test"] > 80
