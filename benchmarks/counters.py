"""The profiler's counters of generated kernels: what bounds those that stay below their goals.

    python benchmarks/counters.py [--json docs/results/counters-h200.json]        needs Nsight Compute (ncu)

Each case is called twice, the second time under the profiler, with the clocks and caches as they are. Counters: time,
bytes from and to memory, the share of memory's peak, hits in L2, resident warps (of 64 a multiprocessor), issue slots
used, and what a warp mostly waits for, in cycles per instruction that is issued.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from cuda_kernels import Bench
from results import meta, print_table

CASES = [
    ("B unfused", (512, 32, 1024), "float32"),  # meets its goal: to compare with
    ("B unfused", (2048, 8, 1024), "float32"),
    ("B unfused", (2048, 8, 1024), "bfloat16"),
    ("B unfused", (65536, 1, 1024), "float32"),
    ("B unfused", (65536, 1, 1024), "bfloat16"),
    ("F+o", (2048, 8, 1024), "bfloat16"),
]
STALLS = (
    "long_scoreboard",
    "barrier",
    "membar",
    "wait",
    "lg_throttle",
    "short_scoreboard",
    "math_pipe_throttle",
)
COUNTERS = {
    "us": "gpu__time_duration.sum",
    "read_bytes": "dram__bytes_read.sum",
    "written_bytes": "dram__bytes_write.sum",
    "memory_percent": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_percent": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_hit_percent": "lts__t_sector_hit_rate.pct",
    "warps_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "issue_percent": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "registers": "launch__registers_per_thread",
} | {f"stall_{s}": f"smsp__average_warps_issue_stalled_{s}_per_issue_active.ratio" for s in STALLS}
UNITS = {"us": {"ns": 1e-3, "us": 1, "ms": 1e3}} | {
    key: {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9} for key in ("read_bytes", "written_bytes")
}


def run(number: int) -> None:
    """What is profiled: a forward and a backward pass of a case."""
    name, shape, dtype = CASES[number]
    bench = Bench.make(name, shape, getattr(torch, dtype), "cuda", "triton")
    for again in (False, True):
        torch.cuda.synchronize()
        if again:
            torch.cuda.profiler.start()
        bench.backward(bench.forward()[2])
        torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def profile(number: int, ncu: str) -> list[dict[str, Any]]:
    command = [
        ncu,
        "--csv",
        "--print-units",
        "base",
        "--profile-from-start",
        "off",
        "--clock-control",
        "none",
    ]
    command += ["--cache-control", "none", "--metrics", ",".join(COUNTERS.values())]
    done = subprocess.run(
        [*command, sys.executable, __file__, "--case", str(number)],
        capture_output=True,
        text=True,
        check=False,
    )
    start = done.stdout.find('"ID"')
    if start < 0:
        sys.exit(f"the profiler gave no table:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return kernels(done.stdout[start:])


def kernels(table: str) -> list[dict[str, Any]]:
    """A dictionary a launch, of ncu's table with a line for every counter of every launch."""
    names = {counter: key for key, counter in COUNTERS.items()}
    launches: dict[str, dict[str, Any]] = {}
    for line in csv.DictReader(io.StringIO(table)):
        launch = launches.setdefault(line["ID"], {"kernel": line["Kernel Name"]})
        key, value, unit = names.get(line["Metric Name"]), line["Metric Value"], line["Metric Unit"]
        if key and value.replace(",", "").replace(".", "").replace("-", "").isdigit():
            factor = UNITS.get(key, {}).get(unit, 1e-3 if key == "us" else 1)
            launch[key] = round(float(value.replace(",", "")) * factor, 3)
    return list(launches.values())


def show(rows: list[dict[str, Any]]) -> None:
    head = [
        "case",
        "kernel",
        "µs",
        "MB read",
        "written",
        "memory %",
        "L2 %",
        "L2 hits %",
        "warps %",
        "issue %",
        "waits for",
    ]
    lines = []
    for row in rows:
        waits = sorted(((row.get(f"stall_{s}", 0.0), s) for s in STALLS), reverse=True)[:2]
        megabytes = [f"{row.get(key, 0) / 1e6:.0f}" for key in ("read_bytes", "written_bytes")]
        shares = ("memory_percent", "l2_percent", "l2_hit_percent", "warps_percent", "issue_percent")
        lines.append(
            [row["case"], row["kernel"][:20], f"{row.get('us', 0):.1f}", *megabytes]
            + [f"{row.get(key, 0):.0f}" for key in shares]
            + [", ".join(f"{name} {cycles:.1f}" for cycles, name in waits)]
        )
    print_table([head, *lines])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--ncu", default="ncu")
    parser.add_argument("--case", type=int, help="run a case, to be profiled")
    arguments = parser.parse_args()
    if arguments.case is not None:
        return run(arguments.case)
    rows = []
    for number, (name, shape, dtype) in enumerate(CASES):
        case = f"{name} {shape} {dtype}"
        about = {"name": name, "shape": list(shape), "dtype": dtype, "case": case}
        rows += [about | launch for launch in profile(number, arguments.ncu)]
    show(rows)
    if arguments.json:
        text = json.dumps({"meta": meta(), "counters": COUNTERS, "rows": rows}, indent=1)
        arguments.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
