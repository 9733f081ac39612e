"""Every model of the zoo computes its published equations; the mechanics of layers work however a sequence is fed.

Cells share the code of `RationalRNN`, so three of them stand for all in the tests of mechanics: F has two stored states
and an ε-arc, QRNN2 a window, and SRU's output sees the input. Every other layer has code of its own and is tested.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from layer_cases import inputs, randomised
from published_equations import PUBLISHED
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only
from wide_equations import TWINS

from rrnn import zoo
from rrnn.backends import use_backend

LENGTHS = [3, 6, 0, 5]
MECHANICS = ["F", "QRNN2", "SRU", *(name for name, model in zoo.MODELS.items() if not model.is_cell)]
HOLES = torch.tensor([[0, 1], [1, 0], [0, 0], [1, 1], [1, 0], [0, 1]], dtype=torch.bool)


def make(name: str, input_size: int = 4, hidden_size: int = 3, **options: Any) -> Any:
    return randomised(zoo.layer(name, input_size, hidden_size, dtype=torch.float64, **options), len(name))


def sample(name: str, steps: int, batch: int, size: int = 4) -> Tensor:
    """Vectors (T, B, I), or for ISAN symbols (T, B)."""
    x = inputs(steps, batch, size)
    return (x[..., 0].abs() * 7).long() % size if name == "ISAN" else x


def gradients(layer: nn.Module, out: Tensor, *more: Tensor) -> list[Tensor]:
    loss = (out * inputs(*out.shape, seed=5)).sum()
    return list(torch.autograd.grad(loss, [*layer.parameters(), *more], materialize_grads=True))


def sequences(state: Any, take: Callable[[Tensor], Tensor]) -> Any:
    """The state of some sequences of the batch: every tensor of a state is (…, batch, units)."""
    return tree_map_only(Tensor, take, state)


def close(a: Any, b: Any) -> None:
    torch.testing.assert_close(tree_leaves(a), tree_leaves(b))


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize(
    "backend", ["reference", pytest.param("auto", marks=pytest.mark.slow)]
)  # compiles kernels
def test_published_equations(name: str, backend: str) -> None:
    """Outputs and all gradients, with inputs as wide as the layer and wider."""
    for input_size in (4, 3) if backend == "reference" else (4,):
        layer = make(name, input_size)
        x = sample(name, 6, 2, input_size)
        seen = [x.requires_grad_()] if x.is_floating_point() else []
        with use_backend(backend):
            out, _ = layer(x)
            expected = PUBLISHED[name](layer, x)
            torch.testing.assert_close(out, expected)
            close(gradients(layer, out, *seen), gradients(layer, expected, *seen))


@pytest.mark.parametrize("name", MECHANICS)
class TestMechanics:
    def test_pieces_and_steps(self, name: str) -> None:
        layer = make(name)
        x = sample(name, 6, 2)
        with use_backend("reference"):
            expected = PUBLISHED[name](layer, x)
            whole, end = layer(x)
            state, pieces = layer.init_state(2), []
            for piece in x.split([1, 3, 2]):
                out, state = layer(piece, state)
                pieces.append(out)
            torch.testing.assert_close(torch.cat(pieces), expected)
            close(state, end)
            close(gradients(layer, torch.cat(pieces)), gradients(layer, whole))
            state = None
            for t in range(6):
                out, state = layer.step(x[t], state)
                torch.testing.assert_close(out, expected[t])
            close(state, end)
            out, state = layer.step(x[0, 0], layer.init_state())  # without a batch
            torch.testing.assert_close(out, expected[0, 0])

    def test_padding(self, name: str) -> None:
        """Lengths and masks equal the sequences alone, whatever padding holds, states and gradients included."""
        layer = make(name)
        x = sample(name, 6, 4)
        prefix = torch.arange(6).unsqueeze(1) < torch.tensor(LENGTHS)
        with use_backend("reference"):
            for mask, how in ((prefix, {"lengths": LENGTHS}), (HOLES, {"mask": HOLES})):
                given = x[:, : mask.shape[1]]
                seen = []
                if given.is_floating_point():
                    given = torch.where(mask.unsqueeze(-1), given, torch.nan)
                    seen = [given.requires_grad_()]
                else:
                    given = torch.where(mask, given, 99)
                out, end = layer(given, **how)
                assert not out[~mask].any()
                grads = gradients(layer, out, *seen)
                assert all(g.isfinite().all() for g in grads)
                assert not any(g[~mask].any() for g in grads[len(grads) - len(seen) :])
                parts = []
                for b in range(mask.shape[1]):
                    alone = x[mask[:, b], b : b + 1]
                    _, state = layer(alone, layer.init_state(1))
                    close(sequences(end, lambda t, b=b: t.narrow(-2, b, 1)), state)
                    if len(alone):
                        expected = PUBLISHED[name](layer, alone)
                        torch.testing.assert_close(out[mask[:, b], b : b + 1], expected)
                        parts.append((expected * inputs(*out.shape, seed=5)[mask[:, b], b : b + 1]).sum())
                loss = torch.stack(parts).sum()
                grads = grads[: len(grads) - len(seen)]
                close(grads, torch.autograd.grad(loss, list(layer.parameters()), materialize_grads=True))

    def test_layouts(self, name: str) -> None:
        layer, other = make(name), make(name, batch_first=True)
        x, mask = sample(name, 6, 2), HOLES
        with use_backend("reference"):
            out, end = layer(x, mask=mask)
            swapped, state = other(x.transpose(0, 1), mask=mask.T)
            torch.testing.assert_close(swapped.transpose(0, 1), out)
            close(state, end)
            torch.testing.assert_close(other.step(x[0])[0], layer.step(x[0])[0])
            one, state = layer(x[:, 1], mask=mask[:, 1])
            torch.testing.assert_close(one, out[:, 1])
            close(state, sequences(end, lambda t: t.select(-2, 1)))

    def test_copies(self, name: str) -> None:
        layer, x = make(name), sample(name, 4, 2)
        fresh = zoo.layer(name, 4, 3, dtype=torch.float64)
        fresh.load_state_dict(layer.state_dict())
        with use_backend("reference"):
            for twin in (fresh, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
                torch.testing.assert_close(twin(x)[0], layer(x)[0])

    # torch.compile runs torch's own layers as they are, and what is around them piece by piece. Looking at inputs of a
    # piece it hides this warning, but not from filters that make warnings errors.
    @pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
    def test_compile(self, name: str) -> None:
        torch._dynamo.reset()
        layer, x = make(name), sample(name, 3, 2)
        torchs = isinstance(layer, nn.RNNBase)  # which torch.compile leaves as it is
        compiled = torch.compile(layer, fullgraph=not torchs, backend="eager")
        with use_backend("reference"):
            out, end = compiled(x)
            expected, state = layer(x)
        torch.testing.assert_close(out, expected)
        close(end, state)


def test_every_model_is_tested() -> None:
    assert not zoo.MODELS.keys() - PUBLISHED.keys() - TWINS.keys()  # these are tested in test_wide.py
