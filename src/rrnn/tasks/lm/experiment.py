"""Train a language model from a configuration: read the data, choose the size, train, evaluate."""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rrnn.automata import Cell
from rrnn.errors import RunError
from rrnn.tasks import experiment
from rrnn.tasks.configs import OFF
from rrnn.tasks.data.catalogue import SOURCES
from rrnn.tasks.data.corpus import EMBEDDED, load_corpus
from rrnn.tasks.experiment import open_run, pick_device, train_in_run
from rrnn.tasks.lm.config import LMConfig
from rrnn.tasks.lm.model import LanguageModel, architecture
from rrnn.tasks.lm.trained import SPECIALS, TrainedLanguageModel, build_model, cell_of, evaluate
from rrnn.tasks.lm.trainer import LanguageTask
from rrnn.tasks.progress import show_progress
from rrnn.tasks.runs import TOKENIZER
from rrnn.tasks.threads import ThreadChoice
from rrnn.tasks.tokenizer import Tokenizer, given_tokenizer
from rrnn.tasks.training import Group, Outcome, Progress, join_group
from rrnn.tasks.vocabulary import Vocabulary


@dataclass(frozen=True)
class Summary:
    """The content of result.json: the figures of the epoch with the best dev perplexity."""

    parameters: int
    epochs: int
    best_epoch: int
    dev_ppl: float
    test_ppl: float | None
    tokens_per_s: float


Result = experiment.Result[Summary, TrainedLanguageModel]


def train(
    config: LMConfig,
    folder: str | Path | None = None,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    test: bool = True,
) -> Result:
    """Train a language model; with a folder, store it there (config, cell, vocabulary, metrics, checkpoints, result).

    `resume` continues the training in the folder. At the end the best weights are evaluated on the test set, unless
    `test` is False, as it should be when settings are compared. Under torchrun, every process calls this with the same
    arguments, and they share the batches.
    """
    device = pick_device(config.device)
    with join_group(device.type) as group:
        device = torch.device("cuda", group.local_rank) if device == torch.device("cuda") else device
        progress = (progress or show_progress(perplexity=True)) if group.is_first else Progress()
        data = prepare(config, kept=Path(folder) if folder is not None and resume else None)
        config = data.config
        progress.note(data.describe())
        model = build_model(config, data.vocabulary, data.cell, device)
        task = LanguageTask(model, data.splits, config, group=group)
        facts = data.facts(group.size)
        run = open_run(
            folder,
            config,
            facts,
            data.cell,
            data.vocabulary,
            tokenizer=data.tokenizer,
            resume=resume,
            group=group,
        )
        summary, history = train_in_run(
            task,
            run,
            lambda outcome: _summarise(data, model, outcome, group, test),
            epochs=config.epochs,
            checkpoint_seconds=config.checkpoint_seconds,
            progress=progress,
            group=group,
            threads=ThreadChoice(config.threads) if device.type == "cpu" else None,
        )
    trained = TrainedLanguageModel(model.eval(), data.vocabulary, config, data.tokenizer)
    return Result(summary, trained, history, None if folder is None else Path(folder))


class Prepared(NamedTuple):
    """What a training reads: the data, the cell, and the configuration with the hidden size that fits them."""

    config: LMConfig
    """Resolved: it has a hidden size, dropouts and a learning rate."""
    cell: Cell | None
    vocabulary: Vocabulary
    splits: dict[str, Tensor]
    parameters: int
    sizes: Sizes | None
    """How a budget of parameters was spent, if there was one."""
    tokenizer: Tokenizer | None = None

    def describe(self) -> str:
        """Return two lines about the data and the model."""
        c, counts = self.config, " / ".join(f"{len(ids):,}" for ids in self.splits.values())
        size = self.sizes or f"hidden size {c.hidden_size}, {self.parameters:,} parameters"
        kind = "layer" if c.block == OFF else "block"
        words = "" if c.embedding_size is None else f"embedding size {c.embedding_size}, "
        return (
            f"{c.data}: {counts} tokens ({' / '.join(self.splits)}), {len(self.vocabulary):,} different\n"
            f"{c.cell}: {c.layers} {kind}{'s' * (c.layers > 1)}, {words}{size}"
        )

    def facts(self, processes: int) -> dict[str, Any]:
        """Return what a resumed training must find again."""
        digest = hashlib.sha256(b"".join(ids.numpy().tobytes() for ids in self.splits.values())).hexdigest()
        tokens = {name: len(ids) for name, ids in self.splits.items()}
        return {
            "parameters": self.parameters,
            "tokens": tokens,
            "data_sha256": digest,
            "processes": processes,
        }


def prepare(config: LMConfig, *, kept: Path | None = None) -> Prepared:
    """Read the data and choose the hidden size. `kept` is the folder of a run to resume; see `cell_of`."""
    tokenizer = given_tokenizer(config, SPECIALS, kept)
    config = _with_full_names(config)
    split = None if tokenizer is None else tokenizer.split
    corpus = load_corpus(config.data, config.level, tokens=config.tokens, split=split)
    words = corpus.vocabulary(max_size=config.max_words) if tokenizer is None else tokenizer.vocabulary
    texts = {"train": corpus.train, "dev": corpus.valid, "test": corpus.test}
    splits = {name: torch.from_numpy(words.encode(tokens)) for name, tokens in texts.items() if tokens}
    cell = cell_of(config, kept)
    model = {"layers": config.layers, **architecture(config, cell)}
    hidden_size, sizes = config.hidden_size, None
    if hidden_size is None:
        assert config.params is not None
        sizes = solve_hidden_size(config.params, len(words), **model)
        hidden_size = sizes.hidden_size
    parameters = count_parameters(len(words), hidden_size, **model)
    return Prepared(config.resolved(hidden_size), cell, words, splits, parameters, sizes, tokenizer)


def _with_full_names(config: LMConfig) -> LMConfig:
    """Make the names of files and folders absolute, so that a run can be resumed and evaluated from any folder. That of
    a tokenizer is the name of the run's own copy."""

    def full(name: str, is_path: bool) -> str:
        return os.path.abspath(Path(name).expanduser()) if is_path else name

    data = full(config.data, config.data not in (EMBEDDED, *SOURCES) and Path(config.data).exists())
    return config.replace(
        data=data,
        cell=full(config.cell, config.cell.endswith(".cell") or "/" in config.cell),
        tokenizer=None if config.tokenizer is None else TOKENIZER,
    )


def _summarise(data: Prepared, model: Any, outcome: Outcome, group: Group, look: bool) -> Summary:
    """Load the best weights into the model, where they stay, and evaluate them."""
    best, history = outcome.best, outcome.history
    assert best is not None
    model.load_state_dict(best.weights)
    dev, test = best.value, None
    if group.is_first and data.config.dev_streams > 1:
        dev = evaluate(model, data.splits["dev"]).perplexity
    if group.is_first and look and "test" in data.splits:
        test = evaluate(model, data.splits["test"]).perplexity
    speeds = sorted(record["tokens_per_s"] for record in history)
    summary = Summary(data.parameters, len(history), best.epoch, dev, test, speeds[len(speeds) // 2])
    return Summary(**group.broadcast(asdict(summary) if group.is_first else None))


# ---- sizes -----------------------------------------------------------------------------------------------------------


ALIGNED = 16
"""Hidden sizes that are multiples of this number are much faster on a GPU."""


class Sizes(NamedTuple):
    """The largest hidden size within a budget of parameters, and the largest aligned one (a multiple of 16)."""

    exact: int
    exact_parameters: int
    hidden_size: int
    parameters: int

    def __str__(self) -> str:
        text = f"hidden size {self.hidden_size}, {self.parameters:,} parameters"
        if self.exact != self.hidden_size:
            text += (
                f" ({self.exact} would have {self.exact_parameters:,}, but aligned sizes are faster on a GPU)"
            )
        return text


def count_parameters(vocabulary: int, hidden_size: int, layers: int, **options: Any) -> int:
    """Return the number of parameters of a `LanguageModel` with these options, without allocating it."""
    return LanguageModel(vocabulary, hidden_size, layers, **options, device="meta").count_parameters()


def solve_hidden_size(
    budget: int, vocabulary: int, layers: int, *, multiple: int = ALIGNED, **options: Any
) -> Sizes:
    """Find the largest hidden size, and the largest multiple of `multiple`, within a budget of parameters. With heads
    or blocks, whose heads depend on the size, only multiples of both are tried."""
    multiple = math.lcm(multiple, options.get("heads") or 1)
    step = 1 if options.get("block") is None and (options.get("heads") or 1) == 1 else multiple

    def count(hidden_size: int) -> int:
        return count_parameters(vocabulary, hidden_size, layers, **options)

    if count(multiple) > budget:
        raise RunError(
            f"a budget of {budget:,} parameters is too small for {vocabulary:,} words: with {multiple} hidden units "
            f"the model already has {count(multiple):,}. Allow more parameters, or fewer words."
        )
    low, high = multiple, multiple * 2  # count(low) <= budget < count(high), once high is found
    while count(high) <= budget:
        low, high = high, high * 2
    while high - low > step:
        middle = (low + high) // (2 * step) * step
        low, high = (middle, high) if count(middle) <= budget else (low, middle)
    aligned = low // multiple * multiple
    return Sizes(low, count(low), aligned, count(aligned))


def read_count(text: str | int | float) -> int:
    """Parse a number of parameters: 10M, 250k, 24e6, 10_000_000."""
    units = {"k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9}
    try:
        word = str(text).strip().lower().replace(",", "")
        value = float(word[:-1]) * units[word[-1]] if word[-1:] in units else float(word)
        if not 0 < value < 1e12:
            raise ValueError
    except ValueError:
        raise RunError(f"a number of parameters looks like 10M, 250k or 24000000; got {text!r}") from None
    return round(value)
