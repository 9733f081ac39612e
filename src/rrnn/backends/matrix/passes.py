"""The passes of a call of the matrix schedule, forward and backward."""

from __future__ import annotations

import torch
from torch import Tensor

from rrnn.backends.interface import CellCall, Gradients, units_contiguous
from rrnn.backends.matrix import chunks, elementwise
from rrnn.backends.matrix.factors import FactorGradients, StepGradients, Tiles, segments_of
from rrnn.backends.matrix.leaves import Leaf, read
from rrnn.backends.matrix.schedule import Call
from rrnn.ir import Op
from rrnn.ir.separable import KEYS, LOG_DECAY, QUERIES, SKIP, VALUE, WEIGHT


def readout(own: Call) -> tuple[int, ...]:
    """Return the instructions of all outputs."""
    return tuple(own.parts.readout.of_kind("output").values())


def columns_of(own: Call, out: Tensor, count: int) -> list[Tensor]:
    """Return the outputs (T, B, count · D), or their gradients, one by one and by heads."""
    return [t.unflatten(-1, (own.groups, -1, own.units)) for t in out.chunk(count, -1)]


def _first_places(call: CellCall, every: int) -> Tensor | list[int]:
    """Return where the states before each sequence's first step are saved: one place each, or one for all columns."""
    if call.sequences is None:
        return [0]
    return segments_of(call.sequences, call.x.shape[0], every)[1][:, 0]


def forward(call: CellCall, state: Tensor | None, out: Tensor, tiles: Tiles) -> tuple[Tensor, Tensor | None]:
    """Run a call forward, as `Backend.forward` describes it."""
    own = Call(call, tiles)
    scale = own.parts.scale
    direct = scale is not None and out.stride(-1) == 1
    o = out if direct else call.x.new_empty((own.steps, call.x.shape[1], call.units), dtype=own.dtype)
    end, states = own.run(state, o.unflatten(-1, (own.heads, own.units)), scale if direct and scale else 1.0)
    scores = o.unflatten(-1, (own.heads, own.units))
    if not direct and own.generates(own.parts.readout, readout(own)) and out.stride(-1) == 1:
        wanted = readout(own)
        kernel = elementwise.forward(
            own.parts.readout, wanted, (elementwise.PUT,) * len(wanted), (elementwise.UNIT,) * len(wanted)
        )
        written = columns_of(own, out, len(wanted))
        elementwise.launch(kernel, own.views(kernel.reads, scores), written, [False] * len(wanted), own.place)
    elif not direct:
        result = own.outputs(scores)
        if call.mask is not None:
            result = torch.where(call.mask[:, :, None], result, 0.0)
        out.copy_(result)
    saved = None
    if call.every:
        saved = states
        if saved is None or call.every != tiles.segment:  # the first ones are enough to compute the others
            saved = end.new_zeros(call.saved_shape(end.shape[0]))
            if states is not None:
                saved[_first_places(call, call.every)] = states[_first_places(call, tiles.segment)]
    return own.turn_states(end), saved


def backward(call: CellCall, saved: Tensor, grads: Gradients, tiles: Tiles) -> tuple[Tensor, Tensor | None]:
    """Run the gradient of a call, as `Backend.backward` describes it; return gradients of parameters (1, P)."""
    own = Call(call, tiles, grad=True)
    f, go, scale = own.factors, grads.out, own.parts.scale
    if call.mask is not None:
        go = torch.where(call.mask[:, :, None], go, 0.0)
    back = _LeafGradients(own, grads)
    states = saved if call.every == tiles.segment else None
    first = None
    generated = None
    if scale is None and own.generates(own.parts.readout, readout(own)):
        generated = elementwise.backward(own.parts.readout, readout(own))
    again = scale is None and (generated is None or elementwise.SCORE in generated.reads)  # scores are needed
    turns = own.parts.turns and grads.state is not None  # by angles whose gradients need the final state
    again = again or turns
    if states is None or again:
        own_first = saved[_first_places(call, call.every)]  # (1, N, B, H·U) or (n, N, 1, H·U)
        first = (own_first[0] if call.sequences is None else own_first[:, :, 0].transpose(0, 1)).contiguous()
    scores = end = None
    if again or (states is None and not own.fast):
        scores = call.x.new_empty((own.steps, call.x.shape[1], own.heads, own.units), dtype=own.dtype)
        end, states = own.run(first, scores, 1.0)
    if generated is not None:
        go = back.through_outputs(generated, units_contiguous(go), scores)
    elif scale is None:
        assert scores is not None
        with torch.enable_grad():
            result = own.outputs(scores.requires_grad_())
        go = back.through([result], [go.to(own.dtype)], scores)
    else:
        go = go.unflatten(-1, (own.heads, own.units))
    go = units_contiguous(go)
    target = FactorGradients(back.target(QUERIES), back.target(KEYS), back.target(VALUE))
    grad_end = None if grads.state is None else own.turn_states(grads.state, back=True).contiguous()
    if own.fast:
        from rrnn.backends.matrix import blocks

        learns = grads.wants_params or own.decay_of_steps
        grad_first, steps = blocks.backward(
            f, states, first, go, grad_end, tiles, target, scale or 1.0, learns
        )
    else:
        assert states is not None
        grad_first, dg = chunks.backward(f, states, go, grad_end, target, tiles.chunk, scale or 1.0)
        steps = StepGradients(dg)
    ends: list[tuple[Tensor, Tensor]] = []
    if turns and end is not None and grads.state is not None:
        with torch.enable_grad():
            ends = [(own.turn_states(end), grads.state)]
    back.factors(target, steps, ends)
    return back.finish(), grad_first if grads.wants_first else None


class _LeafGradients:
    """The gradients of what a call reads: projections, the layer's input, parameters."""

    def __init__(self, own: Call, grads: Gradients) -> None:
        self.own, self.grads = own, grads
        self.found: dict[Leaf, Tensor] = {}
        self.params = torch.zeros_like(own.call.params, dtype=own.dtype)
        self.in_place: dict[int, Tensor] = {}  # gradients of plain factors that are written where they belong
        self.written: set[Leaf] = set()  # by generated kernels, where they belong

    def place(self, leaf: Leaf) -> Tensor:
        """Return where the gradient of a leaf belongs."""
        call = self.own.call._replace(x=self.grads.x, inp=self.grads.inp, params=self.params)
        return read(call, [leaf])[leaf]

    def target(self, factor: int) -> Tensor:
        """Return where the gradient of a factor, per head, is to be written."""
        own, width = (
            self.own,
            self.own.factors.v.shape[-1] if factor == VALUE else self.own.factors.k.shape[-1],
        )
        shape = own.steps, own.batch, own.heads, width
        if factor in own.plain:
            place = self.place(own.plain[factor])
            if place.stride(-1) == 1 and place.shape[2] * place.shape[3] == own.heads:
                self.in_place[factor] = place.view(shape)
                return self.in_place[factor]
        return own.call.x.new_empty(shape, dtype=own.call.x.dtype if own.generated else own.dtype)

    def factors(
        self, target: FactorGradients, steps: StepGradients, more: list[tuple[Tensor, Tensor]]
    ) -> None:
        """Take the gradients of all factors back to the leaves, and those of `more` values that leaves turn."""
        own, outputs, given = self.own, [value for value, _ in more], [grad for _, grad in more]
        for factor, grad in ((QUERIES, target.q), (KEYS, target.k), (VALUE, target.v)):
            value = own.found[factor]
            if factor in self.in_place or (own.generated and factor in own.computed):
                continue
            shared = grad.shape != value.shape  # by heads
            split = grad.unflatten(2, (value.shape[2], -1)) if shared else grad
            if factor in own.plain:
                place = self.place(own.plain[factor])
                if shared and place.dtype == grad.dtype:
                    torch.sum(split, 3, out=place.squeeze(3))
                else:
                    place.copy_((split.sum(3) if shared else grad).view(place.shape))
            elif value.requires_grad:
                outputs.append(value)
                given.append(split.sum(3) if shared else grad)
        if own.generated:
            known = [
                (i, n)
                for i, n in zip(own.computed, own.wanted, strict=True)
                if i != LOG_DECAY or steps.decay is not None
            ]
            if known:
                names = QUERIES, KEYS, VALUE, LOG_DECAY, WEIGHT, SKIP
                given_by: dict[int, Tensor | None] = dict(zip(names, (*target, *steps), strict=True))
                seeds = [self.split(given_by[i], i in (LOG_DECAY, WEIGHT, SKIP)) for i, _ in known]
                parts = own.factors.parts_of_decay
                summed = next((j for j, (i, _) in enumerate(known) if i == LOG_DECAY and parts), None)
                wanted = tuple(n for _, n in known)
                self.generate(elementwise.backward(own.parts.factors, wanted, summed), seeds)
        elif steps.decay is not None and own.g is not None and own.g.requires_grad:
            outputs.append(own.g)
            given.append(steps.decay)
        if outputs:
            self.through(outputs, given)

    def split(self, grad: Tensor | None, parts: bool) -> Tensor:
        """Return the gradient of a factor (T, B, H, X) or (T, B, H), or its `parts` on one more axis before these, by
        groups and heads."""
        assert grad is not None
        lacks = 4 + parts - grad.dim()
        return (grad.unsqueeze(-1) if lacks else grad).unflatten(2 + parts, (self.own.groups, -1))

    def generate(
        self, kernel: elementwise.Generated, seeds: list[Tensor], score: Tensor | None = None
    ) -> Tensor | None:
        """Compute gradients of leaves by a generated kernel, where they belong; return that of the score."""
        own, found = self.own, []
        for leaf, mode in zip(kernel.writes, kernel.modes, strict=True):
            assert isinstance(leaf, tuple)
            if leaf == elementwise.SCORE:
                found.append(own.by_heads(own.units, own.call.x.dtype))
            elif mode == elementwise.PARTIAL:
                at, x = own.place, self.place(leaf).shape[-1]
                found.append(self.params.new_empty((at.chunks, at.B, own.groups, at.HG, x)))
            else:
                found.append(self.place(leaf))
        reads = [*own.views(kernel.reads, score), *(seeds[j] for j in kernel.seeds)]
        add = [leaf in self.written and leaf[0] is not Op.PARAM for leaf in kernel.writes]  # pyright: ignore
        elementwise.launch(kernel, reads, found, add, own.place)
        for leaf, mode, value in zip(kernel.writes, kernel.modes, found, strict=True):
            assert isinstance(leaf, tuple)
            if mode == elementwise.PARTIAL:
                self.place(leaf).add_(value.sum((0, 1)).sum_to_size(self.place(leaf).shape))
            self.written.add(leaf)
        return dict(zip(kernel.writes, found, strict=True)).get(elementwise.SCORE)

    def through_outputs(self, kernel: elementwise.Generated, go: Tensor, score: Tensor | None) -> Tensor:
        """Return the gradient of the scores (T, B, H, U) from that of the outputs."""
        own = self.own
        grad = self.generate(kernel, columns_of(own, go, len(readout(own))), score)
        return (
            own.call.x.new_zeros((own.steps, own.batch, own.heads, own.units))
            if grad is None
            else grad.flatten(2, 3)
        )

    def through(self, outputs: list[Tensor], given: list[Tensor], *more: Tensor) -> Tensor:
        """Add to the leaves' gradients what comes through values computed from them; return the gradient of `more`."""
        leaves = self.own.leaves
        found = torch.autograd.grad(outputs, [*leaves.values(), *more], given, allow_unused=True)
        for leaf, g in zip(leaves, found, strict=False):
            if g is not None:
                self.found[leaf] = self.found[leaf] + g if leaf in self.found else g
        return found[-1]

    def finish(self) -> Tensor:
        """Write the gradients of all that is not in place yet; return those of parameters, (1, P)."""
        wide, done = self.own.call.program.wide, {*self.own.plain.values(), *self.written}
        assert wide is not None
        every: list[Leaf] = [(Op.PREACT, i) for i in range(len(wide.projections))]
        every += [(Op.PARAM, i) for i in range(len(wide.parameters))]
        every += [(Op.INPUT, 0)] if self.grads.inp is not None else []
        for leaf in every:
            if leaf in self.found and leaf in self.written:  # by torch and by generated kernels
                self.place(leaf).add_(self.found[leaf])
            elif leaf in self.found:
                self.place(leaf).copy_(self.found[leaf])
            elif leaf not in done:
                self.place(leaf).zero_()
        return self.params
