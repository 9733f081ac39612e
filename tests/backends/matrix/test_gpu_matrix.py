"""The matrix schedule on a GPU: every model and dtype against the reference in float64, and the same bits."""

from __future__ import annotations

import pytest
import torch
from backends.matrix.test_matrix import MODELS, make, rms, run

import rrnn

pytestmark = pytest.mark.gpu

TOLERANCES = {torch.bfloat16: 0.02, torch.float16: 0.02, torch.float32: 1e-5}


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", [*MODELS, "own"])
@pytest.mark.parametrize("states, units", [(64, 256), (20, 96), (128, 512)])
def test_equal_to_the_reference(name: str, dtype: torch.dtype, states: int, units: int) -> None:
    exact, rnn = make(name, torch.float64, units, states), make(name, dtype, units, states)
    rnn.load_state_dict(exact.state_dict())
    exact.load_state_dict(rnn.state_dict())
    torch.manual_seed(2)
    x, lengths = torch.randn(200, 3, units).to(dtype), [200, 77, 1]
    projection = exact.double()
    ours = run(rnn.cuda(), x.cuda(), "matrix", lengths=lengths)
    wanted = run(projection, x.double(), "reference", lengths=lengths)
    assert max(map(rms, ours, wanted)) < TOLERANCES[dtype]


def test_the_same_bits_on_every_run() -> None:
    rnn = make("GLA", torch.bfloat16, 256, 64).cuda()
    x, found = torch.randn(300, 4, 256, device="cuda", dtype=torch.bfloat16), []
    for _ in range(3):
        v = x.clone().requires_grad_()
        with rrnn.use_backend("matrix"):
            out, _ = rnn(v)
        found.append([out, *torch.autograd.grad(out.sum(), [v, *rnn.parameters()])])
    assert all(torch.equal(a, b) for one in found[1:] for a, b in zip(found[0], one, strict=True))
