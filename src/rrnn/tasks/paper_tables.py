"""Compare runs with the paper's tables: perplexities of language models, and accuracies of text classifiers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rrnn.errors import RunError
from rrnn.files import read_json
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.experiment import Summary, read_summary
from rrnn.tasks.configs import FACTS
from rrnn.tasks.lm.config import LMConfig
from rrnn.tasks.lm.trained import lm_run
from rrnn.tasks.runs import RESULT, read_config, runs_in


def markdown_table(lines: Sequence[Sequence[str]], right: Collection[str] = ()) -> str:
    """Return a Markdown table with padded columns. The first line is the header; `right` are right-aligned columns."""
    head = lines[0]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    widths = [max(3, width) for width in widths]

    def cell(text: str, width: int, name: str) -> str:
        return text.rjust(width) if name in right else text.ljust(width)

    marks = [
        "-" * (width - 1) + ":" if name in right else "-" * width
        for width, name in zip(widths, head, strict=True)
    ]
    rows = [list(map(cell, line, widths, head)) for line in lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in [rows[0], marks, *rows[1:]])


# ---- perplexities of language models ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class PaperPerplexity:
    """A line of the paper's table of perplexities on the Penn Treebank."""

    model: str
    cell: str
    layers: int
    budget: int
    dev: float
    test: float


M = 1_000_000
PAPER_PERPLEXITIES = (
    PaperPerplexity("LSTM", "lstm", 2, 24 * M, 73.3, 71.4),
    PaperPerplexity("LSTM", "lstm", 3, 24 * M, 78.8, 76.2),
    PaperPerplexity("RRNN(B)", "B", 2, 10 * M, 73.1, 69.2),
    PaperPerplexity("RRNN(B) m+", "B-max-plus", 2, 10 * M, 75.1, 71.7),
    PaperPerplexity("RRNN(C)", "C", 2, 10 * M, 72.5, 69.5),
    PaperPerplexity("RRNN(F)", "F", 2, 10 * M, 69.5, 66.3),
    PaperPerplexity("RRNN(B)", "B", 3, 24 * M, 68.7, 65.2),
    PaperPerplexity("RRNN(B) m+", "B-max-plus", 3, 24 * M, 70.8, 66.9),
    PaperPerplexity("RRNN(C)", "C", 3, 24 * M, 70.0, 67.0),
    PaperPerplexity("RRNN(F)", "F", 3, 24 * M, 66.0, 63.1),
)


@dataclass(frozen=True)
class PerplexityRow:
    """A run of ours. `test` is None before the end of the training, and if there is no test set."""

    run: str
    data: str
    cell: str
    layers: int
    hidden: int
    parameters: int
    epochs: int
    dev: float | None
    test: float | None
    tokens_per_s: float | None

    def matches(self, row: PaperPerplexity) -> bool:
        """Return whether this is the paper's model, of about the same size, on the same data."""
        name = self.cell.lower().removesuffix("+o")
        close = abs(self.parameters / row.budget - 1) < 0.1
        return (self.data, name, self.layers) == ("ptb", row.cell.lower(), row.layers) and close


def read_row(folder: str | Path) -> PerplexityRow:
    """Read the row of a run, finished or not."""
    run = lm_run(folder)
    config, records = LMConfig.from_run(run.config), run.records()
    facts = run.config.get(FACTS)
    if config.hidden_size is None or not isinstance(facts, dict) or type(facts.get("parameters")) is not int:
        raise RunError(f"config.json in {folder} was not written by a training: it has no {FACTS}.parameters")
    figures = [record.get(name) for record in records for name in ("dev_ppl", "tokens_per_s")]
    if not all(type(figure) in (int, float) for figure in figures):
        raise RunError(f"metrics.jsonl in {folder} is damaged: a record has no dev_ppl or no tokens_per_s")
    best = min(records, key=lambda record: record["dev_ppl"], default=None)
    found = _read_result(run.folder / RESULT)
    if found.get("epochs") != len(records):
        found = {}  # it is older: the run was resumed for more epochs
    data = config.data if config.level == "word" else f"{config.data} (characters)"
    data = data if config.tokenizer is None else f"{data} (tokenizer)"
    return PerplexityRow(
        run=str(folder),
        data=data,
        cell=config.cell,
        layers=config.layers,
        hidden=config.hidden_size,
        parameters=facts["parameters"],
        epochs=len(records),
        dev=found.get("dev_ppl", best["dev_ppl"] if best else None),
        test=found.get("test_ppl"),
        tokens_per_s=found.get("tokens_per_s", best["tokens_per_s"] if best else None),
    )


def _read_result(path: Path) -> dict[str, Any]:
    """Read result.json; return {} if there is none yet."""
    try:
        found = read_json(path)
    except FileNotFoundError:
        return {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise RunError(f"{path} is damaged: it is not a JSON object. Resume the run to write it again")
    return found


def perplexity_table(
    folders: Sequence[str | Path],
) -> list[tuple[PaperPerplexity | None, PerplexityRow | None]]:
    """Return every row of the paper with our runs of it, then our other runs. Folders are runs, or contain runs."""
    ours = [read_row(run) for folder in folders for run in _lm_runs(folder)]
    rows: list[tuple[PaperPerplexity | None, PerplexityRow | None]] = []
    for row in PAPER_PERPLEXITIES:
        rows += [(row, our) for our in ours if our.matches(row)] or [(row, None)]
    return rows + [(None, our) for our in ours if not any(our.matches(row) for row in PAPER_PERPLEXITIES)]


def _lm_runs(folder: str | Path) -> list[str | Path]:
    """Return the folder if it is a run, else all language models below it."""
    there = runs_in(Path(folder))
    if there == [Path(folder)] or not Path(folder).is_dir():
        return [folder]  # reading it will raise the error
    found: list[str | Path] = [run for run in there if read_config(run)["task"] == LMConfig.task]
    if not found:
        raise RunError(f"{folder} contains no run of a language model")
    return found


def perplexities_to_markdown(rows: Sequence[tuple[PaperPerplexity | None, PerplexityRow | None]]) -> str:
    """Return the table of perplexities (lower is better) in Markdown. `ℓ` is the number of layers."""
    head = ["model", "data", "ℓ", "parameters", "paper dev", "paper test", "our dev", "our test"]
    head += ["epochs", "tokens/s", "run"]
    lines = [head]
    for paper, our in rows:
        model = paper.model if paper else our.cell if our else ""
        size = f"{our.parameters / M:.2f}M" if our else f"{paper.budget // M}M" if paper else ""
        layers = str(our.layers if our else paper.layers if paper else "")
        lines.append(
            [model, our.data if our else "ptb", layers, size]
            + ([_ppl(paper.dev), _ppl(paper.test)] if paper else ["–", "–"])
            + (
                [_ppl(our.dev), _ppl(our.test), str(our.epochs), _speed(our.tokens_per_s), our.run]
                if our
                else ["–"] * 5
            )
        )
    return markdown_table(lines, right=set(head) - {"model", "data", "run"})


def perplexities_to_json(
    rows: Sequence[tuple[PaperPerplexity | None, PerplexityRow | None]],
) -> list[dict[str, Any]]:
    """Return the table for JSON: [{"paper": {…} or null, "ours": {…} or null}, …]."""
    return [{"paper": p and asdict(p), "ours": o and asdict(o)} for p, o in rows]


def _ppl(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _speed(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


# ---- accuracies of text classifiers ----------------------------------------------------------------------------------


DATA = ("amazon", "sst", "subj", "cr")
PAPER_ACCURACIES: dict[str, tuple[tuple[float, float], ...]] = {
    "LSTM": ((91.2, 0.3), (85.1, 0.6), (93.3, 0.6), (82.4, 1.5)),
    "B": ((92.4, 0.1), (85.8, 0.3), (93.9, 0.4), (84.1, 1.0)),
    "C": ((92.8, 0.2), (84.8, 0.4), (93.8, 0.6), (84.5, 0.9)),
    "B-max-plus": ((89.2, 3.1), (84.9, 0.4), (92.6, 0.5), (84.3, 0.5)),
    "F": ((92.7, 0.2), (86.5, 0.6), (94.8, 0.5), (85.1, 0.5)),
}
"""Model of the zoo → (mean, standard deviation) of test accuracy over 5 runs, for each of DATA."""
NAMES = {"LSTM": "LSTM", "B": "RRNN(B)", "C": "RRNN(C)", "B-max-plus": "RRNN(B) m+", "F": "RRNN(F)"}


RunKey = tuple[int, int]
"""The seed of a run, and its fold (0 without folds)."""


@dataclass(frozen=True)
class Difference:
    """The mean difference of test accuracy to another model with the same seeds, and its 95 % confidence interval."""

    reference: str
    seeds: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class AccuracyRow:
    """A model on a data set. Accuracies are in per cent; None if there are no runs, or the paper has no result."""

    data: str
    model: str
    paper: tuple[float, float] | None
    seeds: tuple[int, ...]
    dev: float | None
    test: float | None
    deviation: float | None
    difference: Difference | None
    macro_f1: float | None = None
    """Mean of the macro-averaged F1 on test, of the runs that have it."""


def find_results(folders: Sequence[str | Path]) -> list[tuple[Path, Summary]]:
    """Return every finished classifier below these folders: runs, and searches with their seeds."""
    found = []
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise RunError(f"{folder} is not a folder: give runs, or folders that contain runs")
        here = _finished_classifiers(folder)
        if not here:
            raise RunError(f"{folder} contains no finished training of a classifier, which has a {RESULT}")
        found += [(path, read_summary(path)) for path in here]
    return found


def _finished_classifiers(folder: Path) -> list[Path]:
    """Return the classifiers below `folder` that contain result.json."""
    finished = (run for run in runs_in(folder) if (run / RESULT).exists())
    return [run for run in finished if read_config(run)["task"] == ClassifyConfig.task]


def accuracy_table(folders: Sequence[str | Path], reference: str = "LSTM") -> list[AccuracyRow]:
    """Return a row for each model and data set of the paper or of our runs."""
    tests: dict[tuple[str, str], dict[RunKey, Summary]] = {}
    where: dict[tuple[str, str, RunKey], Path] = {}
    for path, result in find_results(folders):
        model, key = _zoo_name(result.cell), (result.seed, result.fold or 0)
        data = result.data if result.folds is None else f"{result.data} in {result.folds} folds"
        twin = where.setdefault((data, model, key), path)
        if twin.resolve() != path.resolve():  # a folder may be given twice
            fold = f" and fold {result.fold}" if result.fold else ""
            raise RunError(
                f"{twin} and {path} are both {model} on {result.data} with seed {result.seed}{fold}: give one of them"
            )
        tests.setdefault((data, model), {})[key] = result
    data = [*DATA, *sorted({name for name, _ in tests} - set(DATA))]
    models = [*PAPER_ACCURACIES, *sorted({model for _, model in tests} - set(PAPER_ACCURACIES))]
    if tests and (reference := _zoo_name(reference)) not in models:
        raise RunError(f"the reference must be one of {', '.join(models)}; got {reference!r}")
    keys = [(d, m) for d in data for m in models if (d, m) in tests or (d in DATA and m in PAPER_ACCURACIES)]
    return [_row(d, m, tests.get((d, m), {}), tests.get((d, reference), {}), reference) for d, m in keys]


def _zoo_name(cell: str) -> str:
    return next((name for name in PAPER_ACCURACIES if name.lower() == cell.lower()), cell)


def _row(
    data: str, model: str, ours: dict[RunKey, Summary], others: dict[RunKey, Summary], reference: str
) -> AccuracyRow:
    scores = {key: r.test for key, r in sorted(ours.items()) if r.test is not None}
    base = {key: r.test for key, r in others.items() if r.test is not None}
    gains = [scores[key] - base[key] for key in scores if key in base] if model != reference else []
    f1 = [r.test_macro_f1 for r in ours.values() if r.test_macro_f1 is not None]
    return AccuracyRow(
        data=data,
        model=model,
        paper=PAPER_ACCURACIES[model][DATA.index(data)]
        if model in PAPER_ACCURACIES and data in DATA
        else None,
        seeds=tuple(sorted({seed for seed, _ in ours})),
        dev=statistics.fmean(r.dev for r in ours.values()) if ours else None,
        test=statistics.fmean(scores.values()) if scores else None,
        deviation=statistics.stdev(scores.values()) if len(scores) > 1 else None,
        difference=paired(gains, reference) if len(gains) > 1 else None,
        macro_f1=statistics.fmean(f1) if f1 else None,
    )


def paired(gains: Sequence[float], reference: str) -> Difference:
    """Return the mean of the differences with its confidence interval by Student's t."""
    n, mean = len(gains), statistics.fmean(gains)
    half = t_quantile(n - 1) * statistics.stdev(gains) / math.sqrt(n)
    return Difference(reference, n, mean, mean - half, mean + half)


def t_quantile(freedom: int, probability: float = 0.975) -> float:
    """Return a quantile of Student's t distribution, by bisection on its integral."""
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


def accuracies_to_markdown(rows: Sequence[AccuracyRow]) -> str:
    """Return the table of test accuracies, in per cent, in Markdown."""
    reference = next((row.difference.reference for row in rows if row.difference), None)
    head = ["data", "model", "paper", "ours", "seeds", "dev"]
    scored = any(row.macro_f1 is not None for row in rows)
    head += ["macro-F1"] if scored else []
    head += [f"to {NAMES.get(reference, reference)}, 95 % CI"] if reference else []
    lines = [head]
    for row in rows:
        cells = [row.data, NAMES.get(row.model, row.model), _score(*(row.paper or (None, None)))]
        cells += [_score(row.test, row.deviation), str(len(row.seeds) or "–"), _score(row.dev)]
        cells += [_score(row.macro_f1)] if scored else []
        if reference:
            d = row.difference
            cells.append(f"{d.mean:+.1f} [{d.low:+.1f}, {d.high:+.1f}]" if d else "–")
        lines.append(cells)
    return markdown_table(lines)


def _score(mean: float | None, deviation: float | None = None) -> str:
    if mean is None:
        return "–"
    return f"{mean:.1f}" if deviation is None else f"{mean:.1f} ± {deviation:.1f}"


def accuracies_to_json(rows: Sequence[AccuracyRow]) -> list[dict[str, Any]]:
    """Return the table for JSON."""
    return [asdict(row) for row in rows]
