"""Bound what connections can take from the server: how many are open, how long they may idle, how much they log.

uvicorn ends a connection that idles after a request, and its `limit_concurrency` refuses complete requests. A
connection that never completes its first header meets neither limit. Once such connections have used up the file
descriptors, asyncio logs one error for each place in the backlog, every second. Therefore the protocol here keeps the
time itself, and there are fewer connections than descriptors.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 128
"""The number of open connections. One more closes the one that has been idle longest."""
IDLE_SECONDS = 10.0
"""The time in which a connection must send a request's header, or take the next part of a response."""
BACKLOG = 64
"""The number of connections that may wait to be accepted."""
LOG_LINES, LOG_SECONDS = 10, 60.0
"""At most so many messages are logged in so many seconds."""


class BoundedHTTP(H11Protocol):
    """HTTP/1.1 on one connection, which is closed if it idles outside a request."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()
        if len(self.connections) > MAX_CONNECTIONS:
            idle = [c for c in self.connections if isinstance(c, BoundedHTTP) and c._timer is not None]
            min(idle, key=lambda c: c._timer.when() if c._timer else 0.0).close()  # this one at the latest

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timer()
        elif self._timer is None:  # the first bytes of a header; more of them do not prolong the time
            self._start_timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def close(self) -> None:
        """Close the connection at once, without waiting for what the client has not read."""
        self._stop_timer()
        self.connections.discard(self)
        self.transport.abort()

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(IDLE_SECONDS, self.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def bounded_config(app: Any) -> uvicorn.Config:
    """Return uvicorn's configuration of a server with these limits; it has no WebSockets."""
    return uvicorn.Config(
        app, http=BoundedHTTP, ws="none", backlog=BACKLOG, log_level="warning", access_log=False
    )


class _Rate(logging.Filter):
    """Let a few messages through in each period, and say with the next one how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._start, self._count = time.monotonic(), 0

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now - self._start >= LOG_SECONDS:
            if self._count > LOG_LINES:
                record.msg = (
                    f"{record.getMessage()} ({self._count - LOG_LINES} messages before it were left out)"
                )
                record.args = ()
            self._start, self._count = now, 0
        self._count += 1
        return self._count <= LOG_LINES


@contextmanager
def bounded_log() -> Iterator[None]:
    """Limit the rate of what uvicorn and asyncio log: clients could fill a disk with their mistakes."""
    rate, loggers = _Rate(), [logging.getLogger(name) for name in ("uvicorn.error", "asyncio")]
    for logger in loggers:
        logger.addFilter(rate)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(rate)
