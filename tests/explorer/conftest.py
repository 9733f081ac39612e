"""One application with one worker for all tests of a process: starting it takes seconds."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("httpx")


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("explorer") / "runs"


@pytest.fixture(scope="session")
def client(runs: Path) -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # newer starlettes ask for a successor of httpx that older ones do not know
        from starlette.testclient import TestClient

    from rrnn.explorer import create_app

    runs.mkdir()
    # follow_redirects: nothing here redirects, and a test would not notice it otherwise
    with TestClient(create_app(runs), base_url="http://127.0.0.1:8765", follow_redirects=False) as client:
        yield client
