"""The pages show what the queue of language models trains, as soon as its folders are there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from documented_code import ROOT

PAGES = ("README.md", "docs/results.md", "docs/reproduce.md", "docs/recipe.md")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the pages, scripts and results, and train everything that the plan has not got, in no time: each training
    is a copy of an earlier one of its row with the settings of the plan, and a perplexity that tells its seed."""
    root = tmp_path_factory.mktemp("checkout")
    for name in ("docs", "benchmarks"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "classify"))
    shutil.copytree(ROOT / "docs" / "results" / "classify", root / "docs" / "results" / "classify")
    shutil.copy(ROOT / "README.md", root)
    run(root, "-c", TRAIN)
    run(root, "docs/tables.py", *PAGES)
    return root


TRAIN = """
import json, shutil, sys
from pathlib import Path

sys.path.append("benchmarks")
import lm_plan, lm_queue
from paper_lm import write_table

folder = Path("docs/results/lm-ptb")
existing = {p.name.partition("+")[0]: p for p in sorted(folder.glob("[!.]*+averaged*-seed-0"))}
existing["lstm-24m"] = existing["lstm-24m-2"]
while waiting := lm_queue.waiting(folder, list(lm_plan.PARTS)):  # finals follow trials
    for training in waiting:
        place = folder / training.place
        shutil.copytree(existing[training.row], place)
        config = json.loads((place / "config.json").read_text())
        layers = 3 if training.row.endswith("24m") else 2
        config |= {"layers": layers, "seed": training.seed, **training.settings}
        (place / "config.json").write_text(json.dumps(config))
        found = json.loads((place / "result.json").read_text())
        number = 60 + training.seed + 0.5 * training.row.startswith("B")
        found |= {"dev_ppl": number, "test_ppl": number if training.test else None}
        (place / "result.json").write_text(json.dumps(found))
for begun in ("tried/.F-10m+begun-seed-0", ".F-24m+begun-seed-0", "equal/.B-24m+trial-0-seed-0"):
    (folder / begun / "run").mkdir(parents=True)  # what an interrupted training leaves behind
write_table(folder)
"""


DIVERGED = """
import sys

sys.path.append("docs")
from figures import rows
from lm_tables import started_too_large

said = started_too_large(rows("lm-ptb/table", label="literal"))
assert said.startswith("RRNN(C) at 24M (71.4) starts too large: perplexity on dev rises to 13 million"), said
assert "only from epoch 94" in said and said.count("too large") == 1, said
"""


def run(root: Path, *command: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, *command], cwd=root, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def lines_of(root: Path, page: str, name: str) -> list[list[str]]:
    """Return the cells of a table on a page, its title first."""
    text = (root / page).read_text(encoding="utf-8")
    part = text.split(f"<!-- table: {name} -->\n")[1].split("<!-- end -->")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines()]


def test_every_row_of_the_readme_is_trained_with_three_seeds(checkout: Path) -> None:
    head, _, *body = lines_of(checkout, "docs/reproduce.md", "quality-terms")
    cells = [cell for line in body for cell in line[1:] if cell]
    columns = [i for i, title in enumerate(head) if title.startswith("PTB")]
    assert len(columns) == 6 and len(cells) > 30
    for line in body:
        for i in columns:
            assert not line[i] or line[i].endswith("/ 3"), line


def test_models_have_equal_terms_where_the_readme_says_so(checkout: Path) -> None:
    head, _, *terms = lines_of(checkout, "docs/reproduce.md", "quality-terms")
    columns = [i for i, title in enumerate(head) if "equal search" in title]
    found = {line[0]: [line[i] for i in columns] for line in terms}
    assert found["LSTM, 3 layers"] == ["", "4 / 3"] and found["LSTM, 2 layers"] == ["", ""]
    m_plus = [found[name] for name in ("RRNN(B) m+", "RRNN(B) m+, gate of the authors' code")]
    assert m_plus == [["", ""], ["4 / 3", "4 / 3"]]
    assert all(found[f"RRNN({name})"] == ["4 / 3", "4 / 3"] for name in "BCF")


def test_the_finding_rests_on_paired_tests_of_all_models(checkout: Path) -> None:
    text, readme = (
        " ".join((checkout / name).read_text(encoding="utf-8").split())
        for name in ("docs/reproduce.md", "README.md")
    )
    assert "By pairs of seeds it is ahead beyond chance in" in readme and "one seed each" not in readme
    assert "By pairs of seeds (paired t, 95 %" in text and "No model has three seeds" not in text
    assert "rows are one seed each" not in text and "Each row is one seed" not in text
    assert (
        "B and m+ at 24M with our recipe, searched on equal terms" in text
    )  # where F leads by 0.5 with each seed
    every = lines_of(checkout, "docs/reproduce.md", "lm-differences")[2:]
    with_equal_terms = [line[1:] for line in every if line[0] == "24M, our recipe, searched on equal terms"]
    assert sorted(with_equal_terms) == [
        ["B", "3", "+0.5", "+0.50 to +0.50", "yes"],
        ["C", "3", "+0.0", "+0.00 to +0.00", ""],
        ["m+", "3", "+0.5", "+0.50 to +0.50", "yes"],
        ["the LSTM", "3", "+0.0", "+0.00 to +0.00", ""],
    ]


def test_a_row_whose_start_diverged_counts_until_a_better_start_is_trained(checkout: Path) -> None:
    run(checkout, "-c", DIVERGED)
    assert "starts too large" not in " ".join((checkout / "README.md").read_text(encoding="utf-8").split())
    rows = [line[0] for line in lines_of(checkout, "docs/reproduce.md", "lm-ptb")]
    assert rows.count("RRNN(C), literal-start") == 3 and rows.count("RRNN(C), literal") == 4  # three at 10M
    starts = lines_of(checkout, "docs/reproduce.md", "lm-starts")[2:]
    assert len(starts) == 5 and all(float(line[1]) > 50 for line in starts)


def test_the_recipe_page_has_nothing_left_to_measure(checkout: Path) -> None:
    page = "docs/recipe.md"
    ablations = lines_of(checkout, page, "lm-ablations")[2:]
    assert not any("not measured yet" in line for line in ablations)
    assert [line[0] for line in ablations if line[3]] == [
        line[0] for line in ablations if "of 400" in line[0] or "shuffle" in line[0] or line[0] == "nothing"
    ]
    best = [line[0] for line in lines_of(checkout, page, "lm-best")[2:]]
    with_shuffle = [f"F, seed {n}, partial shuffle instead of shifted windows" for n in range(3)]
    assert best == ["F, seed 0", "F, seed 1", "F, seed 2", "LSTM, seed 0", *with_shuffle]
    trials = lines_of(checkout, page, "lm-equal")[2:]
    assert len(trials) == 4 and all(float(cell) > 50 for line in trials for cell in line[6:])
    assert "20 of the 20 trials" in (checkout / page).read_text(encoding="utf-8")


def test_the_goal_of_the_best_setting_is_counted(checkout: Path) -> None:
    goals = lines_of(checkout, "docs/results.md", "goals")
    (best,) = [line for line in goals if "the best setting" in line[0]]
    assert best[0].endswith("mean of 3 seeds") and best[1] == "≤ 56.5" and best[3] == "**missed**"


def test_the_chart_tells_the_depths_of_the_lstm_apart(checkout: Path) -> None:
    chart = (checkout / "docs" / "results" / "perplexity.svg").read_text(encoding="utf-8")
    assert ">LSTM, 2 layers<" in chart and ">LSTM, 3 layers<" in chart


def test_rows_name_what_they_have_been_trained_with(checkout: Path) -> None:
    tried = lines_of(checkout, "docs/reproduce.md", "lm-tried")
    assert any("word dropout 0.1, 4 layers" in line[6] for line in tried)
    table = json.loads((checkout / "docs" / "results" / "lm-ptb" / "table.json").read_text(encoding="utf-8"))
    labels = {row["label"] for row in table["rows"]}
    assert labels >= {
        "literal",
        "literal-scaled",
        "averaged",
        "averaged-scaled",
        "equal",
        "equal-scaled",
        "best",
    }
