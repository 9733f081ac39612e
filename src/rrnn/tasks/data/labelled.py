"""Labelled texts for classifiers: the paper's data sets, synthetic tasks, and users' files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import unescape
from pathlib import Path

from rrnn.errors import DataError, FormatError
from rrnn.tasks.data import download, synthetic
from rrnn.tasks.data.labelled_files import (
    Row,
    Skips,
    check_no_columns,
    read_labelled_lines,
    read_pair,
    read_rows,
    skipped,
)
from rrnn.tasks.data.text_files import Splitter, read_lines, split_files, split_rows, tokenise

PUBLISHED = ("sst", "sst-fine", "subj", "cr", "amazon")

_POLARITY = {"0": "negative", "1": "positive"}
_DEGREES = ("very negative", "negative", "neutral", "positive", "very positive")

Splits = dict[str, list[Row]]


@dataclass(frozen=True)
class Published:
    """A published data set. `read` returns train, dev and test, or train and test, or `all` if there is no official
    split.

    `label_names` apply to files with exactly these labels; elec-*.cat has labels 1 and 2 with another meaning.
    """

    read: Callable[[Skips], Splits]
    cleaning: str
    label_names: Mapping[str, str]


def published_set(spec: str) -> Published | None:
    """Return the published data set of this name, or None. `amazon:DOMAIN` is the part of amazon about one domain."""
    name, _, domain = spec.partition(":")
    if domain and name != "amazon":
        return None
    if name in ("sst", "sst-fine"):
        kind = "binary" if name == "sst" else "fine"
        degrees = _POLARITY if name == "sst" else {str(i): degree for i, degree in enumerate(_DEGREES)}
        # It is tokenised and in lower case; Kim's rules would drop its punctuation, for which GloVe has vectors.
        return Published(partial(_stanford, kind), "lower", degrees)
    if name == "subj":
        names = {"0": "subjective", "1": "objective"}
        return Published(partial(_whole, "subj", "subj.all", "latin-1"), "kim", names)
    if name == "cr":
        return Published(partial(_whole, "cr", "custrev.all", "utf-8"), "kim", _POLARITY)
    if name == "amazon":
        return Published(partial(_amazon, domain), "kim", _POLARITY)
    return None


def _stanford(kind: str, skips: Skips) -> Splits:
    folder = download.find("sst")
    return {
        split: list(read_labelled_lines(folder / f"stsa.{kind}.{split}", skips))
        for split in ("train", "dev", "test")
    }


def _whole(name: str, file: str, encoding: str, skips: Skips) -> Splits:
    return {"all": list(read_labelled_lines(download.find(name) / file, skips, encoding))}


def _amazon(domain: str, skips: Skips) -> Splits:
    """Read Johnson and Zhang's electronics reviews (elec-*) if they exist, else our reviews of five products."""
    folder = download.find("amazon")
    if list(folder.glob("elec-*.txt.tok")):
        if domain not in ("", "electronics"):
            raise DataError(f"{folder} contains only reviews of electronics, none of {domain}")
        return _elec(folder)
    return {split: _reviews(path, domain, skips) for split, path in split_files(folder).items()}


def _reviews(path: Path, domain: str, skips: Skips) -> list[Row]:
    """Read lines of the form `<label> TAB <domain> TAB <text>`; the texts contain HTML entities, such as `&quot;`."""
    rows, known = [], set()
    for line, content in enumerate(read_lines(path), start=1):
        label, about, text = [*content.split("\t", 2), "", ""][:3]
        if not text:
            skips.broken("too few columns", "a line needs a label, a domain and a text", str(path), line)
            continue
        known.add(about)
        if domain in ("", about):
            rows.append(Row(unescape(text), label, str(path), line))
    if not rows:
        raise DataError(f"{path} has reviews of {', '.join(sorted(known))}, not of {domain!r}")
    return rows


def _elec(folder: Path) -> Splits:
    """Read elec files. They come in several sizes, of which the paper uses elec-25k-train; there is no dev file."""
    texts = sorted(folder.glob("elec-*train.txt.tok"))
    train = next((path for path in texts if "25k" in path.name), texts[0] if len(texts) == 1 else None)
    if train is None:
        raise DataError(
            f"{folder} must contain elec-25k-train.txt.tok, or exactly one file elec-*train.txt.tok"
        )
    test = folder / "elec-test.txt.tok"
    return {
        split: list(read_pair(path, path.with_name(path.name.removesuffix(".txt.tok") + ".cat")))
        for split, path in (("train", train), ("test", test))
    }


# ---- data sets -------------------------------------------------------------------------------------------------------


SPLITS = ("train", "dev", "test")
SHARES = (0.8, 0.1, 0.1)
_FEW = 50  # more classes than this, with hardly a text each, are a mistake

Spec = str | Path | Mapping[str, str | Path]
Reader = Callable[[str | Path], list[Row]]


@dataclass(frozen=True, slots=True)
class Example:
    """The words of a text, at least one, and the index of its label."""

    tokens: list[str]
    label: int


@dataclass(frozen=True)
class Dataset:
    """Three splits of labelled texts; `test` may be empty. The index of a label is its position in `labels`."""

    name: str
    train: list[Example]
    dev: list[Example]
    test: list[Example]
    labels: list[str]
    cleaning: str | None = "none"
    """How the texts were split into words; a new text must be split in the same way. None: by the caller's function."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Skipped rows: reason → count."""

    def summary(self) -> str:
        """Return one line about sizes, classes with their counts in training, and skipped rows."""
        counts = [
            sum(example.label == number for example in self.train) for number in range(len(self.labels))
        ]
        classes = ", ".join(f"{name} {count}" for name, count in zip(self.labels, counts, strict=True))
        sizes = " / ".join(str(len(part)) for part in (self.train, self.dev, self.test))
        line = f"{self.name}: {sizes} texts in train / dev / test; {len(self.labels)} classes ({classes} in train)"
        if self.skipped:
            line += f"; {skipped(self.skipped)}"
        return line


def load_dataset(
    spec: Spec,
    *,
    split_seed: int = 0,
    stratified: bool = True,
    cleaning: str | None = None,
    text_column: str | int = "text",
    label_column: str | int = "label",
    encoding: str = "utf-8",
    skip_broken: bool = False,
    folds: int | None = None,
    fold: int = 1,
    split: Splitter | None = None,
) -> Dataset:
    """Read a data set.

    `spec` is a name (sst, sst-fine, subj, cr, amazon, amazon:electronics, synthetic:…), one file, which is split
    80/10/10 at random with `split_seed`, a folder with files for train, dev and perhaps test, or a mapping from splits
    to files. Files ending in .csv or .tsv (or in .csv.gz or .tsv.gz) are tables; in other files each line is a label, a
    blank and a text. `cleaning` is a way of `tokenise`; the default is the data set's own, and `text` for users' files.

    With `folds`, data without splits of its own is split into this many folds: number `fold` (from 1) is the test
    set, and a tenth of the others is dev. `split` is a function that splits a text into tokens, in place of a cleaning.

    A row without text is skipped and counted. A broken row (no label, too few columns) raises an error that names its
    line, or, with `skip_broken`, is skipped and counted, too.
    """
    if isinstance(spec, str) and (spec.startswith(synthetic.PREFIX) or published_set(spec) is not None):
        check_no_columns(text_column, label_column, spec)
    if isinstance(spec, str) and spec.startswith(synthetic.PREFIX):
        if folds is not None:
            raise _own_test_set(spec)
        return _dataset(spec, synthetic.generate(spec, split_seed), split or cleaning or "none", {}, Skips())
    skips = Skips(lenient=skip_broken)
    if isinstance(spec, str) and (known := published_set(spec)) is not None:
        splits = known.read(skips)
        splits = _complete(spec, splits, split_seed, stratified, folds, fold)
        return _dataset(spec, splits, split or cleaning or known.cleaning, known.label_names, skips)

    def read(path: str | Path) -> list[Row]:
        path = Path(path).expanduser()
        rows = list(read_rows(path, text_column, label_column, skips, encoding))
        if not rows:
            raise DataError(f"{path} contains no row with a label and a text")
        return rows

    name, splits = _read_files(spec, read)
    splits = _complete(name, splits, split_seed, stratified, folds, fold)
    return _dataset(name, splits, split or cleaning or "text", {}, skips)


def _read_files(spec: Spec, read: Reader) -> tuple[str, dict[str, list[Row]]]:
    if isinstance(spec, Mapping):
        if unknown := set(spec) - set(SPLITS):
            raise DataError(f"splits are {', '.join(SPLITS)}, not {', '.join(sorted(unknown))}")
        if "train" not in spec:
            raise DataError("a training file is needed: train is missing")
        return Path(spec["train"]).stem, {split: read(path) for split, path in spec.items()}
    path = Path(spec).expanduser()
    if path.is_dir():
        return path.name, {split: read(file) for split, file in split_files(path).items()}
    if not path.exists():
        names = [*PUBLISHED, *synthetic.NAMES]
        raise DataError(
            f"there is no data set, file or folder {str(spec)!r}; the data sets are {', '.join(names)}"
        )
    return path.stem, {"all": read(path)}


def _complete(
    name: str,
    splits: Mapping[str, list[Row]],
    seed: int,
    stratified: bool,
    folds: int | None = None,
    fold: int = 1,
) -> dict[str, list[Row]]:
    """Make missing splits: all three from `all`, or dev from train (a fifth, as for the paper's Amazon set)."""
    by_label = (lambda row: row.label) if stratified else None
    if folds is not None:
        if "all" not in splits:
            raise _own_test_set(name)
        parts = split_rows(splits["all"], [1 / folds] * folds, seed, by_label)
        test = parts.pop(fold - 1)
        train, dev = split_rows([row for part in parts for row in part], (0.9, 0.1), seed, by_label)
        return {"train": train, "dev": dev, "test": test}
    if "all" in splits:
        train, dev, test = split_rows(splits["all"], SHARES, seed, by_label)
        return {"train": train, "dev": dev, "test": test}
    if "dev" not in splits:
        train, dev = split_rows(splits["train"], (0.8, 0.2), seed, by_label)
        return {**splits, "train": train, "dev": dev}
    return dict(splits)


def _own_test_set(name: str) -> DataError:
    return DataError(
        f"{name} has splits of its own, and cross-validation is for data without: leave out folds, or give one file of "
        "labelled texts"
    )


def _dataset(
    name: str,
    splits: Mapping[str, Sequence[Row]],
    way: str | Splitter,
    label_names: Mapping[str, str],
    skips: Skips,
) -> Dataset:
    labels = _labels(name, splits["train"])
    numbers = {label: number for number, label in enumerate(labels)}
    examples = {split: _examples(splits.get(split, ()), numbers, way, skips) for split in SPLITS}
    for split in splits:
        if not examples[split]:
            given = f"its {len(splits[split])} rows have none" if splits[split] else "it has no rows"
            raise DataError(
                f"{name}: {split} needs texts, but {given}. A file that is split 80/10/10 needs several rows of each "
                "class; or give files for train, dev and test"
            )
    return Dataset(
        name,
        **examples,
        labels=[label_names[label] for label in labels] if set(labels) == set(label_names) else labels,
        cleaning=way if isinstance(way, str) else None,
        skipped=dict(skips.counts),
    )


def _labels(name: str, rows: Sequence[Row]) -> list[str]:
    """Return the sorted labels of the training rows: by value if all are numbers, else alphabetically."""
    labels = {row.label for row in rows}
    where = rows[0].source if rows else name
    if len(labels) < 2:
        seen = f"all are {rows[0].label!r}" if rows else "there are no rows"
        raise DataError(f"{where}: training needs at least two classes, but {seen}")
    if len(labels) > max(_FEW, len(rows) // 2):
        raise DataError(
            f"{where}: {len(rows)} rows have {len(labels)} different labels, such as {_short(rows[0].label)!r}: "
            "is this the label column?"
        )
    if all(label.isdecimal() and len(label) < 19 for label in labels):
        return sorted(labels, key=lambda label: (int(label), label))
    return sorted(labels)


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"


def _examples(
    rows: Iterable[Row], numbers: Mapping[str, int], way: str | Splitter, skips: Skips
) -> list[Example]:
    split = partial(tokenise, cleaning=way) if isinstance(way, str) else way
    shared: dict[
        str, str
    ] = {}  # one object per word: large data sets contain millions of tokens, but few words
    examples = []
    for row in rows:
        if row.label not in numbers:
            raise FormatError(
                f"the label {row.label!r} does not occur in the training data, which has {', '.join(numbers)}",
                source=row.source,
                line=row.line,
            )
        tokens = [shared.setdefault(token, token) for token in split(row.text)]
        if tokens:
            examples.append(Example(tokens, numbers[row.label]))
        else:
            skips.counts["no text"] += 1
    return examples
