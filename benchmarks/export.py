"""How fast exported models run: layers in onnxruntime, and one step of a language model in C.

    python benchmarks/export.py [--rounds 20] [--wait 60] [--json FILE]

Layers: forward passes of our own backend, of the same layer exported to ONNX, and of an `nn.LSTM` of equal hidden size,
in torch and exported. Steps: a batch of one through a language model, from word id to scores, as C, in onnxruntime and
in torch, with the bytes of what must be shipped. Everything runs on one thread, and rivals take turns.
"""

from __future__ import annotations

import argparse
import ctypes
import io
import re
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from quiet import Watch, wait_until_quiet
from results import Row, best_of, print_table, write
from torch import nn

from rrnn import RationalRNN, export, initial_states
from rrnn.backends import chosen, resolve
from rrnn.tasks.lm.model import LanguageModel
from rrnn.zoo import get_cell

CELLS = ("B", "B-max-plus", "F", "SRU", "QRNN2")
SHAPES = [(35, 16, 256), (256, 1, 256)]
MODELS = [(2000, 128, 2), (10000, 256, 2)]
FLAGS = ["-O3", "-march=native", "-std=c99", "-fPIC", "-shared"]


def session(path: Path) -> onnxruntime.InferenceSession:
    """Return a session on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def exported_lstm(lstm: nn.LSTM, x: torch.Tensor, path: Path) -> onnxruntime.InferenceSession:
    """Return a session of torch's own export of an LSTM, which is ONNX's LSTM operator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(lstm, (x,), str(path), dynamo=False, input_names=["input"])
    return session(path)


def layer_rows(shape: tuple[int, int, int], cells: tuple[str, ...], rounds: int, folder: Path) -> list[Row]:
    """Time the forward pass of layers."""
    steps, batch, units = shape
    x = torch.randn(steps, batch, units)
    lstm = nn.LSTM(units, units).eval()
    lstm_session, found = exported_lstm(lstm, x, folder / "lstm.onnx"), []
    for name in cells:
        layer = RationalRNN(get_cell(name), units, units).eval()
        (path,) = export(layer, folder / "layer.onnx")
        run = session(path)
        feeds = {"input": x.numpy(), **initial_states(run, batch)}
        with torch.inference_mode():
            (out, *_), expected = run.run(None, feeds), layer(x)[0].numpy()
            np.testing.assert_allclose(np.asarray(out), expected, rtol=1e-4, atol=1e-4)
            given: dict[str, Callable[[], object]] = {
                "ours": lambda layer=layer: layer(x),
                "onnxruntime": lambda run=run, feeds=feeds: run.run(None, feeds),
                "nn.LSTM": lambda: lstm(x),
                "nn.LSTM, onnxruntime": lambda: lstm_session.run(None, {"input": x.numpy()}),
            }
            times = best_of(given, rounds)
        programs = [program for each in layer.layers for program in each.programs]  # pyright: ignore[reportGeneralTypeIssues, reportAttributeAccessIssue]
        backend = resolve(chosen(), x.device, x.dtype, programs).name
        row = {"name": name, "cell": name, "semiring": get_cell(name).semiring.name, "shape": list(shape)}
        row |= {"dtype": "float32", "pass": "forward", "kind": "layer"}
        for rival, ms in times.items():
            more = {} if rival == "ours" else {"baseline": "ours", "ratio": times["ours"] / ms}
            found.append(row | {"backend": backend if rival == "ours" else rival, "ms": ms} | more)
    return found


def package_bytes(name: str) -> int:
    """Return the size of an installed package's folder."""
    spec = find_spec(name)
    assert spec is not None and spec.submodule_search_locations
    files = Path(spec.submodule_search_locations[0]).rglob("*")
    return sum(f.stat().st_size for f in files if f.is_file() and "__pycache__" not in f.parts)


def compile_c(path: Path) -> Path:
    """Return the shared library of an exported C file."""
    library = path.with_suffix(".so")
    compiler = shutil.which("gcc") or shutil.which("cc") or "cc"
    subprocess.run([compiler, *FLAGS, str(path), "-o", str(library), "-s", "-lm"], check=True)
    return library


def step_rows(size: tuple[int, int, int], rounds: int, folder: Path) -> list[Row]:
    """Time one step of a language model of F, and weigh what must be shipped."""
    words, units, layers = size
    torch.manual_seed(0)
    model = LanguageModel(words, units, layers, cell="F").eval()
    source, header = export(model, folder / f"lm_{words}.c", name="lm")  # a library per path is loaded once
    (graph,) = export(model, folder / f"lm_{words}.onnx")
    library = compile_c(source)
    code: Any = ctypes.CDLL(str(library))
    floats = sum(map(int, re.findall(r"    float \w+\[(\d+)\];", header.read_text())))
    state, scores = (ctypes.c_float * floats)(), np.zeros(words, np.float32)
    place = scores.ctypes.data_as(ctypes.c_void_p)
    run = session(graph)
    first, ids = initial_states(run), np.array([[3]])
    with torch.inference_mode():
        kept = model.rnn.init_state(1)
        expected, _ = model.step(torch.tensor([3]), kept)
        code.lm_init(state)
        code.lm_step(state, 3, place)
        np.testing.assert_allclose(scores, expected[0].numpy(), rtol=1e-5, atol=1e-5)
        word, many = torch.tensor([3]), range(20)
        given: dict[str, Callable[[], object]] = {
            "C": lambda: [code.lm_step(state, 3, place) for _ in many],
            "onnxruntime": lambda: [run.run(None, {"ids": ids, **first}) for _ in many],
            "torch": lambda: [model.step(word, kept) for _ in many],
        }
        times = {rival: ms / len(many) for rival, ms in best_of(given, rounds).items()}
    weights = io.BytesIO()
    torch.save(model.state_dict(), weights)
    shipped = {
        "C": (library.stat().st_size, 0),
        "onnxruntime": (graph.stat().st_size, package_bytes("onnxruntime")),
        "torch": (weights.getbuffer().nbytes, package_bytes("torch")),
    }
    row = {"name": "F+o", "cell": "F", "semiring": "real", "shape": [words, units, layers]}
    row |= {"dtype": "float32", "pass": "forward", "kind": "step"}
    return [
        row
        | {"backend": rival, "ms": ms, "bytes": shipped[rival][0], "runtime_bytes": shipped[rival][1]}
        | ({} if rival == "torch" else {"baseline": "torch", "ratio": times["torch"] / ms})
        for rival, ms in times.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--wait", type=float, default=0.0, help="seconds to wait for a quiet machine")
    parser.add_argument("--cells", nargs="+", default=CELLS)
    parser.add_argument("--shapes", nargs="+", default=SHAPES, type=lambda s: tuple(map(int, s.split(","))))
    parser.add_argument("--models", nargs="+", default=MODELS, type=lambda s: tuple(map(int, s.split(","))))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    wait_until_quiet(options.wait)
    rows: list[Row] = []
    with Watch() as watch, tempfile.TemporaryDirectory() as place:
        for shape in options.shapes:
            rows += layer_rows(shape, tuple(options.cells), options.rounds, Path(place))
        for size in options.models:
            rows += step_rows(size, options.rounds, Path(place))
    head = ["model", "shape", "run by", "ms", "ratio", "bytes"]
    body = [
        [
            r["name"],
            "×".join(map(str, r["shape"])),
            r["backend"],
            f"{r['ms']:.4f}",
            f"{r['ratio']:.2f}" if "ratio" in r else "",
            f"{r.get('bytes', '')}",
        ]
        for r in rows
    ]
    print_table([head, *body])
    print(watch.note)
    if options.json:
        versions = {"onnxruntime": onnxruntime.__version__}
        write(options.json, rows, others_used_cores=round(watch.others, 3), also=versions)


if __name__ == "__main__":
    main()
