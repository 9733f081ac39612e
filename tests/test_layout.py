"""Imports point one way: each part of the package imports only the parts before it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import rrnn

ROOT = Path(rrnn.__file__).parent
ORDER = [
    "errors",
    "semirings",
    "automata",
    "wfsa",
    "ir",
    "backends",
    "ops",
    "nn",
    "zoo",
    "theory",
    "interpret",
    "draw",
    "tasks",
    "report",
    "explorer",
    "cli",
]
FACADE = {"__init__", "__main__"}  # the top of the package: re-exports all, is imported by none


def imported_parts(source: str, module: list[str], *, is_package: bool) -> list[tuple[int, str]]:
    """(line, part) of every import of rrnn in a module, wherever in it; part is "" for rrnn itself."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # `from . import x` counts from the enclosing package, which for a package is the module itself
            up = node.level - 1 if is_package else node.level
            base = module[: len(module) - up] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            targets = [[*base, alias.name] for alias in node.names]
        else:
            continue
        for target in targets:
            if target[0] == "rrnn" and target[1:] != ["__version__"]:
                part = target[1] if len(target) > 1 else ""
                found.append((node.lineno, part if part in ORDER else ""))
    return found


def violations(source: str, module: list[str], *, is_package: bool) -> list[str]:
    part = module[1]
    allowed = ORDER[: ORDER.index(part) + 1]
    return [
        f"line {line}: rrnn.{part} imports rrnn.{other}, which comes after it"
        if other
        else f"line {line}: rrnn.{part} imports the public API; import from the module that owns the name"
        for line, other in imported_parts(source, module, is_package=is_package)
        if other not in allowed
    ]


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_imports_point_one_way(path: Path) -> None:
    names = ["rrnn", *path.relative_to(ROOT).with_suffix("").parts]
    if names[1] in FACADE:
        return
    assert names[1] in ORDER, (
        f"rrnn.{names[1]} has no place in the order of imports yet: give it one in ORDER"
    )
    is_package = names[-1] == "__init__"
    found = violations(
        path.read_text(encoding="utf-8"), names[:-1] if is_package else names, is_package=is_package
    )
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "module", "is_package", "count"),
    [
        ("import rrnn.semirings.real", "rrnn.automata.cell", False, 0),
        ("from rrnn.errors import RRNNError", "rrnn.semirings", True, 0),
        ("from . import base\nfrom .base import x", "rrnn.semirings", True, 0),
        ("from .. import errors", "rrnn.semirings.base", False, 0),
        ("from rrnn import __version__", "rrnn.cli", True, 0),
        ("import torch, rrnnify", "rrnn.semirings", True, 0),
        ("import rrnn.nn.rnn", "rrnn.ir.lower", False, 1),
        ("from rrnn.cli import main", "rrnn.ops", False, 1),
        ("from rrnn import nn", "rrnn.ir", True, 1),
        ("from ..draw import svg", "rrnn.wfsa.files", False, 1),
        ("from .. import draw", "rrnn.wfsa", True, 1),
        ("from ..draw import svg", "rrnn.wfsa.io", True, 0),  # rrnn.wfsa.draw, a folder inside
        ("from ...draw import svg", "rrnn.wfsa.io", True, 1),
        ("def f():\n    from rrnn.nn import RationalRNN", "rrnn.ir", True, 1),
        ("if TYPE_CHECKING:\n    from rrnn.nn import RationalRNN", "rrnn.ir", True, 1),
        ("import rrnn", "rrnn.cli.score", False, 1),
        ("from rrnn import WFSA", "rrnn.cli.score", False, 1),
    ],
)
def test_the_check_itself(source: str, module: str, is_package: bool, count: int) -> None:
    assert len(violations(source, module.split("."), is_package=is_package)) == count
