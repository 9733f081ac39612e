"""Load what rrnn 0.1.0 wrote (tests/fixtures) and compare: texts exactly, numbers up to rounding.

A failure here means that users' files changed their meaning. Fix the code, not the fixture.
"""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import compatibility_cases as cases
import pytest
import torch
from safetensors import safe_open
from torch import Tensor

import rrnn
from rrnn.automata import Cell
from rrnn.backends import use_backend
from rrnn.ir import Program, lower
from rrnn.tasks.training import Progress
from rrnn.wfsa import io
from rrnn.zoo import read_cell

CELLS, PROGRAMS = cases.FOLDER / "cells", cases.FOLDER / "programs"
MACHINES, TRAINED = cases.FOLDER / "machines", cases.FOLDER / "trained"


@cache
def numbers() -> dict[str, Tensor]:
    """Read all of numbers.safetensors: "x", and for each cell "NAME/output", "NAME/parameter/layers.0.weight", …"""
    with safe_open(cases.FOLDER / "numbers.safetensors", "pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (it is no dict)


@cache
def expected() -> dict[str, Any]:
    return json.loads((cases.FOLDER / "expected.json").read_text(encoding="utf-8"))


# ---- cells -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", cases.CELLS)
def test_a_cell_reads_back_and_is_still_made_the_same(name: str) -> None:
    text = (CELLS / f"{name}.cell").read_text(encoding="utf-8")
    cell = read_cell(CELLS / f"{name}.cell")
    assert cell.to_text() == text
    assert cases.CELLS[name]().to_text() == text
    assert Cell.from_text(text) == cases.CELLS[name]()


def compare_layer(name: str) -> None:
    start = f"{name}/parameter/"
    parameters = {key.removeprefix(start): value for key, value in numbers().items() if key.startswith(start)}
    now = cases.measure_layer(read_cell(CELLS / f"{name}.cell"), parameters, numbers()["x"])
    then = {
        key.removeprefix(f"{name}/"): value
        for key, value in numbers().items()
        if key.startswith(f"{name}/") and not key.startswith(start)
    }
    assert set(now) == set(then)
    torch.testing.assert_close(now, then, rtol=1e-10, atol=1e-10, equal_nan=True)


@pytest.mark.parametrize("name", cases.CELLS)
def test_a_layer_computes_the_same(name: str) -> None:
    with use_backend("reference"):
        compare_layer(name)


@pytest.mark.parametrize("name", ["B", "C", "F+o", "B-max-plus", "log", "QRNN3-ifo"])
def test_compiled_kernels_compute_the_same(name: str) -> None:
    compare_layer(name)


@pytest.mark.parametrize("name", cases.PROGRAMS)
def test_a_program_keeps_its_text(name: str) -> None:
    text = (PROGRAMS / f"{name}.txt").read_text(encoding="utf-8")
    assert lower(read_cell(CELLS / f"{name}.cell")).program.text == text
    assert Program.parse(text).text == text


# ---- machines --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("semiring", cases.MACHINES)
def test_a_machine_in_json(semiring: str) -> None:
    path = MACHINES / f"{semiring}.json"
    machine = io.load(path)
    assert io.to_json(machine) == path.read_text(encoding="utf-8")
    assert machine.same_as(cases.machine(semiring))
    compare_machine(path.name, machine, cases.STRINGS)


def compare_machine(name: str, machine: rrnn.WFSA, strings: list[tuple[Any, ...]]) -> None:
    cases.assert_close(cases.measure_machine(machine, strings), expected()[name], place=name)


@pytest.mark.parametrize("name", cases.OPENFST)
def test_an_openfst_text(name: str) -> None:
    file, options = cases.openfst_options(name)
    compare_machine(name, io.load(MACHINES / file, **options), cases.OPENFST_STRINGS[file])


def test_a_pautomac_model() -> None:
    compare_machine("model.pautomac", io.load(MACHINES / "model.pautomac"), cases.PAUTOMAC_STRINGS)


# ---- trained models --------------------------------------------------------------------------------------------------


def test_a_trained_language_model() -> None:
    now = cases.measure_language_model(rrnn.load(TRAINED / "lm"))
    cases.assert_close(now, expected()["trained lm"], 1e-5, "lm")


def test_a_trained_classifier() -> None:
    now = cases.measure_classifier(rrnn.load(TRAINED / "classify"))
    cases.assert_close(now, expected()["trained classify"], 1e-5, "classify")


def test_a_trained_classifier_goes_on(tmp_path: Path) -> None:
    from rrnn.tasks.classify.config import ClassifyConfig
    from rrnn.tasks.classify.experiment import train
    from rrnn.tasks.classify.trained import classify_run

    shutil.copytree(TRAINED / "classify", tmp_path / "run")
    config = ClassifyConfig.from_run(classify_run(tmp_path / "run").config).replace(epochs=2)
    result = train(config, tmp_path / "run", resume=True, progress=Progress())
    first = json.loads((TRAINED / "classify" / "metrics.jsonl").read_text(encoding="utf-8"))
    assert [record["epoch"] for record in result.history] == [1, 2]
    assert result.history[0]["train_loss"] == first["train_loss"]


# ---- the fixtures themselves -----------------------------------------------------------------------------------------


def test_every_fixture_is_tested() -> None:
    assert {path.stem for path in CELLS.iterdir()} == set(cases.CELLS)
    assert {path.stem for path in PROGRAMS.iterdir()} == set(cases.PROGRAMS)
    known = {"rrnn", "trained lm", "trained classify", "model.pautomac", *cases.OPENFST}
    assert set(expected()) == known | {path.name for path in MACHINES.glob("*.json")}
    assert {path.name for path in TRAINED.iterdir()} == {"lm", "classify"}


def test_fixtures_are_small() -> None:
    assert sum(path.stat().st_size for path in cases.FOLDER.rglob("*") if path.is_file()) < 300_000
