"""Tables of the language models on the Penn Treebank: the rows, what was tried for them, and where each began."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from figures import NOTHING, RESULTS, Row, named, number, results, rows, table

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))
from lm_rows import STARTS, dev_of, starts

FOLDER = RESULTS / "lm-ptb"
NOT_YET = "not measured yet"


def titled(r: Row) -> str:
    """Return a row's model, and the name of its protocol where it is not the paper's."""
    return f"{r['model']}, {r['label']}" if r.get("label") else r["model"]


@named
def lm_ptb() -> str:
    if results("lm-ptb/table") is None:
        return NOTHING
    body = (
        (
            titled(r),
            r["layers"],
            f"{r['params'] / 1e6:.1f}M",
            r.get("seed", ""),
            r["epochs"],
            number(r["seconds"] / 60),
            number(r.get("dev_ppl")),
            number(r.get("test_ppl")),
            number(r.get("paper_dev")),
            number(r.get("paper_test")),
        )
        for r in rows("lm-ptb/table")
    )
    head = "model | layers: | parameters: | seed: | epochs: | minutes: | dev: | test:"
    return table(f"{head} | paper's dev: | paper's test:", body)


OLD_SETTINGS = {"variational_dropout": "recurrent_dropout", "hidden": "hidden_size"}
"""What version 0.1.0 called a setting → its name."""


def lm_run(place: Path) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Read a run's folder: model and size, configuration, result."""
    config, found = (
        json.loads((place / name).read_text(encoding="utf-8")) for name in ("config.json", "result.json")
    )
    config = {OLD_SETTINGS.get(key, key): value for key, value in config.items()}
    return f"{config['cell']}, {found['parameters'] / 1e6:.0f}M", config, found


@named
def lm_tried() -> str:
    """List the settings among which those of the table were chosen, one seed each."""
    folder, body = RESULTS / "lm-ptb", []
    chosen = sorted(folder.glob("[!.]*-seed-0"))
    for place in [*sorted((folder / "tried").glob("[!.]*")), *chosen]:
        model, config, found = lm_run(place)
        decay = f"{config['weight_decay'] * 1e5:g}·10⁻⁵"
        falls = config["lr_decay_from"] <= config["epochs"]
        shrinks = ", as the rate" if config["scale_weight_decay"] and falls else ""
        rate = f"{first_rate(place):g}" + (f", ×0.98 from {config['lr_decay_from']}" if falls else "")
        rate += ", halved without gain" if config.get("halve_after") else ""
        more = [word for key, word in (("shift", "shifted"), ("locked_dropout", "locked")) if config[key]]
        more += ["TF32"] if config["precision"] == "tf32" else []
        more += [f"word dropout {config['word_dropout']:g}"] if config.get("word_dropout") else []
        more += [f"{config['layers']} layers"] if config["layers"] > 3 else []
        dropouts = (config[f"{name}_dropout"] for name in ("embedding", "recurrent", "between"))
        reached = f"{found['best_epoch']} of {found['epochs']}", number(found["dev_ppl"])
        line = (model, *map("{:.2f}".format, dropouts), decay + shrinks, rate, ", ".join(more), *reached)
        body.append((*line, "yes" if place in chosen else ""))
    body.sort(key=lambda line: (line[0], -float(line[-2])))
    head = (
        "model | in/out dropout: | variational: | between: | weight decay | rate | more | best epoch: | dev:"
    )
    return table(head + " | in the table", body)


def first_rate(run: Path) -> float:
    """Return the learning rate of the first epoch; configurations omit it where it is the recipe's."""
    with (run / "metrics.jsonl").open(encoding="utf-8") as lines:
        return json.loads(next(lines))["lr"]


@named
def lm_gains() -> str:
    """Show which initial gains C can start from."""
    found = sorted(
        (model, config["rnn_gain"], run["epochs"], number(run["dev_ppl"]))
        for model, config, run in map(lm_run, (RESULTS / "lm-ptb" / "gains").glob("[!.]*"))
    )
    return table("model | `rnn_gain`: | epochs: | dev:", found)


@named
def lm_starts() -> str:
    """Show what is tried so that C at 24M begins to learn soon with the paper's recipe."""
    places = [FOLDER / training.place for training in starts()]
    figures = [number(dev_of(place)) if place.exists() else NOT_YET for place in places]
    return table("C, 24M, starts with | dev:", zip(STARTS, figures, strict=True))


UNIFORM = 10_000
"""The perplexity of a uniform guess at the words of the Penn Treebank."""


def started_too_large(runs: Iterable[Row]) -> str:
    """Say which of these rows were worse than a uniform guess at first, and for how long."""
    told = []
    for r in runs:
        lines = (FOLDER / r["run"] / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        dev = [json.loads(line)["dev_ppl"] for line in lines]
        worst = max(dev)
        if worst > UNIFORM:
            learned = next(i for i, ppl in enumerate(dev, 1) if ppl < 200)
            model = f"{r['model']} at {r['params'] / 1e6:.0f}M ({number(r['test_ppl'])})"
            high = f"{worst / 1e6:.0f} million" if worst >= 1e6 else f"{worst:,.0f}"
            told.append(
                f"{model} starts too large: perplexity on dev rises to {high} and is below 200 only from epoch "
                f"{learned}, so this row says little about it."
            )
    return " ".join(told)
