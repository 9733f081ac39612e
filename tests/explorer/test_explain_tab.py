"""Explain: what `explain` says of a text, with pictures in which paths can be lit up; only of runs, only of texts."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rrnn.explorer.explain_tab import MAX_TEXT, MAX_WORDS
from rrnn.tasks.classify.explanations import explain
from rrnn.tasks.classify.trained import load_run
from rrnn.tasks.runs import load
from rrnn.zoo import get_cell

pytestmark = pytest.mark.usefixtures("trained")
TEXT = "this was not so very good"


def ask(client: Any, **body: Any) -> Any:
    answer = client.post("/api/explain", json={"text": TEXT} | body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_runs_are_listed(client: Any) -> None:
    found = client.get("/api/runs").json()["runs"]
    assert {run["name"]: run["cell"] for run in found} == {
        "F": "F",
        "B-max-plus": "B-max-plus",
        "search/seed-0": "LSTM",
    }
    assert all(run["accuracy"] is not None for run in found)


@pytest.mark.parametrize("name", ["F", "B-max-plus", "search/seed-0"])
def test_it_says_what_the_library_says(client: Any, trained: Path, name: str) -> None:
    found, model = ask(client, run=name), load(trained / name)
    expected = explain(model, TEXT, units=5, paths=3)
    assert found["label"] == expected.label and found["labels"] == model.labels
    assert found["probabilities"] == pytest.approx(expected.probabilities, abs=1e-5)
    assert [word["token"] for word in found["words"]] == TEXT.split()
    for which in ("without", "adds"):
        values = [getattr(word, which) for word in expected.words]
        assert [word[which] for word in found["words"]] == (
            values if None in values else pytest.approx(values, abs=1e-5)
        )
    assert [unit["unit"] for unit in found["units"]] == [unit.unit for unit in expected.units]
    assert bool(found["units"]) == (name != "search/seed-0") and bool(found["note"]) == (name != "F")


@pytest.mark.parametrize("name", ["F", "B-max-plus"])
def test_paths_are_in_the_picture(client: Any, name: str) -> None:
    found = ask(client, run=name)
    cell = get_cell(name)
    for unit in found["units"]:
        edges = found["pictures"][unit["cell"]]["edges"]
        for path in unit["paths"]:
            states = [cell.states[q] for q in path["states"]]
            assert states == [path["start"], *(step["target"] for step in path["steps"])]
            assert [edges[arrow] for arrow in path["edges"]] == [
                [a, b] for a, b in zip(path["states"], path["states"][1:], strict=False)
            ]


@pytest.mark.parametrize("name", ["F", "B-max-plus"])
def test_paths_divide_what_their_unit_adds(client: Any, name: str) -> None:
    """One sign convention: what a path adds is positive where it speaks for the label, whatever its weight's sign."""
    found = {label: ask(client, run=name, target=label) for label in ("yes", "no")}
    for yes, no in zip(found["yes"]["units"], found["no"]["units"], strict=True):
        assert [p["adds"] for p in yes["paths"]] == pytest.approx([-p["adds"] for p in no["paths"]], abs=1e-6)
    for unit in found["yes"]["units"]:
        if name == "B-max-plus":  # the score is that of the best path
            assert [p["adds"] for p in unit["paths"]] == [unit["adds"]] + [0.0] * (len(unit["paths"]) - 1)
        else:
            rest = unit["score"] - sum(p["weight"] for p in unit["paths"])
            whole = sum(p["adds"] for p in unit["paths"]) + unit["adds"] * rest / unit["score"]
            assert whole == pytest.approx(unit["adds"], rel=1e-4)


def test_a_label_can_be_asked_for(client: Any) -> None:
    found = {label: ask(client, run="F", target=label) for label in ("yes", "no")}
    assert found["yes"]["margin"] == pytest.approx(-found["no"]["margin"])


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"text": ""}, 422, "no word"),
        ({"text": "x" * (MAX_TEXT + 1)}, 422, "characters"),
        ({"text": "good " * (MAX_WORDS + 1)}, 422, "words"),
        ({"target": "maybe"}, 422, "labels"),
        ({"target": ["yes"]}, 400, "target"),
        ({"target": 7}, 400, "target"),
    ],
)
def test_texts_that_cannot_be_explained(client: Any, body: dict[str, Any], status: int, words: str) -> None:
    answer = client.post("/api/explain", json={"run": "F", "text": TEXT} | body)
    assert answer.status_code == status and words in answer.json()["error"]


def test_damaged_runs_say_so(client: Any, trained: Path) -> None:
    """No trace, no file from elsewhere: a configuration may name one, but it is not read."""

    def change(name: str, **values: Any) -> Path:
        folder = shutil.copytree(trained / "F", trained / name)
        config = json.loads((folder / "config.json").read_text()) | values
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    outside = trained.parent / "secret.cell"
    outside.write_text("the secret\n")
    folders = [
        change("named", cell=str(outside)),
        change("wide", hidden_size=5),
        change("cut"),
        change("bare", facts=None),
    ]
    (folders[0] / "cell.cell").unlink()
    (folders[2] / "best.safetensors").write_bytes(b"\0" * 100)
    try:
        for folder in folders:
            answer = client.post("/api/explain", json={"run": folder.name, "text": TEXT})
            assert answer.status_code == 422 and "secret" not in answer.text.replace("secret.cell", "")
            assert "Traceback" not in answer.text
    finally:
        for folder in folders:
            shutil.rmtree(folder)


def test_a_run_that_was_trained_further_is_read_again(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rrnn.explorer import explain_tab as module

    folder, loads = trained / "F", []
    monkeypatch.setattr(module, "load_run", lambda run: loads.append(run) or load_run(run))
    module._model.cache_clear()
    for _ in range(2):
        module.explain(str(folder), "not good", None)
    assert len(loads) == 1
    written = (folder / "best.safetensors").stat().st_mtime_ns
    os.utime(folder / "best.safetensors", ns=(written + 10**9, written + 10**9))
    module.explain(str(folder), "not good", None)
    assert len(loads) == 2


def test_where_paths_enter(client: Any) -> None:
    found = ask(client, run="F")
    assert [each["units"] for each in found["maps"]] == [[unit["unit"]] for unit in found["units"]]
    assert all(each["svg"].startswith('<svg class="heat"') for each in found["maps"])
    assert ask(client, run="search/seed-0")["maps"] == []


@pytest.mark.parametrize("cell", ["Mamba", "GLA"])
def test_paths_through_a_family_are_in_the_picture(tmp_path: Path, cell: str) -> None:
    """The picture draws a family once; paths go through its states, and end where they are read."""
    from rrnn.explorer.explain_tab import explain as explain_tab
    from rrnn.tasks.classify.config import ClassifyConfig
    from rrnn.tasks.classify.experiment import train

    small = {"hidden_size": 4, "embedding_size": 4, "layers": 1, "epochs": 1, "device": "cpu"}
    train(ClassifyConfig(cell=cell, **small), tmp_path / "run")
    found = explain_tab(str(tmp_path / "run"), TEXT, None)
    for unit in found["units"]:
        picture = found["pictures"][unit["cell"]]
        for path in unit["paths"]:
            assert path["states"][-1] == 1 and None not in path["edges"]
            assert max(path["states"]) < picture["states"] == 2
    assert found["maps"]


def test_paths_that_are_read_after_epsilon_are_in_the_picture(tmp_path: Path) -> None:
    from rrnn.explorer.explain_tab import explain as explain_tab
    from rrnn.tasks.classify.config import ClassifyConfig
    from rrnn.tasks.classify.experiment import train

    path = tmp_path / "ends.cell"
    path.write_text(
        "rrnn-cell 2\ncell ends\nsemiring real\nfamily h 2\ninitial q0\nloop q0 : one\n"
        'arc q0 -> h : linear("u", over=h)\nloop h : 0.5\narc h -> q1 : linear("a", over=h)\n'
        'epsilon q1 -> q2 : sigmoid(parameter("e"))\nread q2 : linear("c")\nread h : linear("d", over=h)\n'
    )
    small = {"hidden_size": 4, "embedding_size": 4, "layers": 1, "epochs": 1, "device": "cpu"}
    train(ClassifyConfig(cell=str(path), **small), tmp_path / "run")
    shown = [p for unit in explain_tab(str(tmp_path / "run"), TEXT, None)["units"] for p in unit["paths"]]
    assert {p["states"][-1] for p in shown} == {1, 3} and all(None not in p["edges"] for p in shown)
