"""`rrnn draw`, as users call it."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from rrnn.cli import main
from rrnn.draw import to_dot, to_svg
from rrnn.draw.paper_figures import FIGURES
from rrnn.wfsa.io import save
from rrnn.zoo import get_cell
from rrnn.zoo.paper_automata import automaton_b


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_a_cell_of_the_zoo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "F.svg"
    assert main(["draw", "F", "-o", str(out)]) == 0
    assert text(out) == to_svg(get_cell("F"))
    assert text(tmp_path / "F.dot") == to_dot(get_cell("F"))
    assert capsys.readouterr().out == f"{out}\n{tmp_path / 'F.dot'}\n"


@pytest.mark.parametrize(
    ("automaton", "stem"),
    [
        ("F", "F"),
        ("F+o", "F+o"),
        ("F:g=tanh,b_u", "F-g-tanh-b_u"),
        ("folder/mine.cell", "mine"),
        ("folder/machine.json", "machine"),
    ],
)
def test_without_an_output(
    automaton: str,
    stem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The picture has the automaton's name and is written here; the command says so."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine.cell").write_text(get_cell("C").to_text(), encoding="utf-8")
    save(automaton_b("ab", {"a": 0.5, "b": 2.0}, 0.25), tmp_path / "folder" / "machine.json")
    monkeypatch.chdir(tmp_path)
    assert main(["draw", automaton]) == 0
    assert names(tmp_path) == sorted(["folder", f"{stem}.dot", f"{stem}.svg"])
    assert capsys.readouterr().out == f"{stem}.svg\n{stem}.dot\n"


def test_a_picture_does_not_replace_its_automaton(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ab.dot").write_text("0 1 1 0.5\n1\n")
    assert (
        main(["draw", str(tmp_path / "ab.dot"), "--format", "openfst", "-o", str(tmp_path / "ab.svg")]) == 2
    )
    assert "would replace the file that it draws" in capsys.readouterr().err
    assert names(tmp_path) == ["ab.dot"]


def test_an_openfst_file_with_a_symbol_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ab.fst").write_text("0 1 a 0.5\n1\n")
    (tmp_path / "ab.syms").write_text("<eps> 0\na 1\n")
    words = ["draw", str(tmp_path / "ab.fst"), "-o", str(tmp_path / "ab.svg")]
    assert main(words) == 2 and "isymbols" in capsys.readouterr().err
    assert main([*words, "--isymbols", str(tmp_path / "ab.syms")]) == 0
    assert ">a" in text(tmp_path / "ab.svg")
    for more in ([], ["--paper"]):
        cell = ["draw", "F", *more, "-o", str(tmp_path / "F.svg"), "--isymbols", str(tmp_path / "ab.syms")]
        assert main(cell) == 2 and "only an OpenFst file has a symbol table" in capsys.readouterr().err


def test_dot_only(tmp_path: Path) -> None:
    assert main(["draw", "ngram3", "--output", str(tmp_path / "n.dot")]) == 0
    assert names(tmp_path) == ["n.dot"]


def test_a_cell_file(tmp_path: Path) -> None:
    (tmp_path / "my.cell").write_text(get_cell("C").to_text(), encoding="utf-8")
    assert main(["draw", str(tmp_path / "my.cell"), "-o", str(tmp_path / "c.svg")]) == 0
    assert text(tmp_path / "c.svg") == to_svg(get_cell("C"))


def test_a_wfsa_file(tmp_path: Path) -> None:
    machine = automaton_b("ab", {"a": 0.5, "b": 2.0}, 0.25)
    save(machine, tmp_path / "b.json")
    assert main(["draw", str(tmp_path / "b.json"), "-o", str(tmp_path / "b.svg")]) == 0
    assert text(tmp_path / "b.svg") == to_svg(machine)
    save(machine, tmp_path / "model", "json")
    assert main(["draw", str(tmp_path / "model"), "--format", "json", "-o", str(tmp_path / "m.svg")]) == 0


def test_the_papers_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["draw", "d1", "--paper", "-o", str(tmp_path / "d.svg")]) == 0
    assert text(tmp_path / "d.svg") == to_svg(FIGURES["D1"]())
    assert main(["draw", "SRU", "--paper", "-o", str(tmp_path / "s.svg")]) == 2
    assert "the paper has figures of B, C, D1, F; got 'SRU'" in capsys.readouterr().err


def test_without_legend(tmp_path: Path) -> None:
    assert main(["draw", "F", "--no-legend", "-o", str(tmp_path / "f.svg")]) == 0
    assert "tanh" not in text(tmp_path / "f.svg") + text(tmp_path / "f.dot")
    ET.parse(tmp_path / "f.svg")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nosuchcell", "-o", "x.svg"], "no cell is called 'nosuchcell'"),
        (["F", "-o", "x.png"], "a picture is written as .svg or .dot"),
        (["F", "-o", ".svg"], "a picture is written as .svg or .dot"),
        (["F", "-o", "missing/x.svg"], "cannot write the picture: No such file or directory"),
        (["F", "-o", "folder.svg"], "cannot write the picture: Is a directory"),
        (["missing.cell", "-o", "x.svg"], "cannot read the cell"),
        (["missing.json", "-o", "x.svg"], "missing.json"),
        (["broken.json", "-o", "x.svg"], "broken.json"),
        (["broken.cell", "-o", "x.svg"], "broken.cell:1"),
        (["B", "-o", "nul\0.svg"], "cannot write the picture"),
    ],
)
def test_mistakes_leave_nothing_behind(
    args: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.svg").mkdir()
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    (tmp_path / "broken.cell").write_text("nonsense\n", encoding="utf-8")
    before = names(tmp_path)
    assert main(["draw", *args]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and message in err and err.count("\n") == 1
    assert names(tmp_path) == before


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_not_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o500)
    assert main(["draw", "B", "-o", str(tmp_path / "b.svg")]) == 2
    assert "cannot write the picture: Permission denied" in capsys.readouterr().err


def test_an_old_picture_survives_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "b.svg"
    out.write_text("old", encoding="utf-8")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert main(["draw", "B", "-o", str(out)]) == 2
    assert text(out) == "old" and names(tmp_path) == ["b.svg"]
