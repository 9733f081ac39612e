"""The source distribution and the wheel build, hold what they must, and work in a clean environment."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

import rrnn

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent
RUN = ROOT / "tests" / "fixtures" / "trained" / "classify"


def run(*command: str | Path, cwd: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    result = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


class Built(NamedTuple):
    sdist: Path
    wheel: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build the source distribution from the tree, and the wheel from what the source distribution holds."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return Built(sdist, wheel)


def package_files() -> dict[str, bytes]:
    """Return the files of the package in the tree, by their paths below src."""
    paths = (path for path in (ROOT / "src").rglob("*") if path.is_file())
    return {
        path.relative_to(ROOT / "src").as_posix(): path.read_bytes()
        for path in paths
        if "__pycache__" not in path.parts and not path.name.startswith(".")
    }


def test_the_wheel_holds_the_package_and_nothing_else(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        content = {name: wheel.read(name) for name in wheel.namelist()}
    about = f"rrnn-{rrnn.__version__}.dist-info/"
    assert {name: text for name, text in content.items() if not name.startswith(about)} == package_files()
    # Kernels are made of .c and .h files; the others are the explorer's page and the reports.
    assert {".c", ".h", ".html", ".css", ".js", ".svg", ".typed", ".woff2"} <= {
        Path(name).suffix for name in content
    }
    font = "src/rrnn/explorer/static/FONT-LICENSE.txt"
    for name in ("LICENSE", font):
        assert content[f"{about}licenses/{name}"] == (ROOT / name).read_bytes()
    assert f"\nVersion: {rrnn.__version__}\n" in content[f"{about}METADATA"].decode()


def test_the_source_distribution_holds_the_project(built: Built) -> None:
    start = f"rrnn-{rrnn.__version__}/"
    with tarfile.open(built.sdist) as sdist:
        names = {name.removeprefix(start) for name in sdist.getnames() if name.startswith(start)}
        assert len(names) == len(sdist.getnames())
    assert {f"src/{name}" for name in package_files()} <= names
    texts = {path.name for path in ROOT.glob("*.md")} | {"CITATION.cff", "LICENSE", "PKG-INFO"}
    tools = {
        ".ci/run",
        ".github/workflows/ci.yml",
        "Makefile",
        "constraints.txt",
        "mkdocs.yml",
        "pyproject.toml",
    }
    assert texts | tools <= names
    assert {"benchmarks", "docs", "examples", "tests"} <= {name.split("/")[0] for name in names}
    assert "tests/test_package.py" in names and f"{RUN.relative_to(ROOT).as_posix()}/config.json" in names
    assert not [
        name for name in names if "__pycache__" in name or name.startswith((".venv", ".git/", "site/"))
    ]


class Environment(NamedTuple):
    """A fresh virtual environment with the package."""

    scripts: Path
    packages: Path

    @property
    def python(self) -> Path:
        return self.scripts / "python"

    @property
    def rrnn(self) -> Path:
        return self.scripts / "rrnn"


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def installed(
    built: Built, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Environment:
    home = tmp_path_factory.mktemp("clean") / "venv"
    venv.create(home, with_pip=False)
    scripts = home / ("Scripts" if os.name == "nt" else "bin")
    purelib = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(run(scripts / "python", "-c", purelib, cwd=home).strip())

    def lend_dependencies() -> None:
        """Make our dependencies visible: downloading torch again would prove nothing. (A .pth in a folder named by a
        .pth is not read, so the sources we are installed from stay out of sight.)"""
        (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")

    options = ["--no-deps", "--no-index"]
    if request.param == "sdist":  # building needs the build system; what is installed there stays untouched
        lend_dependencies()
        options += ["--no-build-isolation", "--ignore-installed"]
    pip = [sys.executable, "-m", "pip", "--python", scripts / "python"]
    run(*pip, "install", *options, getattr(built, request.param), cwd=home)
    lend_dependencies()
    return Environment(scripts, packages)


def test_the_installed_package_is_imported(installed: Environment, tmp_path: Path) -> None:
    code = "import rrnn; print(rrnn.__file__); print(rrnn.__version__); from rrnn import *"
    where, version = run(installed.python, "-c", code, cwd=tmp_path).split("\n")[:2]
    assert Path(where).is_relative_to(installed.packages)
    assert version == rrnn.__version__


def test_the_installed_command_tells_its_version(installed: Environment, tmp_path: Path) -> None:
    assert run(installed.rrnn, "--help", cwd=tmp_path).startswith("usage: rrnn")
    assert run(installed.rrnn, "--version", cwd=tmp_path) == f"rrnn {rrnn.__version__}\n"
    assert run(installed.python, "-m", "rrnn", "--version", cwd=tmp_path) == f"rrnn {rrnn.__version__}\n"


def test_the_installed_command_works(installed: Environment, tmp_path: Path) -> None:
    """Cells, compiler, kernels, pictures and reports together, none of it from the source tree."""
    run(installed.rrnn, "draw", "B", "-o", "b.svg", cwd=tmp_path)
    assert (tmp_path / "b.svg").read_text(encoding="utf-8").startswith("<svg")
    assert "digraph" in (tmp_path / "b.dot").read_text(encoding="utf-8")
    assert "DIFFERENT" not in run(installed.rrnn, "verify", "F", "B-max-plus", cwd=tmp_path)
    run(installed.rrnn, "report", RUN, "-o", "report.html", cwd=tmp_path)
    assert "</html>" in (tmp_path / "report.html").read_text(encoding="utf-8")


EXAMPLE = """
import torch, rrnn
layer = rrnn.RationalRNN(rrnn.get_cell("F"), input_size=6, hidden_size=4)
output, state = layer(torch.randn(5, 2, 6))
words = {"not": torch.randn(6), "good": torch.randn(6)}
print(tuple(output.shape), rrnn.to_wfsa(layer, unit=3, alphabet=words).best_path(("not", "not", "good")))
"""


def test_the_readmes_example_runs(installed: Environment, tmp_path: Path) -> None:
    assert run(installed.python, "-c", EXAMPLE, cwd=tmp_path).startswith("(5, 2, 4) ")
