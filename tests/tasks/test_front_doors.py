"""What users call is importable from `rrnn.tasks.lm`, `rrnn.tasks.classify` and `rrnn.tasks.data`."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from rrnn.tasks import classify, data, lm

PACKAGES = [lm, classify, data]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_every_export_is_found_and_listed(package: ModuleType) -> None:
    for name, module in package._EXPORTS.items():
        assert getattr(package, name) is getattr(import_module(f"rrnn.tasks.{module}"), name)
        assert name in dir(package)
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nothing'"):
        _ = package.nothing


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_type_checkers_see_the_same_names(package: ModuleType) -> None:
    tree = ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = {
        alias.name: str(node.module).removeprefix("rrnn.tasks.")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imports == package._EXPORTS


def test_importing_a_front_door_is_light() -> None:
    script = "import sys; from rrnn.tasks import lm, classify, data; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_modules_do_not_hide_functions() -> None:
    import_module("rrnn.tasks.lm.train")
    import_module("rrnn.tasks.classify.evaluate")
    assert callable(lm.train) and callable(classify.evaluate)
    assert import_module("rrnn.tasks.lm.train").train is lm.train
