"""What a call allocates and what training keeps, in bytes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from cell_calls import Call, make_call
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import rrnn.ops
from rrnn.backends import use_backend
from rrnn.ops import rational

pytestmark = pytest.mark.slow

STEPS, BATCH, UNITS = 64, 4, 50


class Allocated(TorchDispatchMode):
    """Bytes of every storage that an operation makes."""

    def __init__(self, *known: Tensor) -> None:
        super().__init__()
        self.known = {t.untyped_storage().data_ptr() for t in known}
        self.made: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for t in tree_leaves(result):
            if isinstance(t, Tensor) and t.numel() and t.untyped_storage().data_ptr() not in self.known:
                self.known.add(t.untyped_storage().data_ptr())
                self.made.append(t)  # held, so that no address comes twice
        return result

    @property
    def bytes(self) -> int:
        return sum(t.untyped_storage().nbytes() for t in self.made)


def call_of(name: str, dtype: torch.dtype = torch.float32, *, grad: bool = True) -> Call:
    return make_call(name, steps=STEPS, batch=BATCH, units=UNITS, dtype=dtype, grad=grad)


@pytest.mark.parametrize("name", ["B", "F"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_inference_allocates_its_results_and_nothing_else(name: str, dtype: torch.dtype) -> None:
    call = call_of(name, dtype, grad=False)
    with use_backend("native"):
        rational(call.x, call.params, call.states, call.programs)  # compiled, and every cache filled
        with Allocated(call.x, *call.params, *call.states) as allocated:
            out, (state,) = rational(call.x, call.params, call.states, call.programs)
    assert allocated.bytes == out.nbytes + state.nbytes


def kept_bytes(call: Call, save_every: int | None) -> int:
    """What the graph holds beyond the arguments of the call."""
    known = {t.untyped_storage().data_ptr() for t in (call.x, *call.params, *call.states)}
    kept: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        if t.untyped_storage().data_ptr() not in known:
            kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with use_backend("native"), saved_tensors_hooks(pack, lambda t: t):
        rational(call.x, call.params, call.states, call.programs, save_every=save_every)
    return sum(kept.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("name", "states"), [("B", 1), ("F", 2), ("ngram4", 4)])
def test_training_keeps_float32_states_every_few_steps(name: str, states: int, dtype: torch.dtype) -> None:
    call = call_of(name, dtype)
    one_step = states * BATCH * UNITS * 4
    assert kept_bytes(call, 1) == STEPS * one_step
    assert kept_bytes(call, 16) == STEPS // 16 * one_step
    assert kept_bytes(call, 1000) == one_step
    assert rrnn.ops.SAVE_EVERY == 16 and kept_bytes(call, None) == kept_bytes(call, 16)


def test_the_flag_holds_for_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    call = call_of("B")
    monkeypatch.setattr(rrnn.ops, "SAVE_EVERY", 1)
    assert kept_bytes(call, None) == kept_bytes(call, 1)


@pytest.mark.parametrize("every", [1, 16])
def test_backward_allocates_gradients_and_a_row_per_sequence(every: int) -> None:
    call = call_of("F")
    with use_backend("native"):
        out, states = rational(call.x, call.params, call.states, call.programs, save_every=every)
        torch.autograd.grad(out.sum() + states[0].sum(), call.leaves)
        out, states = rational(call.x, call.params, call.states, call.programs, save_every=every)
        seeds = torch.randn_like(out), torch.randn_like(states[0])
        with Allocated(call.x, out, *seeds, *call.leaves) as allocated:
            grads = torch.autograd.grad((out, states[0]), call.leaves, seeds)
    gradients = sum(g.nbytes for g in grads)
    # per-unit sums of each sequence, and what turns the sum of those into gradients of parameters
    small = (BATCH + 1) * 5 * UNITS * 4 + 60 * UNITS * 4
    assert gradients <= allocated.bytes <= gradients + small


def asked_for_huge_pages(address: int) -> bool:
    """Whether the mapping that holds this address was advised so: the flag "hg" in /proc/self/smaps."""
    here = False
    for line in Path("/proc/self/smaps").read_text().split("\n"):
        if found := re.match("([0-9a-f]+)-([0-9a-f]+) ", line):
            here = int(found[1], 16) <= address < int(found[2], 16)
        elif here and line.startswith("VmFlags:"):
            return "hg" in line.split()
    raise AssertionError("no such mapping")


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="a system without huge pages"
)
def test_large_results_ask_for_huge_pages() -> None:
    """In a mapping of their own, 40 MB: more than malloc ever takes from the heap."""
    call = make_call("B", steps=100, batch=2, units=50_000, dtype=torch.float32)
    with use_backend("native"):
        out = rational(call.x, call.params, call.states, call.programs).output
        (grad,) = torch.autograd.grad(out, call.x, torch.ones_like(out))
    assert asked_for_huge_pages(out.data_ptr() + out.nbytes // 2)
    assert asked_for_huge_pages(grad.data_ptr() + grad.nbytes // 2)
    assert not asked_for_huge_pages(torch.empty(10_000_000).data_ptr() + 20_000_000)


@pytest.mark.parametrize("grad", [False, True])
def test_large_outputs_are_tensors_like_any_other(grad: bool) -> None:
    """No views: they may be changed in place."""
    call = make_call("SRU", steps=200, batch=4, units=700, dtype=torch.float32, grad=grad)
    with use_backend("native"):
        out = rational(call.x, call.params, call.states, call.programs, inp=call.inp).output
    with use_backend("reference"):
        expected = rational(call.x, call.params, call.states, call.programs, inp=call.inp).output
    out += 1.0
    torch.testing.assert_close(out, expected + 1.0, rtol=1e-4, atol=1e-4)
    if grad:
        torch.testing.assert_close(
            torch.autograd.grad(out.sum(), call.leaves), torch.autograd.grad(expected.sum(), call.leaves),
            rtol=1e-3, atol=1e-3,
        )  # fmt: skip
