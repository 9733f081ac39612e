"""Searches in a PostgreSQL server, as many machines use it. The server is this file's own."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from search_objectives import SPACE, Hanging, pid_in, plain

from rrnn.cli import main
from rrnn.errors import RunError
from rrnn.tasks.search import Plan, Whole, draw_setting, open_study, search, work

pytestmark = pytest.mark.slow
PASSWORD = "geheim@/:%{x}"


def programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    path = str(found[-1]) if found else shutil.which("initdb")
    if path is None:
        pytest.skip("PostgreSQL is not installed: tests/tasks/postgresql.sh installs Debian's package")
    return Path(path).parent


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Start a server that listens on a socket in its own folder, and yield the folder.

    Its databases have no encoding (SQL_ASCII), as Debian's own in a container without a locale.
    """
    initdb = programs() / "initdb"
    # PostgreSQL refuses to run as root, and another user may not look into root's tmp_path.
    user = {"user": "postgres", "group": "postgres"} if os.getuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="rrnn-postgresql-") as folder:
        secret = Path(folder, "password")
        secret.write_text(PASSWORD)
        if user:
            for path in (folder, secret):
                shutil.chown(path, **user)
        data = f"{folder}/data"
        options = ["--username=rrnn", f"--pwfile={secret}", "--auth=scram-sha-256", "--locale=C", "--no-sync"]
        subprocess.run(
            [initdb, "-D", data, *options], **user, cwd=folder, check=True, stdout=subprocess.DEVNULL
        )  # pyright: ignore[reportArgumentType, reportCallIssue]
        settings = ["listen_addresses=", f"unix_socket_directories={folder}", "fsync=off"]
        with open(f"{folder}/log", "w") as log:
            process = subprocess.Popen(
                [initdb.with_name("postgres"), "-D", data, *(f"-c{setting}" for setting in settings)],
                **user,  # pyright: ignore[reportArgumentType]
                cwd=folder,
                stdout=log,
                stderr=log,
            )
        try:
            for _ in range(300):
                if subprocess.run([initdb.with_name("pg_isready"), "-q", "-h", folder]).returncode == 0:
                    break
                assert process.poll() is None, Path(folder, "log").read_text()
                time.sleep(0.1)
            yield folder
        finally:
            process.send_signal(signal.SIGQUIT)  # at once: its data is removed anyway
            process.wait(30)


@pytest.fixture
def url(server: str) -> str:
    return f"postgresql://rrnn:{quote(PASSWORD, safe='')}@/postgres?host={server}"


def test_two_workers_of_which_one_is_killed(url: str, tmp_path: Path) -> None:
    """They start at the same moment, in an empty database, and know nothing of each other."""
    where = Plan(url, "killed", SPACE, trials=5, heartbeat_seconds=1, grace_seconds=2)
    spawn = multiprocessing.get_context("spawn")
    team = [spawn.Process(target=work, args=(where, Hanging(tmp_path))) for _ in range(2)]
    try:
        for worker in team:
            worker.start()
        pid = pid_in(tmp_path / "pid")
        os.kill(pid, signal.SIGKILL)
        for worker in team:
            worker.join(60)
        assert sorted(worker.exitcode or 0 for worker in team) == [-signal.SIGKILL, 0]
    finally:
        for worker in team:
            if worker.is_alive():
                worker.kill()

    with open_study(where) as study:
        trials = study.get_trials()
    done = {t.user_attrs["setting"]: t for t in trials if t.state.name == "COMPLETE"}
    assert sum(t.state.name == "COMPLETE" for t in trials) == 5
    assert {number: t.params for number, t in done.items()} == {
        number: draw_setting(SPACE, 0, number) for number in range(5)
    }
    assert pid not in {t.user_attrs["pid"] for t in done.values()}
    (killed,) = [t for t in trials if t.state.name == "FAIL"]
    again = done[killed.user_attrs["setting"]]
    assert again.params == killed.params and again.number > killed.number
    assert (
        sum("setting" in t.user_attrs for t in trials) == 6
    )  # each was enqueued once, and one of them again


def test_a_study_with_other_values_is_refused(url: str) -> None:
    search(Plan(url, "other", SPACE, trials=2, about={"cell": "F"}), plain)
    with pytest.raises(
        RunError, match=r"'other' was begun with another configuration:\n  cell: was 'F', now 'B'"
    ):
        search(Plan(url, "other", SPACE, trials=2, about={"cell": "B"}), plain)


def test_a_password_appears_nowhere(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rrnn.tasks.classify.search.PAPER", {"hidden_size": Whole(2, 8)})
    small = ["--data", "synthetic:ends-within-3", "--layers", "1", "--epochs", "1", "--device", "cpu"]
    command = ["classify", "search", *small, "--trials", "1", "--seeds", "1", "--out", str(tmp_path / "s")]
    assert main([*command, "--storage", url]) == 0
    assert main([*command, "--storage", url.replace("geheim", "geheimer")]) == 2
    out, err = capsys.readouterr()
    assert "1/1 trials" in out and "postgresql://rrnn:***@/postgres cannot be used" in err
    assert "password authentication failed" in err and "geheim" not in out + err
    for path in (tmp_path / "s").rglob("*"):
        assert path.is_dir() or b"geheim" not in path.read_bytes(), path
