"""Train rows of the paper's table of language models on the Penn Treebank, and keep the evidence.

    python benchmarks/paper_lm.py docs/results/lm-ptb --rows F-10m B-10m --seeds 0 1 2 --set precision=bf16
    python benchmarks/paper_lm.py docs/results/lm-ptb --table        only the table, of what is there

A row's folder, ROW-seed-N, keeps config.json, metrics.jsonl and result.json; checkpoints stay behind. A row that is
there already is left alone, one that was killed goes on from its last checkpoint (in .ROW-seed-N), and after --minutes
no further one is begun, so that a long table can be filled bit by bit.
The test set is read once a row, by the weights that are best on dev. Hidden sizes are the multiples of 16 closest to
the paper's budgets, 10M and 24M.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from evidence import changes_of, seconds_before
from lm import closest_hidden
from results import meta, print_table

from rrnn.errors import RRNNError
from rrnn.tasks.configs import FACTS
from rrnn.tasks.data.corpus import load_corpus
from rrnn.tasks.lm.config import LMConfig
from rrnn.tasks.lm.experiment import train
from rrnn.tasks.paper_tables import PAPER_PERPLEXITIES, M, PaperPerplexity
from rrnn.tasks.runs import RESULT

KEPT = ("config.json", "metrics.jsonl", RESULT)
ROWS = {
    f"{row.cell}-{row.budget // M}m" + ("" if row.layers == 2 + (row.budget > 10 * M) else "-2"): row
    for row in PAPER_PERPLEXITIES
}


def hidden_of(row: PaperPerplexity, words: int, changes: Mapping[str, Any] | None = None) -> int:
    """The multiple of 16 that comes closest to the budget, with the changed layers and embedding."""
    given = {"layers": row.layers, "embedding_size": None, **(changes or {})}
    return closest_hidden(row.budget, words, given["layers"], row.cell, given["embedding_size"])


def config_of(row: PaperPerplexity, seed: int, changes: Mapping[str, Any]) -> LMConfig:
    own: dict[str, Any] = {"data": "ptb", "cell": row.cell, "layers": row.layers, "seed": seed, **changes}
    if "hidden_size" not in own:
        own["hidden_size"] = hidden_of(row, len(load_corpus(own["data"]).vocabulary()), changes)
    return LMConfig.from_dict(own)  # the recipe, without a preset's own settings


def run_row(folder: Path, config: LMConfig, test: bool = True) -> dict[str, Any]:
    """Train in a hidden folder; what is kept arrives whole, or not at all."""
    scratch = folder.with_name("." + folder.name)
    run, kept = scratch / "run", scratch / "kept"
    earlier = seconds_before(run)
    began = time.monotonic()
    train(config, run, resume=True, test=test)
    kept.mkdir(exist_ok=True)
    for name in KEPT:
        shutil.copy(run / name, kept / name)
    found = json.loads((kept / RESULT).read_text(encoding="utf-8"))
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    found |= {"seconds": round(earlier + time.monotonic() - began, 1), "device": device}
    found |= {key: value for key, value in meta().items() if key in ("commit", "versions")}
    (kept / RESULT).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    kept.rename(folder)
    shutil.rmtree(scratch)
    return found


def table(folder: Path) -> list[dict[str, Any]]:
    """What is there, in the paper's order."""
    rows = []
    for place in folder.glob("[!.]*-seed-*"):
        name, seed = place.name.rsplit("-seed-", 1)
        config, found = (
            json.loads((place / file).read_text(encoding="utf-8")) for file in ("config.json", RESULT)
        )
        row, _, label = name.partition("+")
        paper = ROWS[row]
        rows.append(
            {
                "model": paper.model,
                "label": label,
                "run": place.name,
                "layers": config["layers"],
                "params": config[FACTS]["parameters"],
                "seed": int(seed),
                "dev_ppl": found["dev_ppl"],
                "test_ppl": found["test_ppl"],
                "epochs": found["epochs"],
                "seconds": found["seconds"],
                "device": found["device"],
                "torch": found["versions"]["torch"],
                "commit": found["commit"],
                "paper_dev": paper.dev,
                "paper_test": paper.test,
            }
        )
    order = list(ROWS)
    return sorted(
        rows, key=lambda row: (order.index(row["run"].partition("+")[0]), row["label"], row["seed"])
    )


def show(rows: list[dict[str, Any]]) -> None:
    head = ["run", "params", "dev", "test", "paper dev", "paper test", "epochs", "seconds"]
    lines = [
        [row["run"], f"{row['params'] / M:.2f}M"]
        + [
            f"{row[key]:.1f}" if row[key] else ""
            for key in ("dev_ppl", "test_ppl", "paper_dev", "paper_test")
        ]
        + [str(row["epochs"]), f"{row['seconds']:.0f}"]
        for row in rows
    ]
    print_table([head, *lines])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", nargs="*", default=[], choices=ROWS, metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="KEY=VALUE", help="what differs from the preset"
    )
    parser.add_argument("--label", default="", help="of such a variant: the folder is ROW+LABEL-seed-N")
    parser.add_argument("--no-test", action="store_true", help="settings to choose among: dev only")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no row after so many")
    parser.add_argument("--table", action="store_true", help="train nothing")
    arguments = parser.parse_args()
    changes = changes_of(arguments.set)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    for seed in arguments.seeds:
        for name in arguments.rows if not arguments.table else []:
            label = f"{name}+{arguments.label}" if arguments.label else name
            place = arguments.folder / f"{label}-seed-{seed}"
            if place.exists() or time.monotonic() - began > 60 * arguments.minutes:
                continue
            try:
                config = config_of(ROWS[name], seed, changes)
                print(place.name, run_row(place, config, not arguments.no_test), flush=True)
            except RRNNError as error:
                print(f"{place.name}: {error}", flush=True)
            write_table(arguments.folder)
    write_table(arguments.folder)
    show(table(arguments.folder))


def write_table(folder: Path) -> None:
    rows = table(folder)
    about = meta()
    if rows:  # what they were trained with, not what wrote the table
        about["device"] = {"gpu": ", ".join(sorted({row["device"] for row in rows}))}
        about["versions"]["torch"] = ", ".join(sorted({row["torch"] for row in rows}))
    text = json.dumps({"meta": about, "rows": rows}, indent=1)
    (folder / "table.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
