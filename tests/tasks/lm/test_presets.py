"""Every preset trains the models that it is for."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest

from rrnn.tasks.data.corpus import load_corpus
from rrnn.tasks.lm.config import preset
from rrnn.tasks.lm.experiment import train
from rrnn.tasks.training import Progress

MODELS = ("B", "B-max-plus", "B-max-plus-scaled", "C", "F", "lstm")
PAIRS = [(name, cell) for name in ("paper-10m", "paper-24m", "best-24m") for cell in MODELS]
TOKENS, WORDS, UNITS = 16_000, 600, 96


@pytest.mark.slow
@pytest.mark.parametrize(("name", "cell"), PAIRS)
def test_the_loss_falls(name: str, cell: str, tmp_path: Path) -> None:
    """With the preset's layers, start and rate, for 250 steps at a small size. The norm of all weights is about a tenth
    of that of 976 units, so gradients are clipped to a tenth, too."""
    tokens = load_corpus("python").train[:TOKENS]
    kept = {word for word, _ in Counter(tokens).most_common(WORDS)}
    tokens = [word if word in kept else "<unk>" for word in tokens]
    data = tmp_path / "text.txt"
    data.write_text("\n".join(" ".join(tokens[i : i + 20]) for i in range(0, TOKENS, 20)) + "\n")
    small = {"data": str(data), "hidden_size": UNITS, "batch_size": 16, "bptt": 20, "epochs": 5, "clip": 0.5}
    fast = {"emas": (), "precision": "fp32", "device": "cpu", "dev_streams": 8}
    history = train(preset(name, cell=cell, **small, **fast), progress=Progress()).history
    losses = [record["train_loss"] for record in history]
    shares = [count / TOKENS for count in Counter(tokens).values()]
    assert losses[-1] < losses[0] - 0.2 and losses == sorted(losses, reverse=True), losses
    assert (
        losses[-1] < -sum(p * math.log(p) for p in shares) + 0.1
    )  # as good as the words' frequencies, or better
