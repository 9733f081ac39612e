"""The paper's numbers beside ours."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from rrnn.errors import RunError
from rrnn.tasks.paper_tables import (
    PAPER_PERPLEXITIES,
    perplexities_to_json,
    perplexities_to_markdown,
    perplexity_table,
    read_row,
)
from rrnn.tasks.runs import Run


def make_run(folder: Path, *, finished: bool = True, parameters: int = 9_950_000, **config: object) -> Path:
    """A run as a training leaves it, without the training."""
    facts = {"parameters": parameters, "tokens": {}, "data_sha256": ""}
    values = {"task": "lm", "data": "ptb", "cell": "F", "layers": 2, "hidden": 624, "facts": facts}
    with Run.create(folder, values | config) as run:
        for epoch, ppl in enumerate([80.0, 70.04, 71.0], 1):
            run.log({"epoch": epoch, "train_loss": 4.0, "dev_ppl": ppl, "tokens_per_s": 1e6})
    if finished:
        result = {"parameters": parameters, "epochs": 3, "best_epoch": 2, "dev_ppl": 70.04, "test_ppl": 67.06}
        (folder / "result.json").write_text(json.dumps(result | {"tokens_per_s": 1.5e6}))
    return folder


def test_runs_find_their_row(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / "f"),
        make_run(tmp_path / "b", cell="b+O", layers=3, parameters=23_900_000),
        make_run(tmp_path / "python", data="python"),
        make_run(tmp_path / "small", parameters=8_000_000),
    ]
    rows = perplexity_table(runs)
    found = {our.run: paper for paper, our in rows if our}
    assert (found[str(tmp_path / "f")].test, found[str(tmp_path / "b")].test) == (66.3, 65.2)
    assert found[str(tmp_path / "python")] is None and found[str(tmp_path / "small")] is None
    assert [paper for paper, _ in rows if paper] == list(PAPER_PERPLEXITIES)


def test_a_folder_may_hold_runs_of_other_tasks_too(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one")
    with Run.create(tmp_path / "other", {"task": "classify"}):
        pass
    assert [our.run for _, our in perplexity_table([tmp_path]) if our] == [str(one)]
    with pytest.raises(RunError, match="other is of the task 'classify'"):
        perplexity_table([tmp_path / "other"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match=r"empty contains no run of a language model"):
        perplexity_table([tmp_path / "empty"])


def test_markdown(tmp_path: Path) -> None:
    rows = perplexity_table([make_run(tmp_path / "one"), make_run(tmp_path / "two", finished=False)])
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in perplexities_to_markdown(rows).splitlines()
    ]
    assert len({len(line) for line in lines}) == 1
    assert len({len(line) for line in perplexities_to_markdown(rows).splitlines()}) == 1  # aligned
    ours = [line for line in lines if line[-1].startswith(str(tmp_path))]
    assert [line[:-1] for line in ours] == [
        ["RRNN(F)", "ptb", "2", "9.95M", "69.5", "66.3", "70.0", "67.1", "3", "1,500,000"],
        ["RRNN(F)", "ptb", "2", "9.95M", "69.5", "66.3", "70.0", "–", "3", "1,000,000"],
    ]


def test_json(tmp_path: Path) -> None:
    rows = json.loads(json.dumps(perplexities_to_json(perplexity_table([make_run(tmp_path / "one")]))))
    (row,) = [row for row in rows if row["ours"]]
    assert row["paper"]["test"] == 66.3 and row["ours"]["test"] == 67.06 and row["ours"]["hidden"] == 624


def test_a_run_that_went_on_has_no_test_figure_yet(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "one")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"epoch": 4, "dev_ppl": 69.0, "tokens_per_s": 2e6}) + "\n")
    row = read_row(folder)
    assert (row.dev, row.test, row.epochs) == (69.0, None, 4)


def test_a_run_that_has_just_begun(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "one", finished=False)
    (folder / "metrics.jsonl").unlink()
    assert read_row(folder).dev is None
    assert "| – " in perplexities_to_markdown(perplexity_table([folder]))


def test_what_is_no_language_model(tmp_path: Path) -> None:
    Run.create(tmp_path / "other", {"task": "classify"}).close()
    with pytest.raises(RunError, match="of the task 'classify', not a language model"):
        read_row(tmp_path / "other")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("result.json", "{", "result.json is damaged"),
        ("result.json", "[]", "result.json is damaged"),
        ("metrics.jsonl", '{"epoch": 1}\n', "metrics.jsonl .* is damaged"),
        ("config.json", '{"task": "lm", "hidden": 8}', "no facts.parameters"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, file: str, text: str, message: str) -> None:
    folder = make_run(tmp_path / "one")
    (folder / file).write_text(text)
    with pytest.raises(RunError, match=message):
        read_row(folder)


def test_the_numbers_are_the_papers() -> None:
    """Against the paper's source, where it is at hand: RRNN_PAPER names the .tex file."""
    if not (path := os.environ.get("RRNN_PAPER")):
        pytest.skip("needs RRNN_PAPER, the paper's .tex")
    names = {r"\lstm": "lstm", r"\unigram": "B", r"\unimp": "B-max-plus", r"\bigram": "C", r"\both": "F"}
    line = re.compile(r"(\\\w+)\s*&\s*(\d)\s*&\s*(\d+)M\s*&\D*([\d.]+)\D*&\D*([\d.]+)")
    found = [
        (names[m[1]], int(m[2]), int(m[3]) * 10**6, float(m[4]), float(m[5]))
        for m in line.finditer(Path(path).read_text(encoding="utf-8"))
        if m[1] in names
    ]
    assert found == [(row.cell, row.layers, row.budget, row.dev, row.test) for row in PAPER_PERPLEXITIES]
