"""The configuration of a language model's training, and its presets.

The presets `paper-10m` and `paper-24m` are the recipe of the SRU paper, which Rational Recurrences follows: hidden size
and dropout depend on the number of parameters, the learning rate is 0.5 for C and F, 1.0 for other cells, and the
weight decay of a step stays as it is. Some models need more to train at all; `MODEL_SETTINGS` has it. `best-24m` is the
best setting of F that was found; the other models train with it, but nobody has searched for theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from rrnn.errors import RunError
from rrnn.tasks.configs import BLOCK, GROUPS, HEADS, OFF, TOKENIZER, Config, option

BASELINES = ("lstm", "gru")


@dataclass(frozen=True)
class LMConfig(Config):
    """A language model and how it is trained. A field that is None is decided by another one, as its help says."""

    task: ClassVar[str] = "lm"
    model_name: ClassVar[str] = "a language model"
    groups: ClassVar[Mapping[str, str]] = {
        "data": "data",
        "cell": "model",
        "embedding_dropout": "regularisation",
        "batch_size": "optimisation",
        "emas": "averaged weights",
        "epochs": "run",
    }

    data: str = option(
        "python", "ptb, wikitext-2, python (the language reference inside Python), a folder, or a text file"
    )
    level: Literal["word", "char"] = option("word", "predict words or characters")
    tokens: Literal["space", "text"] = option(
        "space", "split a file's words at blanks only, or also separate punctuation (for raw text)"
    )
    max_words: int | None = option(
        None, "keep only this many words, the most frequent; others are <unk>", low=3
    )
    tokenizer: str | None = option(**TOKENIZER)

    cell: str = option(
        "F", "a cell of the zoo (B, C, F, …), a .cell file, or lstm or gru for torch's own layers"
    )
    output_gate: bool = option(True, "use the output gate if a cell of the zoo has one")
    block: str = option(**BLOCK)
    heads: int | None = option(**HEADS)
    head_groups: int = option(**GROUPS)
    layers: int = option(2, "number of recurrent layers", low=1, high=64)
    hidden_size: int | None = option(
        None, "units of a layer, and of an embedded word; without it, chosen to fit params", low=1
    )
    embedding_size: int | None = option(
        None, "size of embedded words, and so of the last layer, if it is not hidden_size", low=1
    )
    params: int | None = option(
        None, "choose the largest hidden size within this number of parameters", low=1
    )
    forget_bias: float = option(0.0, "initial bias of the forget gates")
    output_bias: float = option(
        0.0, "initial bias of the output gates (max-plus needs open gates, or outputs start around −0.6)"
    )
    scale_rnn: bool = option(False, "scale the initial layer weights by √(1 − recurrent_dropout)")
    rnn_gain: float = option(
        1.0,
        "scale the initial layer weights by this factor (C needs about 4 with two layers, 6 with three)",
        low=1e-3,
    )

    embedding_dropout: float | None = option(
        None, "dropout of embedded words; without it, chosen so that kept_units remain", low=0, high=0.99
    )
    output_dropout: float | None = option(
        None, "dropout before the softmax; without it, chosen so that kept_units remain", low=0, high=0.99
    )
    kept_units: int = option(
        273, "expected number of units that those two dropouts keep (the recipe drops 0.7 of 910)", low=1
    )
    recurrent_dropout: float = option(
        0.2, "variational dropout of layer inputs, with one mask per sequence and window", low=0, high=0.99
    )
    between_dropout: float = option(0.2, "dropout between layers", low=0, high=0.99)
    word_dropout: float = option(0.0, "dropout of whole words, everywhere in a window", low=0, high=0.99)
    locked_dropout: bool = option(
        False, "use one mask per sequence and window for the embedding and output dropouts, too"
    )
    ar: float = option(0.0, "activation regularisation: weight of the mean square of the outputs", low=0)
    tar: float = option(
        0.0, "temporal activation regularisation: weight of the mean square of the outputs' changes", low=0
    )

    batch_size: int = option(32, "number of parallel streams of text, over all processes", low=1)
    bptt: int = option(
        35, "steps per window; the state is carried to the next one, the gradient is not", low=1
    )
    shift: bool = option(False, "start each epoch at another place in the text, so that windows vary")
    partial_shuffle: bool = option(
        False, "in each epoch, cut every stream of the batch at a random place and swap its two parts"
    )
    lr: float | None = option(
        None, "learning rate (default: 0.5 for C and F, 1 for others; 0.002 with Adam)", low=0
    )
    clip: float = option(5.0, "largest norm of the gradient", low=1e-6)
    weight_decay: float = option(1e-5, "multiply the weights by 1 − this at every step", low=0, high=0.1)
    scale_weight_decay: bool = option(True, "decrease the weight decay together with the learning rate")
    optimiser: Literal["sgd", "adam"] = option("sgd", "plain SGD, or Adam, with which blocks are trained")
    lr_decay: float = option(
        0.98, "multiply the learning rate by this at each epoch from lr_decay_from on", low=1e-3, high=1
    )
    lr_decay_from: int = option(175, "first epoch with a smaller learning rate", low=1)
    halve_after: int | None = option(
        None, "halve the learning rate after this many epochs without a better dev perplexity", low=1
    )
    stop_after: int | None = option(
        None, "stop after this many epochs without a better dev perplexity", low=1
    )
    emas: tuple[float, ...] = option(
        (), "also evaluate exponential moving averages of the weights with these decays"
    )
    asgd_from: int | None = option(None, "also evaluate the mean of the weights since this epoch", low=1)
    asgd_after: int | None = option(
        None, "start that mean after this many epochs without a better dev perplexity", low=1
    )
    average_every: int = option(
        1, "update the averages only once in this many steps, to save memory traffic", low=1, high=1000
    )

    epochs: int = option(300, "largest number of epochs", low=1)
    dev_streams: int = option(
        1,
        "during training, read the dev text as this many streams in parallel: faster for an LSTM, but slightly worse, "
        "since each stream starts without context; the final result always uses one stream",
        low=1,
    )
    precision: Literal["fp32", "tf32", "bf16"] = option(
        "fp32", "precision of matrix products; states stay fp32"
    )
    seed: int = option(0, "seed of the weights and of dropout", low=0, high=2**31)
    device: str = option("auto", "cpu, cuda, or auto (a GPU if there is one)")
    threads: int | None = option(
        None, "number of CPU threads (default: as many as processors are free)", low=1, high=1024
    )
    checkpoint_seconds: float = option(30.0, "least number of seconds between two checkpoints", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden_size is None and self.params is None:
            raise RunError("a model needs a size: give hidden_size, or params (such as 10M)")
        for name in ("level", "tokens", "max_words"):
            if self.tokenizer is not None and getattr(self, name) != getattr(type(self), name):
                raise RunError(
                    f"a tokenizer decides what the tokens are, and so does {name}: leave out one of them"
                )
        if self.layers == 1 and self.embedding_size not in (None, self.hidden_size):
            raise RunError(
                f"embedding_size {self.embedding_size} needs two layers or more: the last layer has the size of the "
                "embedding, whose words its outputs are compared with. Give hidden_size alone, or more layers"
            )
        if self.block != OFF and self.cell.lower() in BASELINES:
            raise RunError(f"a block is put around a cell, and {self.cell} is none: leave out block")
        if self.block != OFF and self.embedding_size not in (None, self.hidden_size):
            raise RunError(
                f"the blocks of a language model have the size of the embedding; got embedding_size "
                f"{self.embedding_size} and hidden_size {self.hidden_size}. Give hidden_size alone"
            )
        if self.lr == 0:
            raise RunError("lr must be above 0")
        if wrong := [ema for ema in self.emas if not 0 <= ema < 1]:
            raise RunError(f"emas must lie between 0 and 1; got {wrong[0]:g}")

    def changed(self, **changes: Any) -> LMConfig:
        """Return a copy with some fields changed; fields that contradict them are reset."""
        return self.replace(**_without_contradictions(self.check_names(changes)))

    def resolved(self, hidden_size: int) -> LMConfig:
        """Return a copy with this hidden size, and with the fields that follow from it and from the cell filled in."""
        keep = min(1.0, self.kept_units / (self.embedding_size or hidden_size))
        drop = round(1 - keep, 4)
        return self.replace(
            hidden_size=hidden_size,
            embedding_dropout=drop if self.embedding_dropout is None else self.embedding_dropout,
            output_dropout=drop if self.output_dropout is None else self.output_dropout,
            lr=recipe_rate(self.cell, self.optimiser) if self.lr is None else self.lr,
        )


def recipe_rate(cell: str, optimiser: str = "sgd") -> float:
    """Return the recipe's learning rate for a cell. According to the paper, C and F do not converge at 1.0."""
    if optimiser == "adam":
        return 0.002
    return 0.5 if _zoo_name(cell) in ("c", "f") else 1.0


PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {
        "data": "python",
        "layers": 1,  # with two layers of C, which multiplies small numbers, learning would start too late
        "hidden_size": 64,
        "embedding_dropout": 0.1,
        "output_dropout": 0.1,
        "recurrent_dropout": 0.0,
        "between_dropout": 0.0,
        "batch_size": 16,
        "epochs": 8,
        "lr_decay": 0.7,
        "lr_decay_from": 5,
    },
    "paper-10m": {"data": "ptb", "layers": 2, "params": 10_000_000, "scale_weight_decay": False},
    "paper-24m": {"data": "ptb", "layers": 3, "params": 24_000_000, "scale_weight_decay": False},
    "best-24m": {
        "data": "ptb",
        "layers": 4,
        "params": 24_000_000,
        "word_dropout": 0.1,
        "between_dropout": 0.12,
        "kept_units": 300,
        "shift": True,
        "lr_decay_from": 1000,  # never
        "weight_decay": 4e-5,
        "emas": (0.9999, 0.99997, 0.99998),
        "average_every": 5,
        "epochs": 560,
        "precision": "bf16",
    },
}

# With the gate of the paper's text, max-plus begins with the logarithms of its output gates, and at the recipe's rate
# of 1 it never settles.
_OPEN_GATES = {"lr": 0.5, "output_bias": 4.0}
MODEL_SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "paper-10m": {
        "c": {"rnn_gain": 4.0},  # C multiplies small numbers: without a larger start it does not learn
        "b-max-plus": _OPEN_GATES,
        "lstm": {"dev_streams": 16},  # one stream takes an LSTM longer than an epoch
        "gru": {"dev_streams": 16},
    }
}
MODEL_SETTINGS["paper-24m"] = {
    **MODEL_SETTINGS["paper-10m"],
    # Three layers of C need a start that is too large at first, and a weight decay that makes it small soon: with the
    # recipe's 1e-5, perplexity rises to millions and is below 200 only after 94 epochs; with this, after 16.
    "c": {"rnn_gain": 6.0, "weight_decay": 4e-5, "scale_weight_decay": True},
}
MODEL_SETTINGS["best-24m"] = {
    **MODEL_SETTINGS["paper-24m"],
    "b-max-plus-scaled": {"lr": 0.5},  # as in the rows with averaged weights
    "f": {"lr": 1.0, "hidden_size": 864, "params": None},  # the size that was trained
    "c": {"rnn_gain": 6.0, "layers": 3},  # four layers of C do not start from there
    "lstm": {"dev_streams": 16, "layers": 3},  # as in the paper
}
"""Preset → model of the zoo → fields that differ from the preset's for this model."""


def preset(name: str, **changes: Any) -> LMConfig:
    """Return a preset by its name, with the settings that its model needs, and with some fields changed."""
    if name not in PRESETS:
        raise RunError(f"there is no preset {name!r}: the presets are {', '.join(PRESETS)}")
    changes = LMConfig.check_names(changes)
    # Blocks are trained with Adam, as those of the papers: at the recipe's rates of SGD they do not settle.
    blocks = {"optimiser": "adam"} if changes.get("block", OFF) != OFF else {}
    own = MODEL_SETTINGS.get(name, {}).get(_zoo_name(changes.get("cell", LMConfig.cell)), {})
    return LMConfig(**{**PRESETS[name], **own, **blocks, **_without_contradictions(changes)})


def _zoo_name(cell: str) -> str:
    """Return the name of a model without its options and its output gate, in lower case."""
    return Path(cell.partition(":")[0]).stem.lower().removesuffix("+o")


def _without_contradictions(changes: dict[str, Any]) -> dict[str, Any]:
    """Reset fields that contradict the changes: a size given in the other way, and dropouts that kept_units decides."""
    sizes = {"hidden_size", "params"} & changes.keys()
    if len(sizes) == 2 and None not in (changes["hidden_size"], changes["params"]):
        given = f"hidden_size {changes['hidden_size']} and params {changes['params']}"
        raise RunError(f"a model has one size; got two, {given}. Leave out one of them")
    if len(sizes) == 1:
        changes = {"hidden_size": None, "params": None, **changes}
    if "kept_units" in changes:
        changes = {"embedding_dropout": None, "output_dropout": None, **changes}
    return changes
