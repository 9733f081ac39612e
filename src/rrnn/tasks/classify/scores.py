"""Figures of classifiers: the macro-averaged F1, and the mean and deviation over several trainings."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


def macro_f1(correct: Sequence[float], labelled: Sequence[float], predicted: Sequence[float]) -> float:
    """Return the mean of the labels' F1 in per cent, from the numbers of texts with each label that are predicted
    correctly, that have the label, and for which it is predicted.

    A label that neither occurs nor is predicted does not count, as in scikit-learn.
    """
    both = [have + get for have, get in zip(labelled, predicted, strict=True)]
    found = [2 * right / count for right, count in zip(correct, both, strict=True) if count]
    return 100 * statistics.fmean(found) if found else 0.0


@dataclass(frozen=True)
class Spread:
    """The mean of several figures, and their standard deviation (0 for a single one)."""

    mean: float
    deviation: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.deviation:.2f}"

    @classmethod
    def of(cls, figures: Sequence[float]) -> Spread:
        """Return the mean and the sample standard deviation of at least one figure."""
        return cls(statistics.fmean(figures), statistics.stdev(figures) if len(figures) > 1 else 0.0)
