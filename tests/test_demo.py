"""The demonstration: a little of every step runs, says what it should, and leaves its files in one folder."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from documented_code import parse_command

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
    assert re.search(r"ISAN +D +real +6 +\de-\d\d +rational", text) and re.search(
        r"LSTM .* not rational", text
    )
    assert "3 of 3 models of the zoo agree" in " ".join(text.split())


def test_models_have_equal_parameters_or_equal_units(demo: tuple[Path, str]) -> None:
    rows = re.findall(
        r"^ (RRNN\([BCF]\)|LSTM) +(\d+) +([\d,]+) +([\d.]+) +([\d.]+) +([\d,]+)", demo[1], flags=re.M
    )
    assert [name for name, *_ in rows] == ["RRNN(B)", "RRNN(C)", "RRNN(F)", "LSTM", "LSTM"]
    sizes = [int(size.replace(",", "")) for _, _, size, *_ in rows]
    assert max(sizes[:4]) / min(sizes[:4]) < 1.03 and sizes[4] > max(sizes[:4])
    assert rows[4][1] == rows[2][1] != rows[3][1]
    assert all(30 < float(dev) < 700 and float(speed.replace(",", "")) > 100 for *_, dev, _, speed in rows)
    dev = {tuple(row[:2]): float(row[3]) for row in rows}
    f, lstm = dev["RRNN(F)", rows[2][1]], dev["LSTM", rows[3][1]]
    said = re.search(r"F's dev perplexity is (\d+) % (above|below) the LSTM's", " ".join(demo[1].split()))
    assert (
        said and (said[2] == "above") == (f > lstm) and abs(float(said[1]) - abs(100 * (f / lstm - 1))) < 1.1
    )


def test_every_table_is_announced_by_a_sentence(demo: tuple[Path, str]) -> None:
    text = " ".join(demo[1].split())
    for sentence in (
        "F with weights written by hand, for “not … good”: its score by Forward is the sum over all its paths.",
        "How far the outputs of layers with random weights are from the scores of their units' automata:",
        "The first four models have the same number of parameters; the second LSTM has as many units as F",
        "Why one would still want F: exact explanations (step 5); streaming",
        "Test accuracy in % of one unit",
        "how much each word adds to the margin of “yes”",
    ):
        assert sentence in text, sentence
    speeds = re.findall(r"^ ([\d,]+) +([\d,]+) +([\d,]+) +([\d.]+)× *$", demo[1], flags=re.M)
    assert [row[0] for row in speeds] == ["10", "100", "1,000", "10,000"]
    for _, f, lstm, ratio in speeds:
        assert int(f.replace(",", "")) / int(lstm.replace(",", "")) == pytest.approx(float(ratio), abs=0.06)


def test_it_ends_with_what_to_try_next(demo: tuple[Path, str]) -> None:
    folder, text = demo
    _, _, after = text.partition("What to try next:")
    commands = re.findall(r"^  (rrnn .*)$", after, flags=re.M)
    assert len(commands) == 4
    for line in commands:
        words = shlex.split(line)[1:]
        if "--help" not in words:
            parse_command(words)
        assert all((folder / word).exists() for word in words if word.startswith("out/"))
    page = (folder / "out" / "report.html").read_text(encoding="utf-8")
    assert "What to try next" in page and "is the score of an automaton" in page


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
    assert len(list((out / "runs").iterdir())) == 7
