"""Run scripts where Triton compiles its kernels, while it interprets them in the tests' own process.

Importing torch and triton takes longer than most of these compilations, so one process imports them once and forks for
each script.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

FORKS = """
import json, os, sys, traceback
import torch, triton.backends.compiler, triton.compiler
import rrnn.backends.matrix.gradient_kernels, rrnn.backends.triton.module, rrnn.zoo

def run(script, arguments, files):
    for stream, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    sys.argv = ["-c", *arguments]
    try:
        exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        return 1
    return 0

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        code = run(*json.loads(line))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

Compile = Callable[..., "subprocess.CompletedProcess[str]"]
"""Runs a script with the arguments that follow it, and returns its exit code and what it printed."""


@contextmanager
def triton_compiler(folder: Path) -> Iterator[Compile]:
    """Start the process that forks, and stop it in the end."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command, pipe = [sys.executable, "-W", "ignore", "-c", FORKS], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        files = [folder / "stdout", folder / "stderr"]

        def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
            assert process.stdin is not None and process.stdout is not None
            print(json.dumps([script, arguments, list(map(str, files))]), file=process.stdin, flush=True)
            code = int(process.stdout.readline())
            return subprocess.CompletedProcess(arguments, code, *(file.read_text() for file in files))

        yield run
