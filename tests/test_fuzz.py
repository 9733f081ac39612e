"""A dose of `tests/fuzz.py`, and that it notices what is not clean. With `CI` set, the calls are the same each time."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fuzz
import pytest
from fuzz_cases import World, mangled, mangled_json

from rrnn.errors import FormatError


@pytest.mark.slow
def test_only_clean_errors_come_out() -> None:
    command = [sys.executable, "-u", str(Path(fuzz.__file__)), "--calls", "1000", "--jobs", "1"]
    command += ["--seed", "0"] if os.environ.get("CI") else []
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-2000:]


def reading(reader: Callable[[Path], Any], folder: Path) -> fuzz.Call:
    call = object.__new__(fuzz.Call)
    call.world, call.argv = World(random.Random(0), folder, folder), None
    call.file, call.reader = str(folder / "file"), reader
    return call


def fail(error: Exception) -> Callable[[Path], Any]:
    def reader(path: Path) -> None:
        raise error

    return reader


def test_readers(tmp_path: Path) -> None:
    assert reading(lambda path: None, tmp_path).run() is None
    assert reading(fail(FormatError("wrong")), tmp_path).run() is None
    assert reading(fail(FileNotFoundError(2, "missing", "file")), tmp_path).run() is None
    assert "without a file name" in (reading(fail(OSError(5, "EIO")), tmp_path).run() or "")
    assert "KeyError" in (reading(fail(KeyError("facts")), tmp_path).run() or "")
    assert "behind" in (reading(lambda path: path.write_text("x"), tmp_path).run() or "")


def test_a_call_that_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "SECONDS", 0.1)
    with pytest.raises(fuzz.Hang):
        reading(lambda path: time.sleep(5), tmp_path).run()


@pytest.mark.parametrize(
    ("outcome", "wrong"),
    [
        (lambda argv: 0, None),
        (lambda argv: (print("error: no", file=sys.stderr), 2)[1], None),
        (lambda argv: 2, "without a message"),
        (lambda argv: 3, "exit code 3"),
        (lambda argv: (print("Traceback (most recent call last)"), 2)[1], "printed a traceback"),
        (lambda argv: {}["facts"], "KeyError"),
        (lambda argv: (print("no"), Path("p.svg").write_text("half"), 2)[2], "left p.svg"),
    ],
)
def test_commands(outcome: Any, wrong: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fuzz, "rrnn_main", outcome)
    call = object.__new__(fuzz.Call)
    call.world, call.argv, call.input = World(random.Random(0), tmp_path, tmp_path, {"p.svg"}), ["draw"], b""
    found = call.run()
    assert found is None if wrong is None else wrong in (found or "")


def test_calls_depend_on_their_seed_alone() -> None:
    data = b'{"a": [1, 2, {"b": "text"}]}\nline 2\n'
    assert len({mangled(random.Random(1), data) for _ in range(3)}) == 1
    assert len({mangled(random.Random(seed), data) for seed in range(50)}) > 30
    assert repr(mangled_json(random.Random(4), {"a": [1]})) == repr(
        mangled_json(random.Random(4), {"a": [1]})
    )
