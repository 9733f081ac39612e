"""Describe the options of commands, and turn the fields of a configuration into options that override it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import make_dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro

if TYPE_CHECKING:
    from rrnn.tasks.configs import Config


def option(metavar: str | None = None) -> Any:
    """Return how help shows an option that is empty by default: the name of its value, without "(default: None)"."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


def overrides_of(config: type[Config], title: str, *, without: Sequence[str] = ()) -> Any:
    """Return a dataclass of optional fields, for a field `settings: Annotated[…, tyro.conf.arg(name="")]`."""
    hints = get_type_hints(config)
    fields = []
    for field in dataclasses.fields(config):
        if field.name not in without:
            kind = hints[field.name]
            default = "" if field.default in (None, ()) else f"(recipe: {field.default})"
            told = tyro.conf.arg(
                help=field.metadata["help"], help_behavior_hint=default, metavar=_metavar(kind)
            )
            fields.append((field.name, Annotated[kind | None, told], dataclasses.field(default=None)))
    made = make_dataclass(f"{config.__name__}Overrides", fields)
    made.__doc__ = title
    return made


def given(overrides: Any) -> dict[str, Any]:
    """Return the fields that the command line sets, with their values."""
    values = {field.name: getattr(overrides, field.name) for field in dataclasses.fields(overrides)}
    return {name: value for name, value in values.items() if value is not None}


def _metavar(kind: Any) -> str:
    for part in (kind, *get_args(kind)):
        if get_origin(part) is Literal:
            return f"{{{','.join(map(str, get_args(part)))}}}"
        if part is bool:
            return "{True,False}"
        if part in (int, float, str):
            return part.__name__.upper()
    raise TypeError(f"an option of the type {kind} has no name for its values yet")
