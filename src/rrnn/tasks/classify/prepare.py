"""Prepare labelled texts for training: vocabulary, word vectors, and batches of equal padded length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rrnn.backends.triton.backend import has_kernels, on_device
from rrnn.errors import DataError
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.model import encode, spell, spell_vocabulary
from rrnn.tasks.classify.rules import Rules, RuleUnits, read_rules
from rrnn.tasks.data.labelled import Dataset, Example, load_dataset
from rrnn.tasks.data.vectors import read_vectors
from rrnn.tasks.runs import TOKENIZER
from rrnn.tasks.tokenizer import Tokenizer, given_tokenizer
from rrnn.tasks.vocabulary import Vocabulary

PADDING, UNKNOWN = SPECIAL = "<pad>", "<unk>"
Split = tuple[list[np.ndarray], list[int]]


@dataclass(frozen=True)
class Prepared:
    """What a training reads: texts as word ids, labels, vocabulary and word vectors."""

    config: ClassifyConfig
    labels: list[str]
    vocabulary: Vocabulary
    vectors: Tensor | None
    """(words, size), with zeros in row 0; None if embeddings are trained."""
    splits: dict[str, Split]
    about: list[str]
    """Lines about the data for the user: sizes, skipped rows, how many words have a vector."""
    spelled: tuple[str, ...] = ()
    """Words that are known by their letters only; their ids follow those of the vocabulary."""
    rules: Rules | None = None
    """The rules to start from. Their words are in the vocabulary."""
    tokenizer: Tokenizer | None = None
    """What splits texts, and has the vocabulary, if there is one."""

    @property
    def spellings(self) -> Tensor | None:
        """The letters of all words; None for a model that does not read them."""
        if not self.config.characters:
            return None
        return torch.cat([spell_vocabulary(self.vocabulary), spell(self.spelled)])

    @property
    def rule_units(self) -> Callable[[int], RuleUnits] | None:
        """The function that builds the units of the rules for a size of embedded words; None without rules."""
        return None if self.rules is None else partial(RuleUnits, self.rules, self.vocabulary, self.labels)

    def of(self, config: ClassifyConfig) -> Prepared:
        """Return the same data for a training with another configuration."""
        own = self.config
        return replace(self, config=config.replace(cleaning=own.cleaning, tokenizer=own.tokenizer))


def prepare(config: ClassifyConfig, dataset: Dataset | None = None, *, kept: Path | None = None) -> Prepared:
    """Read the data and vectors that the configuration names, or use the given data set. The returned configuration
    says how texts were split into words, so that other texts can be split in the same way. `kept` is the folder of a
    run to resume, whose copy of the tokenizer replaces a file that is gone."""
    tokenizer = given_tokenizer(config, (PADDING,), kept)
    dataset = dataset or read_dataset(config, tokenizer)
    config = config.replace(cleaning=dataset.cleaning, tokenizer=None if tokenizer is None else TOKENIZER)
    about = [dataset.summary()]
    rules = None if config.rules is None else read_rules(config.rules)
    seen = Counter(token for example in dataset.train for token in example.tokens)
    new = [] if rules is None else [word for word in rules.words if word not in seen]
    if rules is not None:
        rules.check_labels(dataset.labels)
        about.append(_about_rules(rules, new))
    if tokenizer is not None:
        vocabulary, vectors = tokenizer.vocabulary, None
    elif config.vectors is None:
        vocabulary, vectors = Vocabulary.build([*seen.elements(), *new], SPECIAL, UNKNOWN), None
    else:
        vocabulary, vectors, coverage = _with_vectors(config, dataset, [] if rules is None else rules.words)
        about.append(coverage)
    spelled: dict[str, int] = {}

    def numbers(words: Sequence[str]) -> np.ndarray:
        return (
            encode(vocabulary, words, spelled, len(vocabulary))
            if config.characters
            else vocabulary.encode(words)
        )

    splits = {
        name: ([numbers(e.tokens[: config.max_tokens]) for e in examples], [e.label for e in examples])
        for name, examples in _splits(dataset).items()
    }
    return Prepared(
        config, dataset.labels, vocabulary, vectors, splits, about, tuple(spelled), rules, tokenizer
    )


def read_dataset(config: ClassifyConfig, tokenizer: Tokenizer | None = None) -> Dataset:
    """Read the data set that the configuration names; `tokenizer` is the one that it names."""
    files = {"dev": config.dev, "test": config.test}
    given = {split: path for split, path in files.items() if path is not None}
    return load_dataset(
        {"train": config.data, **given} if given else config.data,
        split_seed=config.split_seed,
        cleaning=config.cleaning,
        text_column=config.text_column,
        label_column=config.label_column,
        encoding=config.encoding,
        skip_broken=config.skip_broken,
        folds=config.folds,
        fold=config.fold or 1,
        split=None if tokenizer is None else tokenizer.split,
    )


def _splits(dataset: Dataset) -> dict[str, list[Example]]:
    """Return the splits that have examples: users' files need no test set."""
    named = {"train": dataset.train, "dev": dataset.dev, "test": dataset.test}
    return {name: examples for name, examples in named.items() if examples}


def _about_rules(rules: Rules, new: Sequence[str]) -> str:
    strange = (
        f"; not in the training texts: {', '.join(new[:8])}{' …' if len(new) > 8 else ''}" if new else ""
    )
    return f"rules for {', '.join(rules.patterns)} with {len(rules.words)} words{strange}"


def _with_vectors(
    config: ClassifyConfig, dataset: Dataset, more: Sequence[str]
) -> tuple[Vocabulary, Tensor, str]:
    """Return the vocabulary, its vectors, and a line about the coverage. It also has the words in `more`, those of the
    rules, with a random vector where the file has none.

    The vocabulary holds the words of the data that have a vector, including those of the test set (nothing is learned
    from them), or all words of the file. All other words share one vector, in the direction of the mean; with
    `unknown="own"` each word of the data without a vector gets a random direction, as in the authors' code.
    """
    assert config.vectors is not None
    parts = _splits(dataset).values()
    used = Counter(token for examples in parts for example in examples for token in example.tokens)
    wanted = None if config.vector_words == "all" else {*used, *more}
    vectors = read_vectors(config.vectors, wanted, width=config.embedding_size)
    coverage = vectors.coverage(used)
    if not coverage.known_types:
        raise DataError(f"{config.vectors} has no vector for any of the {len(used)} words of {dataset.name}")
    known = [word for word in vectors.words if word not in SPECIAL]
    strange = sorted(({*used, *more} if config.unknown == "own" else {*more}) - {*known, *SPECIAL})
    rows, _ = vectors.unit().align(known)
    own = np.random.default_rng(0).standard_normal((len(strange), vectors.width))
    matrix = np.concatenate([np.zeros((1, vectors.width)), rows.mean(0, keepdims=True), rows, own])
    matrix *= config.vector_length / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
    vocabulary = Vocabulary([*SPECIAL, *known, *strange], UNKNOWN)
    return vocabulary, torch.from_numpy(matrix.astype(np.float32)), f"{config.vectors}: {coverage}"


# ---- batches ---------------------------------------------------------------------------------------------------------


BLOCK = 512  # texts times steps per program of the kernel


class Batch(NamedTuple):
    """The examples `rows` (B,), padded to `steps`; −1 fills an incomplete batch."""

    rows: Tensor
    steps: int


class Texts:
    """Examples on a device: the tokens of all texts in one tensor, and the start of each text."""

    def __init__(
        self, texts: Sequence[np.ndarray], labels: Sequence[int], device: torch.device | str = "cpu"
    ) -> None:
        self.lengths = np.array([len(text) for text in texts], dtype=np.int64)
        self.padded = np.array([pad_length(n) for n in self.lengths.tolist()], dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum(self.lengths)[:-1]]) if len(texts) else np.zeros(0)
        flat = np.concatenate([*texts, np.zeros(1, dtype=np.int64)])  # not empty, so that indexing is safe
        self.tokens = torch.from_numpy(flat.astype(np.int64)).to(device)
        self.starts = torch.from_numpy(starts.astype(np.int64)).to(device)
        self.sizes = torch.from_numpy(self.lengths).to(device)
        self.labels = torch.from_numpy(np.asarray(labels, dtype=np.int64)).to(device)

    def __len__(self) -> int:
        return len(self.lengths)

    def gather(
        self, rows: Tensor, steps: int, kernels: bool | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return (ids (T, B), lengths (B), labels (B), weights (B)) of a batch, without waiting for the device. Rows −1
        have weight 0."""
        if has_kernels(rows.device) if kernels is None else kernels:
            return self._gather_at_once(rows, steps)
        there = rows >= 0
        rows = rows.clamp_min(0)
        lengths = torch.where(there, self.sizes[rows], 0)
        time = torch.arange(steps, device=rows.device).unsqueeze(1)
        where = (self.starts[rows] + time).clamp_max(len(self.tokens) - 1)
        ids = torch.where(time < lengths, self.tokens[where], 0)
        return ids, lengths, self.labels[rows], there.to(torch.float32)

    def _gather_at_once(self, rows: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        from rrnn.tasks.step_kernels import gather

        batch = len(rows)
        ids, (lengths, labels) = rows.new_empty(steps, batch), rows.new_empty(2, batch)
        weights = torch.empty(batch, device=rows.device)
        run: Any = gather[(-(-max(steps, 1) * batch // BLOCK),)]
        given = (rows, self.tokens, self.starts, self.sizes, self.labels)
        with on_device(rows.device):
            run(*given, ids, lengths, labels, weights, steps, batch, BLOCK=BLOCK, enable_fp_fusion=True)
        return ids, lengths, labels, weights

    def epoch(self, batch: int, seed: int, epoch: int) -> list[Batch]:
        """Return the shuffled batches of an epoch, which depend only on seed and epoch. Texts of similar length share a
        batch; the order of the batches is random."""
        rng = np.random.default_rng([seed, epoch])
        order = rng.permutation(len(self))
        order = order[np.argsort(self.padded[order], kind="stable")]
        count = -(-len(order) // batch)
        return self._batches(order, batch, rng.permutation(count))

    def in_order(self, batch: int, tokens: int) -> list[Batch]:
        """Return batches of every example once, short ones first. A batch has at most `batch` examples and about
        `tokens` tokens with padding, never more than twice as many, unless a single text does."""
        order, found, start = np.argsort(self.lengths, kind="stable"), [], 0
        while start < len(order):
            size = max(1, min(batch, tokens // int(self.padded[order[start]])))
            while size > 1 and size * self.padded[order[start : start + size][-1]] > 2 * tokens:
                size //= 2  # it contains a much longer text; halve it, since each size is a graph of its own
            rows = order[start : start + size]
            found += self._batches(rows, size, np.arange(1))
            start += size
        return found

    def _batches(self, order: np.ndarray, batch: int, turns: np.ndarray) -> list[Batch]:
        filled = np.full(len(turns) * batch, -1, dtype=np.int64)
        filled[: len(order)] = order
        table = filled.reshape(-1, batch)[turns]
        on_device = torch.from_numpy(table).to(self.tokens.device)
        steps = np.where(table >= 0, self.padded[table], 0).max(1, initial=0)
        return [Batch(rows, n) for rows, n in zip(on_device, steps.tolist(), strict=True)]


def pad_length(n: int) -> int:
    """Return the length to which a text is padded: a multiple of 8, and from 128 on of a sixteenth to an eighth of the
    length. There are few such lengths, and the training step of each is one CUDA graph."""
    unit = 1 << max(3, n.bit_length() - 4)
    return max(unit, -(-n // unit) * unit)
