"""Everything that decides a training, in one flat dataclass: it round-trips through a run's config.json."""

from __future__ import annotations

import dataclasses
import difflib
import math
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

from rrnn.errors import RunError

Pooling = Literal["last", "mean", "max", "attention"]
Readout = Literal["mlp", "linear"]
Words = Literal["data", "all"]


@dataclass(frozen=True)
class ClassifyConfig:
    """A text classifier and how it is trained. Defaults are the paper's where it has one."""

    data: str = "not-good"
    """A data set by name (sst, sst-fine, subj, cr, amazon, a synthetic task) or the file with the training examples."""
    dev: str | None = None
    """The file with the development examples, where `data` is a file; without it a tenth of the examples."""
    test: str | None = None
    """The file with the test examples, where `data` is a file; without it a tenth of the examples."""
    text_column: str | None = None
    """The column of a CSV or TSV file that holds the text."""
    label_column: str | None = None
    """The column of a CSV or TSV file that holds the label."""
    cleaning: str | None = None
    """How texts become tokens; None: the data set's own way."""
    split_seed: int = 0
    """Draws the 80/10/10 split of data that has none."""
    max_tokens: int | None = None
    """Read the first so many tokens of a text only."""

    vectors: str | None = None
    """A file of word vectors, or the name of a known one (glove): unit length, fixed. None: embeddings are trained."""
    vector_words: Words = "data"
    """Which vectors the model keeps: of the words of its data, or all of the file, for texts to come."""
    fine_tune: bool = False
    """Train the word vectors, too."""
    embedding_size: int = 50
    """Numbers a word where there are no vectors."""

    cell: str = "F"
    """A model of the zoo (F, B, C, B-max-plus, LSTM, …) or a .cell file."""
    hidden_size: int = 150
    layers: int = 2
    bidirectional: bool = False
    pooling: Pooling = "last"
    """What stands for a text: the last hidden state, the mean or maximum of all, or a mean weighted by attention."""
    readout: Readout = "mlp"
    """mlp: two layers with a tanh between; linear: one matrix, straight on the units' outputs."""

    embedding_dropout: float = 0.1
    """On the numbers of every token, a new mask at each."""
    recurrent_dropout: float = 0.1
    """Variational: on the input of every layer, one mask per sequence, the same at all its steps."""
    vertical_dropout: float = 0.1
    """On the output of every layer, a new mask at each step."""

    batch_size: int = 64
    """The paper has 16 for Amazon, 64 for the smaller sets."""
    lr: float = 1e-3
    l2: float = 1e-6
    """Adam's weight decay: added to the gradient."""
    clip: float = 5.0
    """The largest norm of the gradient."""
    epochs: int = 500
    halve_after: int = 10
    """Epochs without a gain on the development set after which the learning rate is halved."""
    stop_after: int = 30
    """Epochs without a gain on the development set after which training stops."""
    seed: int = 0

    def __post_init__(self) -> None:
        _check_types(self)
        for name, low, high in _BOUNDS:
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                upper = f" and at most {high:g}" if math.isfinite(high) else ""
                raise RunError(f"{name} must be at least {low:g}{upper}; got {value!r}")
        if self.lr <= 0 or self.clip <= 0:
            raise RunError(f"lr and clip must be above 0; got lr={self.lr!r} and clip={self.clip!r}")
        if self.fine_tune and self.vectors is None:
            raise RunError(
                "fine_tune trains given word vectors, and there are none: name them with vectors=…"
            )

    def to_dict(self) -> dict[str, Any]:
        """For JSON, with the name of the task."""
        return {"task": "classify", **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ClassifyConfig:
        """What `to_dict` wrote; a key that is not known is an error that names its neighbour."""
        given = {key: value for key, value in values.items() if key != "task"}
        known = [field.name for field in dataclasses.fields(cls)]
        for key in given:
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}."
                raise RunError(f"a classifier's configuration has no {key!r}: {hint}")
        return cls(**given)

    def replace(self, **changes: Any) -> ClassifyConfig:
        return dataclasses.replace(self, **changes)


_BOUNDS: tuple[tuple[str, float, float], ...] = (
    ("max_tokens", 1, math.inf),
    ("embedding_size", 1, math.inf),
    ("hidden_size", 1, math.inf),
    ("layers", 1, 64),
    ("embedding_dropout", 0, 0.95),
    ("recurrent_dropout", 0, 0.95),
    ("vertical_dropout", 0, 0.95),
    ("batch_size", 1, math.inf),
    ("lr", 0, 10),
    ("l2", 0, 1),
    ("clip", 0, math.inf),
    ("epochs", 1, math.inf),
    ("halve_after", 1, math.inf),
    ("stop_after", 1, math.inf),
    ("seed", 0, 2**31),
    ("split_seed", 0, 2**31),
)


def _check_types(config: ClassifyConfig) -> None:
    """A JSON file may hold anything: "64" for 64, 1 for true."""
    for name, hint in get_type_hints(type(config)).items():
        value, choices = getattr(config, name), get_args(hint)
        if choices and all(isinstance(choice, str) for choice in choices):
            if value not in choices:
                raise RunError(f"{name} is one of {', '.join(choices)}; got {value!r}")
            continue
        kinds = tuple(kind for kind in (choices or (hint,)))
        if float in kinds and type(value) is int:
            object.__setattr__(config, name, float(value))
        elif type(value) not in kinds:
            wanted = " or ".join(kind.__name__ for kind in kinds if kind is not type(None))
            raise RunError(f"{name} is a {wanted}; got {value!r}")
