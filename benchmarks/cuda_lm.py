"""`lm.py --device cuda`: seconds per epoch of the Penn Treebank, 929,589 tokens in 830 steps of 35 × 32.

Each model trains for real, by the recipe: dropout, clipped SGD, weight decay; a step is one captured graph. Time is
that of a whole epoch, from laying out the stream to reading the loss, the better of two; then of evaluating dev and
test as one stream each. The LSTM is cuDNN's, in the same harness and precision, with as many parameters as its size, a
multiple of 16 too, allows. Without --data words are drawn as often as Zipf's law says.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from cuda_timing import describe, hardware, in_parallel
from lm import BATCH, LSTM, STEPS, WORDS, closest_hidden, config_of
from results import Row, print_table, write
from torch import Tensor

from rrnn.tasks.lm.config import LMConfig
from rrnn.tasks.lm.experiment import count_parameters
from rrnn.tasks.lm.model import model_of
from rrnn.tasks.lm.trainer import LanguageTask

DEVICE = "cuda"
TOKENS = {"train": 929_589, "dev": 73_760, "test": 82_430}
Splits = dict[str, Tensor]


class Case(NamedTuple):
    """`like`: the hidden size is the multiple of 16 that comes closest to that case's number of parameters."""

    name: str
    cell: str
    layers: int
    hidden: int = 0
    like: str = ""

    def size(self) -> int:
        if self.hidden:
            return self.hidden
        other = next(case for case in CASES if case.name == self.like)
        budget = count_parameters(WORDS, other.size(), other.layers, cell=other.cell)
        return closest_hidden(budget, WORDS, self.layers, self.cell)

    def config(self, precision: str) -> LMConfig:
        return config_of(self.cell, self.layers, self.size(), precision=precision)


CASES = [  # what a case is measured against comes before it
    Case("LSTM 10M", LSTM, 2, like="F 10M"),
    Case("F 10M", "F", 2, 624),
    Case("C 10M", "C", 2, like="F 10M"),
    Case("B 10M", "B", 2, like="F 10M"),
    Case("B-max-plus 10M", "B-max-plus", 2, like="F 10M"),
    Case("LSTM 24M", LSTM, 3, like="F 24M"),
    Case("F 24M", "F", 3, 976),
    Case("C 24M", "C", 3, like="F 24M"),
    Case("B 24M", "B", 3, like="F 24M"),
    Case("B-max-plus 24M", "B-max-plus", 3, like="F 24M"),
]


def splits_of(folder: Path | None) -> Splits:
    if folder is not None:
        from rrnn.tasks.data.corpus import load_corpus

        corpus = load_corpus(folder)
        vocabulary = corpus.vocabulary()
        texts = {"train": corpus.train, "dev": corpus.valid, "test": corpus.test}
        return {name: torch.from_numpy(vocabulary.encode(text)).to(DEVICE) for name, text in texts.items()}
    torch.manual_seed(0)
    often = 1 / torch.arange(1, WORDS + 1, dtype=torch.float64)
    return {name: torch.multinomial(often, n, replacement=True).to(DEVICE) for name, n in TOKENS.items()}


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def epoch_of(task: LanguageTask, number: int) -> float:
    """Seconds."""
    wait()
    began = time.perf_counter()
    for index in range(task.begin_epoch(number)):
        task.step(index)
    task.measure()
    return time.perf_counter() - began


def make(case: Case, precision: str, splits: Splits, capture: bool = True) -> LanguageTask:
    torch.manual_seed(0)
    config = case.config(precision)
    return LanguageTask(model_of(config, WORDS, device=DEVICE), splits, config, capture=capture)


def compile_one(case: Case, precision: str) -> None:
    """Compile every kernel, by a few plain steps."""
    small = {name: torch.randint(WORDS, (4 * STEPS * BATCH,), device=DEVICE) for name in TOKENS}
    task = make(case, precision, small, capture=False)
    task.begin_epoch(1)
    task.step(0)
    task.evaluate("dev")
    wait()


def measure(case: Case, precision: str, splits: Splits) -> tuple[Row, LanguageTask]:
    kept = 0
    if DEVICE == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        kept = torch.cuda.memory_allocated()  # streams of earlier rows have workspaces
    task = make(case, precision, splits)
    row: Row = {
        "name": case.name,
        "cell": case.cell,
        "shape": [STEPS, BATCH, task.model.hidden_size],
        "dtype": precision,
        "backend": "cudnn" if case.cell == LSTM else "triton",
        "pass": "forward_backward",
        "layers": case.layers,
        "parameters": task.model.count_parameters(),
    }
    steps = task.begin_epoch(1)
    for index in (0, 1, 2, steps - 1, steps - 1, steps - 1):  # captures both: the last window may be shorter
        task.step(index)
    seconds = min(epoch_of(task, number) for number in (2, 3))
    row |= {"ms": 1e3 * seconds / steps, "seconds_per_epoch": seconds, "steps": steps}
    row["tokens_per_s"] = task.length * BATCH / seconds
    if DEVICE == "cuda":
        row["megabytes"] = (torch.cuda.max_memory_allocated() - kept) / 2**20
    task.evaluate("dev")
    began = time.perf_counter()
    for split in ("dev", "test"):
        row[f"{split}_ppl"] = task.evaluate(split)["ppl"]
    row["evaluation_s"] = time.perf_counter() - began
    return row, task


def kernels_of(task: LanguageTask, steps: int = 20) -> list[dict[str, Any]]:
    """Kernels of a replayed step: name, launches a step, µs a step."""
    from torch.profiler import ProfilerActivity, profile

    task.begin_epoch(9)
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for index in range(steps):
            task.step(index)
        wait()
    found: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for event in profiler.events() or []:
        if event.device_type == torch.autograd.DeviceType.CUDA:
            found[event.name][0] += 1
            found[event.name][1] += event.time_range.elapsed_us()
    rows = [{"kernel": n, "launches": c / steps, "us": t / steps} for n, (c, t) in found.items()]
    return sorted(rows, key=lambda row: -row["us"])


def print_kernels(case: Case, precision: str, kernels: list[dict[str, Any]], count: int = 25) -> None:
    total, launches = sum(k["us"] for k in kernels), sum(k["launches"] for k in kernels)
    print(f"\n{case.name}, {precision}: {total:.0f} µs in {launches:.0f} kernels a step")
    head = [["kernel", "launches", "µs", "share"]]
    for k in kernels[:count]:
        head.append([k["kernel"][:90], f"{k['launches']:.1f}", f"{k['us']:.1f}", f"{k['us'] / total:.0%}"])
    print_table(head)


def rows_of(arguments: argparse.Namespace, splits: Splits) -> Iterator[Row]:
    times: dict[tuple[str, str], float] = {}
    for precision in arguments.precisions:
        for case in chosen(arguments):
            try:
                row, task = measure(case, precision, splits)
                if arguments.profile:
                    row["kernels"] = kernels_of(task)[:40]
                    print_kernels(case, precision, row["kernels"])
            except Exception as error:  # the other cases still count
                yield {"name": case.name, "cell": case.cell, "dtype": precision, "error": describe(error)}
                continue
            times[case.name, precision] = row["ms"]
            rival = f"LSTM {case.name.split()[-1]}"
            if case.cell != LSTM and (rival, precision) in times:
                row |= {"baseline": f"cuDNN {rival}", "ratio": times[rival, precision] / row["ms"]}
            yield row
            del task


def chosen(arguments: argparse.Namespace) -> list[Case]:
    return [case for case in CASES if not arguments.only or case.name in arguments.only]


def line(row: Row) -> list[str]:
    head = [row["name"], row["dtype"]]
    if "error" in row:
        return [*head, "", "", "", "", "", "", row["error"][:70]]
    ratio = f"{row['ratio']:.1f}×" if "ratio" in row else ""
    figures = [f"{row['seconds_per_epoch']:.3f}", f"{row['ms']:.3f}", f"{row['tokens_per_s'] / 1e3:.0f}k"]
    size = [str(row["shape"][-1]), f"{row['parameters'] / 1e6:.2f}M"]
    return [*head, *size, *figures, f"{row['evaluation_s']:.2f}", ratio]


def main(arguments: argparse.Namespace) -> None:
    if not torch.cuda.is_available():
        raise SystemExit("--device cuda needs a CUDA device")
    jobs = [(compile_one, (case, p)) for p in arguments.precisions for case in chosen(arguments)]
    for failure in in_parallel(jobs):
        print("failed to compile:", failure)
    splits = splits_of(arguments.data)
    head = [
        "model",
        "precision",
        "units",
        "parameters",
        "s/epoch",
        "ms/step",
        "tokens/s",
        "dev+test s",
        "LSTM's time over it",
    ]
    rows, lines = [], [head]
    for row in rows_of(arguments, splits):
        rows.append(row)
        lines.append(line(row))
        print("  ".join(lines[-1]), flush=True)
        if arguments.json:  # as it goes: a run that is cut short leaves what it has
            write(arguments.json, rows, device=hardware())
    print()
    print_table(lines)
