"""The logic of the CUDA benchmarks, without a GPU: a clock that only calls, tiny shapes, peers made of torch ops."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

SHAPE = (5, 2, 3)


class FakeClock:
    """Calls once; every call takes a millisecond."""

    def graph(self, run: Callable[[], object]) -> float:
        run()
        return 1.0

    def plain(self, run: Callable[[], object]) -> float:
        run()
        return 2.0


class Eager:
    """A peer: c = f·c' + u along the second dimension, with the interface of an autograd.Function."""

    @staticmethod
    def forward(context: Any, f: Tensor, u: Tensor) -> Tensor:
        f, u = f.detach().requires_grad_(), u.detach().requires_grad_()
        c, cs = torch.zeros_like(u[:, 0]), []
        for t in range(u.shape[1]):
            c = f[:, t] * c + u[:, t]
            cs.append(c)
        out = torch.stack(cs, 1)
        context.save_for_backward(f, u, out)
        return out.detach()

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor, ...]:
        f, u, out = context.saved_tensors
        return torch.autograd.grad(out, (f, u), grad, retain_graph=True)


def make_peers() -> dict[str, Any]:
    from peers import Peer, batch_first, time_first

    def missing() -> Any:
        raise ModuleNotFoundError("No module named 'nobody'")

    class Wrong(Eager):
        @staticmethod
        def forward(context: Any, f: Tensor, u: Tensor) -> Tensor:
            return Eager.forward(context, f, u) + 1

    loads = {"eager": lambda: Eager, "missing": missing, "wrong": lambda: Wrong}
    return {
        name: Peer(name, load, batch_first, time_first, log=False, gate_first=True)
        for name, load in loads.items()
    }


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    import cuda_kernels

    monkeypatch.setattr(cuda_kernels, "PEERS", make_peers())
    dtypes = ["float32", "bfloat16"]

    def others() -> Iterator[dict[str, Any]]:
        for peer, dtype in product(cuda_kernels.PEERS.values(), dtypes):
            bench = cuda_kernels.Bench.make("B unfused", SHAPE, getattr(torch, dtype), "cpu", "reference")
            yield from cuda_kernels.peer_rows(peer, bench, 1.0, FakeClock())

    return cuda_kernels.run(
        list(cuda_kernels.CELLS),
        [SHAPE],
        dtypes,
        others(),
        FakeClock(),
        device="cpu",
        backend="reference",
        roof=1.0,
    )


def test_rows(rows: list[dict[str, Any]]) -> None:
    from cuda_report import goals, table

    ours = {(r["name"], r["dtype"], r["pass"]): r for r in rows if r["backend"] == "reference"}
    assert len(ours) == 6 * 2 * 3 and {len(ours), len(rows)} == {36, 36 + 2 * (6 + 1 + 1)}
    size = 5 * 2 * 3 * 4  # bytes of N fp32 numbers; a millisecond a call
    for name, k in {"B unfused": 2, "B+o": 3, "C+o": 5, "F+o": 5, "B max-plus": 2, "log-B": 2}.items():
        moved = [
            ours[name, "float32", p]["gb_per_s"] * 1e6 for p in ("forward", "backward", "forward_backward")
        ]
        assert moved == pytest.approx([(k + 1) * size, (2 * k + 1) * size, (3 * k + 2) * size])
    errors = {r["backend"]: r["error"] for r in rows if "error" in r}
    assert errors["missing"].startswith("ModuleNotFoundError: No module named") and "RMS" in errors["wrong"]
    fastest = ours["B unfused", "float32", "forward_backward"]
    assert fastest["baseline"] == "eager" and fastest["ratio"] == 1.0
    assert "baseline" not in ours["F+o", "float32", "forward"]
    text = table(rows)
    assert len(text) == len(rows) + 1 and len({len(line) for line in text}) == 1
    assert len({len(line) for line in goals(rows)}) == 1


def test_goals() -> None:
    from cuda_report import goals

    row = {
        "name": "B unfused",
        "dtype": "float32",
        "backend": "triton",
        "pass": "forward_backward",
        "ms": 0.0109,
    }
    row |= {"shape": [35, 32, 1024], "percent_of_copy": 50.0}
    other = row | {"shape": [512, 32, 1024], "percent_of_copy": 91.0}
    f = row | {"name": "F+o", "dtype": "bfloat16", "pass": "backward", "shape": [65536, 1, 1024]}
    _, *lines = goals([row, other, f, f | {"pass": "forward_backward"}])
    assert [line[6:8] for line in lines] == [["≤ 11 µs", "yes"], ["≥ 92 %", "NO"], ["≥ 35 %", "yes"]]


@pytest.mark.parametrize("steps", [3, 32, 35])
def test_layouts_there_and_back(steps: int) -> None:
    from peers import PEERS

    t = torch.randn(steps, 2, 3)
    for peer in PEERS.values():
        own = peer.to_own(t)
        assert own.is_contiguous() and torch.equal(peer.from_own(own, steps), t)
    assert PEERS["accelerated-scan warp"].to_own(t).shape == (2, 3, 64 if steps == 35 else 32)


def test_layers() -> None:
    import cuda_layers

    rows = list(cuda_layers.rows_of((3, 2, 4), "float32", FakeClock(), "cpu"))
    assert [r["name"] for r in rows][:3] == ["LSTM", "GRU", "Linear(D, 4D)"] and not any(
        "error" in r for r in rows
    )
    assert {r["name"]: r["ratio"] for r in rows if "ratio" in r} == dict.fromkeys(cuda_layers.OURS, 1.0)
    assert len({len(line) for line in cuda_layers.table(rows)}) == 1


def test_plot(rows: list[dict[str, Any]]) -> None:
    import plots

    data = {"meta": {"copy_gb_per_s": 4000.0, "least_kernel_ms": 0.002}, "rows": rows}
    assert "bytes that must move" in plots.roofline(json.loads(json.dumps(data)))


def test_the_roof() -> None:
    import plots

    assert plots.roof(1e12, 4000.0, 0.002) == 4000.0 and plots.roof(2e6, 4000.0, 0.002) == pytest.approx(
        1000.0
    )
