"""The definition: programs interpreted with torch ops. Any float dtype and device, double backward, vmap."""

from rrnn.backends.reference.serial import Reference

__all__ = ["Reference"]
