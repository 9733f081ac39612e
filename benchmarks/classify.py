"""How many classifiers train in a minute: the settings of a random search, one after another and side by side.

    RRNN_DATA=… python benchmarks/classify.py --device cuda [--threads 1 4 8] [--processes 4] [--json FILE]
    python benchmarks/classify.py --data synthetic:not-good --vectors "" --settings 2 --epochs 3

Each way trains the same settings: those that `rrnn classify search` draws, with the paper's schedule (halve the rate
after 10 epochs without a gain, stop after 30). Threads share a GPU by a stream each; processes by its time slices.
`--eager` measures them without CUDA graphs, too. `--predict` measures instead how many texts a second a model of
2 × 150 units classifies, from a file to a file, on the CPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from cuda_timing import hardware
from results import write

from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.predict import predict_file
from rrnn.tasks.classify.prepare import Prepared, prepare, read_dataset
from rrnn.tasks.classify.ranges import settings
from rrnn.tasks.classify.train import Summary, train
from rrnn.tasks.workers import side_by_side


@lru_cache(maxsize=1)
def data_of(base: ClassifyConfig) -> Prepared:
    return prepare(base)


def one(base: ClassifyConfig, capture: bool, config: ClassifyConfig) -> Summary:
    return train(config, data=data_of(base), capture=capture).summary


def measure(
    base: ClassifyConfig, args: argparse.Namespace, threads: int, processes: int, capture: bool = True
) -> dict[str, Any]:
    configs = settings(base, args.settings, args.seed)
    if args.epochs:
        configs = [config.replace(epochs=args.epochs) for config in configs]
    here = base.device == "cuda" and processes == 1  # the memory of other processes is not seen
    if here:
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    results: list[Summary] = []
    for config, answer in side_by_side(
        partial(one, base, capture), configs, processes=processes, threads=threads
    ):
        if isinstance(answer, Exception):
            print(f"  failed: {type(answer).__name__}: {answer} ({config})", flush=True)
            continue
        results.append(answer)
        if args.verbose:
            print(f"  {config.hidden_size} units, lr {config.lr:.1e}: {answer}", flush=True)
    seconds = time.perf_counter() - start
    epochs = sum(result.epochs for result in results)
    best = max(results, key=lambda result: result.dev, default=None)
    return {
        "cell": base.cell,
        "data": base.data,
        "threads": threads,
        "processes": processes,
        "graphs": capture,
        "trainings": len(results),
        "failed": len(configs) - len(results),
        "seconds": round(seconds, 1),
        "trainings_per_minute": round(60 * len(results) / seconds, 1),
        "epochs": epochs,
        "ms_per_epoch": round(1000 * seconds / max(epochs, 1), 1),
        "median_epochs": statistics.median(result.epochs for result in results) if results else 0,
        "best_dev": best and round(best.dev, 2),
        "its_test": best and best.test is not None and round(best.test, 2),
        "peak_mb": round(torch.cuda.max_memory_reserved() / 2**20) if here else None,
    }


def predictions(base: ClassifyConfig, texts: int = 20_000, rounds: int = 3) -> dict[str, Any]:
    """Texts of the data set, as often as needed; the model's accuracy does not matter here."""
    model = train(base.replace(epochs=1, layers=2, hidden_size=150, device="cpu"), data=data_of(base)).model
    lines = [" ".join(example.tokens) for example in read_dataset(base).train]
    best = float("inf")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "texts.txt"
        source.write_text("".join(f"{lines[i % len(lines)]}\n" for i in range(texts)), encoding="utf-8")
        for _ in range(rounds):
            start = time.perf_counter()
            with (Path(folder) / "labels.csv").open("w", encoding="utf-8") as out:
                predict_file(model, source, out)
            best = min(best, time.perf_counter() - start)
    return {
        "cell": base.cell,
        "data": base.data,
        "threads": torch.get_num_threads(),
        "texts_per_second": round(texts / best),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="sst")
    parser.add_argument("--vectors", default="glove", help='word vectors; "" trains embeddings')
    parser.add_argument("--cell", nargs="+", default=["F"])
    parser.add_argument("--settings", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=0, help="at most so many (the paper's 500)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, nargs="*", default=[1])
    parser.add_argument("--processes", type=int, nargs="*", default=[])
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--predict", action="store_true")
    parser.add_argument("--tf32", action="store_true", help="matrix products in TF32")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.tf32:
        torch.set_float32_matmul_precision("high")
    rows = []
    for cell in args.cell:
        base = ClassifyConfig.for_data(args.data, vectors=args.vectors or None, cell=cell, device=args.device)
        print(*data_of(base).about, sep="\n")
        if args.predict:
            rows.append(predictions(base))
            print(json.dumps(rows[-1]), flush=True)
            continue
        one(base, True, base.replace(epochs=2))  # kernels are compiled once
        ways = [(n, 1, True) for n in args.threads] + [(1, n, True) for n in args.processes]
        for threads, processes, capture in [*ways, *([(1, 1, False)] if args.eager else [])]:
            rows.append(measure(base, args, threads, processes, capture))
            print(json.dumps(rows[-1]), flush=True)
    if args.json:
        write(args.json, rows, **({"device": hardware()} if args.device == "cuda" else {}))


if __name__ == "__main__":
    main()
