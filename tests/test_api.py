"""`import rrnn`: every public name is there, and costs nothing until it is used."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import rrnn

ROOT = Path(rrnn.__file__).parent


def new_modules(before: str, code: str) -> tuple[set[str], float]:
    """Run two pieces of code in a fresh process; return what the second imports beside the standard library and rrnn,
    and its CPU seconds."""
    program = (
        f"import json, sys, time; {before}; known, began = set(sys.modules), time.process_time(); {code}; "
        "seconds = time.process_time() - began; "
        "print(json.dumps([sorted({name.split('.')[0] for name in set(sys.modules) - known}), seconds]))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    names, seconds = json.loads(result.stdout)
    return set(names) - sys.stdlib_module_names - {"rrnn"}, seconds


def test_import_is_light() -> None:
    """`import rrnn` imports the standard library alone, and takes about 20 ms."""
    imported, seconds = new_modules("pass", "import rrnn; dir(rrnn)")
    assert not imported
    assert seconds < 0.2


def test_the_public_names_need_torch_and_no_extras() -> None:
    """Every public name together imports nothing beyond torch: no jinja2, networkx, optuna, starlette, transformers."""
    imported, _ = new_modules("import numpy, safetensors.torch, torch", "from rrnn import *")
    assert not imported


@pytest.mark.parametrize("name", rrnn.__all__)
def test_public_name(name: str) -> None:
    value = getattr(rrnn, name)
    if name != "__version__":
        assert value is getattr(importlib.import_module(f"rrnn.{rrnn._EXPORTS[name]}"), name)
    assert name in dir(rrnn)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    (block,) = [n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    seen = {
        alias.asname: f"{node.module}.{alias.name}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    packages = {name: f"rrnn.{name}" for name in rrnn._PACKAGES}
    assert seen == packages | {name: f"rrnn.{module}.{name}" for name, module in rrnn._EXPORTS.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", rrnn._PACKAGES)
def test_packages_need_no_import(name: str) -> None:
    code = f"import rrnn; print(rrnn.{name}.__name__, '{name}' in dir(rrnn))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"rrnn.{name} True\n"


def test_no_name_hides_a_module() -> None:
    # Importing the submodule would silently replace the exported object.
    modules = {path.stem for path in ROOT.glob("*.py")} | {
        path.parent.name for path in ROOT.glob("*/__init__.py")
    }
    assert not modules & set(rrnn._EXPORTS)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        rrnn.Nonsense  # noqa: B018
