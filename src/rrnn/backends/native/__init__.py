"""Generated C: gates, recurrence and output in one vectorised loop, compiled on first use and cached on disk."""

from rrnn.backends.native.backend import Native

__all__ = ["Native"]
