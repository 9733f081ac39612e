"""Phrases: the strongest of all that any path takes, held to a search that tries every stretch of every sentence."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from interpret_twins import entries, listed
from layer_cases import CASES, inputs, make_layer, randomised

from rrnn.automata import Cell, linear, one, parameter, sigmoid, tanh
from rrnn.errors import AutomatonError
from rrnn.interpret import Reading, TokenPath, UnitPhrases, phrases, read
from rrnn.interpret.reading import CellReading
from rrnn.interpret.trellises import rank
from rrnn.nn import RationalRNN
from rrnn.zoo import layer as zoo_layer

VECTORS = inputs(4, 4, seed=7)
RANDOM = random.Random(5)
SENTENCES = [RANDOM.choices("abcd", k=n) for n in (5, 1, 4, 2, 5, 3)]
NAMES = [
    "B",
    "C",
    "F",
    "ngram4",
    "B-max-plus",
    "SRU",
    "real-1",
    "max-times-1",
    "log-1",
    "min-plus-1",
    "CNN3",
    "SoPa2",
]


def make(name: str, **options: Any) -> RationalRNN:
    if name in CASES:
        return make_layer(name, **options)
    return randomised(zoo_layer(name, 4, 3, dtype=torch.float64, **options))


def vectors(words: list[str]) -> torch.Tensor:
    return VECTORS[["abcd".index(word) for word in words]]


def reading_of(layer: RationalRNN, sentences: list[list[str]], **options: Any) -> Reading:
    x = torch.zeros(max(map(len, sentences)), len(sentences), 4, dtype=torch.float64)
    for b, words in enumerate(sentences):
        x[: len(words), b] = vectors(words)
    return read(layer, x, sentences, **options)


Listed = list[tuple[float, float, Any]]
"""(rank, weight, tokens with kinds), strongest first."""


def by_hand(layer: RationalRNN, unit: int, sentences: list[list[str]], **options: Any) -> dict[int, Listed]:
    """sign → the strongest phrase at each last entry, each wording once where it is strongest."""
    ring = next(p.ring for p in read(layer, VECTORS, **options).parts if unit in p.units)
    backward = bool(options.get("backward"))
    found: dict[int, dict[Any, tuple[float, float, Any]]] = {0: {}, 1: {}}
    for words in sentences:
        for last in range(len(words)):
            best: dict[int, tuple[float, float, Any]] = {}
            for first in range(last, len(words)) if backward else range(last + 1):
                some = words[min(first, last) : max(first, last) + 1]
                for path in listed(read(layer, vectors(some), some, **options), unit):
                    places = entries(path)
                    if places and {min(places), max(places)} == {0, len(some) - 1}:
                        size = rank(ring, torch.tensor(path.weight, dtype=torch.float64)).item()
                        sign = int(ring.name == "real" and path.weight < 0)
                        if sign not in best or size > best[sign][0]:
                            best[sign] = (size, path.weight, wording(path, backward))
            for sign, each in best.items():
                if each[2] not in found[sign] or each[0] > found[sign][each[2]][0]:
                    found[sign][each[2]] = each
    return {sign: sorted(some.values(), key=lambda each: -each[0]) for sign, some in found.items()}


def wording(path: TokenPath, backward: bool) -> tuple[tuple[str, str], ...]:
    """Without ε-arcs behind the last token."""
    steps = list(path.steps)
    while steps[-1].kind == "bridged":
        steps.pop()
    return tuple((step.token, step.kind) for step in (reversed(steps) if backward else steps))


def check(found: UnitPhrases, expected: dict[int, Listed], top: int) -> None:
    for some, those in ((found.positive, expected[0]), (found.negative, expected[1])):
        assert [p.weight for p in some] == pytest.approx([weight for _, weight, _ in those[:top]])
        for phrase, (_, _, words) in zip(some, those, strict=False):
            assert tuple(zip(phrase.tokens, phrase.kinds, strict=True)) == words


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_they_are_the_strongest_of_all(name: str) -> None:
    layer = make(name)
    expected = by_hand(layer, 1, SENTENCES)
    for top in (1, 4, 99):
        check(phrases(reading_of(layer, SENTENCES), top)[1], expected, top)


def test_negative_weights_of_initial_and_final_states_change_signs() -> None:
    fade = sigmoid(linear("f", bias=True))
    cell = (
        Cell("signed", semiring="real")
        .initial("q0", parameter("l"))
        .loop("q0", one)
        .arc("q0", "q1", linear("u1"))
        .loop("q1", fade)
        .arc("q1", "q2", linear("u2"))
        .loop("q2", fade)
        .final("q1", parameter("p1"))
        .final("q2", parameter("p2"))
        .output(tanh("score"))
    )
    layer = randomised(RationalRNN(cell, 4, 2, dtype=torch.float64))
    numbers = {"l": (-1.2, 0.8), "p1": (-0.5, -0.9), "p2": (0.7, -1.1)}
    with torch.no_grad():
        for name, values in numbers.items():
            layer.layers[0].get_parameter(f"cells.0.parameter.{name}").copy_(torch.tensor(values))
    found = phrases(reading_of(layer, SENTENCES), 99)
    for unit in (0, 1):
        check(found[unit], by_hand(layer, unit, SENTENCES), 99)


def test_backwards() -> None:
    layer = make("F", bidirectional=True)
    found = phrases(reading_of(layer, SENTENCES, backward=True), 5)[0]
    check(found, by_hand(layer, 0, SENTENCES, backward=True), 5)


def test_each_phrase_stands_where_it_says() -> None:
    layer = make("F")
    batches = [SENTENCES[:2], SENTENCES[2:3], SENTENCES[3:]]
    found = phrases((reading_of(layer, batch) for batch in batches), 8)
    assert [each.unit for each in found] == [0, 1, 2]
    whole = phrases(reading_of(layer, SENTENCES), 8)
    for each, other in zip(found, whole, strict=True):
        assert [p.weight for p in each.positive] == pytest.approx([p.weight for p in other.positive])
        assert [p.text for p in each.positive] == [p.text for p in other.positive]
        for phrase in (*each.positive, *each.negative):
            words = SENTENCES[phrase.sentence]
            own = [token for token in phrase.tokens if token != "ε"]
            assert words[phrase.position : phrase.position + len(own)] == own
            assert phrase.kinds[0] in ("consumed", "bridged") and phrase.kinds[-1] == "consumed"
            assert phrase.text.split() == [
                f"[{w}]" if k == "skipped" else w for w, k in zip(phrase.tokens, phrase.kinds, strict=True)
            ]
        assert all(p.weight > 0 for p in each.positive) and all(p.weight < 0 for p in each.negative)


def test_a_frequent_phrase_does_not_hide_the_others() -> None:
    """A hundred sentences of one word, and one with another: both are listed."""
    layer = make("B")
    sentences = [["a"]] * 100 + [["b"], ["c"], ["d"]]
    for found in phrases(reading_of(layer, sentences), 4):
        assert sorted(p.tokens for p in (*found.positive, *found.negative)) == [
            ("a",),
            ("b",),
            ("c",),
            ("d",),
        ]


def first_entering(part: CellReading) -> torch.Tensor:
    """The weights (T, B, D) of the first move that enters."""
    return part.weights[:, next(m for m, move in enumerate(part.moves.moves) if move.enters)]


def test_windows_see_what_stands_before() -> None:
    """A unigram weighs otherwise after another word: the strongest occurrence counts."""
    layer = make("windowed")
    for found in phrases(reading_of(layer, SENTENCES), 4):
        for phrase in (*found.positive, *found.negative):
            words = SENTENCES[phrase.sentence]
            reading = read(layer, vectors(words[: phrase.position + 1]), words[: phrase.position + 1])
            (part,) = reading.parts
            u = first_entering(part)
            assert phrase.weight == pytest.approx(u[-1, 0, found.unit].item())


def test_a_wording_that_weighs_otherwise_elsewhere_is_listed_where_it_is_strongest() -> None:
    layer = make("windowed")
    sentences = [[before, "d"] for before in "abc"]
    whole = phrases(reading_of(layer, sentences), 99)
    singly = phrases([reading_of(layer, [words]) for words in sentences], 99)
    for found, same_found in zip(whole, singly, strict=True):
        u = [read(layer, vectors(words), words).parts[0] for words in sentences]
        weights = [first_entering(part)[1, 0, found.unit].item() for part in u]
        for some, those in ((found.positive, same_found.positive), (found.negative, same_found.negative)):
            assert [(p.text, p.weight, p.sentence) for p in some] == [
                (p.text, pytest.approx(p.weight), p.sentence) for p in those
            ]
        for sign, some in ((1, found.positive), (-1, found.negative)):
            best = max((w * sign, b) for b, w in enumerate(weights))
            listed_ = [(p.weight * sign, p.sentence) for p in some if p.text == "d"]
            assert listed_ == ([(pytest.approx(best[0]), best[1])] if best[0] > 0 else [])


@pytest.mark.slow
def test_a_thousand_sentences_and_150_units_take_seconds() -> None:
    """Processor time, which other work on the machine does not change; ten seconds on two cores are asked for."""
    layer, x = zoo_layer("F", 20, 150), inputs(1000, 20, dtype=torch.float32)
    rng, words = random.Random(1), [f"w{i}" for i in range(1000)]
    sentences = sorted(
        ([rng.randrange(1000) for _ in range(rng.randint(5, 35))] for _ in range(1000)), key=len
    )
    begin = time.process_time()

    def readings() -> Iterator[Reading]:
        for start in range(0, 1000, 64):
            some = [torch.tensor(ids) for ids in sentences[start : start + 64]]
            tokens = [[words[i] for i in ids.tolist()] for ids in some]
            yield read(layer, x[torch.nn.utils.rnn.pad_sequence(some)], tokens)

    assert len(phrases(readings(), 5)) == 150
    assert time.process_time() - begin < 10


def test_json_and_nothing_to_find() -> None:
    layer = make("SoPa3")
    found = phrases(reading_of(layer, [["a"], []]), 2)  # the pattern needs two words at least
    assert all(not each.positive and not each.negative for each in found)
    assert json.loads(json.dumps([each.to_json() for each in found], allow_nan=False))[0]["positive"] == []
    some = phrases(reading_of(make("F"), SENTENCES), 2)
    assert json.loads(json.dumps(some[0].to_json(), allow_nan=False))["positive"][0]["text"]


def test_mistakes() -> None:
    with pytest.raises(AutomatonError, match="the number of phrases to list, must be"):
        phrases(reading_of(make("F"), SENTENCES), 0)
    with pytest.raises(AutomatonError, match="phrases consist of words, which the first layer reads"):
        phrases(read(make("F", num_layers=2), VECTORS, layer=1))
