"""Use a trained language model: evaluate the perplexity of a text, generate text, load a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rrnn.automata import Cell
from rrnn.errors import DataError, RunError
from rrnn.tasks.data.corpus import EMBEDDED, END, load_corpus
from rrnn.tasks.data.text_files import Splitter, read_lines, split_text
from rrnn.tasks.lm.config import BASELINES, LMConfig
from rrnn.tasks.lm.loss import Precision, products, token_losses
from rrnn.tasks.lm.model import LanguageModel, language_cell, model_of
from rrnn.tasks.runs import CELL, Run, load_weights, open_task_run
from rrnn.tasks.tokenizer import Tokenizer, check_tokenizer, kept_tokenizer
from rrnn.tasks.vocabulary import Vocabulary
from rrnn.zoo import read_cell

# ---- evaluation ------------------------------------------------------------------------------------------------------


CHUNK = 8192  # tokens at a time; the state is carried over, so this affects only memory


class Score(NamedTuple):
    """The mean loss in nats per token, and the number of tokens."""

    loss: float
    tokens: int

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss) if self.loss < 700 else math.inf


@torch.no_grad()
def evaluate(
    model: LanguageModel, ids: Tensor, *, chunk: int = CHUNK, precision: Precision = "fp32", streams: int = 1
) -> Score:
    """Compute the loss of a text, given as word ids, as one continuous stream at batch size 1.

    The first token is predicted from the start symbol, every other one from all tokens before it. With several
    `streams` the text is cut into that many pieces, which are read in parallel; a piece only knows the token before it.
    """
    if not len(ids):
        raise DataError("there is nothing to evaluate: the text has no tokens")
    device, before = model.embedding.device, model.training
    ids = ids.to(device)
    inputs = torch.cat([ids.new_tensor([model.start]), ids[:-1]])
    streams = min(streams, len(ids))
    length = -(-len(ids) // streams)
    missing = streams * length - len(ids)  # padding at the end of the last piece, which is not counted
    inputs, aims = (F.pad(t, (0, missing)).view(streams, length).t() for t in (inputs, ids))
    counted = F.pad(torch.ones_like(ids, dtype=torch.bool), (0, missing)).view(streams, length).t()
    total, state = torch.zeros((), dtype=torch.float64, device=device), model.rnn.init_state(streams)
    model.eval()
    try:
        with products(precision):
            pieces = (t.split(max(1, chunk // streams)) for t in (inputs, aims, counted))
            for words, targets, count in zip(*pieces, strict=True):
                hidden, state = model(words, state)
                losses = token_losses(
                    hidden.flatten(0, 1), model.embedding, model.bias, targets.flatten(), model.vocabulary
                )
                total += (losses * count.flatten()).sum(dtype=torch.float64)
    finally:
        model.train(before)
    return Score(float(total) / len(ids), len(ids))


# ---- sampling --------------------------------------------------------------------------------------------------------


def generate(
    model: LanguageModel,
    prompt: Sequence[int] = (),
    *,
    length: int | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int | None = None,
    forbidden: Sequence[int] = (),
) -> Iterator[int]:
    """Draw `length` word ids (None: without end), one after another, after the start symbol and the prompt.

    `temperature` divides the scores: below 1 likely words become likelier, and 0 always takes the likeliest word.
    `top_k` draws among the k likeliest words. The start symbol and the `forbidden` words (such as <unk>) are never
    drawn. The same seed gives the same words.
    """
    if not (temperature >= 0 and math.isfinite(temperature)):
        raise RunError(f"temperature must be a number, at least 0; got {temperature}")
    if top_k is not None and top_k < 1:
        raise RunError(f"top_k must be at least 1, or left out; got {top_k}")
    if seed is not None and not -(2**63) <= seed < 2**64:
        raise RunError(f"a seed must be a whole number of at most 64 bits; got {seed}")
    wrong = [word for word in prompt if not 0 <= word < model.vocabulary]
    if wrong:
        raise RunError(
            f"a word id must be below {model.vocabulary}, the size of the vocabulary; got {wrong[0]}"
        )
    never = sorted({model.start, *forbidden})
    if len(never) >= model.vocabulary:
        raise RunError("all words are forbidden, so none can be drawn")
    return _draw(model, prompt, length, temperature, top_k, seed, never)


def _draw(
    model: LanguageModel,
    prompt: Sequence[int],
    length: int | None,
    temperature: float,
    top_k: int | None,
    seed: int | None,
    never: list[int],
) -> Iterator[int]:
    device = model.embedding.device
    generator = torch.Generator(device)
    generator.seed() if seed is None else generator.manual_seed(seed)
    model.eval()
    with torch.inference_mode():
        scores, state = model.step(torch.tensor([model.start], device=device))
        for word in prompt:
            scores, state = model.step(torch.tensor([word], device=device), state)
    done = 0
    while length is None or done < length:
        with torch.inference_mode():
            scores[0, never] = -math.inf
            word = choose(scores[0], temperature, top_k, generator)
        yield word
        with torch.inference_mode():
            scores, state = model.step(torch.tensor([word], device=device), state)
        done += 1


def choose(scores: Tensor, temperature: float, top_k: int | None, generator: torch.Generator) -> int:
    """Draw one word id by its score."""
    if temperature == 0:
        return int(scores.argmax())
    if top_k is not None and top_k < len(scores):
        best, words = scores.topk(top_k)
    else:
        best, words = scores, None
    drawn = int(torch.multinomial((best.double() / temperature).softmax(-1), 1, generator=generator))
    return drawn if words is None else int(words[drawn])


# ---- a model with its words ------------------------------------------------------------------------------------------


START = "<s>"
SPECIALS = (START, END)
"""The symbols that a language model needs beside the tokens of a tokenizer."""
SPLITS = {"train": "train", "dev": "valid", "valid": "valid", "test": "test"}


class TrainedLanguageModel:
    """A language model with its vocabulary. `module` is the network, a `LanguageModel`.

    Texts are split into tokens as those of its corpus were: by `tokenizer`, if it was trained with one.
    """

    def __init__(
        self,
        module: LanguageModel,
        vocabulary: Vocabulary,
        config: LMConfig,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.module, self.vocabulary, self.config = module, vocabulary, config
        self.tokenizer = tokenizer
        check_tokenizer(tokenizer, config)

    def __repr__(self) -> str:
        words = (
            "characters" if self.config.level == "char" else "words" if self.tokenizer is None else "tokens"
        )
        layers = " → ".join(map(str, self.module.rnn.hidden_sizes))
        if self.config.embedding_size is None:
            layers = f"{self.config.layers} × {self.config.hidden_size}"
        return (
            f"<TrainedLanguageModel: {self.config.cell}, {layers} units, "
            f"{self.module.count_parameters():,} parameters, {len(self.vocabulary):,} {words}>"
        )

    def to(self, device: torch.device | str) -> TrainedLanguageModel:
        """Move the network to a device, and return this model."""
        self.module.to(device)
        return self

    def tokenise(self, text: str) -> list[str]:
        """Split whole lines into tokens; each line ends with `</s>`."""
        split = self._splitter()
        return [token for line in text.removesuffix("\n").split("\n") for token in (*split(line), END)]

    def read_split(self, split: str) -> list[str]:
        """Return the tokens of a split of its corpus (train, dev, test), or of a file."""
        if split in SPLITS:
            split_line = None if self.tokenizer is None else self.tokenizer.split
            corpus = load_corpus(
                self.config.data, self.config.level, tokens=self.config.tokens, split=split_line
            )
            if not (tokens := getattr(corpus, SPLITS[split])):
                raise DataError(f"{self.config.data} has no {split} text: use train, dev or a file")
            return tokens
        if not Path(split).exists():
            raise DataError(f"a split is train, dev, test or a text file; there is no file {split!r}")
        return self.tokenise("\n".join(read_lines(split)))

    def score(self, text: str | Sequence[str]) -> Score:
        """Return the loss of a text, or of tokens, read as one stream from the start symbol on. Every token counts."""
        tokens = self.tokenise(text) if isinstance(text, str) else text
        return evaluate(self.module, torch.from_numpy(self._encode(tokens)))

    def perplexity(self, text: str | Sequence[str]) -> float:
        """Return the perplexity of a text, or of tokens."""
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
        """Yield tokens that follow the prompt as they are drawn (`length=None`: without end). `</s>` ends a line."""
        start = [token for line in prompt.split("\n") for token in (*self._splitter()(line), END)][:-1]
        ids = [int(number) for number in self._encode(start)]
        forbidden = (
            [] if self.vocabulary.unknown is None else [self.vocabulary.number(self.vocabulary.unknown)]
        )
        options: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "seed": seed}
        drawn = generate(self.module, ids, length=length, forbidden=forbidden, **options)
        return (self.vocabulary.words[word] for word in drawn)

    def generate(self, prompt: str = "", **options: Any) -> str:
        """Return a text that begins with the prompt. Options are those of `stream`."""
        return prompt + "".join(self.pieces(prompt, self.stream(prompt, **options)))

    def pieces(self, prompt: str, tokens: Iterator[str]) -> Iterator[str]:
        """Yield tokens as text that follows the prompt: blanks between words, a new line for `</s>`."""
        if self.tokenizer is not None:
            yield from self.tokenizer.pieces(prompt.rpartition("\n")[2], tokens, END)
            return
        fresh = not prompt or prompt[-1].isspace() or self.config.level == "char"  # no blank is needed
        for token in tokens:
            yield "\n" if token == END else token if fresh else f" {token}"
            fresh = token == END or self.config.level == "char"

    def _encode(self, tokens: Sequence[str]) -> np.ndarray:
        if self.vocabulary.unknown is None and (new := [t for t in tokens if t not in self.vocabulary]):
            what = "character" if self.config.level == "char" else "word"
            raise DataError(
                f"the {what} {new[0]!r} is not one of the {len(self.vocabulary)} that this model knows, and it "
                "has no <unk> to replace it: leave it out"
            )
        return self.vocabulary.encode(tokens)

    def _splitter(self) -> Splitter:
        if self.tokenizer is not None:
            return self.tokenizer.split
        if self.config.level == "char":
            return list
        return split_text if self.config.tokens == "text" or self.config.data == EMBEDDED else str.split


def build_model(
    config: LMConfig, words: Vocabulary, cell: Cell | None, device: torch.device | str
) -> LanguageModel:
    """Build the network of a resolved configuration, with its initial weights."""
    torch.manual_seed(config.seed)
    return model_of(config, len(words), start=words.number(START), cell=cell, device=device)


def cell_of(config: LMConfig, kept: Path | None = None) -> Cell | None:
    """Return the configuration's cell; None for torch's own layers.

    If the file of the cell does not exist any more, the copy in `kept`, a run folder, is used.
    """
    if config.cell.lower() in BASELINES:
        return None
    copy = None if kept is None else kept / CELL
    if (
        copy is not None
        and copy.exists()
        and config.cell.endswith(".cell")
        and not Path(config.cell).exists()
    ):
        return read_cell(copy)
    return language_cell(config.cell, config.output_gate)


def lm_run(folder: str | Path) -> Run:
    """Open a run of a language model read-only."""
    return open_task_run(folder, LMConfig)


def load_run(run: Run) -> TrainedLanguageModel:
    """Load the best model of a run, on the CPU."""
    best = run.best()
    config = LMConfig.from_run(run.config)
    vocabulary = Vocabulary.load(run.vocabulary_path)
    cell = read_cell(run.folder / CELL) if (run.folder / CELL).exists() else None
    module = build_model(config, vocabulary, cell, "cpu")
    load_weights(module, best.tensors, run)
    tokenizer = kept_tokenizer(config, SPECIALS, run.folder, vocabulary)
    return TrainedLanguageModel(module.eval(), vocabulary, config, tokenizer)


def load(folder: str | Path) -> TrainedLanguageModel:
    """Load the best language model of a run folder, on the CPU."""
    return load_run(lm_run(folder))
