"""The generated C compiled for macOS and Windows by zig and clang-cl, and the command lines of other compilers.

Nothing here runs on those systems: the tests see that kernels compile, for each system with its own flags, without
warnings, and define the function that ctypes looks up. Kernels for Windows are not linked, since zig would first build
that system's libraries, which takes a minute; clang-cl would need those of Microsoft.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from cell_calls import make_call

from rrnn.backends.native import backend, compiler, families
from rrnn.backends.native.compiler import FLAGS, command_line, find_compiler
from rrnn.backends.native.render import fill, header, render_backward, render_forward
from rrnn.ir import lower
from rrnn.ops import rational
from rrnn.zoo import get_cell

TARGETS = {
    "x86_64-windows-gnu": ("win32", b"\x64\x86"),  # an object file
    "aarch64-macos": ("darwin", b"\xcf\xfa\xed\xfe"),
    "x86_64-macos": ("darwin", b"\xcf\xfa\xed\xfe"),
}
CLANG_CL = shutil.which("clang-cl") or next(
    (p for n in range(30, 13, -1) if (p := shutil.which(f"clang-cl-{n}"))), None
)
needs_zig = pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="pip install rrnn[native]")


def sources() -> dict[str, tuple[str, str]]:
    """Return name of a file → (name of the function, C source) of kernels of every kind."""
    thin, wide = (lower(get_cell(name)).program for name in ("F", "GLA"))
    return {
        "forward": ("rrnn_forward", render_forward(thin, torch.float32)),
        "backward": ("rrnn_backward", render_backward(thin, torch.bfloat16)),
        "wide_forward": ("rrnn_forward", families.render_forward(wide, torch.float32)),
        "wide_backward": ("rrnn_backward", families.render_backward(wide, torch.float64)),
        "affine": ("rrnn_affine", fill("affine.c", real="double", D=8)),
    }


def check_objects(command: list[str], system: str, more: list[str], start: bytes, folder: Path) -> None:
    """Compile all kernels; `more` are arguments besides those that rrnn itself gives."""
    (folder / "kernel.h").write_text(header(), encoding="utf-8")
    for file, (name, source) in sources().items():
        text, library = folder / f"{file}.c", folder / f"{file}.obj"
        text.write_text(source, encoding="utf-8")
        line = command_line(command, [*FLAGS, "-Wall", "-Werror", "-Wno-unused"], text, library, system)
        if "/LD" in line:  # clang-cl: these two belong to the linker
            line = [word for word in line if word != "/LD" and not word.startswith("/Fe")]
        done = subprocess.run([*line, *more], capture_output=True, text=True, check=False, cwd=folder)
        assert done.returncode == 0 and not done.stderr, done.stderr[:3000]
        built = library.read_bytes()
        assert built.startswith(start) and name.encode() in built


@pytest.mark.slow
@needs_zig
@pytest.mark.parametrize("target", TARGETS)
def test_kernels_compile_for(target: str, tmp_path: Path) -> None:
    system, magic = TARGETS[target]
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target]
    check_objects(command, system, ["-c"] if system == "win32" else [], magic, tmp_path)


@pytest.mark.slow
@needs_zig
@pytest.mark.skipif(CLANG_CL is None, reason="there is no clang-cl (Debian: clang-tools)")
def test_clang_cl_compiles_kernels(tmp_path: Path) -> None:
    """With its own command line, and the headers of Windows that zig has."""
    assert CLANG_CL is not None
    found = importlib.util.find_spec("ziglang")
    assert found is not None and found.origin is not None
    headers = Path(found.origin).parent / "lib" / "libc" / "include" / "any-windows-any"
    more = ["/c", "--target=x86_64-w64-windows-gnu", f"/clang:-isystem{headers}"]
    check_objects([CLANG_CL], "win32", more, b"\x64\x86", tmp_path)


def test_command_lines() -> None:
    source, library, flags = Path("k.c"), Path("k.lib"), ["-O3", "-fPIC", "-shared"]
    made = {
        (name, system): command_line([name], flags, source, library, system)[1:]
        for name, system in [
            ("cc", "linux"),
            ("clang", "darwin"),
            ("clang", "win32"),
            ("clang-cl.exe", "win32"),
            ("clang-cl-14", "win32"),
        ]
    }
    assert made == {
        ("cc", "linux"): ["-O3", "-fPIC", "-shared", "k.c", "-o", "k.lib", "-lm"],
        ("clang", "darwin"): ["-O3", "-fPIC", "-shared", "k.c", "-o", "k.lib", "-lm"],
        ("clang", "win32"): ["-O3", "-shared", "k.c", "-o", "k.lib"],
        ("clang-cl.exe", "win32"): ["/nologo", "/LD", "/clang:-O3", "k.c", "/Fe:k.lib"],
        ("clang-cl-14", "win32"): ["/nologo", "/LD", "/clang:-O3", "k.c", "/Fe:k.lib"],
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


def test_kernels_give_the_same_without_openmp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forwards and backwards, with more than one thread asked for and enough work for them."""
    call = make_call("F", dtype=torch.float32, steps=40, batch=8, units=96)
    found, before = [], torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for address in (compiler.parallel_address(), 0):
            monkeypatch.setattr(backend, "parallel_address", lambda address=address: address)
            out, final = rational(call.x, call.params, call.states, call.programs)
            grads = torch.autograd.grad(
                out.square().sum() + sum(f.sum() for f in final), [call.x, *call.params]
            )
            found.append([out, *final, *grads])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
