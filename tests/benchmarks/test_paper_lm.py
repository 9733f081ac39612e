"""The script that fills the paper's table, on a tiny model."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

TINY = ["data=python", "hidden_size=16", "layers=1", "batch_size=64", "epochs=1", "emas=[0.9]", "device=cpu"]


def test_a_row_is_trained_once_and_told_in_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import paper_lm

    place = tmp_path / "ptb"
    command = ["paper_lm.py", str(place), "--rows", "F-10m", "--label", "tiny", "--set", *TINY]
    monkeypatch.setattr(sys, "argv", command)
    paper_lm.main()
    (row,) = json.loads((place / "table.json").read_text())["rows"]
    assert (row["model"], row["seed"], row["epochs"], row["paper_test"]) == ("RRNN(F)", 0, 1, 66.3)
    assert 1 < row["dev_ppl"] < 2392 and row["seconds"] > 0
    kept = {file.name for file in (place / "F-10m+tiny-seed-0").iterdir()}
    assert kept == set(paper_lm.KEPT) and len(list(place.iterdir())) == 2
    capsys.readouterr()
    paper_lm.main()
    assert "F-10m+tiny-seed-0" in capsys.readouterr().out  # the table, and no second training


def test_a_killed_row_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import paper_lm

    changes = {
        "data": "python",
        "hidden_size": 16,
        "layers": 1,
        "batch_size": 64,
        "emas": [0.9],
        "device": "cpu",
    }
    config = paper_lm.config_of(paper_lm.ROWS["F-10m"], 0, changes | {"epochs": 2, "checkpoint_seconds": 0})
    whole = paper_lm.run_row(tmp_path / "whole", config)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("rrnn.tasks.lm.experiment._summarise", killed)
        paper_lm.run_row(tmp_path / "F-10m-seed-0", config)
    left = tmp_path / ".F-10m-seed-0" / "run"
    assert (
        len((left / "metrics.jsonl").read_text().splitlines()) == 2
        and not (tmp_path / "F-10m-seed-0").exists()
    )
    assert not paper_lm.table(tmp_path)  # nor does the table see it
    with (left / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 3, "se')  # killed while it wrote
    again = paper_lm.run_row(tmp_path / "F-10m-seed-0", config)
    assert (again["test_ppl"], again["best_epoch"]) == (whole["test_ppl"], whole["best_epoch"])
    lines = (tmp_path / "F-10m-seed-0" / "metrics.jsonl").read_text().splitlines()
    trained = [json.loads(line)["seconds"] for line in lines]
    # Not >, since what is left to do can take less than the 0.1 s to which the time is rounded.
    assert again["seconds"] >= round(sum(trained), 1) and not (tmp_path / ".F-10m-seed-0").exists()


def test_sizes_are_close_to_the_budgets() -> None:
    import paper_lm

    from rrnn.tasks.lm.experiment import count_parameters

    for row in paper_lm.ROWS.values():
        hidden = paper_lm.hidden_of(row, 10_001)
        count = count_parameters(10_001, hidden, row.layers, cell=row.cell)
        assert hidden % 16 == 0 and abs(count / row.budget - 1) < 0.02, (row, hidden, count)


def test_curves(tmp_path: Path) -> None:
    import plots

    for name, ends in (("good", [9.0, 5.0]), ("bad", [9.0, 8.0]), ("F-24m-worst", [9.5])):
        (tmp_path / name).mkdir()
        lines = [json.dumps({"epoch": i + 1, "dev_ppl": ppl}) for i, ppl in enumerate(ends)]
        (tmp_path / name / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    text = plots.language_models(tmp_path)
    assert text.index("good: 5.0") < text.index("bad: 8.0") < text.index("24M parameters")
    assert "F-24m-worst: 9.5" in text
    with pytest.raises(SystemExit, match="no runs"):
        plots.language_models(tmp_path / "good")
