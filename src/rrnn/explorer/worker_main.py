"""The program of the worker process: `python -m rrnn.explorer.worker_main`.

It reads one job per line and writes the result of each as one line.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from rrnn.draw.heat_maps import HEAT_STYLE
from rrnn.draw.svg import STYLE
from rrnn.errors import FormatError, RRNNError
from rrnn.explorer.design_tab import design
from rrnn.explorer.explain_tab import explain
from rrnn.explorer.machines import EXAMPLE, MAX_STRING, TEMPLATES, shown_template
from rrnn.explorer.score_tab import score
from rrnn.semirings import SEMIRINGS
from rrnn.zoo import CELLS, MODELS, get_cell


def start() -> dict[str, Any]:
    """Return what the page needs once: example cells, the paper's automata with weights, and the style of pictures."""
    return {
        "style": f"{STYLE}\n{HEAT_STYLE}",
        "page": {
            "cells": [
                {"name": name, "paper": MODELS[name].paper, "text": get_cell(name).to_text()}
                for name in CELLS
            ],
            "automata": [{"name": name} | shown_template(template) for name, template in TEMPLATES.items()],
            "semirings": list(SEMIRINGS),
            "example": EXAMPLE | {"longest": MAX_STRING},
        },
    }


JOBS: dict[str, Callable[..., Any]] = {"start": start, "design": design, "score": score, "explain": explain}
MEMORY = 4 * 2**30
"""The bytes that jobs may allocate, in addition to what the process uses when it is ready."""
GRACE = 5.0
"""The seconds after a job's limit at which the process ends itself if the server has not."""


def answer(line: str) -> str:
    """Run one job and return its result: {"result": …}, or {"error": message, "status": …, "line": …}."""
    request = json.loads(line)
    try:
        return json.dumps({"result": JOBS[request["job"]](**request["arguments"])}, allow_nan=False)
    except RRNNError as error:
        return _error(message_of(error), 422, getattr(error, "line", None))
    except (RecursionError, MemoryError):
        return _error("this is nested too deeply or needs too much memory. Try a smaller input.", 422)
    except Exception:
        traceback.print_exc()  # to the terminal; the page gets no traceback
        return _error(
            "this is a bug in rrnn. The terminal in which `rrnn explore` runs shows the details.", 500
        )


def _error(message: str, status: int, line: int | None = None) -> str:
    return json.dumps({"error": message, "status": status, "line": line})


def message_of(error: RRNNError) -> str:
    """Return the message without the file and line in front of it, which the page shows separately."""
    text = str(error)
    if isinstance(error, FormatError) and error.line is not None:
        text = text.partition(f"{error.line}: ")[2] or text
    elif isinstance(error, FormatError) and error.source is not None:
        text = text.removeprefix(f"{error.source}: ")
    return text


def main() -> None:
    """Process jobs until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # other output must not mix with the results
    _limit_memory()
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        # The server ends a job that takes too long; if the server is gone, this does.
        faulthandler.dump_traceback_later(json.loads(line)["limit"] + GRACE, exit=True)
        text = answer(line)
        faulthandler.cancel_dump_traceback_later()
        print(text, file=answers, flush=True)


def _limit_memory() -> None:
    """Limit the memory of the process, on Linux. Elsewhere only the limit on time applies."""
    try:
        import resource

        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    except (ImportError, OSError, ValueError):
        pass


if __name__ == "__main__":
    main()
