"""Launches that go past Triton's own launcher: when they may, and with what. Here it is a stand-in that keeps count."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from rrnn.backends.triton import module
from rrnn.backends.triton.module import Kernels
from rrnn.backends.triton.plan import Plan

GRID = (2, 3, 1)
Calls = list[tuple[str, Any, tuple[Any, ...], dict[str, Any]]]


class Launchable:
    """What Triton calls a kernel, compiled or not: `kernel[grid](…)`."""

    def __init__(self, kind: str, calls: Calls, result: Any) -> None:
        self.kind, self.calls, self.result = kind, calls, result

    def __getitem__(self, grid: tuple[int, int, int]) -> Any:
        def run(*args: Any, **options: Any) -> Any:
            self.calls.append((self.kind, grid, args, options))
            return self.result

        return run


def kernels(*, interpreted: bool = False) -> tuple[Kernels, Calls]:
    module, calls = ModuleType("generated"), []
    compiled = None if interpreted else Launchable("compiled", calls, None)
    module.forward = Launchable("jit", calls, compiled)  # pyright: ignore[reportAttributeAccessIssue]
    module.join = Launchable("jit", calls, compiled)  # pyright: ignore[reportAttributeAccessIssue]
    return Kernels(module), calls


def aligned(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    t = torch.empty(count + 16, dtype=dtype)
    return t[(-t.data_ptr() % 16) // t.element_size() :][:count]


PLAN = Plan(64, 1, 4, 0)
X, Y = aligned(32), aligned(32)
ELSEWHERE = SimpleNamespace(data_ptr=Y.data_ptr, dtype=Y.dtype, get_device=lambda: 1)


def test_the_second_launch_is_the_compiled_kernels() -> None:
    launch, calls = kernels()
    launch("forward", GRID, (X, None, Y), (7, 1), PLAN, False)
    launch("forward", GRID, (Y, None, X), (7, 1), PLAN, False)
    first, second = calls
    options = {"MASKED": False, "BLOCK": 64, "num_warps": 1, "enable_fp_fusion": True}
    assert first == ("jit", GRID, (X, None, Y, 7, 1), options)
    assert second == ("compiled", GRID, (Y.data_ptr(), None, X.data_ptr(), 7, 1, False, 64), {})


def test_a_kernel_without_masks_has_one_constant() -> None:
    launch, calls = kernels()
    launch("forward", GRID, (X,), (7,), PLAN)
    launch("forward", GRID, (X,), (7,), PLAN)
    assert [args for _, _, args, _ in calls] == [(X, 7), (X.data_ptr(), 7, 64)]
    assert "MASKED" not in calls[0][3]


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "join"},
        {"grid": (3, 3, 1)},
        {"tensors": (X, X[1:])},  # an address that is no multiple of 16
        {"tensors": (X, X[2:])},
        {"tensors": (X, ELSEWHERE)},
        {"tensors": (X, aligned(32, torch.bfloat16))},
        {"tensors": (X, None)},
        {"numbers": (8, 1)},
        {"how": PLAN._replace(block=32)},
        {"how": PLAN._replace(warps=2)},
        {"masked": True},
    ],
    ids=[
        "name",
        "grid",
        "address",
        "address of 8",
        "device",
        "dtype",
        "nothing",
        "number",
        "block",
        "warps",
        "mask",
    ],
)
def test_whatever_triton_may_compile_for_is_asked_of_it(changed: dict[str, Any]) -> None:
    launch, calls = kernels()
    call = {
        "name": "forward",
        "grid": GRID,
        "tensors": (X, Y),
        "numbers": (7, 1),
        "how": PLAN,
        "masked": False,
    }
    launch(**call)
    launch(**call | changed)
    assert [kind for kind, *_ in calls] == ["jit", "jit"]
    launch(**call)
    assert calls[-1][0] == "compiled"


def test_an_unaligned_launch_is_not_remembered() -> None:
    launch, calls = kernels()
    launch("forward", GRID, (X[1:],), (), PLAN)
    launch("forward", GRID, (X,), (), PLAN)
    assert [kind for kind, *_ in calls] == ["jit", "jit"]


def test_the_interpreter_has_nothing_to_remember() -> None:
    launch, calls = kernels(interpreted=True)
    for _ in range(2):
        launch("forward", GRID, (X,), (), PLAN)
    assert [kind for kind, *_ in calls] == ["jit", "jit"]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 3)
    launch, _ = kernels()
    for steps in range(20):
        launch("forward", GRID, (X,), (steps,), PLAN)
        assert len(launch._compiled) <= 3
