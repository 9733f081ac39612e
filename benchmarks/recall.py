"""How much can a layer remember? Multi-query associative recall (MQAR, Arora et al. 2023), by the size of the state.

    python benchmarks/recall.py --json docs/results/recall-h200.json --device cuda --workers 8
    python benchmarks/recall.py --json FILE --models B:16 GLA:16 --steps 50 --rates 0.003 --seeds 1

A text first names pairs, key value key value …, of 64 keys and 64 values, each key once. Then it asks for every key
once, at places drawn at random among blanks; at each of them the model must name the key's value. Guessing is right
once in 64 times.

A model has two layers. Each is a norm, a causal depthwise convolution over four steps (without it nothing ties a value
to the key before it) and the cell, with a skip connection around them; embedding and read-out have the layers' width.
The size of a state is what one layer's cell carries from step to step, in numbers per text: the width times the states
of a unit. GLA has one head. Each width is trained with Adam at every learning rate of `--rates` with one seed; the best
rate by accuracy on validation texts is trained with `--seeds` further seeds and tested on fresh texts. Every training
is one row of the result file, and a run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
import math
import threading
import time
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import mean
from typing import Any

import torch
import torch.nn.functional as F
from results import Row, print_table
from torch import Tensor, nn
from trainings import fill, rows_of

from rrnn import zoo
from rrnn.draw.charts import Axis, Panel, Series, figure
from rrnn.tasks.graphs import Graphs

KEYS, VALUES = 64, 64
BLANK = KEYS + VALUES
KERNEL, BATCH, TESTED = 4, 128, 2048
STARTS = threading.Lock()
"""Held while a model is built: initial weights come from the process's own generator."""
CELLS: dict[str, tuple[str, dict[str, Any]]] = {
    "B": ("B", {}),
    "F": ("F", {}),
    "Mamba": ("Mamba", {"states": 16}),
    "GLA": ("GLA", {"states": 64}),
}
"""The models: a cell of the zoo and its options."""
WIDTHS = {"B": (32, 128, 512), "F": (32, 128, 512), "Mamba": (16, 32, 64, 128), "GLA": (16, 32, 64, 128)}


# ---- the task --------------------------------------------------------------------------------------------------------


def texts(pairs: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return symbols (4 · pairs, count) and answers of the same shape, −1 where nothing is asked.

    Keys are the symbols 0 to 63, values follow them, and the blank comes last. An answer is the number of a value.
    """

    def drawn(choices: int) -> Tensor:
        return torch.rand(count, choices, generator=generator, device=generator.device).argsort(1).T

    keys = drawn(KEYS)[:pairs]
    values = torch.randint(VALUES, (pairs, count), generator=generator, device=generator.device)
    x = torch.full((4 * pairs, count), BLANK, device=generator.device)
    y = torch.full_like(x, -1)
    x[0 : 2 * pairs : 2], x[1 : 2 * pairs : 2] = keys, values + KEYS
    places = 2 * pairs + drawn(2 * pairs)[:pairs]
    return x.scatter(0, places, keys), y.scatter(0, places, values)


# ---- a model ---------------------------------------------------------------------------------------------------------


class Layer(nn.Module):
    """Norm, causal convolution and cell, with a skip connection around them."""

    def __init__(self, model: str, width: int) -> None:
        super().__init__()
        cell, options = CELLS[model]
        self.norm = nn.RMSNorm(width)
        self.convolution = nn.Conv1d(width, width, KERNEL, groups=width)
        self.cell = zoo.layer(cell, width, width, **options)

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        """Return outputs and the cell's last state, of inputs (T, B, width)."""
        steps = F.pad(self.norm(x).permute(1, 2, 0), (KERNEL - 1, 0))
        out, state = self.cell(F.silu(self.convolution(steps)).permute(2, 0, 1))
        return x + out, state


class Recaller(nn.Module):
    """Embedding, two layers, read-out."""

    def __init__(self, model: str, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(BLANK + 1, width)
        self.layers = nn.ModuleList(Layer(model, width) for _ in range(2))
        self.readout = nn.Sequential(nn.RMSNorm(width), nn.Linear(width, VALUES))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (T, B, values) of symbols (T, B)."""
        out = self.embedding(x)
        for layer in self.layers:
            out, _ = layer(out)
        return self.readout(out)

    @torch.no_grad()
    def state_size(self) -> int:
        """Return how many numbers a layer carries from step to step."""
        weight = self.embedding.weight
        _, state = self.layers[0](weight[None, :1])
        return sum(tensor.numel() for tensor in _tensors(state))


def _tensors(state: Any) -> list[Tensor]:
    """Return the tensors of a state, which may be nested."""
    return [state] if isinstance(state, Tensor) else [t for part in state or () for t in _tensors(part)]


# ---- trainings -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """One training: a row of the result file."""

    model: str
    width: int
    pairs: int
    stage: str
    """search: one of the learning rates; final: the best one, with a new seed."""
    number: int
    """Which learning rate, or which seed."""
    lr: float
    steps: int
    device: str

    @property
    def key(self) -> Row:
        own = {"model": self.model, "width": self.width, "pairs": self.pairs}
        return own | {"stage": self.stage, "number": self.number}


def train(job: Job) -> Row:
    """Train a model; search rows have the accuracy on validation texts, final rows that on test texts."""
    began, final = time.perf_counter(), job.stage == "final"
    device, seed = torch.device(job.device), 1000 + job.number if final else 0
    if device.type == "cpu":
        torch.set_num_threads(1)
    with STARTS:
        torch.manual_seed(seed)
        model = Recaller(job.model, job.width).to(device)
    generator = torch.Generator(device).manual_seed(seed)
    rate, on_gpu = torch.tensor(job.lr, device=device), device.type == "cuda"
    optimiser = torch.optim.Adam(model.parameters(), rate, capturable=on_gpu, foreach=on_gpu)

    def step() -> None:
        x, y = texts(job.pairs, BATCH, generator)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-1)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()

    graphs = Graphs(device, generator)  # small steps are bound by launches
    with graphs.on_stream():
        for number in range(job.steps):
            rate.fill_(job.lr * (1 + math.cos(math.pi * number / job.steps)) / 2)
            graphs.run("step", step)
    graphs.close()
    right = accuracy(model, job.pairs, torch.Generator(job.device).manual_seed(8 if final else 7))
    sizes = {"state": model.state_size(), "parameters": sum(p.numel() for p in model.parameters())}
    row = job.key | {"lr": job.lr, "steps": job.steps} | sizes | {"accuracy": round(right, 4)}
    return row | {"seconds": round(time.perf_counter() - began, 2)}


@torch.no_grad()
def accuracy(model: nn.Module, pairs: int, generator: torch.Generator) -> float:
    """Return the share of questions that are answered rightly."""
    right = []
    for _ in range(TESTED // BATCH):
        x, y = texts(pairs, BATCH, generator)
        right.append((model(x).argmax(-1) == y)[y >= 0].float().mean())
    return float(torch.stack(right).mean())


def best_rate(rows: list[Row], model: str, width: int, pairs: int) -> float:
    """Return the best learning rate of the search; of equals, the first."""
    own = [
        r for r in rows if (r["model"], r["width"], r["pairs"], r["stage"]) == (model, width, pairs, "search")
    ]
    return max(sorted(own, key=lambda r: r["number"]), key=lambda r: r["accuracy"])["lr"]


def run(options: argparse.Namespace) -> list[Row]:
    """Do all trainings that the result file lacks: first the search, then the final ones."""
    rows = rows_of(options.json)
    sizes = [(model, width, pairs) for pairs in options.pairs for model, width in options.models]
    given = {name: getattr(options, name) for name in ("steps", "rates", "seeds", "device", "workers")}
    settings = given | {"batch": BATCH, "keys": KEYS, "values": VALUES, "kernel": KERNEL, "tested": TESTED}

    threads = options.device != "cpu"

    def jobs(stage: str, count: int) -> list[Job]:
        return [
            Job(
                *size,
                stage,
                number,
                options.rates[number] if stage == "search" else best_rate(rows, *size),
                options.steps,
                options.device,
            )
            for size in sizes
            for number in range(count)
        ]

    fill(
        options.json,
        rows,
        jobs("search", len(options.rates)),
        train,
        options.workers,
        settings,
        threads=threads,
    )
    fill(options.json, rows, jobs("final", options.seeds), train, options.workers, settings, threads=threads)
    return rows


# ---- table and figure ------------------------------------------------------------------------------------------------


def results(rows: list[Row]) -> list[Row]:
    """Return a row for each model, width and number of pairs, with the mean and range of the final seeds."""
    found: dict[tuple[str, int, int], list[Row]] = {}
    for row in rows:
        if row["stage"] == "final":
            found.setdefault((row["model"], row["width"], row["pairs"]), []).append(row)
    return [
        {"model": model, "width": width, "pairs": pairs}
        | {name: own[0][name] for name in ("state", "parameters", "lr")}
        | {"mean": mean(values), "worst": min(values), "best": max(values), "seeds": len(values)}
        for (model, width, pairs), own in sorted(found.items())
        for values in [[row["accuracy"] for row in own]]
    ]


def table(rows: list[Row]) -> list[list[str]]:
    """Return the results as a table with a head, accuracies in per cent."""
    head = ["model", "pairs", "width", "state", "parameters", "lr", "mean", "worst", "best"]
    body = [
        [row["model"], *(str(row[name]) for name in ("pairs", "width", "state", "parameters", "lr"))]
        + [f"{100 * row[name]:.1f}" for name in ("mean", "worst", "best")]
        for row in results(rows)
    ]
    return [head, *body]


def picture(rows: list[Row]) -> str:
    """Return accuracy over the size of the state as SVG, a panel for each number of pairs."""
    found = results(rows)
    x, y = Axis("numbers in a layer's state", log=True), Axis("right answers, %", low=0, high=100)
    panels = []
    for pairs in dict.fromkeys(row["pairs"] for row in found):
        own = [row for row in found if row["pairs"] == pairs]
        series = [
            Series(name, number, [(r["state"], 100 * r["mean"]) for r in own if r["model"] == name])
            for number, name in enumerate(CELLS)
        ]
        panels.append(Panel(series, x, y, f"{pairs} pairs", legend=True))
    return figure(panels, title="Associative recall")


def sized(text: str) -> list[tuple[str, int]]:
    """Return the models and widths that an argument names, as B or B:32."""
    name, _, width = text.partition(":")
    if name not in CELLS:
        raise argparse.ArgumentTypeError(
            f"a model is one of {', '.join(CELLS)}, with :WIDTH if wanted; got {text!r}"
        )
    return [(name, int(width))] if width else [(name, w) for w in WIDTHS[name]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--models", nargs="+", type=sized, default=[sized(name) for name in CELLS], help="B or B:32"
    )
    parser.add_argument("--pairs", nargs="+", type=int, default=[8], help="pairs of a text")
    parser.add_argument("--steps", type=int, default=8000, help="training steps of 128 texts")
    parser.add_argument("--rates", nargs="+", type=float, default=[0.001, 0.003, 0.01], help="learning rates")
    parser.add_argument("--seeds", type=int, default=3, help="trainings with the best one")
    parser.add_argument("--workers", type=int, default=1, help="processes that train at the same time")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, required=True, help="the result file")
    parser.add_argument("--svg", type=Path, help="the figure")
    options = parser.parse_args()
    options.models = list(chain.from_iterable(options.models))
    rows = run(options)
    print_table(table(rows))
    if options.svg:
        options.svg.write_text(picture(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
