"""Race the matrix schedule against hand-written kernels on one GPU: flash-linear-attention and mamba-ssm.

    python benchmarks/matrix.py --json docs/results/matrix-h200.json [--models GLA …] [--shapes 0 1 2] [--wheels wheels]
                                [--workers 14]

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
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))
from cuda_timing import CudaClock

import rrnn
from rrnn.automata import Cell, exp, family, linear, log_sigmoid, one, parameter
from rrnn.ir import lower
from rrnn.ops import rational
from rrnn.zoo import get_cell

SHAPES = [(8, 2048, 16, 64, 64), (8, 2048, 8, 128, 128), (1, 32768, 16, 64, 64)]
"""Batch, steps, heads, states, units of a head."""
Named = dict[str, Tensor]


class Model(NamedTuple):
    """A cell, and the peer that computes the same: what the peer is called, and a function of named inputs, with time
    after batch, that returns its output (B, T, H, U)."""

    cell: Callable[[int], Cell]
    peer: str
    run: Callable[[Named, int], Tensor]


def _attention(name: str, states: int, loop: Any) -> Cell:
    h = family("h", states)
    k, q = linear("k", over=h, per="head"), linear("q", over=h, per="head")
    cell = Cell(name).initial("q0").loop("q0", one).arc("q0", h, k * linear("v")).loop(h, loop)
    return cell.read(h, states**-0.5 * q)


def _gate() -> Any:
    return exp(log_sigmoid(linear("alpha", per="head")))


def _chunk_gla(x: Named, states: int) -> Tensor:
    from fla.ops.gla import chunk_gla  # pyright: ignore[reportMissingImports]

    g = F.logsigmoid(x["alpha"].float() + x["alpha.bias"].float()) / 16
    return chunk_gla(x["q"], x["k"], x["v"], g, scale=states**-0.5)[0]


def _chunk_simple_gla(x: Named, states: int) -> Tensor:
    from fla.ops.simple_gla import chunk_simple_gla  # pyright: ignore[reportMissingImports]

    g = F.logsigmoid(x["alpha"].float()).squeeze(-1)
    return chunk_simple_gla(x["q"], x["k"], x["v"], g=g, scale=states**-0.5)[0]


def _chunk_retention(x: Named, states: int) -> Tensor:
    from fla.ops.retention import chunk_retention  # pyright: ignore[reportMissingImports]

    return chunk_retention(x["q"], x["k"], x["v"], scale=states**-0.5)[0]


def _chunk_linear_attn(x: Named, states: int) -> Tensor:
    from fla.ops.linear_attn import chunk_linear_attn  # pyright: ignore[reportMissingImports]

    return chunk_linear_attn(x["q"], x["k"], x["v"], scale=states**-0.5, normalize=False)[0]


def _mamba(x: Named, states: int) -> Tensor:
    from mamba_ssm.ops.triton.ssd_combined import (  # pyright: ignore[reportMissingImports]
        mamba_chunk_scan_combined,
    )

    a, bias, d = -x["A_log"].float().exp().flatten(), x["delta.bias"].flatten(), x["D"].flatten()
    more = {"chunk_size": 256, "D": d.float(), "dt_bias": bias.float(), "dt_softplus": True}
    return mamba_chunk_scan_combined(x["input"], x["delta"].squeeze(-1), a, x["B"], x["C"], **more)


def _sdpa(x: Named, states: int) -> Tensor:
    q, k, v = (x[name].transpose(1, 2) for name in "qkv")
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def _fixed() -> Any:
    return exp(parameter("log_gamma", per="head", learned=False))


MODELS = {
    "GLA": Model(lambda n: get_cell("GLA", states=n), "fla chunk_gla", _chunk_gla),
    "simple GLA": Model(
        lambda n: _attention("SimpleGLA", n, _gate()), "fla chunk_simple_gla", _chunk_simple_gla
    ),
    "retention": Model(
        lambda n: _attention("Retention", n, _fixed()), "fla chunk_retention", _chunk_retention
    ),
    "linear attention": Model(
        lambda n: _attention("LinearAttention", n, 1.0), "fla chunk_linear_attn", _chunk_linear_attn
    ),
    "Mamba-2": Model(lambda n: get_cell("Mamba-2", states=n), "mamba_chunk_scan_combined", _mamba),
    "attention": Model(lambda n: _attention("LinearAttention", n, 1.0), "torch causal attention", _sdpa),
}


class Case:
    """One model at one shape, ours and the peer's, on the same numbers."""

    def __init__(self, model: Model, shape: tuple[int, ...], dtype: torch.dtype, device: str) -> None:
        batch, steps, heads, states, self.width = shape
        self.model, self.states, self.heads, self.units = model, states, heads, heads * self.width
        program = lower(model.cell(states)).program.with_heads(heads, 1)
        wide = program.wide
        assert wide is not None
        torch.manual_seed(0)
        self.program = program
        self.x = torch.randn(steps, batch, program.columns(self.units), device=device).to(dtype)
        count = sum(wide.numbers(e, self.units) for e in wide.parameters)
        self.params = (torch.randn(1, max(count, 1), device=device) * 0.1)[:, :count].to(torch.float32)
        self.inp, self.learned = None, count > 0
        if program.uses_input:
            self.inp = torch.randn(steps, batch, self.units, device=device).to(dtype)
        self.named: Named = {}
        at = 0
        for name, extent in zip(program.projections, wide.projections, strict=True):
            n = wide.numbers(extent, self.units)
            own = self.x[..., at : at + n].transpose(0, 1).unflatten(-1, (wide.sharers(extent, heads), -1))
            self.named[name] = own.contiguous()
            at += n
        at = 0
        for name, extent in zip(program.parameters, wide.parameters, strict=True):
            n = wide.numbers(extent, self.units)
            if name == "log_gamma":
                gamma = 1 - 2.0 ** (-5 - torch.arange(heads, dtype=torch.float64, device=device))
                self.params[0, at : at + n] = gamma.log().float()
                self.learned = False
            self.named[name] = (
                self.params[0, at : at + n].unflatten(0, (wide.sharers(extent, heads), -1)).clone()
            )
            at += n
        if self.inp is not None:
            self.named["input"] = self.inp.transpose(0, 1).unflatten(-1, (heads, -1)).contiguous()
        self.out_grad = torch.randn(steps, batch, self.units, device=device).to(dtype)
        self.peer_grad = self.out_grad.transpose(0, 1).unflatten(-1, (heads, -1)).contiguous()
        for t in (self.x, self.inp, *self.named.values(), *([self.params] if self.learned else [])):
            if t is not None:
                t.requires_grad_()

    def ours(self) -> Tensor:
        return rational(self.x, [self.params], None, [self.program], inp=self.inp, widths=[self.units]).output

    def theirs(self) -> Tensor:
        return self.model.run(self.named, self.states)

    def our_gradients(self) -> list[Tensor]:
        wanted = [self.x, *([] if self.inp is None else [self.inp])]
        wanted += [self.params] if self.learned else []
        return list(torch.autograd.grad(self.ours(), wanted, self.out_grad))

    def their_gradients(self) -> dict[str, Tensor]:
        found = torch.autograd.grad(
            self.theirs(), list(self.named.values()), self.peer_grad, allow_unused=True
        )
        return {name: g for name, g in zip(self.named, found, strict=True) if g is not None}

    def differences(self) -> dict[str, float]:
        """Return the RMS ratio of outputs and of each projection's gradient, ours against the peer's; of outputs alone
        if the peer refuses to compute gradients."""
        wide = self.program.wide
        assert wide is not None
        with torch.no_grad():
            ours, theirs = self.ours(), self.theirs().flatten(2).transpose(0, 1)
        found = {"output": ratio(ours, theirs)}
        try:
            peers, at = self.their_gradients(), 0
        except RuntimeError as error:
            print("   the peer has no gradients:", str(error)[:160])
            return found
        gx, *more = self.our_gradients()
        for name, extent in zip(self.program.projections, wide.projections, strict=True):
            n = wide.numbers(extent, self.units)
            if name in peers:
                found[name] = ratio(gx[..., at : at + n], peers[name].flatten(2).transpose(0, 1))
            at += n
        if self.inp is not None:
            found["input"] = ratio(more[0], peers["input"].flatten(2).transpose(0, 1))
        return found


def ratio(a: Tensor, b: Tensor) -> float:
    """Return ‖a − b‖ / ‖b‖."""
    return float((a.double() - b.double()).norm() / b.double().norm())


def time_both(ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[float, float, str]:
    """Return milliseconds of both, both by CUDA graphs or both by plain calls, and which."""
    clock = CudaClock(20.0)
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
    """Measure first calls, then compile everything, in several processes; return the seconds of first calls."""
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
    began, more = time.monotonic(), ["--models", *options.models, "--shapes", *map(str, options.shapes)]
    shares = [f"{i}/{options.workers}" for i in range(options.workers)]
    workers = [subprocess.Popen([*command, *more, "--share", share]) for share in shares]
    for worker in workers:
        worker.wait()
    print(f"compiled in {time.monotonic() - began:.0f} s", flush=True)
    return found


def race(name: str, shape: tuple[int, ...], dtype: torch.dtype, first: float | None) -> list[dict[str, Any]]:
    """Return the rows of one model at one shape, forward and forward with backward."""
    model = MODELS[name]
    for tuner in [found for found in gc.get_objects() if type(found).__name__.endswith("Autotuner")]:
        tuner.cache.clear()  # peers' tuners do not tell all models and shapes apart
    case = Case(model, shape, dtype, "cuda")
    began = time.monotonic()
    differences = case.differences() if name != "attention" else {}
    print(
        f"{name} {shape}: first calls {time.monotonic() - began:.1f} s, differences",
        {k: f"{v:.1e}" for k, v in differences.items()},
    )
    worst = max(differences.values(), default=0.0)
    if not worst < 0.03:
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
        ms, peer_ms, how = time_both(ours, theirs)
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
    parser.add_argument("--share", help=argparse.SUPPRESS)
    parser.add_argument("--first", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path[:0] = [str(Path(p).resolve()) for p in glob.glob(f"{options.wheels}/*.whl")]
    sys.path.insert(0, str(Path(options.wheels, "mamba").resolve()))
    rows: list[dict[str, Any]] = []
    if options.first or options.share:
        with rrnn.use_backend("matrix"):
            if options.first:
                print(first_call(options.first))
            else:
                i, n = map(int, options.share.split("/"))
                compile_share(options.models, options.shapes, (i, n))
        return
    first = prepare(options) if options.workers else {}
    tune(None)
    with rrnn.use_backend("matrix"):
        for index in options.shapes:
            for name in options.models:
                try:
                    rows += race(name, SHAPES[index], torch.bfloat16, None if index else first.get(name))
                except Exception:
                    traceback.print_exc(limit=4)
                if options.json is not None:
                    options.json.write_text(json.dumps({"meta": meta(), "rows": rows}, indent=1) + "\n")
    print(json.dumps([{k: r[k] for k in ("model", "shape", "pass", "ms", "peer_ms")} for r in rows]))


if __name__ == "__main__":
    main()
