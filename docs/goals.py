"""Tables of the goals and what was measured. Each was set before the code that it is about was written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from figures import BOTH, Row, dtype, named, plain, results, row, rows, size, table


class Goal(NamedTuple):
    what: str
    goal: float
    measured: float
    unit: str
    at_most: bool = False
    """True for a time or a perplexity, where less is better."""
    digits: int = 1

    @property
    def met(self) -> bool:
        return self.measured <= self.goal if self.at_most else self.measured >= self.goal

    def cells(self) -> tuple[str, str, str, str]:
        bound = "≤" if self.at_most else "≥"
        goal, measured = (f"{value:.{self.digits}f}" for value in (self.goal, self.measured))
        return (
            self.what,
            f"{bound} {goal}{self.unit}",
            f"{measured}{self.unit}",
            "yes" if self.met else "**missed**",
        )


# (T, B, D) → per cent of the copy bandwidth, forward and backward together, in fp32 and bf16; or µs at most
UNFUSED = {
    (512, 32, 1024): (92, 80),
    (2048, 8, 1024): (80, 65),
    (4096, 16, 2048): (95, 85),
    (65536, 1, 1024): (82, 65),
}
CACHED = {"float32": 11, "bfloat16": 9}  # µs at (35, 32, 1024), which lives in the L2 cache

# (T, B, D) → per cent forward and backward of F with its gates, in fp32 and bf16
FUSED = {
    (512, 32, 1024): ((70, 65), (55, 50)),
    (4096, 16, 2048): ((70, 65), (55, 50)),
    (2048, 8, 1024): ((50, 45), (40, 35)),
    (65536, 1, 1024): ((50, 45), (40, 35)),
}

# model, layers → test perplexity on the Penn Treebank
PTB = {
    ("F", 2): 66.3,
    ("F", 3): 63.1,
    ("B", 2): 69.2,
    ("B", 3): 65.2,
    ("C", 2): 69.5,
    ("C", 3): 67.0,
    ("B-max-plus", 2): 71.7,
    ("B-max-plus", 3): 66.9,
}
BEST_F = 56.5  # test perplexity of F at 24M with the best setting, as the mean of three seeds
# cells with families of states: times as fast as eager torch on the CPU; on the H200 ms, or per cent of copy bandwidth
EAGER = {("Mamba", 16): 5, ("GLA", 16): 5, ("GLA", 64): 10}
MAMBA = 1.0
LRU = {"float32": 60, "bfloat16": 50}
PEERS = {
    "GLA": 2.0,
    "simple GLA": 1.0,
    "retention": 1.0,
    "linear attention": 1.0,
    "Mamba-2": 1.0,
}  # times as fast as hand-written kernels

ACCURACY = {"sst": 84.0, "subj": 93.0, "cr": 82.0}  # of F


@named
def goals() -> str:
    return table("what | goal: | measured: | met", (goal.cells() for goal in _all()))


@named
def missed() -> str:
    every = _all()
    left = [goal for goal in every if not goal.met]
    words = f"{len(every) - len(left)} of {len(every)} goals were met. These {len(left)} were missed:\n\n"
    return words + table("missed | goal: | measured:", (goal.cells()[:3] for goal in left))


def count() -> tuple[int, int]:
    """Return the number of missed goals, and of all."""
    every = _all()
    return sum(not goal.met for goal in every), len(every)


def _all() -> list[Goal]:
    kernels = (*_cpu(), *_gpu_kernels(), *_families(), *_matrix_states())
    return [*kernels, *_gpu_layers(), *_lm_speed(), *_search_speed(), *_ptb(), *_accuracy()]


def _cpu() -> Iterator[Goal]:
    eager = rows("kernels-cpu", baseline="eager")
    for threads in (1, 2):
        worst = min((r for r in eager if r["threads"] == threads), key=lambda r: r["ratio"])
        where = f"{worst['name'].split(',')[0]} at {size(worst['shape'])}"
        text = f"CPU kernels, {threads} thread{'s' * (threads > 1)}: the slowest row against eager torch ({where})"
        yield Goal(text, 3.3, worst["ratio"], "×")
    compiles = [r["ms"] for r in rows("kernels-cpu") if r["name"].startswith("first compile")]
    yield Goal("CPU kernels: the slowest first compile", 1000, max(compiles), " ms", at_most=True, digits=0)
    for name, goal in (("B", 3.0), ("F", 1.7)):
        for threads in (1, 2):
            found = row(
                "layers-cpu", name=f"RRNN({name}), {threads} threads", shape=[35, 32, 650], baseline="nn.LSTM"
            )
            text = (
                f"CPU layers: RRNN({name}) against nn.LSTM, 35×32×650, {threads} thread{'s' * (threads > 1)}"
            )
            yield Goal(text, goal, found["ratio"], "×", digits=2)
    steps = [r["over_baseline_us"] for r in rows("layers-cpu") if "over_baseline_us" in r]
    yield Goal("CPU layers: a streamed step over its matrix product", 100, max(steps), " µs", True, 0)


def _gpu_kernels() -> Iterator[Goal]:
    def measure(name: str, shape: tuple[int, ...], kind: str, half: str, key: str) -> float:
        wanted = {"name": name, "shape": list(shape), "dtype": kind, "backend": "triton", "pass": half}
        return row("kernels-h200", **wanted)[key]

    for kind, goal in CACHED.items():
        us = 1000 * measure("B unfused", (35, 32, 1024), kind, BOTH, "ms")
        yield Goal(f"GPU kernels: bare B, 35×32×1024, {dtype(kind)}", goal, us, " µs", at_most=True)
    for shape, shares in UNFUSED.items():
        for kind, goal in zip(CACHED, shares, strict=True):
            share = measure("B unfused", shape, kind, BOTH, "percent_of_copy")
            yield Goal(f"GPU kernels: bare B, {size([*shape])}, {dtype(kind)}", goal, share, " %")
    for shape, pairs in FUSED.items():
        for kind, pair in zip(CACHED, pairs, strict=True):
            for half, goal in zip(("forward", "backward"), pair, strict=True):
                share = measure("F+o", shape, kind, half, "percent_of_copy")
                yield Goal(
                    f"GPU kernels: F with gates, {half}, {size([*shape])}, {dtype(kind)}", goal, share, " %"
                )


def _families() -> Iterator[Goal]:
    for (name, states), goal in EAGER.items():
        found = next(r for r in rows("wide-cpu", name=name, **{"pass": BOTH}) if r["shape"][3] == states)
        yield Goal(f"CPU kernels: {name}, {_states(found)}, against eager torch", goal, found["ratio"], "×")
    found = row("wide-h200", name="Mamba", dtype="bfloat16", **{"pass": BOTH})
    yield Goal(
        f"GPU kernels: Mamba, {_states(found)}, bf16", MAMBA, found["ms"], " ms", at_most=True, digits=2
    )
    for kind, goal in LRU.items():
        found = row("wide-h200", name="LRU", dtype=kind, **{"pass": BOTH})
        share = found["percent_of_copy"]
        yield Goal(f"GPU kernels: LRU, {size(found['shape'][:3])}, {dtype(kind)}", goal, share, " %")


def _states(found: Row) -> str:
    return f"{size(found['shape'][:3])}, {found['shape'][3]} states"


def _matrix_states() -> Iterator[Goal]:
    for found in rows("matrix-h200", model=tuple(PEERS)):
        way = "forward" if found["pass"] == "forward" else "both passes"
        what = f"GPU kernels: {found['model']} against {found['peer']}, {size(found['shape'])}, {way}"
        yield Goal(what, PEERS[found["model"]], found["ratio"], "×", digits=3)


def _gpu_layers() -> Iterator[Goal]:
    for name, goal in (("B", 20), ("F", 12)):
        found = row("layers-h200", name=f"RRNN({name})", shape=[512, 32, 1024], dtype="bfloat16")
        what = f"GPU layers: RRNN({name}) against cuDNN's LSTM, 512×32×1024, bf16"
        for key, how in (("graph_ratio", "both in CUDA graphs"), ("ratio", "plain calls")):
            if key in found:
                yield Goal(f"{what}, {how}", goal, found[key], "×")


def _lm_speed() -> Iterator[Goal]:
    for name, seconds in (("F 10M", 0.7), ("F 24M", 1.2)):
        for found in rows("lm-h200", name=name):
            what = f"language model {name}, {found['dtype']}"
            yield Goal(
                f"{what}: an epoch of the Penn Treebank", seconds, found["seconds_per_epoch"], " s", True, 2
            )
            yield Goal(f"{what}: tokens/s against cuDNN's LSTM, equal parameters", 4, found["ratio"], "×")


def _search_speed() -> Iterator[Goal]:
    for found in rows("classify-h200", cell="F", data="sst"):
        how = f"{found['trainings']} settings, {found['epochs']:,} epochs"
        yield Goal(f"a search on sst for one model: {how}", 180, found["seconds"], " s", True, 0)


def _ptb() -> Iterator[Goal]:
    runs = rows("lm-ptb/table") if results("lm-ptb/table") else []
    for (model, layers), goal in PTB.items():
        ours = [r for r in runs if plain(r["model"]) == model and r["layers"] == layers and r.get("test_ppl")]
        for label in sorted({r["label"] for r in ours}):
            found = [r["test_ppl"] for r in ours if r["label"] == label]
            of = f"mean of {len(found)} seeds" if len(found) > 1 else "one seed"
            how = f"{layers} layers, {label or 'as the paper'}, {of}"
            what = f"Penn Treebank, test perplexity: {model}, {how}"
            yield Goal(what, goal, sum(found) / len(found), "", at_most=True)
    for label, which in (
        ("best", "the best setting"),
        ("searched", "its search with embedding size and shuffle"),
    ):
        if best := [r["test_ppl"] for r in runs if r["label"] == label and plain(r["model"]) == "F"]:
            of = f"mean of {len(best)} seeds" if len(best) > 1 else "one seed"
            what = f"Penn Treebank, test perplexity: F, 24M parameters, {which}, {of}"
            yield Goal(what, BEST_F, sum(best) / len(best), "", at_most=True)


def _accuracy() -> Iterator[Goal]:
    for found in rows("classify/table", dataset=tuple(ACCURACY)) if results("classify/table") else ():
        if plain(found["model"]) == "F" and found.get("mean") is not None:
            how = found.get("label") or "as the paper"
            what = f"text classification, test accuracy: F on {found['dataset']}, {how}"
            yield Goal(what, ACCURACY[found["dataset"]], found["mean"], " %")
