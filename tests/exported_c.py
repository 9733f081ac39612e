"""Compile exported C files, and compare layers with them, step by step."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rrnn.exporters import export
from rrnn.nn import RationalRNN

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror", "-O2"]


def compiled(path: Path, compiler: list[str] | None = None) -> ctypes.CDLL:
    """Compile a file as a library with the strictest warnings, and load it."""
    library = path.with_suffix(".so")
    command = [*(compiler or ["cc"]), *STRICT, "-fPIC", "-shared", str(path), "-o", str(library), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return ctypes.CDLL(str(library))


class Stepper:
    """A compiled model: the state as bytes, and its two functions."""

    def __init__(self, path: Path, outputs: int) -> None:
        self.library, self.outputs = compiled(path), outputs
        header = path.with_suffix(".h").read_text()
        fields = re.findall(r"    float \w+\[(\d+)\];", header)
        self.state = (ctypes.c_float * sum(map(int, fields)))(*([7.0] * sum(map(int, fields))))
        self.name = path.stem
        self.call("init", self.state)

    def call(self, function: str, *args: Any) -> int:
        return getattr(self.library, f"{self.name}_{function}")(*args)

    def step(self, given: int | np.ndarray) -> np.ndarray:
        out = np.full(self.outputs, np.nan, np.float32)
        given = given if isinstance(given, int) else given.ctypes.data_as(ctypes.c_void_p)  # pyright: ignore[reportAssignmentType]
        assert self.call("step", self.state, given, out.ctypes.data_as(ctypes.c_void_p)) == 0
        return out


def check_layer(net: RationalRNN, folder: Path, tolerance: float = 1e-5) -> None:
    """Compare the C file of a layer, step by step, with the layer."""
    path, _ = export(net, folder / "net.c")
    model = Stepper(path, net.output_size)
    x = torch.randn(5, 1, net.input_size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = net(x)[0][:, 0].numpy()
    for t in range(5):
        np.testing.assert_allclose(
            model.step(x[t, 0].numpy().copy()), expected[t], rtol=tolerance, atol=tolerance
        )
    model.call("init", model.state)  # begins anew
    np.testing.assert_allclose(
        model.step(x[0, 0].numpy().copy()), expected[0], rtol=tolerance, atol=tolerance
    )
