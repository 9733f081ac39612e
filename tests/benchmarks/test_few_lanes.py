"""The kernels that bound the bare recurrence with few lanes, in Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "few_lanes.py"


@pytest.mark.slow
def test_the_kernels_that_claim_to_be_right_are() -> None:
    pytest.importorskip("triton")
    env = os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([sys.executable, str(SCRIPT), "--check"], env=env, check=True, timeout=600)
