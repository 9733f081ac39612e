"""Race Mamba's recurrence against mamba-ssm's selective scan, whose CUDA sources nvcc compiles here.

    python benchmarks/selective_scan.py --sources mamba/csrc/selective_scan [--json FILE]

What no call here reaches of these sources (a gate z, complex numbers, fixed B and C) is left out, which takes minutes
off compiling. Both rivals have softplus, its bias, D and every gradient. mamba-ssm gets its own layout, time last and
contiguous. Outputs and gradients are compared first. `ms` is a replay of a CUDA graph; the two take turns, and each has
the best of its turns.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from cuda_timing import hardware
from cuda_wide import MODELS, Shape, WideCase
from results import Row, print_table, write
from torch import Tensor

NAME = "selective_scan_cuda"
SOURCES = ["selective_scan.cpp", "selective_scan_fwd_bf16.cu", "selective_scan_bwd_bf16_real.cu"]
"""The sources of bfloat16 and real numbers; what they leave out is never called."""
FLAGS = ["-O3", "-std=c++17", "-Xcompiler", "-fPIC", "--expt-relaxed-constexpr", "--expt-extended-lambda"]
FLAGS += ["--use_fast_math", "-gencode", "arch=compute_90,code=sm_90", f"-DTORCH_EXTENSION_NAME={NAME}"]
FLAGS += [f"-U__CUDA_NO_{kind}__" for kind in ("HALF_OPERATORS", "HALF_CONVERSIONS")]
FLAGS += [
    f"-U__CUDA_NO_{kind}__" for kind in ("BFLOAT16_OPERATORS", "BFLOAT16_CONVERSIONS", "BFLOAT162_OPERATORS")
]
"""mamba-ssm's own flags."""


FIXED = {"is_variable_B": True, "is_variable_C": True, "delta_softplus": True, "z_ptr != nullptr": False}
"""Conditions of the sources' switches that every call here meets, or none."""


def trimmed(sources: Path, folder: Path) -> Path:
    """Return a copy of the sources without the kernels that no call here reaches."""
    copy = folder / "sources"
    shutil.copytree(sources, copy, dirs_exist_ok=True)
    for path in copy.iterdir():
        text = path.read_text()
        for condition, value in FIXED.items():
            name = "YES" if value else "NO"
            text = re.sub(rf"BOOL_SWITCH\(params\.{re.escape(condition)} *,", f"{name}_SWITCH(", text)
        text = re.sub(r"template void selective_scan_fwd_cuda<at::BFloat16, complex_t>.*", "", text)
        if path.name == "static_switch.h":
            for name, value in (("YES", "true"), ("NO", "false")):
                body = f"[&] {{ constexpr bool N = {value}; return __VA_ARGS__(); }}()"
                text += f"\n#define {name}_SWITCH(N, ...) {body}\n"
        path.write_text(text)
    return copy


def build(sources: Path, folder: Path) -> Any:
    """Compile, unless the folder holds the library, and import the rival."""
    library = folder / f"{NAME}.so"
    if not library.exists():
        _compile(trimmed(sources, folder), folder, library)
    sys.setdlopenflags(os.RTLD_LAZY)
    spec = importlib.util.spec_from_file_location(NAME, library)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compile(sources: Path, folder: Path, library: Path) -> None:
    from torch.utils.cpp_extension import CUDA_HOME, include_paths, library_paths

    include = [f"-I{path}" for path in (*include_paths("cuda"), sysconfig.get_paths()["include"], sources)]
    nvcc = str(Path(CUDA_HOME or "/usr/local/cuda", "bin/nvcc"))
    objects = [str(folder / f"{source}.o") for source in SOURCES]
    started = [
        subprocess.Popen([nvcc, *FLAGS, *include, "-c", str(sources / source), "-o", made])
        for source, made in zip(SOURCES, objects, strict=True)
    ]
    if any(process.wait() for process in started):
        raise RuntimeError("mamba-ssm's sources do not compile here")
    paths = [flag for path in library_paths("cuda") for flag in (f"-L{path}", f"-Wl,-rpath,{path}")]
    needs = ["-lc10", "-lc10_cuda", "-ltorch_cpu", "-ltorch_cuda", "-ltorch", "-ltorch_python"]
    subprocess.run(["g++", "-shared", "-Wl,-z,lazy", *objects, *paths, *needs, "-o", library], check=True)


class Rival:
    """The selective scan on the numbers of a case."""

    def __init__(self, module: Any, case: WideCase) -> None:
        self.module, self.case = module, case
        units, n = case.shape.units, case.shape.states
        delta, b, c = case.x.detach().split([units, n, n], -1)
        bias, a_log, d = case.params[0][0].detach().split([units, n * units, units])

        def last(t: Tensor) -> Tensor:
            return t.permute(1, 2, 0).contiguous()

        self.u, self.delta, self.grad = last(case.inp.detach()), last(delta), last(case.grad)
        self.a = -torch.exp(a_log.view(n, units).T.contiguous())
        self.b, self.c = (last(t).unsqueeze(1) for t in (b, c))
        self.d, self.bias = d.contiguous(), bias.contiguous()

    def forward(self) -> list[Tensor]:
        return self.module.fwd(self.u, self.delta, self.a, self.b, self.c, self.d, None, self.bias, True)

    def both(self) -> list[Tensor]:
        out, states = self.forward()
        given = (self.u, self.delta, self.a, self.b, self.c, self.d, None, self.bias)
        found = self.module.bwd(*given, self.grad, states, None, None, True, False)
        return [out, *found]

    def results(self) -> dict[str, Tensor]:
        """Return outputs and gradients, time first."""
        out, du, ddelta, da, db, dc, dd, dbias = self.both()[:8]
        first = {"output": out, "input": du, "delta": ddelta, "B": db[:, 0], "C": dc[:, 0]}
        found = {name: t.permute(2, 0, 1) for name, t in first.items()}
        return found | {"A_log": (da * self.a).T, "D": dd, "bias": dbias}


def ours(case: WideCase) -> dict[str, Tensor]:
    units, n = case.shape.units, case.shape.states
    gx, gparams, gi = case.both()
    delta, b, c = gx.split([units, n, n], -1)
    bias, a_log, d = gparams.flatten().split([units, n * units, units])
    found = {"output": case.forward().detach(), "input": gi, "delta": delta, "B": b, "C": c}
    return found | {"A_log": a_log.view(n, units), "D": d, "bias": bias}


def differences(case: WideCase, rival: Rival) -> dict[str, float]:
    """Return the relative differences in the norm; raise an AssertionError if there is a large one."""
    mine, theirs = ours(case), rival.results()
    found = {
        name: float((mine[name].float() - theirs[name].float()).norm() / theirs[name].float().norm())
        for name in mine
    }
    if not max(found.values()) < 0.02:
        raise AssertionError(f"the rivals differ: {found}")
    return found


def _graph(run: Callable[[], object]) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def in_turns(runs: dict[str, Callable[[], object]], rounds: int = 15, calls: int = 5) -> dict[str, float]:
    """Return the best time of each, in ms."""
    graphs = {name: _graph(run) for name, run in runs.items()}
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, graph in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(calls):
                graph.replay()
            end.record()
            torch.cuda.synchronize()
            best[name] = min(best[name], begin.elapsed_time(end) / calls)
    return best


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sources", type=Path, required=True, help="mamba-ssm's csrc/selective_scan")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--folder", type=Path, help="where the compiled library stays")
    parser.add_argument("--build", action="store_true", help="only compile")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        folder, began = (options.folder or Path(folder)).resolve(), time.perf_counter()
        folder.mkdir(parents=True, exist_ok=True)
        module = build(options.sources.resolve(), folder)
        print(f"built in {time.perf_counter() - began:.0f} s", flush=True)
        if options.build:
            return
        shape, rows = MODELS["Mamba"][0], list[Row]()
        small = WideCase("Mamba", Shape(200, 3, 256, shape.states), torch.bfloat16)
        errors = differences(small, Rival(module, small))
        case = WideCase("Mamba", shape, torch.bfloat16)
        rival = Rival(module, case)
        for name in ("forward", "both"):
            best = in_turns({"ours": getattr(case, name), "rival": getattr(rival, name)})
            row: Row = {"name": "Mamba", "baseline": "mamba-ssm", "shape": list(shape), "dtype": "bfloat16"}
            row |= {"pass": {"both": "forward_backward"}.get(name, name), "ms": best["ours"]}
            rows.append(
                row
                | {"rival_ms": best["rival"], "ratio": best["rival"] / best["ours"], "differences": errors}
            )
    table = [["pass", "ms", "mamba-ssm, ms", "ratio"]]
    table += [[r["pass"], f"{r['ms']:.3f}", f"{r['rival_ms']:.3f}", f"{r['ratio']:.2f}"] for r in rows]
    print_table(table)
    if options.json:
        write(options.json, rows, device=hardware())


if __name__ == "__main__":
    main()
