"""The protection of the local page: which requests are answered, and the headers that every response carries.

Any other page that is open in the same browser can send requests to this machine. The server therefore answers only
requests that name it by its own address (a foreign name may point to 127.0.0.1: DNS rebinding) and that come from its
own page (Origin). There is no CORS, and request bodies are small JSON objects.

Starlette's TrustedHostMiddleware would not do: it compares the first Host header with a fixed list of names, while a
server that listens beyond this machine is reached by addresses that it cannot list.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 256 * 1024
"""The largest request body in bytes."""
MAX_SECONDS = 20.0
"""The time in which the whole body must arrive."""

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; "
    "img-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class SecurityMiddleware:
    """ASGI middleware that refuses requests from elsewhere and adds the security headers to every response."""

    def __init__(self, app: ASGIApp, *, host: str = "127.0.0.1") -> None:
        self.app, self.host = app, host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        if scope["type"] != "http":  # the application has no WebSockets: Starlette closes them
            await self.app(scope, receive, send)
            return
        try:
            check_origin(Headers(scope=scope), self.host)
        except HTTPException as refused:
            response = JSONResponse({"error": refused.detail}, refused.status_code)
            await response(scope, receive, send_with_headers)
        else:
            await self.app(scope, receive, send_with_headers)


def check_origin(headers: Headers, bound: str) -> None:
    """Raise unless the request is addressed to this page and comes from it; `bound` is the server's own address."""
    hosts = headers.getlist("host")
    if len(hosts) != 1 or not allowed_host(hosts[0], bound):
        given = ", ".join(hosts)[:100] or "none"
        raise HTTPException(421, f"this page answers only requests to its own address; got Host {given}")
    for origin in headers.getlist("origin"):
        if origin not in (f"http://{hosts[0]}", f"https://{hosts[0]}"):
            raise HTTPException(403, f"requests from other pages are refused; got Origin {origin[:100]}")
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise HTTPException(403, "requests from other sites are refused")


def allowed_host(host: str, bound: str) -> bool:
    """Return whether a Host header is one of the page's own names.

    If the server listens beyond this machine, these include all IP addresses (which no foreign name server can point
    elsewhere), the name it was given and the machine's own name.
    """
    try:
        parts = urlsplit(f"//{host}")
        name, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if not name or parts.netloc != host or "@" in host:
        return False
    if _is_local(name):
        return True
    if _is_local(bound):
        return False
    return _address(name) is not None or name in (bound.lower(), socket.gethostname().lower())


def _is_local(name: str) -> bool:
    address = _address(name)
    return name == "localhost" if address is None else address.is_loopback


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


async def json_body(request: Request) -> bytes:
    """Return the body of a request; raise unless it is announced as JSON, small, and arrives in time.

    A page elsewhere can send forms and plain text without asking first, but not JSON.
    """
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(
            415, f"a request's body must be application/json; got {kind[:60] or 'no content-type'}"
        )
    body = bytearray()
    try:
        async with asyncio.timeout(MAX_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY:
                    raise HTTPException(413, f"a request's body may have at most {MAX_BODY} bytes")
    except TimeoutError:
        raise HTTPException(408, f"a request's body must arrive within {MAX_SECONDS:.0f} s") from None
    except ClientDisconnect:
        raise HTTPException(400, "the connection was closed before the whole body arrived") from None
    return bytes(body)
