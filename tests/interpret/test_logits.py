"""Contributions to logits: exact behind a linear read-out on scores, first-order elsewhere, and said to be so."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
from layer_cases import inputs, make_layer, randomised
from torch import Tensor, nn

from rrnn import zoo
from rrnn.automata import Cell, score, sigmoid
from rrnn.automata import linear as linear_
from rrnn.errors import AutomatonError, ShapeError
from rrnn.interpret import decompose, logit_contributions, read
from rrnn.nn import RationalRNN
from rrnn.theory import scores as layer_scores

LENGTHS = [5, 2, 4]


def head(inner: nn.Module, pooling: str) -> Callable[[Tensor], Tensor]:
    def logits(h: Tensor) -> Tensor:
        if pooling == "last":
            return inner(torch.stack([h[n - 1, b] for b, n in enumerate(LENGTHS)]))
        return inner(torch.stack([h[:n, b].mean(0) for b, n in enumerate(LENGTHS)]))

    return logits


def linear() -> nn.Module:
    return randomised(nn.Linear(3, 2, dtype=torch.float64))


def mlp() -> nn.Module:
    return randomised(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double())


def fading() -> Cell:
    """It may end where it began: there are paths that no token enters."""
    f = sigmoid(linear_("f"))
    return (
        Cell("fading")
        .initial("q0")
        .loop("q0", f)
        .arc("q0", "q1", linear_("u"))
        .loop("q1", f)
        .final("q0")
        .final("q1")
    )


def plain(name: str) -> RationalRNN:
    cell = fading() if name == "fading" else zoo.get_cell(name)
    return randomised(RationalRNN(cell.output(score), 4, 3, dtype=torch.float64))


@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize("name", ["B", "C", "F", "ngram4", "fading"])
def test_behind_a_linear_read_out_they_are_exact(name: str, pooling: str) -> None:
    layer, x, out = plain(name), inputs(5, 3, 4), linear()
    reading = read(layer, x, lengths=LENGTHS)
    found = logit_contributions(reading, head(out, pooling), affine=True)
    assert found.exact
    of_layer = head(out, pooling)(layer(x, lengths=LENGTHS)[0]).detach()
    torch.testing.assert_close(found.logits, of_layer)
    torch.testing.assert_close(found.base + found.constant + found.by_token.sum(0), of_layer)
    torch.testing.assert_close(found.base + found.by_unit.sum(-1), of_layer)
    torch.testing.assert_close(found.unexplained, torch.zeros_like(of_layer))
    assert found.constant.any() == (name == "fading")
    if pooling == "last":
        by_token = decompose(reading).by_token @ out.weight.detach().T
        torch.testing.assert_close(found.by_token, by_token)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_elsewhere_they_are_first_order(pooling: str, backward: bool) -> None:
    """Σ over steps of gradient · decomposition of that step's score, which is the score of a shorter sentence."""
    rnn, x, out = make_layer("F", bidirectional=True), inputs(5, 3, 4), mlp()
    side = rnn.reverse_layers[0] if backward else rnn.layers[0]
    alone = make_layer("F")
    alone.layers[0].load_state_dict(side.state_dict())
    found = logit_contributions(
        read(rnn, x, lengths=LENGTHS, backward=backward), head(out, pooling), affine=True
    )
    assert not found.exact  # the output is tanh(score)

    def turned(some: Tensor) -> Tensor:
        return some.flip(0) if backward else some

    for b, n in enumerate(LENGTHS):
        sentence = turned(x[:n, b])
        own = layer_scores(alone, sentence).detach().requires_grad_()
        h = torch.zeros(5, 3, 3, dtype=torch.float64)
        h = torch.cat([turned(own.tanh()).unsqueeze(1), h[:n, 1:]], 1)  # this sentence, alone and first
        pooled = h[n - 1, 0] if pooling == "last" else h[:n, 0].mean(0)
        for c in range(2):
            (gradient,) = torch.autograd.grad(out(pooled)[c], own, retain_graph=True)
            expected = torch.zeros(n, dtype=torch.float64)
            for t in range(n):
                expected[: t + 1] += (
                    decompose(read(alone, sentence[: t + 1])).by_token[:, 0] * gradient[t]
                ).sum(-1)
            torch.testing.assert_close(found.by_token[:n, b, c], turned(expected))
            torch.testing.assert_close(found.gradient[:n, b, c], turned(gradient))
            torch.testing.assert_close(found.by_unit[b, c], (gradient * own).sum(0).detach())
    assert (found.by_token[2:, 1] == 0).all()
    rest = found.logits - found.base - found.by_token.sum(0)
    torch.testing.assert_close(found.unexplained, rest - found.constant)


def test_layers_of_single_precision_and_outputs_that_read_more() -> None:
    """SRU's output reads gates and its input beside the score."""
    layer = zoo.layer("SRU", 4, 3)
    x, out = inputs(5, 3, 4, dtype=torch.float32), nn.Linear(3, 2)
    found = logit_contributions(read(layer, x, lengths=LENGTHS), head(out, "last"))
    expected = head(out, "last")(layer(x, lengths=LENGTHS)[0]).detach()
    torch.testing.assert_close(found.logits.float(), expected)
    assert not found.exact
    json.dumps(found.to_json(), allow_nan=False)


def test_mistakes() -> None:
    x, out = inputs(5, 3, 4), head(linear(), "last")
    with pytest.raises(AutomatonError, match="those of B_max_plus over max-plus do not"):
        logit_contributions(read(make_layer("B-max-plus"), x), out)
    with pytest.raises(AutomatonError, match="a skip connection or a norm after the cells"):
        logit_contributions(read(make_layer("F", skip="residual"), x), out)
    with pytest.raises(ShapeError, match="depends on all units"):
        logit_contributions(read(make_layer("F"), x).of_units([1]), out)
    with pytest.raises(ShapeError, match=r"logits \(batch, classes\); got shape \(5, 3, 3\)"):
        logit_contributions(read(make_layer("F"), x), lambda h: h)


@pytest.mark.parametrize("trained", [False, True])
def test_a_head_that_cuts_the_gradient(trained: bool) -> None:
    """Whether or not its own parameters have one."""
    readout = linear() if trained else torch.nn.Identity()
    reading = read(make_layer("F"), inputs(5, 3, 4))
    with pytest.raises(AutomatonError, match=r"the head's logits have none\. Compute them .* without detach"):
        logit_contributions(reading, lambda h: readout(h[-1].detach()))
