"""Data sets by name: found where they lie, downloaded whole or not at all."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from webserver import WebServer, serving

from rrnn.errors import DataError
from rrnn.tasks.data import download
from rrnn.tasks.data.catalogue import SOURCES, Address, File, Source

TEXT = b"some text\n" * 50_000
OTHER = b"other text\n"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    monkeypatch.delenv("RRNN_DATA", raising=False)
    monkeypatch.setenv("RRNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving() as server:
        yield server


def toy(web: WebServer, monkeypatch: pytest.MonkeyPatch, *files: File) -> Path:
    """Make `toy` a data set of these files, by default two good ones; its folder."""
    web.pages.update({"a.txt": TEXT, "b.txt": OTHER})
    files = files or (
        File("a.txt", sha256(TEXT), len(TEXT), (Address(f"{web.url}/a.txt"),)),
        File("b.txt", sha256(OTHER), None, (Address(f"{web.url}/b.txt"),)),
    )
    monkeypatch.setitem(SOURCES, "toy", Source("toy", "a toy", "none", files))
    return Path(os.environ["RRNN_CACHE"]) / "data" / "toy"


def everything(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_a_good_download(web: WebServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = toy(web, monkeypatch)
    with pytest.raises(DataError, match="rrnn data get toy"):
        download.find("toy")
    seen: list[tuple[int, int | None]] = []
    assert download.get("toy", report=lambda url, done, total: seen.append((done, total))) == folder
    assert download.find("toy") == folder and (folder / "a.txt").read_bytes() == TEXT
    assert everything(tmp_path) == [
        "cache",
        "cache/data",
        *(f"cache/data/toy{x}" for x in ("", "/a.txt", "/b.txt")),
    ]
    assert seen[-2] == (len(TEXT), len(TEXT)) and len(seen) > 3
    asked = len(web.asked)
    assert download.get("toy") == folder and len(web.asked) == asked  # at hand: nothing is fetched
    assert download.check(folder, SOURCES["toy"].files) == {"a.txt": True, "b.txt": True}
    (folder / "a.txt").write_bytes(b"changed")
    assert download.check(folder, SOURCES["toy"].files) == {"a.txt": False, "b.txt": True}


def test_another_folder(web: WebServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    toy(web, monkeypatch)
    (tmp_path / "here" / "toy").mkdir(parents=True)
    (tmp_path / "here" / "toy" / "mine.txt").write_text("mine")
    assert download.get("toy", tmp_path / "here") == tmp_path / "here" / "toy"
    assert everything(tmp_path / "here") == ["toy", "toy/a.txt", "toy/b.txt", "toy/mine.txt"]
    monkeypatch.setenv("RRNN_DATA", str(tmp_path / "here"))
    assert download.find("toy") == tmp_path / "here" / "toy"


def test_rrnn_data_comes_first(web: WebServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = toy(web, monkeypatch)
    download.get("toy")
    monkeypatch.setenv("RRNN_DATA", str(tmp_path / "mine"))
    assert download.find("toy") == folder  # nothing there yet
    (tmp_path / "mine" / "toy").mkdir(parents=True)
    (tmp_path / "mine" / "toy" / "a.txt").write_text("")
    assert download.find("toy") == folder  # one file of two
    (tmp_path / "mine" / "toy" / "b.txt").write_text("")
    assert download.find("toy") == tmp_path / "mine" / "toy"


def test_failures_leave_nothing_and_say_what_to_do(
    web: WebServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = toy(web, monkeypatch)
    before = everything(tmp_path)

    def fails(message: str) -> None:
        with pytest.raises(DataError, match=message) as caught:
            download.get("toy")
        assert f"put these files into {folder}:" in str(
            caught.value
        ) and f"b.txt, from {web.url}/b.txt" in str(caught.value)
        left = [name for name in everything(tmp_path) if name != "cache"]
        assert left == before

    del web.pages["b.txt"]  # the second file: the first, which is good, must go, too
    fails("b.txt could not be downloaded; nothing was changed(.|\n)*404 Not Found")
    web.pages["b.txt"] = OTHER + b"more"
    fails("has SHA-256 [0-9a-f]{64}, but [0-9a-f]{64} was expected")
    web.pages["b.txt"] = OTHER
    web.cut.add("a.txt")
    fails("interrupted after 250000 of 500000 bytes")
    web.cut.clear()
    web.stalled.add("a.txt")
    monkeypatch.setattr(download, "_TIMEOUT", 0.2)
    fails("interrupted.*timed out")
    web.stalled.clear()
    assert download.get("toy") == folder


def test_no_network(web: WebServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere = Address("http://127.0.0.1:9/a.txt")
    toy(web, monkeypatch, File("a.txt", addresses=(nowhere,)))
    with pytest.raises(DataError, match="no connection"):
        download.get("toy")


def zipped(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_archives(pack: object, web: WebServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    archive = pack({"x/a.txt": TEXT, "x/._a.txt": b"no", "../../b.txt": OTHER})  # type: ignore[operator]
    web.pages["all"] = archive
    both = tuple(
        File(name, addresses=(Address(f"{web.url}/all", name, sha256(archive)),))
        for name in ("a.txt", "b.txt")
    )
    folder = toy(web, monkeypatch, *both)
    download.get("toy")
    assert everything(folder) == [
        "a.txt",
        "b.txt",
    ]  # the archive is gone, and nothing climbed out of the folder
    assert (folder / "a.txt").read_bytes() == TEXT and (folder / "b.txt").read_bytes() == OTHER
    assert web.asked == ["all"]  # once for both files


@pytest.mark.parametrize(
    ("page", "digest", "message"),
    [
        (zipped({"a.txt": TEXT})[:-30], None, "damaged"),
        (zipped({"other.txt": TEXT}), None, "the archive does not contain a.txt"),
        (zipped({"a.txt": OTHER}), None, "has SHA-256"),
        (zipped({"a.txt": TEXT}), "0" * 64, "but 0000"),
        (tarred({"a.txt": TEXT})[:-300], None, "damaged"),
        (b"<html>no such file</html>", None, "damaged"),
    ],
)
def test_bad_archives(
    page: bytes, digest: str | None, message: str, web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    web.pages["all"] = page
    folder = toy(
        web, monkeypatch, File("a.txt", sha256(TEXT), None, (Address(f"{web.url}/all", "a.txt", digest),))
    )
    with pytest.raises(DataError, match=message):
        download.get("toy")
    assert not folder.parent.exists()


def test_the_next_address_is_tried(web: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, good = Address(f"{web.url}/gone.zip", "a.txt"), Address(f"{web.url}/a.txt")
    files = (File("a.txt", sha256(TEXT), None, (gone, good)), File("b.txt", None, None, (gone, good)))
    folder = toy(web, monkeypatch, *files)
    download.get("toy")
    assert (folder / "a.txt").read_bytes() == TEXT
    assert web.asked == ["gone.zip", "a.txt", "a.txt"]  # the missing archive is asked for once


def test_a_folder_that_cannot_be_written(
    web: WebServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    toy(web, monkeypatch)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot write to"):
        download.get("toy", tmp_path / "file")


GET = """
import sys
from rrnn.cli import main
from rrnn.tasks.data.catalogue import SOURCES, Address, File, Source
SOURCES["toy"] = Source("toy", "", "", (File("a.txt", addresses=(Address(sys.argv[1]),)),))
sys.exit(main(["data", "get", "toy"]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_killed_download(
    number: signal.Signals, web: WebServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = toy(web, monkeypatch, File("a.txt", addresses=(Address(f"{web.url}/a.txt"),)))
    web.stalled.add("a.txt")
    with subprocess.Popen([sys.executable, "-c", GET, f"{web.url}/a.txt"]) as process:
        assert web.half_sent.wait(20)
        with pytest.raises(DataError, match="another process is downloading toy"):
            download.get("toy")
        process.send_signal(number)
        assert process.wait(20) == {signal.SIGTERM: 143, signal.SIGINT: 130}.get(number, -signal.SIGKILL)
    web.stalled.clear()
    with pytest.raises(DataError, match="is not downloaded"):  # half a download is never predicted a data set
        download.find("toy")
    left = (
        [".toy.part"] if number == signal.SIGKILL else []
    )  # nobody can clean up after kill -9, but the next can
    assert [path.name for path in folder.parent.glob("*")] == left
    download.get("toy")
    assert [path.name for path in folder.parent.glob("*")] == ["toy"]
    assert (folder / "a.txt").read_bytes() == TEXT


def test_the_catalogue() -> None:
    assert list(SOURCES) == ["ptb", "wikitext-2", "sst", "subj", "cr", "amazon", "glove"]
    for source in SOURCES.values():
        names = [file.name for file in source.files]
        assert len(set(names)) == len(names)
        for file in source.files:
            assert file.addresses and all(address.url.startswith("http") for address in file.addresses)
            assert (
                file.verifiable or source.name == "amazon"
            )  # nobody has published a checksum of elec2.tar.gz
            for digest in (file.sha256, *(address.sha256 for address in file.addresses)):
                assert digest is None or (len(digest) == 64 and int(digest, 16))


@pytest.mark.skipif("RRNN_DATA" not in os.environ, reason="needs RRNN_DATA")
@pytest.mark.parametrize("name", ["ptb", "sst", "subj", "cr", "amazon", "glove"])
def test_files_at_hand_have_the_known_checksums(name: str) -> None:
    folder = download.find(name)
    files = download.files_at(SOURCES[name], folder)
    assert files and set(download.check(folder, files).values()) == {True}
