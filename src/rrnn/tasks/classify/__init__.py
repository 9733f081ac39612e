"""Text classifiers: train them with any cell, evaluate them, and classify texts.

from rrnn.tasks import classify

result = classify.train(classify.ClassifyConfig.for_data("synthetic:not-good"), "runs/not-good")
print(result.model.predict(["the plot was not that good"]))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rrnn.tasks import export_lazily

if TYPE_CHECKING:
    from rrnn.tasks.classify.config import ClassifyConfig as ClassifyConfig
    from rrnn.tasks.classify.experiment import Summary as Summary
    from rrnn.tasks.classify.experiment import read_summary as read_summary
    from rrnn.tasks.classify.experiment import train as train
    from rrnn.tasks.classify.folds import CrossValidation as CrossValidation
    from rrnn.tasks.classify.folds import cross_validate as cross_validate
    from rrnn.tasks.classify.model import TextClassifier as TextClassifier
    from rrnn.tasks.classify.predict import predict_file as predict_file
    from rrnn.tasks.classify.prepare import Prepared as Prepared
    from rrnn.tasks.classify.prepare import prepare as prepare
    from rrnn.tasks.classify.search import search_classifier as search_classifier
    from rrnn.tasks.classify.single_units import who_learns_what as who_learns_what
    from rrnn.tasks.classify.trained import Prediction as Prediction
    from rrnn.tasks.classify.trained import Report as Report
    from rrnn.tasks.classify.trained import TrainedClassifier as TrainedClassifier
    from rrnn.tasks.classify.trained import evaluate as evaluate
    from rrnn.tasks.classify.trained import load as load

_EXPORTS = {
    "ClassifyConfig": "classify.config",
    "Summary": "classify.experiment",
    "read_summary": "classify.experiment",
    "train": "classify.experiment",
    "CrossValidation": "classify.folds",
    "cross_validate": "classify.folds",
    "TextClassifier": "classify.model",
    "who_learns_what": "classify.single_units",
    "predict_file": "classify.predict",
    "Prepared": "classify.prepare",
    "prepare": "classify.prepare",
    "search_classifier": "classify.search",
    "Prediction": "classify.trained",
    "Report": "classify.trained",
    "TrainedClassifier": "classify.trained",
    "evaluate": "classify.trained",
    "load": "classify.trained",
}

export_lazily(__name__, _EXPORTS)
