"""What every test shares: one thread a process, interpreted kernels, hypothesis profiles, golden files."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path

# Before anything imports torch: xdist already runs one process a core.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Before anything imports triton (torch.compile does): without a GPU its kernels are interpreted. A glance at the
# device files, since asking torch would import it into tests that do not need it.
if not any(Path("/dev").glob("nvidia[0-9]*")) and not Path("/dev/dxg").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest

try:
    from hypothesis import settings
except ModuleNotFoundError:  # `pytest -m gpu` runs where little more than torch is installed
    settings = None

if settings is not None:
    # Deadlines measure the machine, not the code. CI draws the same examples each time and keeps no database, so
    # that a failure there is a failure here; `pytest --hypothesis-profile=thorough` looks much further.
    settings.register_profile("dev", deadline=None, max_examples=40)
    settings.register_profile("ci", deadline=None, max_examples=40, derandomize=True, database=None)
    settings.register_profile("thorough", deadline=None, max_examples=1000)
    settings.load_profile("ci" if os.environ.get("CI") else "dev")

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden instead of comparing")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`pytest -m gpu` reads only files with such tests: the others import what is not on every GPU machine."""
    if config.option.markexpr == "gpu" and collection_path.name.startswith("test_"):
        return None if "mark.gpu" in collection_path.read_text(encoding="utf-8") else True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`RRNN_SHARD=2/8`: every eighth test, from the third on. See run_gpu.py."""
    if shard := os.environ.get("RRNN_SHARD"):
        which, of = map(int, shard.split("/"))
        config.hook.pytest_deselected(items=[item for n, item in enumerate(items) if n % of != which])
        items[:] = items[which::of]
    for item in items:
        if item.get_closest_marker("gpu"):  # there the versions of torch and triton are not ours to pin
            item.add_marker(pytest.mark.filterwarnings("default"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1":
            pytest.skip("needs a CUDA device, and TRITON_INTERPRET not set")


def pytest_configure(config: pytest.Config) -> None:
    """One cache of compiled kernels for all workers, beside pytest's own; names are hashes, so it is never stale."""
    if "RRNN_CACHE" not in os.environ and hasattr(config, "cache"):
        folder = config.cache.mkdir("kernels")
        folder.chmod(0o700)
        os.environ["RRNN_CACHE"] = str(folder)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)`: the text equals the file tests/golden/NAME, which --update-golden rewrites."""
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
