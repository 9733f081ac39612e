"""The script that puts vectors of reviews beside published ones."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rrnn.tasks.data.vectors import Vectors, read_vectors


def test_published_vectors_first_and_no_test_text_of_sst(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import review_vectors

    def texts(*words: str) -> list[Any]:
        return [SimpleNamespace(tokens=[*words, *words[::-1]])] * 3

    found = {
        "amazon": SimpleNamespace(
            train=texts("good", "film"), dev=texts("bad", "day"), test=texts("so", "so")
        ),
        "sst": SimpleNamespace(train=texts("dull", "film"), dev=texts("unseen"), test=texts("secret")),
    }
    monkeypatch.setattr(review_vectors, "load_dataset", lambda name, cleaning: found[name])
    given = Vectors(["good", "other"], np.array([[3.0, 4], [0, 2]], np.float32))
    given.save(tmp_path / "given.npz")
    out = tmp_path / "both.npz"
    monkeypatch.setattr(
        sys, "argv", ["x", str(out), "--vectors", str(tmp_path / "given.npz"), "--width", "2"]
    )
    review_vectors.main()
    both = read_vectors(out)
    assert both.width == 4 and set(both.words) == {"good", "other", "film", "bad", "day", "so", "dull"}
    rows, _ = both.align(["good", "other", "dull"])
    assert rows[0, :2].tolist() == pytest.approx([0.6, 0.8]) and rows[1].tolist() == [0, 1, 0, 0]
    assert not rows[2, :2].any() and np.linalg.norm(rows[2]) == pytest.approx(1, abs=1e-5)
    assert "7 words × 4, from 48 words of 12 texts" in capsys.readouterr().out
