"""C source to a loaded library: `cc`, or the `ziglang` wheel, through ctypes."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from functools import cache, lru_cache
from pathlib import Path

import torch  # noqa: F401  (first, so that its OpenMP runtime is the one our libraries find)

from rrnn.backends.cache import cached
from rrnn.errors import BackendError

# No -ffast-math: it would set flush-to-zero for the whole process and break −∞.
FLAGS = [
    "-O3",
    "-std=gnu11",
    "-fPIC",
    "-shared",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
]


class Compiler:
    """A command, the flags it understands, and what identifies its output."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.version = _run([*command, "--version"]).stdout.split("\n")[0]
        self.flags = [*FLAGS, *(f for f in ("-march=native", "-fopenmp") if self._accepts(f))]
        if "-march=native" in self.flags and self._accepts("-mprefer-vector-width=512"):
            self.flags.append("-mprefer-vector-width=512")

    def _accepts(self, flag: str) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "try.c"
            source.write_text("int answer(void) { return 42; }\n")
            command = [
                *self.command,
                "-shared",
                "-fPIC",
                flag,
                str(source),
                "-o",
                str(Path(folder) / "try.so"),
            ]
            return _run(command).returncode == 0

    @property
    def threads(self) -> bool:
        return "-fopenmp" in self.flags

    def build(self, source: str) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            text, library = Path(folder) / "kernel.c", Path(folder) / "kernel.so"
            text.write_text(source)
            done = _run([*self.command, *self.flags, str(text), "-o", str(library), "-lm"])
            if done.returncode:
                raise BackendError(
                    f"the C compiler failed on a generated kernel: {done.stderr.strip()[:2000]}"
                )
            return library.read_bytes()


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


@cache
def find_compiler() -> Compiler | str:
    """The compiler, or why there is none."""
    if sys.platform == "win32":
        return "generated C is not supported on Windows yet"
    candidates = (
        [[os.environ["CC"]]]
        if os.environ.get("CC")
        else [[c] for c in ("cc", "gcc", "clang") if shutil.which(c)]
    )
    if importlib.util.find_spec("ziglang"):
        candidates.append([sys.executable, "-m", "ziglang", "cc"])
    for command in candidates:
        if _run([*command, "--version"]).returncode == 0:
            return Compiler(command)
    return "there is no C compiler (cc, gcc, clang, or the ziglang wheel: pip install ziglang)"


@cache
def cpu() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n")
        return "".join(
            next((x for x in lines if x.startswith(k)), "") for k in ("model name", "flags", "Features")
        )
    except OSError:
        return platform.processor() + platform.machine()


@lru_cache(maxsize=512)
def load(source: str) -> ctypes.CDLL:
    """Compile (or find in the cache) and load."""
    compiler = find_compiler()
    if isinstance(compiler, str):
        raise BackendError(f"the native backend cannot compile: {compiler}")
    key = "\0".join([source, " ".join(compiler.flags), compiler.version, cpu()])
    return ctypes.CDLL(str(cached(key, ".so", lambda: compiler.build(source))))
