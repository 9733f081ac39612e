"""Stars over logarithms keep their digits, near 0 and far below it, on numbers and in every backend."""

from __future__ import annotations

from decimal import Decimal, localcontext

import pytest
import torch

from rrnn.arithmetic import FLOATS, TENSORS
from rrnn.automata import Cell, construct, log_sigmoid, one, parameter, score
from rrnn.backends import use_backend
from rrnn.nn import RationalRNN
from rrnn.semirings import get_semiring

BELOW_ZERO = [-1e-30, -1e-16, -1e-9, -1e-4, -0.01, -0.3, -0.6931, -0.7, -2.0, -10.0, -20.0, -40.0, -300.0]


def exact(a: float, sign: int) -> tuple[float, float]:
    """Return −log(1 − s·eᵃ) and its derivative, computed with 400 digits."""
    with localcontext() as context:
        context.prec = 400
        e = sign * Decimal(a).exp()
        return float(-(1 - e).ln()), float(e / (1 - e))


@pytest.mark.parametrize("a", BELOW_ZERO)
@pytest.mark.parametrize(("semiring", "sign"), [("log", 1), ("signed-log", 1), ("signed-log", -1)])
def test_values_and_gradients(semiring: str, sign: int, a: float) -> None:
    ring = get_semiring(semiring)
    value, slope = exact(a, sign)
    element = (float(sign), a) if ring.components else a
    assert ring.numbers_of(ring.star_of(element, FLOATS))[-1] == pytest.approx(value, rel=3e-15)

    for dtype, tolerance in ((torch.float64, 3e-15), (torch.float32, 2e-6)):
        number = torch.tensor(a, dtype=dtype, requires_grad=True)
        value, slope = exact(float(number.detach()), sign) if number.detach() else (torch.inf, torch.inf)
        if not abs(number.detach()) > torch.finfo(dtype).tiny or abs(value) < torch.finfo(dtype).tiny:
            continue
        tensors = (torch.tensor(float(sign), dtype=dtype), number) if ring.components else number
        star = ring.numbers_of(ring.star_of(tensors, TENSORS))[-1]
        assert float(star.detach()) == pytest.approx(value, rel=tolerance)
        (gradient,) = torch.autograd.grad(star, number)
        assert float(gradient) == pytest.approx(slope, rel=10 * tolerance)


P = [-80.0, -40.0, -20.0, -10.0, -3.0, -0.5, 0.0, 0.5, 3.0, 10.0, 20.0, 60.0]


@pytest.mark.parametrize("backend", ["reference", "native", "triton"])
@pytest.mark.parametrize("semiring", ["log", "signed-log"])
def test_layers(semiring: str, backend: str) -> None:
    """With a = log σ(p), the star is −log(1 − σ(p)) = log(1 + eᵖ), with the gradient σ(p)."""
    pytest.importorskip("triton" if backend == "triton" else "torch")
    loop = log_sigmoid(parameter("p"))
    weight, read = (loop, score) if semiring == "log" else (construct("signed", 1.0, loop), score.log)
    cell = Cell("star", semiring).initial("q0").arc("q0", "q1", one).epsilon("q1", "q1", weight).final("q1")
    cell = cell.final("q0").arc("q1", "q0", one)  # a score that is never zero
    layer = RationalRNN(cell.output(read), 1, len(P))
    with torch.no_grad():
        (p,) = (value for name, value in layer.named_parameters() if name.endswith("parameter.p"))
        p.copy_(torch.tensor(P))
    with use_backend(backend):
        out, _ = layer(torch.zeros(1, 1, 1))
        (gradient,) = torch.autograd.grad(out.sum(), p)
    truth = torch.tensor(P, dtype=torch.float64)
    wanted = -torch.nn.functional.logsigmoid(-truth)
    torch.testing.assert_close(out[0, 0].double(), wanted, rtol=2e-5, atol=0)
    torch.testing.assert_close(gradient.double(), truth.sigmoid(), rtol=2e-5, atol=0)
