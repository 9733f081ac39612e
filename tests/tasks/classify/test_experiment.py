from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tiny_classifier import tiny, tiny_config, tiny_dataset

import rrnn
from rrnn.errors import DataError, RRNNError, RunError
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.experiment import read_summary, train
from rrnn.tasks.classify.explanations import explain
from rrnn.tasks.classify.prepare import prepare
from rrnn.tasks.classify.scores import macro_f1
from rrnn.tasks.classify.trained import evaluate, labelled_texts
from rrnn.tasks.data.labelled_files import Skips
from rrnn.tasks.training import Progress


def write_table(path: Path, rows: int = 60) -> Path:
    lines = [
        f"{'good fine' if i % 2 else 'bad dull'} film {i},{'pos' if i % 2 else 'neg'}" for i in range(rows)
    ]
    path.write_text("text,label\n" + "\n".join(lines) + "\n")
    return path


def test_a_run_tells_all(tmp_path: Path) -> None:
    config = tiny_config(data=str(write_table(tmp_path / "t.csv")), epochs=12)
    result = train(config, tmp_path / "run")
    assert read_summary(tmp_path / "run") == result.summary
    assert result.summary.dev == 100 and result.summary.test == 100
    assert result.summary.epochs == result.summary.best_epoch < 12  # nothing was left to gain
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert stored["facts"]["labels"] == ["neg", "pos"] and stored["cleaning"] == "text"
    loaded = rrnn.load(tmp_path / "run")
    assert [p.label for p in loaded.predict(["Good, fine film!", "dull"])] == ["pos", "neg"]
    texts, labels = labelled_texts(loaded, "test")
    report = evaluate(loaded, texts, labels)
    assert report.accuracy == 100 and report.confusion == [[3, 0], [0, 3]]
    assert "accuracy 100.00 %" in report.to_text("test")


def test_interrupted_and_resumed_is_the_same_training(tmp_path: Path) -> None:
    config = tiny_config(epochs=4, checkpoint_seconds=0.0)
    data = tiny(config, vectors=True)
    train(config, tmp_path / "whole", data=data)
    train(config.replace(epochs=2), tmp_path / "parts", data=data)
    with pytest.raises(RunError, match="already holds a run"):
        train(config, tmp_path / "parts", data=data)
    train(config, tmp_path / "parts", data=data, resume=True)
    whole, parts = (rrnn.load(tmp_path / name).module.state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    with pytest.raises(RunError, match="hidden_size: was 8, now 9"):
        train(config.replace(hidden_size=9), tmp_path / "parts", data=data, resume=True)


@pytest.mark.parametrize("cell", ["LSTM", "gru", "SRU"])
def test_other_models(tmp_path: Path, cell: str) -> None:
    config = tiny_config(cell=cell, epochs=1)
    train(config, tmp_path / "run", data=tiny(config))
    assert rrnn.load(tmp_path / "run").predict(["good film"])[0].label in ("no", "yes")


def test_a_cell_file_may_vanish(tmp_path: Path) -> None:
    path = tmp_path / "mine.cell"
    path.write_text(rrnn.get_cell("C").to_text())
    config = tiny_config(cell=str(path), epochs=1)
    train(config, tmp_path / "run", data=tiny(config))
    path.unlink()
    assert rrnn.load(tmp_path / "run").predict(["good film"])


def test_vectors_fixed_and_tuned(tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.csv")
    vectors = tmp_path / "v.txt"
    vectors.write_text("good 3 4 0\nbad 0 0 2\nnever 1 1 1\n")
    small = tiny_config(data=str(table), vectors=str(vectors), embedding_size=3)
    fixed = prepare(small.replace(vector_length=1.0))
    longer = prepare(small).vectors
    assert longer is not None and fixed.vectors is not None
    torch.testing.assert_close(longer, 5 * fixed.vectors)
    assert fixed.vocabulary.words == ["<pad>", "<unk>", "good", "bad"]
    assert fixed.vectors is not None
    torch.testing.assert_close(fixed.vectors[2:], torch.tensor([[0.6, 0.8, 0.0], [0.0, 0.0, 1.0]]))
    assert fixed.vectors[1].norm().item() == pytest.approx(1) and not fixed.vectors[0].any()
    assert "vectors for 2 of" in fixed.about[1]
    whole = prepare(fixed.config.replace(vector_words="all"))
    assert "never" in whole.vocabulary
    tuned = fixed.config.replace(fine_tune=True, epochs=1, embedding_size=None)
    train(tuned, tmp_path / "tuned")
    loaded = rrnn.load(tmp_path / "tuned")
    assert not torch.equal(loaded.module.embedding[2:], fixed.vectors[2:])
    assert not (tmp_path / "tuned" / "embedding.safetensors").exists()
    train(tuned.replace(fine_tune=False), tmp_path / "fixed")
    torch.testing.assert_close(rrnn.load(tmp_path / "fixed").module.embedding, fixed.vectors)
    (tmp_path / "fixed" / "embedding.safetensors").unlink()
    with pytest.raises(RRNNError, match=r"lost its word vectors, embedding\.safetensors"):
        rrnn.load(tmp_path / "fixed")


def test_words_without_a_vector_may_have_one_of_their_own(tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.csv")
    vectors = tmp_path / "v.txt"
    vectors.write_text("good 3 4 0\nbad 0 0 2\n<unk> 1 2 3\n")
    config = tiny_config(data=str(table), vectors=str(vectors), embedding_size=3, vector_length=5.0)
    one, own = (prepare(config.replace(unknown=how)) for how in ("one", "own"))
    assert one.vectors is not None and own.vectors is not None
    known = len(one.vocabulary)
    assert own.vocabulary.words[:known] == one.vocabulary.words and len(own.vocabulary) > known
    torch.testing.assert_close(own.vectors[:known], one.vectors)
    torch.testing.assert_close(own.vectors[1:].norm(dim=1), torch.full((len(own.vocabulary) - 1,), 5.0))
    assert len(own.vectors.unique(dim=0)) == len(own.vocabulary)
    assert any((ids == 1).any() for ids in one.splits["train"][0])
    assert not any((ids == 1).any() for ids, _ in own.splits.values() for ids in ids)
    again = prepare(config.replace(unknown="own", split_seed=1))
    assert again.vectors is not None and torch.equal(again.vectors, own.vectors)
    assert again.vocabulary == own.vocabulary


def test_runs_of_version_0_1_keep_their_length_of_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its default was 1: it stays where there are vectors, and means nothing where there are none."""
    old = ClassifyConfig(data="d").to_dict() | {"vector_length": 1.0}
    assert ClassifyConfig.from_run(old) == ClassifyConfig(data="d")
    assert ClassifyConfig.from_run(old | {"vectors": "glove"}).vector_length == 1.0
    with pytest.raises(RunError, match="applies to given word vectors"):
        ClassifyConfig.from_run(old | {"vector_length": 7.0})
    config = tiny_config(epochs=1)
    with monkeypatch.context() as then:
        as_now = ClassifyConfig.to_dict
        then.setattr(ClassifyConfig, "to_dict", lambda self: as_now(self) | {"vector_length": 1.0})
        train(config, tmp_path / "run", data=tiny(config))
    again = train(config.replace(epochs=2), tmp_path / "run", data=tiny(config), resume=True)
    assert len(again.history) == 2
    rrnn.load(tmp_path / "run")


def test_macro_f1_beside_accuracy(tmp_path: Path) -> None:
    config = tiny_config(epochs=2)
    result = train(config, tmp_path / "run", data=tiny(config)).summary
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert result.dev_macro_f1 == records[result.best_epoch - 1]["dev_macro_f1"]
    examples = tiny_dataset().test
    model = rrnn.load(tmp_path / "run")
    report = evaluate(model, [each.tokens for each in examples], [each.label for each in examples])
    assert report.macro_f1 == pytest.approx(result.test_macro_f1) and report.accuracy == result.test
    assert f"macro-F1 {report.macro_f1:.2f} %" in report.to_text("test")
    file = tmp_path / "run" / "result.json"
    new = {"dev_macro_f1", "test_macro_f1", "folds", "fold"}
    file.write_text(json.dumps({k: v for k, v in json.loads(file.read_text()).items() if k not in new}))
    old = read_summary(tmp_path / "run")
    assert old.test == result.test and old.test_macro_f1 is None


def test_macro_f1_is_the_mean_over_labels() -> None:
    # Label 0: precision 3/4, recall 3/5, F1 2/3. Label 1: precision 2/4, recall 2/3, F1 4/7. Label 2 is never there.
    assert macro_f1([3, 2, 0], [5, 3, 0], [4, 4, 0]) == pytest.approx(100 * (2 / 3 + 4 / 7) / 2)
    assert macro_f1([3, 0], [5, 0], [3, 2]) == pytest.approx(
        100 * (3 / 4 + 0) / 2
    )  # predicted, but never right
    assert macro_f1([0], [0], [0]) == 0


class Notes(Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


@pytest.mark.parametrize(
    ("cell", "changes", "hint"),
    [
        ("QRNN-f", {}, "--layers 1 and --readout linear"),
        ("QRNN-f", {"layers": 1, "pooling": "max", "readout": "linear"}, "--pooling last"),
        ("QRNN-f", {"layers": 1, "readout": "linear"}, ""),
        ("QRNN-f", {"layers": 1, "readout": "linear", "pooling": "mean"}, ""),
        ("F", {"layers": 1}, "--readout linear and a .cell file with `output score`"),
        ("LSTM", {}, None),
        ("SRU", {}, None),  # its output is not the score
        ("B-max-plus", {}, None),  # its scores are not sums
    ],
)
def test_the_hint_at_exact_explanations(cell: str, changes: dict[str, object], hint: str | None) -> None:
    config = tiny_config(epochs=1, cell=cell, **changes)
    notes = Notes()
    model = train(config, data=tiny(config), progress=notes).model
    hints = [line for line in notes.lines if "rrnn explain" in line]
    assert [bool(hint) and hint in line for line in hints] == [True] * bool(hint)
    if hint is not None:
        assert explain(model, "good film").exact == (not hint)


def test_bad_input_is_named(tmp_path: Path) -> None:
    table, vectors = write_table(tmp_path / "t.csv"), tmp_path / "v.txt"
    vectors.write_text("good 1 2 3\n")

    def message(**options: object) -> str:
        with pytest.raises(RRNNError) as caught:
            train(tiny_config(**options))
        return str(caught.value)

    assert "must have size 6, but they have 3" in message(data=str(table), vectors=str(vectors))
    vectors.write_text("nothing 1 2 3 4 5 6\n")
    assert "no vector for any of the" in message(data=str(table), vectors=str(vectors))
    (tmp_path / "one.csv").write_text("text,label\ngood,pos\nfine,pos\n")
    assert "at least two classes" in message(data=str(tmp_path / "one.csv"))
    (tmp_path / "empty.csv").write_text("")
    assert "empty" in message(data=str(tmp_path / "empty.csv"))
    (tmp_path / "dev.csv").write_text("text,label\ngood,pos\nbad,other\n")
    assert "dev.csv:3: the label 'other' does not occur in the training data" in message(
        data=str(table), dev=str(tmp_path / "dev.csv")
    )
    assert "no data set" in message(data="nowhere").lower() or "none of them" in message(data="nowhere")
    assert "finds no GPU" in message(device="cuda") or torch.cuda.is_available()
    assert "device is cpu, cuda or auto" in message(device="tpu9")


def test_confusion_has_a_row_for_each_true_label() -> None:
    config = tiny_config(epochs=1)
    model = train(config, data=tiny(config)).model
    texts, taken = [["good"], ["bad", "film"], ["dull"]], []
    for text in texts:
        taken.append(model.labels.index(str(model.predict([" ".join(text)])[0].label)))
    truth = [1 - taken[0], *taken[1:]]
    counts = [[0, 0], [0, 0]]
    for right, ours in zip(truth, taken, strict=True):
        counts[right][ours] += 1
    found = evaluate(model, texts, truth)
    assert found.confusion == counts
    assert found.accuracy == pytest.approx(200 / 3)


def test_unseen_labels_of_a_file_to_evaluate(tmp_path: Path) -> None:
    config = tiny_config(data=str(write_table(tmp_path / "t.csv")), epochs=1)
    model = train(config).model
    other = tmp_path / "other.csv"
    other.write_text("text,label\ngood,pos\nbad,what\n")
    with pytest.raises(RRNNError, match=r"other\.csv:3: the label 'what' did not occur in training"):
        labelled_texts(model, str(other))
    other.write_text("text,label\ngood,pos\n")
    assert labelled_texts(model, str(other)) == ([["good"]], [1])
    other.write_text('text,label\ngood,pos\n\n"",neg\n')
    assert labelled_texts(model, str(other), skips=(skips := Skips())) == ([["good"]], [1])
    assert skips.counts == {"blank line": 1, "no text": 1}
    with pytest.raises(DataError, match="neither a file nor"):
        labelled_texts(model, "nowhere")
    table = tmp_path / "t.csv"
    table.write_text(table.read_text().replace(",neg", ",bad"))
    with pytest.raises(DataError, match=r"t has changed since .* neg, pos, and now has bad, pos"):
        labelled_texts(model, "test")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 0}, "lr must be"),
        ({"pooling": "sum"}, "one of last, mean, max, attention"),
        ({"batch_size": "64"}, "a whole number"),
        ({"fine_tune": True}, "name a file with vectors"),
        ({"unknown": "own"}, "unknown applies to given word vectors"),
        ({"vector_length": 7.0}, "vector_length applies to given word vectors"),
        ({"hiden_size": 3}, "Did you mean 'hidden_size'"),
        ({"vertical_dropout": 1.0}, "between 0 and 0.95"),
    ],
)
def test_configurations_are_checked(changes: dict[str, object], message: str) -> None:
    with pytest.raises(RunError, match=message):
        ClassifyConfig.from_dict({"task": "classify", **changes})


def test_configurations_round_trip_and_know_their_data() -> None:
    config = ClassifyConfig.for_data("amazon", lr=0.01)
    assert config.batch_size == 16 and ClassifyConfig.for_data("sst").batch_size == 64
    assert ClassifyConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert ClassifyConfig.for_data().layers == 1  # a synthetic task, quickly
