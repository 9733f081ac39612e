"""The paper's table of test accuracies beside our own runs: means, standard deviations, paired differences."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rrnn.errors import RunError
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.experiment import Summary, read_summary
from rrnn.tasks.runs import RESULT, read_config, runs_in

DATA = ("amazon", "sst", "subj", "cr")
PAPER: dict[str, tuple[tuple[float, float], ...]] = {
    "LSTM": ((91.2, 0.3), (85.1, 0.6), (93.3, 0.6), (82.4, 1.5)),
    "B": ((92.4, 0.1), (85.8, 0.3), (93.9, 0.4), (84.1, 1.0)),
    "C": ((92.8, 0.2), (84.8, 0.4), (93.8, 0.6), (84.5, 0.9)),
    "B-max-plus": ((89.2, 3.1), (84.9, 0.4), (92.6, 0.5), (84.3, 0.5)),
    "F": ((92.7, 0.2), (86.5, 0.6), (94.8, 0.5), (85.1, 0.5)),
}
"""Model of the zoo → (mean, standard deviation) of test accuracy over 5 runs, for each of DATA."""
NAMES = {"LSTM": "LSTM", "B": "RRNN(B)", "C": "RRNN(C)", "B-max-plus": "RRNN(B) m+", "F": "RRNN(F)"}


@dataclass(frozen=True)
class Difference:
    """Of a model's test accuracies to another's with the same seeds: the mean and its 95 % confidence interval."""

    reference: str
    seeds: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """A model on a data set. Accuracies in per cent; None where there are no runs, or the paper has none."""

    data: str
    model: str
    paper: tuple[float, float] | None
    seeds: tuple[int, ...]
    dev: float | None
    test: float | None
    deviation: float | None
    difference: Difference | None


def find_results(folders: Sequence[str | Path]) -> list[tuple[Path, Summary]]:
    """Every finished classifier in these folders, at any depth: runs, and searches with their seeds."""
    found = []
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise RunError(f"{folder} is no folder: name runs, or folders that hold some")
        here = _runs(folder)
        if not here:
            raise RunError(
                f"there is no finished training of a classifier in {folder}: a run ends with {RESULT}"
            )
        found += [(path, read_summary(path)) for path in here]
    return found


def _runs(folder: Path) -> list[Path]:
    """Finished ones."""
    finished = (run for run in runs_in(folder) if (run / RESULT).exists())
    return [run for run in finished if read_config(run)["task"] == ClassifyConfig.task]


def table_of(folders: Sequence[str | Path], reference: str = "LSTM") -> list[Row]:
    """A row for each model and data set that the paper has or we ran, each next to the paper's."""
    tests: dict[tuple[str, str], dict[int, Summary]] = {}
    where: dict[tuple[str, str, int], Path] = {}
    for path, result in find_results(folders):
        model = _zoo_name(result.cell)
        twin = where.setdefault((result.data, model, result.seed), path)
        if twin.resolve() != path.resolve():  # a folder may be named twice
            raise RunError(
                f"{twin} and {path} are both {model} on {result.data} with seed {result.seed}: name one"
            )
        tests.setdefault((result.data, model), {})[result.seed] = result
    data = [*DATA, *sorted({name for name, _ in tests} - set(DATA))]
    models = [*PAPER, *sorted({model for _, model in tests} - set(PAPER))]
    if tests and (reference := _zoo_name(reference)) not in models:
        raise RunError(f"the reference is one of {', '.join(models)}; got {reference!r}")
    keys = [(d, m) for d in data for m in models if (d, m) in tests or (d in DATA and m in PAPER)]
    return [_row(d, m, tests.get((d, m), {}), tests.get((d, reference), {}), reference) for d, m in keys]


def _zoo_name(cell: str) -> str:
    return next((name for name in PAPER if name.lower() == cell.lower()), cell)


def _row(data: str, model: str, ours: dict[int, Summary], others: dict[int, Summary], reference: str) -> Row:
    scores = {seed: r.test for seed, r in sorted(ours.items()) if r.test is not None}
    base = {seed: r.test for seed, r in others.items() if r.test is not None}
    gains = [scores[seed] - base[seed] for seed in scores if seed in base] if model != reference else []
    return Row(
        data=data,
        model=model,
        paper=PAPER[model][DATA.index(data)] if model in PAPER and data in DATA else None,
        seeds=tuple(sorted(ours)),
        dev=statistics.fmean(r.dev for r in ours.values()) if ours else None,
        test=statistics.fmean(scores.values()) if scores else None,
        deviation=statistics.stdev(scores.values()) if len(scores) > 1 else None,
        difference=paired(gains, reference) if len(gains) > 1 else None,
    )


def paired(gains: Sequence[float], reference: str) -> Difference:
    """Student's t on the differences."""
    n, mean = len(gains), statistics.fmean(gains)
    half = t_quantile(n - 1) * statistics.stdev(gains) / math.sqrt(n)
    return Difference(reference, n, mean, mean - half, mean + half)


def t_quantile(freedom: int, probability: float = 0.975) -> float:
    """Of Student's distribution, by bisection on its integral."""
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)

    def below(x: float, steps: int = 400) -> float:
        # With t = √freedom · tan θ the density becomes cos θ to the power freedom − 1: smooth, on a bounded interval.
        top = math.atan(x / math.sqrt(freedom))
        values = [math.cos(top * i / steps) ** (freedom - 1) for i in range(steps + 1)]
        simpson = values[0] + values[-1] + 4 * sum(values[1:-1:2]) + 2 * sum(values[2:-1:2])
        return 0.5 + scale * simpson * top / steps / 3

    low, high = 0.0, 1000.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) < probability else (low, middle)
    return (low + high) / 2


# ---- printing --------------------------------------------------------------------------------------------------------


def to_markdown(rows: Sequence[Row]) -> str:
    """Test accuracies in per cent."""
    reference = next((row.difference.reference for row in rows if row.difference), None)
    head = ["data", "model", "paper", "ours", "seeds", "dev"]
    head += [f"to {NAMES.get(reference, reference)}, 95 % CI"] if reference else []
    lines = [head, ["---"] * len(head)]
    for row in rows:
        cells = [row.data, NAMES.get(row.model, row.model), _score(*(row.paper or (None, None)))]
        cells += [_score(row.test, row.deviation), str(len(row.seeds) or "–"), _score(row.dev)]
        if reference:
            d = row.difference
            cells.append(f"{d.mean:+.1f} [{d.low:+.1f}, {d.high:+.1f}]" if d else "–")
        lines.append(cells)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in lines
    )


def _score(mean: float | None, deviation: float | None = None) -> str:
    if mean is None:
        return "–"
    return f"{mean:.1f}" if deviation is None else f"{mean:.1f} ± {deviation:.1f}"


def to_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]
