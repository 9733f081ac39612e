"""Train the runs to report on once: language models, and classifiers of texts that contain HTML."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tiny_lm import train_tiny, write_corpus

from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.experiment import train

BAD = "<script>alert(1)</script>"
WORDS = ["not", "good", "film", "a", BAD, "&amp;", "'quoted\"", "the"]


def write_texts(path: Path, count: int) -> Path:
    """Write one label and text per line; the label is whether the text contains `good`."""
    rng = random.Random(str(path.name))
    rows = (rng.choices(WORDS, k=rng.randint(3, 9)) for _ in range(count))
    lines = (f"{'<b>yes</b>' if 'good' in row else 'no'} {' '.join(row)}" for row in rows)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def lm_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Train F and an LSTM of different sizes on one corpus; return the folders of the runs."""
    folder = tmp_path_factory.mktemp("lm")
    corpus = write_corpus(folder / "corpus.txt", 40)
    for cell, hidden in (("F", 8), ("lstm", 6)):
        train_tiny(
            folder / f"lm-{cell}", corpus, cell=cell, hidden_size=hidden, epochs=2, asgd_from=None, emas=()
        )
    return [folder / "lm-F", folder / "lm-lstm"]


@pytest.fixture(scope="session")
def text_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Train F, max-plus B and an LSTM; the folder, the words and a label contain text that must not be read as HTML."""
    folder = tmp_path_factory.mktemp("texts")
    files = {name: str(write_texts(folder / f"{name} & co.txt", 60)) for name in ("train", "dev")}
    out = []
    for cell in ("F", "B-max-plus", "LSTM"):
        config = ClassifyConfig(
            data=files["train"],
            dev=files["dev"],
            cell=cell,
            cleaning="none",
            hidden_size=4,
            embedding_size=6,
            layers=1,
            lr=0.02,
            epochs=3,
            device="cpu",
        )
        out.append(folder / f"<i onclick='x()'>{cell}<")
        train(config, out[-1])
    return out
