"""The paper's table of language models beside our own runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rrnn.errors import RunError
from rrnn.tasks.configs import FACTS
from rrnn.tasks.lm.config import LMConfig
from rrnn.tasks.lm.trained import lm_run
from rrnn.tasks.runs import RESULT, read_config, runs_in


@dataclass(frozen=True)
class PaperRow:
    """A line of the paper's table: perplexities on PTB."""

    model: str
    cell: str  # in the zoo
    layers: int
    budget: int
    dev: float
    test: float


M = 1_000_000
PAPER = (
    PaperRow("LSTM", "lstm", 2, 24 * M, 73.3, 71.4),
    PaperRow("LSTM", "lstm", 3, 24 * M, 78.8, 76.2),
    PaperRow("RRNN(B)", "B", 2, 10 * M, 73.1, 69.2),
    PaperRow("RRNN(B) m+", "B-max-plus", 2, 10 * M, 75.1, 71.7),
    PaperRow("RRNN(C)", "C", 2, 10 * M, 72.5, 69.5),
    PaperRow("RRNN(F)", "F", 2, 10 * M, 69.5, 66.3),
    PaperRow("RRNN(B)", "B", 3, 24 * M, 68.7, 65.2),
    PaperRow("RRNN(B) m+", "B-max-plus", 3, 24 * M, 70.8, 66.9),
    PaperRow("RRNN(C)", "C", 3, 24 * M, 70.0, 67.0),
    PaperRow("RRNN(F)", "F", 3, 24 * M, 66.0, 63.1),
)


@dataclass(frozen=True)
class OurRow:
    """A run of ours. `test` is None before its end, and where the data have no test set."""

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

    def matches(self, row: PaperRow) -> bool:
        """The same model, of about the same size, on the same data."""
        name = self.cell.lower().removesuffix("+o")
        close = abs(self.parameters / row.budget - 1) < 0.1
        return (self.data, name, self.layers) == ("ptb", row.cell.lower(), row.layers) and close


def read_row(folder: str | Path) -> OurRow:
    """Of a run, finished or not."""
    run = lm_run(folder)
    config, records = LMConfig.from_run(run.config), run.records()
    facts = run.config.get(FACTS)
    if config.hidden_size is None or not isinstance(facts, dict) or "parameters" not in facts:
        raise RunError(f"config.json in {folder} is not what a training wrote: it has no {FACTS}.parameters")
    if any("dev_ppl" not in record or "tokens_per_s" not in record for record in records):
        raise RunError(f"metrics.jsonl in {folder} is damaged: a record has no dev_ppl or no tokens_per_s")
    best = min(records, key=lambda record: record["dev_ppl"], default=None)
    found = _read_result(run.folder / RESULT)
    if found.get("epochs") != len(records):
        found = {}  # of an earlier end: the run was resumed for more epochs
    data = config.data if config.level == "word" else f"{config.data} (characters)"
    return OurRow(
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
    """Empty while there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise RunError(f"{path} is damaged: it is no JSON object. Resume the run, which writes it again.")
    return found


def table_of(folders: Sequence[str | Path]) -> list[tuple[PaperRow | None, OurRow | None]]:
    """Every row of the paper with our runs of it, then runs that it has no row for. Folders are runs, or hold some."""
    ours = [read_row(run) for folder in folders for run in _runs(folder)]
    rows: list[tuple[PaperRow | None, OurRow | None]] = []
    for row in PAPER:
        rows += [(row, our) for our in ours if our.matches(row)] or [(row, None)]
    return rows + [(None, our) for our in ours if not any(our.matches(row) for row in PAPER)]


def _runs(folder: str | Path) -> list[str | Path]:
    """The folder, where it is a run, else language models' below it."""
    there = runs_in(Path(folder))
    if there == [Path(folder)] or not Path(folder).is_dir():
        return [folder]  # what is wrong with it is said where it is read
    found: list[str | Path] = [run for run in there if read_config(run)["task"] == LMConfig.task]
    if not found:
        raise RunError(f"there is no run of a language model in {folder}")
    return found


def to_markdown(rows: Sequence[tuple[PaperRow | None, OurRow | None]]) -> str:
    """Perplexities, lower is better. `ℓ` is the number of layers."""
    head = ["model", "data", "ℓ", "parameters", "paper dev", "paper test", "our dev", "our test"]
    head += ["epochs", "tokens/s", "run"]
    left = {"model", "data", "run"}
    lines = [head, [":--" if name in left else "--:" for name in head]]
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
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]

    def cell(text: str, width: int, name: str) -> str:
        if text in (":--", "--:"):
            return text.replace("--", "-" * (width - 1))
        return text.ljust(width) if name in left else text.rjust(width)

    return "\n".join(f"| {' | '.join(map(cell, line, widths, head))} |" for line in lines)


def to_json(rows: Sequence[tuple[PaperRow | None, OurRow | None]]) -> list[dict[str, Any]]:
    """[{"paper": {…} or null, "ours": {…} or null}, …]"""
    return [{"paper": p and asdict(p), "ours": o and asdict(o)} for p, o in rows]


def _ppl(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _speed(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"
