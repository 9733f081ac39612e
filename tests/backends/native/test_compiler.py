"""Finding a compiler: by name, by $CC, as a wheel; and what happens without one."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from cell_calls import make_call

from rrnn.backends import cache, get_backend, report, resolve, use_backend
from rrnn.backends.native import Native, compiler
from rrnn.backends.native.compiler import Compiler, find_compiler
from rrnn.errors import BackendError
from rrnn.ops import rational

CPU = torch.device("cpu")
CC, PATH = shutil.which("cc"), os.environ.get("PATH", "")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test looks for a compiler anew, and the next file does, too."""
    monkeypatch.delenv("CC", raising=False)
    find_compiler.cache_clear()
    yield
    find_compiler.cache_clear()


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "ziglang" else find_spec(name)
    )


Script = Callable[[str], str]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """A compiler of one's own: a shell script around cc."""

    def make(body: str) -> str:
        path = tmp_path / "my-cc"
        path.write_text(f"#!/bin/sh\nPATH='{PATH}'\n{body}\nexec {CC} \"$@\"\n")
        path.chmod(0o755)
        return str(path)

    return make


def test_cc_is_found_and_compiles_in_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_compiler()
    assert isinstance(found, Compiler) and found.command == ["cc"]
    assert "-ffast-math" not in found.flags and "-O3" in found.flags
    monkeypatch.setenv("RRNN_CACHE", str(tmp_path / "empty"))
    call = make_call("B", dtype=torch.float32, grad=False)
    began = time.process_time()
    rational(call.x, call.params, call.states, call.programs)
    assert time.process_time() - began < 1  # cc itself is measured by benchmarks/kernels.py


def test_without_a_compiler_one_warning_and_the_reference(
    no_compiler: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(get_backend("native"), "_warned", False)
    call = make_call("B", dtype=torch.float32)
    with pytest.warns(RuntimeWarning, match=r"slow reference.*no C compiler.*ziglang") as caught:
        out = rational(call.x, call.params, call.states, call.programs).output
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        assert resolve("auto", CPU, torch.float32, call.programs).name == "reference"
    with use_backend("reference"):
        assert torch.equal(out, rational(call.x, call.params, call.states, call.programs).output)


def test_asked_for_by_name_a_missing_compiler_is_an_error(no_compiler: None) -> None:
    call = make_call("B", dtype=torch.float32)
    with use_backend("native"), pytest.raises(BackendError, match="no C compiler"):
        rational(call.x, call.params, call.states, call.programs)
    assert "no C compiler" in str(dict(report(CPU))["native"])  # what `rrnn doctor` shows, without a warning


def test_no_warning_where_nothing_is_missing() -> None:
    """Dtypes that the backend does not serve go to the reference in silence."""
    call = make_call("B", grad=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert resolve("auto", CPU, torch.float16, call.programs).name == "reference"


def test_asking_is_cheap() -> None:
    """`why_not` stands on the way of every step of a streaming layer."""
    backend = get_backend("native")
    backend.why_not(CPU, torch.float32)
    began = time.process_time()
    for _ in range(10_000):
        backend.why_not(CPU, torch.float32)
    assert time.process_time() - began < 0.1  # 10 µs each would be too much, it is under 1


def test_cc_may_carry_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "cc -DANYTHING=1")
    found = find_compiler()
    assert isinstance(found, Compiler) and found.command == ["cc", "-DANYTHING=1"]


def test_a_broken_cc_does_not_stop_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    found = find_compiler()
    assert isinstance(found, Compiler) and found.command == ["cc"]


def test_the_reason_names_what_failed(no_compiler: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    found = find_compiler()
    assert (
        isinstance(found, str) and "no-such-compiler does not run" in found and "pip install ziglang" in found
    )


def test_a_compiler_that_cannot_compile(
    no_compiler: None, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a version, but no headers."""
    monkeypatch.setenv("CC", script('[ "$1" = --version ] || { echo "math.h: not there" >&2; exit 1; }'))
    found = find_compiler()
    assert isinstance(found, str) and "math.h: not there" in found


def test_a_compiler_that_does_not_know_this_processor(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse = 'for a; do case "$a" in -m*native) exit 1;; esac; done'
    monkeypatch.setenv("CC", script(refuse))
    found = find_compiler()
    assert isinstance(found, Compiler) and found.flags == compiler.FLAGS
    call = make_call("B", dtype=torch.float32, grad=False)
    with use_backend("native"):  # the plain kernel computes the same, up to rounding
        rational(call.x, call.params, call.states, call.programs)


def test_flags_are_tried_once_and_remembered(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("RRNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", script(f"echo run >> {log}"))
    assert isinstance(find_compiler(), Compiler)
    first = log.read_text().count("run")
    find_compiler.cache_clear()  # the next process
    assert isinstance(find_compiler(), Compiler)
    assert log.read_text().count("run") == first + 1  # --version


def test_another_compiler_or_processor_means_another_kernel(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []

    def recorded(key: str, suffix: str, build: Callable[[], bytes]) -> Path:
        built.append(key)
        return cache.cached(key, suffix, build)

    monkeypatch.setattr(compiler, "cached", recorded)
    monkeypatch.setenv("RRNN_CACHE", str(tmp_path / "cache"))
    source = '#include "kernel.h"\nint three(void) { return 3; }\n'

    def keys() -> str:
        found = find_compiler()
        assert isinstance(found, Compiler)
        assert found.load(source).three() == 3
        return built[-1]

    plain = keys()
    assert plain == keys()
    find_compiler.cache_clear()
    monkeypatch.setattr(compiler, "cpu", lambda: "another processor")
    assert keys() != plain
    find_compiler.cache_clear()
    monkeypatch.undo()
    monkeypatch.setattr(compiler, "cached", recorded)
    monkeypatch.setenv("CC", script(""))
    assert keys() != plain


def test_a_folder_where_programs_may_not_run(
    no_compiler: None, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", script(""))

    def refuse(path: str) -> None:
        raise OSError("failed to map segment from shared object")

    monkeypatch.setattr(compiler.ctypes, "CDLL", refuse)
    found = find_compiler()
    assert isinstance(found, str) and "failed to map segment" in found and "RRNN_CACHE" in found


def test_errors_of_the_compiler_are_shown() -> None:
    found = find_compiler()
    assert isinstance(found, Compiler)
    with pytest.raises(BackendError, match=r"cc failed on a generated kernel [\s\S]*nonsense"):
        found.compile("int nonsense", found.flags)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="pip install rrnn[native]")
def test_the_ziglang_wheel_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_compiler()
    assert isinstance(found, Compiler) and found.command[1:] == ["-m", "ziglang", "cc"]


RUN = """
import sys; sys.path.insert(0, {tests!r})
import torch, rrnn
from layer_cases import inputs, make_layer
from wide_layers import build
from rrnn.backends.native.compiler import find_compiler
assert find_compiler().command == {command!r}, find_compiler()
for layer in (make_layer("mixed", num_layers=2), build("GLA", states=3, units=8)):
    x = inputs(19, 3, layer.input_size).requires_grad_()
    found = []
    for name in ("native", "reference"):
        with rrnn.use_backend(name):
            out, _ = layer(x)
        found.append([out, *torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gcc", "clang", "zig"])
def test_kernels_of_every_compiler_run(name: str, tmp_path: Path) -> None:
    """Outputs and gradients equal the reference's, whoever has compiled the kernels."""
    command = [sys.executable, "-m", "ziglang", "cc"] if name == "zig" else [name]
    if not (shutil.which(name) if name != "zig" else importlib.util.find_spec("ziglang")):
        pytest.skip(f"there is no {name}")
    code = RUN.format(tests=str(Path(__file__).parents[2]), command=command)
    given = os.environ | {"CC": shlex.join(command), "RRNN_CACHE": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_devices_and_dtypes_it_does_not_serve() -> None:
    backend = Native()
    assert "not on cuda" in str(backend.why_not(torch.device("cuda"), torch.float32))
    assert "float16" in str(backend.why_not(CPU, torch.float16))
    assert backend.why_not(CPU, torch.bfloat16) is None
