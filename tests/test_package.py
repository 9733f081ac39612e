"""The wheel: builds, holds what it must, and works in a clean environment outside of the source tree."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent


def run(*command: str | Path, cwd: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    result = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    (path,) = out.glob("*.whl")
    return path


def test_contents(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "rrnn/py.typed" in names
    assert "rrnn/cli/__init__.py" in names
    kinds = {".c", ".h", ".html", ".css", ".js", ".svg"}  # what kernels are made of, and the explorer's page
    sources = {path.relative_to(ROOT / "src") for path in (ROOT / "src").rglob("*") if path.suffix in kinds}
    assert {path.suffix for path in sources} == kinds and {path.as_posix() for path in sources} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"rrnn"}  # no tests, docs or examples


def test_clean_environment(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    scripts = home / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / "python"
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        "--no-index",
        wheel,
        cwd=tmp_path,
    )

    # Only now lend it our dependencies (a .pth in a folder named by a .pth is not read, so the sources we are
    # installed from stay out of sight); downloading torch again would prove nothing.
    site = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip()
    )
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")

    where = run(python, "-c", "import rrnn; print(rrnn.__file__); from rrnn import *", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(site)
    assert run(scripts / "rrnn", "--help", cwd=tmp_path).startswith("usage: rrnn")
    assert run(scripts / "rrnn", "--version", cwd=tmp_path) == run(
        python, "-m", "rrnn", "--version", cwd=tmp_path
    )
    # Cells, compiler, kernels and automata together, none of it from the source tree.
    assert "DIFFERENT" not in run(scripts / "rrnn", "verify", "F", "B-max-plus", cwd=tmp_path)
