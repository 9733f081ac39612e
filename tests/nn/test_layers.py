"""Layers of every cell equal the definition, and the many ways to feed a sequence to a layer agree."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from layer_cases import CASES, MECHANICS_LAYERS, inputs, make_layer, same_state, sequences, slow_layer
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

from rrnn.backends import use_backend
from rrnn.nn import RationalRNN, State
from rrnn.nn.sequences import transform

FULL = {"num_layers": 2, "skip": "highway", "norm": "layer"}
LENGTHS = [3, 6, 0, 5]


# On a CPU the second backend compiles a kernel for each layer.
@pytest.fixture(autouse=True, params=["reference", pytest.param("auto", marks=pytest.mark.slow)])
def backend(request: pytest.FixtureRequest) -> object:
    with use_backend(request.param):
        yield


def padded(x: Tensor, mask: Tensor, fill: float) -> Tensor:
    return torch.where(mask.unsqueeze(-1), x, fill)


def mask_of(lengths: list[int], steps: int) -> Tensor:
    return torch.arange(steps).unsqueeze(1) < torch.tensor(lengths)


def gradients(layer: RationalRNN, *outputs: Tensor) -> dict[str, Tensor]:
    loss = torch.stack([(o * inputs(*o.shape, seed=5).to(o.dtype)).sum() for o in outputs]).sum()
    found = torch.autograd.grad(loss, list(layer.parameters()), materialize_grads=True, retain_graph=True)
    return dict(zip((n for n, _ in layer.named_parameters()), found, strict=True))


@pytest.mark.parametrize("name", CASES)
class TestEveryCell:
    @pytest.mark.parametrize("size", [4, None], ids=["projected", "equal"])
    def test_definition(self, name: str, size: int | None) -> None:
        """Every hidden unit by itself, in Python floats."""
        layer = make_layer(name)
        if size is None:
            layer = make_layer(name, input_size=layer.hidden_size)
        x = inputs(5, 2, layer.input_size)
        out, _ = layer(x)
        for b in range(2):
            torch.testing.assert_close(out[:, b].detach(), slow_layer(layer.layers[0], x[:, b]))


@pytest.mark.parametrize("name", MECHANICS_LAYERS)
class TestWhatLayersShare:
    def test_pieces_equal_the_whole(self, name: str) -> None:
        layer = make_layer(name, **FULL)
        x = inputs(7, 2, 4)
        whole, end = layer(x)
        state: State | None = None
        pieces = []
        for piece in x.split([1, 3, 0, 2, 1]):
            out, state = layer(piece, state)
            pieces.append(out)
        torch.testing.assert_close(torch.cat(pieces), whole)
        assert state is not None
        same_state(state, end)
        torch.testing.assert_close(gradients(layer, torch.cat(pieces)), gradients(layer, whole))

    def test_steps_equal_the_whole(self, name: str) -> None:
        layer = make_layer(name, **FULL)
        x = inputs(4, 2, 4)
        whole, end = layer(x)
        for state in (None, layer.init_state(2)):
            for t in range(4):
                out, state = layer.step(x[t], state)
                torch.testing.assert_close(out, whole[t])
            same_state(state, end)
        state = layer.init_state()
        for t in range(4):
            out, state = layer.step(x[t, 0], state)
            torch.testing.assert_close(out, whole[t, 0])

    @pytest.mark.parametrize(
        "options", [FULL, {"bidirectional": True, "num_layers": 2}], ids=["stacked", "both"]
    )
    def test_padding_equals_its_absence(self, name: str, options: dict[str, object]) -> None:
        """Lengths, masks, packed sequences and single sequences all agree, whatever the padding holds."""
        layer = make_layer(name, **options)
        x = inputs(6, 4, 4)
        mask = mask_of(LENGTHS, 6)
        expected, end = layer(padded(x, mask, 0.0), mask=mask)
        grads = gradients(layer, expected)
        for how in ({"mask": mask}, {"lengths": LENGTHS}, {"lengths": torch.tensor(LENGTHS)}):
            given = padded(x, mask, float("nan")).requires_grad_()
            out, state = layer(given, **how)
            torch.testing.assert_close(out, expected)
            same_state(state, end)
            assert not out[~mask].any()
            torch.testing.assert_close(gradients(layer, out), grads)
            (dx,) = torch.autograd.grad(out.sum(), given)
            assert not dx[~mask].any() and dx.isfinite().all()
        for b, length in enumerate(LENGTHS):
            out, state = layer(x[:length, b])  # unbatched
            torch.testing.assert_close(out, expected[:length, b])
            same_state(state, sequences(end, b))

    def test_padding_inside_and_before(self, name: str) -> None:
        """A mask with holes equals the sequence without them, windows included."""
        layer = make_layer(name, num_layers=2, bidirectional=True)
        x = inputs(6, 2, 4)
        mask = torch.tensor([[0, 1], [1, 0], [0, 0], [1, 1], [1, 0], [0, 1]], dtype=torch.bool)
        out, end = layer(padded(x, mask, float("nan")), mask=mask)
        assert not out[~mask].any()
        for b in range(2):
            alone, state = layer(x[mask[:, b], b : b + 1])
            torch.testing.assert_close(out[mask[:, b], b : b + 1], alone)
            same_state(sequences(end, slice(b, b + 1)), state)

    def test_padding_between_pieces(self, name: str) -> None:
        """Pieces with padding and a carried state: a window reaches back over padding into the piece before."""
        layer = make_layer(name)
        x = inputs(6, 2, 4)
        mask = torch.tensor([[1, 1], [1, 0], [0, 0], [0, 1], [1, 0], [0, 1]], dtype=torch.bool)
        whole, end = layer(x, mask=mask)
        for lengths in ([2, 4], [3, 1, 2]):
            state, outs = None, []
            for piece, part in zip(x.split(lengths), mask.split(lengths), strict=True):
                out, state = layer(piece, state, mask=part)
                outs.append(out)
            torch.testing.assert_close(torch.cat(outs), whole)
            assert state is not None
            same_state(state, end)

    def test_packed_sequences(self, name: str) -> None:
        layer = make_layer(name, num_layers=2, bidirectional=True)
        x, lengths = inputs(6, 4, 4), [3, 6, 1, 5]
        expected, end = layer(x, lengths=lengths)
        packed = pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
        out, state = layer(packed)
        assert torch.equal(out.batch_sizes, packed.batch_sizes)
        torch.testing.assert_close(pad_packed_sequence(out)[0], expected)
        same_state(state, end)
        # With a state, whose order is that of the sequences.
        layer = make_layer(name, num_layers=2)
        _, end = layer(x, lengths=lengths)
        expected, after = layer(x, end, lengths=lengths)
        again, state = layer(packed, end)
        torch.testing.assert_close(pad_packed_sequence(again)[0], expected)
        same_state(state, after)
        # Sorted by hand, so that the packing has no order to undo.
        order = [1, 3, 0, 2]
        packed = pack_sequence([x[: lengths[b], b] for b in order])
        start = sequences(end, order)
        again, _ = layer(packed, start)
        torch.testing.assert_close(pad_packed_sequence(again)[0], expected[:, order])

    def test_batch_first(self, name: str) -> None:
        layer, other = make_layer(name), make_layer(name, batch_first=True)
        x = inputs(5, 3, 4)
        mask = mask_of([5, 2, 4], 5)
        expected, end = layer(x, mask=mask)
        out, state = other(x.transpose(0, 1), mask=mask.T)
        torch.testing.assert_close(out.transpose(0, 1), expected)
        same_state(state, end)

    def test_two_directions(self, name: str) -> None:
        layer = make_layer(name, bidirectional=True)
        x = inputs(5, 2, 4)
        out, (forwards, backwards) = layer(x)
        left, _ = layer.layers[0](x)
        right, end = layer.reverse_layers[0](x.flip(0))
        torch.testing.assert_close(out, torch.cat([left, right.flip(0)], -1))
        same_state([backwards], [end])
        same_state([forwards], [layer.layers[0](x)[1]])

    def test_initial_state_has_gradients(self, name: str) -> None:
        layer = make_layer(name)
        state = transform(lambda t: t.detach().requires_grad_(), layer.init_state(2))
        out, end = layer(inputs(3, 2, 4), state)
        alone, _ = layer(inputs(3, 2, 4)[:, 1], sequences(state, 1))  # unbatched, with a state
        torch.testing.assert_close(alone, out[:, 1])
        grads = torch.autograd.grad(out.sum(), state[0].states, materialize_grads=True)
        assert all(g.isfinite().all() for g in grads)
        same_state(layer(inputs(3, 2, 4))[1], end)

    def test_copies(self, name: str) -> None:
        layer = make_layer(name, **FULL)
        x = inputs(3, 2, 4)
        expected, _ = layer(x)
        for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            torch.testing.assert_close(twin(x)[0], expected)
            assert repr(twin) == repr(layer)
        fresh = RationalRNN(CASES[name](), 4, layer.hidden_size, dtype=torch.float64, **FULL)
        fresh.load_state_dict(layer.state_dict())
        torch.testing.assert_close(fresh(x)[0], expected)
        weights = {n: p.detach() for n, p in layer.named_parameters()}
        for p in fresh.parameters():
            torch.nn.init.zeros_(p)
        out, _ = torch.func.functional_call(fresh, weights, (x,))
        torch.testing.assert_close(out, expected)
