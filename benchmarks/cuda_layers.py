"""`layers.py --device cuda`: whole layers, matrix products included, forward and backward, against cuDNN's.

Input and hidden size are equal. The output gets a fixed gradient; gradients of the input and of all parameters are
computed. `plain_ms` is by plain calls, which wait for Python where the GPU is quicker, `ms` by replaying a CUDA graph,
which spares a layer its launches; `ratio` and `graph_ratio` compare each with cuDNN's LSTM measured the same way.
Matrix products in fp32 are exact, without TF32, for all.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from cuda_report import SHORT, shape_text
from cuda_timing import Clock, CudaClock, describe, hardware, in_parallel
from results import Row, print_table, write
from torch import Tensor, nn

from rrnn import zoo

SHAPES = [(35, 32, 1024), (512, 32, 1024), (2048, 8, 1024), (4096, 16, 2048)]
DTYPES = ["bfloat16", "float32"]
Shape = tuple[int, int, int]

OURS: dict[str, Callable[..., nn.Module]] = {
    f"RRNN({name})": lambda size, name=name, **options: zoo.layer(name, size, size, **options)
    for name in ("B", "F", "B+o", "F+o")
}
CUDNN: dict[str, Callable[..., nn.Module]] = {
    "LSTM": lambda size, **options: nn.LSTM(size, size, **options),
    "GRU": lambda size, **options: nn.GRU(size, size, **options),
}
FLOOR = "Linear(D, 4D)"  # a matrix product of an LSTM's size, alone


class Product(nn.Module):
    def __init__(self, size: int, **options: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(size, 4 * size, **options)

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return self.linear(x), None


def training_step(layer: nn.Module, x: Tensor) -> Callable[[], object]:
    """Forward, and the gradients of the input and of every parameter."""
    wanted = [x, *layer.parameters()]
    with torch.no_grad():
        grad = torch.rand_like(layer(x)[0])

    def run() -> object:
        return torch.autograd.grad(layer(x)[0], wanted, grad)

    return run


def make(name: str, shape: Shape, dtype: torch.dtype, device: str) -> Callable[[], object]:
    steps, batch, size = shape
    torch.manual_seed(0)
    kinds = {**OURS, **CUDNN, FLOOR: Product}
    layer = kinds[name](size, device=device, dtype=dtype)
    x = torch.randn(steps, batch, size, device=device, dtype=dtype, requires_grad=True)
    return training_step(layer, x)


def rows_of(shape: Shape, dtype: str, clock: Clock, device: str = "cuda") -> Iterator[Row]:
    """All layers at one shape; ratios to the LSTM's time of the same run."""
    lstm: Row = {}
    for name in (*CUDNN, FLOOR, *OURS):
        row: Row = {"name": name, "shape": list(shape), "dtype": dtype, "pass": "forward_backward"}
        try:
            run = make(name, shape, getattr(torch, dtype), device)
            row["plain_ms"] = clock.plain(run)
            row["ms"] = clock.graph(run)
        except Exception as error:
            yield {**row, "error": describe(error)}
            continue
        if name == "LSTM":
            lstm = row
        if lstm and name in OURS:
            ratios = {"ratio": lstm["plain_ms"] / row["plain_ms"], "graph_ratio": lstm["ms"] / row["ms"]}
            row |= {"baseline": "cuDNN LSTM", **ratios}
        yield row
        del run
        if device == "cuda":
            torch.cuda.empty_cache()


def table(rows: list[Row]) -> list[list[str]]:
    out = [["layer", "shape", "dtype", "ms", "in a graph", "LSTM's time over it", "in a graph"]]
    for row in rows:
        head = [row["name"], shape_text(row), SHORT[row["dtype"]]]
        if "error" in row:
            out.append([*head, row["error"][:60], "", "", ""])
            continue
        ratios = [f"{row[key]:.1f}×" if key in row else "" for key in ("ratio", "graph_ratio")]
        out.append([*head, f"{row['plain_ms']:.3f}", f"{row['ms']:.3f}", *ratios])
    return out


def compile_one(name: str, shape: Shape, dtype: torch.dtype) -> None:
    make(name, shape, dtype, "cuda")()
    torch.cuda.synchronize()


def main(arguments: argparse.Namespace) -> None:
    if not torch.cuda.is_available():
        raise SystemExit("--device cuda needs a CUDA device")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    shapes = [tuple(int(n) for n in text.split(",")) for text in arguments.shapes] or SHAPES
    dtypes = arguments.dtypes or DTYPES
    jobs = [(compile_one, (name, s, getattr(torch, d))) for s in shapes for d in dtypes for name in OURS]
    for failure in in_parallel(jobs):
        print("failed to compile:", failure)
    clock, rows = CudaClock(budget=50.0), []
    for shape in shapes:
        for dtype in dtypes:
            rows += rows_of(shape, dtype, clock)
            print(".", end="", flush=True)
    print()
    print_table(table(rows))
    if arguments.json:
        write(arguments.json, rows, device=hardware())


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="*", default=[], help="T,B,D …")
    parser.add_argument("--dtypes", nargs="*", default=[], help="float32, bfloat16 …")
    parser.add_argument("--json", type=Path, help="write the rows to this file, too")
    return parser.parse_args()


if __name__ == "__main__":
    main(parse())
