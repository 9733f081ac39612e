from __future__ import annotations

import numpy as np
import pytest
import torch
from kernel_cases import needs_interpreter

from rrnn.tasks.classify.prepare import Batch, Texts, pad_length


@pytest.fixture
def texts() -> Texts:
    rng = np.random.default_rng(0)
    words = [rng.integers(1, 50, size=n) for n in rng.integers(1, 60, size=150)]
    return Texts(words, [len(text) % 3 for text in words])


def numbers(batches: list[Batch]) -> list[list[int]]:
    return [batch.rows.tolist() for batch in batches]


@needs_interpreter
@pytest.mark.parametrize(
    "rows", [[3, -1, 0, 149, 7, 7], [-1], list(range(100))], ids=["some", "none", "many"]
)
@pytest.mark.parametrize("steps", [8, 64])
def test_the_kernel_gathers_the_same(texts: Texts, rows: list[int], steps: int) -> None:
    """Also texts that are longer than the batch's steps, which are cut, and several blocks."""
    expected = texts.gather(torch.tensor(rows), steps, kernels=False)
    for ours, theirs in zip(texts.gather(torch.tensor(rows), steps, kernels=True), expected, strict=True):
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)


def test_an_epoch_has_every_text_once(texts: Texts) -> None:
    batches = texts.epoch(16, seed=1, epoch=3)
    assert len(batches) == 10
    assert sorted(n for rows in numbers(batches) for n in rows if n >= 0) == list(range(150))


def test_an_epoch_depends_on_seed_and_epoch_alone(texts: Texts) -> None:
    assert numbers(texts.epoch(16, 1, 3)) == numbers(texts.epoch(16, 1, 3))
    assert numbers(texts.epoch(16, 1, 3)) != numbers(texts.epoch(16, 1, 4))
    assert numbers(texts.epoch(16, 1, 3)) != numbers(texts.epoch(16, 2, 3))


def test_texts_of_a_batch_have_like_lengths(texts: Texts) -> None:
    padding = sum(
        batch.steps * 16 - sum(texts.lengths[n] for n in batch.rows.tolist() if n >= 0)
        for batch in texts.epoch(16, 0, 1)
    )
    assert padding < 0.5 * texts.lengths.sum()
    assert len({batch.steps for batch in texts.epoch(16, 0, 1)}) <= 8


def test_gather_pads_as_one_would_by_hand(texts: Texts) -> None:
    rows = torch.tensor([3, -1, 7])
    steps = 64
    ids, lengths, labels, weights = texts.gather(rows, steps)
    for column, row in enumerate(rows.tolist()):
        if row < 0:
            assert lengths[column] == 0 and weights[column] == 0 and (ids[:, column] == 0).all()
            continue
        start, size = int(texts.starts[row]), int(texts.lengths[row])
        expected = texts.tokens[start : start + size].tolist() + [0] * (steps - size)
        assert ids[:, column].tolist() == expected
        assert lengths[column] == size and labels[column] == size % 3 and weights[column] == 1


def test_in_order_keeps_to_its_bounds(texts: Texts) -> None:
    batches = texts.in_order(32, tokens=500)
    assert sorted(n for rows in numbers(batches) for n in rows if n >= 0) == list(range(150))
    assert all(len(batch.rows) <= 32 for batch in batches)
    for batch in batches:
        assert len(batch.rows) * texts.padded[batch.rows[0]] <= 500
        assert len(batch.rows) * batch.steps <= 1000


def test_one_long_text_does_not_make_a_batch_huge() -> None:
    texts = Texts([np.ones(n, np.int64) for n in [*[3] * 40, 5000, 9000]], [0] * 42)
    batches = texts.in_order(32, tokens=500)
    assert sorted(n for rows in numbers(batches) for n in rows if n >= 0) == list(range(42))
    assert all(len(batch.rows) * batch.steps <= 1000 or len(batch.rows) == 1 for batch in batches)
    assert len(batches) <= 8


@pytest.mark.parametrize(
    ("n", "padded"), [(0, 8), (1, 8), (8, 8), (9, 16), (127, 128), (129, 144), (1000, 1024)]
)
def test_pad_length(n: int, padded: int) -> None:
    assert pad_length(n) == padded


def test_few_lengths_stand_for_all() -> None:
    lengths = {pad_length(n) for n in range(1, 4097)}
    assert len(lengths) < 60
    assert all(n <= pad_length(n) <= max(8, n * 1.13 + 8) for n in range(1, 4097))
