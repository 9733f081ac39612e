"""Language models: train them with any cell, evaluate them, and generate text.

from rrnn.tasks import lm

result = lm.train(lm.preset("tiny", cell="F"), "runs/f")
print(result.model.generate("The value"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rrnn.tasks import export_lazily

if TYPE_CHECKING:
    from rrnn.tasks.lm.config import PRESETS as PRESETS
    from rrnn.tasks.lm.config import LMConfig as LMConfig
    from rrnn.tasks.lm.config import preset as preset
    from rrnn.tasks.lm.experiment import Summary as Summary
    from rrnn.tasks.lm.experiment import count_parameters as count_parameters
    from rrnn.tasks.lm.experiment import prepare as prepare
    from rrnn.tasks.lm.experiment import solve_hidden_size as solve_hidden_size
    from rrnn.tasks.lm.experiment import train as train
    from rrnn.tasks.lm.model import LanguageModel as LanguageModel
    from rrnn.tasks.lm.trained import TrainedLanguageModel as TrainedLanguageModel
    from rrnn.tasks.lm.trained import evaluate as evaluate
    from rrnn.tasks.lm.trained import generate as generate
    from rrnn.tasks.lm.trained import load as load

_EXPORTS = {
    "LMConfig": "lm.config",
    "PRESETS": "lm.config",
    "preset": "lm.config",
    "Summary": "lm.experiment",
    "count_parameters": "lm.experiment",
    "prepare": "lm.experiment",
    "solve_hidden_size": "lm.experiment",
    "train": "lm.experiment",
    "LanguageModel": "lm.model",
    "TrainedLanguageModel": "lm.trained",
    "evaluate": "lm.trained",
    "generate": "lm.trained",
    "load": "lm.trained",
}

export_lazily(__name__, _EXPORTS)
