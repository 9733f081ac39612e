"""The routes: the page's files, and an API of a few jobs. Nothing is computed here."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rrnn.errors import RunError
from rrnn.explorer.classifier_runs import list_runs, run_folder
from rrnn.explorer.security import Guard
from rrnn.explorer.worker import JobError, Worker

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

STATIC = Path(__file__).parent / "static"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def create_app(runs: Path, host: str = "127.0.0.1") -> Any:
    """The ASGI application; `host` is the address that it will listen on."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.routing import Route

    pages = _Pages(runs)
    routes = [Route("/" if file.name == "index.html" else f"/{file.name}", _file(file)) for file in _files()]
    routes += [
        Route("/picture.css", pages.style),
        Route("/api/start", pages.start),
        Route("/api/runs", pages.runs_there),
        *(
            Route(f"/api/{name}", pages.job(name, arguments), methods=["POST"])
            for name, arguments in {
                "design": pages.design,
                "score": pages.score,
                "explain": pages.explain,
            }.items()
        ),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, host=host)],
        exception_handlers={404: _not_found, 405: _not_found, JobError: _failed, RunError: _failed},
        lifespan=pages.lifespan,
    )


class _Pages:
    """What the API's answers share: the worker and the folder of runs."""

    def __init__(self, runs: Path) -> None:
        self.folder = runs

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        self.worker = Worker()
        # At once: torch is imported while the browser opens the page.
        self._start = asyncio.ensure_future(self.worker.run("start"))
        try:
            yield
        finally:
            self._start.cancel()
            with contextlib.suppress(asyncio.CancelledError, JobError):
                await self._start
            await self.worker.close()

    async def style(self, request: Request) -> Response:
        from starlette.responses import Response

        return Response((await self._started())["style"], media_type="text/css")

    async def start(self, request: Request) -> Response:
        return _json((await self._started())["page"])

    async def _started(self) -> Any:
        """What the page needs once; asked for again where that failed."""
        if self._start.done() and (self._start.cancelled() or self._start.exception()):
            self._start = asyncio.ensure_future(self.worker.run("start"))
        return await asyncio.shield(self._start)  # a request that is given up must not end it for the others

    async def runs_there(self, request: Request) -> Response:
        return _json({"runs": await asyncio.to_thread(list_runs, self.folder)})

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
        """A route that reads a JSON object, runs a job of these arguments, and answers with its result."""

        async def answer(request: Request) -> Response:
            given = await arguments(parse(await request.body()))
            return _json(await self.worker.run(name, request.is_disconnected, **given))

        return answer


def parse(body: bytes) -> dict[str, Any]:
    """The JSON object of a request; anything else is a `JobError`."""

    def constant(token: str) -> Any:
        raise ValueError(f"{token} is not JSON")

    try:
        value = json.loads(body.decode("utf-8"), parse_constant=constant)
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # a lone surrogate could not be sent back
    except (ValueError, RecursionError) as error:
        raise JobError(f"a request's body is a JSON object in UTF-8: {str(error)[:100]}", 400) from None
    if not isinstance(value, dict):
        raise JobError("a request's body is a JSON object; got something else", 400)
    return value


def _field(asked: dict[str, Any], name: str, kind: type) -> Any:
    value = asked.get(name)
    if not isinstance(value, kind):
        raise JobError(f"a request needs {name!r}, a {'string' if kind is str else 'object'}", 400)
    return value


def _json(value: Any, status: int = 200) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(value, status)


def _files() -> list[Path]:
    """The page's files, by name: no path of a request ever reaches the file system."""
    return sorted(file for file in STATIC.iterdir() if file.suffix in _TYPES)


def _file(file: Path) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        from starlette.responses import Response

        return Response(file.read_bytes(), media_type=_TYPES[file.suffix])

    return answer


async def _not_found(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    wrong = "this address does not take that method" if status == 405 else "there is nothing at this address"
    return _json({"error": wrong}, status)


async def _failed(request: Request, error: Exception) -> Response:
    """A job without a result, or a run that is not there."""
    status, line = (error.status, error.line) if isinstance(error, JobError) else (404, None)
    return _json({"error": str(error), "line": line}, status)


def serve(runs: Path, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Run the page until interrupted; `ready` is told its address once it answers."""
    import socket

    import uvicorn

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(
            (host, port)
        )  # here, so that a port in use is a plain OSError, and port 0 gets a number
        name = f"[{host}]" if ":" in host else host
        address = f"http://{name}:{listener.getsockname()[1]}/"
        config = uvicorn.Config(create_app(runs, host), log_level="warning", access_log=False)
        server = uvicorn.Server(config)
        original = server.startup

        async def startup(sockets: Any = None) -> None:
            await original(sockets)
            ready(address)

        server.startup = startup
        server.run([listener])
