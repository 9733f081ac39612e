"""How fast ISAN trains on the CPU, against the loop a person would write.

    python benchmarks/isan.py [--threads 1 2] [--shape 128,64,64] [--symbols 28] [--rounds 15] [--json FILE]

The rival multiplies step by step, `c = bmm(W[x_t], c) + b[x_t]`, and lets autograd do the rest. "direct"
is the layer without its cell: the recurrence gets the weights as they are. It takes turns with the layer alone, since
what follows the rival finds other data in the caches. The time of each is its best.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from quiet import Watch
from results import Row, best_of, print_table, write
from torch import Tensor

from rrnn.backends import use_backend
from rrnn.zoo.mixing import ISAN


def eager(layer: ISAN, x: Tensor) -> Tensor:
    """The loop a person would write."""
    c, states = layer.init_state(x.shape[1]), []
    for x_t in x:
        c = torch.bmm(layer.weight[x_t], c.unsqueeze(-1)).squeeze(-1) + layer.bias[x_t]
        states.append(c)
    return torch.stack(states)


class Direct(ISAN):
    """ISAN as it is without a cell, whose program says what matrix and vector are."""

    def affine(self, input: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        return input, self.weight, F.embedding(input, self.bias)


def functions(layer: ISAN, x: Tensor) -> dict[str, Callable[[], Tensor]]:
    def on(backend: str) -> Tensor:
        with use_backend(backend):
            return layer(x)[0]

    direct = Direct(layer.num_symbols, layer.hidden_size)
    direct.weight, direct.bias = layer.weight, layer.bias

    # "triton" has no such kernel: it leaves the recurrence to torch, with the gradient written by hand
    return {
        "eager": lambda: eager(layer, x),
        "ours": lambda: on("auto"),
        "direct": lambda: direct(x)[0],
        "torch ops": lambda: on("triton"),
    }


def run(shape: tuple[int, int, int], symbols: int, threads: int, rounds: int) -> list[Row]:
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    steps, batch, units = shape
    layer, x = ISAN(symbols, units), torch.randint(symbols, (steps, batch))
    grad, parameters = torch.randn(steps, batch, units), tuple(layer.parameters())
    ways = functions(layer, x)
    expected = torch.autograd.grad(ways["eager"](), parameters, grad)
    for way in ways.values():
        for a, b in zip(torch.autograd.grad(way(), parameters, grad), expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-2)

    def forward(way: Callable[[], Tensor]) -> object:
        with torch.no_grad():
            return way()

    def both(way: Callable[[], Tensor]) -> object:
        return torch.autograd.grad(way(), parameters, grad)

    rows = []
    for name, run_pass in (("forward", forward), ("forward_backward", both)):
        timed = {k: lambda w=w, r=run_pass: r(w) for k, w in ways.items()}
        direct = {"direct": timed.pop("direct"), "ours": timed["ours"]}
        groups = {"eager": best_of(timed, rounds, warm_up=2), "direct": best_of(direct, rounds, warm_up=2)}
        rows += [
            {
                "name": f"ISAN {way}, {threads} threads",
                "shape": list(shape),
                "symbols": symbols,
                "dtype": "float32",
                "backend": way,
                "pass": name,
                "ms": best[way],
                "baseline": baseline,
                "ratio": best[baseline] / best[way],
                "threads": threads,
            }
            for baseline, best in groups.items()
            for way in best
        ]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--shape", default="128,64,64", help="T,B,D")
    parser.add_argument("--symbols", type=int, default=28)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="write the rows to this file, too")
    arguments = parser.parse_args()
    steps, batch, units = (int(n) for n in arguments.shape.split(","))
    with Watch() as watch:
        rows = [
            row
            for threads in arguments.threads
            for row in run((steps, batch, units), arguments.symbols, threads, arguments.rounds)
        ]
    head = ["ISAN", "threads", "pass", "ms", "ratio", "to"]
    lines = [
        [r["backend"], str(r["threads"]), r["pass"], f"{r['ms']:.2f}", f"{r['ratio']:.2f}×", r["baseline"]]
        for r in rows
    ]
    print_table([head, *lines])
    print(watch.note)
    if arguments.json:
        write(arguments.json, rows, others_used_cores=round(watch.others, 3))


if __name__ == "__main__":
    main()
