from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_classifier import tiny, tiny_config, tiny_dataset

import rrnn
from rrnn.errors import DataError, FormatError, RRNNError, RunError
from rrnn.tasks.classify.experiment import train
from rrnn.tasks.classify.predict import _decoded, _lines, predict_file
from rrnn.tasks.classify.trained import TrainedClassifier
from rrnn.tasks.runs import Run

TEXTS = [
    "good film",
    "the plot the plot the plot bad",
    "",
    "dull",
    "a good good bad film the a fine plot",
    "zzz",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = tiny_config(epochs=8)
    train(config, path := tmp_path_factory.mktemp("runs") / "run", data=tiny(config, vectors=True))
    return path


@pytest.fixture(scope="module")
def model(folder: Path) -> TrainedClassifier:
    return rrnn.load(folder)


def one_by_one(model: TrainedClassifier, text: str) -> list[float]:
    ids = torch.from_numpy(model.vocabulary.encode(text.split())).unsqueeze(1)
    with torch.no_grad():
        return model.module(ids, torch.tensor([len(ids)]))[0].softmax(-1).tolist()


def test_unknown_words_are_taken_apart(model: TrainedClassifier) -> None:
    plain = TrainedClassifier(
        model.module, model.vocabulary, model.labels, model.config.replace(cleaning="lower")
    )
    assert "good" in model.vocabulary and "zz-top" not in model.vocabulary
    assert plain.tokenise("A Good, (bad) film zz-top") == [
        "a",
        "good",
        ",",
        "(",
        "bad",
        ")",
        "film",
        "zz-top",
    ]


@pytest.mark.parametrize("window", [1, 2, 1000])
def test_predictions_are_in_order_and_equal_each_text_alone(model: TrainedClassifier, window: int) -> None:
    found = list(model.stream(TEXTS, window))
    for text, (label, probabilities) in zip(TEXTS, found, strict=True):
        if not text:
            assert label is None and probabilities == {}
            continue
        expected = one_by_one(model, text)
        assert list(probabilities.values()) == pytest.approx(expected, abs=1e-5)
        assert label == model.labels[int(np.argmax(expected))]


def test_a_stream_reads_no_further_than_its_window(model: TrainedClassifier) -> None:
    read = 0

    def texts():
        nonlocal read
        for _ in range(10**9):
            read += 1
            yield "good film"

    stream = model.stream(texts(), window=16)
    for _ in range(40):
        next(stream)
    assert read == 48


def test_a_loaded_model_is_the_trained_one(folder: Path, model: TrainedClassifier) -> None:
    dataset = tiny_dataset()
    texts = [" ".join(example.tokens) for example in dataset.test]
    right = sum(
        p.label == dataset.labels[e.label] for p, e in zip(model.predict(texts), dataset.test, strict=True)
    )
    result = json.loads((folder / "result.json").read_text())
    assert 100 * right / len(texts) == pytest.approx(result["test"])
    assert "F, 2 × 8 units" in repr(model)


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_files(model: TrainedClassifier, tmp_path: Path, format: str) -> None:
    path = tmp_path / "texts.txt"
    path.write_bytes("\n".join(TEXTS).encode() + b"\n")
    counts = predict_file(model, path, out := io.StringIO(), format=format)  # pyright: ignore[reportArgumentType]
    assert counts.total() == len(TEXTS) and counts[""] == 1
    expected = [one_by_one(model, text) if text else None for text in TEXTS]
    if format == "csv":
        header, *rows = list(csv.reader(io.StringIO(out.getvalue())))
        assert header == ["row", "label", "p(no)", "p(yes)"]
        found = [[float(p) for p in row[2:]] if row[1] else None for row in rows]
        assert [row[0] for row in rows] == [str(n) for n in range(1, 7)] and rows[2] == ["3", "", "", ""]
    else:
        lines = [json.loads(line) for line in out.getvalue().splitlines()]
        found = [line["probabilities"] and list(line["probabilities"].values()) for line in lines]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == (theirs and pytest.approx(theirs, abs=1e-5))


def test_tables_gzip_and_odd_line_ends(model: TrainedClassifier, tmp_path: Path) -> None:
    table = tmp_path / "texts.csv"
    table.write_text('id,text\n1,"good, film"\n2,"two\nlines"\n', encoding="utf-8-sig")
    packed = tmp_path / "texts.txt.gz"
    packed.write_bytes(gzip.compress("good\x85film\r\nbad".encode("latin-1")))
    assert predict_file(model, table, io.StringIO()).total() == 2
    assert predict_file(model, packed, io.StringIO(), encoding="latin-1").total() == 2


def test_mistakes_are_named(model: TrainedClassifier, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"good\nfilm \xff\n")
    with pytest.raises(FormatError, match=r"bad\.txt:2: .*0xff"):
        predict_file(model, tmp_path / "bad.txt", io.StringIO())
    (tmp_path / "t.csv").write_text("id,body\n1,good\n")
    with pytest.raises(FormatError, match="names no column 'text'; it names id, body"):
        predict_file(model, tmp_path / "t.csv", io.StringIO())
    (tmp_path / "short.tsv").write_text("id\ttext\n1\n")
    with pytest.raises(FormatError, match=r"short\.tsv:2: too few columns"):
        predict_file(model, tmp_path / "short.tsv", io.StringIO())
    with pytest.raises(DataError, match="no such file"):
        predict_file(model, tmp_path / "none.txt", io.StringIO())
    with pytest.raises(DataError, match=r"predict\(\[text\]\)"):
        model.predict("good film")
    with pytest.raises(DataError, match="got int"):
        model.predict([3])  # pyright: ignore[reportArgumentType]


def test_no_more_words_are_read_than_in_training() -> None:
    config = tiny_config(epochs=1, max_tokens=2)
    model = train(config, data=tiny(config)).model
    assert model.tokenise("good film, bad") == ["good", "film"]
    assert (
        len({model.predict([text])[0].probabilities["yes"] for text in ("good film", "good film bad bad")})
        == 1
    )


TABLE = 'id;text\n1;"good ; film"\n2;"two\nlines"\n'


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-8-sig"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_tables_are_read_as_in_training(
    model: TrainedClassifier, tmp_path: Path, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    """Semicolons, byte-order marks, gzip by its first bytes, cells longer than Python's own limit."""
    long = "good " * 30_000
    path = tmp_path / "texts.csv"
    path.write_bytes(pack(f"{TABLE}3;{long}\n".encode(encoding)))
    predict_file(model, path, out := io.StringIO())
    found = [float(row[2]) for row in list(csv.reader(io.StringIO(out.getvalue())))[1:]]
    wanted = [one_by_one(model, text)[0] for text in ("good ; film", "two\nlines", long)]
    assert found == pytest.approx(wanted, abs=1e-5)


def test_bytes_come_apart_anywhere(model: TrainedClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    """Characters and lines of any length, cut at any byte."""
    monkeypatch.setattr("rrnn.tasks.classify.predict._CHUNK", 3)
    for encoding in ("utf-8", "utf-16"):
        stream = io.BytesIO("gööd 🎬\r\n\n\x85 €\nend".encode(encoding))
        assert list(_lines(_decoded(stream, "x", encoding), "x")) == ["gööd 🎬", "", "\x85 €", "end"]


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that cannot be read")
def test_a_file_that_cannot_be_read(model: TrainedClassifier) -> None:
    with pytest.raises(OSError) as caught:
        predict_file(model, Path("/proc/self/mem"), io.StringIO())
    assert caught.value.filename == "/proc/self/mem"


def test_a_line_without_an_end(model: TrainedClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rrnn.tasks.classify.predict.MAX_LINE", 2**21)
    with pytest.raises(FormatError, match=r"/dev/zero:1: a text has at most 2,097,152 characters"):
        predict_file(model, Path("/dev/zero"), io.StringIO())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("cut.txt", gzip.compress(b"good film\n" * 99, mtime=0)[:-9], "cut.txt: the gzip file is truncated"),
        ("open.csv", b'text\ngood\n"bad\nfilm\n', "open.csv:3: the row that starts here is not valid CSV"),
        ("half.txt", b"good\nfilm \xc3", "half.txt:2: the text must be utf-8, but byte 0xc3"),
        ("wide.txt", "good\n".encode("utf-16") + b"x", "wide.txt:2: the text must be utf-16"),
    ],
    ids=["cut", "open", "half", "wide"],
)
def test_damaged_files(
    model: TrainedClassifier, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RRNNError) as caught:
        predict_file(model, tmp_path / name, io.StringIO())
    assert message in str(caught.value)


def test_a_closed_standard_input(model: TrainedClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(DataError, match="standard input is closed"):
        predict_file(model, Path("-"), io.StringIO())
    with pytest.raises(DataError, match="no encoding 'hex'"):
        list(_decoded(io.BytesIO(b"00"), "x", "hex"))


def test_a_run_without_checkpoint(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", tiny_config().to_dict()):
        pass
    with pytest.raises(RunError, match="no checkpoint yet"):
        rrnn.load(tmp_path / "run")


def test_batches_in_threads_equal_one_after_another(
    model: TrainedClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rrnn.tasks.classify.trained._BATCH_TOKENS", 16)
    texts = [" ".join(["good", "bad", "film"][i % 3 :] * (1 + i % 5)) for i in range(60)]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = model.predict(texts)
        torch.set_num_threads(3)
        assert model.predict(texts) == alone
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
