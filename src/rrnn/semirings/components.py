"""Fast sums, products and stars of the semirings of several components: complex, expectation and signed-log.

Like over the reals, the star of a block A of arcs is the inverse of I − A, and it exists where the spectral radius is
below 1. Eliminating states one after another, as `Products.star` does, would ask for more where weights cancel: that
every cycle on the way converges by itself.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rrnn.semirings.products import Additive, DivergesError, Products, spectral_radius

if TYPE_CHECKING:
    from torch import Tensor

    from rrnn.semirings.base import Semiring


class ComplexNumbers(Additive):
    """Real and imaginary parts: torch's own complex linear algebra."""

    def product(self, ring: Semiring, rows: Tensor, columns: Tensor, prepared: Any) -> Tensor:
        return _parts(_complex(rows) @ _complex(columns).t())

    def each(self, ring: Semiring, rows: Tensor, columns: Tensor) -> Tensor:
        return _parts(_complex(columns).bmm(_complex(rows).unsqueeze(-1)).squeeze(-1))

    def star(self, ring: Semiring, block: Tensor) -> Tensor:
        return _parts(_inverse(_complex(block)))


class Pairs(Additive):
    """Weights p and values r: ⟨p, r⟩ ⊗ ⟨q, t⟩ = ⟨pq, pt + rq⟩, a product of 2 × 2 triangular matrices."""

    def product(self, ring: Semiring, rows: Tensor, columns: Tensor, prepared: Any) -> Tensor:
        import torch

        (p, r), (q, t) = rows.unbind(-1), columns.unbind(-1)
        return torch.stack((p @ q.t(), p @ t.t() + r @ q.t()), -1)

    def star(self, ring: Semiring, block: Tensor) -> Tensor:
        import torch

        p, r = block.unbind(-1)
        star = _inverse(p)
        return torch.stack((star, star @ r @ star), -1)


class SignedLogarithms(Products):
    """Signs and logarithms: sums relative to their greatest term, which neither overflow nor underflow."""

    def sum(self, ring: Semiring, a: Tensor, dim: int) -> Tensor:
        if a.shape[dim] == 1:
            return a.squeeze(dim)
        sign, log = a.unbind(-1)
        top = _finite(log.detach().amax(dim, keepdim=True))
        return _above((sign * (log - top).exp()).sum(dim), top.squeeze(dim))

    def segments(self, ring: Semiring, values: Tensor, segment: Tensor, size: int) -> Tensor:
        sign, log = values.unbind(-1)
        peak = _finite(log.new_full((size,), -math.inf).scatter_reduce(0, segment, log.detach(), "amax"))
        terms = sign * (log - peak[segment]).exp()
        return _above(log.new_zeros(size).index_add(0, segment, terms), peak)

    def star(self, ring: Semiring, block: Tensor) -> Tensor:
        """Return A*, by elimination where cycles converge without cancelling, which loses nothing to underflow.

        Otherwise by the inverse of a matrix whose states are rescaled so that arcs in and arcs out match in size.
        """
        log = block.detach()[..., 1]
        scale = _balance(log)
        shift = scale.unsqueeze(1) - scale
        if spectral_radius((log + shift).exp()) < 1:
            return super().star(ring, block)
        sign, logs = block.unbind(-1)
        inverse = _inverse(sign * (logs + shift).exp())
        return _above(inverse, -shift)


def _above(total: Tensor, top: Tensor) -> Tensor:
    """Return total · e^top as signs and logarithms; no logarithm of 0 is taken, nor its gradient."""
    import torch

    alive = total != 0
    log = total.abs().where(alive, 1.0).log() + top
    return torch.stack((total.sign(), log.where(alive, -math.inf)), -1)


def _complex(values: Tensor) -> Tensor:
    import torch

    return torch.complex(*values.unbind(-1))


def _parts(values: Tensor) -> Tensor:
    import torch

    return torch.view_as_real(values)


def _finite(logs: Tensor) -> Tensor:
    """Return logarithms with 0 for −∞, so that subtracting one leaves −∞ as it is."""
    return logs.where(logs != -math.inf, 0.0)


def _inverse(block: Tensor) -> Tensor:
    """Return (I − A)⁻¹ = A*, or raise `DivergesError`."""
    import torch

    radius = spectral_radius(block)
    if not radius < 1:
        raise DivergesError(0, f"the spectral radius of these arcs is {radius:.6g}, not below 1")
    return torch.linalg.inv(torch.eye(len(block), dtype=block.dtype) - block)


def _balance(logs: Tensor, rounds: int = 10) -> Tensor:
    """Return x such that the greatest logs + x (by row) − x (by column) of each row and column come near each other."""
    x = logs.new_zeros(len(logs))
    inner = logs.clone().fill_diagonal_(-math.inf)
    for _ in range(rounds):
        for q in range(len(logs)):
            out, into = float((inner[q] - x).max()), float((inner[:, q] + x).max())
            if math.isfinite(out) and math.isfinite(into):
                x[q] = (into - out) / 2
    return x
