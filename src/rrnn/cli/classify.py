"""`rrnn classify`: train, tune, evaluate and apply text classifiers, and compare with the paper."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from rrnn.cli.shared import (
    GROUPED,
    file_stem,
    given,
    load_model,
    option,
    overrides_of,
    print_markdown,
    resumable,
    write_json,
)
from rrnn.cli.terminal import terminal_width
from rrnn.errors import RunError
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.ranges import PAPER
from rrnn.tasks.search import Standing

_DEFAULTS = {"": ClassifyConfig.for_data(), "other data": ClassifyConfig()}
_Settings: Any = overrides_of(ClassifyConfig, _DEFAULTS)
_Common: Any = overrides_of(ClassifyConfig, _DEFAULTS, without=[*PAPER, "seed", "fold", "threads"])
_Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]


@dataclass
class Train:
    """Train a text classifier. Without options, it learns to recognise "not … good" in synthetic texts.

    The run folder contains the configuration, the cell, the vocabulary, metrics.jsonl, the checkpoints `best` and
    `last`, result.json and a loss plot. With --folds, it contains such runs, fold-1, fold-2, …, and folds.json.
    """

    out: Annotated[Path | None, option("FOLDER")] = None
    """The run folder (default: runs/classify-DATA-CELL)."""
    config: Annotated[Path | None, option("FILE")] = None
    """Start from a JSON file, such as a search's best.json or a run's config.json."""
    resume: Annotated[bool, option("")] = False
    """Continue the run in the folder with its own configuration; start it if there is none yet."""
    settings: Annotated[_Settings, *GROUPED] = field(default_factory=_Settings)  # pyright: ignore[reportInvalidTypeForm]


def train(options: Train) -> None:
    """Run `rrnn classify train`."""
    from rrnn.tasks.classify.experiment import train as train_model
    from rrnn.tasks.classify.folds import begun_folds, cross_validate, fold_folder
    from rrnn.tasks.progress import show_progress

    changes = given(options.settings)
    file = options.config
    config = ClassifyConfig.from_file(file).replace(**changes) if file else ClassifyConfig.for_data(**changes)
    folder = options.out or _folder(config)
    if options.resume and (folder / "config.json").exists():
        config = ClassifyConfig.from_file(folder / "config.json").replace(**changes)
    elif options.resume and (begun := begun_folds(folder)):
        own = ClassifyConfig.from_file(fold_folder(folder, begun[0]) / "config.json")
        config = own.replace(**{"fold": None, **changes})
    with resumable("classify train", folder):
        if config.folds is not None and config.fold is None:
            found = cross_validate(
                config, folder, resume=options.resume, progress=show_progress(), report=_print_result
            )
            figures = f"dev accuracy {found.spread('dev')}, test accuracy {found.spread('test')}"
            print(
                f"{config.folds} folds: {figures}, test macro-F1 {found.spread('test_macro_f1')}; runs: {folder}"
            )
        else:
            _print_result(
                train_model(config, folder, resume=options.resume, progress=show_progress()).summary, folder
            )


def _print_result(result: Any, folder: Path | None = None) -> None:
    """Print the figures of a training, with its fold or its folder."""
    fold = "" if result.fold is None else f"fold {result.fold} of {result.folds}, "
    test = "" if result.test is None else f", test accuracy {result.test:.2f}"
    f1 = result.dev_macro_f1 if result.test is None else result.test_macro_f1
    extra = "" if f1 is None else f", macro-F1 {f1:.2f}"
    where = "" if folder is None else f"; run: {folder}"
    print(
        f"{fold}best epoch {result.best_epoch}: dev accuracy {result.dev:.2f}{test}{extra}{where}", flush=True
    )


@dataclass
class Eval:
    """Compute the accuracy of a trained classifier, and its confusion matrix."""

    run: _Run
    """The run folder."""
    split: str = "test"
    """train, dev or test of the data it was trained on, or a file of labelled texts."""
    text_column: str = "text"
    """The table column with the text: its name, or its number from 0."""
    label_column: str = "label"
    """The table column with the label: its name, or its number from 0."""
    encoding: str = "utf-8"
    """Encoding of the file."""
    json: bool = False
    """Print JSON."""


def eval(options: Eval) -> None:
    """Run `rrnn classify eval`."""
    from rrnn.tasks.classify.trained import evaluate, labelled_texts, load
    from rrnn.tasks.data.labelled_files import Skips, skipped

    model, skips = load_model(load, options.run), Skips()
    texts, labels = labelled_texts(
        model, options.split, options.text_column, options.label_column, options.encoding, skips
    )
    if skips.counts:
        print(f"{options.split}: {skipped(skips.counts)}", file=sys.stderr)
    report = evaluate(model, texts, labels)
    print(
        json.dumps(report.to_dict(), indent=2)
        if options.json
        else report.to_text(options.split, terminal_width())
    )


@dataclass
class Predict:
    """Classify any number of texts. The output has one line per text, with its label and all probabilities."""

    run: _Run
    """The run folder."""
    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")] = Path("-")
    """A file with one text per line, or a CSV or TSV table; `-` is the standard input."""
    format: Literal["csv", "jsonl"] = "csv"
    """Format of the output."""
    text_column: Annotated[str | None, option("STR")] = None
    """The table column with the text: its name, or its number from 0 (default: text)."""
    encoding: str = "utf-8"
    """Encoding of the input."""
    window: int = 2048
    """Number of texts to read ahead: 1 answers each text at once, more is faster."""


def predict(options: Predict) -> None:
    """Run `rrnn classify predict`."""
    from rrnn.tasks.classify.predict import predict_file
    from rrnn.tasks.classify.trained import load

    if options.window < 1:
        raise RunError(f"window must be at least 1; got {options.window}")
    model = load_model(load, options.run)
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
        print(f"{counts['']} of {counts.total()} texts have no words, so they got no label", file=sys.stderr)


@dataclass
class Search:
    """Search the paper's ranges for the best setting, then train it with several seeds.

    Hidden size, dropouts, learning rate, l2 and clipping are drawn; other options are the same for all trials. The same
    command continues an interrupted search. With a PostgreSQL server as --storage, it joins in from other machines.
    """

    out: Annotated[Path | None, option("FOLDER")] = None
    """The folder of the study, best.json and the runs seed-0, seed-1, … (default: runs/search-DATA-CELL)."""
    trials: int = 20
    """The number of settings to try."""
    seeds: int = 5
    """The number of seeds with which the best setting is trained; use 0 on machines that only join in."""
    workers: int = 1
    """The number of trainings that run at the same time."""
    threads: bool = False
    """Run the workers as threads, which share a GPU by a stream each, instead of as processes."""
    storage: Annotated[str | None, option("FILE|ADDRESS")] = None
    """A journal file, or, for many machines, a database: postgresql://user@host/name (default: OUT/study.journal)."""
    study: str = "classify"
    """The name of the study in the storage."""
    sampler: Literal["random", "tpe"] = "random"
    """random draws settings from --search-seed alone; tpe chooses them by the results so far."""
    search_seed: int = 0
    """The seed from which settings are drawn."""
    common: Annotated[_Common, *GROUPED] = field(default_factory=_Common)  # pyright: ignore[reportInvalidTypeForm]


def search(options: Search) -> None:
    """Run `rrnn classify search`."""
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
    """Print the paper's table of test accuracies together with your runs, in Markdown: mean ± standard deviation."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")] = ()
    """Runs or searches, or folders that contain them (default: only the paper's table)."""
    reference: str = "LSTM"
    """The model that others are compared with, seed by seed."""
    json: Annotated[Path | None, option("FILE")] = None
    """Also write the table to this JSON file."""


def table(options: Table) -> None:
    """Run `rrnn classify table`."""
    from rrnn.tasks.paper_tables import accuracies_to_json, accuracies_to_markdown, accuracy_table

    rows = accuracy_table(options.runs, options.reference)
    print_markdown(accuracies_to_markdown(rows))
    write_json(accuracies_to_json(rows), options.json)


def _folder(config: ClassifyConfig, what: str = "classify") -> Path:
    data = Path(config.data).stem.replace(":", "-")
    return Path("runs") / f"{what}-{data}-{file_stem(config.cell)}"


def _accuracies(result: Any) -> str:
    return f"dev {result.dev:.2f}" + ("" if result.test is None else f", test {result.test:.2f}")
