"""ISAN on a CUDA device: the numbers of the CPU, step by step and in chunks."""

from __future__ import annotations

import pytest
import torch

from rrnn.zoo.mixing import ISAN

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("chunk", [None, 5])
def test_isan_equals_the_cpu(chunk: int | None) -> None:
    torch.manual_seed(0)
    layer, x = ISAN(5, 16, chunk=chunk), torch.randint(5, (23, 3))
    lengths, results = [23, 9, 0], []
    for device in ("cpu", "cuda"):
        layer.to(device)
        out, final = layer(x.to(device), lengths=lengths)
        grads = torch.autograd.grad((out**2).sum() + final.sum(), list(layer.parameters()))
        results.append([t.cpu() for t in (out, final, *grads)])
    torch.testing.assert_close(results[1], results[0], rtol=1e-3, atol=1e-3)
