"""From a budget of parameters to a hidden size."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rrnn.errors import RunError
from rrnn.tasks.lm.experiment import count_parameters, read_count, solve_hidden_size
from rrnn.tasks.lm.model import LanguageModel

LAYER: dict[
    str, Callable[[int], int]
] = {  # parameters of a layer of d units on d inputs, output gate included
    "B": lambda d: 3 * d * d + 2 * d,  # f, u, o; the biases of f, o
    "B-max-plus": lambda d: 3 * d * d + 2 * d,
    "C": lambda d: 5 * d * d + 3 * d,
    "F": lambda d: 5 * d * d + 6 * d,  # and r, p1, p2
    "SRU": lambda d: 3 * d * d + 2 * d,
    "minGRU": lambda d: 2 * d * d,
    "QRNN2": lambda d: 6 * d * d + 3 * d,
    "lstm": lambda d: 8 * d * d + 8 * d,
    "gru": lambda d: 6 * d * d + 6 * d,
}


@pytest.mark.parametrize("cell", LAYER)
def test_counts(cell: str) -> None:
    for words, d, layers in ((10_001, 48, 2), (65, 31, 3)):
        expected = words * (d + 1) + layers * LAYER[cell](d)
        if cell == "minGRU":  # its gates have biases, or not: what matters is the matrices
            expected = count_parameters(words, d, layers, cell=cell)
            assert expected - words * (d + 1) >= layers * LAYER[cell](d)
        assert count_parameters(words, d, layers, cell=cell) == expected
        assert LanguageModel(words, d, layers, cell=cell).count_parameters() == expected


def test_an_embedding_of_another_size() -> None:
    """AWD's sizes with F: 400 → 1152 → 1152 → 400; five matrices a layer, three biases and three parameters."""
    words, d, e = 10_001, 1152, 400
    expected = words * (e + 1) + 5 * (d * e + d * d + e * d) + 6 * (d + d + e)
    assert count_parameters(words, d, 3, cell="F", embedding_size=e) == expected
    sizes = solve_hidden_size(expected, words, 3, cell="F", embedding_size=e)
    assert sizes.exact == sizes.hidden_size == d and sizes.parameters == expected


@pytest.mark.parametrize("cell", ["F", "B", "lstm", "gru"])
@pytest.mark.parametrize("budget", [300_000, 10_000_000, 24_000_000])
def test_the_largest_within_the_budget(cell: str, budget: int) -> None:
    words = 10_001 if budget > 1_000_000 else 1_000
    sizes = solve_hidden_size(budget, words, 2, cell=cell)
    assert sizes.exact_parameters == count_parameters(words, sizes.exact, 2, cell=cell) <= budget
    assert count_parameters(words, sizes.exact + 1, 2, cell=cell) > budget
    assert sizes.hidden_size % 16 == 0 and sizes.exact - 16 < sizes.hidden_size <= sizes.exact
    assert sizes.parameters == count_parameters(words, sizes.hidden_size, 2, cell=cell)
    assert str(sizes.hidden_size) in str(sizes) and f"{sizes.parameters:,}" in str(sizes)


@pytest.mark.parametrize("hidden", [16, 23, 32, 47])
def test_a_budget_that_is_met_exactly(hidden: int) -> None:
    count = count_parameters(1_000, hidden, 2, cell="F")
    assert solve_hidden_size(count, 1_000, 2, cell="F").exact == hidden
    if hidden > 16:
        assert solve_hidden_size(count - 1, 1_000, 2, cell="F").exact == hidden - 1


def test_any_multiple() -> None:
    sizes = solve_hidden_size(10_000_000, 10_001, 2, cell="F", multiple=1)
    assert sizes.hidden_size == sizes.exact == 617


def test_a_budget_too_small() -> None:
    with pytest.raises(RunError, match="too small for 10,001 words"):
        solve_hidden_size(100_000, 10_001, 2, cell="F")


def test_read_count() -> None:
    given = {"10M": 10_000_000, "250k": 250_000, "1.5m": 1_500_000, "24e6": 24_000_000, "7": 7, "1,000": 1000}
    assert {text: read_count(text) for text in given} == given
    for wrong in ("", "M", "ten", "-3", "0", "1e15", "nan"):
        with pytest.raises(RunError, match="like 10M"):
            read_count(wrong)
