"""The comparison of two source trees: this tree with itself, at tiny shapes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def spec(kind: str, cell: str, name: str) -> dict[str, Any]:
    case = {"kind": kind, "cell": cell, "shape": (3, 2, 4), "dtype": "float32", "pass": name}
    return {**case, "timing": "plain"}


def test_a_tree_and_itself(tmp_path: Path) -> None:
    import versions

    specs = [
        spec("kernel", "B", "forward"),
        spec("kernel", "B", "forward_backward"),
        spec("layer", "B", "forward_backward"),
        spec("step", "B", "forward"),
        spec("kernel", "nobody", "forward"),
    ]
    comparison = versions.Comparison({"old": ROOT, "new": ROOT}, "cpu", 1, tmp_path)
    meta, rows = versions.compare(comparison, specs, 2, ["B"], 2)
    assert meta["trees"]["old"] == meta["trees"]["new"] and {"torch", "python"} <= set(meta["versions"])
    assert rows[4]["error"].startswith("old: CellError: no cell is called 'nobody'")
    for row in (*rows[:4], rows[5]):
        assert row["spread"][0] <= row["ratio"] <= row["spread"][1] and row.get("difference", 0.0) == 0.0
    assert rows[5]["kind"] == "first call" and rows[5]["old_ms"] > rows[1]["old_ms"]
    table = versions.table(rows)
    assert len({len(line) for line in table}) == 1
    ratios = [float(line[6]) for line in table[2:]]  # after the head and the case that failed
    assert ratios == sorted(ratios) and len(ratios) == 5


def test_every_case_is_known(tmp_path: Path) -> None:
    import versions
    from versions_worker import make_cell

    for device in ("cpu", "cuda"):
        quick, full = versions.cases(device, True), versions.cases(device, False)
        assert all(case in full for case in quick) and len(quick) < len(full)
        for cell in {case["cell"] for case in full} | set(versions.FIRST[device]):
            make_cell(cell).check()


def test_figures() -> None:
    import versions

    found = versions.summarise({"old": [1.0, 2.0, 4.0], "new": [2.0, 3.0, 4.0]})
    assert (found["old_ms"], found["new_ms"], found["ratio"]) == (2.0, 3.0, 1.5)  # 2, 1.5 and 1
    assert found["spread"] == [1.25, 1.75] and found["best_ratio"] == 2.0
    assert found["best_ms"] == [1.0, 2.0]
    assert versions.in_turn({"old": 0, "new": 0}, 0) == ["old", "new"]
    assert versions.in_turn({"old": 0, "new": 0}, 1) == ["new", "old"]
    assert versions.difference([1.0, 2.0], [1.0, 2.2]) == pytest.approx(0.1)
    assert versions.difference([1.0], [math.nan]) == math.inf == versions.difference([1.0], [])
