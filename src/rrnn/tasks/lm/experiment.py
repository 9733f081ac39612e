"""Train a language model from a configuration: read the data, choose the size, train, evaluate."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rrnn.automata import Cell
from rrnn.errors import RunError
from rrnn.tasks.checkpoints import write_atomic
from rrnn.tasks.data.corpus import EMBEDDED, load_corpus
from rrnn.tasks.data.download import SOURCES
from rrnn.tasks.lm.config import FACTS, LMConfig
from rrnn.tasks.lm.model import LanguageModel
from rrnn.tasks.lm.trained import TrainedLanguageModel, build_model, cell_of, evaluate
from rrnn.tasks.lm.trainer import LanguageTask
from rrnn.tasks.progress import plot_losses, show_progress
from rrnn.tasks.runs import Run
from rrnn.tasks.training import Group, Outcome, Progress, Record, fit, join_group, local_processes
from rrnn.tasks.vocabulary import Vocabulary

RESULT = "result.json"


@dataclass(frozen=True)
class Summary:
    """What result.json says: of the epoch that was best on dev."""

    parameters: int
    epochs: int
    best_epoch: int
    dev_ppl: float
    test_ppl: float | None
    tokens_per_s: float


@dataclass(frozen=True)
class Result:
    summary: Summary
    model: TrainedLanguageModel
    history: list[Record]
    folder: Path | None


def train(
    config: LMConfig,
    folder: str | Path | None = None,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    test: bool = True,
) -> Result:
    """Trains, in a folder or (None) in memory alone; with `resume` the run that is in the folder goes on. The best
    weights are evaluated on the test set at the end, unless `test` is False: who compares settings should not look.

    Under torchrun every process calls this with the same arguments, and they share the batches.
    """
    device = pick_device(config.device)
    with join_group(device) as group:
        device = f"cuda:{group.local_rank}" if device == "cuda" else device
        progress = (progress or show_progress(perplexity=True)) if group.is_first else Progress()
        work = prepare(config, kept=Path(folder) if folder is not None and resume else None)
        progress.note(work.describe())
        model = build_model(work.config, work.vocabulary, work.cell, device)
        task = LanguageTask(model, work.splits, work.config, group=group)
        run = _open_run(work, folder, resume, group)  # last: what cannot be trained leaves no run behind
        try:
            outcome = fit(
                task,
                run,
                epochs=work.config.epochs,
                checkpoint_seconds=work.config.checkpoint_seconds,
                progress=progress,
                group=group,
            )
            summary = _summarise(work, model, outcome, group, test)
            if run is not None and run.writable:
                write_atomic(run.folder / RESULT, (json.dumps(asdict(summary), indent=2) + "\n").encode())
        finally:
            if run is not None and run.writable:
                progress.note(plot_losses(run.records(), run.folder))
                run.close()
    trained = TrainedLanguageModel(model.eval(), work.vocabulary, work.config)
    return Result(summary, trained, outcome.history, None if folder is None else Path(folder))


class Work(NamedTuple):
    """All that the configuration leads to, before there is a model."""

    config: LMConfig  # resolved
    cell: Cell | None
    vocabulary: Vocabulary
    splits: dict[str, Tensor]
    parameters: int
    sizes: Sizes | None  # how a budget was spent

    def describe(self) -> str:
        c, counts = self.config, " / ".join(f"{len(ids):,}" for ids in self.splits.values())
        size = self.sizes or f"hidden size {c.hidden}, {self.parameters:,} parameters"
        return (
            f"{c.data}: {counts} tokens ({' / '.join(self.splits)}), {len(self.vocabulary):,} different\n"
            f"{c.cell}: {c.layers} layer{'s' * (c.layers > 1)}, {size}"
        )

    def facts(self, processes: int) -> dict[str, Any]:
        """What a resumed run must find again."""
        digest = hashlib.sha256(b"".join(ids.numpy().tobytes() for ids in self.splits.values())).hexdigest()
        tokens = {name: len(ids) for name, ids in self.splits.items()}
        return {
            "parameters": self.parameters,
            "tokens": tokens,
            "data_sha256": digest,
            "processes": processes,
        }


def prepare(config: LMConfig, *, kept: Path | None = None) -> Work:
    """Reads the data and solves for the hidden size. `kept`: a run's folder; see `cell_of`."""
    config = _with_full_names(config)
    corpus = load_corpus(config.data, config.level, tokens=config.tokens)
    words = corpus.vocabulary(max_size=config.max_words)
    texts = {"train": corpus.train, "dev": corpus.valid, "test": corpus.test}
    splits = {name: torch.from_numpy(words.encode(tokens)) for name, tokens in texts.items() if tokens}
    cell = cell_of(config, kept)
    model = {"cell": cell or config.cell, "layers": config.layers}
    hidden, sizes = config.hidden, None
    if hidden is None:
        assert config.params is not None
        sizes = solve_hidden(config.params, len(words), **model)
        hidden = sizes.hidden
    parameters = count_parameters(len(words), hidden, **model)
    return Work(config.resolved(hidden), cell, words, splits, parameters, sizes)


def _with_full_names(config: LMConfig) -> LMConfig:
    """Files and folders by names that hold anywhere, so that a run can be resumed and evaluated from anywhere."""

    def full(name: str, is_path: bool) -> str:
        return os.path.abspath(Path(name).expanduser()) if is_path else name

    data = full(config.data, config.data not in (EMBEDDED, *SOURCES) and Path(config.data).exists())
    return config.replace(
        data=data, cell=full(config.cell, config.cell.endswith(".cell") or "/" in config.cell)
    )


def pick_device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.device_count() >= local_processes() else "cpu"
    try:
        kind = torch.device(name).type
    except RuntimeError:
        raise RunError(f"device is cpu, cuda or auto; got {name!r}") from None
    if kind == "cuda" and torch.cuda.device_count() < local_processes():
        raise RunError(
            f"each process needs a GPU of its own for the device {name!r}: there are {local_processes()}, and torch "
            f"finds {torch.cuda.device_count()} here. Use cpu, or auto."
        )
    return name


def _open_run(work: Work, folder: str | Path | None, resume: bool, group: Group) -> Run | None:
    """The first process makes it, the others read along, or fail with it."""
    if folder is None:
        return None
    run, problem = None, {}
    if group.is_first:
        config = {**work.config.to_dict(), FACTS: work.facts(group.size)}
        text, defaults = None if work.cell is None else work.cell.to_text(), LMConfig.defaults()
        try:
            run = Run.create(folder, config, text, work.vocabulary, resume=resume, defaults=defaults)
        except RunError as error:
            problem = {"problem": str(error)}
    problem = group.broadcast(problem if group.is_first else None)
    if problem:
        raise RunError(problem["problem"])
    return run or Run.open(folder)


def _summarise(work: Work, model: Any, outcome: Outcome, group: Group, look: bool) -> Summary:
    """With the best weights in the model, which stay there."""
    best, history = outcome.best, outcome.history
    assert best is not None
    model.load_state_dict(best.weights)
    dev, test = best.value, None
    if group.is_first and work.config.dev_streams > 1:
        dev = evaluate(model, work.splits["dev"]).perplexity
    if group.is_first and look and "test" in work.splits:
        test = evaluate(model, work.splits["test"]).perplexity
    speeds = sorted(record["tokens_per_s"] for record in history)
    summary = Summary(work.parameters, len(history), best.epoch, dev, test, speeds[len(speeds) // 2])
    return Summary(**group.broadcast(asdict(summary) if group.is_first else None))


# ---- sizes -----------------------------------------------------------------------------------------------------------


ALIGNED = 16
"""Hidden sizes that are multiples of this are much faster on a GPU."""


class Sizes(NamedTuple):
    """The largest hidden sizes within a budget: any, and the largest that is a multiple."""

    exact: int
    exact_parameters: int
    hidden: int
    parameters: int

    def __str__(self) -> str:
        text = f"hidden size {self.hidden}, {self.parameters:,} parameters"
        if self.exact != self.hidden:
            text += (
                f" ({self.exact} would have {self.exact_parameters:,}, but aligned sizes are faster on a GPU)"
            )
        return text


def count_parameters(vocabulary: int, hidden: int, layers: int, **options: Any) -> int:
    """Of the model itself, built without memory. Options are `LanguageModel`'s."""
    return LanguageModel(vocabulary, hidden, layers, **options, device="meta").count_parameters()


def solve_hidden(
    budget: int, vocabulary: int, layers: int, *, multiple: int = ALIGNED, **options: Any
) -> Sizes:
    """The largest hidden size whose model has at most `budget` parameters, and the largest multiple of `multiple`."""

    def count(hidden: int) -> int:
        return count_parameters(vocabulary, hidden, layers, **options)

    if count(multiple) > budget:
        raise RunError(
            f"a budget of {budget:,} parameters is too small for {vocabulary:,} words: with {multiple} hidden units "
            f"the model has {count(multiple):,} already. Allow more parameters, or fewer words."
        )
    low, high = multiple, multiple * 2  # count(low) <= budget < count(high), once high is found
    while count(high) <= budget:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) <= budget else (low, middle)
    aligned = low // multiple * multiple
    return Sizes(low, count(low), aligned, count(aligned))


def read_count(text: str | int | float) -> int:
    """10M, 250k, 24e6, 10_000_000."""
    units = {"k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9}
    try:
        word = str(text).strip().lower().replace(",", "")
        value = float(word[:-1]) * units[word[-1]] if word[-1:] in units else float(word)
        if not 0 < value < 1e12:
            raise ValueError
    except ValueError:
        raise RunError(f"a number of parameters is like 10M, 250k or 24000000; got {text!r}") from None
    return round(value)
