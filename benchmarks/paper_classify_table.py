"""From the files of `paper_classify.py` to table.json and a table to read."""

from __future__ import annotations

import itertools
import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evidence import Evidence, Line
from results import meta, print_table

from rrnn.tasks.checkpoints import write_atomic
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.paper_tables import DATA, NAMES, PAPER_ACCURACIES, paired

Row = dict[str, Any]
ORDER = ("sst", "subj", "cr", "amazon")
USUAL = {"vectors": "glove", "vector_length": 1.0, "cleaning": "glove", "unknown": "own"}
"""How a row reads its data if nothing else is asked for."""
PROTOCOL = (
    "Settings are drawn at random from the paper's ranges, the same for every model, trained on split 0 and compared "
    "on its dev alone. The few best are trained on other splits (or seeds, where there is one split; see "
    "compared_again), and the best on dev on average is chosen; where a file has trainings with parts of the training "
    "texts held out, the best on these parts. It is trained anew; test is read once by each of these trainings: mean "
    "and std are theirs. Data without a published split: over random splits of 80/10/10, one setting for all of them, "
    "so that some texts it was chosen by are in another split's test. Intervals: 95 %, Student's t on paired "
    "differences of test accuracy; the pairs are splits, or seeds where there is one split; not corrected for the "
    "number of comparisons."
)


def rows_of(folder: Path) -> list[tuple[Row, Evidence]]:
    """A row for each file with final trainings, the paper's order first, variants after what they vary: those that
    change more after those that change less."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        evidence = Evidence.read(path)
        if evidence.lines and evidence.head["kind"] == "row" and any("test" in f for f in evidence.finals()):
            found.append((row_of(evidence), evidence))
    return sorted(found, key=lambda pair: _place(*pair))


def _place(row: Row, evidence: Evidence) -> tuple[Any, ...]:
    known, models = list(ORDER), list(NAMES.values())
    data, model = row["dataset"], row["model"]
    usual = ClassifyConfig.defaults() | USUAL
    changes = sum(value != usual.get(key) for key, value in evidence.head["config"].items() if key != "cell")
    return (
        known.index(data) if data in known else len(known),
        data,
        changes,
        row["label"],
        models.index(model) if model in models else len(models),
        model,
    )


def row_of(evidence: Evidence) -> Row:
    head, finals, best = evidence.head, evidence.finals(), evidence.chosen()
    assert best is not None
    finals = [line for line in finals if "test" in line]  # without those whose loss became NaN: see "failed"
    tests = [line["test"] for line in finals]
    trained = [line for line in evidence.lines if "seconds" in line]
    return {
        "model": NAMES.get(head["model"], head["model"]),
        "dataset": head["dataset"],
        "label": head["label"],
        "mean": round(statistics.fmean(tests), 3),
        "std": round(statistics.stdev(tests), 3) if len(tests) > 1 else None,
        "seeds": len(finals),
        "splits": _splits(finals),
        "dev_mean": round(statistics.fmean(line["dev"] for line in finals), 3),
        "trials": len(evidence.settings()),
        "compared_again": _compared(evidence),
        "failed": sum("error" in line for line in evidence.lines),
        "setting": best["setting"] | head["pinned"],
        "setting_dev": round(best["dev"], 3),
        "vectors": head["config"]["vectors"],
        "cleaning": head["config"]["cleaning"],
        "unknown": head["config"]["unknown"],
        "vector_width": head["vector_width"],
        "paper": _paper(head["model"], head["dataset"]),
        "training_seconds": round(sum(line["seconds"] for line in trained)),
    }


def _compared(evidence: Evidence) -> dict[str, Any] | None:
    """By what the best of the settings were compared once more."""
    lines = [line for line in evidence.lines if line["kind"] in ("again", "held out")]
    if not lines:
        return None
    settings = len({line["number"] for line in lines})
    by = "parts held out" if lines[0]["kind"] == "held out" else "splits" if lines[0]["split"] else "seeds"
    return {"settings": settings, "by": by, "times": len(lines) // settings}


def _splits(lines: Sequence[Line]) -> int:
    return len({line["split"] for line in lines})


def _paper(model: str, data: str) -> float | None:
    """Not beside `amazon`, whose texts are not the paper's."""
    if model not in PAPER_ACCURACIES or data not in DATA or data == "amazon":
        return None
    return PAPER_ACCURACIES[model][DATA.index(data)][0]


# ---- differences -----------------------------------------------------------------------------------------------------


def scores(finals: Sequence[Line]) -> dict[tuple[str, int], float]:
    """Test accuracy of each split, a mean over its seeds; of each seed where there is one split."""
    kind = "split" if _splits(finals) > 1 else "seed"
    found = defaultdict[tuple[str, int], list[float]](list)
    for line in finals:
        if "test" in line:
            found[kind, line[kind]].append(line["test"])
    return {key: statistics.fmean(values) for key, values in found.items()}


def differences(found: Sequence[tuple[Row, Evidence]]) -> list[Row]:
    """Between any two models of a data set and label, and between any two labels of a data set and model."""
    answer = []
    for (a, a_file), (b, b_file) in itertools.combinations(found, 2):
        same_model, same_label = a["model"] == b["model"], a["label"] == b["label"]
        if a["dataset"] != b["dataset"] or same_model == same_label:
            continue
        ours, others = scores(b_file.finals()), scores(a_file.finals())
        gains = [ours[key] - others[key] for key in ours if key in others]
        if len(gains) > 1:
            names = {
                "dataset": a["dataset"],
                "model": b["model"],
                "label": b["label"],
                "to_label": a["label"],
            }
            values = asdict(paired(gains, a["model"]))
            answer.append(names | {k: round(v, 3) if isinstance(v, float) else v for k, v in values.items()})
    return answer


# ---- files and printing ----------------------------------------------------------------------------------------------


def write_table(folder: Path) -> dict[str, Any]:
    found = rows_of(folder)
    devices = sorted({line["device"] for _, file in found for line in file.lines if "device" in line})
    commands = list(dict.fromkeys(file.head["meta"]["command"] for _, file in found))
    about = meta() | {"protocol": PROTOCOL, "commands": commands}  # those that began the files
    about["data"] = {row["dataset"]: file.head["about"] for row, file in found}
    if devices:  # what they were trained with, not what wrote the table
        about["device"] = {"gpu": ", ".join(devices)}
        about["versions"]["torch"] = ", ".join(
            sorted({f.head["meta"]["versions"]["torch"] for _, f in found})
        )
    table = {"meta": about, "rows": [row for row, _ in found], "differences": differences(found)}
    text = json.dumps(table, indent=1, ensure_ascii=False)
    write_atomic(folder / "table.json", (text + "\n").encode())
    return table


def _name(model: str, label: str) -> str:
    return f"{model} + {label}" if label else model


def show(table: dict[str, Any]) -> None:
    if not table["rows"]:
        print("no row is complete yet: a row's final trainings begin when all its settings were tried")
        return
    lines = [["data", "model", "test", "runs", "splits", "dev", "settings", "paper"]]
    for row in table["rows"]:
        std = "" if row["std"] is None else f" ± {row['std']:.1f}"
        paper = "" if row["paper"] is None else f"{row['paper']:.1f}"
        lines.append(
            [row["dataset"], _name(row["model"], row["label"]), f"{row['mean']:.1f}{std}"]
            + [str(row[key]) for key in ("seeds", "splits")]
            + [f"{row['dev_mean']:.1f}", str(row["trials"]), paper]
        )
    print_table(lines)
    if table["differences"]:
        print()
        print_table([["data", "model", "less", "gain", "95 % interval"], *map(_told, table["differences"])])


def _told(d: Row) -> list[str]:
    names = [d["dataset"], _name(d["model"], d["label"]), _name(d["reference"], d["to_label"])]
    star = " " if d["low"] <= 0 <= d["high"] else "*"
    return [*names, f"{d['mean']:+.2f}", f"[{d['low']:+.2f}, {d['high']:+.2f}]{star}"]
