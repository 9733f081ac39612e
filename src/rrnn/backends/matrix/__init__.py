"""The matrix schedule: families of states with separable weights, as products of matrices."""

from rrnn.backends.matrix.backend import Matrix

__all__ = ["Matrix"]
