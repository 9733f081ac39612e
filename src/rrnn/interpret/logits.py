"""From units to a class: how much each token and unit adds to a logit, to first order in the units' scores.

What follows the scores (the cell's output expression, layers above, pooling, an MLP) is linearised where it is: with
the gradient g of the logit in every score c_t of every unit, Σ_t g_t·c_t is a sum over paths that may end at any step,
so it is taken apart by token as exactly as one score is. Where all that follows is affine (a linear read-out straight
on scores) nothing is lost: base + contributions = logit. Elsewhere `unexplained` says how much is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rrnn.automata import expressions as ex
from rrnn.errors import AutomatonError, ShapeError
from rrnn.interpret.decompose import entry_factors
from rrnn.interpret.paths import finite
from rrnn.interpret.reading import CellReading, Reading, Weights, leaves
from rrnn.interpret.trellises import enters, forward, masses, meet, stays, trellis
from rrnn.wfsa.trellis import Scaled, Trellis

Head = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class LogitContributions:
    """T positions, B sentences, C logits, D units in the order of `units`."""

    tokens: tuple[tuple[str, ...], ...]
    units: tuple[int, ...]
    logits: Tensor
    """(B, C)"""
    base: Tensor
    """(B, C): the logits if every score were 0."""
    by_token: Tensor
    """(T, B, C): of all units together, each path divided equally among the tokens at which it enters."""
    by_unit: Tensor
    """(B, C, D)"""
    gradient: Tensor
    """(T, B, C, D): of the logits in each score, by position of the layer when it scored so."""
    constant: Tensor
    """(B, C): of paths that no token enters, which most cells do not have."""
    exact: bool
    """False: contributions are first-order, through what is not linear between scores and logits."""

    @property
    def unexplained(self) -> Tensor:
        """(B, C): the logit without base and contributions: rounding if they are exact, else what curvature leaves."""
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
    """What tokens and units add to each logit, over the reals.

    `head` takes the outputs of the layer that was read, (T, B, H) in the sentences' order and in the layer's dtype, to
    logits (B, C): layers above, pooling, read-out. `affine` promises that it is affine in them; contributions are then
    exact if the cells' output is the score itself."""
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
            "contributions need the gradient of the logits in the layer's outputs; the head's logits have none. "
            "Compute them from what the head is given, without detach, no_grad or a way over numpy."
        )
    return found


def _check(reading: Reading) -> None:
    if reading.layer.skip or reading.layer.norm is not None:
        raise AutomatonError(
            "this layer has a skip connection or a norm behind its cells, which contributions do not follow. Look at "
            "decompose and leave_one_out, which stop at the scores."
        )
    if len(reading.units) != reading.layer.hidden_size:
        raise ShapeError(
            "a logit depends on all units of a layer; this reading has some of them. Read them all."
        )
    for part in reading.parts:
        if not part.ring.adds:
            raise AutomatonError(
                f"contributions add up over the reals; {part.cell.name}'s scores over {part.ring.name} do not. Look at "
                "best_paths, and at what leave_one_out says of each token."
            )


def prefix_scores(part: CellReading, valid: Tensor | None) -> Tensor:
    """(T, B, D): the score after each step; 0 behind the end."""
    found = meet(part, forward(part, valid)[1:], trellis(part, valid).last)
    return found if valid is None else found * valid.unsqueeze(-1)


def outputs(reading: Reading, scores: Tensor) -> Tensor:
    """The layer's outputs if its units scored (T, B, D) so, by position; zeros behind the end."""
    layer, found, start = reading.layer, [], 0
    with torch.no_grad():
        known = leaves(layer, reading.x)
    for leaf, cell, width in zip(known, layer.cell_types, layer.widths, strict=True):
        here = scores[..., start : start + width]
        value = Weights({**leaf.leaves, "score": here}, cell.semiring, here)
        found += [value(expr).expand_as(here) for expr in cell.output_exprs]
        start += width
    out = torch.cat(found, -1)
    out = out if reading.valid is None else torch.where(reading.valid.unsqueeze(-1), out, 0.0)
    return reading.in_order(out).to(reading.x)


def _split(reading: Reading, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Σ_t g_t·c_t over all units, by step (T, B), and what no token enters (B). Behind the end g is 0."""
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
    """(T + 1, S, B, D): as `backward`, for paths that may end after any step t, where the end counts g_t times."""
    row = torch.zeros_like(steps.last)
    rows = []
    for t in reversed(range(len(gradient))):
        row = row + gradient[t] * steps.last
        rows.append(row)
        row = steps.back(t, row)
    table = torch.stack([*rows, row][::-1])
    return Scaled(table, torch.zeros(table[:, 0].shape, dtype=torch.int32))
