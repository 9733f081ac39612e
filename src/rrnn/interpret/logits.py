"""Compute how much each token and unit adds to a logit, to first order in the units' scores.

Everything between the scores and the logit (the cell's output expression, layers above, pooling, an MLP) is linearised
at the given input. With the gradient g of the logit with respect to every score c_t of every unit, Σ_t g_t·c_t is a sum
over paths that may end at any step, so it is decomposed by token as exactly as one score is. If everything after the
scores is affine (a linear read-out of the scores), nothing is lost: base + contributions = logit. Otherwise
`unexplained` holds the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rrnn.automata import expressions as ex
from rrnn.automata import unroll
from rrnn.errors import AutomatonError, ShapeError
from rrnn.interpret.decompose import entry_factors
from rrnn.interpret.paths import finite
from rrnn.interpret.reading import CellReading, Reading, Weights, leaves
from rrnn.interpret.trellises import enters, forward, masses, meet, stays, trellis
from rrnn.wfsa.trellis import Scaled, Trellis

Head = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class LogitContributions:
    """The result of `logit_contributions`: T positions, B sentences, C logits, D units in the order of `units`."""

    tokens: tuple[tuple[str, ...], ...]
    units: tuple[int, ...]
    logits: Tensor
    """(B, C)"""
    base: Tensor
    """(B, C): the logits if every score were 0."""
    by_token: Tensor
    """(T, B, C): the sum over all units, each path divided equally among the tokens at which it enters."""
    by_unit: Tensor
    """(B, C, D)"""
    gradient: Tensor
    """(T, B, C, D): the gradient of the logits with respect to each score, by position."""
    constant: Tensor
    """(B, C): the contribution of paths that enter at no token, which most cells do not have."""
    exact: bool
    """False if contributions are first-order, since something between scores and logits is not linear."""

    @property
    def unexplained(self) -> Tensor:
        """(B, C): the logit minus base and contributions: rounding if they are exact, else the effect of curvature."""
        return self.logits - self.base - self.constant - self.by_token.sum(0)

    def to_json(self) -> list[dict[str, Any]]:
        return finite(
            [
                {
                    "tokens": list(words),
                    "logits": self.logits[b].tolist(),
                    "base": self.base[b].tolist(),
                    "constant": self.constant[b].tolist(),
                    "by_token": self.by_token[: len(words), b].tolist(),
                    "unexplained": self.unexplained[b].tolist(),
                    "exact": self.exact,
                }
                for b, words in enumerate(self.tokens)
            ]
        )


def logit_contributions(reading: Reading, head: Head, *, affine: bool = False) -> LogitContributions:
    """Compute what tokens and units add to each logit, for cells over the reals.

    `head` maps the outputs of the layer that was read, (T, B, H) in the sentences' order and in the layer's dtype, to
    logits (B, C): layers above, pooling, read-out. `affine` promises that it is affine; contributions are then exact if
    the cells' output is the score itself.
    """
    _check(reading)
    found = [prefix_scores(part, reading.valid) for part in reading.parts]
    with torch.enable_grad():
        scores = torch.cat(found, -1).requires_grad_()
        logits = head(outputs(reading, scores)).cpu().double()
        if logits.dim() != 2 or logits.shape[0] != len(reading.tokens):
            raise ShapeError(f"the head must return logits (batch, classes); got shape {tuple(logits.shape)}")
        rows = [_gradient(logits[:, c].sum(), scores) for c in range(logits.shape[1])]
    with torch.no_grad():
        base = head(outputs(reading, torch.zeros_like(scores))).cpu().double()
        split = [_split(reading, gradient) for gradient in rows]
    by_unit = torch.stack([(gradient * scores.detach()).sum(0) for gradient in rows], 1)
    plain = all(cell.output_exprs == (ex.score,) for cell in reading.layer.cell_types)
    return LogitContributions(
        reading.tokens,
        reading.units,
        logits.detach(),
        base,
        torch.stack([reading.in_order(token) for token, _ in split], -1),
        by_unit,
        torch.stack([reading.in_order(gradient) for gradient in rows], 2),
        torch.stack([constant for _, constant in split], -1),
        exact=affine and plain,
    )


def _gradient(logit: Tensor, scores: Tensor) -> Tensor:
    known = logit.requires_grad
    (found,) = torch.autograd.grad(logit, scores, retain_graph=True, allow_unused=True) if known else (None,)
    if found is None:
        raise AutomatonError(
            "contributions need the gradient of the logits with respect to the layer's outputs; the head's logits have "
            "none. Compute them from the head's argument, without detach, no_grad or numpy."
        )
    return found


def _check(reading: Reading) -> None:
    if reading.layer.skip or reading.layer.norm is not None:
        raise AutomatonError(
            "contributions do not support layers with a skip connection or a norm after the cells. Use decompose and "
            "leave_one_out, which end at the scores."
        )
    if len(reading.units) != reading.layer.hidden_size:
        raise ShapeError(
            "a logit depends on all units of a layer, but this reading has only some of them. Pass the whole reading."
        )
    for part in reading.parts:
        if not part.ring.adds:
            raise AutomatonError(
                f"contributions need scores that add up; those of {part.cell.name} over {part.ring.name} do not. Use "
                "best_paths and leave_one_out."
            )


def prefix_scores(part: CellReading, valid: Tensor | None) -> Tensor:
    """Return (T, B, D): the score after each step; 0 after the end of a sentence."""
    found = meet(part, forward(part, valid)[1:], trellis(part, valid).last)
    return found if valid is None else found * valid.unsqueeze(-1)


def outputs(reading: Reading, scores: Tensor) -> Tensor:
    """Return the layer's outputs, by position, if its units had these scores (T, B, D); zeros after the end."""
    layer, found, start = reading.layer, [], 0
    with torch.no_grad():
        known = leaves(layer, reading.x)
    kinds = [unroll(cell) for cell in layer.cell_types]
    for leaf, cell, width in zip(known, kinds, layer.widths, strict=True):
        here = scores[..., start : start + width]
        value = Weights({**leaf.leaves, "score": here}, cell.semiring, here)
        found += [value(expr).expand_as(here) for expr in cell.output_exprs]
        start += width
    out = torch.cat(found, -1)
    out = out if reading.valid is None else torch.where(reading.valid.unsqueeze(-1), out, 0.0)
    return reading.in_order(out).to(reading.x)


def _split(reading: Reading, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Return Σ_t g_t·c_t over all units: by step (T, B), and of paths that enter at no token (B)."""
    valid, start = reading.valid, 0
    by_token, constant = gradient.new_zeros(gradient.shape[:2]), gradient.new_zeros(gradient.shape[1])
    for part in reading.parts:
        here = gradient[..., start : start + len(part.units)]
        start += len(part.units)
        for scaled, factor in entry_factors(part):
            whole = trellis(scaled, valid)
            by_token += factor * masses(scaled, whole.forward(), _worth(whole, here), valid, enters).sum(-1)
        idle = meet(part, forward(part, valid, stays)[1:], trellis(part, valid).last)
        constant += (here * idle).sum((0, 2))
    return by_token, constant


def _worth(steps: Trellis, gradient: Tensor) -> Scaled:
    """Return (T + 1, S, B, D): like `backward`, but paths may end after any step t, with the end weighted by g_t."""
    row = torch.zeros_like(steps.last)
    rows = []
    for t in reversed(range(len(gradient))):
        row = row + gradient[t] * steps.last
        rows.append(row)
        row = steps.back(t, row)
    table = torch.stack([*rows, row][::-1])
    return Scaled(table, torch.zeros(table[:, 0].shape, dtype=torch.int32))
