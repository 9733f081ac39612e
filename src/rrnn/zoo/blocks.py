"""The blocks in which published models use their recurrences, as settings of `rrnn.nn.Block`.

A row is data: what differs from the plainest block. `rrnn.nn.Block("Mamba", 512)` reads it, and options of the call
replace its settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rrnn.automata import Cell
from rrnn.automata import expressions as ex

_DELTA_RULE = {
    "conv": 4,
    "convolved": ("k", "q", "v"),
    "conv_bias": False,
    "normalised": ("k", "q"),
    "output_norm": "rms",
    "mlp": 8 / 3,
}

BLOCKS: dict[str, dict[str, Any]] = {
    # Gu and Dao 2023
    "Mamba": {"expand": 2, "inner": True, "conv": 4, "gate": True, "low_rank": {"delta": 1 / 16}},
    # Dao and Gu 2024
    "Mamba-2": {
        "expand": 2,
        "conv": 4,
        "convolved": ("input", "B", "C"),
        "gate": True,
        "gate_first": True,
        "output_norm": "rms",
        "norm_over": "group",
        "head_size": 64,
    },
    # Yang et al. 2024
    "GLA": {
        "low_rank": {"alpha": 16},
        "most_heads": 4,
        "output_norm": "rms",
        "gate": True,
        "mlp": 8 / 3,
    },
    # Sun et al. 2023; the MLP has the parameters of theirs
    "RetNet": {"expand": 2, "most_heads": 8, "output_norm": "rms", "gate": True, "mlp": 4 / 3},
    # Qin et al. 2024
    "HGRN2": {"head_size": 128, "silu": ("q",), "output_norm": "rms", "norm_over": "all", "mlp": 8 / 3},
    # Yang et al. 2024: parallelised DeltaNet, with short convolutions of keys, queries and values
    "DeltaNet": {**_DELTA_RULE, "head_size": 128},
    # Yang et al. 2025
    "Gated-DeltaNet": {**_DELTA_RULE, "expand": 1.5, "most_heads": 6, "gate": True},
    # Katharopoulos et al. 2020, with the output norm of its successors, since there is no normaliser
    "linear-attention": {"most_heads": 8, "norm": "layer", "output_norm": "layer", "mlp": 8 / 3},
    # Gu et al. 2022
    "S4D": {"norm": "layer", "activation": "gelu", "output": "glu", "bias": True},
    # Orvieto et al. 2023
    "LRU": {"norm": "layer", "mix": True, "activation": "gelu", "output": "glu"},
}
"""Model of the zoo → settings of its block. Models without a row have the plainest block. Runs refer to rows by name,
so a row stays as it is: a block that differs gets a name of its own."""


def fitted_settings(settings: Mapping[str, Any], cell: Cell) -> dict[str, Any]:
    """Return the settings of a block without those that name projections, or ask for heads, which a cell lacks."""
    leaves = [node for expression in cell.expressions() for node in ex.walk(expression)]
    names = {node.name for node in leaves if isinstance(node, ex.Linear)}
    names |= (
        {"input"} if any(isinstance(node, ex.Input) for node in leaves) or settings.get("inner") else set()
    )
    fitted = dict(settings)
    for key in ("convolved", "silu", "normalised"):
        if key in fitted:
            fitted[key] = tuple(name for name in fitted[key] if name in names)
    if fitted.get("convolved") == ():
        fitted.pop("convolved")
        fitted.pop("conv", None)
    if "low_rank" in fitted:
        fitted["low_rank"] = {name: rank for name, rank in fitted["low_rank"].items() if name in names}
    if not any(isinstance(node, (ex.Linear, ex.Parameter)) and node.per != "unit" for node in leaves):
        fitted = {key: value for key, value in fitted.items() if key not in ("head_size", "most_heads")}
    return fitted
