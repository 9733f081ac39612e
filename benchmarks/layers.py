"""How fast whole layers train, matrix products included, against `nn.LSTM` and `nn.GRU`; and how fast they stream.

    python benchmarks/layers.py --device cpu [--threads 1 2] [--wait 600] [--json FILE]
    python benchmarks/layers.py --device cuda [--json FILE]                    (cuda_layers.py says what it measures)

Training: forward and backward of one layer, with gradients of the input and of every parameter, at equal hidden size
and, for each of ours, against an LSTM and a GRU with as many parameters on the same input. Streaming: one `step` of a
batch of one, 512 units, and what it costs beyond its own matrix product.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from quiet import Watch, wait_until_quiet
from results import Row, best_of, print_table, write
from torch import Tensor, nn

from rrnn import RationalRNN
from rrnn.backends import chosen, resolve, use_backend
from rrnn.zoo import get_cell

SHAPES = [(35, 32, 650), (512, 16, 512)]
CELLS = ("B", "B-max-plus", "C", "F", "SRU", "B+o", "F+o")
RIVALS: dict[str, type[nn.RNNBase]] = {"nn.LSTM": nn.LSTM, "nn.GRU": nn.GRU}
STREAM = 512


def parameters(layer: nn.Module) -> int:
    return sum(p.numel() for p in layer.parameters())


def of_equal_parameters(kind: type[nn.RNNBase], inputs: int, wanted: int) -> nn.Module:
    """The rival whose number of parameters comes closest."""
    gates = 4 if kind is nn.LSTM else 3
    size = min(range(1, 4 * inputs), key=lambda h: abs(gates * h * (inputs + h + 2) - wanted))
    return kind(inputs, size)  # pyright: ignore[reportCallIssue]


def training(layer: nn.Module, x: Tensor) -> Callable[[], object]:
    wanted = [x, *layer.parameters()]
    with torch.no_grad():
        grad = torch.randn_like(layer(x)[0])
    return lambda: torch.autograd.grad(layer(x)[0], wanted, grad)


def backend_of(layer: RationalRNN, x: Tensor) -> str:
    cells = [program for each in layer.layers for program in each.programs]
    return resolve(chosen(), x.device, x.dtype, cells).name


def train_rows(shape: tuple[int, int, int], threads: int, rounds: int) -> Iterator[Row]:
    steps, batch, units = shape
    torch.manual_seed(0)
    x = torch.randn(steps, batch, units, requires_grad=True)
    ours = {name: RationalRNN(get_cell(name), units, units) for name in CELLS}
    rivals: dict[str, nn.Module] = {name: kind(units, units) for name, kind in RIVALS.items()}
    best = best_of({name: training(layer, x) for name, layer in (ours | rivals).items()}, rounds=rounds)
    for name, layer in ours.items():
        equal = {
            f"{k}, equal parameters": of_equal_parameters(v, units, parameters(layer))
            for k, v in RIVALS.items()
        }
        best |= best_of({k: training(rival, x) for k, rival in equal.items()}, rounds=rounds)
        for rival, rival_layer in {**rivals, **equal}.items():
            yield {
                "name": f"RRNN({name}), {threads} threads",
                "cell": layer.layers[0].programs[0].name,
                "semiring": layer.layers[0].programs[0].semiring_name,
                "shape": list(shape),
                "dtype": "float32",
                "backend": backend_of(layer, x),
                "pass": "forward_backward",
                "ms": best[name],
                "baseline": rival,
                "ratio": best[rival] / best[name],
                "threads": threads,
                "parameters": parameters(layer),
                "baseline_parameters": parameters(rival_layer),
            }


def step_rows(threads: int, rounds: int) -> Iterator[Row]:
    for name in CELLS:
        layer = RationalRNN(get_cell(name), STREAM, STREAM).eval()
        x, weight = torch.randn(1, STREAM), layer.layers[0].weight
        with torch.inference_mode():
            _, state = layer.step(x)
            best = best_of(
                {
                    "ours": lambda layer=layer, x=x, state=state: layer.step(x, state),
                    "linear": lambda x=x, weight=weight: F.linear(x, weight),
                },
                rounds=100 * rounds,
                warm_up=50,
            )
            used = backend_of(layer, x)
        yield {
            "name": f"step of RRNN({name}), {threads} threads",
            "cell": layer.layers[0].programs[0].name,
            "semiring": layer.layers[0].programs[0].semiring_name,
            "shape": [1, 1, STREAM],
            "dtype": "float32",
            "backend": used,
            "pass": "forward",
            "ms": best["ours"],
            "baseline": "its matrix product alone",
            "ratio": best["linear"] / best["ours"],
            "threads": threads,
            "over_baseline_us": 1e3 * (best["ours"] - best["linear"]),
        }


def tables(rows: list[Row]) -> Iterator[list[list[str]]]:
    train = [["layer", "shape", "threads", "ms", "rival", "rival ms", "ratio"]]
    stream = [["layer", "threads", "step µs", "product µs", "over it µs"]]
    for row in rows:
        name, threads = row["name"].split(",")[0], str(row["threads"])
        rival = row["ratio"] * row["ms"]
        if "over_baseline_us" in row:
            figures = [1e3 * row["ms"], 1e3 * rival, row["over_baseline_us"]]
            stream.append([name, threads, *(f"{v:.0f}" for v in figures)])
        else:
            shape = "×".join(map(str, row["shape"]))
            figures = [f"{row['ms']:.1f}", row["baseline"], f"{rival:.1f}", f"{row['ratio']:.1f}×"]
            train.append([name, shape, threads, *figures])
    yield from (train, stream)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--shapes", nargs="*", default=[], help="T,B,D …")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--backend", default="auto", help="auto, native or reference")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds to wait for a quiet machine")
    parser.add_argument("--json", type=Path, help="write the rows to this file, too")
    parser.add_argument("--dtypes", nargs="*", default=[], help="cuda: float32, bfloat16 …")
    arguments = parser.parse_args()
    if arguments.device == "cuda":
        import cuda_layers

        return cuda_layers.main(arguments)
    shapes = [tuple(int(n) for n in text.split(",")) for text in arguments.shapes] or SHAPES
    wait_until_quiet(arguments.wait)
    rows: list[Row] = []
    with use_backend(arguments.backend), Watch() as watch:
        for threads in arguments.threads:
            torch.set_num_threads(threads)
            for shape in shapes:
                rows += train_rows(shape, threads, arguments.rounds)
                print(".", end="", flush=True)
            rows += step_rows(threads, arguments.rounds)
    print()
    for table in tables(rows):
        print_table(table)
        print()
    print(watch.note)
    if arguments.json:
        write(arguments.json, rows, others_used_cores=round(watch.others, 3))


if __name__ == "__main__":
    main()
