"""A language model with its words: what a training gives and `rrnn.load` reads."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rrnn.automata import Cell
from rrnn.errors import DataError, RunError
from rrnn.tasks.data.cleaning import split_text
from rrnn.tasks.data.corpus import EMBEDDED, END, load_corpus
from rrnn.tasks.data.text import read_lines
from rrnn.tasks.lm.config import BASELINES, LMConfig
from rrnn.tasks.lm.evaluate import Score, evaluate
from rrnn.tasks.lm.generate import generate
from rrnn.tasks.lm.model import LanguageModel, language_cell, model_of
from rrnn.tasks.runs import CELL, Run
from rrnn.tasks.vocabulary import Vocabulary
from rrnn.zoo import read_cell

START = "<s>"
SPLITS = {"train": "train", "dev": "valid", "valid": "valid", "test": "test"}


class TrainedLanguageModel:
    """`module` is the network, a `LanguageModel`; texts become tokens as those of its corpus did."""

    def __init__(self, module: LanguageModel, vocabulary: Vocabulary, config: LMConfig) -> None:
        self.module, self.vocabulary, self.config = module, vocabulary, config

    def __repr__(self) -> str:
        words = "characters" if self.config.level == "char" else "words"
        return (
            f"<TrainedLanguageModel: {self.config.cell}, {self.config.layers} × {self.config.hidden} units, "
            f"{self.module.count_parameters():,} parameters, {len(self.vocabulary):,} {words}>"
        )

    def to(self, device: torch.device | str) -> TrainedLanguageModel:
        self.module.to(device)
        return self

    def tokenise(self, text: str) -> list[str]:
        """Of whole lines: each ends with `</s>`."""
        split = self._splitter()
        return [token for line in text.removesuffix("\n").split("\n") for token in (*split(line), END)]

    def read_split(self, split: str) -> list[str]:
        """The tokens of a split of its corpus (train, dev, test), or of a file."""
        if split in SPLITS:
            corpus = load_corpus(self.config.data, self.config.level, tokens=self.config.tokens)
            if not (tokens := getattr(corpus, SPLITS[split])):
                raise DataError(f"{self.config.data} has no {split} text: name train, dev or a file")
            return tokens
        if not Path(split).exists():
            raise DataError(f"a split is train, dev, test or a file of text, and {split!r} is none of them")
        return self.tokenise("\n".join(read_lines(split)))

    def score(self, text: str | Sequence[str]) -> Score:
        """(loss, tokens) of a text, or of tokens: one stream from the start symbol on, every token counted."""
        tokens = self.tokenise(text) if isinstance(text, str) else text
        return evaluate(self.module, torch.from_numpy(self._encode(tokens)))

    def perplexity(self, text: str | Sequence[str]) -> float:
        """Of a text, or of tokens."""
        return self.score(text).perplexity

    def stream(
        self,
        prompt: str = "",
        *,
        length: int | None = 100,
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int | None = None,
    ) -> Iterator[str]:
        """Tokens that follow the prompt, one after another as they are drawn; None: without end. `</s>` ends a line."""
        start = [token for line in prompt.split("\n") for token in (*self._splitter()(line), END)][:-1]
        ids = [int(number) for number in self._encode(start)]
        forbidden = (
            [] if self.vocabulary.unknown is None else [self.vocabulary.number(self.vocabulary.unknown)]
        )
        options: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "seed": seed}
        drawn = generate(self.module, ids, length=length, forbidden=forbidden, **options)
        return (self.vocabulary.words[word] for word in drawn)

    def generate(self, prompt: str = "", **options: Any) -> str:
        """A text that begins with the prompt. Options are those of `stream`."""
        return prompt + "".join(self.pieces(prompt, self.stream(prompt, **options)))

    def pieces(self, prompt: str, tokens: Iterator[str]) -> Iterator[str]:
        """Tokens as text, to follow the prompt: blanks between words, a new line for `</s>`."""
        fresh = not prompt or prompt[-1].isspace() or self.config.level == "char"  # is a blank needed?
        for token in tokens:
            yield "\n" if token == END else token if fresh else f" {token}"
            fresh = token == END or self.config.level == "char"

    def _encode(self, tokens: Sequence[str]) -> np.ndarray:
        if self.vocabulary.unknown is None and (new := [t for t in tokens if t not in self.vocabulary]):
            what = "character" if self.config.level == "char" else "word"
            raise DataError(
                f"the {what} {new[0]!r} is none of the {len(self.vocabulary)} that this model knows, and its training "
                "text had no <unk>, which could stand for it: leave it out"
            )
        return self.vocabulary.encode(tokens)

    def _splitter(self) -> Callable[[str], list[str]]:
        if self.config.level == "char":
            return list
        return split_text if self.config.tokens == "text" or self.config.data == EMBEDDED else str.split


def build_model(config: LMConfig, words: Vocabulary, cell: Cell | None, device: str) -> LanguageModel:
    """The network of a resolved configuration, with its first weights."""
    torch.manual_seed(config.seed)
    return model_of(config, len(words), start=words.number(START), cell=cell, device=device)


def cell_of(config: LMConfig, kept: Path | None = None) -> Cell | None:
    """None for torch's own layers. `kept` is a run's folder: where the cell's file has gone, its own copy serves."""
    if config.cell.lower() in BASELINES:
        return None
    if (
        kept is not None
        and (kept / CELL).exists()
        and config.cell.endswith(".cell")
        and not Path(config.cell).exists()
    ):
        return read_cell(kept / CELL)
    return language_cell(config.cell, config.output_gate)


def load_run(run: Run) -> TrainedLanguageModel:
    """The best model of a run, on the CPU."""
    found = run.load("best")
    if found is None:
        raise RunError(f"the run in {run.folder} has no checkpoint yet: train it further first")
    if found.note:
        warnings.warn(found.note, stacklevel=3)
    config = LMConfig.from_run(run.config)
    vocabulary = Vocabulary.load(run.vocabulary_path)
    cell = read_cell(run.folder / CELL) if (run.folder / CELL).exists() else None
    module = build_model(config, vocabulary, cell, "cpu")
    try:
        module.load_state_dict(found.tensors)
    except RuntimeError as error:
        raise RunError(f"the weights in {run.folder} do not fit its configuration: {error}") from None
    return TrainedLanguageModel(module.eval(), vocabulary, config)


def lm_run(folder: str | Path) -> Run:
    """A run that holds a language model."""
    run = Run.open(folder)
    if run.config["task"] != LMConfig.task:
        raise RunError(f"the run in {folder} is of the task {run.config['task']!r}, not a language model")
    return run
