"""What the paper's random search for text classifiers draws from: its appendix's table of hyper-parameters."""

from __future__ import annotations

from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.search import Real, Setting, Space, Whole, draw_setting

PAPER: Space = {
    # In steps of four, so that rows of matrices begin at multiples of 16 bytes, which GPUs' products want.
    "hidden_size": Whole(100, 300, step=4),
    "vertical_dropout": Real(0.0, 0.5),
    "recurrent_dropout": Real(0.0, 0.5),
    "embedding_dropout": Real(0.0, 0.5),
    "lr": Real(1e-4, 1e-2, log=True),
    "l2": Real(1e-7, 1e-5, log=True),
    "clip": Real(1.0, 5.0),
}


def settings(base: ClassifyConfig, count: int, seed: int = 0, space: Space = PAPER) -> list[ClassifyConfig]:
    """The first so many settings of a random search: those that `rrnn classify search` draws, too."""
    return [with_setting(base, draw_setting(space, seed, number)) for number in range(count)]


def with_setting(base: ClassifyConfig, setting: Setting) -> ClassifyConfig:
    return base.replace(**setting)
