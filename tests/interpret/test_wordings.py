"""Wordings: paths that read the same words are one, with the ⊕ of their weights, as adding up all paths gives it."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
import torch
from layer_cases import inputs

from rrnn.interpret import k_best, k_best_wordings, read
from rrnn.interpret.paths import TokenPath
from rrnn.nn import RationalRNN
from rrnn.semirings import get_semiring

CELLS = ["Mamba:states=3", "GLA:states=3", "S4D:states=2", "RWKV-6:states=2", "DeltaNet:states=2", "F"]
EVERY = 5000  # more paths than there are


def build(name: str, **options: Any) -> RationalRNN:
    torch.manual_seed(0)
    rnn = RationalRNN(name, 4, 3, dtype=torch.float64, **options)
    with torch.no_grad():
        for value in rnn.parameters():
            value += 0.5 * torch.randn_like(value)
    return rnn


def words_of(path: TokenPath) -> tuple[tuple[str, int | None], ...]:
    return tuple((step.kind, step.position) for step in path.steps)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_all_paths_of_a_wording_add_up(name: str, backward: bool) -> None:
    rnn, ring = build(name, bidirectional=True), get_semiring("complex" if "S4D" in name else "real")
    reading = read(rnn, inputs(4, 2, 4), [list("abcd"), list("ab")], backward=backward)
    for every, found, few in zip(
        k_best(reading, EVERY), k_best_wordings(reading, 500), k_best_wordings(reading, 2), strict=True
    ):
        by_words: dict[Any, list[Any]] = {}
        for path in every.paths:
            by_words.setdefault(words_of(path), []).append(path.weight)
        expected = {words: reduce(ring.plus, weights) for words, weights in by_words.items()}
        assert name == "F" or len(expected) < len(every.paths)
        shown = {words_of(path): path.weight for path in found.paths}
        assert len(shown) == len(found.paths) and shown.keys() == expected.keys()
        for words, weight in shown.items():
            assert weight == pytest.approx(expected[words], rel=1e-9, abs=1e-12)
        assert found.covered == pytest.approx(1.0) and found.score == every.score
        assert len(few.paths) == min(2, len(expected)) and len({words_of(path) for path in few.paths}) == len(
            few.paths
        )
        parts = [torch.tensor(w).norm() for path in few.paths for w in by_words[words_of(path)]]
        total = sum(torch.tensor(w).norm() for weights in by_words.values() for w in weights)
        assert few.covered == pytest.approx(float(sum(parts) / total))
        assert all(
            path.weight == pytest.approx(expected[words_of(path)], rel=1e-9, abs=1e-12) for path in few.paths
        )


def test_cells_without_families_have_their_paths() -> None:
    reading = read(build("F"), inputs(5, 4))
    assert k_best_wordings(reading, 3) == k_best(reading, 3)
