"""Where programs run: reference (torch ops, the definition), native (generated C), triton (generated Triton)."""

from rrnn.backends import fork as fork  # first: its hook must be there before anything forks
from rrnn.backends.base import Backend, compute_dtype
from rrnn.backends.registry import chosen, get_backend, report, resolve, use_backend

__all__ = ["Backend", "chosen", "compute_dtype", "get_backend", "report", "resolve", "use_backend"]
