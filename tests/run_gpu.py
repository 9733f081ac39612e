"""Run `pytest -m gpu` in several processes, since compiling kernels takes most of its time.

    python tests/run_gpu.py [-n 14] [arguments of pytest]

Where pytest-xdist is installed, `pytest -m gpu -n 14` does the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent


def main(arguments: list[str]) -> int:
    count = max(1, (os.cpu_count() or 2) - 2)
    if arguments[:1] == ["-n"]:
        count, arguments = int(arguments[1]), arguments[2:]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "--tb=short", "-p", "no:cacheprovider"]
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    began = time.monotonic()
    runs = [
        subprocess.Popen(
            command + arguments,
            cwd=ROOT,
            env=os.environ | {"RRNN_SHARD": f"{shard}/{count}", "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for shard in range(count)
    ]
    codes = []
    for shard, run in enumerate(runs):
        out, _ = run.communicate()
        codes.append(0 if run.returncode == 5 else run.returncode)  # 5: this process had no tests
        if codes[-1]:
            print(out)
        print(f"{shard}: {out.strip().splitlines()[-1] if out.strip() else 'no output'}", flush=True)
    print(f"{sum(map(bool, codes))} of {count} failed, {time.monotonic() - began:.0f} s")
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
