"""The definition: programs interpreted with torch ops. Any float dtype and device, double backward, vmap."""

from rrnn.backends.reference.backend import Reference

__all__ = ["Reference"]
