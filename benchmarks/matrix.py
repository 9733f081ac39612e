"""Race the matrix schedule against hand-written kernels on one GPU: flash-linear-attention and mamba-ssm.

    python benchmarks/matrix.py --json docs/results/matrix-h200.json [--models GLA …] [--shapes 0 1 2] [--wheels wheels]
                                [--workers 14 | --first-calls] [--resume]

`--wheels` names a folder that holds the peers: wheels of fla-core and einops (pip download --no-deps), and mamba_ssm's
Triton files in mamba/. Peers tune themselves, over all of their configurations: so many processes compile these first,
each a share, and the race then finds them in Triton's cache on disk. Only the measurements of a configuration are
shortened, to 5 ms. Ours is first compiled with empty caches, all models at a time in processes of their own, which
gives the time of a first call (forward and backward, without imports). Before anything is timed, outputs and gradients
of both are compared on the same numbers. Times are medians of CUDA graph replays, or of plain calls where one of the
two cannot be captured. What a peer is given is computed outside its time, but for the logarithm of the gate, which ours
computes too.
"""

from __future__ import annotations

import argparse
import gc
import glob
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))
from cuda_timing import Clock, CudaClock
from matrix_cases import MODELS, SHAPES, Case

import rrnn


def time_both(
    ours: Callable[[], object], theirs: Callable[[], object], clock: Clock
) -> tuple[float, float, str]:
    """Return milliseconds of both, both by CUDA graphs or both by plain calls, and which."""
    try:
        return clock.graph(ours), clock.graph(theirs), "graph"
    except Exception as error:
        print("   no graph:", repr(error)[:120])
        torch.cuda.synchronize()
        return clock.plain(ours), clock.plain(theirs), "plain"


def tune(share: tuple[int, int] | None) -> None:
    """Change how Triton's tuner measures: each configuration for 5 ms; or, for one of several processes that compile,
    its share of the configurations once, and the others not at all."""
    from triton.runtime.autotuner import Autotuner
    from triton.testing import do_bench

    original: Callable[..., Any] = Autotuner._bench

    def once(run: Callable[[], object], **_: Any) -> list[float]:
        run()
        return [1.0] * 3

    def bench(self: Any, *args: Any, config: Any, **meta: Any) -> Any:
        if share is not None and zlib.crc32(str(config).encode()) % share[1] != share[0]:
            return [math.inf] * 3
        self.__dict__["do_bench"] = once if share is not None else partial(do_bench, warmup=2, rep=5)
        return original(self, *args, config=config, **meta)

    Autotuner._bench = bench


def compile_share(models: list[str], shapes: list[int], share: tuple[int, int]) -> None:
    """Compile a share of what the race will run, by running it."""
    tune(share)
    for index in shapes:
        for number, name in enumerate(models):
            case = Case(MODELS[name], SHAPES[index], torch.bfloat16, "cuda")
            try:
                if number % share[1] == share[0] % len(models):
                    with torch.no_grad():
                        case.ours()
                    case.our_gradients()
                case.their_gradients()
            except Exception as error:
                print(name, index, repr(error)[:200])


def first_call(name: str) -> float:
    """Return the seconds of a first call, forward and backward; caches are empty if this process was started so."""
    case = Case(MODELS[name], SHAPES[0], torch.bfloat16, "cuda")
    torch.cuda.synchronize()
    began = time.monotonic()
    case.our_gradients()
    torch.cuda.synchronize()
    return time.monotonic() - began


def prepare(options: argparse.Namespace) -> dict[str, float]:
    """Measure first calls, then compile everything in several processes, if there are workers; return the seconds of
    first calls."""
    command = [sys.executable, __file__, "--wheels", options.wheels]
    runs = {}
    with tempfile.TemporaryDirectory() as folder:
        for i, name in enumerate(options.models):
            own = {"TRITON_CACHE_DIR": f"{folder}/{i}", "RRNN_CACHE": f"{folder}/{i}"}
            runs[name] = subprocess.Popen(
                [*command, "--first", name], env=os.environ | own, stdout=subprocess.PIPE, text=True
            )
        told = {name: run.communicate()[0].strip().splitlines() for name, run in runs.items()}
    found = {name: float(lines[-1]) for name, lines in told.items() if lines}
    print("first calls, s:", {k: round(v, 1) for k, v in found.items()}, flush=True)
    if not options.workers:
        return found
    began, more = time.monotonic(), ["--models", *options.models, "--shapes", *map(str, options.shapes)]
    shares = [f"{i}/{options.workers}" for i in range(options.workers)]
    workers = [subprocess.Popen([*command, *more, "--share", share]) for share in shares]
    for worker in workers:
        worker.wait()
    print(f"compiled in {time.monotonic() - began:.0f} s", flush=True)
    return found


def race(
    name: str,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    first: float | None,
    device: str = "cuda",
    clock: Clock | None = None,
) -> list[dict[str, Any]]:
    """Return the rows of one model at one shape, forward and forward with backward."""
    model = MODELS[name]
    for tuner in [found for found in gc.get_objects() if type(found).__name__.endswith("Autotuner")]:
        tuner.cache.clear()  # peers' tuners do not tell all models and shapes apart
    case = Case(model, shape, dtype, device)
    began = time.monotonic()
    differences = case.differences() if name != "attention" else {}
    print(
        f"{name} {shape}: first calls {time.monotonic() - began:.1f} s, differences",
        {k: f"{v:.1e}" for k, v in differences.items()},
    )
    worst = max(differences.values(), default=0.0)
    if not all(difference < 0.03 for difference in differences.values()):  # so that nan is not, either
        print("   DIFFERENT: not timed")
        return []

    def without_graph(run: Callable[[], Tensor]) -> Callable[[], object]:
        def call() -> object:
            with torch.no_grad():
                return run()

        return call

    rows = []
    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "forward": (without_graph(case.ours), without_graph(case.theirs)),
        "forward_backward": (case.our_gradients, case.their_gradients),
    }
    if len(differences) == 1:
        del pairs["forward_backward"]
    for which, (ours, theirs) in pairs.items():
        ms, peer_ms, how = time_both(ours, theirs, clock or CudaClock(20.0))
        rows.append(
            {
                "model": name,
                "peer": model.peer,
                "shape": list(shape),
                "dtype": str(dtype).removeprefix("torch."),
                "pass": which,
                "ms": ms,
                "peer_ms": peer_ms,
                "ratio": peer_ms / ms,
                "timed": how,
                "worst_difference": worst,
                "first_call_s": first,
            }
        )
        print(f"   {which}: {ms:.3f} ms, peer {peer_ms:.3f} ms, {peer_ms / ms:.2f} times ({how})", flush=True)
    return rows


def kept_rows(path: Path | None) -> list[dict[str, Any]]:
    """Return the rows that an earlier run of this commit has written."""
    if path is None or not path.exists():
        return []
    found = json.loads(path.read_text())
    return found["rows"] if found["meta"]["commit"] == os.environ.get("RRNN_COMMIT", "") else []


def meta() -> dict[str, Any]:
    """Return what was run, and on what."""
    import triton

    return {
        "command": " ".join(["python", *sys.argv]),
        "commit": os.environ.get("RRNN_COMMIT", ""),
        "versions": {"rrnn": rrnn.__version__, "torch": torch.__version__, "triton": triton.__version__},
        "device": {"gpu": torch.cuda.get_device_name()},
        "peers": "fla-core 0.6.0, mamba-ssm 2.3.2.post1; tuned anew for every row, each configuration for 5 ms",
        "first_call_s": "on empty caches, forward and backward, all models at a time in processes of their own",
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--shapes", nargs="*", type=int, default=range(len(SHAPES)))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--wheels", default="wheels")
    parser.add_argument("--workers", type=int, default=0, help="processes that compile beforehand")
    parser.add_argument(
        "--first-calls", action="store_true", help="measure first calls, also without workers"
    )
    parser.add_argument("--resume", action="store_true", help="keep the rows of this commit that --json has")
    parser.add_argument("--share", help=argparse.SUPPRESS)
    parser.add_argument("--first", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path[:0] = [str(Path(p).resolve()) for p in glob.glob(f"{options.wheels}/*.whl")]
    sys.path.insert(0, str(Path(options.wheels, "mamba").resolve()))
    if options.first or options.share:
        with rrnn.use_backend("matrix"):
            if options.first:
                print(first_call(options.first))
            else:
                i, n = map(int, options.share.split("/"))
                compile_share(options.models, options.shapes, (i, n))
        return
    rows = kept_rows(options.json) if options.resume else []
    done = {(row["model"], *row["shape"]) for row in rows}
    left = [
        (index, name)
        for index in options.shapes
        for name in options.models
        if (name, *SHAPES[index]) not in done
    ]
    options.models = [name for name in options.models if name in {name for _, name in left}]
    options.shapes = sorted({index for index, _ in left})
    first = prepare(options) if (options.workers or options.first_calls) and left else {}
    tune(None)
    with rrnn.use_backend("matrix"):
        for index, name in left:
            try:
                rows += race(name, SHAPES[index], torch.bfloat16, None if index else first.get(name))
            except Exception:
                traceback.print_exc(limit=4)
            if options.json is not None:
                part = options.json.with_suffix(
                    ".part"
                )  # whoever ends this process leaves a whole file behind
                part.write_text(json.dumps({"meta": meta(), "rows": rows}, indent=1) + "\n")
                part.replace(options.json)
    print(json.dumps([{k: r[k] for k in ("model", "shape", "pass", "ms", "peer_ms")} for r in rows]))


if __name__ == "__main__":
    main()
