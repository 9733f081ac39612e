"""What commands share: options and their help, configurations as options, runs, interrupts, tables."""

from __future__ import annotations

import dataclasses
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro

if TYPE_CHECKING:
    from rrnn.tasks.configs import Config


def option(metavar: str | None = None) -> Any:
    """Return how help shows an option that is empty by default: the name of its value, without "(default: None)"."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


def overrides_of(config: type[Config], title: str, *, without: Sequence[str] = ()) -> Any:
    """Return a dataclass of optional fields, for a command's `settings: Annotated[…, tyro.conf.arg(name="")]`."""
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


@contextmanager
def resumable(command: str, folder: Path) -> Iterator[None]:
    """Print how to continue a training that is interrupted with Ctrl-C inside this context."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"interrupted. To continue: rrnn {command} --out {folder} --resume", file=sys.stderr)
        raise


def load_model(load: Callable[[Path], Any], folder: Path) -> Any:
    """Load the model of a run, and print warnings as notes."""
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        model = load(folder)
    for note in notes:
        print(f"note: {note.message}", file=sys.stderr)
    return model


def write_json(value: Any, file: Path | None) -> None:
    """Write a value to a JSON file, if one is given."""
    if file is not None:
        file.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _metavar(kind: Any) -> str:
    for part in (kind, *get_args(kind)):
        if get_origin(part) is Literal:
            return f"{{{','.join(map(str, get_args(part)))}}}"
        if part is bool:
            return "{True,False}"
        if part in (int, float, str):
            return part.__name__.upper()
    raise TypeError(f"an option of the type {kind} has no name for its values yet")


def table(header: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """Return a table with columns as wide as their widest cell, without trailing spaces."""
    lines = [header, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join(
        (indent + "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))).rstrip()
        for line in lines
    )
