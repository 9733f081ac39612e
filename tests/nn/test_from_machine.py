"""Layers made of machines compute their scores exactly before training, learn, and are read back."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from rrnn import WFSA, AutomatonError, ShapeError, from_regex, to_wfsa
from rrnn.backends import use_backend
from rrnn.nn import MachineRNN, from_wfsa
from rrnn.wfsa import EPSILON, OTHER

RULE = from_regex("(not|never) .* good", match="contains", semiring="real")
WORDS = ["the", "film", "was", "not", "at", "all", "good", ",", "but", "good"]


def vectors(alphabet: Any, size: int) -> dict[Any, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {symbol: torch.randn(size, generator=generator) for symbol in alphabet}


def outputs(layer: MachineRNN, string: Any) -> Tensor:
    with use_backend("reference"):
        return layer(layer.encode(string))[0]


def weighted(semiring: str = "real") -> WFSA:
    """A nondeterministic machine with ε-arcs, cycles, a state on no path and odd weights."""
    arcs = [
        ("p", "a", "p", 0.5),
        ("p", "a", "q", -2.0),
        ("p", "b", "q", 0.25),
        ("q", "b", "p", 1.5),
        ("q", EPSILON, "r", 0.5),
        ("r", "c", "q", -0.75),
        ("r", "a", "dead", 1.0),
    ]
    return WFSA(semiring, alphabet="abc", arcs=arcs, initial={"p": 1.0, "q": 0.5}, final={"q": 2.0, "r": 0.5})


def test_one_hot_layers_are_exact() -> None:
    layer = from_wfsa(RULE)
    assert outputs(layer, WORDS)[:, 0].tolist() == [0.0] * 6 + [1.0] * 4  # bit by bit
    assert layer.input_size == 4 and layer.features == ()


def test_any_machine_over_the_reals() -> None:
    machine = weighted()
    layer = from_wfsa(machine, dtype=torch.float64)
    string = "aabacbbaca"
    torch.testing.assert_close(outputs(layer, string)[:, 0], machine.prefix_scores(string)[1:])
    assert to_wfsa(layer, 0).equivalent(machine)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("size", [1, 3, 30])
def test_given_vectors(size: int, dense: bool) -> None:
    """Thirty dimensions span all weights; with fewer, features of the rule's words and of others are appended."""
    known = [*RULE.alphabet, "film", "was", "the"]
    machine = from_regex("(not|never) .* good", known, match="contains", semiring="real")
    layer = from_wfsa(machine, vectors(known, size), dense=dense)
    enough = size == 30
    assert layer.features == (() if enough else ("not", "never", "good", OTHER))
    assert layer.input_size == size + (0 if enough else 4)
    expected = machine.prefix_scores(tuple(word if word in known else OTHER for word in WORDS))[1:]
    torch.testing.assert_close(outputs(layer, WORDS)[:, 0], expected.float(), atol=2e-5, rtol=0)
    assert to_wfsa(layer, 0).equivalent(machine, tolerance=1e-3)
    if not enough:
        assert outputs(layer, WORDS)[:, 0].tolist() == expected.tolist()


def test_span_is_what_is_checked() -> None:
    """A machine whose weights are linear in vectors of one dimension needs no features."""
    arcs = [("p", symbol, "q", 0.5 * i) for i, symbol in enumerate("abc")]
    arcs += [("q", symbol, "q", -1.0 * i) for i, symbol in enumerate("abc")]
    machine = WFSA("real", alphabet="abc", arcs=arcs, initial={"p": 1.0}, final={"q": 1.0})
    layer = from_wfsa(machine, torch.tensor([[0.0], [1.0], [2.0]]))
    assert layer.features == () and to_wfsa(layer, 0).equivalent(machine, tolerance=1e-5)
    features = from_wfsa(machine, torch.tensor([[1.0], [1.0], [2.0]])).features
    assert features == ("a", "b", "c")


def test_large_alphabets_share_a_feature() -> None:
    words = [f"w{i}" for i in range(5000)]
    layer = from_wfsa(from_regex("w1 .* w2", words, match="contains"))
    assert layer.features == ("w1", "w2", OTHER) and layer.input_size == 3
    assert outputs(layer, ("w7", "w1", "w9", "w2", "new")).flatten().tolist() == [0, 0, 0, 1, 1]


def test_several_machines_share_an_alphabet() -> None:
    """A machine with "<other>" reads another machine's words as that; one without has no arcs for them."""
    bad = from_regex("bad", match="contains", semiring="real")
    only = from_regex("bad+", ["bad"], semiring="real")
    layer = from_wfsa([RULE, bad, only])
    assert layer.alphabet == ("not", "never", "good", OTHER, "bad") and layer.hidden_size == 3
    assert outputs(layer, ("bad", "not", "good")).tolist() == [[0, 1, 1], [0, 1, 0], [1, 1, 0]]


def test_machines_without_a_gradient() -> None:
    """A boolean machine is made deterministic, so that two paths do not count twice; counts are counts."""
    arcs = [("p", "a", state, True) for state in "qr"] + [(state, "a", state, True) for state in "qr"]
    twice = WFSA("boolean", alphabet="a", arcs=arcs, initial={"p": True}, final={"q": True, "r": True})
    assert outputs(from_wfsa(twice), "aaa")[:, 0].tolist() == [1.0, 1.0, 1.0]
    assert outputs(from_wfsa(twice.with_semiring("counting")), "aaa")[:, 0].tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("semiring", ["log", "max-plus"])
def test_complete_machines_over_logarithms(semiring: str) -> None:
    arcs = [(p, a, q, float(p + 2 * q) - ord(a) / 50) for p in (0, 1) for q in (0, 1) for a in "ab"]
    machine = WFSA(semiring, alphabet="ab", arcs=arcs, initial={0: 0.0}, final={0: -1.0, 1: 0.5})
    layer = from_wfsa(machine, dtype=torch.float64)
    torch.testing.assert_close(outputs(layer, "abba")[:, 0], machine.prefix_scores("abba")[1:])


@pytest.mark.parametrize("dense", [False, True])
def test_training(dense: bool) -> None:
    """From "not … good" to "not … fine": gradients reach the weights, and the machine that is read back has learnt."""
    known = [*RULE.alphabet, "fine"]
    machine = from_regex("(not|never) .* good", known, match="contains", semiring="real")
    layer = from_wfsa(machine, dense=dense)
    optimiser = torch.optim.Adam(layer.parameters(), 0.1)
    texts = [
        ("not", OTHER, "fine"),
        ("fine", "not"),
        ("not", "good"),
        ("good", "never"),
        (OTHER, "fine", OTHER),
    ]
    targets = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0])
    x = torch.nn.utils.rnn.pad_sequence([layer.encode(text) for text in texts])
    ends = torch.tensor([len(text) for text in texts]) - 1
    for step in range(60):
        with use_backend("reference"):
            scores, _ = layer(x)
        loss = scores[ends, torch.arange(len(texts)), 0].sub(targets).square().mean()
        optimiser.zero_grad()
        loss.backward()
        if not step:
            assert loss.item() == pytest.approx(0.2)
            weight = layer.get_parameter("layers.0.weight")
            assert weight.grad is not None and weight.grad[:, layer.symbol_index["fine"]].abs().sum() > 0
        optimiser.step()
    before = from_wfsa(machine, dense=dense)
    assert all(not torch.equal(a, b) for a, b in zip(layer.parameters(), before.parameters(), strict=True))
    learnt = to_wfsa(layer, 0)
    read_back = [learnt.score(text).item() for text in texts]
    assert read_back == pytest.approx(targets.tolist(), abs=0.1)
    assert bool(dense) == (learnt.num_arcs == 3 * 3 * 5)


def test_copies_and_state_dicts() -> None:
    layer = from_wfsa(RULE, vectors(RULE.alphabet, 2))
    with torch.no_grad():
        layer.get_parameter("layers.0.weight").add_(0.1)
    again = from_wfsa(RULE, vectors(RULE.alphabet, 2))
    assert not torch.equal(outputs(again, WORDS), outputs(layer, WORDS))
    again.load_state_dict(layer.state_dict())
    for other in (again, copy.deepcopy(layer)):
        assert torch.equal(outputs(other, WORDS), outputs(layer, WORDS))


def test_new_symbols() -> None:
    layer = from_wfsa(RULE)
    assert torch.equal(layer.encode(("unheard-of",)), layer.encode((OTHER,)))
    strict = from_wfsa(weighted())
    assert outputs(strict, "a?a")[:, 0].tolist()[1:] == [0.0, 0.0]
    assert layer.encode(()).shape == (0, 4)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: from_wfsa("x"), AutomatonError, "takes a WFSA, or a list of at least one WFSA"),  # type: ignore[arg-type]
        (lambda: from_wfsa([]), AutomatonError, "at least one"),
        (
            lambda: from_wfsa(RULE.with_semiring("max-plus")),
            AutomatonError,
            "a missing arc over max-plus weighs -inf",
        ),
        (
            lambda: from_wfsa(RULE.with_semiring("complex")),
            AutomatonError,
            "are single numbers; those of complex have 2",
        ),
        (
            lambda: from_wfsa(RULE.with_semiring("max-times")),
            AutomatonError,
            "machine 0 over max-times with 3 states cannot",
        ),
        (lambda: from_wfsa(from_regex("", ["a"])), AutomatonError, "read at least one symbol"),
        (lambda: from_wfsa(from_regex("a{300}")), AutomatonError, "at most 256 states"),
        (
            lambda: from_wfsa(RULE, {"not": torch.ones(2)}),
            AutomatonError,
            "'never', 'good', '<other>' have none",
        ),
        (lambda: from_wfsa(RULE, torch.ones(3, 2)), ShapeError, r"each of the 4 symbols.*got \(3, 2\)"),
        (
            lambda: from_wfsa(RULE, {s: torch.ones(len(str(s))) for s in RULE.alphabet}),
            ShapeError,
            "1-d tensors of one size",
        ),  # type: ignore[arg-type]
        (lambda: from_wfsa(RULE, torch.full((4, 2), torch.nan)), ShapeError, "must be finite"),
    ],
    ids=range(11),
)
def test_mistakes(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
