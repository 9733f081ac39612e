"""Runs that were trained with a tokenizer.json, as ONNX and C: tokens are words, and ONNX files hold the tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tiny_classifier
import torch
from exported_c import Stepper
from tiny_lm import train_tiny, write_corpus
from tiny_tokenizers import KINDS, write_tokenizer
from tokenizers import Tokenizer

import rrnn
from rrnn.exporters import export, initial_states
from rrnn.tasks.classify.experiment import train as train_classifier


@pytest.mark.parametrize("kind", KINDS)
def test_language_models(kind: str, tmp_path: Path) -> None:
    given = write_tokenizer(tmp_path / "given.json", kind)
    data = write_corpus(tmp_path / "corpus.txt")
    train_tiny(tmp_path / "run", data, epochs=1, tokenizer=str(given))
    model = rrnn.load(tmp_path / "run")
    (path,) = export(model, tmp_path / "lm.onnx")
    run = onnxruntime.InferenceSession(path)
    about = run.get_modelmeta().custom_metadata_map
    tokens = json.loads(about["rrnn.vocabulary"])
    tokenizer = Tokenizer.from_str(about["rrnn.tokenizer"])
    tokenizer.no_truncation()
    tokenizer.no_padding()
    words = tokenizer.encode("naïve anna likes tea", add_special_tokens=False).ids
    ids = [tokens.index("<s>"), *words]
    hidden, _ = model.module(torch.tensor(ids).unsqueeze(1))
    expected = model.module.scores(hidden)[:, 0].detach().numpy()
    scores, *_ = run.run(None, {"ids": np.array(ids)[:, None], **initial_states(run, 1)})
    np.testing.assert_allclose(np.asarray(scores)[:, 0], expected, rtol=1e-5, atol=1e-5)
    path, _ = export(model, tmp_path / "lm.c")
    steps = Stepper(path, len(model.vocabulary))
    found = [
        steps.call("find", token.encode())
        for token in ["<s>", *model.tokenizer.split("naïve anna likes tea")]
    ]
    assert found == ids
    for n, row in zip(ids, expected, strict=True):
        np.testing.assert_allclose(steps.step(n), row, rtol=1e-5, atol=1e-5)
    (path,) = export(model, tmp_path / "lm.onnx", vocabulary=False)
    about = onnxruntime.InferenceSession(path).get_modelmeta().custom_metadata_map
    assert "rrnn.tokenizer" not in about and "rrnn.vocabulary" not in about


def test_classifiers(tmp_path: Path) -> None:
    given, data = write_tokenizer(tmp_path / "given.json", "word-piece"), tmp_path / "texts.txt"
    data.write_text("".join(f"{i % 2} a {'good' if i % 2 else 'bad'} film {i}\n" for i in range(40)))
    config = tiny_classifier.tiny_config(data=str(data), epochs=1, tokenizer=str(given))
    model = train_classifier(config, tmp_path / "run").model
    path, header = export(model, tmp_path / "judge.c")
    ids = model.encode(model.tokenise("not a very good film")).tolist()
    steps, text = Stepper(path, 2), header.read_text()
    for n in ids:
        logits = steps.step(n)
    with torch.inference_mode():
        expected = model.module(torch.tensor(ids).unsqueeze(1), torch.tensor([len(ids)]))[0].numpy()
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
    assert "JUDGE_UNKNOWN" not in text  # the tokenizer says what is unknown, and what for
    assert steps.call("find", b"nowhere") == model.vocabulary.number("[UNK]")
    (path,) = export(model, tmp_path / "judge.onnx")
    run = onnxruntime.InferenceSession(path)
    (logits,) = run.run(None, {"ids": np.array(ids)[:, None], "lengths": np.array([len(ids)])})
    np.testing.assert_allclose(np.asarray(logits)[0], expected, rtol=1e-5, atol=1e-5)
    assert "rrnn.tokenizer" in run.get_modelmeta().custom_metadata_map
