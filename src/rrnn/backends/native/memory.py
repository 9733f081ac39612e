"""Huge pages for large results. A fresh tensor of tens of megabytes costs thousands of page faults, each longer than
computing the page. Where Linux leaves the choice to programs (`madvise`), we ask for pages of 2 MB, as NumPy does.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from functools import cache
from typing import Any

from torch import Tensor

LARGE = 1 << 22  # bytes
PAGE = 1 << 21


@cache
def _madvise() -> Any:
    function = ctypes.CDLL(None).madvise
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int], ctypes.c_int
    return function


def use_huge_pages(*tensors: Tensor | None) -> None:
    """Advise the whole huge pages inside these tensors, before they are first written. Only advice: may do nothing."""
    for t in tensors:
        if t is None or t.nbytes < LARGE or not sys.platform.startswith("linux"):
            continue
        extent = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
        start, end = t.data_ptr(), t.data_ptr() + extent * t.element_size()
        start, end = -(-start // PAGE) * PAGE, end // PAGE * PAGE
        if start < end:
            _madvise()(start, end - start, mmap.MADV_HUGEPAGE)
