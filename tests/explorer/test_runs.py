"""The runs folder: what is in it, and nothing outside, however it is named or linked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rrnn.errors import RunError
from rrnn.explorer.runs import CONFIG, list_runs, run_folder


def make_run(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / CONFIG).write_text("{}")
    return folder


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """runs/ with one run and all sorts of ways out of it; outside/ is a run as well."""
    folder = tmp_path / "runs"
    make_run(folder / "good")
    outside = make_run(tmp_path / "outside")
    (folder / "no-config").mkdir()
    (folder / "file").write_text("{}")
    (folder / "link").symlink_to(outside)
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "up").symlink_to("..")
    linked = folder / "linked-config"
    linked.mkdir()
    (linked / CONFIG).symlink_to(outside / CONFIG)
    partly = make_run(folder / "linked-weights")
    (partly / "model.safetensors").symlink_to("/etc/passwd")
    make_run(folder / ".hidden")
    return folder


def test_only_runs_are_listed(there: Path) -> None:
    assert list_runs(there) == ["good"]
    assert list_runs(there / "missing") == []
    assert run_folder(there, "good") == (there / "good").resolve()


@pytest.mark.parametrize(
    "name",
    [
        *("../outside", "..", ".", "", "/", "good/../../outside", "good/", "./good", "good/.", ".hidden"),
        *("link", "loop", "up", "linked-config", "linked-weights", "no-config", "file", "missing"),
        *("good\0", "\0", "%2e%2e", "..\\outside", "C:\\", "~", "good\n", "x" * 5000, "/etc", "\u202egood"),
    ],
)
def test_nothing_outside_is_read(there: Path, name: str, client: Any, runs: Path) -> None:
    with pytest.raises(RunError, match="no run"):
        run_folder(there, name)
    answer = client.post("/api/explain", json={"run": name, "text": "good"})
    assert answer.status_code == 404 and "no run" in answer.json()["error"]
    assert str(runs) not in answer.text


def test_a_linked_runs_folder_is_fine(there: Path) -> None:
    """The folder itself may be a link: the user named it."""
    alias = there.parent / "alias"
    alias.symlink_to(there)
    assert list_runs(alias) == ["good"]
