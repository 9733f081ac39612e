"""`rrnn explore`: serve the local page and open it in the browser."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rrnn.errors import RunError


@dataclass
class Explore:
    """Open a local page to design cells, watch Forward score strings, and explain trained classifiers."""

    port: int = 8765
    """The port to listen on; 0 takes any free port."""
    host: str = "127.0.0.1"
    """The address to listen on. There is no password: with another address than 127.0.0.1, everyone who can reach it
    can use the page."""
    runs: Path = Path("runs")
    """The folder with the runs to explain; no other runs are read."""
    open: bool = True
    """Open the page in the browser."""


def explore(options: Explore) -> None:
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise RunError(
            f"the page needs starlette and uvicorn; {error.name} is not installed. Run: pip install 'rrnn[explore]'"
        ) from None
    from rrnn.explorer import serve

    if not 0 <= options.port < 65536:
        raise RunError(f"--port must be a number from 0 to 65535; got {options.port}")

    def ready(address: str) -> None:
        print(f"rrnn explore: {address} (press Ctrl-C to stop)", flush=True)
        if options.open:
            import webbrowser

            webbrowser.open(address)

    try:
        serve(options.runs, options.host, options.port, ready)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise RunError(
            f"cannot listen on {options.host}, port {options.port}: {why}. Choose another --port (0 takes any free "
            "one) or --host."
        ) from None
