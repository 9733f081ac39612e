"""Who may ask, and what answers carry: the rules that hold for every request, before anything else sees it.

A page on this machine can be reached by any other page open in the same browser. It answers only requests that name it
by an address of its own (a foreign name may point to 127.0.0.1: DNS rebinding) and that come from itself (Origin).
There is no CORS. Bodies are small JSON objects.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

MAX_BODY = 256 * 1024
MAX_SECONDS = 20.0
"""Until all of a body is there."""

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Refused(Exception):
    """A request that is not answered: the status and why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Guard:
    """ASGI middleware: refuses foreign requests, bounds bodies, adds the headers above to every answer."""

    def __init__(self, app: Callable[..., Any], *, host: str = "127.0.0.1") -> None:
        self.app, self.host = app, host

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no WebSockets here
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                own = [(key.encode(), value.encode()) for key, value in HEADERS.items()]
                message = message | {"headers": [*message.get("headers", []), *own]}
            await send(message)

        try:
            check_request(scope, self.host)
            body = await _body_in_time(receive) if scope["method"] == "POST" else b""
        except Refused as refused:
            await _answer(send_guarded, refused.status, str(refused))
            return

        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_again() -> Any:
            return waiting.pop() if waiting else await receive()

        await self.app(scope, receive_again, send_guarded)


def check_request(scope: Any, bound: str) -> None:
    """Raise `Refused` for what is not from this page to this page."""
    headers: dict[str, list[str]] = {}
    for key, value in scope["headers"]:
        headers.setdefault(key.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    hosts = headers.get("host", [])
    if len(hosts) != 1 or not allowed_host(hosts[0], bound):
        raise Refused(
            421, f"this page answers to its own address only; got Host {', '.join(hosts)[:100] or 'none'}"
        )
    for origin in headers.get("origin", []):
        if origin not in (f"http://{hosts[0]}", f"https://{hosts[0]}"):
            raise Refused(403, f"requests from other pages are refused; got Origin {origin[:100]}")
    if headers.get("sec-fetch-site", ["none"])[0] not in ("same-origin", "none"):
        raise Refused(403, "requests from other sites are refused")
    if scope["method"] not in ("GET", "HEAD", "POST"):
        raise Refused(405, f"only GET and POST are answered; got {scope['method'][:20]}")
    if scope["method"] == "POST":
        kind = headers.get("content-type", [""])[0].split(";")[0].strip().lower()
        if kind != "application/json":
            raise Refused(415, f"a request's body is application/json; got {kind[:60] or 'no content-type'}")


def allowed_host(host: str, bound: str) -> bool:
    """Is this Host header one of the page's own names? Told to listen beyond this machine, the page also answers to
    addresses (which no foreign name server can point elsewhere), the name it was given and the machine's own."""
    try:
        parts = urlsplit(f"//{host}")
        name, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if not name or parts.netloc != host or "@" in host:
        return False
    address = _address(name)
    if name == "localhost" or (address is not None and address.is_loopback):
        return True
    listens_here_only = bound == "localhost" or ((own := _address(bound)) is not None and own.is_loopback)
    if listens_here_only:
        return False
    return address is not None or name in (bound.lower(), socket.gethostname().lower())


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


async def _body_in_time(receive: Any) -> bytes:
    try:
        return await asyncio.wait_for(_whole_body(receive), MAX_SECONDS)
    except TimeoutError:
        raise Refused(408, f"a request's body is sent within {MAX_SECONDS:.0f} s; this one was not") from None


async def _whole_body(receive: Any) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "the request ended before its body did")
        body += message.get("body", b"")
        if len(body) > MAX_BODY:
            raise Refused(413, f"a request's body has at most {MAX_BODY} bytes; this one has more")
        if not message.get("more_body"):
            return bytes(body)


async def _answer(send: Any, status: int, message: str) -> None:
    body = json.dumps({"error": message}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
