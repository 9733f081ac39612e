"""The worker: what takes too long or dies is ended, and the next job runs as if nothing had been."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from rrnn.errors import AutomatonError, FormatError
from rrnn.explorer import worker, worker_main
from rrnn.explorer.pictures import _at_most
from rrnn.explorer.worker import JobError, Worker
from rrnn.explorer.worker_main import answer, message_of

STAND_IN = """
import json, os, sys, time
print("ready", flush=True)
for line in sys.stdin:
    text = json.loads(line)["arguments"]["text"]
    if text == "sleep": time.sleep(60)
    if text == "die": os._exit(1)
    if text == "half": print("{", end="", flush=True); os._exit(1)
    if text == "endless": print("x" * (1 << 20), end="", flush=True); continue
    found = {"error": "no", "status": 422, "line": 3} if text == "wrong" else {"result": [text, os.getpid()]}
    print(json.dumps(found), flush=True)
"""
"""A worker's process without torch: the same words, and every trouble there is."""


def run(use: Callable[[Worker], Awaitable[None]]) -> None:
    async def whole() -> None:
        there = Worker((sys.executable, "-c", STAND_IN))
        try:
            await asyncio.wait_for(use(there), 30)
        finally:
            await there.close()

    asyncio.run(whole())


def test_jobs_share_a_process_and_keep_their_order() -> None:
    async def use(there: Worker) -> None:
        results = await asyncio.gather(*(there.run("design", text=str(i)) for i in range(worker.WAITING)))
        assert [text for text, _ in results] == [str(i) for i in range(worker.WAITING)]
        assert len({process for _, process in results}) == 1

    run(use)


def test_more_than_may_wait_are_turned_away() -> None:
    async def use(there: Worker) -> None:
        many = (there.run("design", text="x") for _ in range(worker.WAITING + 3))
        results = await asyncio.gather(*many, return_exceptions=True)
        assert [r.status for r in results if isinstance(r, JobError)] == [429] * 3
        assert (await there.run("design", text="x"))[0] == "x"

    run(use)


@pytest.mark.parametrize(
    ("text", "words"),
    [("sleep", "longer than"), ("die", "more memory"), ("half", "more memory"), ("endless", "more memory")],
)
def test_what_goes_wrong_is_ended_and_the_next_job_runs(
    monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    monkeypatch.setitem(worker.LIMITS, "design", 0.5 if text == "sleep" else 20.0)
    monkeypatch.setattr(worker, "MAX_ANSWER", 1 << 18)

    async def use(there: Worker) -> None:
        _, first = await there.run("design", text="x")
        with pytest.raises(JobError, match=words) as caught:
            await there.run("design", text=text)
        assert caught.value.status == 422
        again, second = await there.run("design", text="y")
        assert again == "y" and second != first

    run(use)


def test_a_mistake_has_its_line_and_costs_no_process() -> None:
    async def use(there: Worker) -> None:
        _, first = await there.run("design", text="x")
        with pytest.raises(JobError, match="no") as caught:
            await there.run("design", text="wrong")
        assert (caught.value.status, caught.value.line) == (422, 3)
        assert (await there.run("design", text="x"))[1] == first

    run(use)


def test_who_has_left_gets_nothing() -> None:
    async def gone() -> bool:
        return True

    async def use(there: Worker) -> None:
        with pytest.raises(JobError, match="no longer waits"):
            await there.run("design", gone, text="sleep")
        assert (await there.run("design", text="x"))[0] == "x"

    run(use)


def test_a_cancelled_job_leaves_no_answer_behind() -> None:
    async def use(there: Worker) -> None:
        await there.run("design", text="x")
        job = asyncio.ensure_future(there.run("design", text="sleep"))
        await asyncio.sleep(0.1)
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        assert (await there.run("design", text="y"))[0] == "y"

    run(use)


def test_a_failed_start_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, connect: Callable[[Path], Any]
) -> None:
    answers = iter([JobError("too slow"), {"style": "", "page": {"cells": []}}])

    async def run(self: Worker, job: str, **_: Any) -> Any:
        found = next(answers)
        if isinstance(found, JobError):
            raise found
        return found

    monkeypatch.setattr(Worker, "run", run)
    with connect(tmp_path) as client:
        found = [client.get("/api/start") for _ in range(2)]
    assert sorted(answer.status_code for answer in found) in ([200, 200], [200, 422])  # whoever comes first
    assert found[-1].json() == {"cells": []}


@pytest.mark.slow
def test_a_worker_whose_server_is_gone_ends_itself() -> None:
    """Nobody is there to end it: its pipes stay open, and its job takes far longer than it may."""
    line = json.dumps({"job": "start", "arguments": {}, "limit": 0.1 - worker_main.GRACE})
    code = "import time; from rrnn.explorer import worker_main as w; w.JOBS['start'] = lambda: time.sleep(60); w.main()"
    command = [sys.executable, "-c", code]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdin and process.stdout
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == "ready\n"
            assert process.wait(20) != 0
            assert process.stdout.read() == ""
        finally:
            process.kill()


def test_an_answer_for_a_fault_has_no_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise KeyError("secret")

    monkeypatch.setitem(worker_main.JOBS, "start", fail)
    found = json.loads(answer(json.dumps({"job": "start", "arguments": {}})))
    assert found["status"] == 500 and "secret" not in found["error"]
    assert "secret" in capsys.readouterr().err  # the terminal has it
    monkeypatch.setitem(
        worker_main.JOBS, "start", lambda: float("nan")
    )  # what JSON cannot carry is a fault, too
    assert json.loads(answer(json.dumps({"job": "start", "arguments": {}})))["status"] == 500


@pytest.mark.parametrize("error", [RecursionError("deep"), MemoryError()])
def test_too_large_is_the_users_mistake(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setitem(worker_main.JOBS, "start", fail)
    assert json.loads(answer(json.dumps({"job": "start", "arguments": {}})))["status"] == 422


def test_messages_do_not_repeat_the_line() -> None:
    assert message_of(FormatError("wrong", source="cell text", line=4)) == "wrong"
    assert message_of(FormatError("wrong", line=4)) == "wrong"
    assert message_of(FormatError("wrong", source="cell text")) == "wrong"
    assert message_of(AutomatonError("4: wrong")) == "4: wrong"


def test_drawing_has_an_end() -> None:
    with pytest.raises(AutomatonError, match="too dense"), _at_most(0.05):
        while True:
            pass
    with _at_most(5.0):
        pass
