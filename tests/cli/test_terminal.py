"""Tables and texts fit the terminal; in files and pipes tables are as wide as they need."""

from __future__ import annotations

import pytest

from rrnn.cli.shared import file_stem, print_markdown
from rrnn.cli.terminal import paragraph, table, terminal_width

HEAD = ("name", "what")
ROWS = [("a", "one two three"), ("long-name-of-it", ""), ("c", "x" * 30)]


def test_columns_are_as_wide_as_their_cells() -> None:
    assert terminal_width() is None
    assert table(HEAD, ROWS).splitlines() == [
        "name             what",
        "a                one two three",
        "long-name-of-it",
        f"c                {'x' * 30}",
    ]
    assert table(HEAD, []) == "name  what"


@pytest.mark.parametrize("width", [100, 60, 45, 30, 20, 8])
@pytest.mark.parametrize("indent", ["", "  "])
def test_a_table_fits(width: int, indent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = table(HEAD, ROWS, indent)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width and all(line.startswith(indent) for line in lines)
    # Nothing is lost: the letters of both columns are there, in the order of their lines.
    assert sorted("".join(text.split())) == sorted(
        "".join("".join(row) for row in (HEAD, *ROWS)).replace(" ", "")
    )


def test_lines_break_between_words_if_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert table(("model", "what"), [("max-plus", "the best of all paths")]).splitlines() == [
        "model     what",
        "max-plus  the best",
        "          of all",
        "          paths",
    ]


def test_paragraphs(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "word " * 60
    assert max(map(len, paragraph(text).splitlines())) in range(70, 81)
    for width in (40, 60, 300):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = paragraph(text, "  ").splitlines()
        assert max(map(len, lines)) <= min(width, 100) and all(line.startswith("  ") for line in lines[1:])


MARKDOWN = (
    "| model | data | our test |\n| --- | --- | --: |\n| RRNN(F) | ptb | 66.3 |\n\n" + "A note. " * 9 + "\n"
)


def test_markdown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    print_markdown(MARKDOWN)
    assert capsys.readouterr().out == MARKDOWN
    monkeypatch.setenv("COLUMNS", "24")
    print_markdown(MARKDOWN)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["model    data  our test", "RRNN(F)  ptb   66.3", ""]
    assert max(map(len, lines)) <= 24


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("F", "F"),
        ("F+o", "F+o"),
        ("QRNN3-ifo", "QRNN3-ifo"),
        ("HGRN:gamma=0.25", "HGRN-gamma-0.25"),
        ("cells/mine.cell", "mine"),
    ],
)
def test_names_of_files(name: str, stem: str) -> None:
    assert file_stem(name) == stem
