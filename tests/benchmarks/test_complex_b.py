"""The rival of the complex B computes the recurrence, and its benchmark runs, without the compiled cell."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor


def in_real_numbers(x: dict[str, Tensor]) -> Tensor:
    """Compute the same output by the rule of the product, (a + ib)(c + id) = ac − bd + i(ad + bc)."""
    size, angle = torch.sigmoid(x["f"] + x["f.bias"]), x["theta"] + x["theta.bias"]
    re, im, out = torch.zeros_like(x["u"][0]), torch.zeros_like(x["u"][0]), []
    for t in range(len(x["u"])):
        a, b = size[t] * angle[t].cos(), size[t] * angle[t].sin()
        re, im = a * re - b * im + x["u"][t], a * im + b * re + x["v"][t]
        out.append(torch.cat([re, im], -1))
    return torch.stack(out)


def twin_case(shape: tuple[int, int, int], device: str, dtype: torch.dtype) -> Any:
    """Stand in for `layer_case`."""
    from complex_b import Case, draw

    x, biases, inputs, grad = draw(shape, device, dtype)
    kernels = {"forward": lambda: 3, "backward": lambda: 5, "forward_backward": lambda: 8}
    return Case(inputs, [x, biases], grad, lambda: in_real_numbers(inputs), kernels)


def test_the_rival() -> None:
    from complex_b import check

    case = twin_case((6, 2, 3), "cpu", torch.float64)
    torch.testing.assert_close(case.eager(), in_real_numbers(case.inputs))
    torch.testing.assert_close(case.both(case.eager), case.both(case.ours))
    check(twin_case, "cpu")

    def wrong(*given: Any) -> Any:
        case = twin_case(*given)
        right = case.ours
        case.ours = lambda: right() + 0.01
        return case

    with pytest.raises(AssertionError):
        check(wrong, "cpu")


def test_bytes_that_must_move() -> None:
    from complex_b import cuda_rows, table

    class FakeClock:
        """Forward takes 3 ms, both passes 8; plain calls take ten times as long."""

        def graph(self, run: Callable[[], object]) -> float:
            return float(run())  # pyright: ignore[reportArgumentType]

        def plain(self, run: Callable[[], object]) -> float:
            return 30.0 if isinstance(run(), Tensor) else 80.0

    rows = cuda_rows(twin_case((4, 2, 3), "cpu", torch.float32), (4, 2, 3), FakeClock(), roof=2e-4)
    size = 4 * 2 * 3 * 4
    assert [row["ms"] for row in rows] == [3.0, 5.0, 8.0] and [row["plain_ms"] for row in rows] == [
        30,
        50,
        80,
    ]
    assert {row["ratio"] for row in rows} == {1.0}
    assert [row["gb_per_s"] for row in rows] == pytest.approx([size * n / 1e6 for n in (2, 2, 2)])
    assert rows[0]["percent_of_copy"] == pytest.approx(96.0) and len(table(rows)) == 4


def test_on_the_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import complex_b

    monkeypatch.setitem(complex_b.SHAPES, "cpu", (4, 2, 3))
    file = tmp_path / "results.json"
    monkeypatch.setattr(sys, "argv", ["x", "--threads", "1", "--rounds", "2", "--json", str(file)])
    complex_b.main(twin_case)
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    assert [row["pass"] for row in rows] == ["forward", "forward_backward"]
    assert all(row["ratio"] > 0 and row["percent_of_copy"] > 0 for row in rows)
