"""Huge pages for large results. A fresh tensor of megabytes costs hundreds of page faults, which take longer than
computing it. Where Linux leaves the choice to programs (`madvise`), we ask for pages of 2 MB, as NumPy does.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

PAGE = 1 << 21


@cache
def _madvise() -> Any:
    function = ctypes.CDLL(None).madvise
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int], ctypes.c_int
    return function


def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """As torch.empty. From 2 MB on, its memory is rounded up to whole huge pages, and those are asked for: less than
    one page more, for a seventh of the time until it is filled. Only advice: where there are none, nothing changes."""
    size = math.prod(shape) * dtype.itemsize
    if size < PAGE or not sys.platform.startswith("linux"):
        return torch.empty(shape, dtype=dtype)
    made = torch.empty(-(-size // PAGE) * PAGE // dtype.itemsize, dtype=dtype)
    # Outwards: malloc keeps a few bytes of its own before the tensor, which must not cost a whole page. What else
    # lies in those pages is advised along, and none the worse for it.
    start, end = made.data_ptr() // PAGE * PAGE, -(-(made.data_ptr() + size) // PAGE) * PAGE
    _madvise()(start, end - start, mmap.MADV_HUGEPAGE)
    return made.resize_(shape)  # not a view: outputs may be changed in place
