"""Generated Triton: the same programs with one lane per thread, and chunks of time in parallel when lanes are few."""

from rrnn.backends.triton.backend import Triton

__all__ = ["Triton"]
