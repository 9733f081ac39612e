"""Configurations: flat dataclasses that say all that decides a training, go through JSON and check what they are given.

A field is declared with `option`, which carries its help and its bounds: the command line is made from the same table.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

from rrnn.errors import RunError


def option(default: Any, help: str, *, low: float = -math.inf, high: float = math.inf) -> Any:
    """A field of a configuration; numbers lie between `low` and `high`."""
    return dataclasses.field(default=default, metadata={"help": help, "low": low, "high": high})


@dataclass(frozen=True)
class Config:
    """The base of configurations."""

    task: ClassVar[str]

    def __post_init__(self) -> None:
        """A JSON file may hold anything: "64" for 64, 1 for true."""
        hints = get_type_hints(type(self))
        for field in dataclasses.fields(self):
            value = _checked(field.name, getattr(self, field.name), hints[field.name])
            low, high = field.metadata["low"], field.metadata["high"]
            if isinstance(value, int | float) and not low <= value <= high:
                above = f"at most {high:g}" if low == -math.inf else f"at least {low:g}"
                bounds = above if math.inf in (-low, high) else f"between {low:g} and {high:g}"
                raise RunError(f"{field.name} must be {bounds}; got {value!r}")
            object.__setattr__(self, field.name, value)

    def to_dict(self) -> dict[str, Any]:
        """For JSON, with the name of the task."""
        return {"task": self.task, **dataclasses.asdict(self)}

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        return {field.name: field.default for field in dataclasses.fields(cls)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """What `to_dict` wrote. What is left out has its default; a key that is not known is an error."""
        given = dict(values)
        if given.pop("task", cls.task) != cls.task:
            raise RunError(f"this is a configuration for the task {values['task']!r}, not {cls.task!r}")
        cls.check_names(given)
        return cls(**given)

    @classmethod
    def check_names(cls, given: dict[str, Any]) -> None:
        known = [field.name for field in dataclasses.fields(cls)]
        for key in given:
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}."
                raise RunError(f"a configuration for {cls.task!r} has no {key!r}: {hint}")

    def replace(self, **changes: Any) -> Self:
        self.check_names(changes)
        return dataclasses.replace(self, **changes)


def _checked(name: str, value: Any, hint: Any) -> Any:
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
