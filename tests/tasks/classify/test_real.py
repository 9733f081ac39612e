"""The paper's data, where it is at hand."""

from __future__ import annotations

import os

import pytest
from tiny_classifier import tiny_config

from rrnn.tasks.classify.experiment import train
from rrnn.tasks.classify.prepare import prepare

pytestmark = pytest.mark.skipif("RRNN_DATA" not in os.environ, reason="RRNN_DATA says where data sets lie")


def test_sst_with_glove() -> None:
    config = tiny_config(
        data="sst", vectors="glove", embedding_size=None, batch_size=64, cell="B", hidden_size=16
    )
    data = prepare(config)
    assert [len(labels) for _, labels in data.splits.values()] == [6920, 872, 1821]
    assert data.labels == ["negative", "positive"]
    assert data.vectors is not None and data.vectors.shape[1] == 100
    assert train(config.replace(epochs=3), data=data).summary.dev > 70


def test_subjectivity_is_split_by_a_seed() -> None:
    first, same, other = (
        prepare(tiny_config(data="subj", split_seed=seed)).splits["test"][0] for seed in (1, 1, 2)
    )
    assert all((a == b).all() for a, b in zip(first, same, strict=True))
    assert len(first) == len(other) == 1000 and [len(a) for a in first] != [len(b) for b in other]
