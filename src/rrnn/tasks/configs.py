"""Configurations: flat dataclasses of everything that decides a training. They check their values and convert to JSON.

A field is declared with `option`, which carries its help text and its bounds. The command line is built from the same
table.
"""

from __future__ import annotations

import dataclasses
import math
import os
import types
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

from rrnn.errors import RunError, nearest
from rrnn.files import read_json

MAX_INT = 2**53
"""The largest whole number of a configuration: torch's sizes are 64 bits, and products of two of them must not wrap."""

FACTS = "facts"
"""The key of config.json that holds what a training found, such as the number of parameters."""

RENAMED: dict[str, dict[str, str]] = {
    "lm": {"hidden": "hidden_size", "batch": "batch_size", "variational_dropout": "recurrent_dropout"},
}
"""Task → fields that had another name in version 0.1, and their names now."""

FORMER_DEFAULTS: dict[str, dict[str, tuple[Any, str]]] = {"classify": {"vector_length": (1.0, "vectors")}}
"""Task → fields whose default has changed since version 0.1: their default then, and the field without which they mean
nothing."""


def with_current_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a config.json with the fields of version 0.1 under their current names, and without former
    defaults that mean nothing."""
    task = str(values.get("task"))
    former, renamed = FORMER_DEFAULTS.get(task, {}), RENAMED.get(task, {})
    idle = {
        key for key, (was, other) in former.items() if values.get(key) == was and values.get(other) is None
    }
    return {renamed.get(key, key): value for key, value in values.items() if key not in idle}


def option(
    default: Any, help: str, *, low: float = -math.inf, high: float = math.inf, bare: str | None = None
) -> Any:
    """Declare a field of a configuration. A number must lie between `low` and `high`. `bare` is what a text is if the
    command line names the option without a value."""
    return dataclasses.field(default=default, metadata={"help": help, "low": low, "high": high, "bare": bare})


OFF, AUTO = "off", "auto"
"""What `block` of a configuration is beside the name of a model."""


BLOCK: dict[str, Any] = {
    "default": OFF,
    "help": "put the published block of the cell around it (norm, convolution, gate, …), or the block of the model "
    "that is named",
    "bare": AUTO,
}
HEADS: dict[str, Any] = {
    "default": None,
    "help": "number of heads, for cells whose units share weights (default: 1, or what the block has)",
    "low": 1,
}
GROUPS: dict[str, Any] = {
    "default": 1,
    "help": "number of groups of heads, for cells whose heads share weights",
    "low": 1,
}
TOKENIZER: dict[str, Any] = {
    "default": None,
    "help": "split texts by a tokenizer of Hugging Face, a file tokenizer.json, which is copied into the run; its "
    "tokens are the vocabulary (needs rrnn[hf])",
}
"""The options of the fields block, heads, head_groups and tokenizer."""


@dataclass(frozen=True)
class Config:
    """The base class of configurations."""

    task: ClassVar[str]
    model_name: ClassVar[str]
    """What messages call a trained model of this task."""
    groups: ClassVar[Mapping[str, str]]
    """First field of each group of fields → what `--help` calls the group."""

    def __post_init__(self) -> None:
        """Check types and bounds: a JSON file may hold "64" instead of 64, or 1 instead of true."""
        hints = get_type_hints(type(self))
        for field in dataclasses.fields(self):
            value = _checked(field.name, getattr(self, field.name), hints[field.name])
            if isinstance(value, int) and abs(value) > MAX_INT:
                raise RunError(
                    f"{field.name} must be a number below 2⁵³; got one of {len(str(abs(value)))} digits"
                )
            if isinstance(value, float) and math.isnan(value):
                raise RunError(f"{field.name} must be a number; got nan")
            low, high = field.metadata["low"], field.metadata["high"]
            if isinstance(value, int | float) and not low <= value <= high:
                above = f"at most {high:g}" if low == -math.inf else f"at least {low:g}"
                bounds = above if math.inf in (-low, high) else f"between {low:g} and {high:g}"
                raise RunError(f"{field.name} must be {bounds}; got {value!r}")
            object.__setattr__(self, field.name, value)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and the name of the task, ready for JSON."""
        return {"task": self.task, **dataclasses.asdict(self)}

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return the default of every field."""
        return {field.name: field.default for field in dataclasses.fields(cls)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote, in this version or an older one. A missing field has its default; an unknown one
        is an error."""
        given = with_current_names({"task": cls.task, **values})
        if given.pop("task") != cls.task:
            raise RunError(f"this is a configuration for the task {values['task']!r}, not {cls.task!r}")
        return cls(**cls.check_names(given))

    @classmethod
    def from_run(cls, values: Any) -> Self:
        """Read the configuration from the content of a run's config.json, without its facts and its version of rrnn."""
        if not isinstance(values, Mapping):
            raise RunError(f"a configuration is a JSON object; got {type(values).__name__}")
        return cls.from_dict({key: value for key, value in values.items() if key not in (FACTS, "rrnn")})

    @classmethod
    def from_file(cls, file: Path) -> Self:
        """Read a configuration from a JSON file: a run's config.json, or a search's best.json. A tokenizer that lies
        beside the file is that one."""
        try:
            values = read_json(file)
        except ValueError as error:
            raise RunError(f"{file} is not a configuration: it is not JSON ({error})") from None
        values = values.get("config", values) if isinstance(values, dict) else values
        if isinstance(values, dict) and isinstance(name := values.get("tokenizer"), str):
            beside = os.path.abspath(file.parent / name)
            values = {**values, "tokenizer": beside if os.path.exists(beside) else name}
        return cls.from_run(values)

    @classmethod
    def check_names(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the given fields under their current names. A field that does not exist is an error."""
        known, renamed = [field.name for field in dataclasses.fields(cls)], RENAMED.get(cls.task, {})
        for key in given:
            if key in renamed:
                warnings.warn(f"{key} is now {renamed[key]}", DeprecationWarning, stacklevel=3)
            elif key not in known:
                hint = nearest(key, known) or f" It has {', '.join(known)}."
                raise RunError(f"a configuration for {cls.task!r} has no {key!r}.{hint}")
        return {renamed.get(key, key): value for key, value in given.items()}

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **self.check_names(changes))


def _checked(name: str, value: Any, hint: Any) -> Any:
    """Return the value, with whole numbers as floats where the field is one, or raise an error."""
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for kind in kinds:
        if get_origin(kind) is Literal:
            if value in get_args(kind):
                return value
        elif type(value) is kind:
            return value
    if float in kinds and type(value) is int:
        return float(value)
    if (
        hint == tuple[float, ...]
        and isinstance(value, list | tuple)
        and all(type(v) in (int, float) for v in value)
    ):
        return tuple(map(float, value))
    raise RunError(f"{name} must be {' or '.join(map(_describe, kinds))}; got {value!r}")


_WORDS = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    type(None): "nothing",
    tuple[float, ...]: "a list of numbers",
}


def _describe(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    return _WORDS[kind]
