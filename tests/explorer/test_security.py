"""Who is answered: the page itself, by its own address, with small JSON; and what every answer carries."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

pytest.importorskip("starlette")

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request

from rrnn.explorer.security import MAX_BODY, allowed_host, check_origin, json_body

BODY = {"text": "rrnn-cell 1"}
JSON = (b"content-type", b"application/json")


@pytest.mark.parametrize(
    ("host", "bound", "allowed"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1:8765", "127.0.0.1", True),
        ("localhost:1", "127.0.0.1", True),
        ("[::1]:8765", "::1", True),
        ("127.8.8.8", "127.0.0.1", True),
        ("evil.example", "127.0.0.1", False),
        ("evil.example:8765", "localhost", False),
        ("192.168.0.7:8765", "127.0.0.1", False),
        ("127.0.0.1.evil.example", "127.0.0.1", False),
        ("localhost.evil.example", "127.0.0.1", False),
        ("127.0.0.1@evil.example", "127.0.0.1", False),
        ("evil.example@127.0.0.1", "127.0.0.1", False),
        ("127.0.0.1/..", "127.0.0.1", False),
        ("127.0.0.1:port", "127.0.0.1", False),
        ("[::1", "127.0.0.1", False),
        ("", "127.0.0.1", False),
        (" 127.0.0.1", "127.0.0.1", False),
        # told to listen beyond this machine: addresses and given names, but no other name (DNS rebinding)
        ("192.168.0.7:8765", "0.0.0.0", True),
        ("[fe80::1]:80", "::", True),
        ("box.lan", "box.lan", True),
        ("evil.example", "0.0.0.0", False),
        ("evil.example", "192.168.0.7", False),
    ],
)
def test_hosts(host: str, bound: str, allowed: bool) -> None:
    assert allowed_host(host, bound) is allowed


@pytest.mark.parametrize("path", ["/", "/main.js", "/api/start", "/nothing"])
def test_a_foreign_host_is_refused_everywhere(client: Any, path: str) -> None:
    assert client.get(path, headers={"host": "evil.example:8765"}).status_code == 421
    assert client.get(path, headers={"host": "127.0.0.1:8765"}).status_code == (
        404 if path == "/nothing" else 200
    )


@pytest.mark.parametrize("hosts", [[], [b"127.0.0.1", b"evil.example"], [b"127.0.0.1", b"127.0.0.1"]])
def test_a_request_names_one_host(hosts: list[bytes]) -> None:
    """Servers may let through what the protocol forbids."""
    with pytest.raises(HTTPException, match="only requests to its own address") as caught:
        check_origin(Headers(raw=[(b"host", host) for host in hosts]), "127.0.0.1")
    assert caught.value.status_code == 421


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 422),  # answered: the cell is wrong
        ({"origin": "http://127.0.0.1:8765"}, 422),
        ({"sec-fetch-site": "same-origin"}, 422),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),  # another server on this machine
        ({"origin": "http://127.0.0.1"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://["}, 403),  # no address at all
        ({"origin": "http://evil.example@127.0.0.1:8765"}, 403),
        ({"origin": "file://"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"content-type": "text/plain"}, 415),  # what a form of a foreign page can send without asking first
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": "application/json; charset=utf-8"}, 422),
    ],
)
def test_origins_and_types(client: Any, headers: dict[str, str], status: int) -> None:
    answer = client.post("/api/design", json=BODY, headers=headers)
    assert answer.status_code == status
    assert answer.json()["error"]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods(client: Any, method: str) -> None:
    answer = client.request(method, "/api/design", headers={"origin": "http://127.0.0.1:8765"})
    assert answer.status_code == 405
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_no_websockets(client: Any) -> None:
    from starlette.websockets import WebSocketDisconnect

    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/"):
        pass


def test_a_large_body_is_refused(client: Any) -> None:
    largest = b'{"text": "' + b"x" * (MAX_BODY - 12) + b'"}'
    assert len(largest) == MAX_BODY
    send = {"headers": {"content-type": "application/json"}}
    assert client.post("/api/design", content=largest, **send).status_code == 422
    assert client.post("/api/design", content=largest + b" ", **send).status_code == 413


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rrnn.explorer.security.MAX_SECONDS", 0.05)

    async def receive() -> Any:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"{", "more_body": True}

    request = Request({"type": "http", "method": "POST", "headers": [JSON]}, receive)
    with pytest.raises(HTTPException, match="must arrive within") as caught:
        asyncio.run(asyncio.wait_for(json_body(request), 5))
    assert caught.value.status_code == 408


def test_a_connection_that_closes_early() -> None:
    async def receive() -> Any:
        return {"type": "http.disconnect"}

    request = Request({"type": "http", "method": "POST", "headers": [JSON]}, receive)
    with pytest.raises(HTTPException, match="closed before the whole body") as caught:
        asyncio.run(json_body(request))
    assert caught.value.status_code == 400


@pytest.mark.parametrize("path", ["/", "/base.css", "/picture.css", "/logo.svg", "/api/start", "/nothing"])
def test_every_answer_has_the_policy(client: Any, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert not any(name.startswith("access-control") for name in headers)


@pytest.mark.parametrize(
    "path",
    [
        "/../server.py",
        "/%2e%2e/server.py",
        "/static/../../server.py",
        "/..%2fserver.py",
        "/main.js/../../server.py",
        "/server.py",
        "/index.html",
        "//etc/passwd",
        "/etc/passwd%00.css",
        "/api/",
        "/api/nothing",
    ],
)
def test_only_the_files_of_the_page(client: Any, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert answer.json() == {"error": "there is nothing at this address"}


def test_the_page_names_nothing_outside(client: Any) -> None:
    """No script, style, font or picture from elsewhere, nothing inline: the names of namespaces are the only URLs."""
    from rrnn.explorer.server import _files

    allowed = ("http://www.w3.org/2000/svg", "http://www.w3.org/1998/Math/MathML")
    for file in _files():
        text = file.read_text(encoding="utf-8", errors="replace")  # fonts are no text
        for name in allowed:
            text = text.replace(name, "")
        assert "http:" not in text and "https:" not in text and "@import" not in text, file.name
        assert "innerHTML" not in text and "eval(" not in text, file.name
    page = client.get("/").text
    assert "<style" not in page and not re.search(r"\s(style|on\w+)=", page)
    assert all(">" + "</script>" in part for part in page.split("<script")[1:])
