"""Decompositions: grouped path by path, and adding up to the score of the layer itself."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from interpret_twins import WORDS, entries, listed
from layer_cases import inputs, make_layer, randomised
from runnable_cell_strategies import cells
from torch import Tensor

from rrnn.errors import AutomatonError, ShapeError
from rrnn.interpret import Decomposition, Reading, decompose, read
from rrnn.nn import RationalRNN
from rrnn.semirings import get_semiring
from rrnn.theory import scores as layer_scores

ADDING = ["B", "C", "F", "F+o", "SRU", "ngram4", "real-1", "log-1", "windowed", "memoryless"]


def by_hand(reading: Reading, unit: int) -> tuple[Tensor, Tensor, float]:
    """(by token (T,), by pair (T, T), constant), from all paths, in ordinary numbers."""
    ring = next(part.ring for part in reading.parts if unit in part.units)
    n = len(reading.tokens[0])
    token, pair, constant = torch.zeros(n), torch.zeros(n, n), 0.0
    token, pair = token.double(), pair.double()
    for path in listed(reading, unit):
        weight = torch.tensor(path.weight, dtype=torch.float64)
        weight, places = (weight.exp() if ring.name == "log" else weight), entries(path)
        for place in places:
            token[place] += weight / len(places)
        if places:
            pair[min(places), max(places)] += weight
        else:
            constant += weight.item()
    return token, pair, constant


def plain(found: Decomposition, unit: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(by token, by pair, constant, score) of the first sentence in ordinary numbers."""
    d = found.units.index(unit)
    assert found.by_pair is not None
    some = (found.by_token[:, 0, d], found.by_pair[:, :, 0, d], found.constant[0, d], found.score[0, d])
    a, b, c, e = (t.exp() if found.semirings[d] == "log" else t for t in some)
    return a, b, c, e


@pytest.mark.parametrize("name", ADDING)
def test_it_is_the_sum_over_paths_and_adds_up_to_the_layer_s_score(name: str) -> None:
    layer, x = make_layer(name), inputs(4, 4, seed=3)
    reading = read(layer, x, list(WORDS[:4]))
    found, expected = decompose(reading, pairs=True), layer_scores(layer, x)[-1].detach()
    for unit in range(layer.hidden_size):
        token, pair, constant = by_hand(reading, unit)
        by_token, by_pair, rest, score = plain(found, unit)
        torch.testing.assert_close(by_token, token)
        torch.testing.assert_close(by_pair, pair)
        assert rest.item() == pytest.approx(constant)
        of_layer = expected[unit].exp() if found.semirings[unit] == "log" else expected[unit]
        for total in (score, by_token.sum() + rest, by_pair.sum() + rest):
            torch.testing.assert_close(total, of_layer)


@given(st.data())
def test_any_cell(data: st.DataObject) -> None:
    cell = data.draw(cells(data.draw(st.sampled_from(["real", "log"])), states=4))
    layer = randomised(RationalRNN(cell, 2, 1, dtype=torch.float64), data.draw(st.integers(0, 9)))
    reading = read(layer, inputs(3, 2, seed=data.draw(st.integers(0, 9))), list(WORDS[:3]))
    assume(len(reading.parts[0].moves.moves) <= 30)
    found = decompose(reading, pairs=True)
    token, pair, constant = by_hand(reading, 0)
    by_token, by_pair, rest, score = plain(found, 0)
    torch.testing.assert_close(by_token, token)
    torch.testing.assert_close(by_pair, pair)
    for total in (by_token.sum() + rest, by_pair.sum() + constant):
        assert total.item() == pytest.approx(score.item(), rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("name", ["F", "windowed"])
def test_a_batch_is_its_sentences(name: str, backward: bool) -> None:
    rnn, x, lengths = make_layer(name, bidirectional=True), inputs(5, 3, 4), [5, 1, 3]
    found = decompose(read(rnn, x, lengths=lengths, backward=backward), pairs=True)
    assert found.by_pair is not None
    for b, n in enumerate(lengths):
        reading = read(rnn, x[:n, b], backward=backward)
        alone = decompose(reading, pairs=True)
        assert alone.by_pair is not None
        torch.testing.assert_close(found.by_token[:n, b], alone.by_token[:, 0])
        torch.testing.assert_close(found.by_pair[:n, :n, b], alone.by_pair[:, :, 0])
        assert not found.by_token[n:, b].any() and not found.by_pair[n:, :, b].any()
        token, pair, _ = by_hand(reading, 0)
        torch.testing.assert_close(alone.by_token[:, 0, 0], token)
        torch.testing.assert_close(alone.by_pair[:, :, 0, 0], pair)


def test_the_paper_s_b_is_one_term_a_token() -> None:
    """u_j · f_{j+1} · … · f_n."""
    layer, x = make_layer("B"), inputs(4, 4)
    reading = read(layer, x, list("abcd"))
    found, (part,) = decompose(reading), reading.parts
    names = {(m.source, m.target): part.weights[:, i, 0] for i, m in enumerate(part.moves.moves)}
    u, f = names["q0", "q1"], names["q1", "q1"]
    for j in range(4):
        torch.testing.assert_close(found.by_token[j, 0], u[j] * f[j + 1 :].prod(0))


def test_terms_are_listed_strongest_first() -> None:
    layer, x = make_layer("F"), inputs(4, 4)
    found = decompose(read(layer, x, list("abcd")), pairs=True)
    terms = found.terms(1)
    sizes = [abs(term.weight) for term in terms]
    assert sizes == sorted(sizes, reverse=True) and len(terms) == 10  # 4 tokens and 6 pairs
    assert {len(term.tokens) for term in terms} == {1, 2}
    assert sum(term.weight for term in terms) == pytest.approx(found.score[0, 1].item())
    for term in terms:
        assert term.tokens == tuple("abcd"[p] for p in term.positions)
    assert found.terms(1, top=2) == terms[:2]
    tokens_only = decompose(read(layer, x, list("abcd"))).terms(1)
    assert {len(term.tokens) for term in tokens_only} == {1}


@pytest.mark.parametrize("name", ["F", "log-1"])
def test_json(name: str) -> None:
    found = decompose(read(make_layer(name), inputs(3, 4), list("abc")))
    (sentence,) = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert sentence["tokens"] == ["a", "b", "c"] and len(sentence["units"]) == 3
    ring = get_semiring(found.semirings[0])
    total = ring.sum([v for v in sentence["units"][0]["by_token"] if v is not None])
    constant = sentence["units"][0]["constant"]
    total = ring.plus(total, ring.zero if constant is None else constant)
    assert total == pytest.approx(sentence["units"][0]["score"])


def test_a_best_path_is_no_sum() -> None:
    layer, x = make_layer("mixed"), inputs(3, 4)
    with pytest.raises(
        AutomatonError, match=r"over max-plus a score is the weight of .* best path.*of_units"
    ):
        decompose(read(layer, x))
    assert decompose(read(layer, x).of_units([0, 1, 2])).units == (0, 1, 2)


def test_terms_are_of_a_unit_and_a_sentence_that_are_there() -> None:
    found = decompose(read(make_layer("F"), inputs(3, 2, 4)).of_units([0, 2]))
    with pytest.raises(ShapeError, match=r"one of the 2 units that were read, from 0 to 2; got 1"):
        found.terms(unit=1)
    with pytest.raises(ShapeError, match=r"sentence must be a number from 0 to 1; got 3"):
        found.terms(unit=0, sentence=3)
