"""The runs folder: what is in it, and nothing outside, however it is named or linked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rrnn.errors import RunError
from rrnn.explorer.classifier_runs import CONFIG, MAX_CONFIG, list_runs, run_folder


def make_run(folder: Path, config: str = '{"task": "classify", "cell": "F", "data": "sst"}') -> Path:
    folder.mkdir(parents=True)
    (folder / CONFIG).write_text(config)
    return folder


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """runs/ with one run and all sorts of ways out of it; outside/ is a run as well."""
    folder = tmp_path / "runs"
    make_run(folder / "good")
    make_run(folder / "search" / "seed-0")
    make_run(folder / "search" / "far" / "too-deep")
    (folder / "search" / "seed-1").symlink_to(tmp_path / "outside")
    make_run(folder / "model", '{"task": "lm"}')
    make_run(folder / "broken", "{")
    make_run(folder / "deep", "[" * 100_000)
    make_run(folder / "large", '{"task": "classify", "x": "' + "x" * MAX_CONFIG + '"}')
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
    found = list_runs(there)
    assert sorted(run["name"] for run in found) == ["good", "search/seed-0"]
    assert found[0] | {"name": ""} == {"name": "", "cell": "F", "data": "sst", "accuracy": None}
    assert list_runs(there / "missing") == []
    for name in ("good", "search/seed-0"):
        assert run_folder(there, name) == (there / name).resolve()


@pytest.mark.parametrize(
    "name",
    [
        *("../outside", "..", ".", "", "/", "good/../../outside", "good/", "./good", "good/.", ".hidden"),
        *(
            "model",
            "broken",
            "deep",
            "large",
            "search",
            "search/seed-1",
            "search/far/too-deep",
            "search/../good",
        ),
        *(
            "search//seed-0",
            "/search/seed-0",
            "search/./seed-0",
            "up/outside",
            "link/.",
            "search/seed-0/config.json",
        ),
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
    assert len(list_runs(alias)) == 2


def test_cells_of_users_have_their_own_names(tmp_path: Path) -> None:
    run = make_run(tmp_path / "mine", '{"task": "classify", "cell": "/home/me/new idea.cell", "data": "sst"}')
    assert list_runs(tmp_path)[0]["cell"] == "new idea.cell"
    (run / "cell.cell").write_text("rrnn-cell 1\n  cell Größe\n", encoding="utf-8")
    assert list_runs(tmp_path)[0]["cell"] == "Größe (new idea.cell)"
