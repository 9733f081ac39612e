"""Reading files that hostile or unlucky users name: endless, too large, broken, on a failing disk."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from rrnn import files
from rrnn.cli import USAGE_ERROR, main
from rrnn.errors import FormatError
from rrnn.files import bounded_lines, parse_json, read_bytes, read_json, read_text, stream_lines


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_UNSIZED", 100_000)
    monkeypatch.setattr(files, "MAX_LINE", 1000)
    monkeypatch.setattr(files, "_CHUNK", 4096)


@pytest.mark.usefixtures("small")
@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="needs the devices of Unix")
class TestEndlessFiles:
    def test_whole(self) -> None:
        with pytest.raises(FormatError, match=r"/dev/zero: at most 100,000 bytes .* may have no end"):
            read_bytes("/dev/zero")
        assert read_bytes("/dev/null") == b""

    def test_lines(self) -> None:
        with pytest.raises(FormatError, match=r"/dev/zero:1: a line has at most 1,000 bytes"):
            next(stream_lines("/dev/zero"))

    def test_pipes(self, tmp_path: Path) -> None:
        path = tmp_path / "pipe"
        os.mkfifo(path)
        writer = threading.Thread(target=lambda: path.write_bytes(b"x" * 50_000))
        writer.start()
        assert read_bytes(path) == b"x" * 50_000
        writer.join()

    @pytest.mark.parametrize(
        "command",
        [
            ["lm", "train", "--data", "/dev/zero"],
            ["classify", "train", "--data", "/dev/zero"],
            ["classify", "train", "--config", "/dev/zero"],
            ["classify", "train", "--vectors", "/dev/zero"],
            ["score", "/dev/zero", "--strings", "/dev/zero", "--format", "pautomac"],
            ["score", "/dev/zero", "--strings", "/dev/zero", "--format", "json"],
            ["draw", "/dev/zero", "-o", "picture.svg"],
            ["derive", "/dev/zero"],
        ],
    )
    def test_commands(
        self, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert main(command) == USAGE_ERROR
        assert "/dev/zero" in capsys.readouterr().err
        assert not list(tmp_path.iterdir())


def test_a_file_larger_than_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    with path.open("wb") as file:
        try:
            file.truncate(2**43)  # a hole: it takes no space
        except OSError:
            pytest.skip("this file system has no such files")
    with pytest.raises(FormatError, match="half of the machine's memory"):
        read_bytes(path)


def test_utf8(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfone\ntwo \xff\n")
    with pytest.raises(FormatError, match=r"text:2: .* the byte 0xff"):
        read_text(path)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000])
def test_deep_json(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(text)
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json(tmp_path / "config.json")


class _Failing:
    def readline(self, size: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_errors_of_the_disk_name_the_file() -> None:
    with pytest.raises(OSError) as caught, files.named_errors("some.txt"):
        list(bounded_lines(_Failing(), "some.txt"))  # type: ignore[arg-type]
    assert caught.value.filename == "some.txt"


@pytest.mark.parametrize("filename", ["corpus.txt", None])
def test_commands_report_errors_of_the_disk(
    filename: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: Any) -> int:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), filename)

    monkeypatch.setattr("rrnn.cli._run", fail)
    assert main(["derive", "B"]) == USAGE_ERROR
    place = f"{filename}: " if filename else ""
    assert capsys.readouterr().err == f"error: {place}{os.strerror(errno.ESTALE)}\n"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
        RuntimeError("Storage size calculation overflowed with sizes=[1, 2]"),
    ],
)
def test_commands_report_sizes_beyond_the_memory(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: Any) -> int:
        raise error

    monkeypatch.setattr("rrnn.cli._run", fail)
    assert main(["derive", "B"]) == USAGE_ERROR
    assert "not enough memory" in capsys.readouterr().err


def test_other_errors_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> int:
        raise RuntimeError("a defect")

    monkeypatch.setattr("rrnn.cli._run", fail)
    with pytest.raises(RuntimeError, match="a defect"):
        main(["derive", "B"])
