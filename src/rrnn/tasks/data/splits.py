"""Which file, or which rows, are for training, development and test."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TypeVar

from rrnn.errors import DataError

T = TypeVar("T")

_NAMES = {
    "train": {"train", "training"},
    "dev": {"valid", "validation", "val", "dev"},
    "test": {"test"},
}


def split_files(folder: Path) -> dict[str, Path]:
    """The files of train, dev and test in a folder, told by a word in their names: ptb.train.txt, dev.csv, …"""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        words = set(re.split(r"[^a-z]+", path.name.lower()))
        for split in (split for split, names in _NAMES.items() if words & names):
            if not path.is_file() or path.name.startswith("."):
                continue
            if split in found:
                raise DataError(
                    f"{folder} has two files for {split}, {found[split].name} and {path.name}: "
                    "name the files instead of the folder"
                )
            found[split] = path
    if missing := {"train", "dev"} - set(found):
        raise DataError(
            f"{folder} has no file for {' and '.join(sorted(missing))}: file names tell it by a word, "
            "as ptb.train.txt, valid.txt or dev.csv, test.tsv"
        )
    return found


def shuffled(items: Sequence[T], seed: int) -> list[T]:
    """A random order that is the same in every version of Python: `Random.random` alone is promised to be."""
    draw = random.Random(seed).random
    keys = [draw() for _ in items]
    return [items[i] for i in sorted(range(len(items)), key=keys.__getitem__)]


def split_rows(
    rows: Sequence[T], shares: Sequence[float], seed: int, stratum: Callable[[T], Hashable] | None = None
) -> list[list[T]]:
    """Cut rows at random into parts of these shares; with `stratum`, every part has each stratum's share of it."""
    strata: dict[Hashable, list[T]] = defaultdict(list)
    for row in shuffled(rows, seed):
        strata[stratum(row) if stratum else None].append(row)
    parts: list[list[T]] = [[] for _ in shares]
    for members in strata.values():
        start, filled = 0, 0.0
        for part, share in zip(parts, shares, strict=True):
            filled += share
            end = round(filled * len(members))
            part += members[start:end]
            start = end
    return [shuffled(part, seed) for part in parts]
