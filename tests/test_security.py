"""The promises of SECURITY.md that the sources show: nothing in the package can load a pickle or evaluate a text."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import rrnn

ROOT = Path(rrnn.__file__).parent
PICKLES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
"""Modules whose files can hold code."""
FORBIDDEN = {"eval", "exec", "compile", "torch.load", "torch.jit.load", "os.system", "os.popen", "yaml.load"}


def unsafe(source: str) -> list[str]:
    """Return the lines of a module that load pickles, evaluate texts or start a shell."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            modules = []
        if any(module.split(".")[0] in PICKLES or module in FORBIDDEN for module in modules):
            found.append((node.lineno, ast.unparse(node)))
        if isinstance(node, ast.Call) and not _is_safe_call(node):
            found.append((node.lineno, ast.unparse(node)))
    return [f"line {line}: {text[:100]}" for line, text in sorted(found)]


def _is_safe_call(call: ast.Call) -> bool:
    keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    name = ast.unparse(call.func)
    if name in ("np.load", "numpy.load"):
        return keywords.get("allow_pickle") == "False"
    return name not in FORBIDDEN and keywords.get("shell", "False") == "False"


@pytest.mark.parametrize(
    "path", sorted(ROOT.rglob("*.py")), ids=lambda path: path.relative_to(ROOT).as_posix()
)
def test_no_module_can_run_code_from_a_file(path: Path) -> None:
    assert not unsafe(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "def f():\n    from pickle import loads",
        "from torch import load",
        "torch.load(path)",
        "torch.load(path, weights_only=True)",  # safetensors do without
        "eval(text)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "subprocess.run(command, shell=True)",
    ],
)
def test_the_check_finds(source: str) -> None:
    assert len(unsafe(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "model.eval()",
        "np.load(path, allow_pickle=False)",
        "re.compile(text)",
        "json.loads(text)",
        "run.load(name)",
    ],
)
def test_the_check_allows(source: str) -> None:
    assert not unsafe(source)
