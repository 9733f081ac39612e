"""The kernels that bound the bare recurrence with few lanes, in Triton's interpreter."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest
from kernel_cases import needs_interpreter
from quick_interpreter import hurry


@needs_interpreter
def test_the_kernels_that_claim_to_be_right_are(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry()
    monkeypatch.setattr(sys, "argv", ["few_lanes.py", "--check"])
    import_module("few_lanes").main()
