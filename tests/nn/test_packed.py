"""Sequences packed end to end (`cu_seqlens`): each is computed as if it was alone."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from cell_calls import MECHANICS_CELLS
from hypothesis import given
from hypothesis import strategies as st
from kernel_cases import needs_interpreter
from layer_cases import MECHANICS_LAYERS, inputs, make_layer, windowed
from packed_cases import compare, offsets_of, tensors
from torch import Tensor, nn
from zoo.test_wide import build

from rrnn.backends import get_backend
from rrnn.backends.cell_op import cell_by_cell
from rrnn.backends.layer_call import LayerCall, LayerCells
from rrnn.errors import BackendError, ShapeError
from rrnn.nn import RationalRNN
from rrnn.nn.packed import Packed, PackedWindow
from rrnn.nn.sequences import Window

LENGTHS = (3, 0, 19, 1, 5)


@pytest.mark.parametrize("name", [*MECHANICS_LAYERS, "windowed"])
@pytest.mark.parametrize("backend", ["native", "reference"])
def test_equal_to_separate_calls(name: str, backend: str) -> None:
    compare(make_layer(name), LENGTHS, backend)


@pytest.mark.parametrize(
    "options",
    [
        {"bidirectional": True, "num_layers": 2, "skip": "highway"},
        {"num_layers": 2, "skip": "residual", "norm": "layer", "bidirectional": True, "batch_first": True},
    ],
    ids=["highway", "residual"],
)
@pytest.mark.parametrize("name", ["mixed", "odd"])
def test_layers_in_both_directions(name: str, options: dict[str, Any]) -> None:
    compare(make_layer(name, **options), LENGTHS)


@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    name=st.sampled_from([*MECHANICS_CELLS, "windowed"]),
    both=st.booleans(),
)
def test_any_offsets(lengths: list[int], name: str, both: bool) -> None:
    compare(make_layer(name, bidirectional=both), lengths, slow_backend="native")


@needs_interpreter
@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, {}) for name in MECHANICS_CELLS), ("odd", {"bidirectional": True}), ("memoryless", {})],
)
def test_triton(name: str, options: dict[str, Any]) -> None:
    layer = make_layer(name, dtype=torch.float32, **options)
    lengths = (0, 17, 3, 0, 9) if name in MECHANICS_CELLS[:2] else (0, 4, 2)
    exact = make_layer(name, **options)
    exact.load_state_dict(layer.state_dict())
    compare(layer, lengths, "triton", exact=exact, tolerance=3e-4)


@pytest.mark.parametrize("name", ["GLA", pytest.param("Mamba-2", marks=pytest.mark.slow)])
@pytest.mark.parametrize("backend", ["native", "reference"])
def test_families(name: str, backend: str) -> None:
    compare(build(name, states=3, units=8), LENGTHS, backend)


@needs_interpreter
@pytest.mark.slow
@pytest.mark.parametrize("name", ["GLA", "Mamba-2", "LRU"])
def test_families_on_triton(name: str) -> None:
    layer = build(name, states=3, units=8, dtype=torch.float32)
    exact = build(name, states=3, units=8)
    exact.load_state_dict(layer.state_dict())
    compare(layer, (3, 0, 6), "triton", exact=exact, tolerance=3e-4)


def test_layouts() -> None:
    layer, x, offsets = make_layer("F"), inputs(9, 4), torch.tensor([0, 4, 9])
    out, state = layer(x, cu_seqlens=offsets)
    assert out.shape == (9, 3) and state[0].states[0].shape == (2, 2, 3)
    row, again = layer(x.unsqueeze(1), cu_seqlens=offsets.int())
    assert torch.equal(row[:, 0], out) and torch.equal(again[0].states[0], state[0].states[0])
    layer.batch_first = True
    assert torch.equal(layer(x.unsqueeze(0), cu_seqlens=[0, 4, 9])[0][0], out)
    empty, state = layer(x[:0], cu_seqlens=[0])
    assert empty.shape == (0, 3) and state[0].states[0].shape == (2, 0, 3)
    nothing, state = layer(x[:0], cu_seqlens=[0, 0, 0])
    assert nothing.shape == (0, 3)
    assert torch.equal(state[0].states[0], layer.init_state(2)[0].states[0])


def test_pieces_of_sequences_continue() -> None:
    """The state that a packed call returns is that of a batch."""
    layer, x = make_layer("mixed"), inputs(7, 2, 4)
    whole, _ = layer(x)
    _, state = layer(torch.cat([x[:3, 0], x[:4, 1]]), cu_seqlens=[0, 3, 7])
    rest, _ = layer(torch.cat([x[3:, 0], x[4:, 1]]), state, cu_seqlens=[0, 4, 7])
    torch.testing.assert_close(rest, torch.cat([whole[3:, 0], whole[4:, 1]]))
    step, _ = layer.step(x[4], layer(x[:4].transpose(0, 1).flatten(0, 1), cu_seqlens=[0, 4, 8])[1])
    torch.testing.assert_close(step, whole[4])


def test_windows_stay_inside_a_sequence() -> None:
    x, lengths = inputs(9, 4), (3, 0, 1, 5)
    packed = Packed.of(offsets_of(lengths), 9, x.device)
    history = inputs(2, 4, 4, seed=3)
    window = PackedWindow(x.unsqueeze(1), history, packed)
    parts = zip(x.split(list(lengths)), history.unbind(1), strict=True)
    alone = [Window(own.unsqueeze(1), past.unsqueeze(1), None, False) for own, past in parts]
    for k in (1, 2):
        assert torch.equal(window.lag(k), torch.cat([each.lag(k) for each in alone]))
    assert torch.equal(window.latest(), torch.cat([each.latest() for each in alone], 1))


@pytest.mark.parametrize("wide", [False, True])
def test_the_same_bits_on_every_run_and_from_separate_calls(wide: bool) -> None:
    layer = (
        build("GLA", 3, 64, dtype=torch.float32) if wide else make_layer("F", 64, 200, dtype=torch.float32)
    )
    x, offsets = inputs(300, 64, dtype=torch.float32).requires_grad_(), offsets_of((7, 200, 0, 60, 33))
    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2, 2):
            torch.set_num_threads(threads)
            out, state = layer(x, cu_seqlens=offsets)
            found.append(
                [out, *tensors(state), *torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])]
            )
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for run in found[1:] for a, b in zip(found[0], run, strict=True))


def test_nothing_crosses_a_boundary() -> None:
    layer, x, offsets = make_layer("windowed", num_layers=2, bidirectional=True), inputs(12, 4), [0, 5, 12]
    out, state = layer(x, cu_seqlens=offsets)
    other = x.clone()
    other[5:] = torch.nan
    changed, after = layer(other, cu_seqlens=offsets)
    assert torch.equal(changed[:5], out[:5]) and changed[5:].isnan().all()
    for a, b in zip(tensors(after), tensors(state), strict=True):
        assert torch.equal(a[:, 0], b[:, 0])


def test_variational_dropout_has_a_mask_for_each_sequence() -> None:
    torch.manual_seed(0)
    packed = Packed.of([0, 4, 4, 9], 9, torch.device("cpu"))
    ones = torch.ones(9, 1, 64)
    out = packed.shared_dropout(lambda x: nn.functional.dropout(x, 0.5), ones).squeeze(1)
    first, last = out[:4], out[4:]
    assert (first == first[0]).all() and (last == last[0]).all() and not torch.equal(first[0], last[0])
    # Histories come before the steps: the same mask for all inputs of a sequence
    out = packed.shared_dropout(lambda x: nn.functional.dropout(x, 0.5), torch.ones(2 * 3 + 9, 1, 64))[:, 0]
    assert torch.equal(out[0], out[3]) and torch.equal(out[0], out[6]) and torch.equal(out[2], out[10])


@pytest.mark.parametrize("name", ["F", "windowed"])
def test_dropout_of_every_kind(name: str) -> None:
    rates = {"dropout": 0.5, "input_dropout": 0.5, "recurrent_dropout": 0.5}
    layer = make_layer(name, num_layers=2, bidirectional=True, **rates)
    x = inputs(9, 4).requires_grad_()
    out, _ = layer(x, cu_seqlens=[0, 4, 9])
    (grad,) = torch.autograd.grad(out.square().sum(), x)
    assert (
        out.isfinite().all()
        and grad.isfinite().all()
        and not torch.equal(out, layer(x, cu_seqlens=[0, 4, 9])[0])
    )


# ---- graphs ----------------------------------------------------------------------------------------------------------


class Tagger(nn.Module):
    """A layer inside a model: offsets in, scores of tags out."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rnn = RationalRNN(windowed(), 4, 4, num_layers=2, bidirectional=True)

    def forward(self, x: Tensor, offsets: Tensor) -> Tensor:
        return self.rnn(x, cu_seqlens=offsets)[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("how", ["compile", "export", "trace"])
def test_graphs_take_other_offsets(how: str) -> None:
    model, x, offsets = Tagger(), inputs(9, 4, dtype=torch.float32), torch.tensor([0, 4, 9])
    if how == "compile":
        captured: Any = torch.compile(model, fullgraph=True, backend="aot_eager")
    elif how == "export":
        total, n = torch.export.Dim("total", min=2), torch.export.Dim("n", min=3)
        shapes = {"x": {0: total}, "offsets": {0: n}}
        captured = torch.export.export(model, (x, offsets), dynamic_shapes=shapes).module()
    else:
        captured = torch.jit.trace(model, (x, offsets))
    for own, at in ((x, offsets), (inputs(13, 4, dtype=torch.float32), torch.tensor([0, 2, 2, 13]))):
        ours, theirs = captured(own, at), model(own, at)
        torch.testing.assert_close(ours, theirs)
        found = (torch.autograd.grad(out.square().sum(), list(model.parameters())) for out in (ours, theirs))
        torch.testing.assert_close(*found)


def test_the_registered_op() -> None:
    layer = make_layer("F")
    packed = Packed.of([0, 4, 4, 9], 9, torch.device("cpu"))
    program, rows = layer.layers[0].programs[0], layer.layers[0].parameter_rows(layer.layers[0].weight)[0]
    states = [s.detach().requires_grad_() for s in layer.init_state(3)[0].states]
    x = inputs(9, 1, layer.layers[0].columns).requires_grad_()
    table = (torch.stack(list(rows)) if not isinstance(rows, Tensor) else rows).detach().requires_grad_()
    args = (x, [table], states, None, None, [program.text], [3], 2, "native", packed.table)
    torch.library.opcheck(torch.ops.rrnn.forward.default, args)


def test_onnx_is_refused() -> None:
    layer, table = make_layer("F").layers[0], Packed.of([0, 4, 9], 9, torch.device("cpu")).table
    cells = LayerCells(layer.programs, layer.widths, 0, get_backend("native"))
    with pytest.raises(BackendError, match="ONNX models cannot take packed sequences"):
        cell_by_cell(LayerCall(inputs(9, 1, 3), [], None, None, cells, table), [])


# ---- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([1, 5, 9], "the first is 1, not 0"),
        ([0, 5, 3, 9], "cu_seqlens[2] is 3 after 5. Pass cumulative sums, not lengths."),
        ([0, 5, 8], "the last is 8. Cut the input, input[:cu_seqlens[-1]], or end with its length."),
        ([0, 5, 10], "the last is 10"),
        (torch.tensor([0.0, 9.0]), "int32 or int64; got torch.float32. Write cu_seqlens.int()."),
        (torch.tensor([False, True]), "int32 or int64; got torch.bool"),
        (torch.tensor([[0, 9]]), "got shape (1, 2)"),
        ([], "got shape (0,). Without sequences it is [0]"),
        (9, "got int. Pass an int32 or int64 tensor."),
        (["a"], "got list"),
    ],
    ids=str,
)
def test_mistakes(offsets: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=re.escape(message)) as caught:
        make_layer("F")(inputs(9, 4), cu_seqlens=offsets)
    assert "cu_seqlens holds n + 1 offsets of n sequences in the 9 steps" in str(caught.value)


def test_other_mistakes() -> None:
    layer, x, offsets = make_layer("F"), inputs(9, 2, 4), torch.tensor([0, 9])
    for padding in ({"lengths": [9]}, {"mask": torch.ones(9).bool()}):
        with pytest.raises(ShapeError, match="leave out lengths= and mask="):
            layer(x[:, 0], cu_seqlens=offsets, **padding)
    with pytest.raises(ShapeError, match=re.escape("the input is (total, features) or (total, 1, features)")):
        layer(x, cu_seqlens=offsets)
    with pytest.raises(ShapeError, match=re.escape("or (1, total, features): sequences end to end")):
        make_layer("F", batch_first=True)(x, cu_seqlens=offsets)
    with pytest.raises(ShapeError, match="a PackedSequence has its own lengths"):
        layer(nn.utils.rnn.pack_sequence([x[:, 0]]), cu_seqlens=offsets)
    with pytest.raises(ShapeError, match=re.escape("state[0].states[0] of shape (2, 1, 3)")):
        layer(x[:, 0], layer.init_state(2), cu_seqlens=offsets)
    with pytest.raises(ShapeError, match="cu_seqlens is on meta and the input on cpu"):
        layer(x[:, 0], cu_seqlens=offsets.to("meta"))
