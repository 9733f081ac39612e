"""`rrnn explore`: a local page to design cells, watch Forward, and look into what was trained.

The server (`server`, behind `guard`) only checks and passes on; all computation runs in one worker process (`worker`,
`jobs`), which is ended when it takes too long. `static/` is the page: plain HTML, CSS and JavaScript.
"""

from rrnn.explorer.server import create_app, serve

__all__ = ["create_app", "serve"]
