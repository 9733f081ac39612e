"""Compare what single units of B, C, F and max-plus B can learn, on tasks whose labels come from an automaton.

One unit is one automaton, so this compares automata: what the score of a text can tell, not what many units can do
together. Counting is *leaky* in these cells. They couple u = (1 − f) ⊙ W_u v to the forget gate f, so a loop that keeps
everything (f = 1) adds nothing (u = 0). A unit that counts therefore forgets a little with every word, and the farther
back an a or b stands, the less it counts. `longer` shows this: the same task on texts eight times as long.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.experiment import train
from rrnn.tasks.classify.prepare import prepare
from rrnn.tasks.classify.trained import TrainedClassifier, evaluate
from rrnn.tasks.data.synthetic import NAMES, get_task
from rrnn.tasks.paper_tables import markdown_table

CELLS = ("B", "C", "F", "B-max-plus")
STARTS = 2
LONGER, LONG_TEXTS = 8, 500


@dataclass(frozen=True)
class Learned:
    """Test accuracy, in per cent, of the start with the best dev accuracy."""

    task: str
    cell: str
    test: float
    longer: float | None
    """Accuracy on texts LONGER times as long; None if the labels would mean something else there."""


def who_learns_what(
    cells: Sequence[str] = CELLS, tasks: Sequence[str] = tuple(NAMES), *, units: int = 1, epochs: int = 20
) -> list[Learned]:
    """Train every cell on every task. This takes less than a minute on two cores."""
    found = []
    for task in tasks:
        base = ClassifyConfig(
            data=task,
            hidden_size=units,
            layers=1,
            readout="linear",
            embedding_size=16,
            embedding_dropout=0.0,
            recurrent_dropout=0.0,
            vertical_dropout=0.0,
            lr=2e-2,
            l2=0.0,
            epochs=epochs,
            stop_after=12,
            halve_after=5,
            device="cpu",
        )
        data = prepare(base)
        for cell in cells:
            starts = [train(base.replace(cell=cell, seed=seed), data=data) for seed in range(STARTS)]
            best = max(starts, key=lambda result: result.summary.dev)
            assert best.summary.test is not None
            longer = _on_longer_texts(best.model, task) if task == "synthetic:more-a-than-b" else None
            found.append(Learned(task, cell, best.summary.test, longer))
    return found


def _on_longer_texts(model: TrainedClassifier, name: str) -> float:
    """Return the accuracy on concatenations of several texts, labelled by the automaton."""
    task, rng = get_task(name), random.Random(0)
    texts = [tuple(word for _ in range(LONGER) for word in task.draw(rng)) for _ in range(LONG_TEXTS)]
    labels = [model.labels.index("yes" if label else "no") for label in task.labels(texts)]
    return evaluate(model, [list(text) for text in texts], labels).accuracy


def to_markdown(rows: Sequence[Learned]) -> str:
    """Return a table with one line per task and one column per cell."""
    cells = list(dict.fromkeys(row.cell for row in rows))
    lines = [["yes for texts that …", *cells]]
    for task in dict.fromkeys(row.task for row in rows):
        here = {row.cell: row for row in rows if row.task == task}
        lines.append([NAMES.get(task, task), *(f"{here[cell].test:.1f}" for cell in cells)])
        if all(row.longer is not None for row in here.values()):
            longer = (f"{here[cell].longer:.1f}" for cell in cells)
            lines.append([f"… the same, {LONGER} times as long", *longer])
    return markdown_table(lines)
