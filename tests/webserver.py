"""Run a web server in this process, whose downloads can be made to fail."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class WebServer:
    """Serve `pages`. A path in `cut` sends less than it announces; one in `stalled` sends half and then waits."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes] = {}
        self.cut: set[str] = set()
        self.stalled: set[str] = set()
        self.asked: list[str] = []
        self.half_sent = threading.Event()
        self.go_on = threading.Event()
        self.url = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        name = request.path.lstrip("/")
        self.asked.append(name)
        if name not in self.pages:
            request.send_error(404)
            return
        body = self.pages[name]
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        half = len(body) // 2
        request.wfile.write(body[:half])
        request.wfile.flush()
        if name in self.stalled:
            self.half_sent.set()
            self.go_on.wait(20)
        if name not in self.cut and name not in self.stalled:
            request.wfile.write(body[half:])


@contextmanager
def serving() -> Iterator[WebServer]:
    server = WebServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.answer(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        server.url = f"http://127.0.0.1:{listener.server_port}"
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.go_on.set()
            listener.shutdown()
            thread.join()
