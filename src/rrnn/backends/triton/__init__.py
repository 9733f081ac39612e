"""Generated Triton: the same programs, one lane a thread, chunks of time in parallel when lanes are few."""

from rrnn.backends.triton.backend import Triton

__all__ = ["Triton"]
