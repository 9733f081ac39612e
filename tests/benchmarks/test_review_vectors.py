"""The script that puts vectors of reviews beside published ones."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rrnn.tasks.data.vectors import Vectors, read_vectors


def test_published_vectors_first_then_those_of_reviews(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import review_vectors

    def texts(*words: str) -> list[Any]:
        return [SimpleNamespace(tokens=[*words, *words[::-1]])] * 3

    asked: list[tuple[str, str]] = []

    def load(name: str, cleaning: str) -> Any:
        asked.append((name, cleaning))
        return SimpleNamespace(
            train=texts("good", "film"), dev=texts("bad", "day"), test=texts("dull", "plot")
        )

    monkeypatch.setattr(review_vectors, "load_dataset", load)
    given = Vectors(["good", "other"], np.array([[3.0, 4], [0, 2]], np.float32))
    given.save(tmp_path / "given.npz")
    out, options = tmp_path / "both.npz", ["--vectors", str(tmp_path / "given.npz"), "--width", "2"]
    for wrong in (tmp_path / "both.txt", tmp_path / "nowhere" / "both.npz"):
        monkeypatch.setattr(sys, "argv", ["x", str(wrong), *options])
        with pytest.raises(SystemExit, match=r"saved as \.npz in a folder that exists"):
            review_vectors.main()
    assert not asked
    monkeypatch.setattr(sys, "argv", ["x", str(out), *options])
    review_vectors.main()
    assert asked == [("amazon", "glove")]
    both = read_vectors(out)
    assert both.width == 4 and set(both.words) == {"good", "other", "film", "bad", "day", "dull", "plot"}
    rows, _ = both.align(["good", "other", "dull"])
    assert rows[0, :2].tolist() == pytest.approx([0.6, 0.8]) and rows[1].tolist() == [0, 1, 0, 0]
    assert not rows[2, :2].any() and np.linalg.norm(rows[2]) == pytest.approx(1, abs=1e-5)
    assert "7 words × 4, from 36 words of 9 texts" in capsys.readouterr().out
