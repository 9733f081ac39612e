"""Affine programs: one product of a matrix with the states of a head serves all its units."""

from rrnn.backends.affine.backend import Affine as Affine
