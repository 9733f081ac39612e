"""Run jobs in one worker process, so that no input can block or crash the server.

Jobs and results are lines of JSON on the process's standard input and output. A job that exceeds its limit of time or
memory ends the process; the next job starts a new one. `worker_main` is the program of the process.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

LIMITS = {"start": 60.0, "design": 10.0, "score": 10.0, "explain": 60.0}
"""The seconds that a job may take once the process is up. Explaining may have to load a model first."""
START_LIMIT = 120.0
"""The seconds in which the process must be up."""
WAITING = 8
"""The number of jobs that may wait for their turn; more are refused."""
MAX_ANSWER = 64 * 1024 * 1024
"""The largest result of a job in bytes."""


class JobError(Exception):
    """A job without a result: the reason, the HTTP status, and the line of the user's text that caused it, if any."""

    def __init__(self, message: str, status: int = 422, line: int | None = None) -> None:
        super().__init__(message)
        self.status, self.line = status, line


class Worker:
    """The worker process: `await worker.run("design", text=…)` runs one job at a time, in order."""

    def __init__(self, command: Sequence[str] = (sys.executable, "-m", "rrnn.explorer.worker_main")) -> None:
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def run(self, job: str, gone: Callable[[], Awaitable[bool]] | None = None, **arguments: Any) -> Any:
        """Run a job and return its result.

        Every key that the user types makes a new request, so `gone` tells whether the client has left: then the
        job is skipped when its turn comes.
        """
        if self._waiting >= WAITING:
            raise JobError(
                f"the server handles at most {WAITING} requests at a time. Try again in a moment.", 429
            )
        self._waiting += 1
        try:
            async with self._turn:
                if gone is not None and await gone():
                    raise JobError("the client no longer waits for this result", 499)
                return await self._run(job, arguments)
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            # Not `wait`: `communicate` also closes the pipes, whose transports would warn when collected.
            await process.communicate()

    async def _run(self, job: str, arguments: dict[str, Any]) -> Any:
        limit = LIMITS[job]
        try:
            process = await self._started()
            assert process.stdin is not None and process.stdout is not None
            line = json.dumps({"job": job, "arguments": arguments, "limit": limit})
            process.stdin.write(line.encode() + b"\n")
            await process.stdin.drain()
            answer = await asyncio.wait_for(process.stdout.readline(), limit)
        except TimeoutError:
            await self.close()
            raise JobError(
                f"this took longer than {limit:.0f} s and was stopped. Try a smaller input."
            ) from None
        except (ConnectionError, ValueError):  # the process died, or the result is too long
            answer = b""
        except asyncio.CancelledError:  # the next job must not read this one's result
            await self.close()
            raise
        if not answer.endswith(b"\n"):
            await self.close()
            raise JobError("this needs more memory or time than the page allows. Try a smaller input.")
        found = json.loads(answer)
        if "error" in found:
            raise JobError(found["error"], found["status"], found["line"])
        return found["result"]

    async def _started(self) -> asyncio.subprocess.Process:
        """Return the process, ready for a job; start it if necessary."""
        if self._process is not None and self._process.returncode is None:
            return self._process
        await self.close()
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=MAX_ANSWER,
            start_new_session=True,  # Ctrl-C must reach only the server, which ends this process
        )
        assert process.stdout is not None
        await asyncio.wait_for(process.stdout.readline(), START_LIMIT)  # the line "ready"
        return process
