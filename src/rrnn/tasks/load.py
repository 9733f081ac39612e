"""`rrnn.load`: a trained model from its run's folder."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from rrnn import __version__
from rrnn.errors import RunError
from rrnn.tasks.runs import Run

# config["task"] → "module:function"; the function makes the model of a Run.
LOADERS: dict[str, str] = {
    "classify": "rrnn.tasks.classify.trained:load_run",
    "lm": "rrnn.tasks.lm.trained:load_run",
}


def load(folder: str | Path) -> Any:
    """The best model of a run, on the CPU: a `TrainedLanguageModel` or a text classifier, as its task is."""
    run = Run.open(folder)
    task = run.config["task"]
    if task not in LOADERS:
        raise RunError(
            f"the run in {folder} is of the task {task!r}, and rrnn {__version__} knows {', '.join(LOADERS)}: load it "
            "with the version that made it"
        )
    module, _, name = LOADERS[task].partition(":")
    function: Callable[[Run], Any] = getattr(import_module(module), name)
    return function(run)
