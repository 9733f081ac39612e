"""Where programs run: reference (torch ops, the definition), native (generated C), triton (generated Triton)."""

from rrnn.backends.interface import Backend, compute_dtype
from rrnn.backends.registry import chosen, get_backend, report, resolve, use_backend

__all__ = ["Backend", "chosen", "compute_dtype", "get_backend", "report", "resolve", "use_backend"]
