"""`rrnn explore`: a local page to design cells, watch Forward score a string, and explain trained classifiers.

The server (`server`, protected by `security`) only checks requests and passes them on. All computation runs in one
worker process (`worker` starts it, `worker_main` is its program), which is ended when a job takes too long. Each tab of
the page has a module: `design_tab`, `score_tab` and `explain_tab`. `static/` is the page: HTML, CSS and JavaScript.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rrnn.explorer.server import create_app as create_app
    from rrnn.explorer.server import serve as serve

__all__ = ["create_app", "serve"]


def __getattr__(name: str) -> Any:
    """Import the server on first use: it needs starlette, which the worker process does without."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rrnn.explorer import server

    return getattr(server, name)
