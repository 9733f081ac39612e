"""CUDA graphs do what the same function does without them; trainings in threads do what they do alone."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from tiny_texts import tiny, tiny_config

from rrnn.tasks.classify.train import train
from rrnn.tasks.classify.trainer import ClassifyTask
from rrnn.tasks.search_workers import side_by_side
from rrnn.tasks.training import fit

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("cell", ["F", "B-max-plus", "LSTM"])
@pytest.mark.parametrize("vectors", [True, False])
def test_graphs_equal_eager_steps(cell: str, vectors: bool) -> None:
    """Dropout included: a graph draws the random numbers that the steps would have drawn."""
    config = tiny_config(cell=cell, device="cuda", epochs=4, recurrent_dropout=0.3, embedding_dropout=0.3)
    tasks = [ClassifyTask(tiny(config, vectors=vectors), device="cuda", capture=c) for c in (True, False)]
    histories = [fit(task, epochs=4).history for task in tasks]
    assert tasks[0].graphs._graphs and not tasks[1].graphs._graphs
    for ours, theirs in zip(*histories, strict=True):
        assert ours["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-3)
        assert ours["dev_loss"] == pytest.approx(theirs["dev_loss"], rel=1e-3)


def test_gpu_learns_what_a_cpu_learns() -> None:
    config = tiny_config(epochs=4, recurrent_dropout=0.0, embedding_dropout=0.0, vertical_dropout=0.0)
    losses = [
        fit(ClassifyTask(tiny(config), device=device), epochs=4).history[-1]["train_loss"]
        for device in ("cpu", "cuda")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)


def test_resumed_under_graphs() -> None:
    config = tiny_config(device="cuda", epochs=4)
    whole = ClassifyTask(tiny(config), device="cuda")
    fit(whole, epochs=4)
    first = ClassifyTask(tiny(config), device="cuda")
    fit(first, epochs=2)
    second = ClassifyTask(tiny(config), device="cuda")
    second.load_state(*first.state())
    for epoch in (3, 4):
        for index in range(second.begin_epoch(epoch)):
            second.step(index)
        second.end_epoch(epoch, second.evaluate("dev"))
    for name, tensor in whole.weights().items():
        torch.testing.assert_close(second.weights()[name], tensor, rtol=1e-3, atol=1e-4)


def test_threads_equal_one_after_another() -> None:
    configs = [tiny_config(device="cuda", epochs=5, hidden_size=n) for n in (8, 12, 16, 20)]
    data = tiny(configs[0])
    job = partial(train, data=data)
    alone = {c.hidden_size: r.summary for c, r in side_by_side(job, configs)}
    together = {c.hidden_size: r.summary for c, r in side_by_side(job, configs, threads=4)}
    assert [alone[n].dev for n in sorted(alone)] == [together[n].dev for n in sorted(together)]
    assert [alone[n].test for n in sorted(alone)] == [together[n].test for n in sorted(together)]
