"""Labelled texts: the paper's data sets and users' files, good and bad."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from pathlib import Path

import pytest

from rrnn.errors import DataError, FormatError
from rrnn.tasks.data.labelled import Dataset, Example, load_dataset
from rrnn.tasks.data.text_files import shuffled, split_rows, tokenise

needs_data = pytest.mark.skipif("RRNN_DATA" not in os.environ, reason="needs RRNN_DATA")

ROWS = "text,label\n" + "".join(f'"word{i}, ""quoted""",{("dog", "cat", "eel")[i % 3]}\n' for i in range(60))


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_one_csv_is_split_in_every_class(tmp_path: Path) -> None:
    data = load_dataset(write(tmp_path / "pets.csv", ROWS))
    assert data.name == "pets" and data.labels == ["cat", "dog", "eel"] and data.cleaning == "text"
    for part, size in ((data.train, 16), (data.dev, 2), (data.test, 2)):
        assert Counter(example.label for example in part) == {0: size, 1: size, 2: size}
    example = data.train[0]
    assert example.tokens[1:] == [",", '"', "quoted", '"']
    assert data.labels[example.label] == ("dog", "cat", "eel")[int(example.tokens[0][4:]) % 3]
    words = {example.tokens[0] for part in (data.train, data.dev, data.test) for example in part}
    assert len(words) == 60


def test_splits_depend_on_the_seed_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "pets.csv", ROWS)
    assert load_dataset(path).train == load_dataset(path, split_seed=0).train
    assert load_dataset(path).test != load_dataset(path, split_seed=1).test
    plain = load_dataset(path, stratified=False)
    assert len(plain.train) == 48 and len(plain.dev) == len(plain.test) == 6
    assert shuffled(range(6), 0) == [3, 5, 2, 4, 1, 0]  # pinned: a split must stay what it was


def test_class_sorted_files_are_shuffled() -> None:
    rows = [0] * 50 + [1] * 50
    parts = split_rows(rows, (0.8, 0.1, 0.1), seed=3, stratum=lambda row: row)
    assert [Counter(part) for part in parts] == [Counter({0: 40, 1: 40}), Counter({0: 5, 1: 5}), {0: 5, 1: 5}]
    assert parts[0] != sorted(parts[0])
    assert sum(split_rows(rows, (0.8, 0.1, 0.1), seed=3)[0][:40]) not in (0, 40)


@pytest.mark.parametrize(("text", "label"), [("body", "stars"), (2, 0), ("2", "0")])
def test_columns_by_name_and_by_number(text: str | int, label: str | int, tmp_path: Path) -> None:
    header = "stars\tid\tbody\n" if text == "body" else ""
    content = header + '10\tx\tso "so\n2\ty\tbad\n10\tz\tgood\n'
    files = {"train": write(tmp_path / "a.tsv", content), "dev": tmp_path / "a.tsv"}
    data = load_dataset(files, text_column=text, label_column=label)
    assert data.labels == ["2", "10"]  # numbers in their order
    assert data.train[0] == Example(["so", '"', "so"], 1)  # in TSV a quote is a character
    assert len(data.dev) == 3 and data.test == []


def test_spreadsheets_with_semicolons_and_long_cells(tmp_path: Path) -> None:
    long = "so " * 100_000
    path = write(tmp_path / "a.csv", f'id;"label";text\n1;x;"{long}; yes"\n2;y;no\n')
    data = load_dataset({"train": path, "dev": path})
    assert [len(example.tokens) for example in data.train] == [100_002, 1] and data.labels == ["x", "y"]


def test_unknown_encoding(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no encoding 'latin-0'"):
        load_dataset(write(tmp_path / "a.csv", ROWS), encoding="latin-0")


def test_gzip_encoding_and_a_quoted_line_end(tmp_path: Path) -> None:
    rows = 'text,label\n"caf\xe9\nau lait",a\nb,b\n'
    path = write(tmp_path / "a.csv.gz", gzip.compress(rows.encode("latin-1")))
    data = load_dataset({"train": path, "dev": path}, encoding="latin-1")
    assert data.train[0].tokens == ["café", "au", "lait"]


def test_lines_with_the_label_in_front(tmp_path: Path) -> None:
    write(tmp_path / "train.txt", "0 a b\x85c\r\n1\td  e\n\n 1 f\n0 \n0\n")
    write(tmp_path / "dev.txt", "1 g\n")
    data = load_dataset(tmp_path)
    assert [example.tokens for example in data.train] == [["a", "b", "c"], ["d", "e"], ["f"]]
    assert [example.label for example in data.train] == [0, 1, 1]
    assert data.skipped == {"blank line": 1, "no text": 2}
    assert "3 rows skipped (blank line: 1, no text: 2)" in data.summary()


def test_a_fifth_of_training_is_for_development_where_that_is_missing(tmp_path: Path) -> None:
    train, test = write(tmp_path / "a.csv", ROWS), write(tmp_path / "b.csv", "text,label\nx,eel\n")
    data = load_dataset({"train": train, "test": test})
    assert [len(part) for part in (data.train, data.dev, data.test)] == [48, 12, 1]


BAD_ROWS = {
    "a,b\nc\n": (2, "too few columns, 1 where at least 2"),
    "a,b\nc,\n": (2, "no label"),
    "a,b\n\nc,b\n": (None, "two classes, but all are 'b'"),
    'a,b\nc,d\n"e,d\n': (3, "unclosed quote"),
    "a,b\nc\xff,d\n": (2, "must be utf-8, but byte 0xff"),
    "": (None, "the file is empty"),
    " ,a\n,b\n": (None, "train needs texts, but its 2 rows have none"),
    "a\0,b\n": (1, "NUL"),
}


@pytest.mark.parametrize("content", BAD_ROWS)
def test_bad_tables(content: str, tmp_path: Path) -> None:
    line, message = BAD_ROWS[content]
    path = write(tmp_path / "bad.csv", content.encode("latin-1"))
    files = {"train": path, "dev": path}
    with pytest.raises((DataError, FormatError), match=message) as caught:
        load_dataset(files, text_column=0, label_column=1)
    assert "bad" in str(caught.value)
    assert getattr(caught.value, "line", None) == line


def test_broken_rows_may_be_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "bad.csv", "a,b\nc\nd,\ne,f\n,f\n\n")
    files = {"train": path, "dev": write(tmp_path / "good.csv", "a,b\n")}
    data = load_dataset(files, text_column=0, label_column=1, skip_broken=True)
    assert len(data.train) == 2
    assert data.skipped == {"too few columns": 1, "no label": 1, "blank line": 1, "no text": 1}


def test_a_missing_column_names_those_there(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "review,label\nx,y\n")
    with pytest.raises(FormatError, match=r"no column 'text'; it names review, label.*numbers from 0"):
        load_dataset(path)


def test_too_few_rows_to_split(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="dev needs texts, but it has no rows"):
        load_dataset(write(tmp_path / "a.csv", "text,label\na,b\nc,d\n"))
    files = {"train": tmp_path / "a.csv", "dev": tmp_path / "a.csv"}
    with pytest.raises(DataError, match=r"b\.csv contains no row with a label"):
        load_dataset({**files, "test": write(tmp_path / "b.csv", "text,label\n")})


def test_the_wrong_column_of_labels(tmp_path: Path) -> None:
    rows = "".join(f"x,words {i}\n" for i in range(100))
    path = write(tmp_path / "a.csv", f"text,label\n{rows}")
    with pytest.raises(DataError, match=r"a\.csv: 80 rows have 80 different labels.*label column"):
        load_dataset(path, stratified=False)


def test_a_label_unseen_in_training(tmp_path: Path) -> None:
    train = write(tmp_path / "a.txt", "0 a\n1 b\n")
    dev = write(tmp_path / "b.txt", "0 a\n2 b\n")
    with pytest.raises(
        FormatError, match=r"b\.txt:2: the label '2' does not occur in the training data, which has 0, 1"
    ):
        load_dataset({"train": train, "dev": dev})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nonsense", "there is no .*'nonsense'"),
        ("sst:x", "there is no .*'sst:x'"),
        ("synthetic:x", "there is no synthetic task 'synthetic:x'"),
        ({"dev": "x"}, "train is missing"),
        ({"train": "x", "valid": "y"}, "not valid"),
        ({"train": "no-such-file.csv"}, "no such file"),
    ],
)
def test_wrong_specs(spec: str | dict[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_dataset(spec)


def test_unknown_cleaning(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'soap'"):
        load_dataset(write(tmp_path / "pets.csv", ROWS), cleaning="soap")


@pytest.mark.parametrize(
    ("cleaning", "words"),
    [
        ("none", "It's GOOD-ish, don't (you) think? 3.5% café…"),
        ("lower", "it's good-ish, don't (you) think? 3.5% café…"),
        ("text", "it 's good-ish , do n't ( you ) think ? 3.5 % café …"),
        ("glove", "it 's good ish , do n't ( you ) think ? 3.5 % cafe ..."),
        ("kim", "it 's good ish , do n't ( you ) think ? 3 5 caf"),
        ("kim-sst", "it's good ish, don't (you) think? 3 5 caf"),
    ],
)
def test_cleaning(cleaning: str, words: str) -> None:
    assert tokenise("It's GOOD-ish, don't (you) think? 3.5% café…", cleaning) == words.split()


def test_what_corpora_spell_otherwise_than_glove() -> None:
    spelled = {
        "it does n 't , i don 't and can 't": "it does n't , i do n't and ca n't",
        "sophie in 't veld and van 't hoff isn 't": "sophie in ' t veld and van ' t hoff is n't",
        r"-lrb- sic -rrb- writer\/director": "( sic ) writer / director",
        "s&#227 ; o paulo , black &#38 ; white": "sao paulo , black & white",
        "the lrb-rated &#55555 ;": "the lrb rated \ufffd",
    }
    for text, words in spelled.items():
        assert tokenise(text, "glove") == words.split()


def elec(folder: Path, name: str, size: int, label: str = "12") -> None:
    write(folder / f"elec-{name}.txt.tok", "".join(f"It works {i} .\n" for i in range(size)))
    write(folder / f"elec-{name}.cat", "".join(f"{label[i % len(label)]}\n" for i in range(size)))


def test_the_original_amazon_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RRNN_DATA", str(tmp_path))
    folder = tmp_path / "amazon"
    folder.mkdir()
    for name, size in (("25k-train", 50), ("50k-train", 100), ("test", 30)):
        elec(folder, name, size)
    data = load_dataset("amazon")
    assert [len(part) for part in (data.train, data.dev, data.test)] == [40, 10, 30]
    assert data.labels == ["1", "2"]  # not negative and positive: the files do not say
    assert data.test[1] == Example(["it", "works", "1"], 1)
    with pytest.raises(DataError, match="only reviews of electronics"):
        load_dataset("amazon:books")
    write(folder / "elec-test.cat", "1\n")
    with pytest.raises(DataError, match=r"30 texts, but .* has 1 labels"):
        load_dataset("amazon")


def sizes(data: Dataset) -> list[int]:
    return [len(data.train), len(data.dev), len(data.test)]


@needs_data
def test_the_papers_data_sets() -> None:
    sst = load_dataset("sst")
    assert sizes(sst) == [6920, 872, 1821] and sst.labels == ["negative", "positive"]
    assert sum(len(example.tokens) for example in sst.train) == 133555
    assert sizes(load_dataset("sst-fine")) == [8544, 1101, 2210]
    subj = load_dataset("subj")
    assert sizes(subj) == [8000, 1000, 1000] and subj.skipped == {}
    assert load_dataset("subj", split_seed=1).dev != subj.dev
    cr = load_dataset("cr")
    assert sum(sizes(cr)) == 3770 and cr.skipped == {"no text": 5}  # four rows are empty, one is an asterisk
    assert load_dataset("cr", cleaning="text").skipped == {"no text": 4}


@needs_data
def test_the_amazon_substitute() -> None:
    data = load_dataset("amazon:electronics")
    assert sizes(data) == [2283, 571, 2854]
    with pytest.raises(DataError, match="books, dvd, electronics, kitchen, video, not of 'cars'"):
        load_dataset("amazon:cars")
