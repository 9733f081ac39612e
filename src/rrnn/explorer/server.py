"""The web server: routes for the page's files, and an API that passes jobs on to the worker process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rrnn.errors import RunError
from rrnn.explorer.classifier_runs import list_runs, run_folder
from rrnn.explorer.security import SecurityMiddleware, json_body
from rrnn.explorer.worker import JobError, Worker

STATIC = Path(__file__).parent / "static"
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}


def create_app(runs: Path, host: str = "127.0.0.1") -> Starlette:
    """Return the ASGI application over a folder of runs; `host` is the address on which it will listen."""
    api = _API(runs)
    routes = [Route("/" if file.name == "index.html" else f"/{file.name}", _file(file)) for file in _files()]
    routes += [
        Route("/picture.css", api.style),
        Route("/api/start", api.start),
        Route("/api/runs", api.runs),
        Route("/api/design", api.job("design", api.design), methods=["POST"]),
        Route("/api/score", api.job("score", api.score), methods=["POST"]),
        Route("/api/explain", api.job("explain", api.explain), methods=["POST"]),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(SecurityMiddleware, host=host)],
        exception_handlers={HTTPException: _refused, JobError: _failed, RunError: _failed},
        lifespan=api.lifespan,
    )


class _API:
    """The routes that need the worker process or the folder of runs."""

    def __init__(self, runs: Path) -> None:
        self.folder = runs

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        self.worker = Worker()
        # Start the worker at once, so that it imports torch while the browser opens the page.
        self._start = asyncio.ensure_future(self.worker.run("start"))
        try:
            yield
        finally:
            self._start.cancel()
            with contextlib.suppress(asyncio.CancelledError, JobError):
                await self._start
            await self.worker.close()

    async def style(self, request: Request) -> Response:
        return Response((await self._started())["style"], media_type="text/css")

    async def start(self, request: Request) -> Response:
        return JSONResponse((await self._started())["page"])

    async def _started(self) -> Any:
        """Return the result of the job "start", which the page needs once; run it again if it failed."""
        if self._start.done() and (self._start.cancelled() or self._start.exception()):
            self._start = asyncio.ensure_future(self.worker.run("start"))
        return await asyncio.shield(self._start)  # a cancelled request must not cancel it for the others

    async def runs(self, request: Request) -> Response:
        return JSONResponse({"runs": await asyncio.to_thread(list_runs, self.folder)})

    async def design(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"text": _field(asked, "text", str)}

    async def score(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"machine": _field(asked, "machine", dict), "string": _field(asked, "string", str)}

    async def explain(self, asked: dict[str, Any]) -> dict[str, Any]:
        name, text = _field(asked, "run", str), _field(asked, "text", str)
        target = None if asked.get("target") is None else _field(asked, "target", str)
        folder = await asyncio.to_thread(run_folder, self.folder, name)
        return {"folder": str(folder), "text": text, "target": target}

    def job(
        self, name: str, arguments: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return a route that reads a JSON object, runs a job with the arguments in it, and returns the result."""

        async def answer(request: Request) -> Response:
            given = await arguments(parse(await json_body(request)))
            return JSONResponse(await self.worker.run(name, request.is_disconnected, **given))

        return answer


def parse(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a request's body; raise `JobError` for anything else."""

    def constant(token: str) -> Any:
        raise ValueError(f"{token} is not JSON")

    try:
        value = json.loads(body.decode("utf-8"), parse_constant=constant)
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # a lone surrogate could not be sent back
    except (ValueError, RecursionError) as error:
        raise JobError(f"a request's body must be a JSON object in UTF-8: {str(error)[:100]}", 400) from None
    if not isinstance(value, dict):
        raise JobError(f"a request's body must be a JSON object; got {type(value).__name__}", 400)
    return value


def _field(asked: dict[str, Any], name: str, kind: type) -> Any:
    value = asked.get(name)
    if not isinstance(value, kind):
        raise JobError(f"a request needs the field {name!r}, a {'string' if kind is str else 'object'}", 400)
    return value


def _files() -> list[Path]:
    """Return the page's files. Each gets a route by name: no path in a request ever reaches the file system."""
    return sorted(file for file in STATIC.iterdir() if file.suffix in _TYPES)


def _file(file: Path) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return Response(file.read_bytes(), media_type=_TYPES[file.suffix])

    return answer


async def _refused(request: Request, error: Exception) -> Response:
    """Respond to an unknown address or method, or to a request that `security` refused."""
    assert isinstance(error, HTTPException)
    own = {404: "there is nothing at this address", 405: "this address does not allow this method"}
    return JSONResponse({"error": own.get(error.status_code, error.detail)}, error.status_code)


async def _failed(request: Request, error: Exception) -> Response:
    """Respond to a job that failed, or to the name of a run that does not exist."""
    status, line = (error.status, error.line) if isinstance(error, JobError) else (404, None)
    return JSONResponse({"error": str(error), "line": line}, status)


def serve(runs: Path, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve the page until interrupted; call `ready` with its address as soon as it accepts connections."""
    import uvicorn

    from rrnn.explorer.connections import bounded_config, bounded_log

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Bind here, so that a port in use raises a plain OSError, and port 0 becomes a number.
        listener.bind((host, port))
        name = f"[{host}]" if ":" in host else host
        address = f"http://{name}:{listener.getsockname()[1]}/"
        server = uvicorn.Server(bounded_config(create_app(runs, host)))
        original = server.startup

        async def startup(sockets: Any = None) -> None:
            await original(sockets)
            ready(address)

        server.startup = startup
        with bounded_log():
            server.run([listener])
