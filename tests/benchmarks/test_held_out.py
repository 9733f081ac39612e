"""The script that compares variants on held-out parts of the training texts, on a small model of synthetic texts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROW = "F-synthetic-not-good+tiny"


@pytest.fixture
def row(tmp_path: Path) -> Path:
    """A file with two settings, of which the second is better on dev."""
    from rrnn.tasks.classify.config import ClassifyConfig

    config = ClassifyConfig(epochs=2, embedding_size=8).to_dict()
    head = {"kind": "row", "config": config, "pinned": {"hidden_size": 8}}
    settings = [
        {"kind": "setting", "number": n, "setting": {"lr": 0.01 * n}, "dev": 60.0 + n} for n in (1, 2)
    ]
    path = tmp_path / f"{ROW}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [head, *settings]), encoding="utf-8")
    return path


def test_variants_are_judged_by_what_they_have_not_seen(
    row: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import held_out

    train, trained = held_out.train, list[Any]()

    def counting(config: Any, *, data: Any) -> Any:
        trained.append((config, data))
        return train(config, data=data)

    monkeypatch.setattr(held_out, "train", counting)
    command = ["x", str(row), "--device", "cpu", "--parts", "3", "--first", "2", "--variants", ""]
    monkeypatch.setattr(sys, "argv", [*command, "word_dropout=0.2 average=0.9"])
    held_out.main()
    assert [(c.word_dropout, c.average, c.seed) for c, _ in trained] == [
        (0.0, 0.0, 0),
        (0.2, 0.9, 0),
        (0.0, 0.0, 1),
        (0.2, 0.9, 1),
    ]
    assert {(c.lr, c.hidden_size) for c, _ in trained} == {(0.02, 8)}
    head, *lines = map(json.loads, (row.parent / "tried" / f"{ROW}-held-out.jsonl").read_text().splitlines())
    assert head["config"]["lr"] == 0.02 and [line["part"] for line in lines] == [0, 0, 1, 1]
    gain = sum(line["held_out"] * (1 if line["variant"] else -1) for line in lines) / 2
    assert f"{gain:+.2f}" in capsys.readouterr().out
    count = len(trained)
    held_out.main()
    assert len(trained) == count and "held out" in capsys.readouterr().out  # the table, and nothing again


def test_parts_are_apart_and_test_is_not_among_them() -> None:
    import held_out
    from paper_classify import data_of

    from rrnn.tasks.classify.config import ClassifyConfig

    whole = data_of(ClassifyConfig())
    all_texts = sorted(text.tobytes() for text in whole.splits["train"][0])
    parts = [held_out.without(whole, part, 3) for part in range(3)]
    texts = [
        [[text.tobytes() for text in part.splits[name][0]] for name in ("train", "test")] for part in parts
    ]
    assert sorted(text for _, held in texts for text in held) == all_texts
    assert all(sorted([*rest, *held]) == all_texts for rest, held in texts)
    assert all(part.splits["dev"] is whole.splits["dev"] for part in parts)


def test_a_file_without_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import held_out

    (tmp_path / "x.jsonl").write_text('{"kind": "row"}\n')
    monkeypatch.setattr(sys, "argv", ["x", str(tmp_path / "x.jsonl")])
    with pytest.raises(SystemExit, match="no setting yet"):
        held_out.main()
