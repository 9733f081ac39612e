"""Compute the matrix and the entry of an affine program from what it reads, with torch's own ops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from rrnn.backends.extents import spread
from rrnn.backends.reference import interpret, leaves
from rrnn.ir import Op, Program
from rrnn.ir.affine import ENTRY, MATRIX, READ, Affine, affine
from rrnn.ir.program import Extent


def form_of(program: Program) -> Affine:
    """Return the parts of a program that is known to be affine."""
    found = affine(program)
    assert not isinstance(found, str), found
    return found


class _Leaf(NamedTuple):
    """A leaf that the matrix or the entry reads."""

    n: int
    name: str
    projected: bool
    extent: Extent


@lru_cache(maxsize=256)
def _leaves_of(form: Affine) -> tuple[_Leaf, ...]:
    factors, wide = form.factors, form.factors.wide
    assert wide is not None
    wanted = factors.needed_for(factors.of_kind("factor")[k] for k in (MATRIX, ENTRY))
    projected = leaves(factors, Op.PREACT).items()
    learned = leaves(factors, Op.PARAM).items()
    return (
        *(_Leaf(n, factors.projections[k], True, wide.projections[k]) for n, k in projected if n in wanted),
        *(_Leaf(n, factors.parameters[k], False, wide.parameters[k]) for n, k in learned if n in wanted),
    )


class Given(NamedTuple):
    """The names of the leaves that are the matrix and the entry themselves, if nothing is computed of leaves."""

    matrix: str
    entry: str
    by_source: bool
    """Whether the source is the first index of the matrix, not the target."""


def given_parts(program: Program) -> Given:
    """Return the names of an affine program's matrix and entry, which must be leaves."""
    form = form_of(program)
    found = {leaf.n: leaf for leaf in _leaves_of(form)}
    matrix, entry = (found[form.factors.of_kind("factor")[k]] for k in (MATRIX, ENTRY))
    return Given(matrix.name, entry.name, matrix.extent.over == (form.source, form.target))


def of_rows(form: Affine, x: Tensor, params: Tensor, units: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return matrix (…, target, source, heads), entry (…, target, heads) and read (target, units) from the flat rows
    that a program reads (see `rrnn.backends.extents`)."""
    factors, wide = form.factors, form.factors.wide
    assert wide is not None
    columns = x.split([wide.numbers(e, units) for e in wide.projections], -1)
    learned = params[0].split([wide.numbers(e, units) for e in wide.parameters], -1)
    given = (
        dict(zip(factors.projections, columns, strict=True)),
        dict(zip(factors.parameters, learned, strict=True)),
    )
    values = {
        n: spread(wide, [extent], given[not projected][name], wide.heads)[0]
        for n, name, projected, extent in _leaves_of(form)
    }
    matrix, entry = _computed(form, values)
    rows = spread(wide, wide.parameters, params[0], units)
    read = {n: rows[k] for n, k in leaves(factors, Op.PARAM).items()}
    wanted = factors.of_kind("factor")[READ]
    interpret(factors, factors.needed_for([wanted]), read, params)
    return matrix, entry, read[wanted].expand(*_axes(form, [form.target]), units).reshape(form.size, units)


def _computed(form: Affine, values: dict[int, Tensor]) -> tuple[Tensor, Tensor]:
    """Return matrix (…, target, source, lanes) and entry (…, target, lanes) from the values of leaves."""
    factors = form.factors
    matrix, entry = (factors.of_kind("factor")[k] for k in (MATRIX, ENTRY))
    like = next(iter(values.values()))
    interpret(factors, factors.needed_for([matrix, entry]), values, like)
    found = []
    for n, over in ((matrix, (form.target, form.source)), (entry, (form.target,))):
        value, axes = values[n], _axes(form, over)
        leading, lanes = value.shape[: max(0, value.dim() - 1 - len(axes))], like.shape[-1]
        value = value.expand(*leading, *axes, lanes)
        found.append(value.reshape(*leading, *([form.size] * len(over)), lanes))
    return found[0], found[1]


def _axes(form: Affine, over: Sequence[int]) -> list[int]:
    assert form.factors.wide is not None
    return [size if f in over else 1 for f, (_, size) in enumerate(form.factors.wide.sizes)]


def reads_own(read: Tensor, heads: int) -> bool:
    """Return whether each unit of a head reads the state of its own number, with weight one. It looks at values, which
    on a GPU would wait for the device, so there the answer is always no."""
    size, units = read.shape
    if read.device.type != "cpu" or size * heads != units:
        return False
    eye = torch.eye(size, dtype=read.dtype).unsqueeze(1).expand(size, heads, size)
    return torch.equal(read.view(size, heads, size), eye)
