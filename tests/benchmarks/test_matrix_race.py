"""The race of matrix states without a GPU: peers are loops over time, and a clock that only calls."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import rrnn
from rrnn.backends.matrix.plan import NARROW, tiles_of
from rrnn.backends.triton.plan import H200

SHAPE = (2, 20, 2, 16, 16)


class OnlyCalls:
    def graph(self, run: Any) -> float:
        run()
        return 2.0

    plain = graph


def loop(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None, scale: float) -> Tensor:
    """Return what peers compute from (B, T, H, …), in float64."""
    z, found = torch.zeros(()), []
    for t in range(v.shape[1]):
        z = z * (1.0 if g is None else g[:, t].double().exp()[..., None])
        z = z + k[:, t].double()[..., None] * v[:, t].double()[..., None, :]
        found.append((q[:, t].double()[..., None] * z).sum(-2))
    return (torch.stack(found, 1) * scale).to(v.dtype)


def mamba(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, **more: Any) -> Tensor:
    assert more["dt_softplus"]
    step = torch.nn.functional.softplus(dt.float() + more["dt_bias"])
    out = loop(c, b, x * step[..., None], (step * a)[..., None], 1.0)
    return out + more["D"][:, None] * x


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put loops in the place of the peers' modules."""

    def retention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, None]:
        g = (1 - 2.0 ** (-5 - torch.arange(v.shape[2], dtype=torch.float64))).log()
        return loop(q, k, v, g[:, None].expand(*v.shape[:2], -1, 1), scale), None

    functions: dict[tuple[str, str], Any] = {
        ("fla.ops.gla", "chunk_gla"): lambda q, k, v, g, scale: (loop(q, k, v, g, scale), None),
        ("fla.ops.simple_gla", "chunk_simple_gla"): lambda q, k, v, g, scale: (
            loop(q, k, v, g[..., None], scale),
            None,
        ),
        ("fla.ops.retention", "chunk_retention"): retention,
        ("fla.ops.linear_attn", "chunk_linear_attn"): lambda q, k, v, scale, normalize: (
            loop(q, k, v, None, scale),
            None,
        ),
        ("mamba_ssm.ops.triton.ssd_combined", "mamba_chunk_scan_combined"): mamba,
    }
    for (name, function), run in functions.items():
        parts = name.split(".")
        for i in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:i]), ModuleType(".".join(parts[:i])))
        setattr(sys.modules[name], function, run)


def test_rows_of_all_models(peers: None) -> None:
    import matrix

    with rrnn.use_backend("matrix"):
        for name in matrix.MODELS:
            rows = matrix.race(name, SHAPE, torch.float32, None, "cpu", OnlyCalls())
            assert [row["pass"] for row in rows] == ["forward", "forward_backward"], name
            for row in rows:
                assert {"model", "peer", "shape", "dtype", "pass", "ms", "peer_ms", "ratio"} <= set(row)
                assert row["ratio"] == row["peer_ms"] / row["ms"] and row["worst_difference"] < 1e-5


@pytest.mark.parametrize("wrong", [0.9, float("nan")])
def test_what_differs_is_not_timed(peers: None, monkeypatch: pytest.MonkeyPatch, wrong: float) -> None:
    import matrix

    run = matrix.MODELS["GLA"].run
    model = matrix.MODELS["GLA"]._replace(run=lambda x, states: run(x, states) * wrong)
    monkeypatch.setitem(matrix.MODELS, "GLA", model)
    assert matrix.race("GLA", SHAPE, torch.float32, None, "cpu", OnlyCalls()) == []


def test_rows_are_kept(tmp_path: Path, peers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import matrix

    raced = []

    def race(name: str, shape: tuple[int, ...], *_: Any) -> list[dict[str, Any]]:
        raced.append(name)
        return [{"model": name, "shape": list(shape), "pass": "forward", "ms": 1.0, "peer_ms": 1.0}]

    monkeypatch.setattr(matrix, "race", race)
    monkeypatch.setattr(matrix, "meta", lambda: {"commit": ""})
    monkeypatch.delenv("RRNN_COMMIT", raising=False)
    file = tmp_path / "m.json"
    for models in (["GLA"], ["GLA", "retention"]):
        command = ["matrix.py", "--json", str(file), "--resume", "--shapes", "0", "--models", *models]
        monkeypatch.setattr(sys, "argv", command)
        matrix.main()
    assert raced == ["GLA", "retention"]
    assert [row["model"] for row in json.loads(file.read_text())["rows"]] == raced


def test_tests_in_a_time_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from matrix_on_gpu import Tests, report_race

    test = tmp_path / "test_some.py"
    lines = ["import time", "def test_a(): pass", "def test_b(): assert 0", "def test_c(): time.sleep(%d)"]
    for passed, seconds in ((0, 60), (1, 0)):
        test.write_text("\n".join(lines) % seconds)
        tests = Tests(tmp_path, tmp_path)
        assert sorted(tests.found.values()) == ["FAILED", "PASSED"][: 2 * passed]
        tests.run(12.0, 1, [test.name])
        assert tests.report() == 1 and tests.selected == 3
    assert capsys.readouterr().out.splitlines()[2].split() == ["1", "1", "0", "1"]
    assert (tmp_path / "tests.log").read_text().count("test_a PASSED") == 1
    report_race(tmp_path)
    assert capsys.readouterr().out.count("not reached") == 36


@pytest.mark.parametrize("decay", ["head", "state"])
@pytest.mark.parametrize("size", [64, 128])
def test_sizes_to_try(decay: str, size: int) -> None:
    from matrix_plans import choices

    base = tiles_of(size, size, decay, torch.bfloat16, H200, 2048, 128)[0]
    first, *others = choices(base, size, size, decay)
    assert first == base and len(set(others)) == len(others) > 4
    for tiles in others:
        assert tiles.outputs.states == tiles.queries.units == tiles.keys.units == size
        assert tiles.values is None or tiles.values.states == size
        assert min(tiles.outputs.units, tiles.keys.states) >= NARROW


def test_schedules_are_timed_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    import matrix_or_scalar

    monkeypatch.setattr(matrix_or_scalar, "SIZES", {"cpu": (2, 32)})
    for forward in (False, True):
        row = matrix_or_scalar.row_of("retention", 16, "float32", OnlyCalls(), "cpu", 20, forward)
        assert row["shape"] == [2, 20, 2, 16, 16] and row["ratio"] == 1.0 and row["difference"] < 1e-5


def test_best_sizes_are_found_for_each_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    import matrix_plans

    launched = [("segment_states", 9.0), ("outputs", 5.0), ("join", 1.0), ("key_gradients K", 3.0)]
    calls = itertools.count()

    def recorded(run: object) -> list[dict[str, Any]]:
        return [{"kernel": k, "own": k, "registers": 1, "spills": 0, "shared": 2} for k, _ in launched]

    def timed(run: object) -> dict[str, list[float]]:
        number = next(calls)  # the third call is the fastest
        return {kernel: [us + abs(number - 2)] for kernel, us in launched}

    monkeypatch.setattr(matrix_plans, "recorded", recorded)
    monkeypatch.setattr(matrix_plans, "timed", timed)
    with rrnn.use_backend("matrix"):
        rows = matrix_plans.rows_of("GLA", (1, 64, 1, 64, 64), [64], "cpu")
    assert {row["segment"] for row in rows} == {64} and rows[2]["walk"] is None
    head, *table = matrix_plans.best(rows)
    assert [row[3] for row in table] == ["segment_states", "outputs", "key_gradients K"]
    assert [row[5:7] for row in table] == [["11.0", "9.0"], ["7.0", "5.0"], ["5.0", "3.0"]] and len(head) == 8
