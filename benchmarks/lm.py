"""How fast language models train, against an LSTM with as many parameters in the same harness.

    python benchmarks/lm.py [--threads 1 2] [--wait 600] [--json FILE]
    python benchmarks/lm.py --device cuda [--data FOLDER] [--profile] [--json FILE]  (see cuda_lm.py)

On the CPU: where a training step of the Penn Treebank's shape (10,001 words, windows of 35 steps, batch 32, two layers)
goes: embedding, recurrent layers, softmax with its loss, update of the weights; each forward and backward.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from quiet import Watch, wait_until_quiet
from results import Row, best_of, print_table, write

from rrnn.tasks.lm.config import LMConfig
from rrnn.tasks.lm.experiment import count_parameters, solve_hidden_size
from rrnn.tasks.lm.loss import plain_loss, tied_loss
from rrnn.tasks.lm.model import LanguageModel, model_of
from rrnn.tasks.lm.trainer import LanguageTask

WORDS, STEPS, BATCH = 10_001, 35, 32
LSTM = "lstm"
PARTS = ("embedding", "layers", "softmax", "softmax, plain", "update", "whole step")
Function = Callable[[], object]


def config_of(cell: str, layers: int, hidden: int, **options: object) -> LMConfig:
    return LMConfig(
        cell=cell, layers=layers, hidden_size=hidden, batch_size=BATCH, bptt=STEPS, **options
    ).resolved(hidden)  # pyright: ignore[reportArgumentType]


def closest_hidden(budget: int, words: int, layers: int, cell: str, embedding: int | None = None) -> int:
    """The multiple of 16 that comes closest to a number of parameters."""
    model = {"cell": cell, "embedding_size": embedding}
    below = solve_hidden_size(budget, words, layers, **model).hidden_size

    def miss(hidden: int) -> int:
        return abs(count_parameters(words, hidden, layers, **model) - budget)

    return min((below, below + 16), key=miss)


def equal_lstm(parameters: int, layers: int, multiple: int = 1) -> int:
    """The hidden size of the LSTM that comes closest, from below."""
    return solve_hidden_size(parameters, WORDS, layers, multiple=multiple, cell=LSTM).hidden_size


def parts_of(config: LMConfig) -> tuple[LanguageModel, dict[str, Function]]:
    """The pieces of one training step, each to be run by itself."""
    torch.manual_seed(0)
    model = model_of(config, WORDS)
    ids = torch.randint(WORDS, (STEPS * BATCH * 2 + 1,))
    task = LanguageTask(model, {"train": ids, "dev": ids[:1]}, config)
    task.begin_epoch(1)
    words, targets = ids[: STEPS * BATCH].view(STEPS, BATCH), ids[1 : STEPS * BATCH + 1]
    x = model.embed(words).detach().requires_grad_()
    hidden = model(words)[0].detach().flatten(0, 1).requires_grad_()
    grad, leaves = torch.randn_like(x), [x, *model.rnn.parameters()]
    gradients = [torch.randn_like(segment.flat) for segment in task.store.segments]
    table = torch.zeros_like(model.embedding)

    def embedding() -> object:
        return F.embedding(words, model.embedding), table.index_add_(0, words.flatten(), grad.flatten(0, 1))

    def softmax(loss: Callable[..., torch.Tensor]) -> object:
        value = loss(hidden, model.embedding, model.bias, targets, WORDS, scale=1 / BATCH)
        return torch.autograd.grad(value, [hidden, model.embedding, model.bias])

    return model, {
        "embedding": embedding,
        "layers": lambda: torch.autograd.grad(model.rnn(x)[0], leaves, grad),
        "softmax": lambda: softmax(tied_loss),
        "softmax, plain": lambda: softmax(plain_loss),
        "update": lambda: task.updater.step(gradients),
        "whole step": lambda: task._step(STEPS) if task._place.zero_() is not None else None,
    }


def cpu_rows(cell: str, layers: int, hidden: int, threads: int, rounds: int) -> Iterator[Row]:
    ours, our_parts = parts_of(config_of(cell, layers, hidden))
    size = equal_lstm(ours.count_parameters(), layers)
    theirs, their_parts = parts_of(config_of(LSTM, layers, size))
    for part in PARTS:
        best = best_of({"ours": our_parts[part], "theirs": their_parts[part]}, rounds=rounds)
        yield {
            "name": f"{cell}, {layers} layers, {threads} threads: {part}",
            "part": part,
            "cell": cell,
            "shape": [STEPS, BATCH, hidden],
            "dtype": "float32",
            "pass": "forward_backward",
            "ms": best["ours"],
            "baseline": f"nn.LSTM of {size} units",
            "ratio": best["theirs"] / best["ours"],
            "threads": threads,
            "parameters": ours.count_parameters(),
            "baseline_parameters": theirs.count_parameters(),
        }


def table(rows: list[Row]) -> list[list[str]]:
    out = [["part of a step", "threads", "ms", "share", "LSTM's ms", "ratio"]]
    for row in rows:
        whole = next(r["ms"] for r in rows if r["threads"] == row["threads"] and r["part"] == "whole step")
        figures = [f"{row['ms']:.1f}", f"{row['ms'] / whole:.0%}", f"{row['ms'] * row['ratio']:.1f}"]
        out.append(
            [
                row["name"].replace(f", {row['threads']} threads", ""),
                str(row["threads"]),
                *figures,
                f"{row['ratio']:.2f}×",
            ]
        )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, nargs="+", default=[2])
    parser.add_argument("--cell", default="F")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden-size", type=int, default=608, help="608: 10M parameters")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--wait", type=float, default=0.0, help="seconds to wait for a quiet machine")
    parser.add_argument(
        "--data", type=Path, help="cuda: a folder with the Penn Treebank, instead of random words"
    )
    parser.add_argument("--only", nargs="*", default=[], help="cuda: names of cases")
    parser.add_argument("--precisions", nargs="*", default=["bf16", "tf32"], help="cuda: bf16, tf32, fp32")
    parser.add_argument("--profile", action="store_true", help="cuda: the kernels of a step, by time")
    parser.add_argument("--json", type=Path, help="write the rows to this file, too")
    arguments = parser.parse_args()
    if arguments.device == "cuda":
        import cuda_lm

        return cuda_lm.main(arguments)
    wait_until_quiet(arguments.wait)
    rows: list[Row] = []
    with Watch() as watch:
        for threads in arguments.threads:
            torch.set_num_threads(threads)
            rows += cpu_rows(
                arguments.cell, arguments.layers, arguments.hidden_size, threads, arguments.rounds
            )
    print_table(table(rows))
    print(watch.note)
    if arguments.json:
        write(arguments.json, rows, others_used_cores=round(watch.others, 3))


if __name__ == "__main__":
    main()
