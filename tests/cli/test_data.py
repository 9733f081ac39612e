"""`rrnn data`, as users call it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from webserver import serving

from rrnn.cli import main
from rrnn.tasks.data.catalogue import SOURCES, Address, File, Source

TEXT = b"some text\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing at hand but a toy of one file, in a folder of its own."""
    monkeypatch.setenv("RRNN_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("RRNN_CACHE", str(tmp_path / "cache"))
    file = File("a.txt", hashlib.sha256(TEXT).hexdigest(), len(TEXT), (Address("http://127.0.0.1:9/a.txt"),))
    monkeypatch.setitem(SOURCES, "toy", Source("toy", "a toy", "free", (file,), ((File("b.txt"),),)))
    (tmp_path / "data" / "toy").mkdir(parents=True)
    (tmp_path / "data" / "toy" / "a.txt").write_bytes(TEXT)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main(["data", *args])
    out, err = capsys.readouterr()
    return code, out, err


def test_list(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "list")
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert code == 0 and "built in" in lines["python"] and "built in" in lines["synthetic:not-good"]
    assert "not downloaded" in lines["ptb"] and str(folder / "data" / "toy") in lines["toy"]
    for name in SOURCES:
        assert name in lines


def test_list_of_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "list", "wikitext-2", "toy")
    assert code == 0
    assert "not downloaded. Run: rrnn data get wikitext-2" in out and "CC BY-SA" in out
    assert "archive, sha256 92675f1d" in out and "wiki.train.tokens, sha256 not known" in out
    assert f"where: {folder / 'data' / 'toy'}" in out and "instead:\n  b.txt, sha256 not known" in out


def test_check(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "list", "--check")
    assert code == 0 and out.splitlines()[-1].split() == ["toy", "a.txt", "correct"]
    (folder / "data" / "toy" / "a.txt").write_bytes(b"other")
    code, out, _ = run(capsys, "list", "toy", "--check")
    assert code == 1 and "WRONG" in out.splitlines()[-1]


def test_path(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "path", "toy")[:2] == (0, f"{folder / 'data' / 'toy'}\n")
    code, out, err = run(capsys, "path", "ptb")
    assert code == 2 and out == ""
    assert "Run: rrnn data get ptb" in err and f"put these files into {folder / 'data' / 'ptb'}:" in err
    code, _, err = run(capsys, "path", "nonsense")
    assert code == 2 and "there is no data set 'nonsense'" in err


def test_get(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert run(capsys, "get", "toy") == (0, f"toy: {folder / 'data' / 'toy'}\n", "")  # at hand
    code, out, err = run(capsys, "get", "toy", "--to", str(folder / "new"))
    assert code == 2 and out == "" and "no connection" in err and not (folder / "new").exists()
    with serving() as web:
        web.pages["a.txt"] = TEXT
        file = File("a.txt", None, None, (Address(f"{web.url}/a.txt"),))
        monkeypatch.setitem(SOURCES, "toy", Source("toy", "a toy", "free", (file,)))
        code, out, err = run(capsys, "get", "toy", "--to", str(folder / "new"))
    assert code == 0 and err == "" and (folder / "new" / "toy" / "a.txt").read_bytes() == TEXT
    assert "no checksum is known" in out


def test_get_needs_good_names(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "get", "toy", "nonsense")
    assert code == 2 and "'nonsense'" in err
    code, _, err = run(capsys, "get")
    assert code == 2 and err


def test_the_list_needs_no_torch() -> None:
    import subprocess
    import sys

    code = "import sys; from rrnn.cli import main; main(['data', 'list']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == 0
