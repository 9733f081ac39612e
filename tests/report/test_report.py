"""The report: whole, self-contained, with the numbers of the runs, and nothing of theirs taken for HTML."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import shutil
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rrnn.errors import RunError
from rrnn.report import report_page, write_report
from rrnn.report.pages import duration
from rrnn.report.run_summaries import read_runs, short_names
from rrnn.tasks.classify import examples
from rrnn.tasks.runs import Run

BAD = "<script>alert(1)</script>"
"""A word of the texts: see conftest.py."""
VOID = {"meta", "br"}


class Outline(HTMLParser):
    """What a browser makes of it: elements that close in order, headings, table rows, text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[tuple[int, str]] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append((int(tag[1]), ""))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        self.text += data
        if self.open and re.fullmatch("h[1-6]", self.open[-1]):
            level, before = self.headings[-1]
            self.headings[-1] = (level, before + data)
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


def cells_of(outline: Outline, name: str) -> list[str]:
    return next(row for row in outline.rows if row and row[0] == name)


@pytest.fixture(scope="module")
def everything(lm_runs: list[Path], text_runs: list[Path]) -> tuple[str, Outline]:
    text = report_page([*lm_runs, *text_runs])
    return text, Outline(text)


def test_it_calls_nobody(everything: tuple[str, Outline]) -> None:
    text, outline = everything
    links = [
        attrs.get("href") or attrs.get("src") for _, attrs in outline.tags if {"href", "src"} & attrs.keys()
    ]
    ids = {attrs["id"] for _, attrs in outline.tags if "id" in attrs}
    assert links and all(link and link[0] == "#" and link[1:] in ids for link in links)
    assert not re.findall(r"url\(|@import|https?://(?!www\.w3\.org/)", text)
    assert not {tag for tag, _ in outline.tags} & {"script", "link", "iframe", "object", "img"}


def test_what_users_wrote_stays_text(everything: tuple[str, Outline]) -> None:
    """Folder, words, labels: each of them holds a tag."""
    text, outline = everything
    assert BAD in outline.text and "<b>yes</b>" in outline.text and "<i onclick='x()'>F<" in outline.text
    assert not {tag for tag, _ in outline.tags} & {"script", "b"}
    assert not any(name.startswith("on") for _, attrs in outline.tags for name in attrs)
    assert "&lt;script&gt;" in text


def test_headings_go_down_step_by_step(everything: tuple[str, Outline]) -> None:
    levels = [level for level, _ in everything[1].headings]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))
    titles = [text for _, text in everything[1].headings]
    for title in ("Training", "Automata", "Samples", "Examples", "What units look for", "Configuration"):
        assert title in titles
    assert all(titles)


def test_pictures_have_titles(everything: tuple[str, Outline]) -> None:
    text, outline = everything
    pictures = re.findall(r"<svg.*?</svg>", text, flags=re.S)
    # charts, the automata of F (twice: with a gate, and without) and B, and two entry maps of each classifier
    assert len(pictures) == 2 * 3 + 3 + 6
    assert all(re.search(r"<title>[^<]+</title>\s*<desc>[^<]+</desc>", picture) for picture in pictures)
    assert all(attrs.get("role") == "img" for tag, attrs in outline.tags if tag == "svg")


def test_the_table_has_the_runs_numbers(lm_runs: list[Path], text_runs: list[Path], everything: Any) -> None:
    outline = everything[1]
    for folder, dev, test in ((lm_runs[0], "dev_ppl", "test_ppl"), (text_runs[0], "dev", "test")):
        result = json.loads((folder / "result.json").read_text())
        cells = cells_of(outline, folder.name)
        assert cells[2] == f"{result[dev]:.2f}"
        assert cells[3] == ("–" if result[test] is None else f"{result[test]:.2f}")
        assert cells[4] == f"{result['parameters']:,}"
        assert cells[6] == f"{result['epochs']} best {result['best_epoch']}"
    assert cells_of(outline, "lm-F")[1] == "F" and cells_of(outline, "lm-lstm")[1] == "LSTM"


def test_the_best_of_each_column_is_marked(lm_runs: list[Path]) -> None:
    results = [json.loads((folder / "result.json").read_text())["dev_ppl"] for folder in lm_runs]
    assert f"<strong>{min(results):.2f}</strong>" in report_page(lm_runs)
    assert f"<strong>{max(results):.2f}</strong>" not in report_page(lm_runs)
    assert f"<strong>{results[0]:.2f}" not in report_page(
        lm_runs[:1]
    )  # alone there is nothing to be better than


def test_configurations_stand_side_by_side(lm_runs: list[Path], everything: tuple[str, Outline]) -> None:
    outline = everything[1]
    assert cells_of(outline, "hidden_size") == ["hidden_size", "8", "6"] and cells_of(outline, "cell") == [
        "cell",
        "F",
        "lstm",
    ]
    assert not [row for row in outline.rows if row and row[0] == "bptt"]  # the same for all: not in the table
    alone = Outline(report_page(lm_runs[:1]))
    assert "All options" in alone.text and "bptt7" in alone.text


def test_automata_with_equations(everything: tuple[str, Outline]) -> None:
    outline = everything[1]
    assert (
        "c²ₜ = f²ₜ ⊙ c²ₜ₋₁ + (c¹ₜ₋₁ + r) ⊙ u²ₜ" in outline.text and "cₜ = max{fₜ + cₜ₋₁, uₜ}" in outline.text
    )
    assert "This model is no automaton: it is not rational over" in outline.text  # the LSTM
    assert (
        "not known to be" not in outline.text and "predictions can be explained exactly" not in outline.text
    )


def test_looks(everything: tuple[str, Outline], text_runs: list[Path]) -> None:
    text, outline = everything
    assert text.count("<blockquote>") == 4
    examples = text.count('<article class="example">')
    assert 2 <= examples <= 3 and text.count('<div class="explained">') == 3 * examples
    assert "LSTM has no automata inside" in outline.text
    # over max-plus no phrase lowers a score
    assert len([row for row in outline.rows if row and re.fullmatch(r"\d (for|against) no", row[0])]) == 4
    head = ["unit", "phrases that speak for no", "phrases that speak against no"]
    first = outline.rows.index(head) + 1
    for unit, pro, con in outline.rows[first : first + 4]:
        assert unit in "0123"
        assert all(float(x) >= 0 for x in re.findall(r"[+-]\d+\.\d\d", pro.replace("−", "-")))
        assert all(float(x) <= 0 for x in re.findall(r"[+-]\d+\.\d\d", con.replace("−", "-")))


def test_tables_are_announced_and_the_page_says_what_to_try_next(
    everything: tuple[str, Outline], lm_runs: list[Path], text_runs: list[Path]
) -> None:
    outline = everything[1]
    assert "The perplexity of each model on the validation and test set (lower is better)" in outline.text
    assert "The accuracy of each model on the validation and test set (higher is better)" in outline.text
    assert outline.text.count("The options in which the runs differ") == 2
    assert outline.text.count("Every unit of") == 2  # both have an LSTM
    assert [level for level, _ in outline.headings][-1] == 2 and outline.headings[-1][1] == "What to try next"
    folders = [
        folder
        for folder in [*lm_runs, *text_runs]
        if shlex.quote(str(folder)) in outline.text.partition("try next")[2]
    ]
    assert len(folders) >= 2
    alone = Outline(report_page(lm_runs[:1])).text
    assert "best of each column" not in alone and "Every unit of" not in alone
    assert "rrnn explain" not in alone and "rrnn lm generate" in alone


def test_long_names_of_runs_are_not_clipped(lm_runs: list[Path], tmp_path: Path) -> None:
    names = ["not-good-B-max-plus", "x" * 60]
    folders = [shutil.copytree(folder, tmp_path / name) for folder, name in zip(lm_runs, names, strict=True)]
    text = report_page(folders)
    assert "…" not in "".join(re.findall(r"<svg class=\"chart\".*?</svg>", text, flags=re.S))
    for name in names:
        assert text.count(f">{name}</text>") == 3  # in each chart


def test_equal_runs_give_equal_pages(lm_runs: list[Path]) -> None:
    assert report_page(lm_runs) == report_page(
        [*lm_runs, lm_runs[0]]
    )  # a folder that is named twice is shown once


def test_write_report_replaces_a_file_as_a_whole(lm_runs: list[Path], tmp_path: Path) -> None:
    file = tmp_path / "r.html"
    file.write_text("old")
    assert write_report(lm_runs[:1], file) == file
    assert file.read_text(encoding="utf-8").endswith("</html>\n") and list(tmp_path.iterdir()) == [file]
    with pytest.raises(RunError):
        write_report([tmp_path], file)
    assert file.stat().st_size > 5000  # what was there is still there


# ---- runs that are not whole ----------------------------------------------------------------------------------------


def copied(folder: Path, to: Path) -> Path:
    return Path(shutil.copytree(folder, to / "copy"))


def test_a_run_that_has_just_begun(lm_runs: list[Path], tmp_path: Path) -> None:
    folder = copied(lm_runs[0], tmp_path)
    for path in [*folder.glob("*.safetensors"), folder / "metrics.jsonl", folder / "result.json"]:
        path.unlink()
    outline = Outline(report_page([folder]))
    assert (
        "No epoch has finished yet." in outline.text and "The model of copy cannot be loaded" in outline.text
    )
    assert cells_of(outline, "copy")[2:4] == ["–", "–"]
    Outline(report_page([folder, lm_runs[0]]))


def test_a_resumed_run_has_no_result_yet(lm_runs: list[Path], tmp_path: Path) -> None:
    folder = copied(lm_runs[0], tmp_path)
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"epoch": 3, "train_loss": 1.0, "dev_ppl": 1.5, "dev_loss": 0.4}) + "\n")
    cells = cells_of(Outline(report_page([folder])), "copy")
    assert cells[2:4] == ["1.50", "–"] and cells[6] == "3 best 3"


def test_numbers_that_are_none(lm_runs: list[Path], tmp_path: Path) -> None:
    folder = copied(lm_runs[0], tmp_path)
    record = {"epoch": 3, "train_loss": "<b>", "dev_ppl": float("inf"), "seconds": None, "dev_loss": True}
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(json.dumps(record) + "\n")
    outline = Outline(report_page([folder]))
    assert cells_of(outline, "copy")[6].startswith("3 best ") and "inf" not in cells_of(outline, "copy")


def test_data_that_have_gone(text_runs: list[Path], tmp_path: Path) -> None:
    folder = copied(text_runs[0], tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"dev": str(tmp_path / "gone.txt")}))
    for path in folder.glob("*.safetensors"):
        path.unlink()
    shutil.copy(text_runs[0] / "best.safetensors", folder)
    text = Outline(report_page([folder])).text
    assert "gone.txt" in text and "Configuration" in text


def test_a_model_that_cannot_be_explained(text_runs: list[Path], tmp_path: Path) -> None:
    """Weights that ran away are said to have done so, and the other model is still explained."""
    folder = copied(text_runs[0], tmp_path)
    run = Run.open(folder)
    best = run.load("best")
    assert best is not None
    run.save("best", {name: weight * float("nan") for name, weight in best.tensors.items()}, best.meta)
    text = report_page([folder, text_runs[1]])
    assert "Its weights have diverged" in Outline(text).text
    assert 1 <= text.count("<details><summary>Paths and units") <= 3


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", "{", "config.json is damaged"),
        ("config.json", '{"task": "dance"}', "has the task 'dance'; reports cover classify, lm"),
        ("metrics.jsonl", "{\n", "metrics.jsonl is damaged: a line of it is not JSON"),
        ("metrics.jsonl", "3\n", "metrics.jsonl is damaged: each line must be a JSON object"),
        ("result.json", "nothing", "result.json is damaged"),
    ],
)
def test_damage(lm_runs: list[Path], tmp_path: Path, name: str, content: str, message: str) -> None:
    folder = copied(lm_runs[0], tmp_path)
    (folder / name).write_text(content)
    with pytest.raises(RunError, match=re.escape(message)):
        report_page([folder])


def test_no_run(lm_runs: list[Path], tmp_path: Path) -> None:
    for folders, message in (
        ([], "there is no run to report on"),
        ([tmp_path / "none"], "there is no such folder"),
        ([tmp_path], "there is no config.json in it"),
        ([lm_runs[0], lm_runs[0] / "config.json"], "config.json is a file, and runs are folders"),
    ):
        with pytest.raises(RunError, match=re.escape(message)):
            read_runs(folders)


def test_a_folder_of_runs_stands_for_them(lm_runs: list[Path], tmp_path: Path) -> None:
    """At any depth, in order, each once; other folders and files beside them do not matter."""
    for seed in (1, 0):
        shutil.copytree(lm_runs[0], tmp_path / "runs" / "search" / f"seed-{seed}")
    (tmp_path / "runs" / "empty").mkdir()
    (tmp_path / "runs" / "search" / "best.json").write_text("{}")
    found = read_runs([lm_runs[1], tmp_path / "runs", tmp_path / "runs" / "search" / "seed-1"])
    assert [run.name for run in found] == [lm_runs[1].name, "seed-0", "seed-1"]


# ---- small parts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["/runs/a", "/runs/b"], ["a", "b"]),
        (["/x/a", "/y/a"], ["x/a", "y/a"]),
        (["/x/z/a", "/y/z/a", "/y/z/b"], ["x/z/a", "y/z/a", "y/z/b"]),
    ],
)
def test_names(paths: list[str], names: list[str]) -> None:
    assert short_names([Path(path) for path in paths]) == names


def test_durations() -> None:
    shown = [duration(seconds) for seconds in (0, 59.94, 59.96, 125, 3599.6, 7260)]
    assert shown == ["0.0 s", "59.9 s", "1 min 00 s", "2 min 05 s", "1 h 00 min", "2 h 01 min"]


def test_a_users_cell_has_its_own_name(tmp_path: Path) -> None:
    from rrnn.zoo import get_cell

    text = get_cell("B").to_text()
    Run.create(
        tmp_path / "r", {"task": "lm", "cell": "/home/me/mine.cell", "data": "/tmp/my <texts>"}, text
    ).close()
    (run,) = read_runs([tmp_path / "r"])
    assert (run.model, run.data) == ("B", "my <texts>")
    assert escape("Language models on my <texts>") in report_page([tmp_path / "r"])


def test_a_configuration_may_hold_anything(tmp_path: Path) -> None:
    """Someone else's run: every value of it is text."""
    from rrnn.zoo import get_cell

    values = {"task": "lm", "cell": BAD, "data": BAD, "layers": BAD, "hidden": [BAD], BAD: {BAD: BAD}}
    Run.create(tmp_path / "r", values, get_cell("B").to_text()).close()
    text = report_page([tmp_path / "r"])
    assert "<script" not in text and Outline(text).text.count(BAD) >= 8


def test_the_documentation_has_the_right_numbers() -> None:
    text = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")
    assert f"(over {examples.RANKED_TEXTS} texts)" in text
    assert f"strongest phrases in {examples.PHRASE_TEXTS} texts" in text
