"""`rrnn explore` as a command: what it says, how it ends, and what it leaves running (nothing)."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from rrnn import cli


def test_it_serves_and_ends_with_its_worker(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rrnn", "explore", "--port", "0", "--no-open", "--runs", str(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert found, line
        with urllib.request.urlopen(f"{found[0]}api/runs", timeout=20) as answer:
            assert answer.read() == b'{"runs":[]}'
        for _ in range(100):  # it is started beside the page, perhaps a moment later
            worker = children(process.pid)
            if worker:
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == cli.INTERRUPTED
        assert process.stderr.read() == ""  # no trace, of the worker neither
    for _ in range(50):
        if not any(map(is_running, worker)):
            break
        time.sleep(0.1)
    assert worker and not any(map(is_running, worker))


def children(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task/{process}/children")
    if not listed.exists():
        pytest.skip("needs /proc")
    return [int(child) for child in listed.read_text().split()]


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may end while it is read
        return False


def test_the_server_is_light() -> None:
    """It is there before torch is: only the worker computes."""
    code = "import rrnn.cli.explore, rrnn.explorer, sys; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_a_port_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert cli.main(["explore", "--no-open", "--port", str(taken.getsockname()[1])]) == cli.USAGE_ERROR
    assert "--port" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--port", "70000"], ["--port", "-1"], ["--host", "no such host"]])
def test_addresses_that_are_none(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explore", "--no-open", *options]) == cli.USAGE_ERROR
    assert "port" in capsys.readouterr().err


def test_without_its_libraries(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert cli.main(["explore"]) == cli.USAGE_ERROR
    assert "rrnn[explore]" in capsys.readouterr().err
