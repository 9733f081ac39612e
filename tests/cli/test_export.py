"""`rrnn export`, as users call it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from tiny_lm import train_tiny, write_corpus

import rrnn
from rrnn.cli import main
from rrnn.tasks.classify import ClassifyConfig
from rrnn.tasks.classify import train as train_classifier


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    data = write_corpus(folder / "corpus.txt", 30)
    for cell in ("B", "lstm"):
        train_tiny(folder / cell, data, cell=cell, epochs=1, emas=(), asgd_from=None)
    return folder


def call(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    code = main(["export", *map(str, args)])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.slow
def test_a_language_model(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lm.onnx"
    code, out, err = call(capsys, runs / "B", "-o", file, "--lengths")
    assert (code, err) == (0, "") and out == f"written: {file} ({file.stat().st_size:,} bytes)\n"
    session = onnxruntime.InferenceSession(str(file))
    model = rrnn.load(runs / "B")
    ids, lengths = torch.randint(0, len(model.vocabulary), (5, 2)), np.array([5, 5])
    (scores, *_) = session.run(
        None, {"ids": ids.numpy(), "lengths": lengths, **rrnn.initial_states(session, 2)}
    )
    expected = model.module.scores(model.module(ids)[0]).detach().numpy()
    np.testing.assert_allclose(np.asarray(scores), expected, rtol=1e-5, atol=1e-5)
    code, out, err = call(capsys, runs / "B", "-o", tmp_path / "lm.c", "--name", "tiny", "--no-vocabulary")
    assert (code, err) == (0, "") and [line.split()[1] for line in out.splitlines()] == [
        str(tmp_path / "lm.c"),
        str(tmp_path / "lm.h"),
    ]
    assert (
        "tiny_step" in (tmp_path / "lm.h").read_text() and "tiny_words" not in (tmp_path / "lm.c").read_text()
    )


@pytest.mark.slow
def test_a_classifier(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    train_classifier(ClassifyConfig(cell="F", hidden_size=4, layers=1, epochs=1, device="cpu"), folder)
    for name in ("model.onnx", "model.c"):
        assert call(capsys, folder, "-o", tmp_path / name)[0] == 0
    model = rrnn.load(folder)
    ids = model.encode(["good", "not", "film"])
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    (logits,) = session.run(None, {"ids": ids[:, None], "lengths": np.array([3])})
    with torch.inference_mode():
        expected = model.module(torch.from_numpy(ids)[:, None], torch.tensor([3])).numpy()
    np.testing.assert_allclose(np.asarray(logits), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_mistakes(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for run, output, message in (
        (runs / "lstm", "model.onnx", "torch's LSTM is not a layer that can be exported to ONNX"),
        (runs / "lstm", "model.c", "torch's LSTM is not a layer that can be exported to C"),
        (runs / "B", "model.pt", "exported to .onnx or .c"),
        (runs / "B", "nowhere/model.c", "there is no folder"),
        (tmp_path, "model.c", "holds no run"),
    ):
        code, out, err = call(capsys, run, "-o", tmp_path / output)
        assert code == 2 and out == "" and message in err
    assert not list(tmp_path.iterdir())
