"""The limits of connections: half a header holds nothing for long, and mistakes of clients do not fill the log."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from rrnn.explorer import connections

pytestmark = pytest.mark.slow

REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
LARGE = 40_000_000  # more than the buffers of both ends


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Serve a page with small limits: 8 connections, 0.4 s."""
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 8)
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.4)

    async def page(request: Any) -> Response:
        return PlainTextResponse("x" * LARGE if request.url.path == "/large" else "here")

    server = uvicorn.Server(connections.bounded_config(Starlette(routes=[Route("/{name:path}", page)])))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(20)
    assert not thread.is_alive()


def connection(port: int, data: bytes) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=10)
    made.sendall(data)
    return made


def received(made: socket.socket) -> None:
    """Read the small response."""
    data = b""
    while b"here" not in data:
        data += made.recv(1000) or b"closed without a response, not here"
    assert data.startswith(b"HTTP/1.1 200")


def is_closed(made: socket.socket) -> bool:
    """Read until the server closes the connection, at most ten seconds."""
    try:
        while made.recv(100_000):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("data", [b"", b"G", b"GET / HTTP/1.1\r\nHost: 127.0"])
def test_an_incomplete_header_is_timed_out(port: int, data: bytes) -> None:
    with connection(port, data) as made:
        start = time.monotonic()
        assert is_closed(made)
        assert 0.2 < time.monotonic() - start < 5


def test_the_header_of_the_next_request_is_timed_out(port: int) -> None:
    """The first byte after a response ends uvicorn's own limit, that of idle connections."""
    with connection(port, REQUEST) as made:
        received(made)
        made.sendall(b"G")
        start = time.monotonic()
        assert is_closed(made)
        assert 0.2 < time.monotonic() - start < 4


def test_more_bytes_do_not_prolong_the_time(port: int) -> None:
    with connection(port, b"GET / HTTP/1.1\r\nX: ") as made:
        start = time.monotonic()
        with pytest.raises(OSError):  # one byte at a time, as Slowloris does
            while time.monotonic() - start < 10:
                made.sendall(b"x")
                time.sleep(0.05)
        assert time.monotonic() - start < 5


def test_a_response_that_nobody_reads_is_timed_out(port: int) -> None:
    with connection(port, REQUEST.replace(b"/ ", b"/large ")) as made:
        time.sleep(1.5)
        read = 0
        try:
            while chunk := made.recv(1 << 20):
                read += len(chunk)
        except ConnectionResetError:
            pass
        assert read < LARGE


def test_the_number_of_connections_is_bounded(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Further connections close those that are idle, so that a browser is served at any time."""
    monkeypatch.setattr(connections, "IDLE_SECONDS", 30.0)
    with ExitStack() as stack:
        idle = [stack.enter_context(connection(port, b"GET /")) for _ in range(40)]
        with connection(port, REQUEST) as made:
            received(made)
        for made in idle:
            made.settimeout(0.1)
        assert sum(is_closed(made) for made in idle[:32]) == 32
        assert not any(is_closed(made) for made in idle[-6:])


def test_the_log_is_bounded(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("uvicorn.error")
    logger.addHandler(handler)
    try:
        with connections.bounded_log():
            for _ in range(30):
                with connection(port, b"nonsense\r\n\r\n") as made:
                    assert is_closed(made)
            assert lines == ["Invalid HTTP request received."] * connections.LOG_LINES
            monkeypatch.setattr(connections, "LOG_SECONDS", 0.0)
            with connection(port, b"nonsense\r\n\r\n") as made:
                assert is_closed(made)
    finally:
        logger.removeHandler(handler)
    assert "20 messages before it were left out" in lines[-1]
    assert not logger.filters and not logging.getLogger("asyncio").filters
