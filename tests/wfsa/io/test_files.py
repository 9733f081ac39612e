"""`load` and `save`: formats by name, options that fit, and files that are whole or not there."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from rrnn.errors import FormatError
from rrnn.wfsa.io import files, guess_format, load, save
from rrnn.wfsa.machine import WFSA


def machine(symbol: Any = 1) -> WFSA:
    return WFSA(alphabet=[symbol], arcs=[(0, symbol, 0, 0.5)], initial={0: 1.0}, final={0: 0.5})


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.json", "json"),
        ("A.JSON", "json"),
        ("a.fst", "openfst"),
        ("a.fst.txt", "openfst"),
        ("a.att", "openfst"),
        ("1.pautomac_model.txt", "pautomac"),
        ("a.pautomac", "pautomac"),
        ("a.dot", "dot"),
        ("a.gv", "dot"),
        ("a.txt", None),
        ("json", None),
    ],
)
def test_names_tell_formats(name: str, format: str | None) -> None:
    assert guess_format(Path("folder") / name) == format


@pytest.mark.parametrize("format", ["json", "openfst", "pautomac"])
def test_a_given_format_wins(tmp_path: Path, format: str) -> None:
    save(machine(), tmp_path / "x.dot", format)
    again = load(tmp_path / "x.dot", format, semiring="real")
    assert again.score([(1, 1)]).item() == pytest.approx(0.125)


def test_formats_and_options_are_checked(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(FormatError, match="Pass format="):
        load(tmp_path / "x")
    with pytest.raises(
        FormatError, match="WFSAs can be read as json, openfst, pautomac; got the format 'dot'"
    ):
        load(tmp_path / "x.dot")
    with pytest.raises(FormatError, match=r"written as .* got the format 'svg'"):
        save(machine(), tmp_path / "x", "svg")
    with pytest.raises(FormatError, match="json takes no options; got isymbols"):
        load(tmp_path / "x.json", isymbols=tmp_path / "x")
    with pytest.raises(FormatError, match="openfst takes costs, isymbols; got tolerance"):
        save(machine(), tmp_path / "x.fst", tolerance=1.0)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_missing_file_is_an_ordinary_error(tmp_path: Path) -> None:
    for name in ("x.json", "x.fst", "x.pautomac"):
        with pytest.raises(FileNotFoundError):
            load(tmp_path / name)
    with pytest.raises(FileNotFoundError) as caught:
        save(machine(), tmp_path / "none" / "x.json")
    assert caught.value.filename == str(tmp_path / "none" / "x.json")


@pytest.mark.parametrize("data", [b"\xff\xfe", b"ok\n\x80"])
@pytest.mark.parametrize("name", ["x.json", "x.fst", "x.pautomac"])
def test_other_encodings_are_named(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(FormatError, match="must be UTF-8") as caught:
        load(tmp_path / name)
    assert caught.value.line == 1 + data.count(b"\n")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "x.json"
    target.write_text("old")

    def full(*_: Any) -> None:
        raise OSError("no space left on device")

    for step in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(files.os, step, full)
            with pytest.raises(OSError, match="no space"):
                save(machine(), target)
        assert target.read_text() == "old"
        assert list(tmp_path.iterdir()) == [target]


def test_nothing_is_written_when_the_machine_cannot_be(tmp_path: Path) -> None:
    for name in ("x.json", "x.fst", "x.pautomac"):
        (tmp_path / name).write_text("old")
        with pytest.raises(FormatError):
            save(machine(b"bytes"), tmp_path / name)
        assert (tmp_path / name).read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.skipif(os.name != "posix", reason="modes and links of POSIX")
def test_modes_and_links_stay(tmp_path: Path) -> None:
    target, link = tmp_path / "x.json", tmp_path / "link.json"
    save(machine(), target)
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~umask
    target.chmod(0o640)
    link.symlink_to(target)
    save(machine(2), link)
    assert link.is_symlink() and load(target).alphabet == (2,)
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    save(machine(), "/dev/null", "json")  # no file to replace
