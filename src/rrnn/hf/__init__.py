"""Models for Hugging Face's transformers: `import rrnn.hf`, then `AutoModelForCausalLM.from_pretrained(folder)`.

This needs the extra `rrnn[hf]`; nothing else of rrnn imports it.
"""

from __future__ import annotations

from rrnn.errors import ExportError

try:
    import transformers as _  # noqa: F401
except ImportError as error:
    raise ExportError(
        f"models for transformers need the package transformers ({error}). Run: pip install 'rrnn[hf]'"
    ) from None

from rrnn.hf.config import RRNNConfig
from rrnn.hf.convert import from_transformers, save_folder, to_transformers
from rrnn.hf.models import RRNNForCausalLM, RRNNForSequenceClassification, RRNNModel

__all__ = [
    "RRNNConfig",
    "RRNNForCausalLM",
    "RRNNForSequenceClassification",
    "RRNNModel",
    "from_transformers",
    "save_folder",
    "to_transformers",
]
