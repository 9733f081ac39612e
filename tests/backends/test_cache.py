"""The kernel cache: nothing is loaded that was not written whole, by this user, for this key."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from rrnn.backends import cache
from rrnn.backends.cache import cache_folder, cached


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    place = tmp_path / "made" / "cache"
    monkeypatch.setenv("RRNN_CACHE", str(place))
    forget()
    yield place
    forget()


def forget() -> None:
    """As in a new process."""
    cache._instead_of.cache_clear()
    cache._temporary.cache_clear()


class Build:
    """A compiler that counts how often it is asked."""

    def __init__(self, payload: bytes = b"machine code") -> None:
        self.payload, self.count = payload, 0

    def __call__(self) -> bytes:
        self.count += 1
        return self.payload


def test_built_once_and_private(folder: Path) -> None:
    build = Build()
    first, second = cached("key", ".so", build), cached("key", ".so", build)
    assert first == second and build.count == 1
    assert first.parent == folder and first.read_bytes().startswith(b"machine code\n# ")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and stat.S_IMODE(first.stat().st_mode) == 0o600
    assert cached("another key", ".so", build) != first and build.count == 2
    assert [p for p in folder.iterdir() if p.name.startswith(".")] == []  # nothing left half-written


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-5]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes().replace(b"code", b"evil")),
        lambda path: path.write_bytes(path.with_name(path.name + ".other").read_bytes()),
        lambda path: path.chmod(0o666),
        lambda path: path.chmod(0o620),
        lambda path: (path.rename(path.with_suffix(".moved")), path.symlink_to(path.with_suffix(".moved"))),
        lambda path: path.unlink(),
    ],
    ids=["cut", "empty", "changed", "of another key", "writable", "by the group", "a link", "gone"],
)
def test_anything_wrong_is_built_again(damage: object, folder: Path) -> None:
    build = Build()
    path = cached("key", ".so", build)
    other = cached("other", ".so", Build(b"for another key"))
    path.with_name(path.name + ".other").write_bytes(other.read_bytes())
    damage(path)  # pyright: ignore[reportCallIssue]
    again = cached("key", ".so", build)
    assert build.count == 2 and again == path and path.read_bytes().startswith(b"machine code\n")
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600 and not path.is_symlink()
    assert cached("key", ".so", build) == path and build.count == 2


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give files away")
def test_files_of_others_are_not_used(folder: Path) -> None:
    build = Build()
    path = cached("key", ".so", build)
    os.chown(path, 12345, 12345)
    cached("key", ".so", build)
    assert build.count == 2 and path.stat().st_uid == 0
    os.chown(folder, 12345, 12345)
    with pytest.warns(RuntimeWarning, match="owned or writable by others"):
        assert cache_folder() != folder


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_folder_that_others_may_write_is_not_used(mode: int, folder: Path) -> None:
    cached("key", ".so", Build())
    folder.chmod(mode)
    build = Build()
    with pytest.warns(RuntimeWarning, match=r"owned or writable by others.*chmod 700") as caught:
        path = cached("key", ".so", build)
    assert build.count == 1 and path.parent != folder  # what lies there is not even looked at
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert (
        len(caught) == 1 and str(folder) in str(caught[0].message) and "RRNN_CACHE" in str(caught[0].message)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        assert cached("key", ".so", build) == path and build.count == 1


def test_a_folder_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RRNN_CACHE", "/dev/null/cache")
    with pytest.warns(RuntimeWarning, match="cannot keep compiled kernels in /dev/null"):
        assert cached("key", ".so", Build()).exists()


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RRNN_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobody)
    with pytest.warns(RuntimeWarning, match="home directory"):
        assert cached("key", ".so", Build()).exists()


def test_a_read_only_folder_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may bring kernels along; what is missing goes to a temporary folder."""
    path, build = cached("key", ".so", Build()), Build()
    write = cache._write

    def refuse(to: Path, content: bytes) -> Path:
        if to.parent == folder:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(to))
        return write(to, content)

    monkeypatch.setattr(cache, "_write", refuse)
    assert cached("key", ".so", build) == path and build.count == 0
    with pytest.warns(RuntimeWarning, match="Read-only file system"):
        other = cached("other", ".so", build)
    assert other.parent != folder and build.count == 1
    assert cached("other", ".so", build) == other and build.count == 1


def test_where_the_folder_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RRNN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "rrnn"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert cache_folder() == tmp_path / "home" / ".cache" / "rrnn"


def test_the_folder_may_be_a_link_to_another_disk(folder: Path, tmp_path: Path) -> None:
    real = tmp_path / "disk"
    real.mkdir(mode=0o700)
    folder.parent.mkdir()
    folder.symlink_to(real)
    assert cached("key", ".so", Build()).parent == real


def test_a_failed_build_leaves_nothing(folder: Path) -> None:
    def fail() -> bytes:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cached("key", ".so", fail)
    assert list(folder.iterdir()) == []


TOGETHER = """
import os, sys
import torch
from rrnn import get_cell
from rrnn.backends import get_backend
from rrnn.backends.interface import CellCall
from rrnn.ir import lower

program = lower(get_cell("B")).program
x, params, state = torch.ones(3, 2, 2, 5), torch.zeros(1, 5), torch.zeros(1, 2, 5)
gate_read, gate_write = os.pipe()
children = []
for i in range(8):
    if (child := os.fork()) == 0:
        os.close(gate_write)
        os.read(gate_read, 1)  # until all are there
        out = torch.empty(3, 2, 5)
        get_backend("native").forward(CellCall(program, x, params), state, out)
        os._exit(0 if abs(out[0, 0, 0].item() - 0.2623) < 1e-3 else 1)
    children.append(child)
os.close(gate_read)
os.close(gate_write)
print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks")
def test_many_processes_start_together_on_an_empty_cache(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", TOGETHER],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == str([0] * 8), done.stderr[-2000:]
    assert done.stderr == ""
    names = [p.name for p in folder.iterdir()]
    assert not [n for n in names if n.startswith(".")] and len([n for n in names if n.endswith(".so")]) == 2
