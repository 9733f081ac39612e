"""The ranges from which the paper's random search for text classifiers draws: its appendix's table."""

from __future__ import annotations

from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.search import Real, Setting, Space, Whole, draw_setting

PAPER: Space = {
    # In steps of four, so that the rows of matrices begin at multiples of 16 bytes: products on GPUs need that.
    "hidden_size": Whole(100, 300, step=4),
    "vertical_dropout": Real(0.0, 0.5),
    "recurrent_dropout": Real(0.0, 0.5),
    "embedding_dropout": Real(0.0, 0.5),
    "lr": Real(1e-4, 1e-2, log=True),
    "l2": Real(1e-7, 1e-5, log=True),
    "clip": Real(1.0, 5.0),
}


def settings(base: ClassifyConfig, count: int, seed: int = 0, space: Space = PAPER) -> list[ClassifyConfig]:
    """Return the first `count` settings that `rrnn classify search` draws with this seed."""
    return [with_setting(base, draw_setting(space, seed, number)) for number in range(count)]


def with_setting(base: ClassifyConfig, setting: Setting) -> ClassifyConfig:
    """Return the configuration with a setting's values in place of its own."""
    return base.replace(**setting)
