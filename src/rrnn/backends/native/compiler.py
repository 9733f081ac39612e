"""From C source to a loaded library, and the threads that its kernels run on.

Sources are compiled by `$CC`, `cc`, `gcc`, `clang`, `clang-cl` or the `ziglang` wheel, and loaded through ctypes.
Kernels use torch's own OpenMP pool, through the address of GOMP_parallel (in GNU's, LLVM's and Intel's runtime alike):
nothing is linked, so there is never a second pool of threads that spins against the first, and any C compiler will do.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import cache, lru_cache
from pathlib import Path

import torch

from rrnn.backends.cache import cached
from rrnn.backends.interface import in_forked_child
from rrnn.backends.native.render import header
from rrnn.errors import BackendError

# No -ffast-math: it would set flush-to-zero for the whole process and break −∞.
FLAGS = [
    *("-O3", "-std=gnu11", "-fPIC", "-shared"),
    *("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"),
]
SUFFIX = ".dll" if sys.platform == "win32" else ".so"
# Flags for this processor, tried in turn. Not every compiler uses vectors of 512 bits by itself where it could.
TUNING = [["-march=native", "-mprefer-vector-width=512"], ["-march=native"], ["-mcpu=native"], []]
TRIAL = '#include "kernel.h"\nEXPORT int answer(void) { return 42; }\n'
TIMEOUT = 300  # seconds for one kernel: a longer compilation means that something is wrong


class Compiler:
    """A command, the flags it understands, and what identifies its output."""

    def __init__(self, command: list[str], version: str) -> None:
        self.command, self.version = command, version
        # Each trial takes a compilation, so the answer is cached like a kernel.
        key = "\0".join(["flags", *command, version, cpu(), repr((FLAGS, TUNING)), header()])
        path = cached(key, ".flags", lambda: "\n".join(self._flags()).encode())
        self.flags = [line for line in path.read_text().split("\n") if line.startswith("-")]  # not the seal

    def _flags(self) -> list[str]:
        """Return the first set of flags with which a trial source compiles."""
        failure = ""
        for extra in TUNING:
            try:
                self.compile(TRIAL, [*FLAGS, *extra])
            except BackendError as error:
                failure = str(error)
            else:
                return [*FLAGS, *extra]
        raise BackendError(failure)

    def compile(self, source: str, flags: list[str]) -> bytes:
        """Return the shared library of a source."""
        with tempfile.TemporaryDirectory() as folder:
            text, library = Path(folder) / "kernel.c", Path(folder) / f"kernel{SUFFIX}"
            text.write_text(source, encoding="utf-8")
            (text.parent / "kernel.h").write_text(header(), encoding="utf-8")
            done = _run(command_line(self.command, flags, text, library))
            if done.returncode:
                raise BackendError(
                    f"{shlex.join(self.command)} failed on a generated kernel (use_backend('reference') does "
                    f"without): {done.stderr.strip()[:2000]}"
                )
            return library.read_bytes()

    def load(self, source: str) -> ctypes.CDLL:
        """Return the library of a source, compiled by the first compiler that works."""
        key = "\0".join([source, header(), *self.command, *self.flags, self.version, cpu()])
        path = cached(key, SUFFIX, lambda: self.compile(source, self.flags))
        try:
            return ctypes.CDLL(str(path))
        except OSError as error:  # for example, a folder on a volume mounted noexec
            raise BackendError(
                f"a compiled kernel cannot be loaded: {error}. Set RRNN_CACHE to a folder that may hold programs."
            ) from None


def command_line(
    command: list[str], flags: list[str], source: Path, library: Path, system: str = sys.platform
) -> list[str]:
    """Return the command that compiles a source to a shared library on a system, as `sys.platform` calls it."""
    windows = system == "win32"
    flags = [flag for flag in flags if not (windows and flag == "-fPIC")]  # all code there can be moved
    if Path(command[0]).name.lower().startswith("clang-cl"):
        # It takes the options of Microsoft's compiler, and clang's own behind /clang:
        own = [f"/clang:{flag}" for flag in flags if flag != "-shared"]
        return [*command, "/nologo", "/LD", *own, str(source), f"/Fe:{library}"]
    return [*command, *flags, str(source), "-o", str(library), *([] if windows else ["-lm"])]


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


@cache
def find_compiler() -> Compiler | str:
    """Return the first compiler whose output can be loaded and run, or why there is none. Each process looks once."""
    if not sys.platform.startswith(("linux", "darwin", "win32")) or sys.maxsize < 2**32:
        return "generated C is supported on 64-bit Linux, macOS and Windows only"
    failures = []
    for command in _candidates():
        version = _run([*command, "--version"])
        if version.returncode:
            failures.append(f"{shlex.join(command)} does not run ({version.stderr.strip()[:200]})")
            continue
        try:
            compiler = Compiler(command, version.stdout.split("\n")[0])
            if compiler.load(TRIAL).answer() == 42:
                return compiler
            failures.append(f"what {shlex.join(command)} compiles does not run")
        except BackendError as error:
            failures.append(str(error))
    hint = "install a C compiler (cc), or the ziglang wheel: pip install ziglang"
    return "; ".join([*failures, hint]) if failures else f"there is no C compiler: {hint}"


def _candidates() -> list[list[str]]:
    """Return the commands that may be C compilers, in order of preference."""
    commands = [shlex.split(os.environ["CC"])] if os.environ.get("CC") else []
    commands += [[name] for name in ("cc", "gcc", "clang", "clang-cl") if shutil.which(name)]
    if importlib.util.find_spec("ziglang"):
        commands.append([sys.executable, "-m", "ziglang", "cc"])
    return commands


@cache
def cpu() -> str:
    """Return what -march=native depends on, as a text."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n")
    except OSError:
        return platform.processor() + platform.machine()
    keys = ("model name", "flags", "Features", "CPU part")
    return "".join(next((x for x in lines if x.startswith(k)), "") for k in keys) + platform.machine()


@lru_cache(maxsize=512)
def load(source: str) -> ctypes.CDLL:
    """A kernel's library, compiled by whatever compiler there is."""
    compiler = find_compiler()
    if isinstance(compiler, str):
        raise BackendError(f"the native backend cannot compile: {compiler}")
    return compiler.load(source)


SMALL = 1 << 14
"""Numbers to compute: below this, waking threads costs more than it gains."""


@cache
def parallel_address() -> int:
    """Return the address of GOMP_parallel as torch itself finds it: among all loaded libraries' names, or in what torch
    links; 0 if it is nowhere, as on Windows, and kernels then run on the caller's thread alone."""
    end = "dylib" if sys.platform == "darwin" else "so"
    for library in (None, Path(torch.__file__).parent / "lib" / f"libtorch_cpu.{end}"):
        try:
            function = ctypes.CDLL(None if library is None else str(library)).GOMP_parallel
        except (AttributeError, OSError, TypeError):  # (on Windows None is no library)
            continue
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    return 0


def threads_for(work: int) -> int:
    """Return the number of threads for a call that computes `work` numbers: torch's, but one for little work or in a
    forked child."""
    return 1 if work < SMALL or in_forked_child() else torch.get_num_threads()
