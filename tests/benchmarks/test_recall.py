"""The task of the recall benchmark says what it should; its trainings run, resume, and become a table and a figure."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
import torch


@pytest.mark.parametrize("pairs", [1, 5, 16])
def test_texts(pairs: int) -> None:
    """Each text names its pairs, then asks for every key once; the answer is the value that followed the key."""
    from recall import BLANK, KEYS, texts

    x, y = texts(pairs, 50, torch.Generator().manual_seed(pairs))
    assert x.shape == y.shape == (4 * pairs, 50)
    for text, answers in zip(x.T.tolist(), y.T.tolist(), strict=True):
        named = dict(zip(text[0 : 2 * pairs : 2], text[1 : 2 * pairs : 2], strict=True))
        assert len(named) == pairs and max(named) < KEYS <= min(named.values())
        asked = {symbol: answer for symbol, answer in zip(text, answers, strict=True) if answer >= 0}
        assert asked == {key: value - KEYS for key, value in named.items()}
        assert answers[: 2 * pairs] == [-1] * (2 * pairs)
        assert text[2 * pairs :].count(BLANK) == pairs


def test_trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import recall

    monkeypatch.setattr(recall, "TESTED", 128)
    models = [("B", 4), ("F", 4), ("Mamba", 4)]
    options = argparse.Namespace(models=models, pairs=[2], steps=2, rates=[0.01, 0.001], seeds=1, workers=1)
    options.device, options.json = "cpu", tmp_path / "r.json"
    rows = recall.run(options)
    assert len(rows) == 3 * (2 + 1)
    assert [row["state"] for row in rows if row["stage"] == "final"] == [4, 8, 4 * 16]
    kept = json.loads(options.json.read_text())
    options.json.write_text(json.dumps(kept | {"rows": kept["rows"][:-2]}))
    again = recall.run(options)
    assert [{**r, "seconds": 0} for r in again] == [{**r, "seconds": 0} for r in rows]
    head, *body = recall.table(again)
    assert head[0] == "model" and [line[0] for line in body] == ["B", "F", "Mamba"]
    assert "2 pairs" in recall.picture(again) and "Mamba" in recall.picture(again)


def test_unknown_model() -> None:
    from recall import sized

    assert sized("GLA:8") == [("GLA", 8)] and len(sized("B")) > 1
    with pytest.raises(argparse.ArgumentTypeError, match="one of B, F, Mamba, GLA"):
        sized("X")
