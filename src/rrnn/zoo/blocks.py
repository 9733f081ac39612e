"""The blocks in which published models use their recurrences, as settings of `rrnn.nn.Block`.

A row is data: what differs from the plainest block. `rrnn.nn.Block("Mamba", 512)` reads it, and options of the call
replace its settings.
"""

from __future__ import annotations

from typing import Any

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
    # Katharopoulos et al. 2020, with the output norm of its successors, since there is no normaliser
    "linear-attention": {"most_heads": 8, "norm": "layer", "output_norm": "layer", "mlp": 8 / 3},
    # Gu et al. 2022
    "S4D": {"norm": "layer", "activation": "gelu", "output": "glu", "bias": True},
    # Orvieto et al. 2023
    "LRU": {"norm": "layer", "mix": True, "activation": "gelu", "output": "glu"},
}
"""Model of the zoo → settings of its block. Models without a row have the plainest block. Runs refer to rows by name,
so a row stays as it is: a block that differs gets a name of its own."""
