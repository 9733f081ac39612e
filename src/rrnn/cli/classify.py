"""`rrnn classify`: train, search, evaluate and apply text classifiers, and set them beside the paper's."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from rrnn.cli.overrides import given, overrides_of
from rrnn.errors import RunError
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.ranges import PAPER
from rrnn.tasks.search import Standing

_Settings: Any = overrides_of(ClassifyConfig, "What decides the training.")
_Common: Any = overrides_of(ClassifyConfig, "Options that all trials share.", without=[*PAPER, "seed"])
_Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]


@dataclass
class Train:
    """Train a text classifier. Without options: on texts made by an automaton, whether they have not … good.

    The folder gets the configuration, the cell, the vocabulary, metrics.jsonl, the checkpoints `best` and `last`,
    result.json and a loss plot.
    """

    out: Path | None = None
    """The run's folder (default: runs/classify-DATA-CELL)."""
    config: Path | None = None
    """A JSON file with a configuration to begin with, as a search's best.json or a run's config.json."""
    resume: bool = False
    """Go on with the run in the folder, as it was configured; begin it where there is none."""
    settings: Annotated[_Settings, tyro.conf.arg(name="")] = field(default_factory=_Settings)  # pyright: ignore[reportInvalidTypeForm]


def train(options: Train) -> None:
    from rrnn.tasks.classify.train import train as train_model
    from rrnn.tasks.progress import show_progress

    changes = given(options.settings)
    config = (
        _read_config(options.config).replace(**changes)
        if options.config
        else ClassifyConfig.for_data(**changes)
    )
    folder = options.out or _folder(config)
    if options.resume and (folder / "config.json").exists():
        from rrnn.tasks.classify.trained import classify_run, read_config

        config = read_config(classify_run(folder)).replace(**changes)
    result = train_model(config, folder, resume=options.resume, progress=show_progress()).summary
    test = "" if result.test is None else f", test accuracy {result.test:.2f}"
    print(f"best epoch {result.best_epoch}: dev accuracy {result.dev:.2f}{test}; run: {folder}")


@dataclass
class Eval:
    """The accuracy of a trained classifier, and what it takes for what."""

    run: _Run
    """The run's folder."""
    split: str = "test"
    """train, dev or test of the data it was trained with, or a file of labelled texts."""
    text_column: str = "text"
    """The column of a table with the text: its name, or its number from 0."""
    label_column: str = "label"
    """The column of a table with the label."""
    encoding: str = "utf-8"
    """Of the file."""
    json: bool = False
    """Print JSON."""


def eval(options: Eval) -> None:
    from rrnn.tasks.classify.evaluate import evaluate, labelled_texts
    from rrnn.tasks.classify.trained import classify_run, load_run
    from rrnn.tasks.data.rows import Skips, skipped

    model, skips = load_run(classify_run(options.run)), Skips()
    texts, labels = labelled_texts(
        model, options.split, options.text_column, options.label_column, options.encoding, skips
    )
    if skips.counts:
        print(f"{options.split}: {skipped(skips.counts)}", file=sys.stderr)
    report = evaluate(model, texts, labels)
    print(json.dumps(report.to_dict(), indent=2) if options.json else report.to_text(options.split))


@dataclass
class Predict:
    """Classify texts: a line of label and probabilities for each, in their order, however many there are."""

    run: _Run
    """The run's folder."""
    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")] = Path("-")
    """A text a line, or a CSV or TSV table; `-` is the standard input."""
    format: Literal["csv", "jsonl"] = "csv"
    """Of the output."""
    text_column: str | None = None
    """The table's column with the text: its name, or its number from 0 (default: text)."""
    encoding: str = "utf-8"
    """Of the input."""
    window: int = 2048
    """Texts read before the first are answered: 1 answers each at once, more is quicker."""


def predict(options: Predict) -> None:
    from rrnn.tasks.classify.predict import predict_file
    from rrnn.tasks.classify.trained import classify_run, load_run

    if options.window < 1:
        raise RunError(f"window is a number of texts, at least 1; got {options.window}")
    model = load_run(classify_run(options.run))
    counts = predict_file(
        model,
        options.file,
        sys.stdout,
        format=options.format,
        text_column=options.text_column,
        encoding=options.encoding,
        window=options.window,
    )
    if counts[""]:
        print(f"{counts['']} of {counts.total()} texts have no words, and got no label", file=sys.stderr)


@dataclass
class Search:
    """Search the paper's ranges for the best setting, then train it with several seeds.

    Hidden size, dropouts, learning rate, l2 and clipping are drawn; other options are the same for all trials. The same
    command continues an interrupted search. With a PostgreSQL server as --storage, it joins in from other machines.
    """

    out: Path | None = None
    """The folder for the study, best.json and the runs seed-0, seed-1, … (default: runs/search-DATA-CELL)."""
    trials: int = 20
    """The number of settings to try."""
    seeds: int = 5
    """The number of seeds with which the best setting is trained; use 0 on machines that only join in."""
    workers: int = 1
    """The number of trainings that run at the same time."""
    threads: bool = False
    """Run the workers as threads, which share a GPU by a stream each, instead of as processes."""
    storage: str | None = None
    """A journal file, or, for many machines, a database: postgresql://user@host/name (default: OUT/study.journal)."""
    study: str = "classify"
    """The name of the study in the storage."""
    sampler: Literal["random", "tpe"] = "random"
    """random draws settings from --search-seed alone; tpe chooses them by the results so far."""
    search_seed: int = 0
    """The seed from which settings are drawn."""
    common: Annotated[_Common, tyro.conf.arg(name="")] = field(default_factory=_Common)  # pyright: ignore[reportInvalidTypeForm]


def search(options: Search) -> None:
    from rrnn.tasks.classify.search import search_classifier

    config = ClassifyConfig.for_data(**given(options.common))
    folder = options.out or _folder(config, "search")
    found = search_classifier(
        config,
        folder,
        trials=options.trials,
        seeds=options.seeds,
        workers=options.workers,
        threads=options.threads,
        storage=options.storage,
        study=options.study,
        sampler=options.sampler,
        search_seed=options.search_seed,
        watch=_ProgressLines(),
        report=lambda r: print(f"seed {r.seed}: {_accuracies(r)} after {r.epochs} epochs", flush=True),
    )
    setting = ", ".join(f"{name} {getattr(found.config, name):.3g}" for name in PAPER)
    print(f"best setting: dev accuracy {found.dev:.2f}; {setting}; {folder}/best.json")


class _ProgressLines:
    """Print a line whenever another trial is finished."""

    def __init__(self) -> None:
        self.finished: tuple[int, int] | None = None

    def __call__(self, now: Standing) -> None:
        if (now.done, now.failed) == self.finished:
            return
        self.finished = (now.done, now.failed)
        failed = f", {now.failed} failed (the first: {now.first_error})" if now.failed else ""
        best = f"; best dev accuracy {now.best.value:.2f} in trial {now.best.number}" if now.best else ""
        print(f"{now.done + now.failed}/{now.wanted} trials{failed}{best}", flush=True)


@dataclass
class Table:
    """The paper's table of test accuracies beside our runs, in Markdown: mean ± standard deviation over seeds."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")] = ()
    """Folders of runs and searches."""
    reference: str = "LSTM"
    """The model that others are compared with, seed by seed."""
    json: Path | None = None
    """Write the table to this file, too."""


def table(options: Table) -> None:
    from rrnn.tasks.classify.table import table_of, to_json, to_markdown

    rows = table_of(options.runs, options.reference)
    print(to_markdown(rows))
    if options.json is not None:
        options.json.write_text(json.dumps(to_json(rows), indent=2) + "\n", encoding="utf-8")


def _folder(config: ClassifyConfig, what: str = "classify") -> Path:
    data = Path(config.data).stem.replace(":", "-")
    return Path("runs") / f"{what}-{data}-{Path(config.cell).stem}"


def _accuracies(result: Any) -> str:
    return f"dev {result.dev:.2f}" + ("" if result.test is None else f", test {result.test:.2f}")


def _read_config(path: Path) -> ClassifyConfig:
    """A run's config.json, or a search's best.json."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        values = values.get("config", values)
        return ClassifyConfig.from_dict({k: v for k, v in values.items() if k not in ("facts", "rrnn")})
    except (ValueError, AttributeError) as error:
        if isinstance(error, RunError):
            raise
        raise RunError(f"{path} is no configuration: {error}") from None
