"""Compile kernels for a GPU that is not there, and run none of them: what the interpreter accepts may not compile.

    python tests/compile_gpu.py [--models GLA Mamba F] [--backends matrix triton] [--states 16 64] [--dtypes bfloat16]

Layers run forward and backward on CPU tensors, once for each combination and with packed sequences, and each kernel
that they launch is compiled for an H200 instead; results mean nothing. It takes the triton that Python finds, so
PYTHONPATH can point to the version of another machine (`pip download --no-deps triton==3.6.0`, unpacked).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from itertools import product
from typing import Any
from unittest import mock

os.environ.pop("TRITON_INTERPRET", None)  # before triton is imported

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

import rrnn
from rrnn.backends.matrix import backend as matrix
from rrnn.backends.triton import Triton
from rrnn.ir import lower

MODELS = ["GLA", "Mamba-2", "RetNet", "HGRN2", "linear-attention", "Mamba", "S4D", "Mamba-3", "LRU", "F"]


class AbsentGpu:
    """As much of Triton's driver as compiling asks for."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0


def compile_layer(
    backend: str, model: str, states: int, dtype: torch.dtype, packed: bool, kernels: list[Any]
) -> None:
    """Compile what a layer launches: with many steps of few sequences, which are cut, or with packed sequences."""
    try:
        cell = rrnn.get_cell(model, states=states)
    except rrnn.RRNNError:  # this model has a number of its own
        cell = rrnn.get_cell(model)
    heads = 4 if lower(cell).program.wide is not None else 1
    rnn = rrnn.RationalRNN(cell, 64 * heads, 64 * heads, heads=heads, dtype=dtype)
    x = torch.zeros(2048, 1, 64 * heads, dtype=dtype, requires_grad=True)
    with rrnn.use_backend(backend):
        if packed:
            out, _ = rnn(x[:, 0], cu_seqlens=torch.tensor([0, 7, 7, 130, len(x)]))
        else:
            out, _ = rnn(x)
        out.float().sum().backward()
    if not kernels:
        raise rrnn.RRNNError("nothing was launched")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--backends", nargs="*", default=["matrix", "triton"])
    parser.add_argument("--states", nargs="*", type=int, default=[16, 64])
    parser.add_argument("--dtypes", nargs="*", default=["bfloat16", "float32"])
    options = parser.parse_args()
    driver.set_active(AbsentGpu())  # pyright: ignore[reportArgumentType]
    run, kernels, failed = JITFunction.run, list[Any](), 0

    def compile_only(self: Any, *args: Any, warmup: bool = True, **more: Any) -> None:
        kernels.append(run(self, *args, warmup=True, **more))

    here = mock.patch.object(Triton, "why_not", lambda *_: None)
    products = mock.patch.object(matrix, "has_kernels", lambda *_: True)
    print("triton", triton.__version__)
    with here, products, mock.patch.object(JITFunction, "run", compile_only):
        every = product(options.backends, options.models, options.states, options.dtypes, (False, True))
        for backend, model, states, dtype, packed in every:
            kernels.clear()
            began, how = time.monotonic(), "packed" if packed else "plain"
            try:
                compile_layer(backend, model, states, getattr(torch, dtype), packed, kernels)
                shared = max(kernel.metadata.shared for kernel in kernels if kernel is not None)
                told = f"{len(kernels)} launches, {shared} bytes of shared memory"
            except rrnn.RRNNError as error:
                told = f"not compiled: {error}"
            except Exception as error:
                failed, told = failed + 1, f"FAILED: {str(error)[-400:]}"
            print(backend, model, states, dtype, how, told, f"{time.monotonic() - began:.0f} s", flush=True)
    print(f"{failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
