"""One process that computes, so that no text can keep the page busy or bring it down.

Jobs go in and answers come out as lines of JSON. A job that takes longer than its limit ends the process, and so does
one that needs too much memory; the next job starts a new one.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

LIMITS = {"start": 60.0, "design": 10.0, "score": 10.0, "explain": 60.0}
"""Seconds that a job may take, after the process is up. Explaining may have to load a model first."""
START_LIMIT = 120.0
WAITING = 8
"""Jobs that may wait for their turn; more are turned away."""
MAX_ANSWER = 64 * 1024 * 1024


class JobError(Exception):
    """A job that gave no result: the HTTP status, why, and the line of the text that is to blame."""

    def __init__(self, message: str, status: int = 422, line: int | None = None) -> None:
        super().__init__(message)
        self.status, self.line = status, line


class Worker:
    """`await worker.run("design", text=…)`: one job at a time, in order."""

    def __init__(self, command: Sequence[str] = (sys.executable, "-m", "rrnn.explorer.worker_main")) -> None:
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def run(self, job: str, gone: Callable[[], Awaitable[bool]] | None = None, **arguments: Any) -> Any:
        """The result of a job. Who is `gone` when its turn comes (as every key that is typed asks anew) gets none."""
        if self._waiting >= WAITING:
            raise JobError(f"at most {WAITING} requests wait at a time. Try again in a moment.", 429)
        self._waiting += 1
        try:
            async with self._turn:
                if gone is not None and await gone():
                    raise JobError("nobody waits for this any more", 499)
                return await self._run(job, arguments)
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            # communicate, not wait: it also closes the pipes, whose transports would warn when collected
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
                f"this took longer than {limit:.0f} s and was stopped. Try something smaller."
            ) from None
        except (ConnectionError, ValueError):  # it died; or the answer is longer than a line may be
            answer = b""
        except asyncio.CancelledError:  # half-way: the next job must not read this one's answer
            await self.close()
            raise
        if not answer.endswith(b"\n"):
            await self.close()
            raise JobError("this needs more memory or time than the page allows. Try something smaller.")
        found = json.loads(answer)
        if "error" in found:
            raise JobError(found["error"], found["status"], found["line"])
        return found["result"]

    async def _started(self) -> asyncio.subprocess.Process:
        """The process, ready for a job."""
        if self._process is not None and self._process.returncode is None:
            return self._process
        await self.close()
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=MAX_ANSWER,
            start_new_session=True,  # Ctrl-C is for the server, which ends this
        )
        assert process.stdout is not None
        await asyncio.wait_for(process.stdout.readline(), START_LIMIT)  # it says when it is ready
        return process
