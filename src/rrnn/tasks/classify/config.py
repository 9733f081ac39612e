"""Everything that decides the training of a text classifier. Defaults are the paper's where it has one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from rrnn.errors import RunError
from rrnn.tasks.configs import Config, option

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
"""What differs from the defaults, for a data set's name (or the part before its colon)."""


@dataclass(frozen=True)
class ClassifyConfig(Config):
    """A text classifier and how it is trained."""

    task: ClassVar[str] = "classify"

    data: str = option(
        "synthetic:not-good",
        "sst, sst-fine, subj, cr, amazon, synthetic:not-good (or more-a-than-b, ends-within-3), a folder, or a file: "
        "CSV and TSV are tables, in others a line is a label, a blank and a text",
    )
    dev: str | None = option(None, "the file for development, where data is the file for training")
    test: str | None = option(None, "the file for testing, where data is the file for training")
    text_column: str = option("text", "the column of a table with the text: its name, or its number from 0")
    label_column: str = option("label", "the column of a table with the label")
    encoding: str = option("utf-8", "of users' files")
    skip_broken: bool = option(False, "skip and count rows without a label or column, instead of stopping")
    cleaning: str | None = option(
        None, "how texts become words: none, lower, text, glove, kim, kim-sst; None: the data set's own way"
    )
    split_seed: int = option(0, "draws the 80/10/10 split of data that has none", low=0)
    max_tokens: int | None = option(None, "read so many words of a text at most", low=1)

    vectors: str | None = option(
        None, "word vectors, brought to one length: a file, or glove; None: embeddings are trained"
    )
    vector_length: float = option(
        1.0, "to which given vectors are brought; the paper's is 1", low=1e-3, high=1e3
    )
    vector_words: Literal["data", "all"] = option(
        "data", "which vectors the model keeps: of its data's words, or all, for texts to come"
    )
    unknown: Literal["one", "own"] = option(
        "one", "words without a vector share one, or each of the data's has a random one of its own"
    )
    fine_tune: bool = option(False, "train the word vectors, too")
    embedding_size: int | None = option(
        None, "numbers a word: of trained embeddings (50), or that given vectors must have", low=1
    )
    characters: int = option(
        0, "numbers a word that are learned of its letters, beside its vector; 0: none", low=0, high=10_000
    )

    cell: str = option("F", "a model of the zoo (F, B, C, B-max-plus, LSTM, GRU, …) or a .cell file")
    hidden_size: int = option(150, "units a layer (and a direction)", low=1)
    layers: int = option(2, "recurrent layers", low=1, high=64)
    bidirectional: bool = option(False, "read from both ends")
    pooling: Literal["last", "mean", "max", "attention"] = option(
        "last", "what stands for a text: its last hidden state, or a mean, maximum, weighted mean of all"
    )
    readout: Literal["mlp", "linear"] = option(
        "mlp", "two layers with a tanh between, or one matrix straight on the units' outputs"
    )

    word_dropout: float = option(0.0, "of whole words, each wherever it stands", low=0, high=0.95)
    embedding_dropout: float = option(0.1, "of the numbers of each word", low=0, high=0.95)
    recurrent_dropout: float = option(
        0.1, "variational: of layers' inputs, one mask for all steps of a text", low=0, high=0.95
    )
    vertical_dropout: float = option(0.1, "of every layer's outputs", low=0, high=0.95)

    batch_size: int = option(64, "the paper has 16 for Amazon, 64 for smaller sets", low=1)
    lr: float = option(1e-3, "Adam's first learning rate", low=1e-8, high=10)
    l2: float = option(1e-6, "ℓ2 regularisation: Adam's weight decay", low=0, high=1)
    average: float = option(
        0.0,
        "evaluate an average of the weights, of which each step keeps this share; 0: the weights",
        low=0,
        high=0.9999,
    )
    clip: float = option(5.0, "largest norm of the gradient", low=1e-6)
    epochs: int = option(500, "at most", low=1)
    halve_after: int = option(10, "halve the learning rate after so many epochs without gain on dev", low=1)
    stop_after: int = option(30, "stop after so many epochs without gain on dev", low=1)
    seed: int = option(0, "of weights, dropout and the order of texts", low=0, high=2**31)
    device: str = option("auto", "cpu, cuda, or auto: a GPU if there is one")
    checkpoint_seconds: float = option(30.0, "at least so many between two checkpoints", low=0)

    @classmethod
    def for_data(cls, data: str | None = None, **changes: Any) -> ClassifyConfig:
        """With the recipe of that data set where it has one of its own."""
        given = changes if data is None else {"data": data, **changes}
        name = given.get("data", cls.data).partition(":")[0]
        return cls(**{**RECIPES.get(name, {}), **given})

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("fine_tune", "unknown", "vector_length", "vector_words"):
            if self.vectors is None and getattr(self, name) != getattr(type(self), name):
                raise RunError(
                    f"{name} is about given word vectors, and there are none: name them with vectors"
                )
        if (self.dev or self.test) and self.data.startswith("synthetic:"):
            raise RunError(f"{self.data} has its own dev and test texts; leave out dev and test")
