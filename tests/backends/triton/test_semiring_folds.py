"""Folds by a semiring's own ⊕ along each axis of a tile, against ⊕ on floats, one state after another."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from types import ModuleType
from unittest import mock

import pytest
import torch
from kernel_cases import needs_interpreter
from torch import Tensor
from zoo.test_wide_semirings import NAMES, OWN, cell_over

from rrnn import register_semiring
from rrnn.arithmetic import FLOATS, Op
from rrnn.backends.triton.kernel_text import HEAD
from rrnn.backends.triton.module import imported
from rrnn.backends.triton.semiring_folds import fold_functions
from rrnn.ir import lower
from rrnn.ir.semiring_code import fold_elements
from rrnn.semirings import SEMIRINGS, Semiring, get_semiring

FOLDS = (Op.FOLD, Op.BEFORE, Op.AFTER)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    with mock.patch.dict(SEMIRINGS):
        for ring in OWN:
            register_semiring(ring)
        yield


def kernel(ring: Semiring, shape: tuple[int, ...], axis: int) -> ModuleType:
    """Return a module whose kernel stores all folds of a tile along an axis, one after another."""

    def names(letter: str) -> str:
        return ", ".join(f"{letter}{c}" for c in range(ring.size))

    def along(k: int) -> str:
        return f"[{', '.join(':' if k == each else 'None' for each in range(len(shape)))}]"

    numbers = torch.Size(shape).numel()
    strides = [torch.Size(shape[k + 1 :]).numel() for k in range(len(shape))]
    places = [f"tl.arange(0, {n}){along(k)} * {strides[k]}" for k, n in enumerate(shape)]
    lines = [f"k = tl.arange(0, {shape[axis]}){along(axis)}", f"place = {' + '.join(places)}"]
    lines += [f"a{c} = tl.load(x + place + {c * numbers})" for c in range(ring.size)]
    lines.append(f"{names('r')} = fold({names('a')}, {axis})")
    around = f"around({names('a')}, k, {shape[axis].bit_length() - 1}, {strides[axis]})"
    lines.append(f"{names('p')}, {names('q')} = {around}")
    for at, (letter, c) in enumerate(product("rpq", range(ring.size))):
        lines.append(f"tl.store(out + place + {at * numbers}, tl.broadcast_to({letter}{c}, {list(shape)}))")
    text = "\n".join(["\n\n@triton.jit", "def folds(x, out):", *(f"    {line}" for line in lines)])
    return imported(HEAD + fold_functions(lower(cell_over(ring.name)).program.flat) + text + "\n")


def expected(ring: Semiring, tile: Tensor, axis: int) -> Tensor:
    """Return all folds of a tile (component, …) along an axis of a component's tile."""
    moved, found = tile.double().movedim(axis + 1, -1), []
    for op in FOLDS:
        result = torch.empty_like(moved)
        for place in torch.cartesian_prod(*map(torch.arange, moved.shape[1:-1])).reshape(-1, moved.dim() - 2):
            row = moved[(slice(None), *place.tolist())]
            elements = [ring.element(map(float, numbers)) for numbers in row.T]
            folded = [ring.numbers_of(e) for e in fold_elements(ring, FLOATS, op, elements, ring.zero)]
            result[(slice(None), *place.tolist())] = torch.tensor(folded, dtype=torch.float64).T
        found.append(result.movedim(-1, axis + 1))
    return torch.stack(found)


def tile_of(ring: Semiring, shape: tuple[int, ...]) -> Tensor:
    """Return random elements, a few of them zeros of the semiring."""
    torch.manual_seed(0)
    tile = torch.randn(ring.size, *shape)
    if ring.name == "signed-log":
        tile[0] = tile[0].sign()
    for component, zero in zip(tile, ring.numbers_of(ring.zero), strict=True):
        component.view(-1)[::5] = zero
    return tile


def agrees(semiring: str, shape: tuple[int, ...], axis: int, device: str, warps: int) -> None:
    ring = get_semiring(semiring)
    tile = tile_of(ring, shape)
    out = torch.empty(len(FOLDS), *tile.shape, device=device)
    kernel(ring, shape, axis).folds[(1,)](tile.to(device), out, num_warps=warps)
    assert torch.allclose(out.cpu().double(), expected(ring, tile, axis), 1e-4, 1e-5)


@needs_interpreter
@pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")  # NumPy on ∞ − ∞, in the interpreter
@pytest.mark.parametrize("shape, axis", [((1, 1), 1), ((2, 8), 1), ((2, 4, 2), 1), ((1, 2, 4), 2)])
@pytest.mark.parametrize("semiring", NAMES)
def test_folds_along_each_axis(semiring: str, shape: tuple[int, ...], axis: int) -> None:
    agrees(semiring, shape, axis, "cpu", 1)


@pytest.mark.gpu
@pytest.mark.parametrize("warps", [1, 4])  # also more threads than numbers
@pytest.mark.parametrize(
    "shape, axis", [((2, 4), 1), ((8, 64), 1), ((4, 16, 1), 1), ((2, 8, 16), 1), ((1, 32, 8), 2)]
)
@pytest.mark.parametrize("semiring", NAMES)
def test_folds_on_a_gpu(semiring: str, shape: tuple[int, ...], axis: int, warps: int) -> None:
    agrees(semiring, shape, axis, "cuda", warps)
