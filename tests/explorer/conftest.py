"""Share one application with one worker among all tests of a process, because starting it takes seconds."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("httpx")


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explorer") / "runs"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def trained(runs: Path) -> Path:
    """Train three classifiers on a few texts: an LSTM, which has no automata, a cell over max-plus, and F, the newest.
    Return the folder of runs."""
    from rrnn.tasks.classify.config import ClassifyConfig
    from rrnn.tasks.classify.experiment import train

    texts = "yes this is good\nno this is not good\nyes that was very good\nno it was not so good\n"
    data = {name: str(runs.parent / f"{name}.txt") for name in ("train", "dev")}
    for path in data.values():
        Path(path).write_text(4 * texts)
    small = {"hidden_size": 4, "embedding_size": 6, "layers": 1, "epochs": 2, "device": "cpu"}
    for cell, name in (("LSTM", "search/seed-0"), ("B-max-plus", "B-max-plus"), ("F", "F")):
        (runs / name).parent.mkdir(exist_ok=True)
        train(ClassifyConfig(data=data["train"], dev=data["dev"], cell=cell, **small), runs / name)
    return runs


@pytest.fixture(scope="session")
def connect() -> Callable[[Path], Any]:
    """Return a function that makes a client of the explorer over a folder of runs, a context manager."""
    with warnings.catch_warnings():
        # Newer versions of starlette ask for a successor of httpx that older versions do not know.
        warnings.simplefilter("ignore")
        from starlette.testclient import TestClient

    from rrnn.explorer import create_app

    return lambda runs: TestClient(create_app(runs), base_url="http://127.0.0.1:8765", follow_redirects=False)


@pytest.fixture(scope="session")
def client(runs: Path, connect: Callable[[Path], Any]) -> Iterator[Any]:
    with connect(runs) as client:
        yield client
