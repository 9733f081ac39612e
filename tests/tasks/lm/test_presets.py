"""Every preset trains the models that it is for."""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rrnn.tasks.lm.config import preset
from rrnn.tasks.lm.experiment import train
from rrnn.tasks.training import Progress

MODELS = ("B", "B-max-plus", "B-max-plus-scaled", "C", "F", "lstm")
PAIRS = [(name, cell) for name in ("paper-10m", "paper-24m", "best-24m") for cell in MODELS]
LINES, LENGTH, WORDS, UNITS = 800, 20, 40, 96


def lines() -> list[list[str]]:
    """Draw texts in which nine of ten words follow from the word before. So only a model whose layers pass on what they
    read gets below the entropy of the words' frequencies: that is where a language model stays which learns no more
    than a bias."""
    draw, word, found = random.Random(0), 0, list[list[str]]()
    for _ in range(LINES):
        found.append([])
        for _ in range(LENGTH):
            word = (3 * word + 1) % WORDS if draw.random() < 0.9 else draw.randrange(WORDS)
            found[-1].append(f"w{word}")
    return found


def entropy() -> float:
    counts = Counter(word for line in lines() for word in [*line, "</s>"])
    shares = [count / counts.total() for count in counts.values()]
    return -sum(p * math.log(p) for p in shares)


def losses(folder: Path, name: str, cell: str, **changes: Any) -> list[float]:
    """Return the losses of eight epochs of 50 steps with the preset's layers, start and rate, at a small size. The norm
    of all weights is about a tenth of that of 976 units, so gradients are clipped to less, too."""
    data = folder / "text.txt"
    data.write_text("".join(" ".join(line) + "\n" for line in lines()), encoding="utf-8")
    small = {"data": str(data), "hidden_size": UNITS, "batch_size": 16, "bptt": 20, "epochs": 8, "clip": 1.0}
    fast = {"emas": (), "precision": "fp32", "device": "cpu", "dev_streams": 8}
    history = train(preset(name, cell=cell, **small, **fast, **changes), progress=Progress()).history
    return [record["train_loss"] for record in history]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "cell"), PAIRS)
def test_the_loss_falls(name: str, cell: str, tmp_path: Path) -> None:
    found = losses(tmp_path, name, cell)
    assert found[-1] < min(found[0], entropy()) - 0.2, found


@pytest.mark.slow
def test_c_needs_the_start_that_presets_give_it(tmp_path: Path) -> None:
    """Without it, C learns the words' frequencies and nothing else, so the test above can fail."""
    assert losses(tmp_path, "paper-24m", "C", rnn_gain=1.0)[-1] > entropy() - 0.05
