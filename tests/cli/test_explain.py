"""`rrnn explain`, as users call it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rrnn.cli import main
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.experiment import train


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "F"
    train(ClassifyConfig(hidden_size=4, embedding_size=6, layers=1, epochs=1, device="cpu"), folder)
    return folder


def call(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    code = main(["explain", *map(str, args)])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_terminal(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, run_folder, "this was not good [red]", "good", "--units", 2, "--paths", 1)
    assert (code, err) == (0, "")
    assert out.count("the strongest units of the first layer") == 2 and out.count("adds") >= 4
    assert "this was not good [ red ]" in out  # what looks like markup is text
    assert (
        "[ (unknown)" in out
        and "red (unknown)" in out
        and "lost without the word (exact)" in out
        and "(first-order)" in out
    )
    assert (
        out.count("\n  unit ") == 4 and out.count("    finds  ") == 4 and "of the total path weight)" in out
    )


def test_colours(
    run_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TERM", "xterm-256color")
    _, out, _ = call(capsys, run_folder, "this was not good")
    assert "\x1b[30;48;2;" in out


def test_json_and_label(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    margins = []
    for label in ("yes", "no"):
        code, out, _ = call(capsys, run_folder, "not good", "--label", label, "--json")
        (found,) = json.loads(out)["explanations"]
        assert (
            code == 0 and found["target"] == label and [w["token"] for w in found["words"]] == ["not", "good"]
        )
        margins.append(found["margin"])
    assert margins[0] == pytest.approx(-margins[1])


def test_a_map(run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "map.svg"
    code, out, err = call(capsys, run_folder, "this was not good", "--map", file)
    assert code == 0 and err == f"written: {file}\n" and "--map" not in out
    assert file.read_text(encoding="utf-8").startswith('<svg class="heat"')
    assert "--map FILE.svg draws" in call(capsys, run_folder, "this was not good")[1]
    code, out, err = call(capsys, run_folder, "good", "bad", "--map", file)
    assert code == 2 or code == 1
    assert "--map draws one text; got 2 texts" in err
    code, out, err = call(capsys, run_folder, "good " * 201, "--map", tmp_path / "long.svg")
    assert code and "a map has room for 200 words" in err and not (tmp_path / "long.svg").exists()


def test_bytes_that_are_no_text(run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Python hands such arguments over with lone surrogates, which no page can hold."""
    file = tmp_path / "page.html"
    code, out, _ = call(capsys, run_folder, "good \udcff", "--html", file)
    assert code == 0 and "written" in out and "good \\udcff" in file.read_text(encoding="utf-8")


def test_html(run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "page.html"
    code, out, _ = call(capsys, run_folder, "not good", "a good film", "--html", file)
    assert code == 0 and out == f"written: {file}\n"
    text = file.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>") and text.count("<section>") == 2 and "<svg" in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "there is no text to explain"),
        (("",), "there is no word in this text"),
        (("good", "--label", "maybe"), "the labels of this model are"),
        (("good", "--units", "0"), "--units must lie between 1 and 10,000; got 0"),
        (("good", "--paths", "9" * 30), "--paths must lie between 1 and 10,000"),
        (
            ("good", "--html", "page.html", "--json"),
            "--html writes a page and --json prints: leave out one of them",
        ),
        (("good", "--html", "/nowhere/at/all.html"), "there is no folder /nowhere/at to write all.html to"),
        (("good", "--map", "/nowhere/at/all.svg"), "there is no folder /nowhere/at to write all.svg to"),
    ],
)
def test_mistakes(
    run_folder: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], message: str
) -> None:
    code, out, err = call(capsys, run_folder, *args)
    assert (code, out) == (2, "") and message in err and len(err.splitlines()) == 1


def test_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, tmp_path / "none", "good")
    assert code == 2 and err.startswith("error: ")
