"""What commands share: options and their help, configurations as options, runs, interrupts, tables."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import make_dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro

from rrnn.cli.terminal import paragraph, table, terminal_width
from rrnn.errors import RunError

if TYPE_CHECKING:
    from rrnn.tasks.configs import Config


def option(metavar: str | None = None) -> Any:
    """Return how help shows an option that is empty by default: the name of its value, without "(default: None)"."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


def check_folder_of(file: Path) -> None:
    """Raise a `RunError` if a file cannot be written because its folder does not exist, before work that takes long."""
    if not file.parent.is_dir():
        raise RunError(f"there is no folder {file.parent} to write {file.name} to: create it first")


GROUPED = (tyro.conf.arg(name=""), tyro.conf.OmitArgPrefixes)
"""What makes the groups of `overrides_of` boxes of help, and no part of the names of options."""


def overrides_of(config: type[Config], defaults: Mapping[str, Config], *, without: Sequence[str] = ()) -> Any:
    """Return a dataclass of groups of optional fields, each of which `--help` shows in a box of its own.

    A command has it as a field `settings: Annotated[…, *GROUPED]`.

    `defaults`: the configuration that a command uses without options, under an empty name, and what changes it → the
    configuration then.
    """
    hints, groups = get_type_hints(config), {}
    group: list[Any] = []
    for field in dataclasses.fields(config):
        if field.name in config.groups:
            group = groups[config.groups[field.name]] = []
        if field.name not in without:
            kind, bare = hints[field.name], field.metadata["bare"]
            told = tyro.conf.arg(
                help=field.metadata["help"],
                help_behavior_hint=_default_hint([(n, getattr(c, field.name)) for n, c in defaults.items()]),
                metavar=_metavar(kind) if bare is None else None,
            )
            read = () if bare is None else (_text_or(bare),)
            group.append((field.name, Annotated[kind | None, *read, told], dataclasses.field(default=None)))
    boxes = []
    for title, fields in ((title, fields) for title, fields in groups.items() if fields):
        made = make_dataclass(f"{config.__name__}_{title}".replace(" ", "_"), fields)
        box = Annotated[made, tyro.conf.arg(name=title, help="")]
        boxes.append((title.replace(" ", "_"), box, dataclasses.field(default_factory=made)))
    return make_dataclass(f"{config.__name__}Overrides", boxes)


def _text_or(bare: str) -> Any:
    """Return how tyro reads an option with a text, or with nothing, which means `bare`."""

    def read(words: list[str]) -> str:
        if len(words) > 1:
            raise ValueError(f"expected one word at most; got {' '.join(words)}")
        return words[0] if words else bare

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar="[STR]",
        instance_from_str=read,
        is_instance=lambda value: value is None or isinstance(value, str),
        str_from_instance=lambda value: [] if value is None else [value],
    )


def _default_hint(values: list[tuple[str, Any]]) -> str:
    """Return "(default: 1; paper-10m: 2)": the first value, and those that differ from it with their names."""
    (_, first), *others = values
    parts = [] if first in (None, ()) else [f"default: {first}"]
    for value in dict.fromkeys(value for _, value in others if value not in (first, None, ())):
        parts.append(f"{', '.join(name for name, other in others if other == value)}: {value}")
    return f"({'; '.join(parts)})" if parts else ""


def given(overrides: Any) -> dict[str, Any]:
    """Return the fields that the command line sets, of all groups, with their values."""
    groups = (getattr(overrides, group.name) for group in dataclasses.fields(overrides))
    return {
        field.name: value
        for group in groups
        for field in dataclasses.fields(group)
        if (value := getattr(group, field.name)) is not None
    }


def file_stem(name: str) -> str:
    """Return the name of a model, with its options, or of a file without its ending, as a part of a file's name."""
    stem = name if ":" in name else Path(name).stem
    return re.sub(r"[^\w.+-]+", "-", stem)


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


def print_markdown(text: str) -> None:
    """Print a text with Markdown tables. In a terminal that is too narrow for a table, print one that fits instead."""
    width = terminal_width() or 10**6
    for is_table, part in groupby(text.splitlines(), lambda line: line.startswith("|")):
        block = list(part)
        if max(map(len, block)) <= width:
            print("\n".join(block))
        elif is_table:
            header, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in block)
            print(table(header, rows))
        else:
            print("\n".join(map(paragraph, block)))
