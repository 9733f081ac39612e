"""Rows of the CUDA benchmarks as tables, and what they are meant to reach."""

from __future__ import annotations

from results import Row

SHORT = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
PASS = {"forward": "forward", "backward": "backward", "forward_backward": "both"}

# % of copy bandwidth, forward and backward together, of the bare recurrence: shape → (fp32, bf16)
UNFUSED = {
    (35, 32, 1024): (85, 55),
    (512, 32, 1024): (92, 80),
    (2048, 8, 1024): (80, 65),
    (4096, 16, 2048): (95, 85),
    (65536, 1, 1024): (82, 65),
}
UNFUSED_US = {
    (35, 32, 1024): (11.0, 9.0)
}  # lives in L2: microseconds say more than a share of the memory's bandwidth
# % of copy bandwidth of fused F: shape → ((forward, backward) in fp32, in bf16)
FUSED_F = {
    (512, 32, 1024): ((70, 65), (55, 50)),
    (4096, 16, 2048): ((70, 65), (55, 50)),
    (2048, 8, 1024): ((50, 45), (40, 35)),
    (65536, 1, 1024): ((50, 45), (40, 35)),
}


def shape_text(row: Row) -> str:
    return "×".join(map(str, row["shape"]))


def table(rows: list[Row]) -> list[list[str]]:
    """Every row."""
    out = [
        ["cell", "by", "shape", "dtype", "pass", "µs", "plain µs", "GB/s", "% of copy", "best peer", "ratio"]
    ]
    for row in rows:
        by = row["backend"] + (f", {row['layout']}" if "layout" in row else "")
        head = [row["name"], by, shape_text(row), SHORT[row["dtype"]]]
        if "error" in row:
            out.append([*head, row["error"][:60], *[""] * 6])
            continue
        peer = [row["baseline"], f"{row['ratio']:.2f}×"] if "baseline" in row else ["", ""]
        figures = [f"{1e3 * row[k]:.1f}" for k in ("ms", "plain_ms")]
        figures += [f"{row['gb_per_s']:.0f}", f"{row['percent_of_copy']:.0f}"]
        out.append([*head, PASS[row["pass"]], *figures, *peer])
    return out


def goals(rows: list[Row]) -> list[list[str]]:
    """The rows that have a goal, what they reach, and what the best peer from (T,B,D) tensors takes."""
    out = [["cell", "shape", "dtype", "pass", "µs", "% of copy", "goal", "", "best peer", "ratio"]]
    for row in rows:
        if "error" in row or "layout" in row:
            continue
        shape, narrow = tuple(row["shape"]), row["dtype"] == "bfloat16"
        goal, reached = None, row["percent_of_copy"]
        text = ""
        if row["name"] == "B unfused" and row["pass"] == "forward_backward" and shape in UNFUSED_US:
            most = UNFUSED_US[shape][narrow]
            goal, reached, text = -most, -1e3 * row["ms"], f"≤ {most:.0f} µs"
        elif row["name"] == "B unfused" and row["pass"] == "forward_backward" and shape in UNFUSED:
            goal = UNFUSED[shape][narrow]
        elif row["name"] == "F+o" and row["pass"] != "forward_backward" and shape in FUSED_F:
            goal = FUSED_F[shape][narrow][row["pass"] == "backward"]
        if goal is None:
            continue
        peer = [row["baseline"], f"{row['ratio']:.2f}×"] if "baseline" in row else ["", ""]
        out.append(
            [
                row["name"],
                shape_text(row),
                SHORT[row["dtype"]],
                PASS[row["pass"]],
                f"{1e3 * row['ms']:.1f}",
                f"{row['percent_of_copy']:.1f}",
                text or f"≥ {goal} %",
                "yes" if reached >= goal else "NO",
                *peer,
            ]
        )
    return out
