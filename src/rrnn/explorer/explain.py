"""*Explain*: a trained classifier, a sentence, and why."""

from __future__ import annotations

from typing import Any

from rrnn.errors import RunError


def explain(folder: str, text: str) -> dict[str, Any]:
    raise RunError("explaining runs is still to come")
