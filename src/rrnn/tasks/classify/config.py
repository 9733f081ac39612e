"""The configuration of a text classifier's training. The defaults are the paper's where it states them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from rrnn.errors import RunError
from rrnn.tasks.configs import BLOCK, GROUPS, HEADS, OFF, TOKENIZER, Config, option

RECIPES: dict[str, dict[str, Any]] = {
    "amazon": {"batch_size": 16},  # as the paper
    "synthetic": {
        "hidden_size": 32,
        "layers": 1,
        "lr": 1e-2,
        "epochs": 60,
        "stop_after": 15,
    },  # seconds on a CPU
}
"""Data set, or the part of its name before a colon → fields that differ from the defaults."""


@dataclass(frozen=True)
class ClassifyConfig(Config):
    """A text classifier and how it is trained."""

    task: ClassVar[str] = "classify"
    model_name: ClassVar[str] = "a text classifier"
    groups: ClassVar[Mapping[str, str]] = {
        "data": "data",
        "vectors": "word vectors",
        "cell": "model",
        "word_dropout": "regularisation",
        "batch_size": "optimisation",
        "epochs": "run",
    }

    data: str = option(
        "synthetic:not-good",
        "sst, sst-fine, subj, cr, amazon, synthetic:not-good (or more-a-than-b, ends-within-3), a folder, or a file: "
        "CSV and TSV files are tables; in other files each line is a label, a blank and a text",
    )
    dev: str | None = option(None, "validation file, if data is the training file")
    test: str | None = option(None, "test file, if data is the training file")
    text_column: str = option("text", "the table column with the text: its name, or its number from 0")
    label_column: str = option("label", "the table column with the label: its name, or its number from 0")
    encoding: str = option("utf-8", "encoding of your files")
    skip_broken: bool = option(False, "skip and count rows without a label or a column, instead of stopping")
    cleaning: str | None = option(
        None,
        "how to split texts into words: none, lower, text, glove, kim, kim-sst (default: the data set's own way)",
    )
    tokenizer: str | None = option(**TOKENIZER)
    split_seed: int = option(
        0, "seed of the random 80/10/10 split, or of the folds, of data that has none", low=0
    )
    folds: int | None = option(
        None,
        "cross-validate: split data without a test set into this many folds, and train one model for each",
        low=2,
    )
    fold: int | None = option(None, "train only the model that is tested on this fold (1, 2, …)", low=1)
    max_tokens: int | None = option(None, "read at most this many words of a text", low=1)

    vectors: str | None = option(
        None, "word vectors: a file, or glove; they are scaled to vector_length (default: train embeddings)"
    )
    vector_length: float = option(
        5.0, "Euclidean norm of the given word vectors (the paper's is 1)", low=1e-3, high=1e3
    )
    vector_words: Literal["data", "all"] = option(
        "data", "keep the vectors of the data's words, or of all words, for future texts"
    )
    unknown: Literal["one", "own"] = option(
        "one", "words without a vector share one, or each word of the data gets a random one of its own"
    )
    fine_tune: bool = option(False, "train the given word vectors, too")
    embedding_size: int | None = option(
        None, "size of trained embeddings (default: 50), or the size that given vectors must have", low=1
    )
    characters: int = option(
        0, "number of features to learn from a word's letters, beside its vector", low=0, high=10_000
    )

    cell: str = option(
        "F", "a model that `rrnn zoo` lists (F, B, C, LSTM, …), with options as in F:g=tanh, or a .cell file"
    )
    block: str = option(**BLOCK)
    heads: int | None = option(**HEADS)
    head_groups: int = option(**GROUPS)
    hidden_size: int = option(150, "units per layer and direction", low=1)
    layers: int = option(2, "number of recurrent layers", low=1, high=64)
    bidirectional: bool = option(False, "read each text in both directions")
    pooling: Literal["last", "mean", "max", "attention"] = option(
        "last",
        "how to combine the hidden states of a text: the last one, or their mean, maximum or weighted mean",
    )
    readout: Literal["mlp", "linear"] = option(
        "mlp", "two linear layers with a tanh between them, or one linear layer"
    )

    rules: str | None = option(
        None, "start from rules: a file of lines with a label, a blank and a regular expression over words"
    )

    word_dropout: float = option(0.0, "dropout of whole words", low=0, high=0.95)
    embedding_dropout: float = option(0.1, "dropout of embedded words", low=0, high=0.95)
    recurrent_dropout: float = option(
        0.1, "variational dropout of layer inputs, with one mask per text", low=0, high=0.95
    )
    vertical_dropout: float = option(0.1, "dropout of every layer's outputs", low=0, high=0.95)

    batch_size: int = option(64, "texts per batch (the paper uses 16 for Amazon, 64 for smaller sets)", low=1)
    lr: float = option(1e-3, "initial learning rate of Adam", low=1e-8, high=10)
    l2: float = option(1e-6, "ℓ2 regularisation: weight decay of Adam", low=0, high=1)
    average: float = option(
        0.0,
        "evaluate and keep an exponential moving average of the weights with this decay (0: the weights themselves)",
        low=0,
        high=0.9999,
    )
    clip: float = option(5.0, "largest norm of the gradient", low=1e-6)
    epochs: int = option(500, "largest number of epochs", low=1)
    halve_after: int = option(
        10, "halve the learning rate after this many epochs without a better dev accuracy", low=1
    )
    stop_after: int = option(30, "stop after this many epochs without a better dev accuracy", low=1)
    seed: int = option(0, "seed of the weights, of dropout and of the order of texts", low=0, high=2**31)
    device: str = option("auto", "cpu, cuda, or auto (a GPU if there is one)")
    threads: int | None = option(
        None, "number of CPU threads (default: as many as processors are free)", low=1, high=1024
    )
    checkpoint_seconds: float = option(30.0, "least number of seconds between two checkpoints", low=0)

    @classmethod
    def for_data(cls, data: str | None = None, **changes: Any) -> ClassifyConfig:
        """Return the configuration for a data set, with its own recipe if it has one."""
        given = changes if data is None else {"data": data, **changes}
        name = given.get("data", cls.data).partition(":")[0]
        return cls(**{**RECIPES.get(name, {}), **given})

    def changes_for_affine_readout(self) -> dict[str, Any]:
        """Return the fields to change so that logits are an affine function of the first layer's outputs; {} if they
        are."""
        wanted = {"layers": 1, "readout": "linear", "pooling": "mean" if self.pooling == "mean" else "last"}
        return {name: value for name, value in wanted.items() if getattr(self, name) != value}

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("fine_tune", "unknown", "vector_length", "vector_words"):
            if self.vectors is None and getattr(self, name) != getattr(type(self), name):
                raise RunError(
                    f"{name} applies to given word vectors; name a file with vectors, or leave it out"
                )
        for name in ("cleaning", "vectors", "characters", "rules"):
            if self.tokenizer is not None and getattr(self, name):
                what = "says how texts are split" if name == "cleaning" else "is about whole words"
                raise RunError(
                    f"{name} {what}, and a tokenizer splits texts into pieces of words: leave out one of them"
                )
        if self.block != OFF and self.bidirectional:
            raise RunError("blocks read texts in one direction: leave out block, or bidirectional")
        if self.fold is not None and self.fold > (self.folds or 0):
            raise RunError(
                f"fold must be at most folds, which is {self.folds or 'not given'}; got {self.fold}"
            )
        if (self.dev or self.test) and self.data.startswith("synthetic:"):
            raise RunError(f"{self.data} has its own dev and test texts; leave out dev and test")
