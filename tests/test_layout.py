"""The package is built in layers: each part imports only the parts before it. A semiring is data: only its own folder
knows semirings by name. No file is long."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import rrnn
from rrnn.semirings import SEMIRINGS

ROOT = Path(rrnn.__file__).parent
ORDER = [
    "moved",
    "errors",
    "files",
    "arithmetic",
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
    "hf",
    "exporters",
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


def test_imports_point_one_way() -> None:
    found = []
    for path in modules():
        names = ["rrnn", *path.relative_to(ROOT).with_suffix("").parts]
        if names[1] in FACADE:
            continue
        assert names[1] in ORDER, (
            f"rrnn.{names[1]} has no place in the order of imports: give it one in ORDER"
        )
        is_package = names[-1] == "__init__"
        module, source = names[:-1] if is_package else names, path.read_text(encoding="utf-8")
        found += [f"{path}: {line}" for line in violations(source, module, is_package=is_package)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "module", "is_package", "count"),
    [
        ("import rrnn.semirings.real", "rrnn.automata.cell", False, 0),
        ("from rrnn.errors import RRNNError", "rrnn.semirings", True, 0),
        ("from . import base\nfrom .base import x", "rrnn.semirings", True, 0),
        ("from .. import errors", "rrnn.semirings.semiring", False, 0),
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


def test_no_file_is_long() -> None:
    long = [path for path in modules() if path.read_text(encoding="utf-8").count("\n") >= 400]
    assert not long, f"these modules have 400 lines or more; split them by topic: {', '.join(map(str, long))}"


# ---- semirings are data ----------------------------------------------------------------------------------------

# Names of semirings that are no other words: to write one beside a comparison is to ask for that semiring.
UNMISTAKABLE = {name for name in SEMIRINGS if "-" in name}
NAMES = {"name", "semiring_name", "plus_symbol", "times_symbol"}


def _last(node: ast.expr) -> str:
    """The last word of a dotted name or call: "ring" of `self.ring`, "get_semiring" of `get_semiring(x)`."""
    if isinstance(node, ast.Call):
        return _last(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _names_a_semiring(node: ast.AST) -> bool:
    """Whether this is `ring.name`, `cell.semiring_name`, `ring.times_symbol`, or a name itself, as `semiring` is."""
    if isinstance(node, (ast.Name, ast.Attribute)) and _last(node) in ("ring", "semiring", "semiring_name"):
        return True
    if not isinstance(node, ast.Attribute) or node.attr not in NAMES:
        return False
    return node.attr != "name" or _last(node.value).lower().endswith(("ring", "rings"))


def _constants(node: ast.AST) -> list[str]:
    """The texts that a literal, or a collection of them, holds."""
    items = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]
    return [item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)]


def asks_for_a_semiring(source: str) -> list[str]:
    """Lines of a module that treat one semiring unlike another: by name, symbol, identity or class."""
    tree, found = ast.parse(source), []
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rrnn.semirings")
        for alias in node.names
    }
    given = {name for name in imported if name.isupper() and name != "SEMIRINGS"}  # REAL, MAX_PLUS
    kinds = {name for name in imported if name[0].isupper() and not name.isupper()} - {"Semiring"}
    kinds |= {name for name in imported if name.isupper()}

    def one_of(node: ast.AST) -> bool:
        items = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]
        return any(isinstance(item, ast.Name) and item.id in given for item in items)

    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            texts = [text for side in sides for text in _constants(side)]
            wrong = (
                (texts and any(map(_names_a_semiring, sides)))
                or set(texts) & UNMISTAKABLE
                or any(map(one_of, sides))
            )
        elif isinstance(node, ast.Match):
            patterns = [
                p.value
                for case in node.cases
                for p in ast.walk(case.pattern)
                if isinstance(p, ast.MatchValue)
            ]
            texts = [text for value in patterns for text in _constants(value)]
            wrong = (texts and _names_a_semiring(node.subject)) or any(
                one_of(value) or set(_constants(value)) & UNMISTAKABLE for value in patterns
            )
        elif isinstance(node, ast.Call) and _last(node.func) in ("isinstance", "issubclass"):
            wrong = any(isinstance(part, ast.Name) and part.id in kinds for part in ast.walk(node.args[1]))
        elif isinstance(node, ast.Call) and _last(node.func) in ("startswith", "endswith"):
            wrong = isinstance(node.func, ast.Attribute) and _names_a_semiring(node.func.value)
        elif isinstance(node, ast.Dict):  # a table is a comparison, too
            keys = [key for key in node.keys if key is not None]
            wrong = any(one_of(key) or set(_constants(key)) & UNMISTAKABLE for key in keys)
        else:
            continue
        if wrong:
            found.append(f"line {node.lineno}: {ast.unparse(node)[:100]}")
    return found


def test_no_module_asks_for_one_semiring() -> None:
    found = [
        f"{path}: {line}"
        for path in modules()
        if path.relative_to(ROOT).parts[0] != "semirings"
        for line in asks_for_a_semiring(path.read_text(encoding="utf-8"))
    ]
    assert not found, "a semiring is data: ask it for a property (rrnn.semirings.semiring)\n" + "\n".join(
        found
    )


IMPORT = "from rrnn.semirings import REAL, LOG, SEMIRINGS, Semiring, get_semiring\n"


@pytest.mark.parametrize(
    "source",
    [
        'ring.name == "real"',
        'self.semiring.name != "log"',
        'cell.semiring_name in ("real", "log")',
        '"real" == get_semiring(x).name',
        'machine.semiring.name not in {"boolean"}',
        'name == "max-plus"',
        'semiring == "real"',
        'ring.times_symbol == "·"',
        'ring.plus_symbol in ("max", "min")',
        'ring.name.startswith("max")',
        'match ring.name:\n    case "real": pass',
        'match name:\n    case "min-plus": pass',
        "ring is REAL",
        "ring is not LOG",
        "ring == REAL",
        "ring in (REAL, LOG)",
        "isinstance(ring.products, (int, LOG))",
        "match ring:\n    case Semiring(): pass\n    case _ if ring is LOG: pass",
        '{"max-plus": 1}[name]',
        "{REAL: 1}.get(ring)",
        "from rrnn.semirings.tensor_products import Linear\nisinstance(ring.products, Linear)",
    ],
)
def test_semirings_are_asked_for(source: str) -> None:
    assert len(asks_for_a_semiring(IMPORT + source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "a.semiring_name != b.semiring_name",
        "a.semiring is not b.semiring",
        "isinstance(semiring, Semiring)",
        "SEMIRINGS.get(ring.name) is not ring",
        'axis.name == "log"',
        'scale == "log"',
        'node.name == "real"',
        "ring.selective and ring.zero == 0.0",
        "ring = get_semiring('max-plus')",
        "Cell('B', 'max-plus')",
        "f = LOG.t_plus",
        "name in SEMIRINGS",
        "value is None",
        '{"semiring": "max-plus"}',
    ],
)
def test_semirings_are_used(source: str) -> None:
    assert not asks_for_a_semiring(IMPORT + source)
