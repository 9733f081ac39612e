"""How fast Mamba and GLA run as cells, after the matrix product, against a loop over time in eager torch.

    python benchmarks/wide.py [--threads 2] [--device cuda] [--json FILE]

The rival computes the gates of all steps at once, and then loops over time with one state tensor (B, D, N), as the
papers' reference code does. Gates are part of both. A time is the best of turns that all rivals take; outputs and
gradients are compared first.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from quiet import Watch, wait_until_quiet
from results import Row, best_of, print_table, write
from torch import Tensor

from rrnn import RationalRNN, zoo
from rrnn.ops import rational

Shape = tuple[int, int, int, int]  # steps, batch, units, states
CASES: list[tuple[str, Shape, int]] = [
    ("Mamba", (512, 4, 512, 16), 1),
    ("GLA", (512, 4, 512, 16), 8),
    ("GLA", (512, 4, 512, 64), 8),
]
"""Model, shape, heads."""
SMALL: Shape = (7, 2, 16, 4)


class Case:
    """One model at one shape, with random pre-activations."""

    def __init__(self, name: str, shape: Shape, heads: int, device: str) -> None:
        steps, batch, units, states = shape
        torch.manual_seed(0)
        rnn = RationalRNN(zoo.get_cell(name, states=states), units, units, heads=heads, device=device)
        self.name, self.shape, self.heads, self.layer = name, shape, heads, rnn.layers[0]
        columns = self.layer.programs[0].columns(units)  # type: ignore[union-attr]
        self.x = torch.randn(steps, batch, columns, device=device, requires_grad=True)
        self.inp = torch.randn(steps, batch, units, device=device, requires_grad=True)
        self.params = [p.detach().requires_grad_() for p in self.layer.parameter_rows(self.x)]  # type: ignore[operator]
        self.grad = torch.randn(steps, batch, units, device=device)

    @property
    def leaves(self) -> list[Tensor]:
        own = [self.x, *(p for p in self.params if p.numel())]
        return [*own, self.inp] if self.layer.uses_input else own

    def ours(self) -> Tensor:
        inp = self.inp if self.layer.uses_input else None
        layer = self.layer
        return rational(self.x, self.params, None, layer.programs, inp=inp, widths=layer.widths).output  # type: ignore[arg-type]

    def eager(self) -> Tensor:
        """Compute the output as a person would write it."""
        _, _, units, n = self.shape
        if self.name == "Mamba":
            delta, b, c = self.x.split([units, n, n], -1)
            bias, a_log, d = self.params[0][0].split([units, n * units, units])
            delta = F.softplus(delta + bias).unsqueeze(-1)
            decay = torch.exp(delta * -torch.exp(a_log.view(n, units).T))
            entry = delta * b.unsqueeze(-2) * self.inp.unsqueeze(-1)
            return _loop(decay, entry, c.unsqueeze(-2)) + d * self.inp
        per = units // self.heads
        v, k, alpha, q = self.x.split([units, *[self.heads * n] * 3], -1)
        k, alpha, q = (y.unflatten(-1, (self.heads, 1, n)) for y in (k, alpha + self.params[0][0], q))
        decay = torch.exp(F.logsigmoid(alpha) / 16)
        entry = k * v.unflatten(-1, (self.heads, per, 1))
        return _loop(decay, entry, q * n**-0.5).flatten(-2)

    def both(self, run: Callable[[], Tensor]) -> tuple[Tensor, ...]:
        return torch.autograd.grad(run(), self.leaves, self.grad)


def _loop(decay: Tensor, entry: Tensor, read: Tensor) -> Tensor:
    z, out = torch.zeros_like(entry[0]), []
    for decay_t, entry_t, read_t in zip(decay.unbind(0), entry.unbind(0), read.unbind(0), strict=True):
        z = decay_t * z + entry_t
        out.append((z * read_t).sum(-1))
    return torch.stack(out)


def check(name: str, heads: int, device: str) -> None:
    """Raise an AssertionError unless the rivals agree on outputs and gradients."""
    case = Case(name, SMALL, heads, device)
    torch.testing.assert_close(case.ours(), case.eager(), rtol=1e-4, atol=1e-4)
    for ours, theirs in zip(case.both(case.ours), case.both(case.eager), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def rows_of(case: Case, rounds: int, threads: int, device: str) -> list[Row]:
    """Time forward and both passes."""

    def forward(run: Callable[[], Tensor]) -> Tensor:
        with torch.no_grad():
            return run()

    rows: list[Row] = []
    for name, run in {"forward": forward, "forward_backward": case.both}.items():
        rivals: dict[str, Callable[[], object]] = {
            "ours": lambda run=run: run(case.ours),
            "eager": lambda run=run: run(case.eager),
        }
        best = best_of(
            rivals, rounds=rounds, warm_up=1, wait=torch.cuda.synchronize if device == "cuda" else None
        )
        about = {"name": case.name, "cell": case.name, "semiring": "real", "shape": list(case.shape)}
        about |= {
            "heads": case.heads,
            "dtype": "float32",
            "pass": name,
            "threads": threads,
            "ms": best["ours"],
        }
        rows.append(
            about | {"baseline": "eager", "eager_ms": best["eager"], "ratio": best["eager"] / best["ours"]}
        )
    return rows


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--small", action="store_true", help="tiny shapes, to see that it runs")
    parser.add_argument("--wait", type=float, default=60.0, help="seconds to wait for a quiet machine")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs="+", help="on a GPU: these models alone")
    parser.add_argument("--search", action="store_true", help="on a GPU: time several plans instead")
    parser.add_argument("--warm", action="store_true", help="on a GPU: do not time first calls")
    options = parser.parse_args(argv)
    if options.device == "cuda":
        import cuda_wide

        if options.search:
            return cuda_wide.search(options.json)
        return cuda_wide.main(options.json, options.only, not options.warm)
    torch.set_num_threads(options.threads)
    if not options.small:
        wait_until_quiet(options.wait)
    rows: list[Row] = []
    with Watch() as watch:
        for name, shape, heads in CASES:
            check(name, heads, options.device)
            case = Case(name, SMALL if options.small else shape, heads, options.device)
            rows += rows_of(case, options.rounds, options.threads, options.device)
    table = [["model", "pass", "shape", "ms", "eager ms", "ratio"]]
    for row in rows:
        shape_text = "×".join(map(str, row["shape"]))
        times = [f"{row['ms']:.2f}", f"{row['eager_ms']:.1f}", f"{row['ratio']:.1f}"]
        table.append([row["name"], row["pass"], shape_text, *times])
    print_table(table)
    print(watch.note)
    if options.json:
        write(options.json, rows, busy_cores=round(watch.others, 2))


if __name__ == "__main__":
    main()
