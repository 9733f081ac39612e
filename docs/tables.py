"""The tables of figures on the pages, from the result files in docs/results/.

    python docs/tables.py            # rewrites what stands between <!-- table: NAME --> and <!-- end -->
    python docs/tables.py --check    # says where a page is not what the files say, and exits with 1

Pages are README.md, docs/results.md and docs/reproduce.md, or those named. So no figure on them can drift from its
source.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from figures import BOTH, RESULTS, Row, dtype, results, row, rows, size, table, unique, us
from goals import goals, missed

DOCS = Path(__file__).parent
PAGES = [DOCS.parent / "README.md", DOCS / "results.md", DOCS / "reproduce.md"]
MARKED = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.S)

TABLES: dict[str, Callable[[], str]] = {"goals": goals, "missed": missed}


def named(function: Callable[[], str]) -> Callable[[], str]:
    TABLES[function.__name__.replace("_", "-")] = function
    return function


# ---- kernels on a GPU ----------------------------------------------------------------------------------------------


def best_peer(shape: list[int], kind: str, layout: str) -> Row:
    """The quickest of the others on the same tensors, forward and backward."""
    measured = rows("kernels-h200", shape=shape, dtype=kind, layout=layout, **{"pass": BOTH})
    return min(measured, key=lambda peer: peer["ms"])


@named
def gpu_unfused() -> str:
    body = []
    for ours in rows("kernels-h200", name="B unfused", backend="triton", **{"pass": BOTH}):
        peer = best_peer(ours["shape"], ours["dtype"], "from (T,B,D)")
        own = best_peer(ours["shape"], ours["dtype"], "own")
        body.append(
            (
                size(ours["shape"]),
                dtype(ours["dtype"]),
                us(ours["ms"]),
                f"{ours['percent_of_copy']:.0f} %",
                f"{peer['backend']}, {us(peer['ms'])} µs",
                f"{peer['ms'] / ours['ms']:.1f}×",
                f"{own['backend']}, {us(own['ms'])} µs",
                f"{own['ms'] / ours['ms']:.1f}×",
            )
        )
    ours, theirs = "T×B×D | | µs: | of copy:", "theirs / ours:"
    head = f"{ours} | the others, from T×B×D | {theirs} | the others, in their own layout | {theirs}"
    return table(head, body)


@named
def gpu_fused() -> str:
    def share(cell: str, shape: list[int], kind: str) -> str:
        halves = [
            row("kernels-h200", name=cell, shape=shape, dtype=kind, backend="triton", **{"pass": half})
            for half in ("forward", "backward")
        ]
        return " / ".join(f"{half['percent_of_copy']:.0f}" for half in halves)

    ours = [r for r in rows("kernels-h200", backend="triton", **{"pass": BOTH}) if r["name"] != "B unfused"]
    shapes = unique(r["shape"] for r in ours)
    kinds = unique(r["dtype"] for r in ours)
    head = " | ".join(["cell | ", *(f"{size(shape)}:" for shape in shapes)])
    cells = unique(r["name"] for r in ours)
    return table(
        head,
        ((cell, dtype(kind), *(share(cell, s, kind) for s in shapes)) for cell in cells for kind in kinds),
    )


@named
def complex_b() -> str:
    """B over the complex numbers against the loop that one would write with torch's complex tensors."""
    body = []
    for file in ("complex-h200", "complex-cpu"):
        for r in rows(file, **{"pass": BOTH}):
            machine = (
                "H200" if file.endswith("h200") else f"CPU, {r['threads']} thread{'s' * (r['threads'] > 1)}"
            )
            ours = (size(r["shape"]), f"{r['ms']:.3g}", f"{r['percent_of_copy']:.0f} %")
            body.append((machine, *ours, f"{r['eager_ms']:.3g}", f"{r['ratio']:.0f}×"))
    return table("machine | T×B×D | ms: | of copy: | eager, ms: | eager / ours:", body)


@named
def versions() -> str:
    """The present kernels against those before semirings became data, old and new in turns."""
    body = []
    for file, machine in (("versions-h200", "H200"), ("versions-cpu", "CPU, 1 thread")):
        for kind, words in (("kernel", "kernels"), ("first call", "first call")):
            ratios = sorted(r["ratio"] for r in rows(file, kind=kind))
            middle = ratios[len(ratios) // 2]
            body.append(
                (machine, words, len(ratios), f"{ratios[0]:.3f}", f"{middle:.3f}", f"{ratios[-1]:.3f}")
            )
    return table("machine | what | cases: | least new / old: | median: | greatest:", body)


@named
def gpu_counters() -> str:
    body = []
    for r in rows("counters-h200"):
        if r["us"] < 20:  # fills and joins
            continue
        moved = f"{r['read_bytes'] / 1e6:.0f} + {r['written_bytes'] / 1e6:.0f}"
        shares = (f"{r[key]:.0f} %" for key in ("memory_percent", "l2_percent", "issue_percent"))
        what = f"{r['name'].removesuffix('+o').replace('B unfused', 'bare B')}, {r['kernel']}"
        body.append((what, size(r["shape"]), dtype(r["dtype"]), us(r["us"] / 1e3), moved, *shares, _waits(r)))
    head = "kernel | T×B×D | | µs: | MB in + out: | memory: | L2: | issue: | waits for"
    return table(head, body)


def _waits(counted: Row) -> str:
    """What a warp mostly waits for."""
    stalls = {key.removeprefix("stall_"): n for key, n in counted.items() if key.startswith("stall_")}
    most = max(stalls, key=lambda name: stalls[name])
    return {"long_scoreboard": "loads", "wait": "arithmetic"}.get(most, most)


@named
def gpu_layers() -> str:
    body = []
    for ours in rows("layers-h200"):
        graph = f"{ours['ms']:.2f}" if "ms" in ours else ""
        ratio, in_graph = (f"{ours[key]:.1f}×" if key in ours else "" for key in ("ratio", "graph_ratio"))
        name = {"LSTM": "cuDNN LSTM", "GRU": "cuDNN GRU"}.get(ours["name"], ours["name"])
        body.append(
            (
                name,
                size(ours["shape"]),
                dtype(ours["dtype"]),
                f"{ours['plain_ms']:.2f}",
                ratio,
                graph,
                in_graph,
            )
        )
    return table(
        "layer | T×B×D | | ms: | cuDNN LSTM / this: | ms in a CUDA graph: | cuDNN LSTM / this:", body
    )


# ---- kernels and layers on a CPU -----------------------------------------------------------------------------------


def cpu_cells(file: str, suffix: str = ", 2 threads") -> list[str]:
    return unique(r["name"].removesuffix(suffix) for r in rows(file, threads=2) if r["name"].endswith(suffix))


@named
def cpu_kernels() -> str:
    measured = rows("kernels-cpu", threads=(1, 2), baseline="eager")
    shapes = unique(r["shape"] for r in measured)

    def ratios(cell: str, shape: list[int], half: str) -> str:
        return " / ".join(
            f"{row('kernels-cpu', name=f'{cell}, {n} threads', shape=shape, **{'pass': half})['ratio']:.1f}"
            for n in (1, 2)
        )

    head = " | ".join(["cell | ", *(f"{size(shape)}:" for shape in shapes)])
    halves = {"forward": "forward", BOTH: "forward and backward"}
    cells = cpu_cells("kernels-cpu")
    return table(
        head,
        ((c, text, *(ratios(c, s, half) for s in shapes)) for c in cells for half, text in halves.items()),
    )


@named
def cpu_layers() -> str:
    body = []
    for name in cpu_cells("layers-cpu"):
        for shape in unique(r["shape"] for r in rows("layers-cpu", name=f"{name}, 2 threads")):
            against = {r["baseline"]: r for r in rows("layers-cpu", name=f"{name}, 2 threads", shape=shape)}
            if "nn.LSTM" in against:
                ratios = (against[f"nn.{rival}"]["ratio"] for rival in RIVALS)
                ms = against["nn.LSTM"]["ms"]
                body.append((name, size(shape), f"{ms:.0f}", *(f"{ratio:.2f}×" for ratio in ratios)))
    head = "layer | T×B×D | ms: | LSTM: | GRU: | LSTM, equal parameters: | GRU, equal parameters:"
    return table(head, body)


RIVALS = ("LSTM", "GRU", "LSTM, equal parameters", "GRU, equal parameters")


# ---- language models and classifiers -------------------------------------------------------------------------------

NOTHING = "*No results are committed yet.*\n"


@named
def search_speed() -> str:
    found = rows("classify-h200")
    body = (
        (
            r["cell"],
            r["data"],
            r["trainings"],
            f"{r['epochs']:,}",
            f"{r['seconds']:.0f}",
            f"{r['ms_per_epoch']:.0f}",
        )
        for r in found
    )
    return table("cell | data | settings: | epochs: | s: | ms an epoch:", body)


@named
def lm_speed() -> str:
    body = []
    for r in rows("lm-h200"):
        ratio = f"{r['ratio']:.1f}×" if "ratio" in r else ""
        params = f"{r['parameters'] / 1e6:.1f}M"
        speed = f"{r['tokens_per_s'] / 1e6:.2f}M"
        body.append(
            (r["name"], r["dtype"], r["layers"], params, f"{r['seconds_per_epoch']:.2f}", speed, ratio)
        )
    head = "model | | layers: | parameters: | s an epoch: | tokens/s: | times the LSTM's tokens/s:"
    return table(head, body)


@named
def lm_cpu() -> str:
    found = [r for r in rows("lm-cpu") if r["threads"] == 2]
    whole = next(r["ms"] for r in found if r["part"] == "whole step")
    body = (
        (r["part"], f"{r['ms']:.0f}", f"{100 * r['ms'] / whole:.0f} %", f"{r['ratio']:.2f}×") for r in found
    )
    return table("part of a step | ms: | share: | the LSTM's time over it:", body)


def number(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def signed(value: float) -> str:
    return f"{round(value, 1) + 0:+.1f}"  # no -0.0


def titled(r: Row) -> str:
    """A row's model, and what its protocol is called where it is not the paper's."""
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


def lm_run(place: Path) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """A run's folder: model and size, configuration, result."""
    config, found = (
        json.loads((place / name).read_text(encoding="utf-8")) for name in ("config.json", "result.json")
    )
    return f"{config['cell']}, {found['parameters'] / 1e6:.0f}M", config, found


@named
def lm_tried() -> str:
    """Settings that those of the table were chosen among, one seed each."""
    folder, body = RESULTS / "lm-ptb", []
    chosen = sorted(folder.glob("[!.]*-seed-0"))
    for place in [*sorted((folder / "tried").iterdir()), *chosen]:
        model, config, found = lm_run(place)
        decay = f"{config['weight_decay'] * 1e5:g}·10⁻⁵"
        falls = config["lr_decay_from"] <= config["epochs"]
        shrinks = ", as the rate" if config["scale_weight_decay"] and falls else ""
        rate = f"{first_rate(place):g}" + (", ×0.98 from 175" if falls else "")
        more = [word for key, word in (("shift", "shifted"), ("locked_dropout", "locked")) if config[key]]
        more += ["TF32"] if config["precision"] == "tf32" else []
        dropouts = (config[f"{name}_dropout"] for name in ("embedding", "variational", "between"))
        reached = f"{found['best_epoch']} of {found['epochs']}", number(found["dev_ppl"])
        line = (model, *map("{:.2f}".format, dropouts), decay + shrinks, rate, ", ".join(more), *reached)
        body.append((*line, "yes" if place in chosen else ""))
    body.sort(key=lambda line: (line[0], -float(line[-2])))
    head = (
        "model | in/out dropout: | variational: | between: | weight decay | rate | more | best epoch: | dev:"
    )
    return table(head + " | in the table", body)


def first_rate(run: Path) -> float:
    """Configurations name none where it is the recipe's."""
    with (run / "metrics.jsonl").open(encoding="utf-8") as lines:
        return json.loads(next(lines))["lr"]


@named
def lm_gains() -> str:
    """What C needs to begin."""
    found = sorted(
        (model, config["rnn_gain"], run["epochs"], number(run["dev_ppl"]))
        for model, config, run in map(lm_run, (RESULTS / "lm-ptb" / "gains").iterdir())
    )
    return table("model | `rnn_gain`: | epochs: | dev:", found)


def way(data: str, label: str) -> str:
    """ "sst, letters" of averaged-letters: all rows of classifiers are averaged."""
    more = label.removeprefix("averaged").removeprefix("-") if label else "not averaged"
    return ", ".join(filter(None, (data, more.replace("-", " ")))) or "unit vectors"


@named
def classification() -> str:
    if results("classify/table") is None:
        return NOTHING
    body = (
        (
            way(r["dataset"], r["label"]),
            r["model"],
            f"{number(r['mean'])} ± {number(r['std'])}",
            r["seeds"],
            r.get("trials", ""),
            number(r["training_seconds"] / 60, 0),
            number(r.get("dev_mean")),
            number(r.get("paper")),
        )
        for r in rows("classify/table")
    )
    head = "data | model | test accuracy: | seeds: | settings tried: | minutes in sum: | dev: | the paper's:"
    return table(head, body)


@named
def classification_differences() -> str:
    """F against every other model of the same protocol."""
    found = (results("classify/table") or {}).get("differences", ())
    body = []
    for d in found:
        if d["label"] == d["to_label"] and "RRNN(F)" in (d["model"], d["reference"]):
            sign = 1 if d["model"] == "RRNN(F)" else -1
            low, high = sorted((sign * d["low"], sign * d["high"]))
            other = d["reference"] if sign > 0 else d["model"]
            beyond = "yes" if low > 0 or high < 0 else ""
            body.append(
                (
                    way(d["dataset"], d["label"]),
                    other,
                    signed(sign * d["mean"]),
                    f"{signed(low)} to {signed(high)}",
                    beyond,
                )
            )
    return table("data | F against | gain: | 95 %: | beyond chance", body) if body else NOTHING


@named
def classification_gains() -> str:
    """What each way to read the data gains over the one above it; * where that is beyond chance."""
    found, body = rows("classify/table"), []
    models = unique(r["model"] for r in found)
    by = {
        (d["dataset"], d["model"], d["label"], d["to_label"]): d
        for d in (results("classify/table") or {}).get("differences", ())
        if d["model"] == d["reference"]
    }
    ways = unique((r["dataset"], r["label"]) for r in found)
    for (data, before), (other, label) in itertools.pairwise(ways):
        if data == other:
            gains = [by.get((data, model, label, before)) for model in models]
            cells = (
                f"{signed(d['mean'])}{'' if d['low'] <= 0 <= d['high'] else ' *'}" if d else "" for d in gains
            )
            body.append((way(data, label), way("", before), *cells))
    return table(" | ".join(["data", "over", *(f"{model}:" for model in models)]), body)


# ---- the README's, for someone who has two minutes -----------------------------------------------------------------


@named
def short_gpu_kernels() -> str:
    def figures(shape: list[int], kind: str) -> tuple[str, str, str]:
        ours = row(
            "kernels-h200", name="B unfused", shape=shape, dtype=kind, backend="triton", **{"pass": BOTH}
        )
        peer = best_peer(shape, kind, "from (T,B,D)")
        return us(ours["ms"]), f"{ours['percent_of_copy']:.0f} %", f"{peer['ms'] / ours['ms']:.1f}×"

    shapes = unique(r["shape"] for r in rows("kernels-h200", name="B unfused", backend="triton"))
    head = "T×B×D | fp32 µs: | of copy: | best other / ours: | bf16 µs: | of copy: | best other / ours:"
    return table(head, ((size(s), *figures(s, "float32"), *figures(s, "bfloat16")) for s in shapes))


@named
def short_cpu_kernels() -> str:
    measured = rows("kernels-cpu", threads=2, baseline="eager", **{"pass": BOTH})
    shapes = unique(r["shape"] for r in measured)

    def ratio(cell: str, shape: list[int]) -> str:
        (found,) = (r for r in measured if r["name"] == f"{cell}, 2 threads" and r["shape"] == shape)
        return f"{found['ratio']:.1f}×"

    head = " | ".join(["cell", *(f"{size(shape)}:" for shape in shapes)])
    return table(head, ((cell, *(ratio(cell, s) for s in shapes)) for cell in cpu_cells("kernels-cpu")))


@named
def short_layers() -> str:
    def cpu(name: str, rival: str) -> str:
        found = row("layers-cpu", name=f"{name}, 2 threads", shape=[35, 32, 650], baseline=rival)
        return f"{found['ratio']:.2f}×"

    def gpu(name: str, kind: str, what: str = "ratio") -> str:
        return f"{row('layers-h200', name=name, shape=[512, 32, 1024], dtype=kind)[what]:.1f}×"

    body = (
        (
            *(n, gpu(n, "float32"), gpu(n, "bfloat16"), gpu(n, "bfloat16", "graph_ratio")),
            *(cpu(n, "nn.LSTM"), cpu(n, "nn.LSTM, equal parameters")),
        )
        for n in ("RRNN(B)", "RRNN(F)", "RRNN(F+o)")
    )
    head = "layer | H200, fp32: | H200, bf16: | bf16, both in CUDA graphs: | CPU: | CPU, equal parameters:"
    return table(head, body)


@named
def short_perplexity() -> str:
    """On test; the paper's beside it."""

    def figures(runs: list[dict[str, Any]], millions: int) -> tuple[str, str]:
        ours = [r for r in runs if round(r["params"] / 1e6) == millions and r["test_ppl"]]
        mean = sum(r["test_ppl"] for r in ours) / max(len(ours), 1)
        return (number(mean), number(ours[0]["paper_test"])) if ours else ("", "")

    found: dict[str, list[dict[str, Any]]] = {}
    for r in rows("lm-ptb/table"):
        found.setdefault(titled(r), []).append(r)
    body = ((model, *figures(runs, 10), *figures(runs, 24)) for model, runs in found.items())
    return table("model | 10M: | the paper's: | 24M: | the paper's:", body)


@named
def short_accuracy() -> str:
    """On test, a row for each data set and each way to read it; the paper's in brackets, once, where its data were the
    same."""
    found = rows("classify/table")
    models, body, told = unique(r["model"] for r in found), [], set[str]()
    for data, label in unique((r["dataset"], r["label"]) for r in found):
        here = {}
        for r in found:
            if (r["dataset"], r["label"]) == (data, label):
                deviation = f" ± {number(r['std'])}" if r["std"] is not None else ""
                paper = f" ({number(r['paper'])})" if r["paper"] and data not in told else ""
                here[r["model"]] = f"{number(r['mean'])}{deviation}{paper}"
        body.append((way(data, label), *(here.get(model, "") for model in models)))
        told.add(data)
    return table(" | ".join(["data", *(f"{model}:" for model in models)]), body)


@named
def sources() -> str:
    body = []
    for path in sorted(RESULTS.rglob("*.json")):
        name = path.relative_to(RESULTS).as_posix()
        meta = json.loads(path.read_text(encoding="utf-8")).get("meta", {})
        if "command" in meta:
            cpu = "{cpu}, {cores} cores".format_map({"cpu": "?", "cores": "?"} | meta.get("hardware", {}))
            machine = meta.get("device", {}).get("gpu", cpu)
            torch = meta.get("versions", {}).get("torch", "")
            link = f"[{name}](results/{name})"
            body.append((link, machine, torch, meta.get("commit", "")[:7], f"`{meta['command']}`"))
    return table("file | machine | torch | commit | command", body)


# ---- pages ---------------------------------------------------------------------------------------------------------


def rewrite(text: str) -> str:
    return MARKED.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}{found[3]}", text)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="*", type=Path, default=PAGES)
    parser.add_argument("--check", action="store_true", help="change nothing")
    options = parser.parse_args()
    old = []
    for page in options.pages:
        text = page.read_text(encoding="utf-8")
        if rewrite(text) != text:
            old.append(page)
            if not options.check:
                page.write_text(rewrite(text), encoding="utf-8")
    print(
        "\n".join(
            f"{page} {'is old: run python docs/tables.py' if options.check else 'rewritten'}" for page in old
        )
    )
    return int(options.check and bool(old))


if __name__ == "__main__":
    sys.exit(main())
