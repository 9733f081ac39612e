"""`rrnn explore`: the local page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rrnn.errors import RunError


@dataclass
class Explore:
    """Open a local page to design cells, watch Forward score strings, and look into trained classifiers."""

    port: int = 8765
    """Where to listen; 0 takes any free port."""
    host: str = "127.0.0.1"
    """The address to listen on. Any other than this machine's own lets others in: there are no passwords."""
    runs: Path = Path("runs")
    """The folder whose runs can be explained; nothing outside it is read."""
    open: bool = True
    """Open the page in the browser."""


def explore(options: Explore) -> None:
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise RunError(
            f"the page needs starlette and uvicorn; {error.name} is not installed. pip install 'rrnn[explore]'."
        ) from None
    from rrnn.explorer import serve

    if not 0 <= options.port < 65536:
        raise RunError(f"a port is a number from 0 to 65535; got {options.port}")

    def ready(address: str) -> None:
        print(f"rrnn explore: {address} (Ctrl-C ends it)", flush=True)
        if options.open:
            import webbrowser

            webbrowser.open(address)

    try:
        serve(options.runs, options.host, options.port, ready)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise RunError(
            f"cannot listen on {options.host}, port {options.port}: {why}. Say another --port (0 takes any free one) "
            "or --host."
        ) from None
