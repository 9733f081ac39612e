"""The training step against one as a person would write it; resuming; schedules; averages; low precision."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from rrnn.errors import DataError, RunError
from rrnn.tasks.lm.config import LMConfig
from rrnn.tasks.lm.model import LanguageModel, model_of
from rrnn.tasks.lm.trainer import LanguageTask
from rrnn.tasks.training import Group

WORDS = 40
QUIET = {
    "embedding_dropout": 0.0,
    "output_dropout": 0.0,
    "between_dropout": 0.0,
    "recurrent_dropout": 0.0,
}


def text(length: int = 390) -> Tensor:
    return torch.tensor([(i * i + i // 7) % 31 + 1 for i in range(length)])


def config_of(cell: str = "F", **options: Any) -> LMConfig:
    values = {"hidden_size": 12, "batch_size": 4, "bptt": 9, "weight_decay": 1e-3, "seed": 3} | options
    return LMConfig(cell=cell, **values).resolved(values["hidden_size"])


def task_of(config: LMConfig, ids: Tensor | None = None, **options: Any) -> LanguageTask:
    torch.manual_seed(0)
    device = options.pop("device", "cpu")
    model = model_of(config, WORDS, start=0).to(device)
    ids = text() if ids is None else ids
    return LanguageTask(model, {"train": ids, "dev": ids[:90], "test": ids[50:150]}, config, **options)


def run(task: LanguageTask, epoch: int) -> dict[str, float]:
    for index in range(task.begin_epoch(epoch)):
        task.step(index)
    return task.measure()


def weights(task: LanguageTask) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in task.model.named_parameters()}


# ---- the twin --------------------------------------------------------------------------------------------------------


def train_by_hand(model: LanguageModel, ids: Tensor, config: LMConfig) -> float:
    """One epoch without dropout: modules, autograd, torch's clipping. Returns the mean loss of a token."""
    length = (len(ids) - 1) // config.batch_size
    x = torch.stack([ids[b * length : (b + 1) * length] for b in range(config.batch_size)], 1)
    y = torch.stack([ids[b * length + 1 : (b + 1) * length + 1] for b in range(config.batch_size)], 1)
    rate = config.lr or 0.0
    with torch.no_grad():
        state, total = model.first_state(config.batch_size), 0.0
    for start in range(0, length, config.bptt):
        words, targets = x[start : start + config.bptt], y[start : start + config.bptt]
        embedded = F.embedding(words, model.embedding)
        raw, state = model.rnn(embedded, state)
        scores = model.scores(raw)
        loss = F.cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="sum") / config.batch_size
        total += float(loss.detach())
        if config.ar:
            loss = loss + len(words) * config.ar * raw.square().mean()
        if config.tar and len(words) > 1:
            loss = loss + len(words) * config.tar * (raw[1:] - raw[:-1]).square().mean()
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        with torch.no_grad():
            for p in model.parameters():
                assert p.grad is not None
                p.mul_(1 - config.weight_decay).sub_(rate * p.grad)
        state = tree_map_only(Tensor, torch.detach, state)
    return total / length


@pytest.mark.parametrize(
    ("cell", "options"),
    [
        ("F", {"layers": 2}),
        ("F", {"layers": 3, "embedding_size": 8}),
        ("F", {"layers": 2, "ar": 0.3, "tar": 0.2, "clip": 0.1}),
        ("B-max-plus", {"layers": 1}),
        ("QRNN2", {"layers": 1}),
        ("lstm", {"layers": 2, "embedding_size": 8}),
        ("gru", {"layers": 1}),
    ],
)
def test_an_epoch_by_hand(cell: str, options: dict[str, Any]) -> None:
    """Windows, the shorter last one, the carried state, tied gradients, clipping, decay."""
    config = config_of(cell, **options, **QUIET)
    task = task_of(config)
    assert task.length % config.bptt  # the last window is shorter
    torch.manual_seed(0)
    by_hand = model_of(config, WORDS)
    for epoch in (1, 2):  # the second begins with the state after the start symbol again
        measured = run(task, epoch)
        loss = train_by_hand(by_hand, text(), config)
        assert math.isclose(measured["loss"], loss, rel_tol=1e-4)
        assert measured["tokens"] == task.length * config.batch_size
    for name, p in by_hand.named_parameters():
        torch.testing.assert_close(weights(task)[name], p.detach(), rtol=2e-3, atol=2e-5, msg=name)


def test_penalties_by_hand() -> None:
    """Of what the softmax sees, and of the changes before dropout; as much as a window has steps."""
    task = task_of(config_of(ar=2.0, tar=3.0, output_dropout=0.5))
    seen, raw = torch.randn(5, 4, 12), torch.randn(5, 4, 12)
    ar, tar = task._penalties(seen, raw)
    assert float(ar) == pytest.approx(5 * 2 * float((seen**2).mean()), rel=1e-5)
    assert float(tar) == pytest.approx(5 * 3 * float(((raw[1:] - raw[:-1]) ** 2).mean()), rel=1e-5)
    assert len(list(task._penalties(seen[:1], raw[:1]))) == 1  # one step has no change


def test_bfloat16_stays_close() -> None:
    for cell in ("F", "lstm"):
        losses = []
        for precision in ("fp32", "bf16"):
            sizes = {"layers": 2, "embedding_size": 8}
            task = task_of(config_of(cell, **sizes, precision=precision, lr=0.3, **QUIET))
            losses.append([run(task, epoch)["loss"] for epoch in (1, 2)][-1])
            assert all(p.dtype == torch.float32 for p in task.model.parameters())
            for segment in task.store.segments:
                assert segment.low is None or torch.equal(segment.low, segment.flat.bfloat16())
        assert math.isclose(*losses, rel_tol=0.03)


def test_vectors_are_not_rounded() -> None:
    """Biases are added, not multiplied: bf16 would lose what they learn. (torch's layers want one dtype.)"""
    task = task_of(config_of("F", layers=2, precision="bf16"))
    for name, weight in task.store.working.items():
        assert weight.dtype == (torch.bfloat16 if weight.dim() > 1 else torch.float32), name


def test_it_learns_with_every_dropout() -> None:
    config = config_of("B", word_dropout=0.05, locked_dropout=True, shift=True, optimiser="adam")
    assert config.lr == 0.002
    task = task_of(config.replace(lr=0.02, embedding_dropout=0.1, output_dropout=0.1))
    losses = [run(task, epoch)["loss"] for epoch in range(1, 9)]
    assert losses[-1] < 0.9 * losses[0]
    assert task.evaluate("dev")["ppl"] < math.exp(losses[0])


# ---- the stream ------------------------------------------------------------------------------------------------------


def test_a_partial_shuffle_swaps_the_parts_of_every_stream() -> None:
    ids = torch.arange(1, 34) % WORDS
    plain, task = task_of(config_of(), ids), task_of(config_of(partial_shuffle=True), ids)
    plain.begin_epoch(1)
    seen = []
    for epoch in (1, 2, 1):
        task.begin_epoch(epoch)
        seen.append(task._stream.clone())
        for whole, cut in zip(plain._stream.T.tolist(), task._stream.T.tolist(), strict=True):
            place = whole.index(cut[0])
            assert 0 < place < len(whole) - 1
            assert cut == [*whole[place:-1], *whole[:place], whole[place]]
    assert torch.equal(seen[0], seen[2]) and not torch.equal(seen[0], seen[1])
    halves = [task_of(config_of(partial_shuffle=True), ids, group=Group(rank, 2)) for rank in (0, 1)]
    for half in halves:
        half.begin_epoch(1)
    assert torch.equal(torch.cat([half._stream for half in halves], 1), seen[0])


def test_shifted_streams_differ_and_come_again() -> None:
    task = task_of(config_of(shift=True))
    streams = []
    for epoch in (1, 2, 3, 1):
        task.begin_epoch(epoch)
        streams.append(task._stream.clone())
    assert torch.equal(streams[0], streams[3])
    assert not torch.equal(streams[0], streams[1]) or not torch.equal(streams[0], streams[2])


def test_processes_have_their_columns() -> None:
    whole = task_of(config_of())
    whole.begin_epoch(1)
    parts = []
    for rank in (0, 1):
        task = task_of(config_of(), group=Group(rank, 2))
        task.begin_epoch(1)
        parts.append(task._stream)
    assert torch.equal(torch.cat(parts, 1), whole._stream)
    with pytest.raises(RunError, match="a multiple of the number of processes, 3"):
        task_of(config_of(), group=Group(0, 3))


def test_processes_draw_masks_of_their_own() -> None:
    drawn = []
    for rank in (0, 1, 0):
        task_of(config_of(), group=Group(rank, 2)).begin_epoch(1)
        drawn.append(float(torch.rand(())))
    assert drawn[0] == drawn[2] != drawn[1]


def test_too_little_text() -> None:
    with pytest.raises(DataError, match="4 tokens, too few"):
        task_of(config_of(), text(4))


# ---- resuming --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"optimiser": "adam", "lr": 0.01},
        {"emas": (0.9,), "asgd_from": 2, "shift": True, "partial_shuffle": True},
        {"cell": "lstm"},
        {"precision": "bf16"},
    ],
    ids=["sgd", "adam", "averages", "lstm", "bf16"],
)
@pytest.mark.parametrize("done", [0, 5])
def test_going_on_gives_the_same_bits(options: dict[str, Any], done: int) -> None:
    config = config_of(**{"layers": 2, "embedding_dropout": 0.3, **options})
    straight = task_of(config)
    run(straight, 1)
    straight.end_epoch(1, straight.evaluate("dev"))
    steps = straight.begin_epoch(2)
    for index in range(done):
        straight.step(index)
    tensors, meta = straight.state()
    for index in range(done, steps):
        straight.step(index)

    torch.manual_seed(99)
    resumed = task_of(config)
    resumed.load_state(tensors, meta)
    resumed.begin_epoch(2)
    if done:
        resumed.load_state(tensors, meta)
    for index in range(done, steps):
        resumed.step(index)
    for name, p in weights(straight).items():
        assert torch.equal(weights(resumed)[name], p), name
    assert resumed.measure() == straight.measure()
    assert resumed.evaluate("dev") == straight.evaluate("dev")


def test_a_foreign_checkpoint() -> None:
    tensors, meta = task_of(config_of()).state()
    with pytest.raises(RunError, match="belongs to another training"):
        task_of(config_of(hidden_size=16)).load_state(tensors, meta)
    with pytest.raises(RunError, match=r"average\.ema0.9"):
        task_of(config_of(emas=(0.9,))).load_state(tensors, meta)


# ---- between epochs --------------------------------------------------------------------------------------------------


def test_rates() -> None:
    task = task_of(config_of(lr=1.0, lr_decay=0.5, lr_decay_from=3, scale_weight_decay=True))
    seen = []
    for epoch in range(1, 6):
        task.begin_epoch(epoch)
        seen.append(task.updater.control.tolist())
    assert [rate for rate, _ in seen] == [1.0, 1.0, 0.5, 0.25, 0.125]
    for rate, keep in seen:
        assert math.isclose(keep, 1 - 1e-3 * rate, rel_tol=1e-6)


def test_halving() -> None:
    task = task_of(config_of(lr=1.0, halve_after=2))
    rates = []
    for epoch, ppl in enumerate([9.0, 8.0, 8.5, 8.5, 8.5, 8.5, 7.0, 6.0], 1):
        task.begin_epoch(epoch)
        rates.append(task.rate)
        task.end_epoch(epoch, {"ppl": ppl})
    assert rates == [1, 1, 1, 1, 0.5, 0.5, 0.25, 0.25]


def test_stopping() -> None:
    """Halving does not begin the count again."""
    task = task_of(config_of(stop_after=3, halve_after=2))
    dev = [9.0, 8.0, 8.5, 8.5, 8.0, 7.0, 7.5, 7.5, 7.5]
    stops = [task.end_epoch(epoch, {"ppl": ppl}) for epoch, ppl in enumerate(dev, 1)]
    assert stops == [False, False, False, False, True, False, False, False, True]


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("first", [1, 2])
def test_the_mean_from_an_epoch_on(first: int, every: int) -> None:
    task = task_of(config_of(asgd_from=first, average_every=every, embedding_dropout=0.0, bptt=30))
    seen, steps = [], 0
    for epoch in (1, 2):
        for index in range(task.begin_epoch(epoch)):
            task.step(index)
            steps += 1
            seen += [weights(task)["bias"]] * (epoch >= first and steps % every == 0)
        dev = task.evaluate("dev")
        assert ("ppl_tail" in dev) == (epoch >= first)
        task.end_epoch(epoch, dev)
    mean = torch.stack(seen).mean(0)
    torch.testing.assert_close(task.store.named("averages", 0)["bias"], mean, rtol=1e-4, atol=1e-6)


def test_a_mean_that_dev_began_goes_on() -> None:
    task = task_of(config_of(asgd_after=1))
    for epoch in (1, 2):
        task.end_epoch(epoch, {"ppl": 5.0})
    resumed = task_of(task.config)
    assert "tail" not in resumed.averages.ready
    resumed.load_state(*task.state())
    assert "tail" in resumed.averages.ready
    run(resumed, 3)
    assert resumed.averages.counters[1] == resumed.averages.counters[0] > 0


def test_pieces_are_for_dev_alone() -> None:
    whole, pieces = task_of(config_of()), task_of(config_of(dev_streams=5))
    assert pieces.evaluate("test") == whole.evaluate("test") and pieces.evaluate("dev") != whole.evaluate(
        "dev"
    )


def test_the_best_kind_of_weights_counts() -> None:
    task = task_of(config_of(lr=0.5, emas=(0.9, 0.5), asgd_after=1))
    run(task, 1)
    for segment in task.store.segments:
        segment.averages[1].copy_(segment.flat)
        segment.averages[0].zero_()
        segment.flat.mul_(5.0)
    dev = task.evaluate("dev")
    assert task.kind == "ema0.5" and dev["ppl"] == dev["ppl_ema0.5"] < dev["ppl_last"]
    assert math.isclose(dev["ppl_ema0.9"], WORDS, rel_tol=1e-4)
    kept = task.weights()
    assert torch.equal(kept["embedding"], task.store.named("averages", 1)["embedding"])
    test = task.evaluate("test")
    by_hand = model_of(task.config, WORDS)
    by_hand.load_state_dict(kept)
    from rrnn.tasks.lm.trained import evaluate

    assert math.isclose(evaluate(by_hand, task.splits["test"]).perplexity, test["ppl"], rel_tol=1e-6)
    task.end_epoch(1, {"ppl": 5.0})
    assert "tail" not in task.averages.ready
    task.end_epoch(2, {"ppl": 6.0})
    assert "tail" in task.averages.ready


# ---- on a GPU --------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("cell", ["F", "B-max-plus", "lstm", "gru"])
def test_a_captured_step_is_the_step(cell: str, precision: str) -> None:
    # At a rate of 1, max-plus diverges on so little text, and then rounding alone makes a difference.
    sizes = {"layers": 2, "hidden_size": 48, "embedding_size": 32}
    config = config_of(cell, **sizes, precision=precision, emas=(0.9,), lr=0.1, **QUIET)
    tasks = [task_of(config, capture=capture, device="cuda") for capture in (True, False)]
    for epoch in (1, 2, 3):  # the shorter window is captured in the third
        a, b = (run(task, epoch)["loss"] for task in tasks)
        assert math.isclose(a, b, rel_tol=1e-3 if precision == "fp32" else 1e-2)
    assert len(tasks[0].graphs._graphs) == 2


@pytest.mark.gpu
@pytest.mark.parametrize("cell", ["F", "lstm"])
def test_a_gpu_trains_as_the_cpu_does(cell: str) -> None:
    config = config_of(cell, layers=2, **QUIET)
    here, there = task_of(config), task_of(config, device="cuda")
    for epoch in (1, 2):
        assert math.isclose(run(here, epoch)["loss"], run(there, epoch)["loss"], rel_tol=1e-3)


@pytest.mark.gpu
def test_masks_differ_from_replay_to_replay() -> None:
    """Weights, state and words stay the same, so losses differ by dropout alone; a seed brings them again."""
    config = config_of(hidden_size=48, lr=1e-30, weight_decay=0.0, embedding_dropout=0.5)
    task = task_of(config, device="cuda")
    run(task, 1)
    losses = []
    for _ in range(2):
        task.begin_epoch(2)
        first = task._carried.clone()
        for _ in range(8):
            task._place.zero_()
            task._carried.copy_(first)
            task.step(0)
            losses.append(task.measure()["loss"])
    half = len(losses) // 2
    assert len(set(losses[:half])) == half
    assert losses[:half] == losses[half:]
