"""The state of bidirectional layers: what comes out goes in, in the order and layout of `nn.LSTM`."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from layer_cases import CASES, MECHANICS_LAYERS, inputs, make_layer, same_state, sequences
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from rrnn.nn import RationalRNN, State
from rrnn.nn.sequences import transform

BOTH: dict[str, Any] = {"num_layers": 2, "bidirectional": True}


def random_state(layer: RationalRNN, batch: int) -> State:
    """Return a state that a call might have left: that after three random steps."""
    shape = (batch, 3) if layer.batch_first else (3, batch)
    return transform(lambda t: t.detach(), layer(inputs(*shape, layer.input_size, seed=9))[1])


def by_hand(layer: RationalRNN, cells: Any, x: Tensor, hx: State) -> tuple[Tensor, list[Any]]:
    """Return output and state of a bidirectional layer, from layers of one direction that read x and x reversed."""
    ends = []
    for depth in range(layer.num_layers):
        outputs = []
        for direction, part in enumerate(("layers", "reverse_layers")):
            one = RationalRNN(cells, x.shape[-1], layer.hidden_size, dtype=torch.float64)
            prefix = f"{part}.{depth}."
            own = {k: v for k, v in layer.state_dict().items() if k.startswith(prefix)}
            one.load_state_dict({k.replace(prefix, "layers.0."): v for k, v in own.items()})
            out, end = one(x.flip(0) if direction else x, (hx[2 * depth + direction],))
            outputs.append(out.flip(0) if direction else out)
            ends.append(end[0])
        x = torch.cat(outputs, -1)
    return x, ends


@pytest.mark.parametrize("name", MECHANICS_LAYERS)
class TestState:
    def test_each_direction_begins_with_its_own_state(self, name: str) -> None:
        layer, x = make_layer(name, **BOTH), inputs(5, 2, 4)
        hx = random_state(layer, 2)
        out, end = layer(x, hx)
        expected, ends = by_hand(layer, CASES[name](), x, hx)
        torch.testing.assert_close(out, expected)
        same_state(end, ends)
        same_state(layer(x)[1], layer(x, layer.init_state(2))[1])
        if layer.layers[0].state_shapes((2,))[0][0][0]:  # a layer without stored states ignores the state
            assert not torch.equal(out, layer(x)[0])

    def test_padding_layouts_and_single_sequences_agree(self, name: str) -> None:
        """The backward state is the one before the last valid step of each sequence, wherever that is."""
        layer, x, lengths = make_layer(name, **BOTH), inputs(6, 3, 4), [3, 6, 4]
        hx = random_state(layer, 3)
        padded = x.clone()
        for b, length in enumerate(lengths):
            padded[length:, b] = float("nan")
        out, end = layer(padded, hx, lengths=lengths)
        for b, length in enumerate(lengths):
            alone, state = layer(x[:length, b], sequences(hx, b))  # without a batch
            torch.testing.assert_close(out[:length, b], alone)
            same_state(state, sequences(end, b))
        packed, state = layer(pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False), hx)
        torch.testing.assert_close(pad_packed_sequence(packed)[0], out)
        same_state(state, end)
        twin = RationalRNN(CASES[name](), 4, layer.hidden_size, batch_first=True, dtype=torch.float64, **BOTH)
        twin.load_state_dict(layer.state_dict())
        swapped, state = twin(padded.transpose(0, 1), hx, lengths=lengths)  # the state's layout stays
        torch.testing.assert_close(swapped.transpose(0, 1), out)
        same_state(state, end)


def test_one_layer_can_be_fed_from_both_ends() -> None:
    """The forward half continues a sequence to the right, the backward half to the left, windows included."""
    for name in ("F", "windowed"):
        layer, x = make_layer(name, bidirectional=True), inputs(7, 2, 4)
        whole, (forwards, backwards) = layer(x)
        left, (after_left, _) = layer(x[:3])
        right, (_, before_left) = layer(x[3:])
        start = layer.init_state(2)
        again, (end, _) = layer(x[3:], (after_left, start[1]))
        units = layer.hidden_size
        torch.testing.assert_close(torch.cat([left, again])[..., :units], whole[..., :units])
        same_state([end], [forwards])
        again, (_, end) = layer(x[:3], (start[0], before_left))
        torch.testing.assert_close(torch.cat([again, right])[..., units:], whole[..., units:])
        same_state([end], [backwards])


def test_the_order_is_that_of_torch() -> None:
    """Entry i of the state changes the same half of the output as row i of h_0 in an LSTM."""
    ours = make_layer("F", num_layers=2, bidirectional=True, batch_first=True)
    lstm = nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True, dtype=torch.float64)
    x, hx = inputs(2, 5, 4), random_state(ours, 2)
    h, c = torch.zeros(4, 2, 3, dtype=torch.float64), torch.zeros(4, 2, 3, dtype=torch.float64)
    assert len(hx) == len(h)
    for i in range(4):
        c_0 = c.clone()
        c_0[i] = 1.0
        changed = [*ours.init_state(2)]
        changed[i] = hx[i]
        theirs, mine = lstm(x, (h, c_0))[0] - lstm(x)[0], ours(x, tuple(changed))[0] - ours(x)[0]
        assert theirs.shape == mine.shape
        # Layer 1 is the output, of which a backward half does not see the forward state; layer 0 reaches both.
        assert [bool(part.any()) for part in mine.chunk(2, -1)] == [
            bool(part.any()) for part in theirs.chunk(2, -1)
        ]


def test_gradients_reach_both_states() -> None:
    layer = make_layer("F", **BOTH)
    hx = transform(lambda t: t.requires_grad_(), random_state(layer, 2))
    out, _ = layer(inputs(4, 2, 4), hx)
    grads = torch.autograd.grad(out.square().sum(), [state for part in hx for state in part.states])
    assert len(grads) == 4 and all(g.abs().sum() > 0 for g in grads)


def test_a_state_of_one_direction_is_refused() -> None:
    layer, one = make_layer("F", **BOTH), make_layer("F", num_layers=2)
    with pytest.raises(
        ValueError, match=re.escape("a tuple of 4 LayerState (one per layer and direction); got 2")
    ):
        layer(inputs(4, 2, 4), one.init_state(2))
