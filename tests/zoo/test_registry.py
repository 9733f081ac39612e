"""Cells by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from rrnn.automata import Cell, linear, score, sigmoid, tanh
from rrnn.errors import CellError, FormatError
from rrnn.zoo import CELLS, get_cell, ngram, read_cell

GATED = ["B+o", "B-max-plus+o", "C+o", "F+o", "ngram4+o", "ngram2+o"]
NAMES = [*CELLS, *GATED, "ngram1", "ngram64"]


@pytest.mark.parametrize("name", NAMES)
def test_each_is_a_cell_that_round_trips(name: str, tmp_path: Path) -> None:
    cell = get_cell(name).check()
    assert get_cell(name.upper()) == get_cell(name.lower()) == cell
    path = tmp_path / "x.cell"
    path.write_text(cell.to_text(), encoding="utf-8")
    for again in (get_cell(str(path)), get_cell(path), read_cell(path), Cell.from_text(cell.to_text())):
        assert again == cell and again.to_text() == cell.to_text()


@pytest.mark.parametrize("name", GATED)
def test_gates(name: str) -> None:
    plain, gated = get_cell(name.removesuffix("+o")), get_cell(name)
    assert gated.arcs == plain.arcs and gated.states == plain.states
    assert gated != plain and "o = " in gated.to_text() and "o = " not in plain.to_text()


def test_shapes() -> None:
    assert (
        len(get_cell("B").states) == 2 and len(get_cell("C").states) == 3 and len(get_cell("F").states) == 4
    )
    assert len(get_cell("ngram7").states) == 8
    assert get_cell("B-max-plus").semiring_name == "max-plus"
    assert get_cell("F").output_expr == tanh(score)
    assert get_cell("F+o").output_expr == tanh(sigmoid(linear("o", bias=True)) * score)


def test_short_chains_are_b_and_c() -> None:
    assert [a[:2] for a in ngram(1).arcs] == [a[:2] for a in get_cell("B").arcs]
    assert ngram(2).arcs == get_cell("C").arcs and ngram(2).finals == get_cell("C").finals


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("G", "no cell is called 'G': the zoo has B, B-max-plus, C, F"),
        ("SRUU", "Did you mean 'SRU'"),
        ("b_max_plus", "Did you mean 'B-max-plus'"),
        ("ngram", "Did you mean 'ngram4'"),
        ("ngram0", "n from 1 to 64; got 0"),
        ("ngram65", "n from 1 to 64; got 65"),
        ("ngram1000", "no cell is called 'ngram1000'"),
        ("ngram٣", "no cell is called"),
        ("SRU+o", "SRU has no variant with an output gate; B, B-max-plus, C, F, ngramN have"),
        ("+o", "no cell is called"),
        ("", "no cell is called ''"),
        ("x" * 100_000, "no cell is called 'xxx"),
        ("a\0b", "no cell is called"),
    ],
    ids=range(13),
)
def test_unknown_names(name: str, message: str) -> None:
    with pytest.raises(CellError, match=message) as caught:
        get_cell(name)
    assert len(str(caught.value)) < 500


def test_names_are_text() -> None:
    with pytest.raises(CellError, match="a cell is named by a str; got int"):
        get_cell(3)  # type: ignore[arg-type]
    with pytest.raises(CellError, match="n from 1 to 64; got '4'"):
        ngram("4")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["missing.cell", "no/such", "a\0b.cell", "x" * 5000 + ".cell", "." + "/"])
def test_unreadable_files(name: str) -> None:
    with pytest.raises(FormatError, match="cannot read the cell"):
        get_cell(name)


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = get_cell("B").to_text()
    Path("mine").write_text("\ufeff" + text, encoding="utf-8")  # as some editors write it
    assert get_cell("mine") == get_cell("B")
    Path("bad.cell").write_text(text.replace("loop q1", "lop q1"), encoding="utf-8")
    with pytest.raises(FormatError, match=r"bad.cell:10: cannot read 'lop q1 : f'"):
        get_cell("bad.cell")
    Path("latin.cell").write_bytes(text.encode() + b"\xff")
    with pytest.raises(FormatError, match=r"latin.cell: cannot read the cell: .*utf-8"):
        get_cell("latin.cell")
    Path("huge.cell").write_text("#" * 1_000_000)
    with pytest.raises(FormatError, match="at most 200000 characters"):
        get_cell("huge.cell")
    Path("B").write_text("not a cell")
    assert get_cell("B").name == "B"  # the zoo comes first
