"""Every preset trains the models that it is for."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rrnn.tasks.lm.config import LMConfig, preset, recipe_rate
from rrnn.tasks.lm.experiment import train
from rrnn.tasks.training import Progress

MODELS = ("B", "B-max-plus", "B-max-plus-scaled", "C", "F", "lstm")
PAIRS = [(name, cell) for name in ("paper-10m", "paper-24m", "best-24m") for cell in MODELS]
LINES, LENGTH, WORDS, UNITS = 800, 20, 40, 96


RESULTS = Path(__file__).parents[3] / "docs" / "results" / "lm-ptb"
PAPER = [(f"paper-{size}", cell) for size in ("10m", "24m") for cell in ("B", "B-max-plus-scaled", "C", "F")]
START = ("layers", "rnn_gain", "output_bias", "forget_bias", "scale_rnn", "clip", "weight_decay")
"""What decides how a training begins, beside its rate."""


def recorded() -> list[tuple[LMConfig, list[float]]]:
    """Return the configurations of the rows on the Penn Treebank, and their perplexities on dev by epoch."""
    found = []
    for place in sorted(RESULTS.glob("[!.]*-seed-*")):
        config = LMConfig.from_run(json.loads((place / "config.json").read_text(encoding="utf-8")))
        epochs = (place / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        found.append((config, [json.loads(epoch)["dev_ppl"] for epoch in epochs]))
    return found


@pytest.mark.parametrize(("name", "cell"), PAPER)
def test_a_recorded_training_began_as_the_preset_does_and_learned_soon(name: str, cell: str) -> None:
    """At full size, where a start can be too large: a perplexity below 200 within 20 of the 300 epochs."""

    def start(config: LMConfig) -> tuple[Any, ...]:
        rate = recipe_rate(config.cell) if config.lr is None else config.lr
        return (config.cell, rate, *(getattr(config, key) for key in START))

    wanted = preset(name, cell=cell)
    alike = [dev for config, dev in recorded() if start(config) == start(wanted)]
    assert any(min(dev[:20]) < 200 for dev in alike), [dev[:20] for dev in alike]


@pytest.mark.parametrize(("name", "cell"), PAPER)
def test_the_papers_presets_are_the_literal_rows(name: str, cell: str) -> None:
    """But for fp32, the size within the budget, and what docs/language-models.md says about C."""
    size = name.removeprefix("paper-")
    label = "literal-scaled" if cell.endswith("scaled") else "literal"
    place = RESULTS / f"{cell.removesuffix('-scaled')}-{size}+{label}-seed-0"
    row = LMConfig.from_run(json.loads((place / "config.json").read_text(encoding="utf-8")))
    row = row.replace(params=None, checkpoint_seconds=30.0)
    ours = preset(name, cell=cell, hidden_size=row.hidden_size, precision="bf16").resolved(
        row.hidden_size or 0
    )
    if (size, cell) == ("24m", "C"):
        assert ours != row
        row = row.replace(weight_decay=4e-5, scale_weight_decay=True)
    assert ours == row


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
    of all weights is about a tenth of that of 976 units, so gradients are clipped to less, too. So this finds models
    that learn nothing, and not a start from which a model of full size diverges: recorded trainings tell that."""
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
