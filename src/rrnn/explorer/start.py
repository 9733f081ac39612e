"""What the page needs once: the examples, the paper's automata with numbers to begin with, and the pictures' style."""

from __future__ import annotations

from typing import Any

from rrnn.draw.richtext import name_text, plain
from rrnn.draw.svg import STYLE
from rrnn.explorer.machines import EXAMPLE, MAX_STRING, TEMPLATES
from rrnn.semirings import SEMIRINGS
from rrnn.zoo import CELLS, MODELS, get_cell


def start() -> dict[str, Any]:
    return {
        "style": STYLE,
        "page": {
            "cells": [
                {"name": name, "paper": MODELS[name].paper, "text": get_cell(name).to_text()}
                for name in CELLS
            ],
            "automata": [
                {
                    "name": name,
                    "says": template.says,
                    "functions": [
                        _named(function, values) for function, values in template.functions.items()
                    ],
                    "constants": [_named(constant, value) for constant, value in template.constants.items()],
                }
                for name, template in TEMPLATES.items()
            ],
            "semirings": list(SEMIRINGS),
            "example": EXAMPLE | {"longest": MAX_STRING},
        },
    }


def _named(name: str, value: Any) -> dict[str, Any]:
    return {"name": name, "label": plain(name_text(name)), "value": value}
