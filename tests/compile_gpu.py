"""Compile kernels for a GPU that is not there, and run none of them: what the interpreter accepts may not compile.

    python tests/compile_gpu.py [--models GLA Mamba F] [--backends matrix triton] [--states 16 64] [--dtypes bfloat16]
    python tests/compile_gpu.py --tests tests/backends/matrix [other arguments of pytest]
    python tests/compile_gpu.py --pack kernels.tar.xz --script benchmarks/matrix.py --wheels wheels [other arguments]

Layers run forward and backward on CPU tensors, once for each combination and with packed sequences, or the tests run
that need a GPU, or a benchmark. Each kernel that is launched is compiled for an H200 instead, peers' kernels in each of
their configurations; results mean nothing. It takes the triton that Python finds, so PYTHONPATH can point to the
version of another machine (`pip download --no-deps triton==3.6.0`, unpacked).

--pack writes what is in Triton's cache into an archive, for another machine: unpacked there in /tmp/triton, with
TRITON_CACHE_DIR=/tmp/triton, tests and benchmarks find their kernels, and spend seconds where compiling takes minutes.
If that machine has another build of the same version, tests find them if RRNN_TRITON_KEY is the same word on both, and
benchmarks if `triton_key` of its triton/runtime/cache.py returns that word. An empty TRITON_CACHE_DIR here keeps the
archive small.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import runpy
import struct
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

os.environ["TRITON_INTERPRET"] = "0"  # before triton is imported; conftest.py would set it to 1

import torch
import triton
from torch.overrides import TorchFunctionMode
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction

import rrnn
from rrnn.backends.matrix import backend as matrix
from rrnn.backends.triton import Triton, pairs
from rrnn.backends.triton.plan import H200
from rrnn.ir import lower

MODELS = ["GLA", "Mamba-2", "RetNet", "HGRN2", "linear-attention", "Mamba", "S4D", "Mamba-3", "LRU", "F"]
PLACE = "/tmp/triton"
"""Where the other machine unpacks an archive: Triton's cache has whole paths."""


def once(run: Any, *_: Any, quantiles: Any = None, **__: Any) -> Any:
    """Call something once, in place of Triton's measurements."""
    run()
    return [1.0] * 3 if quantiles else 1.0


class AbsentGpu:
    """As much of Triton's driver as compiling asks for."""

    utils = SimpleNamespace(get_device_properties=lambda device: {"max_shared_mem": H200.shared_per_block})

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_benchmarker(self) -> Any:
        return once


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


class OnCpu(TorchFunctionMode):
    """Makes on the CPU what tests make on a GPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def here(value: Any) -> Any:
            return "cpu" if isinstance(value, str | torch.device) and str(value).startswith("cuda") else value

        return func(*map(here, args), **{key: here(value) for key, value in (kwargs or {}).items()})


@contextmanager
def no_gpu_needed() -> Iterator[None]:
    """Let tests that need a GPU run on CPU tensors, and go on where they compare results."""
    answers: dict[str, Any] = {"set_sync_debug_mode": None, "synchronize": None, "memory_allocated": 0}
    answers |= {"is_available": True, "device_count": 1, "current_device": 0, "device": nullcontext()}
    answers |= {"get_device_name": "NVIDIA H200", "get_device_capability": (9, 0)}
    answers["get_device_properties"] = SimpleNamespace(multi_processor_count=H200.multiprocessors)
    answers |= {"reset_peak_memory_stats": None, "max_memory_allocated": 0}
    with ExitStack() as patches, OnCpu():
        for name, value in answers.items():
            patches.enter_context(mock.patch.object(torch.cuda, name, lambda *_, value=value: value))
        for name in ("do_bench", "do_bench_cudagraph"):
            patches.enter_context(mock.patch.object(triton.testing, name, once))
        for owner in (torch.Tensor, torch.nn.Module):
            patches.enter_context(mock.patch.object(owner, "cuda", lambda self, *_: self))
        patches.enter_context(mock.patch.object(torch, "equal", lambda *_: True))
        yield


def compile_tests(arguments: list[str], kernels: list[Any], errors: list[str]) -> int:
    """Compile what the GPU tests launch that these arguments of pytest select, and print the errors of compiling. That
    tests fail means nothing."""
    import pytest

    with no_gpu_needed():
        pytest.main(["-m", "gpu", "-q", "--tb=no", "-rN", "-p", "no:cacheprovider", *arguments])
    return conclude(kernels, errors)


def compile_script(arguments: list[str], kernels: list[Any], errors: list[str]) -> int:
    """Compile what a benchmark launches, run with these arguments. What it says means nothing."""
    os.environ["FLA_CACHE_RESULTS"] = "0"  # what its tuner chooses among kernels that did not run
    sys.path.insert(0, str(Path(arguments[0]).parent))
    no_profile = mock.patch.object(torch.profiler, "profile", mock.MagicMock())
    with no_gpu_needed(), no_profile, mock.patch.object(sys, "argv", arguments):
        runpy.run_path(arguments[0], run_name="__main__")
    return conclude(kernels, errors)


def conclude(kernels: list[Any], errors: list[str]) -> int:
    """Print what was compiled; return 1 if something was not."""
    for error in errors:
        print("FAILED:", error)
    different = {kernel.hash for kernel in kernels if kernel is not None}
    print(f"{len(kernels)} launches, {len(different)} kernels, {len(errors)} do not compile")
    return min(len(errors), 1)


def without_text(code: bytes) -> bytes:
    """Return a compiled kernel with zeros in place of the PTX and the lines that it was compiled from."""
    found = bytearray(code)
    (table,) = struct.unpack_from("<Q", code, 0x28)
    size, count, names = struct.unpack_from("<HHH", code, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", code, table + i * size) for i in range(count)]
    for name, kind, _, _, start, length in sections:
        at, in_file = sections[names][4] + name, kind != 8
        if in_file and code.startswith((b".nv_debug", b".debug"), at):
            found[start : start + length] = bytes(length)
    return bytes(found)


def pack(cache: Path, archive: Path) -> None:
    """Write the compiled kernels in a cache of Triton's into an archive, for `PLACE` on another machine."""
    with tarfile.open(archive, "w:xz") as tar:
        for path in sorted(path for path in cache.glob("*/*") if path.suffix in (".cubin", ".json")):
            data, where = path.read_bytes(), path.relative_to(cache)
            if path.suffix == ".cubin":
                data = without_text(data)
            elif path.name.startswith("__grp__"):
                names = json.loads(data)["child_paths"]
                kept = {n: f"{PLACE}/{where.parent}/{n}" for n in names if n.endswith((".cubin", ".json"))}
                data = json.dumps({"child_paths": kept}).encode()
            about = tarfile.TarInfo(str(where))
            about.size = len(data)
            tar.addfile(about, io.BytesIO(data))
    print(f"{archive}: {archive.stat().st_size / 1e6:.1f} MB")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--backends", nargs="*", default=["matrix", "triton"])
    parser.add_argument("--states", nargs="*", type=int, default=[16, 64])
    parser.add_argument("--dtypes", nargs="*", default=["bfloat16", "float32"])
    parser.add_argument(
        "--tests", nargs=argparse.REMAINDER, help="compile what these tests launch: pytest's arguments"
    )
    parser.add_argument(
        "--script", nargs=argparse.REMAINDER, help="compile what a benchmark launches: it and its arguments"
    )
    parser.add_argument("--pack", type=Path, help="write Triton's cache into this archive (.tar.xz)")
    options = parser.parse_args()
    failed = compiled(options)
    if options.pack is not None:
        pack(Path(os.environ.get("TRITON_CACHE_DIR", "~/.triton/cache")).expanduser(), options.pack)
    return failed


def compiled(options: argparse.Namespace) -> int:
    """Compile what was asked for; return 1 if something does not compile."""
    if key := os.environ.get("RRNN_TRITON_KEY"):
        triton.runtime.cache.triton_key = lambda: key
    driver.set_active(AbsentGpu())  # pyright: ignore[reportArgumentType]
    run, kernels, errors, failed = JITFunction.run, list[Any](), list[str](), 0

    def compile_only(self: Any, *args: Any, warmup: bool = True, **more: Any) -> Any:
        try:
            kernels.append(kernel := run(self, *args, warmup=True, **more))
        except Exception as error:
            test = os.environ.get("PYTEST_CURRENT_TEST", "")
            errors.append(f"{self.__name__}: {' '.join(str(error).split())[-400:]} {test}")
            raise
        if kernel is not None and kernel.metadata.shared > H200.shared_per_block:
            raise OutOfResources(kernel.metadata.shared, H200.shared_per_block, "shared memory")
        return None if kernel is None else SimpleNamespace(n_regs=0, n_spills=0, metadata=kernel.metadata)

    def why_not(_: Any, device: Any, dtype: Any, program: Any = None) -> str | None:
        return pairs.why_not(program) if program is not None and program.mixes else None

    here = mock.patch.object(Triton, "why_not", why_not)
    products = mock.patch.object(matrix, "has_kernels", lambda _, dtype: dtype != torch.float64)
    print("triton", triton.__version__)
    with here, products, mock.patch.object(JITFunction, "run", compile_only):
        if options.tests is not None:
            return compile_tests(options.tests, kernels, errors)
        if options.script is not None:
            return compile_script(options.script, kernels, errors)
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
