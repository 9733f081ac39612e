"""The race of matrix states without a GPU: peers are loops over time, and a clock that only calls."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

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

    import rrnn

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
    lines = ["import time", "def test_a(): pass", "def test_b(): assert 0", "def test_c(): time.sleep(60)"]
    test.write_text("\n".join(lines))
    for passed in (0, 1):
        tests = Tests(tmp_path, tmp_path)
        assert sorted(tests.found.values()) == ["FAILED", "PASSED"][: 2 * passed]
        tests.run(12.0, 1, [test.name])
        assert tests.report() == 1 and tests.selected == 3
    assert capsys.readouterr().out.splitlines()[2].split() == ["1", "1", "0", "1"]
    assert (tmp_path / "tests.log").read_text().count("test_a PASSED") == 1
    report_race(tmp_path)
    assert capsys.readouterr().out.count("not reached") == 36
