"""The tables and charts on the pages are those that the result files give."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from documented_code import ROOT

from rrnn.zoo import CELLS, MODELS, get_cell

SCRIPT = ROOT / "docs" / "tables.py"
RESULTS = ROOT / "docs" / "results.md"


def tables(*args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *map(str, args)], capture_output=True, text=True)


def test_up_to_date() -> None:
    done = tables("--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_table_is_on_a_page() -> None:
    places = (
        RESULTS,
        *(
            RESULTS.with_name(f"{name}.md")
            for name in ["reproduce", "recipe", "theory", "compiler", "export", "classification"]
        ),
        ROOT / "README.md",
    )
    pages = "".join(place.read_text(encoding="utf-8") for place in places)
    sources = "".join(path.read_text(encoding="utf-8") for path in SCRIPT.parent.glob("*.py"))
    names = re.findall(r"^@named\ndef (\w+)", sources, re.M)
    assert names
    for name in names:
        assert f"<!-- table: {name.replace('_', '-')} -->" in pages


def test_every_word_for_families_is_used_by_two_models() -> None:
    page = (ROOT / "docs" / "compiler.md").read_text(encoding="utf-8")
    lines = page.split("<!-- table: constructs -->\n")[1].split("<!-- end -->")[0].splitlines()[2:]
    users = {word: names.split(", ") for _, word, names, _ in (re.split(r"\s*\|\s*", line) for line in lines)}
    assert len(users) == 12 and all(len(names) >= 2 for names in users.values())
    assert {name for names in users.values() for name in names}.isdisjoint({"B", "C", "F", "SRU", "QRNN2"})


def test_every_chart_is_on_a_page() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in RESULTS.parent.glob("*.md"))
    source = (SCRIPT.parent / "charts.py").read_text(encoding="utf-8")
    names = re.findall(r'^    "([\w/-]+)\.svg": ', source, re.M)
    assert len(names) == 7
    for name in names:
        assert f"(results/{name}.svg)" in pages, name


def test_curves_are_those_of_all_rows() -> None:
    folder = RESULTS.parent / "results" / "lm-ptb"
    curves = (folder / "curves.svg").read_text(encoding="utf-8")
    for row in json.loads((folder / "table.json").read_text(encoding="utf-8"))["rows"]:
        assert f">{row['run'].replace('-seed-', ', seed ')}: " in curves


def test_a_figure_that_drifted_is_found_and_corrected(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = RESULTS.read_text(encoding="utf-8")
    page.write_text(text.replace("| **missed** |", "| yes |", 1), encoding="utf-8")
    assert page.read_text(encoding="utf-8") != text
    assert tables("--check", page).returncode == 1 and page.read_text(encoding="utf-8") != text
    assert tables(page).returncode == 0 and page.read_text(encoding="utf-8") == text


def test_the_table_of_ranks_has_the_whole_zoo() -> None:
    """If not, run python benchmarks/rank.py --json docs/results/rank.json, and then python docs/tables.py."""
    rows = json.loads((ROOT / "docs" / "results" / "rank.json").read_text(encoding="utf-8"))["rows"]
    numbers = [n for n in MODELS if n not in CELLS or not get_cell(n).semiring.components]
    assert [row["name"] for row in rows] == numbers
