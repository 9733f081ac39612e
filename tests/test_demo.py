"""The demonstration: a little of every step runs, says what it should, and leaves its files in one folder."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
DEMO = Path(__file__).parents[1] / "examples" / "demo.py"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """(the folder it was run in, what it printed), of its second run: the first one's files are in its way."""
    folder = tmp_path_factory.mktemp("demo")
    left = folder / "out" / "runs" / "lm-B"
    left.mkdir(parents=True)
    (left / "config.json").write_text('{"task": "lm", "of": "an earlier demonstration"}')
    command = [sys.executable, str(DEMO), "--quick", "--out", "out"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert (result.returncode, result.stderr) == (0, "")
    return folder, result.stdout


def test_steps(demo: tuple[Path, str]) -> None:
    text = demo[1]
    assert re.findall(r"── (\d)\. ", text) == ["1", "2", "3", "4", "5", "6"]
    assert "c²ₜ = f²ₜ ⊙ c²ₜ₋₁ + (c¹ₜ₋₁ + r) ⊙ u²ₜ" in text
    assert re.search(r"never a really bad film +(\+0\.6084) +\1", text)  # by Forward and by paths
    assert re.search(r"ISAN +D +real +6 +\de-\d\d +rational", text) and re.search(r"LSTM .* open", text)
    assert re.search(r"3 of 3 models of the zoo\s+agree", text)


def test_models_have_equal_parameters(demo: tuple[Path, str]) -> None:
    rows = re.findall(
        r"^ (RRNN\([BCF]\)|LSTM) +\d+ +([\d,]+) +([\d.]+) +([\d.]+) +([\d,]+)", demo[1], flags=re.M
    )
    assert [name for name, *_ in rows] == ["RRNN(B)", "RRNN(C)", "RRNN(F)", "LSTM"]
    sizes = [int(size.replace(",", "")) for _, size, *_ in rows]
    assert max(sizes) / min(sizes) < 1.03
    assert all(30 < float(dev) < 700 and float(speed.replace(",", "")) > 100 for _, _, dev, _, speed in rows)


def test_who_learns_and_why(demo: tuple[Path, str]) -> None:
    (row,) = re.findall(r'contain "not" and later "good" +([\d.]+) +([\d.]+)', demo[1])
    b, f = map(float, row)
    assert b < 95 < f  # B cannot, F can
    assert demo[1].count("added by paths that enter at the word (exact)") == 2


def test_files(demo: tuple[Path, str]) -> None:
    folder, text = demo
    assert [path.name for path in folder.iterdir()] == ["out"]
    out = folder / "out"
    for picture in ("F.svg", "negation.svg"):
        ET.parse(out / picture)
    report = out / "report.html"
    assert str(report.resolve()) in text.replace("\n", "")
    page = report.read_text(encoding="utf-8")
    for run in (out / "runs").iterdir():
        assert (run / "result.json").exists() and run.name in page
    assert len(list((out / "runs").iterdir())) == 6
