"""What rules are worth to a text classifier, with none, 1 %, 10 % and all of the training texts.

    python benchmarks/rules.py --json docs/results/rules-cpu.json [--data sst cr] [--fractions 0 0.01 0.1 1]

`benchmarks/rules/DATA.rules` were written from the training texts alone and then frozen. Three models are compared on
the test set: the rules alone (a text is given the label whose rule it contains, otherwise the default); a classifier
that starts from the rules and is trained (`rrnn classify train --rules`); and the same classifier without rules. The
two classifiers have the same layer, word vectors, settings and subsamples. There are five subsamples of the training
texts for each fraction, each with a seed of its own, which is also the model's; the whole set is trained with five
seeds. All trainings stop by the accuracy on the whole validation set, by which a learning rate is chosen, too (see
`SCHEDULES`): a fraction says only how many texts are trained on. Without training, the classifier without rules is one
with random weights.

A run that was interrupted goes on where it stopped: trainings in the result file are not repeated.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from results import Row, meta, print_table

from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.experiment import train
from rrnn.tasks.classify.model import TextClassifier
from rrnn.tasks.classify.prepare import Prepared, prepare
from rrnn.tasks.classify.trained import TrainedClassifier

HERE = Path(__file__).parent
SETTINGS: dict[str, Any] = {
    "cell": "B",
    "hidden_size": 32,
    "layers": 1,
    "vectors": "glove",
    "device": "cpu",
}
SCHEDULES: tuple[tuple[float, dict[str, int], tuple[float, ...]], ...] = (
    (0.05, {"batch_size": 4, "epochs": 60, "stop_after": 12, "halve_after": 6}, (1e-3, 5e-3)),
    (0.5, {"batch_size": 16, "epochs": 40, "stop_after": 8, "halve_after": 4}, (1e-3, 5e-3)),
    (1.0, {"batch_size": 64, "epochs": 15, "stop_after": 4, "halve_after": 2}, (2e-3,)),
)
"""(largest fraction, settings for it, learning rates): small sets have few steps in an epoch. Each training is done
with every learning rate, and the one with the best dev accuracy counts."""
KEY = ("data", "model", "fraction", "seed")


def subsample(data: Prepared, fraction: float, seed: int) -> Prepared:
    """Return the data with a random part of the training texts, the same share of each label."""
    texts, labels = data.splits["train"]
    if fraction == 1:
        return data
    rng, chosen = np.random.default_rng([seed, int(1e6 * fraction)]), []
    for label in range(len(data.labels)):
        rows = np.flatnonzero(np.asarray(labels) == label)
        chosen += rng.permutation(rows)[: max(1, round(fraction * len(rows)))].tolist()
    split = ([texts[row] for row in sorted(chosen)], [labels[row] for row in sorted(chosen)])
    return replace(data, splits=data.splits | {"train": split})


def untrained(data: Prepared, seed: int) -> float:
    """Return the test accuracy in per cent before any training."""
    config = data.config.replace(seed=seed)
    module = TextClassifier(
        config, len(data.vocabulary), len(data.labels), vectors=data.vectors, rules=data.rule_units
    )
    model = TrainedClassifier(module.eval(), data.vocabulary, data.labels, config)
    texts, labels = data.splits["test"]
    return 100 * float((model.probabilities(texts).argmax(1) == np.asarray(labels)).mean())


def measure(data: Prepared, fraction: float, seed: int) -> Row:
    """Train once, and return what a row says about it."""
    if not fraction:
        return {"texts": 0, "test": untrained(data, seed)}
    part = subsample(data, fraction, seed)
    settings, rates = next((settings, rates) for most, settings, rates in SCHEDULES if fraction <= most)
    config = part.config.replace(seed=seed, **settings)
    tried = [(rate, train(config.replace(lr=rate), data=part).summary) for rate in rates]
    rate, best = max(tried, key=lambda each: each[1].dev)
    figures = {
        "dev": best.dev,
        "test": best.test,
        "lr": rate,
        "epochs": best.epochs,
        "best_epoch": best.best_epoch,
    }
    seconds = sum(summary.seconds for _, summary in tried)
    return {"texts": len(part.splits["train"][1]), **figures, "seconds": round(seconds, 2)}


def run(
    file: Path, sets: list[str], fractions: list[float], seeds: int, changes: dict[str, Any]
) -> list[Row]:
    """Do all trainings that the result file lacks, one at a time; write it after each."""
    rows: list[Row] = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.exists() else []
    done = {tuple(row[key] for key in KEY) for row in rows}
    for name in sets:
        config = ClassifyConfig(data=name, **(SETTINGS | changes))
        rules = HERE / "rules" / f"{name}.rules"
        models = {"rules": prepare(config.replace(rules=str(rules))), "no rules": prepare(config)}
        for fraction in fractions:
            for seed in range(seeds):
                for model, data in models.items():
                    key = (name, model, fraction, seed)
                    if key in done or (
                        not fraction and model == "rules" and seed
                    ):  # nothing is random in the rules
                        continue
                    rows.append(dict(zip(KEY, key, strict=True)) | measure(data, fraction, seed))
                    print(json.dumps(rows[-1]), flush=True)
                    about = meta() | {
                        "settings": SETTINGS | changes,
                        "schedules": SCHEDULES,
                        "rules": rules_of(sets),
                    }
                    text = json.dumps({"meta": about, "rows": rows}, indent=1) + "\n"
                    temporary = file.with_suffix(".part")
                    temporary.write_text(text, encoding="utf-8")
                    temporary.replace(file)
    return rows


def rules_of(sets: list[str]) -> dict[str, str]:
    """Return the rules of each data set, so that the result file says which were measured."""
    return {name: (HERE / "rules" / f"{name}.rules").read_text(encoding="utf-8") for name in sets}


def table(rows: list[Row]) -> list[list[str]]:
    """Return test accuracies, mean ± standard deviation over subsamples, with a head."""
    out = [["data", "training texts", "rules alone", "rules and training", "the same without rules"]]
    for name in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == name]
        alone = next(
            (f"{row['test']:.1f}" for row in own if row["model"] == "rules" and not row["fraction"]), ""
        )
        for fraction in sorted({row["fraction"] for row in own}):
            here = [row for row in own if row["fraction"] == fraction]
            figures = []
            for model in ("rules", "no rules"):
                found = [row["test"] for row in here if row["model"] == model]
                spread = f" ± {stdev(found):.1f}" if len(found) > 1 else ""
                figures.append(f"{mean(found):.1f}{spread}" if found else "")
            texts = f"{max(row['texts'] for row in here):,} ({fraction:.0%})"
            out.append([name, texts, alone, *figures])
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=["sst", "cr"], help="data sets")
    parser.add_argument("--fractions", type=float, nargs="+", default=[0.0, 0.01, 0.1, 1.0])
    parser.add_argument("--seeds", type=int, default=5, help="subsamples for each fraction")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="change a setting")
    parser.add_argument("--json", type=Path, required=True, help="the result file")
    options = parser.parse_args()
    changes = {name: json.loads(value) for name, value in (each.split("=", 1) for each in options.set)}
    print_table(table(run(options.json, options.data, options.fractions, options.seeds, changes)))


if __name__ == "__main__":
    main()
