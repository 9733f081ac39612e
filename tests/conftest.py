"""Set up what tests share: one thread per process, interpreted kernels, marks, hypothesis profiles, golden files."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Before anything imports torch: xdist already runs one process per core.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What commands print must not depend on the terminal of whoever runs the tests.
os.environ.pop("COLUMNS", None)

# Tests start a hundred processes, which would each compile the package's sources where no bytecode may be written.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False

# Before anything imports triton (torch.compile does): without a GPU its kernels are interpreted. The device files
# tell, since asking torch would import it into tests that do not need it.
if not any(Path("/dev").glob("nvidia[0-9]*")) and not Path("/dev/dxg").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest

try:
    from hypothesis import settings
except ModuleNotFoundError:  # `pytest -m gpu` runs where little more than torch is installed
    settings = None

if settings is not None:
    # Deadlines measure the machine, not the code. CI draws the same examples each time and keeps no database, so
    # that a failure there is a failure here. `make quick` draws fewer examples, and
    # `pytest --hypothesis-profile=thorough` many more.
    settings.register_profile("dev", deadline=None, max_examples=40)
    settings.register_profile("ci", deadline=None, max_examples=40, derandomize=True, database=None)
    settings.register_profile("quick", deadline=None, max_examples=5)
    settings.register_profile("thorough", deadline=None, max_examples=1000)
    settings.load_profile("ci" if os.environ.get("CI") else "dev")

TESTS = Path(__file__).parent
GOLDEN = TESTS / "golden"
SLOW_FOLDERS = tuple(TESTS / name for name in ("benchmarks", "docs", "exporters", "hf", "report"))
"""Folders whose tests are all slow. Elsewhere a slow file has `pytestmark = pytest.mark.slow` (or a list that begins
with it), and a slow test in another file has the mark itself."""
_SLOW_FILE = re.compile(r"^pytestmark = (\[\s*)?pytest\.mark\.slow\b", re.MULTILINE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden instead of comparing")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files without a test to run: `pytest -m gpu` works where little more than torch is installed, and
    `pytest -m "not slow"` does not wait for what slow tests import."""
    expression = config.option.markexpr
    if not collection_path.name.startswith("test_"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    if expression == "gpu" and "mark.gpu" not in text:
        return True
    if "not slow" in expression and (_in_slow_folder(collection_path) or _SLOW_FILE.search(text)):
        return True
    return None


def _in_slow_folder(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in SLOW_FOLDERS)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the slow folders, and with `RRNN_SHARD=2/8` keep every eighth test, from the third on (see run_gpu.py)."""
    if shard := os.environ.get("RRNN_SHARD"):
        which, of = map(int, shard.split("/"))
        config.hook.pytest_deselected(items=[item for n, item in enumerate(items) if n % of != which])
        items[:] = items[which::of]
    for item in items:
        if _in_slow_folder(item.path):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("gpu"):  # there the versions of torch and triton are not ours to pin
            item.add_marker(pytest.mark.filterwarnings("default"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if "triton.runtime.interpreter" in sys.modules:
        from quick_interpreter import hurry

        hurry()
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1":
            pytest.skip("needs a CUDA device, and TRITON_INTERPRET not set")


def pytest_configure(config: pytest.Config) -> None:
    """Give all workers one cache of compiled kernels, beside pytest's own. Names are hashes, so it is never stale.
    Most kernels are compiled quickly: by quick_cc.sh, unless CC is set."""
    if "RRNN_CACHE" not in os.environ and hasattr(config, "cache"):
        folder = config.cache.mkdir("kernels")
        folder.chmod(0o700)
        os.environ["RRNN_CACHE"] = str(folder)
    os.environ.setdefault("CC", str(TESTS / "quick_cc.sh"))  # see quick_c.py
    if key := os.environ.get("RRNN_TRITON_KEY"):  # see compile_gpu.py
        from triton.runtime import cache

        cache.triton_key = lambda: key


@pytest.fixture
def optimised_c() -> Iterator[None]:
    """Compile kernels as users have them, and use none that was compiled quickly."""
    from quick_c import optimised

    with optimised():
        yield


@pytest.fixture(scope="session")
def compiled_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Return `run(script, *arguments)`, which runs a script where Triton does not interpret (triton_compiler.py)."""
    from triton_compiler import triton_compiler

    with triton_compiler(tmp_path_factory.mktemp("compiled")) as run:
        yield run


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Return `golden(name, text)`, which compares a text with tests/golden/NAME; --update-golden rewrites the file."""
    update = request.config.getoption("--update-golden")

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            return
        expected = path.read_text(encoding="utf-8") if path.exists() else None
        if expected is None:
            pytest.fail(
                f"tests/golden/{name} does not exist: run this test with --update-golden and read the file"
            )
        if text != expected:
            difference = difflib.unified_diff(
                expected.splitlines(), text.splitlines(), f"golden/{name}", "now", lineterm=""
            )
            message = "\n".join(difference) or "(they differ only in line ends)"
            pytest.fail(f"{message}\nIf the new text is right, rerun with --update-golden.", pytrace=False)

    return check
