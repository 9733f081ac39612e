"""The generated C compiled for macOS and Windows by zig, and the command lines of other compilers.

Nothing here runs on those systems: the tests see that kernels compile, for each system with its own flags, without
warnings, and define the function that ctypes looks up. Kernels for Windows are not linked, since zig would first build
that system's libraries, which takes a minute.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rrnn.backends.native import compiler
from rrnn.backends.native.compiler import FLAGS, command_line, find_compiler
from rrnn.backends.native.render import fill, header, render_backward, render_forward
from rrnn.ir import lower
from rrnn.zoo import get_cell

TARGETS = {
    "x86_64-windows-gnu": ("win32", b"\x64\x86"),  # an object file
    "aarch64-macos": ("darwin", b"\xcf\xfa\xed\xfe"),
}


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="pip install rrnn[native]")
@pytest.mark.parametrize("target", TARGETS)
def test_kernels_compile_for(target: str, tmp_path: Path) -> None:
    system, magic = TARGETS[target]
    (tmp_path / "kernel.h").write_text(header(), encoding="utf-8")
    program = lower(get_cell("F")).program
    sources = {
        "rrnn_forward": render_forward(program, torch.float32),
        "rrnn_backward": render_backward(program, torch.bfloat16),
        "rrnn_affine": fill("affine.c", real="double", D=8),
    }
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target, "-Wall", "-Werror"]
    for name, source in sources.items():
        text, library = tmp_path / f"{name}.c", tmp_path / f"{name}.lib"
        text.write_text(source, encoding="utf-8")
        line = command_line(command, [*FLAGS, "-Wno-unused"], text, library, system)
        line += ["-c"] if system == "win32" else []
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:3000]
        built = library.read_bytes()
        assert built.startswith(magic) and name.encode() in built


def test_command_lines() -> None:
    source, library, flags = Path("k.c"), Path("k.lib"), ["-O3", "-fPIC", "-shared"]
    made = {
        (name, system): command_line([name], flags, source, library, system)[1:]
        for name, system in [
            ("cc", "linux"),
            ("clang", "darwin"),
            ("clang", "win32"),
            ("clang-cl.exe", "win32"),
        ]
    }
    assert made == {
        ("cc", "linux"): ["-O3", "-fPIC", "-shared", "k.c", "-o", "k.lib", "-lm"],
        ("clang", "darwin"): ["-O3", "-fPIC", "-shared", "k.c", "-o", "k.lib", "-lm"],
        ("clang", "win32"): ["-O3", "-shared", "k.c", "-o", "k.lib"],
        ("clang-cl.exe", "win32"): ["/nologo", "/LD", "/clang:-O3", "k.c", "/Fe:k.lib"],
    }


def test_other_systems_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler.sys, "platform", "sunos5")
    assert find_compiler.__wrapped__() == "generated C is supported on 64-bit Linux, macOS and Windows only"


def test_without_openmp_kernels_run_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows there is no GOMP_parallel, and None is no library."""

    def no_library(name: object) -> object:
        raise (
            TypeError("argument 1 must be str, not None")
            if name is None
            else OSError("there is no such file")
        )

    monkeypatch.setattr(compiler.ctypes, "CDLL", no_library)
    assert compiler.parallel_address.__wrapped__() == 0
