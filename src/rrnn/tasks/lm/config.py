"""Everything that decides the training of a language model, and the presets.

The presets `paper-10m` and `paper-24m` are the recipe of the SRU paper, which Rational Recurrences follows: hidden size
and dropout are adapted to the number of parameters, and the learning rate is 0.5 for C and F, 1.0 for others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from rrnn.errors import RunError
from rrnn.tasks.configs import Config, option

BASELINES = ("lstm", "gru")
FACTS = "facts"
"""The key of a run's config.json that holds what was found rather than asked for."""


@dataclass(frozen=True)
class LMConfig(Config):
    """A language model and how it is trained. `None` where something else decides: see each field."""

    task: ClassVar[str] = "lm"

    data: str = option(
        "python", "ptb, wikitext-2, python (the reference inside Python), a folder, a file of text"
    )
    level: Literal["word", "char"] = option("word", "what is predicted: words or characters")
    tokens: Literal["space", "text"] = option(
        "space",
        "words of a file: what blanks separate, or with punctuation cut off (for texts nobody tokenised)",
    )
    max_words: int | None = option(None, "keep only the most frequent words, <unk> for the others", low=3)

    cell: str = option("F", "a cell of the zoo (B, C, F, …), a .cell file, or torch's own: lstm, gru")
    output_gate: bool = option(True, "with the output gate, where a cell of the zoo has one")
    layers: int = option(2, "recurrent layers", low=1, high=64)
    hidden: int | None = option(None, "units a layer, and numbers a word; without it, params decides", low=1)
    params: int | None = option(None, "the hidden size is the largest within so many parameters", low=1)
    forget_bias: float = option(0.0, "first value of the forget gates' biases")
    output_bias: float = option(
        0.0, "first value of the output gates' biases: max-plus needs them open, or outputs begin around −0.6"
    )
    scale_rnn: bool = option(False, "begin with the layers' matrices scaled by √(1 − variational_dropout)")
    rnn_gain: float = option(
        1.0, "begin with the layers' matrices so many times as large: C, a product of two, needs it", low=1e-3
    )

    embedding_dropout: float | None = option(
        None, "of embedded words; left out: so that kept_units are kept", low=0, high=0.99
    )
    output_dropout: float | None = option(
        None, "before the softmax; left out: so that kept_units are kept", low=0, high=0.99
    )
    kept_units: int = option(
        273, "units that those two leave in expectation; the recipe's is 0.7 at 910", low=1
    )
    variational_dropout: float = option(
        0.2, "of layers' inputs, a mask per sequence and window", low=0, high=0.99
    )
    between_dropout: float = option(0.2, "of what a layer gives to the next", low=0, high=0.99)
    word_dropout: float = option(0.0, "of whole words, everywhere in a window", low=0, high=0.99)
    locked_dropout: bool = option(False, "embedding and output, too, have a mask per sequence and window")
    ar: float = option(0.0, "activation regularisation: weight of the outputs' mean square", low=0)
    tar: float = option(
        0.0, "temporal activation regularisation: weight of their changes' mean square", low=0
    )

    batch: int = option(32, "parallel pieces of the text, over all processes", low=1)
    bptt: int = option(35, "steps of a window; the state is carried over, the gradient is not", low=1)
    shift: bool = option(
        False, "begin each epoch elsewhere in the text, so that windows are not always the same"
    )
    lr: float | None = option(
        None, "learning rate; left out: 0.5 for C and F, 1 for others; 0.002 with Adam", low=0
    )
    clip: float = option(5.0, "largest norm of the gradient", low=1e-6)
    weight_decay: float = option(1e-5, "weights are multiplied by 1 − this at every step", low=0, high=0.1)
    scale_weight_decay: bool = option(True, "weight decay shrinks as the learning rate does")
    optimiser: Literal["sgd", "adam"] = option("sgd", "plain SGD, or Adam")
    lr_decay: float = option(
        0.98, "factor of the learning rate, each epoch from lr_decay_from on", low=1e-3, high=1
    )
    lr_decay_from: int = option(175, "the first epoch with a smaller learning rate", low=1)
    halve_after: int | None = option(
        None, "halve the learning rate after so many epochs without gain on dev", low=1
    )
    stop_after: int | None = option(None, "stop after so many epochs without gain on dev", low=1)
    emas: tuple[float, ...] = option(
        (), "evaluate moving averages of the weights, too: what each keeps at a step"
    )
    asgd_from: int | None = option(None, "evaluate the mean of the weights from this epoch on, too", low=1)
    asgd_after: int | None = option(None, "the same, once so many epochs brought no gain on dev", low=1)
    average_every: int = option(
        1, "averages look at the weights in every so many steps: less memory to move", low=1, high=1000
    )

    epochs: int = option(300, "at most", low=1)
    dev_streams: int = option(
        1,
        "while training, read dev as so many pieces side by side: quicker for an LSTM, and a little worse, since each "
        "begins without a past; the result is of one stream in any case",
        low=1,
    )
    precision: Literal["fp32", "tf32", "bf16"] = option("fp32", "of matrix products; states stay fp32")
    seed: int = option(0, "of weights and dropout", low=0, high=2**31)
    device: str = option("auto", "cpu, cuda, or auto: a GPU if there is one")
    checkpoint_seconds: float = option(30.0, "at least so many between two checkpoints", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden is None and self.params is None:
            raise RunError("a model needs a size: give hidden (units a layer) or params (as 10M)")
        if self.lr == 0:
            raise RunError("lr must be above 0")
        if wrong := [ema for ema in self.emas if not 0 <= ema < 1]:
            raise RunError(f"emas must lie between 0 and 1; got {wrong[0]:g}")

    @classmethod
    def from_run(cls, values: Any) -> LMConfig:
        """What a run's config.json holds: with what was found rather than asked for."""
        if not isinstance(values, dict):
            raise RunError(f"a configuration is a JSON object; got {type(values).__name__}")
        return cls.from_dict({key: value for key, value in values.items() if key not in (FACTS, "rrnn")})

    def changed(self, **changes: Any) -> LMConfig:
        """`replace`, where what is given takes the place of what says otherwise."""
        return self.replace(**_alone(changes))

    def resolved(self, hidden: int) -> LMConfig:
        """With what this model's hidden size and cell decide filled in."""
        keep = min(1.0, self.kept_units / hidden)
        drop = round(1 - keep, 4)
        return self.replace(
            hidden=hidden,
            embedding_dropout=drop if self.embedding_dropout is None else self.embedding_dropout,
            output_dropout=drop if self.output_dropout is None else self.output_dropout,
            lr=recipe_rate(self.cell, self.optimiser) if self.lr is None else self.lr,
        )


def recipe_rate(cell: str, optimiser: str = "sgd") -> float:
    """C and F do not converge at 1.0, says the paper. (It does not use Adam.)"""
    if optimiser == "adam":
        return 0.002
    return 0.5 if Path(cell).stem.lower().removesuffix("+o") in ("c", "f") else 1.0


PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {
        "data": "python",
        "layers": 1,  # two of C's, which multiplies small numbers, would need longer than this to begin
        "hidden": 64,
        "embedding_dropout": 0.1,
        "output_dropout": 0.1,
        "variational_dropout": 0.0,
        "between_dropout": 0.0,
        "batch": 16,
        "epochs": 8,
        "lr_decay": 0.7,
        "lr_decay_from": 5,
    },
    "paper-10m": {"data": "ptb", "layers": 2, "params": 10_000_000},
    "paper-24m": {"data": "ptb", "layers": 3, "params": 24_000_000},
}


def preset(name: str, **changes: Any) -> LMConfig:
    """A preset by name, with some fields changed."""
    if name not in PRESETS:
        raise RunError(f"there is no preset {name!r}: the presets are {', '.join(PRESETS)}")
    LMConfig.check_names(changes)
    return LMConfig(**{**PRESETS[name], **_alone(changes)})


def _alone(changes: dict[str, Any]) -> dict[str, Any]:
    """With what contradicts the changes taken back: a size of the other kind, dropouts in the way of kept_units."""
    sizes = {"hidden", "params"} & changes.keys()
    if len(sizes) == 2 and None not in (changes["hidden"], changes["params"]):
        came = f"hidden {changes['hidden']} and params {changes['params']}"
        raise RunError(f"a model has one size, but two came: {came}. Leave out one of them")
    if len(sizes) == 1:
        changes = {"hidden": None, "params": None, **changes}
    if "kept_units" in changes:
        changes = {"embedding_dropout": None, "output_dropout": None, **changes}
    return changes
