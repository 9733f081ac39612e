"""CUDA graphs do what the same function does without them; trainings in threads do what they do alone."""

from __future__ import annotations

import gc
from functools import partial

import pytest
import torch
from tiny_classifier import tiny, tiny_config

from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.experiment import Result, Summary, train
from rrnn.tasks.classify.trainer import ClassifyTask
from rrnn.tasks.graphs import Graphs
from rrnn.tasks.training import fit
from rrnn.tasks.workers import side_by_side

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("cell", ["F", "B-max-plus", "LSTM"])
@pytest.mark.parametrize("vectors", [True, False])
def test_graphs_equal_eager_steps(cell: str, vectors: bool) -> None:
    """Dropout included: a graph draws the random numbers that the steps would have drawn."""
    config = tiny_config(
        cell=cell, device="cuda", epochs=4, recurrent_dropout=0.3, embedding_dropout=0.3, word_dropout=0.1
    )
    config = config.replace(average=0.9, characters=3) if vectors else config
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


# ---- streams ---------------------------------------------------------------------------------------------------------

CYCLES = 1_000_000_000  # about half a second


def test_the_best_weights_do_not_wait_on_a_busy_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last epoch is the best, and the stream that everybody shares is far behind: were the best weights copied
    there, the test would be of memory that nobody has written."""
    config = tiny_config(device="cuda", epochs=1)
    data, honest = tiny(config), ClassifyTask.weights
    quiet = train(config, data=data)
    seen: dict[str, torch.Tensor] = {}

    def late(task: ClassifyTask) -> dict[str, torch.Tensor]:
        found = honest(task)
        seen.update({name: tensor.cpu() for name, tensor in found.items()})
        torch.cuda._sleep(CYCLES)
        return found

    monkeypatch.setattr(ClassifyTask, "weights", late)
    busy = train(config, data=data)
    assert (busy.summary.dev, busy.summary.test) == (quiet.summary.dev, quiet.summary.test)
    for name, tensor in busy.model.module.state_dict().items():
        assert torch.equal(tensor.cpu(), seen[name]), name


def test_weights_come_and_go_between_streams() -> None:
    task = ClassifyTask(tiny(tiny_config(device="cuda")), device="cuda")
    torch.cuda._sleep(CYCLES)
    ones = {name: torch.ones_like(tensor) for name, tensor in task.model.state_dict().items()}
    with task.graphs.on_stream():
        torch.cuda._sleep(CYCLES)
    task.load_weights(ones)
    assert all(bool((tensor == 1).all()) for tensor in task.model.state_dict().values())
    with task.graphs.on_stream():
        torch.cuda._sleep(CYCLES)
        for parameter in task.parameters:
            parameter.data.fill_(2.0)
    assert all(bool((tensor == 2).all()) for tensor in task.weights().values())


def test_the_first_evaluation_after_best_weights_are_loaded_is_theirs() -> None:
    """On texts never evaluated before: some batches run as they are, others are captured or replayed."""
    config = tiny_config(device="cuda", epochs=6)
    task = ClassifyTask(tiny(config), device="cuda")
    best = fit(task, epochs=6).best
    assert best is not None
    task.load_weights(best.weights)
    found = [task.evaluate("test") for _ in range(3)]
    eager = ClassifyTask(tiny(config), device="cuda", capture=False)
    eager.load_weights(best.weights)
    theirs = eager.evaluate("test")
    for ours in found:
        assert ours["accuracy"] == theirs["accuracy"]
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
    assert task.evaluate("dev")["accuracy"] == best.value


def test_no_two_trainings_have_one_stream() -> None:
    device, config = torch.device("cuda"), tiny_config(device="cuda")
    kept = ClassifyTask(tiny(config), device=device).graphs
    streams = {Graphs(device, kept.generator).stream for _ in range(80)}
    assert kept.stream not in streams


def test_a_closed_one_leaves_its_stream_to_the_next() -> None:
    gc.collect()  # those of other tests
    device, generator = torch.device("cuda"), torch.Generator("cuda")
    first, other = (Graphs(device, generator) for _ in range(2))
    stream = first.stream
    first.close()
    again = Graphs(device, generator)
    assert again.stream == stream != other.stream


def test_many_trainings_take_no_more_memory_than_a_few() -> None:
    """Also of what torch keeps for itself: trainings in other processes cannot have that."""
    config = tiny_config(device="cuda", epochs=3)
    reserved = []
    for seed in range(8):
        train(config.replace(seed=seed), data=tiny(config))
        reserved.append(torch.cuda.memory_reserved())
    assert max(reserved[2:]) <= reserved[1], reserved


def test_processes_equal_one_after_another() -> None:
    configs = [tiny_config(device="cuda", epochs=2, hidden_size=n) for n in (8, 12, 16, 20)]
    job = partial(train, data=tiny(configs[0]))
    alone = {c.hidden_size: r.summary for c, r in side_by_side(job, configs)}
    together = {c.hidden_size: r for c, r in side_by_side(partial(_summary, job), configs, processes=4)}
    for n in alone:
        assert (alone[n].dev, alone[n].test) == (together[n].dev, together[n].test)


def _summary(job: partial[Result], config: ClassifyConfig) -> Summary:
    return job(config).summary
