from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from kernel_cases import needs_interpreter
from tiny_classifier import tiny, tiny_config

from rrnn.errors import RunError
from rrnn.tasks import update
from rrnn.tasks.classify.trainer import ClassifyTask
from rrnn.tasks.training import fit

STILL: dict[str, Any] = {
    "embedding_dropout": 0.0,
    "recurrent_dropout": 0.0,
    "vertical_dropout": 0.0,
}


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "PARTIALS", 2)  # the interpreter runs one after another


WAYS = pytest.mark.parametrize(
    "kernels", [False, pytest.param(True, marks=[needs_interpreter, pytest.mark.slow])]
)


@WAYS
@pytest.mark.parametrize("cell", ["F", "LSTM"])
@pytest.mark.parametrize("clip", [0.05, 1e3])  # always, never: what is clipped has lost the loss's scale
def test_a_step_is_adam_on_the_mean_loss_of_its_texts(clip: float, cell: str, kernels: bool) -> None:
    """Against one text after another, without padding, and an Adam written out."""
    config = tiny_config(**STILL, cell=cell, l2=1e-2, clip=clip, batch_size=7)
    data = tiny(config)
    task, twin = ClassifyTask(data, kernels=kernels), ClassifyTask(data)
    parameters = list(twin.model.parameters())
    m, v = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    texts, labels = data.splits["train"]
    steps = task.begin_epoch(1)
    assert steps == 9  # the last of them is not full
    for index in range(steps):
        rows = [row for row in task.plan[index].rows.tolist() if row >= 0]
        losses = [
            F.cross_entropy(
                twin.model(torch.from_numpy(texts[row]).unsqueeze(1), torch.tensor([len(texts[row])])),
                torch.tensor([labels[row]]),
            )
            for row in rows
        ]
        grads = torch.autograd.grad(torch.stack(losses).mean(), parameters)
        norm = torch.sqrt(sum((g**2).sum() for g in grads))  # pyright: ignore
        with torch.no_grad():
            for i, (p, g) in enumerate(zip(parameters, grads, strict=True)):
                g = g * min(1.0, clip / (float(norm) + 1e-6)) + 1e-2 * p
                m[i], v[i] = 0.9 * m[i] + 0.1 * g, 0.999 * v[i] + 0.001 * g**2
                m_hat, v_hat = m[i] / (1 - 0.9 ** (index + 1)), v[i] / (1 - 0.999 ** (index + 1))
                p -= config.lr * m_hat / (v_hat.sqrt() + 1e-8)
        task.step(index)
    for ours, theirs in zip(task.parameters, parameters, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_it_learns() -> None:
    task = ClassifyTask(tiny(tiny_config(**STILL, hidden_size=16)))
    before = task.evaluate("train")["loss"]
    fit(task, epochs=25)
    after = task.evaluate("train")
    assert after["loss"] < 0.5 * before and after["accuracy"] > 85


def test_evaluation_counts_every_text_once() -> None:
    data = tiny(tiny_config())
    task = ClassifyTask(data)
    texts, labels = data.splits["dev"]
    task.model.eval()
    logits = [task.model(torch.from_numpy(text).unsqueeze(1), torch.tensor([len(text)]))[0] for text in texts]
    right = sum(int(row.argmax()) == label for row, label in zip(logits, labels, strict=True))
    found = task.evaluate("dev")
    assert found["accuracy"] == pytest.approx(100 * right / len(texts))
    expected = F.cross_entropy(torch.stack(logits), torch.tensor(labels))
    assert found["loss"] == pytest.approx(expected.item(), rel=1e-5)


def test_the_rate_is_halved_and_training_stops() -> None:
    task = ClassifyTask(tiny(tiny_config(halve_after=2, stop_after=5, lr=0.5)))
    stops = [task.end_epoch(epoch, {"accuracy": 50.0}) for epoch in range(1, 7)]
    assert stops == [False, False, False, False, False, True]
    assert float(task.lr) == 0.5 / 4  # after two and after four epochs without a gain
    assert task.end_epoch(7, {"accuracy": 51.0}) is False and task.waited == 0


@WAYS
def test_steps_follow_the_rate(kernels: bool) -> None:
    """Adam's first step is the rate in every direction."""
    task = ClassifyTask(tiny(tiny_config(**STILL, l2=0.0, halve_after=1, lr=1e-2)), kernels=kernels)
    task.best = 60.0
    task.end_epoch(1, {"accuracy": 50.0})
    before = task.model.readout[0].weight.detach().clone()
    task.begin_epoch(2)
    task.step(0)
    moved = (task.model.readout[0].weight.detach() - before).abs()
    torch.testing.assert_close(moved.max(), torch.tensor(5e-3), rtol=1e-3, atol=0)


@WAYS
def test_averages_are_evaluated_and_the_weights_are_trained(kernels: bool) -> None:
    data = tiny(tiny_config(average=0.8))
    plain_data = data.of(data.config.replace(average=0.0))
    task, plain = ClassifyTask(data, kernels=kernels), ClassifyTask(plain_data, kernels=kernels)
    averages = [parameter.detach().clone() for parameter in plain.parameters]
    for index in range(plain.begin_epoch(1)):
        plain.step(index)
        share = max(0.2, 1 / (index + 1))  # a plain mean at first
        averages = [
            (1 - share) * a + share * p.detach() for a, p in zip(averages, plain.parameters, strict=True)
        ]
    fit(task, epochs=1)
    for ours, theirs in zip(task.parameters, plain.parameters, strict=True):
        assert torch.equal(ours, theirs)  # after an evaluation, too
    names = [name for name, _ in plain.model.named_parameters()]
    for name, average in zip(names, averages, strict=True):
        torch.testing.assert_close(task.weights()[name], average)
    plain.load_weights(task.weights())
    assert task.evaluate("dev") == plain.evaluate("dev")
    kept = task.weights()
    task.begin_epoch(2)
    task.step(0)
    assert not any(torch.equal(task.weights()[name], kept[name]) for name in names)
    task.load_weights(kept)  # the best are evaluated once more, at the end
    assert all(torch.equal(task.weights()[name], tensor) for name, tensor in kept.items())
    assert task.evaluate("dev") == plain.evaluate("dev")


@pytest.mark.slow
@needs_interpreter
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("cell", ["F", "LSTM"])
def test_either_way_of_updating_goes_on_with_the_others_checkpoint(cell: str, first: bool) -> None:
    data = tiny(tiny_config(**STILL, cell=cell, average=0.8))
    whole, begun, resumed = (ClassifyTask(data, kernels=kernels) for kernels in (first, first, not first))
    for task in (whole, begun):
        task.begin_epoch(1)
        for index in range(3):
            task.step(index)
    resumed.load_state(*begun.state())
    resumed.begin_epoch(1)
    for index in range(3, 6):
        whole.step(index)
        resumed.step(index)
    for ours, theirs in zip(resumed.parameters, whole.parameters, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    for name, ours in resumed.weights().items():
        torch.testing.assert_close(ours, whole.weights()[name], rtol=1e-4, atol=1e-5)


def test_a_run_may_change_its_device() -> None:
    """Generators' states are of one kind of device: on another, masks are those of the seed."""
    first, second = (ClassifyTask(tiny(tiny_config())) for _ in range(2))
    first.begin_epoch(1)
    first.step(0)
    tensors, meta = first.state()
    second.load_state(tensors | {"generator": torch.zeros(16, dtype=torch.uint8)}, meta)  # as a GPU's
    assert all(torch.equal(p, q) for p, q in zip(second.parameters, first.parameters, strict=True))


@WAYS
def test_a_checkpoint_from_before_the_first_step_begins_anew(kernels: bool) -> None:
    """Saved by torch's optimiser, which has no moments yet; loaded where there are some."""
    data = tiny(tiny_config(**STILL, average=0.8))
    fresh, used = ClassifyTask(data, kernels=False), ClassifyTask(data, kernels=kernels)
    state = fresh.state()
    used.begin_epoch(1)
    used.step(0)
    used.load_state(*state)
    for task in (fresh, used):
        task.begin_epoch(1)
        for index in range(2):
            task.step(index)
    for ours, theirs in zip(used.parameters, fresh.parameters, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_an_evaluation_that_fails_leaves_the_weights_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    task = ClassifyTask(tiny(tiny_config(average=0.8)))
    task.begin_epoch(1)
    task.step(0)
    before = [parameter.detach().clone() for parameter in task.parameters]
    monkeypatch.setattr(task, "_add_up", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        task.evaluate("dev")
    assert all(torch.equal(a, b) for a, b in zip(before, task.parameters, strict=True))


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_a_resumed_training_is_the_same_training(average: float) -> None:
    """From the middle of an epoch, dropout included."""
    data = tiny(tiny_config(average=average))
    whole, first, second = (ClassifyTask(data) for _ in range(3))

    def epoch(task: ClassifyTask, number: int, start: int = 0, stop: int | None = None) -> None:
        steps = task.begin_epoch(number)
        for index in range(start, steps if stop is None else stop):
            task.step(index)

    epoch(whole, 1)
    whole.end_epoch(1, whole.evaluate("dev"))
    epoch(whole, 2)

    epoch(first, 1)
    first.end_epoch(1, first.evaluate("dev"))
    epoch(first, 2, stop=3)
    tensors, meta = first.state()
    second.load_state({name: tensor.clone() for name, tensor in tensors.items()}, meta)
    epoch(second, 2, start=3)
    assert second.best == whole.best and second.measure()["loss"] > 0
    for name, tensor in whole.weights().items():
        assert torch.equal(second.weights()[name], tensor), name


def test_weights_are_copies() -> None:
    """What was best stays as it was, and a model may go back to it as often as it likes."""
    task = ClassifyTask(tiny(tiny_config()))
    kept = task.weights()
    before = {name: tensor.clone() for name, tensor in kept.items()}
    for _ in range(2):
        for index in range(task.begin_epoch(1)):
            task.step(index)
        assert any(not torch.equal(task.weights()[name], before[name]) for name in before)
        task.load_weights(kept)
        assert all(torch.equal(kept[name], before[name]) for name in before)
        assert all(torch.equal(task.weights()[name], before[name]) for name in before)


def test_two_trainings_from_one_state_do_not_share_it() -> None:
    first, second = (ClassifyTask(tiny(tiny_config())) for _ in range(2))
    fit(first, epochs=1)
    state = first.state()
    before = {name: tensor.clone() for name, tensor in state[0].items()}
    second.load_state(*state)
    for index in range(second.begin_epoch(2)):
        second.step(index)
    assert all(torch.equal(state[0][name], tensor) for name, tensor in before.items())


def test_a_checkpoint_of_another_model_is_refused() -> None:
    small, large = (ClassifyTask(tiny(tiny_config(hidden_size=n))) for n in (4, 8))
    with pytest.raises(RunError, match="belongs to another model"):
        large.load_state(*small.state())
