"""Adam on all parameters at once: where they lie, and what has no gradient."""

from __future__ import annotations

import pytest
import torch
from kernel_cases import needs_interpreter
from torch import nn

from rrnn.tasks import update
from rrnn.tasks.update import Averages, FusedAdam

CPU = torch.device("cpu")


class Mixed(nn.Module):
    """Sizes of which some are whole sixteen bytes; `unused` has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.odd = nn.Parameter(torch.randn(3, 5))
        self.rnn = nn.LSTM(3, 4, bidirectional=True)
        self.unused = nn.Parameter(torch.randn(2))
        self.bias = nn.Parameter(torch.randn(4))
        self.matrix = nn.Parameter(torch.randn(6, 4))

    def loss(self) -> torch.Tensor:
        out, _ = self.rnn(self.odd.unsqueeze(0).mT)
        return out.sum() + (self.matrix + self.bias).square().sum()


def fused(model: nn.Module, *, kernels: bool) -> FusedAdam:
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    control = torch.tensor([0.1, 1.0])
    return FusedAdam(model, optimiser, Averages((), False, CPU), control=control, clip=1.0, kernels=kernels)


def test_where_parameters_lie() -> None:
    model = Mixed()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    places = {name: p.data_ptr() for name, p in model.named_parameters()}
    fused(model, kernels=False)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name])
        assert (parameter.data_ptr() == places[name]) == name.startswith("rnn.")  # cuDNN's stay side by side
    for parameter in (model.matrix, model.bias):  # whatever their neighbours' sizes
        assert parameter.data_ptr() % 16 == 0


@needs_interpreter
def test_what_has_no_gradient_has_a_gradient_of_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "PARTIALS", 2)
    models = Mixed(), Mixed()
    ours, theirs = fused(models[0], kernels=True), torch.optim.Adam(models[1].parameters(), lr=0.1)
    for _ in range(2):
        for model in models:
            model.zero_grad()
            model.loss().backward()
            assert model.unused.grad is None
        ours.step()
        nn.utils.clip_grad_norm_(models[1].parameters(), 1.0)
        theirs.step()
    for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)
