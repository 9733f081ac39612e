"""What exporters read from models, whatever they write: the weights of layers as arrays, and what must be refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rrnn.backends.reference import per_unit_values
from rrnn.errors import ExportError
from rrnn.ir import Program
from rrnn.nn.affine import AffineRNN
from rrnn.nn.layer import RationalLayer
from rrnn.nn.rnn import RationalRNN
from rrnn.tasks.classify.model import TextClassifier
from rrnn.tasks.lm.model import title_of


def finite(array: np.ndarray, what: str = "the model") -> np.ndarray:
    """Return an array of weights, or raise an `ExportError` if one of them is not a finite number."""
    wrong = array[~np.isfinite(array)]
    if wrong.size:
        name = "NaN" if math.isnan(float(wrong[0])) else "infinite"
        raise ExportError(
            f"a weight of {what} is {name}, so the model cannot be used: train it again, or load another checkpoint"
        )
    return array


def cell_tables(layer: RationalLayer) -> list[Tensor]:
    """Return the parameters of each cell of a layer, (P, units), or one row of them all for a cell with families."""
    rows = layer.parameter_rows(layer.weight)
    return [params if isinstance(params, Tensor) else torch.stack(list(params)) for params in rows]


def unit_constants(program: Program, table: Tensor, units: int) -> dict[int, np.ndarray]:
    """Return the values in float64 that a step reads and that depend on parameters alone, by instruction of
    `program.flat`: they are computed once, at the export. Each is (units,), or (families, units) where it depends on
    the index of one."""
    flat = program.flat
    found = per_unit_values(flat, finite_tensor(table), units)
    wanted = flat.needed_for([o.value for o in flat.outputs if o.kind in ("state", "output")])
    read = {a for n in wanted - flat.per_unit for a in flat.instructions[n].args}
    read |= {o.value for o in flat.outputs}
    return {
        n: (v if flat.over[n] else v.flatten()).cpu().numpy()
        for n, v in found.items()
        if n in read and v.dim()
    }


def finite_tensor(tensor: Tensor) -> Tensor:
    """Return a parameter in float64 on the CPU, checked to be finite."""
    finite(tensor.detach().cpu().double().numpy())
    return tensor.detach().cpu().double()


def lag_matrix(layer: RationalLayer, lag: int) -> Tensor:
    """Return the weights of the input `lag` steps earlier, with all rows of `weight`: a projection whose window does
    not reach so far back has zeros."""
    if lag == 0:
        return layer.matrix().detach()
    matrix = torch.zeros_like(layer.matrix())
    for r in layer.lag_rows[lag]:
        matrix[r.start : r.stop] = layer.lagged[str(lag)][r.of_lag(lag)].detach()
    return matrix.detach()


def first_state_arrays(module: RationalRNN | AffineRNN) -> list[tuple[list[np.ndarray], np.ndarray | None]]:
    """Return the state before the first step of each direction of each layer: (stored states (S, units) per cell,
    history (K − 1, inputs) or None), in float64."""

    def array(value: Tensor) -> np.ndarray:
        return value.detach().cpu().double().numpy()

    if isinstance(module, AffineRNN):
        return [([array(module.init_state(1))], None)]
    return [
        ([array(s[:, 0]) for s in states], None if history is None else array(history[:, 0]))
        for states, history in module.init_state(1)
    ]


# ---- refusals --------------------------------------------------------------------------------------------------------


def check_layer(module: Any, format: str, known: Sequence[type[nn.Module]]) -> None:
    """Raise an `ExportError` unless a layer is one of the `known` kinds."""
    if not isinstance(module, tuple(known)):
        names = ", ".join(kind.__name__ for kind in known)
        raise ExportError(
            f"{title_of(module)} is not a layer that can be exported to {format}: these are the rational "
            f"recurrences {names}. For torch's own layers, blocks and other modules use torch.onnx.export, with "
            "custom_translation_table=rrnn.onnx_translations() if there is a cell inside."
        )


def check_classifier(module: TextClassifier) -> None:
    """Raise an `ExportError` for a classifier that does more than run layers over embedded words."""
    if module.spelling is not None:
        raise ExportError(
            "a classifier that reads letters (characters > 0) cannot be exported: its words have features of their "
            "letters, computed outside the layers. Train one with characters=0."
        )
    if module.rules is not None:
        raise ExportError(
            "a classifier that starts from rules cannot be exported: its rules are units beside the layers. Train one "
            "without rules, or run this one with rrnn."
        )


def export_dtype(module: nn.Module) -> np.dtype[Any]:
    """Return the dtype of an exported graph: that of the parameters, float32 or float64."""
    dtypes = {p.dtype for p in module.parameters()} or {torch.float32}
    known = {torch.float32: np.dtype(np.float32), torch.float64: np.dtype(np.float64)}
    if len(dtypes) > 1 or not dtypes <= set(known):
        got = ", ".join(sorted(str(d) for d in dtypes))
        raise ExportError(
            f"a model is exported in float32 or float64; this one has parameters of {got}. Convert it first: "
            "model.float()"
        )
    return known[dtypes.pop()]
