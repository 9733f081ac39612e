"""Threads: as many as torch says, the same bits from any number, none in a forked child, one pool in the process."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from cell_calls import make_call
from torch import Tensor

from rrnn.backends import interface, use_backend
from rrnn.backends.native import backend, compiler
from rrnn.ops import rational


@pytest.fixture(autouse=True)
def torch_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def outcome(name: str, steps: int, batch: int, units: int, dtype: torch.dtype) -> list[Tensor]:
    call = make_call(name, steps=steps, batch=batch, units=units, dtype=dtype)
    with use_backend("native"):
        out, states = rational(call.x, call.params, call.states, call.programs, inp=call.inp)
    grads = torch.autograd.grad(out.double().sum() + states[0].sum(), call.leaves)
    return [out.detach(), states[0].detach(), *grads]


@pytest.mark.parametrize("shape", [(40, 3, 650), (90, 1, 333), (20, 9, 100), (300, 2, 33)])
@pytest.mark.parametrize("name", ["F", "B-max-plus"])
def test_the_same_bits_from_any_number_of_threads(name: str, shape: tuple[int, int, int]) -> None:
    results = []
    for count in (1, 2, 3, 4):
        torch.set_num_threads(count)
        assert compiler.threads_for(40 * 3 * 650) == count
        results.append(outcome(name, *shape, torch.float32))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_threads_follow_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel asks of OpenMP: torch's number of threads, but no more than there are blocks of lanes."""
    asked: list[int] = []
    work_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

    @ctypes.CFUNCTYPE(None, work_type, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    def parallel(work: object, data: int, count: int, flags: int) -> None:
        asked.append(count)
        work(data)  # pyright: ignore[reportCallIssue]

    address = ctypes.cast(parallel, ctypes.c_void_p).value
    monkeypatch.setattr(backend, "parallel_address", lambda: address)
    expected = outcome("B", 30, 2, 400, torch.float32)
    assert asked == []  # one thread needs no pool
    torch.set_num_threads(3)
    results = outcome("B", 30, 2, 400, torch.float32)
    assert asked == [3, 3]  # forward and backward
    assert all(torch.equal(a, b) for a, b in zip(expected, results, strict=True))
    asked.clear()
    torch.set_num_threads(64)
    outcome("B", 200, 1, 130, torch.float32)
    assert asked == [2, 2]  # 130 lanes are two blocks
    outcome("B", 3, 1, 130, torch.float32)
    assert asked == [2, 2]  # too little work to share


def test_without_openmp_one_thread_does_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = outcome("B", 30, 2, 400, torch.float32)
    torch.set_num_threads(4)
    monkeypatch.setattr(backend, "parallel_address", lambda: 0)
    results = outcome("B", 30, 2, 400, torch.float32)
    assert all(torch.equal(a, b) for a, b in zip(expected, results, strict=True))


def test_torchs_own_pool_is_found() -> None:
    assert compiler.parallel_address() != 0


def test_no_threads_in_a_forked_child(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(4)
    assert compiler.threads_for(1 << 20) == 4
    monkeypatch.setattr(interface, "_forked", True)
    assert compiler.threads_for(1 << 20) == 1


FORKS = """
import os, re, sys, torch
from torch.utils.data import DataLoader, Dataset
import rrnn
from rrnn.ir import lower
from rrnn.ops import rational

def pools():
    text = open("/proc/self/maps").read()
    return {line.split()[-1] for line in text.split("\\n") if re.search(r"lib(g|i)?omp[0-9]?[-.]", line)}

torch.set_num_threads(4)
torch.randn(256, 256) @ torch.randn(256, 256)
before = pools()
layer = rrnn.RationalRNN(rrnn.get_cell("B"), 64, 64)
x = torch.randn(50, 8, 64)

def run():
    out, _ = layer(x)
    out.sum().backward()
    return out.detach()

expected = run()
assert pools() == before, (pools(), before)

# A child that runs a kernel after its parent used threads, and one that trains, where torch itself needs to be told.
program, params, state = lower(rrnn.get_cell("B")).program, torch.randn(1, 64), torch.zeros(1, 8, 64)
preactivations = torch.randn(50, 8, 128)

def kernel():
    with torch.no_grad():
        return rational(preactivations, [params], [state], [program]).output

known = kernel()
for job in ("run", "train"):
    child = os.fork()
    if child == 0:
        if job == "train":
            torch.set_num_threads(1)
        os._exit(0 if torch.equal(*((kernel(), known) if job == "run" else (run(), expected))) else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0

# And the workers of a DataLoader.
class Runs(Dataset):
    def __len__(self): return 4
    def __getitem__(self, i):
        with torch.no_grad():
            return layer(x)[0]

for batch in DataLoader(Runs(), batch_size=2, num_workers=2, multiprocessing_context="fork"):
    assert torch.equal(batch[0], expected) and torch.equal(batch[1], expected)
print("done")
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks, and /proc")
def test_children_run_kernels_and_there_is_one_pool(tmp_path: Path) -> None:
    script = tmp_path / "forks.py"
    script.write_text(FORKS)
    command = [sys.executable, "-W", "ignore", str(script)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        try:
            printed, errors = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its children, too
            raise
    assert printed.strip() == "done", errors[-3000:]


def test_kernels_leave_denormals_alone() -> None:
    """-ffast-math would link code that flushes them, in every thread of the process, as soon as a kernel is loaded."""
    tiny = torch.full((1 << 16,), 1e-40)
    torch.set_num_threads(2)
    before = tiny * 0.5
    outcome("F", 30, 2, 400, torch.float32)
    assert (before > 0).all() and torch.equal(tiny * 0.5, before)
