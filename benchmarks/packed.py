"""How fast sequences of mixed lengths train, packed end to end (`cu_seqlens`) and padded to the longest (`lengths`).

    python benchmarks/packed.py [--device cuda] [--json FILE]

A batch has sequences whose lengths are drawn log-uniformly between 16 and 512. A call is forward and backward of one
layer, with gradients of its input and of every parameter. All forms hold the same sequences; making them is not timed.
On a GPU `ms` is the time of a CUDA graph, where one can be captured, and `plain_ms` that of plain calls.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from quiet import Watch
from results import Row, best_of, print_table, write
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_sequence

from rrnn import RationalRNN, zoo

CELLS = ("B", "F", "SRU", "GLA")
SHORTEST, LONGEST = 16, 512


def draw_lengths(count: int, seed: int = 0) -> list[int]:
    """Return log-uniform lengths."""
    g = torch.Generator().manual_seed(seed)
    spread = math.log(LONGEST / SHORTEST)
    return [int(SHORTEST * math.exp(spread * u)) for u in torch.rand(count, generator=g).tolist()]


def forms(layer: RationalRNN, sequences: list[Tensor]) -> dict[str, tuple[Tensor, Callable[[Any], Tensor]]]:
    """Return name → (input, call) of each way to hand over the sequences."""
    device = sequences[0].device
    lengths = torch.tensor([len(s) for s in sequences])
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(device)
    there = lengths.to(device)
    packed = pack_sequence(sequences, enforce_sorted=False)
    rest = packed[1:]
    return {
        "cu_seqlens": (torch.cat(sequences), lambda x: layer(x, cu_seqlens=offsets)[0]),
        "lengths": (pad_sequence(sequences), lambda x: layer(x, lengths=there)[0]),
        "PackedSequence": (packed.data, lambda x: layer(PackedSequence(x, *rest))[0].data),
    }


def training(layer: nn.Module, x: Tensor, call: Callable[[Any], Tensor]) -> Callable[[], object]:
    """Return forward and backward of a call."""
    x = x.clone().requires_grad_()
    wanted = [x, *layer.parameters()]
    with torch.no_grad():
        grad = torch.randn_like(call(x))
    return lambda: torch.autograd.grad(call(x), wanted, grad)


def steps_of(
    name: str, count: int, units: int, dtype: torch.dtype, device: str
) -> tuple[dict[str, Callable[[], object]], list[int]]:
    """Return what is timed for a cell, and the lengths."""
    torch.manual_seed(0)
    lengths = draw_lengths(count)
    sequences = [torch.randn(n, units, device=device, dtype=dtype) for n in lengths]
    cell = zoo.get_cell(name, states=16) if name == "GLA" else zoo.get_cell(name)
    more = {"heads": units // 64} if name == "GLA" else {}
    layer = RationalRNN(cell, units, units, device=device, dtype=dtype, **more)
    found = {form: training(layer, *given) for form, given in forms(layer, sequences).items()}
    return found, lengths


def timed(
    functions: dict[str, Callable[[], object]], device: str, rounds: int
) -> dict[str, dict[str, float]]:
    """Return name → its times in ms."""
    if device == "cpu":
        return {name: {"ms": ms} for name, ms in best_of(functions, rounds=rounds).items()}
    from cuda_timing import CudaClock

    clock, found = CudaClock(), {}
    for name, run in functions.items():
        run()
        plain = clock.plain(run)
        # A PackedSequence has its lengths on the host, and so cannot be captured.
        graph = clock.graph(run) if name in ("cu_seqlens", "lengths") else plain
        found[name] = {"ms": graph, "plain_ms": plain}
    return found


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    device, count, units = arguments.device, arguments.sequences, arguments.units
    for dtype in (getattr(torch, name) for name in arguments.dtypes):
        for name in arguments.cells:
            functions, lengths = steps_of(name, count, units, dtype, device)
            for form, times in (found := timed(functions, device, arguments.rounds)).items():
                yield {
                    "name": f"{name}, {form}",
                    "cell": name,
                    "form": form,
                    "shape": [sum(lengths), count, units],
                    "longest": max(lengths),
                    "valid_share": sum(lengths) / (count * max(lengths)),
                    "dtype": str(dtype).removeprefix("torch."),
                    "device": device,
                    "pass": "forward_backward",
                    **times,
                    "baseline": "lengths",
                    "ratio": found["lengths"]["ms"] / times["ms"],
                }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--cells", nargs="+", default=list(CELLS))
    parser.add_argument("--dtypes", nargs="+", default=["float32"])
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--units", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the rows to this file, too")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with Watch() as watch:
        found = list(rows(arguments))
    lines = [["cell", "dtype", "form", "ms", "plain ms", "against padding"]]
    for row in found:
        plain = f"{row['plain_ms']:.3f}" if "plain_ms" in row else ""
        lines.append(
            [row["cell"], row["dtype"], row["form"], f"{row['ms']:.3f}", plain, f"{row['ratio']:.2f}×"]
        )
    print_table(lines)
    print(f"{100 * found[0]['valid_share']:.0f} % of the padded steps hold something. {watch.note}")
    if arguments.json:
        write(arguments.json, found, others_used_cores=round(watch.others, 3))


if __name__ == "__main__":
    main()
