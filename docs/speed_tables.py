"""Tables of speed: kernels, layers and training steps, on a GPU and on a CPU."""

from __future__ import annotations

from itertools import product
from statistics import median

from figures import (
    BOTH,
    Row,
    dtype,
    named,
    number,
    paragraph,
    results,
    row,
    rows,
    size,
    span,
    table,
    unique,
    us,
)

SHOWN = ("RRNN(B)", "RRNN(F)", "RRNN(F+o)")
"""The layers in summaries and in the chart."""

# ---- in short ------------------------------------------------------------------------------------------------------


def gpu_ratio(name: str, kind: str, key: str = "ratio") -> float:
    """Return the time of cuDNN's LSTM over that of a layer of equal hidden size on an H200."""
    return row("layers-h200", name=name, shape=[512, 32, 1024], dtype=kind)[key]


def cpu_ratio(name: str, rival: str, shape: tuple[int, ...] = (35, 32, 650)) -> float:
    """Return the time of torch's layer over that of ours on two CPU cores."""
    return row("layers-cpu", name=f"{name}, 2 threads", shape=[*shape], baseline=rival)["ratio"]


@named
def speed_summary() -> str:
    """Say in words what the chart of speed shows."""
    at = {
        steps: [
            found[key]
            for found in rows("layers-h200", name=tuple(SHOWN), shape=[steps, 32, 1024])
            for key in ("ratio", "graph_ratio")
        ]
        for steps in (512, 35)
    }
    hidden, equal = ([cpu_ratio(n, rival) for n in SHOWN] for rival in ("nn.LSTM", EQUAL))
    hidden_long, long = ([cpu_ratio(n, rival, (512, 16, 512)) for n in SHOWN] for rival in ("nn.LSTM", EQUAL))
    models = [r["ratio"] for r in rows("lm-h200", cell="F")]
    return (
        paragraph(f"""
        At equal hidden size layers of B, F and F+o, which have a quarter, a half and five eighths of its parameters,
        are {span(at[512])} times as fast as cuDNN's LSTM on an H200 at 512 time steps and {span(at[35])} times at 35
        (the least in fp32 or in plain calls, the most in bf16 and CUDA graphs), and {span(hidden)} times as fast as
        `nn.LSTM` on two CPU cores at 35 time steps ({span(hidden_long)} at 512). At equal parameters, language models
        with F train {span(models)} times as fast as with cuDNN's LSTM on the H200. On the CPU the two are then about
        level: layers of B and F have {span(equal, 2)} of the speed of `nn.LSTM` at 35 time steps and {span(long, 2)} at
        512.
    """)
        + "\n"
        + paragraph(_against_kernels_by_hand())
    )


def _against_kernels_by_hand() -> str:
    peers = [r["ratio"] for r in rows("matrix-h200") if r["model"] != "attention"]
    ahead, scan = sum(ratio >= 1.01 for ratio in peers), rows("selective-scan-h200")
    level = sum(0.99 <= ratio < 1.01 for ratio in peers)
    forward, both = (next(r["ratio"] for r in scan if r["pass"] == which) for which in ("forward", BOTH))
    won = f"{ahead} of {len(peers)} comparisons" + f" and level in {level}" * bool(level)
    return f"""Against kernels that others wrote by hand for single models, on the H200 in bf16, GLA (with gates of
        states or of heads), retention, linear attention and Mamba-2 are faster in {won} ({span(peers)} times as fast as
        those of flash-linear-attention and mamba-ssm; the median is {number(median(peers), 1)}), and Mamba is
        {number(both, 1)} times as fast as mamba-ssm's scan in training, {number(forward, 2)} times forward. Each is a
        cell of about ten lines. From it the compiler derives which schedule it can have and generates the kernels of
        gates, values and outputs, and all of Mamba's; the products of matrices of all separable cells are one set of
        kernels written by hand."""


EQUAL = "nn.LSTM, equal parameters"


@named
def short_layers() -> str:
    body = (
        (
            n,
            f"{gpu_ratio(n, 'float32'):.1f}×",
            f"{gpu_ratio(n, 'bfloat16'):.1f}×",
            f"{gpu_ratio(n, 'bfloat16', 'graph_ratio'):.1f}×",
            f"{cpu_ratio(n, 'nn.LSTM'):.2f}×",
            f"{cpu_ratio(n, EQUAL):.2f}×",
        )
        for n in SHOWN
    )
    head = "layer | H200, fp32: | H200, bf16: | bf16, both in CUDA graphs: | CPU: | CPU, equal parameters:"
    return table(head, body)


# ---- kernels on a GPU ----------------------------------------------------------------------------------------------


def best_peer(shape: list[int], kind: str, layout: str) -> Row:
    """Return the fastest of the other implementations on the same tensors, forward and backward."""
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
    """Compare B over the complex numbers with the loop that one would write with torch's complex tensors."""
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
def matrix_states() -> str:
    """Compare the matrix schedule with hand-written kernels."""
    body = []
    for r in rows("matrix-h200"):
        what = "forward" if r["pass"] == "forward" else "both"
        times = f"{r['ms']:.3f}", f"{r['peer_ms']:.3f}", f"{r['ratio']:.2f}×"
        body.append((r["model"], r["peer"], size(r["shape"]), what, *times))
    return table("model | peer | B×T×H×N×U | pass | ours, ms: | peer, ms: | peer / ours:", body)


@named
def matrix_kernels() -> str:
    """Say where the time of the matrix schedule goes, kernel by kernel."""
    kernels = ("outputs", "query_gradients", "key_gradients", "segment_states", "join", "evaluate", "torch")
    found: dict[tuple[str, str], dict[str, float]] = {}
    for r in rows("matrix-kernels-h200"):
        own = found.setdefault((r["model"], size(r["shape"])), dict.fromkeys(kernels, 0.0))
        own[r["kernel"].split()[0]] += r["us"]
    body = [
        (*key, f"{sum(own.values()):.0f}", *(f"{us:.0f}" for us in own.values()))
        for key, own in found.items()
    ]
    titles = " | ".join(f"{name.replace('_', ' ')}:" for name in kernels)
    return table(f"model | B×T×H×N×U | all, µs: | {titles}", body)


@named
def matrix_or_scalar() -> str:
    """Compare the matrix schedule with the scalar one."""
    body = []
    for r in rows("matrix-or-scalar-h200"):
        times = f"{r['ms']:.2f}", f"{r['scalar_ms']:.2f}", f"{r['ratio']:.1f}×"
        body.append((r["model"], r["dtype"], str(r["shape"][3]), *times))
    return table("model | dtype | states: | matrix, ms: | scalar, ms: | scalar / matrix:", body)


@named
def matrix_or_scalar_steps() -> str:
    """Compare the matrix schedule with the scalar one where there are few steps."""
    return _by_steps("matrix-or-scalar-steps-h200", "µs", 1e3)


@named
def matrix_or_scalar_cpu() -> str:
    """Compare torch's products with compiled loops on a CPU, forward and backward."""
    return _by_steps("matrix-or-scalar-cpu", "ms", 1)


@named
def matrix_or_scalar_forward_cpu() -> str:
    """Compare torch's products with compiled loops on a CPU, without gradients."""
    return _by_steps("matrix-or-scalar-forward-cpu", "ms", 1)


def _by_steps(file: str, unit: str, scale: float) -> str:
    """Return a table of both schedules' times, with a column for each number of steps."""
    every = rows(file)
    counts = unique(r["shape"][1] for r in every)
    body = []
    for key in unique((r["model"], str(r["shape"][3])) for r in every):
        own = [r for r in every if (r["model"], str(r["shape"][3])) == key]
        times = ([f"{r[which] * scale:.3g}" for which in ("ms", "scalar_ms")] for r in own)
        body.append((*key, *(" / ".join(pair) for pair in times)))
    titles = (f"{count} step{'s' * (count > 1)}, {unit}:" for count in counts)
    return table(" | ".join(["model", "states:", *titles]), body)


@named
def packed() -> str:
    """Compare packed sequences with padded ones."""
    body = []
    for file, machine in (("packed-h200", "H200"), ("packed-cpu", "CPU, 2 threads")):
        for r in rows(file, form="cu_seqlens") if results(file) else []:
            same = {"cell": r["cell"], "dtype": r["dtype"]}
            padded, theirs = row(file, form="lengths", **same), row(file, form="PackedSequence", **same)
            times = (f"{each['ms']:.3g}" for each in (r, padded, theirs))
            kind, units = f"{r['cell']}, {dtype(r['dtype'])}", r["shape"][2]
            body.append((machine, kind, units, *times, f"{r['ratio']:.1f}×"))
    titles = "machine | cell | units: | packed, ms: | padded, ms: | PackedSequence, ms: | padded / packed:"
    return table(titles, body)


@named
def wide_h200() -> str:
    """Times of cells with families of states."""
    body = []
    for r in rows("wide-h200", **{"pass": BOTH}):
        half = row("wide-h200", name=r["name"], dtype=r["dtype"], **{"pass": "forward"})
        shape = (size(r["shape"][:3]), str(r["shape"][3]))
        times = (
            f"{half['ms']:.3f}",
            f"{r['ms']:.3f}",
            f"{r['percent_of_copy']:.0f} %",
            f"{r['peak_mb']:,.0f}",
        )
        body.append((r["name"], dtype(r["dtype"]), *shape, *times))
    head = "model | | T×B×D | states: | forward, ms: | both, ms: | both, of copy: | MB at most:"
    return table(head, body)


@named
def wide_goals() -> str:
    """Say what was aimed at and what was reached."""
    mamba = row("wide-h200", name="Mamba", dtype="bfloat16", **{"pass": BOTH})
    few = [r["ms"] for r in rows("wide-plans-h200", name="Mamba") if r["shape"] != mamba["shape"]]
    lru = [row("wide-h200", name="LRU", dtype=kind, **{"pass": BOTH}) for kind in ("float32", "bfloat16")]
    shares = [f"{r['percent_of_copy']:.0f}\u00a0%" for r in lru]
    bound = 1e3 * mamba["exponentials"] / (16 * 132 * 1.98e9)
    return paragraph(f"""
        Goals that are not reached: Mamba in 1.0 ms (here {mamba["ms"]:.2f}; at the H200's highest clock its
        exponentials alone take {bound:.2f} ms), LRU at 60 % of copy in fp32 and 50 % in bf16 (here {shares[0]} and
        {shares[1]}). With a batch of one and 1,024 units, chunks made Mamba {few[0] / min(few):.0f} times as fast as
        the serial schedule.
    """)


@named
def selective_scan() -> str:
    """Times of Mamba and of mamba-ssm's selective scan, in turns."""
    body = [
        (
            {"forward": "forward", BOTH: "both"}[r["pass"]],
            f"{r['ms']:.3f}",
            f"{r['rival_ms']:.3f}",
            f"{r['ratio']:.2f}×",
        )
        for r in rows("selective-scan-h200")
    ]
    return table("pass | ours, ms: | mamba-ssm, ms: | mamba-ssm / ours:", body)


@named
def wide_counters() -> str:
    """Instructions of a step in the kernels of families."""
    shown = ("instructions", "issue", "FP", "MUFU", "shuffles", "shared", "spills")
    body = (
        (r["name"], r["pass"], r["registers"], *(f"{r[key]:.0f}" for key in shown))
        for r in rows("wide-counters")
    )
    head = "model | pass | registers: | instructions: | cycles to issue: | add, multiply: | exp, 1/x: | shuffles: | "
    return table(head + "shared memory: | spills:", body)


@named
def wide_plans() -> str:
    """Times of the kernels of families with several plans."""
    body = []
    for r in rows("wide-plans-h200"):
        plans = [
            value for how in (r["plan"], r["backward_plan"]) for value in (how[0], how[3] or "–", how[4])
        ]
        body.append((r["name"], size(r["shape"][:3]), *plans, f"{r['forward_ms']:.3f}", f"{r['ms']:.3f}"))
    head = "model | T×B×D | units: | chunk: | stages: | units, backward: | chunk: | stages: | forward, ms: | both, ms:"
    return table(head, body)


@named
def versions() -> str:
    """Compare the present kernels with those before semirings became data, old and new in turns."""
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
def calls() -> str:
    """Show what a call of one step costs on a CPU, before families of states came and now."""
    words = {"kernel": "the op", "layer": "a layer", "step": "a layer's step"}
    body = []
    for (kind, what), name in product(words.items(), ("forward", "forward_backward")):
        if not (found := rows("calls-cpu", kind=kind, **{"pass": name})):
            continue
        least = (f"{1e3 * median(r['best_ms'][side] for r in found):.1f}" for side in (0, 1))
        ratios = (f"{median(r[key] for r in found):.3f}" for key in ("best_ratio", "ratio"))
        body.append((f"{what}, {name.replace('_', ' and ')}", len(found), *least, *ratios))
    head = "call | cells: | before, µs: | now, µs: | now / before: | in neighbouring timings:"
    return table(head, body)


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


@named
def few_lanes() -> str:
    """Show what the bare recurrence reaches forwards if chunks are read once, with and without joining them."""
    body = []
    for shape, kind in unique((tuple(r["shape"]), r["dtype"]) for r in rows("few-lanes-h200")):
        found = rows("few-lanes-h200", shape=list(shape), dtype=kind)

        def best(*names: str, found: list[Row] = found) -> str:
            r = max((r for r in found if r["name"] in names), key=lambda r: r["percent_of_copy"])
            return f"{r['percent_of_copy']:.0f} %" + (f" ({r['sizes']})" if r["sizes"] else "")

        joined = best("held, joined", "held, in pieces")
        body.append((size(list(shape)), dtype(kind), best("stream"), best("held"), joined, best("ours")))
    head = "T×B×D | | no recurrence: | chunks that wait for nothing: | joined chunks: | ours:"
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


# ---- training ------------------------------------------------------------------------------------------------------


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


# ---- exported models -------------------------------------------------------------------------------------------------

RUNNERS = ("native", "onnxruntime", "nn.LSTM", "nn.LSTM, onnxruntime")


@named
def exported_machine() -> str:
    """Say how the exported models were timed, and whether the machine was quiet."""
    data = results("export-cpu")
    assert data is not None
    others, cores = data["meta"]["others_used_cores"], data["meta"]["hardware"]["cores"]
    busy = f"Other programs used {others:.1f} of the machine's {cores} cores meanwhile"
    busy += ", so read ratios rather than times." if others > 0.15 else "."
    return paragraph(f"One thread; rivals take turns within one run. {busy}")


@named
def exported_layers() -> str:
    """Compare layers in onnxruntime with our own backend and with an exported LSTM."""
    found = rows("export-cpu", kind="layer")
    body = []
    for shape in unique(r["shape"] for r in found):
        for name in unique(r["name"] for r in found):
            times = {r["backend"]: r["ms"] for r in found if r["name"] == name and r["shape"] == shape}
            shown = [us(times[runner]) for runner in RUNNERS]
            body.append((name, size(shape), *shown, f"{times[RUNNERS[3]] / times[RUNNERS[1]]:.2f}×"))
    head = "layer | T×B×units | ours, µs: | ours in onnxruntime, µs: | `nn.LSTM`, µs: | LSTM in onnxruntime, µs: | "
    return table(head + "ours against LSTM, both in onnxruntime:", body)


@named
def exported_steps() -> str:
    """Compare a step of a language model in C with onnxruntime and torch."""
    body = (
        (
            "{:,} words, {} units, {} layers".format(*r["shape"]),
            r["backend"],
            us(r["ms"]),
            f"{r['ratio']:.1f}×" if "ratio" in r else "",
            f"{r['bytes']:,}",
            f"{r['runtime_bytes'] / 1e6:,.0f} MB" if r["runtime_bytes"] else "none",
        )
        for r in rows("export-cpu", kind="step")
    )
    return table("model | run by | step, µs: | speed against torch: | model, bytes: | runtime:", body)
