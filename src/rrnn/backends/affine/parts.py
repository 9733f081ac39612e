"""Compute the matrix and the entry of an affine program from what it reads, with torch's own ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from rrnn.backends.extents import ordered, spread
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


def matrix_and_entry(
    program: Program, projections: Mapping[str, Tensor], parameters: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor]:
    """Return the matrix (…, target, source) and the entry (…, target) of an affine program of one head, from its
    projections (…, indices) and parameters (indices,) by name."""
    form = form_of(program)
    given = {leaf.n: leaf for leaf in _leaves_of(form)}
    places = [form.factors.of_kind("factor")[k] for k in (MATRIX, ENTRY)]
    if all(n in given for n in places):  # there is nothing to compute
        matrix, entry = ((projections if given[n].projected else parameters)[given[n].name] for n in places)
        as_is = given[places[0]].extent.over == (form.target, form.source)
        return matrix if as_is else matrix.mT, entry
    values = {
        n: _placed(form, extent, (projections if projected else parameters)[name])
        for n, name, projected, extent in _leaves_of(form)
    }
    matrix, entry = _computed(form, values)
    return matrix.squeeze(-1), entry.squeeze(-1)


def _placed(form: Affine, extent: Extent, value: Tensor) -> Tensor:
    """Return a value (…, indices of an extent) with one axis for each family, and one of a single lane."""
    leading = value.dim() - len(extent.over)
    value = ordered(value.unsqueeze(-1), extent.over, back=False)
    return _shaped(value, (*value.shape[:leading], *_axes(form, extent.over), 1))


def _shaped(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a value in another shape. (`reshape` takes time even where there is nothing to do.)"""
    return value if value.shape == shape else value.reshape(shape)


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
        whole = (*leading, *axes, lanes)
        value = value if value.shape == whole else value.expand(whole)
        found.append(_shaped(value, (*leading, *([form.size] * len(over)), lanes)))
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
