"""Fast sums and products of tensors of elements: ⊕ over a dimension and by segment, rows times matrices, a star.

Every semiring has these from its ⊕ and ⊗ (`GENERAL`). Where ⊕ adds, takes logarithms of sums or selects, there are
quicker ways to the same results: max and min go through blocks that stay in cache, and log through one real matrix
product. Their backward passes are written by hand for the same reason; they keep the library's two rules: of tied
maxima the first gets the gradient, and an infinite 0̄ gets none.

Over the semirings of several components (complex, expectation, signed-log), as over the reals, the star of a block A
of arcs is the inverse of I − A, and it exists where the spectral radius is below 1. Eliminating states one after
another, as `Products.star` does, would ask for more where weights cancel: that every cycle on the way converges by
itself.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rrnn.semirings.epsilon_closure import TensorMatrix, kleene

if TYPE_CHECKING:
    from torch import Tensor

    from rrnn.semirings.semiring import Semiring


BLOCK = 1 << 17  # elements of a block of products: about 1 MB, which stays in the second-level cache
_NEAR_ONE = 1.0 - 1e-12  # a spectral radius this near to 1 is 1 up to rounding


class DivergesError(Exception):
    """A star that does not exist: at which state of the block, and why."""

    def __init__(self, state: int, why: str) -> None:
        super().__init__(why)
        self.state, self.why = state, why


class Products:
    """What follows from any ⊕ and ⊗. Tensors of elements may have a last dimension for components."""

    gather = 8000
    """Elements copied and multiplied in the time it takes to start one more small product."""

    def sum(self, ring: Semiring, a: Tensor, dim: int) -> Tensor:
        """Return the ⊕ over a dimension that is not empty, in pairs of neighbours."""
        import torch

        while a.shape[dim] > 1:
            pairs = a.shape[dim] // 2
            even = a.narrow(dim, 0, 2 * pairs).unflatten(dim, (pairs, 2))
            total = ring.t_plus(even.select(dim + 1, 0), even.select(dim + 1, 1))
            rest = a.narrow(dim, 2 * pairs, a.shape[dim] - 2 * pairs)
            a = torch.cat([total, rest], dim)
        return a.squeeze(dim)

    def prepare(self, ring: Semiring, columns: Tensor) -> list[Any] | None:
        """Return what `product` wants to know of each matrix of a stack, once."""
        return None

    def product(self, ring: Semiring, rows: Tensor, columns: Tensor, prepared: Any) -> Tensor:
        """Return rows (n, sources) times a matrix stored as columns (targets, sources): (n, targets)."""
        import torch

        step = max(1, BLOCK // columns.numel())
        parts = [ring.t_sum(ring.t_times(block.unsqueeze(1), columns), 2) for block in rows.split(step)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def each(self, ring: Semiring, rows: Tensor, columns: Tensor) -> Tensor:
        """Return each row (n, sources) times its own matrix (n, targets, sources): (n, targets)."""
        return ring.t_sum(ring.t_times(rows.unsqueeze(1), columns), 2)

    def segments(self, ring: Semiring, values: Tensor, segment: Tensor, size: int) -> Tensor:
        """Return the ⊕ of the values (m,) of each segment: (size,), 0̄ where a segment is empty."""
        import torch

        total = ring.zeros(size, dtype=values.dtype, device=values.device)
        order = segment.argsort(stable=True)
        place = segment[order]
        counts = torch.bincount(place, minlength=size)
        number = torch.arange(place.numel(), device=place.device) - (counts.cumsum(0) - counts)[place]
        for k in range(int(counts.max()) if counts.numel() else 0):  # the k-th value of every segment at once
            here = (number == k).nonzero().flatten()
            into = place[here]
            total = total.index_copy(0, into, ring.t_plus(total[into], values[order[here]]))
        return total

    def star(self, ring: Semiring, block: Tensor) -> Tensor:
        """Return A* = I ⊕ A ⊕ A² ⊕ … of a block (n, n), or raise `DivergesError`."""

        def around(a: Tensor, k: int) -> Tensor:
            star = ring.t_star(a)
            if bool(star.detach().isnan().any()):
                raise DivergesError(k, f"here it is the star of {_shown(ring.numbers(a[0, 0]))}")
            return star.to(block.dtype)

        matrix = TensorMatrix(ring, block, around)
        kleene(matrix)
        return matrix.entries


def spectral_radius(block: Tensor) -> float:
    """Return the greatest magnitude of an eigenvalue: 1 where it is 1 up to rounding, ∞ if the block is not finite."""
    import torch

    if not bool(block.isfinite().all()):
        return math.inf
    radius = float(torch.linalg.eigvals(block.detach()).abs().max())
    return 1.0 if _NEAR_ONE <= radius < 1.0 else radius


def _shown(number: Any) -> str:
    return f"{number:.6g}" if isinstance(number, (int, float)) else f"{number}"


class Additive(Products):
    """⊕ adds each component."""

    def sum(self, ring: Semiring, a: Tensor, dim: int) -> Tensor:
        return a.sum(dim)

    def segments(self, ring: Semiring, values: Tensor, segment: Tensor, size: int) -> Tensor:
        return values.new_zeros(size, *values.shape[1:]).index_add(0, segment, values)


class Linear(Additive):
    """⊕ and ⊗ are + and · of real numbers: linear algebra does it all."""

    gather = 3000

    def product(self, ring: Semiring, rows: Tensor, columns: Tensor, prepared: Any) -> Tensor:
        return rows @ columns.t()

    def each(self, ring: Semiring, rows: Tensor, columns: Tensor) -> Tensor:
        return columns.bmm(rows.unsqueeze(-1)).squeeze(-1)

    def star(self, ring: Semiring, block: Tensor) -> Tensor:
        return _inverse(block)


class Logarithmic(Products):
    """⊕ is the logarithm of a sum of exponentials, ⊗ is +."""

    def sum(self, ring: Semiring, a: Tensor, dim: int) -> Tensor:
        top = a.detach().amax(dim, keepdim=True)
        top = top.where(top != -math.inf, top.new_zeros(()))
        # `top` is finite, so a −∞ stays −∞ here: exp makes it 0, in value and in gradient.
        total = (a - top).exp().sum(dim)
        alive = total != 0
        finite = total.where(alive, total.new_ones(())).log() + top.squeeze(dim)
        return finite.where(alive, total.new_full((), -math.inf))

    def prepare(self, ring: Semiring, columns: Tensor) -> list[Any]:
        from rrnn.semirings.autograd import scaled

        return scaled(columns.detach())

    def product(self, ring: Semiring, rows: Tensor, columns: Tensor, prepared: Any) -> Tensor:
        from rrnn.semirings.autograd import LogProduct

        return LogProduct.apply(rows, columns, *prepared)  # pyright: ignore[reportReturnType]

    def segments(self, ring: Semiring, values: Tensor, segment: Tensor, size: int) -> Tensor:
        peak = values.new_full((size,), -math.inf).scatter_reduce(0, segment, values.detach(), "amax")
        dead = peak == -math.inf
        peak = peak.where(~dead, peak.new_zeros(()))
        alive = values != -math.inf
        gap = values.where(alive, values.new_zeros(())) - peak[segment]
        terms = gap.where(alive, values.new_zeros(())).exp() * alive
        total = values.new_zeros(size).index_add(0, segment, terms)
        logs = total.where(~dead, total.new_ones(())).log() + peak
        return logs.where(~dead, logs.new_full((), -math.inf))


class Selective(Products):
    """⊕ is max or min of one number."""

    def sum(self, ring: Semiring, a: Tensor, dim: int) -> Tensor:
        # max with indices names the first of several maxima, which gets all the gradient; amax shares it.
        best = (a.max(dim) if ring.maximum else a.min(dim)).values
        infinite = math.isinf(ring.zero)
        return best.where(best != ring.zero, best.new_full((), ring.zero)) if infinite else best

    def product(self, ring: Semiring, rows: Tensor, columns: Tensor, prepared: Any) -> Tensor:
        from rrnn.semirings.autograd import SelectiveProduct

        return SelectiveProduct.apply(rows, columns, ring)  # pyright: ignore[reportReturnType]

    def segments(self, ring: Semiring, values: Tensor, segment: Tensor, size: int) -> Tensor:
        from rrnn.semirings.autograd import SegmentSelect

        return SegmentSelect.apply(values, segment, size, ring)  # pyright: ignore[reportReturnType]


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


GENERAL, ADDITIVE, LINEAR = Products(), Additive(), Linear()
LOGARITHMIC, SELECTIVE = Logarithmic(), Selective()
