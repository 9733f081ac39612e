"""What `tests/fuzz.py` calls: good files, ways to mangle them, every command with its flags, and every reader."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import shutil
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NUMBERS = [
    "0",
    "-1",
    "1",
    "3",
    "1e21",
    "9" * 30,
    "-9" * 12,
    "nan",
    "inf",
    "-inf",
    "1e-400",
    "0.5",
    "2147483648",
    "x",
    "",
]
NUMBERS += ["9223372036854775808", "1" * 5000, "0x10", "1_0", "½", "٣"]
WORDS = [
    "",
    " ",
    "-",
    "--",
    "a",
    "é" * 300,
    "\udcff",
    "\n",
    "../..",
    "/",
    "/dev/null",
    "/dev/zero",
    "none",
    "a\tb",
    "'\"`$(x)",
]
WORDS += ["\0", "x" * 5000, "=", "[bold]", "{}", "%s", "~", "*"]
TOKENS = [
    *NUMBERS,
    "NaN",
    "-Infinity",
    "null",
    "true",
    "[",
    "]",
    "{",
    "}",
    '"',
    "\\",
    ",",
    ":",
    "\t",
    "\r\n",
    "\n",
    " ",
    "#",
    "->",
]
TOKENS += [
    "\x00",
    "\ufeff",
    "(" * 2000,
    "[" * 3000,
    '{"a":' * 3000,
    "ε",
    "\u2028",
    "\x85",
    "x" * 20_000,
    "-" * 200,
    "1e308 " * 9,
]
JSON_VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    3,
    1.5,
    10**25,
    1e308,
    float("nan"),
    "",
    "x",
    "é",
    [],
    {},
    [[]],
    [None],
    {"a": 1},
]


def mangled(rng: random.Random, data: bytes) -> bytes:
    """Return a broken copy of a file: cut, doubled, flipped, with other numbers, tokens or JSON values in it."""
    if rng.random() < 0.25:
        try:
            return json.dumps(mangled_json(rng, json.loads(data))).encode()
        except (ValueError, RecursionError):
            pass
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        b = min(b, a + rng.choice((1, 8, 64, 10_000)))
        token = rng.choice(TOKENS).encode("utf-8", "surrogateescape")
        match rng.randrange(9):
            case 0:
                data = data[:a]
            case 1:
                data = data[:a] + data[b:]
            case 2:
                data = data[:b] + data[a:b] * rng.choice((1, 3, 50)) + data[b:]
            case 3:
                data = data[:a] + rng.randbytes(min(b - a, 40)) + data[b:]
            case 4 | 5:
                data = data[:a] + token + data[a:]
            case 6:
                data = _other_number(rng, data)
            case 7:
                lines = data.split(b"\n")
                rng.shuffle(lines)
                data = b"\n".join(lines)
            case _:
                data = rng.choice(
                    (gzip.compress(data, mtime=0), data.decode("latin-1").encode("utf-16"), b"")
                )
    return data


def _other_number(rng: random.Random, data: bytes) -> bytes:
    places = [i for i, c in enumerate(data) if c in b"0123456789"]
    if not places:
        return data
    at = rng.choice(places)
    return data[:at] + rng.choice(NUMBERS).encode() + data[at + 1 :]


def mangled_json(rng: random.Random, value: Any) -> Any:
    """Return a JSON value with one node replaced, removed, doubled or renamed."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        match rng.randrange(6):
            case 0:
                return {k: v for k, v in value.items() if k != key}
            case 1:
                return {rng.choice(WORDS) if k == key else k: v for k, v in value.items()}
            case _:
                return {**value, key: mangled_json(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.85:
        at = rng.randrange(len(value))
        new = [[], [value[at]] * 2, [mangled_json(rng, value[at])]][rng.randrange(3)]
        return [*value[:at], *new, *value[at + 1 :]]
    return rng.choice(JSON_VALUES)


# ---- the world of a call: good files, some of them mangled -----------------------------------------------------------


@dataclass
class World:
    """The folder of one call."""

    rng: random.Random
    good: Path
    here: Path
    outputs: set[str] = field(default_factory=set)
    """The names that the call may create."""

    def given(self, *names: str) -> str:
        """Return the path of one of these good files in this folder: mangled, or as it is, or of something else."""
        rng, name = self.rng, self.rng.choice(names)
        source, target = self.good / name, self.here / name
        if rng.random() < 0.06:
            others = ["missing", ".", "/dev/null", "/dev/zero", "", "/proc/self/mem", *WORDS]
            # a search for runs below the root of the disk takes long, as it should
            return rng.choice([word for word in others if word not in ("/", "../..")])
        if os.path.lexists(target):  # given before, for another argument
            return name
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
            victim = rng.choice(sorted(p for p in target.rglob("*") if p.is_file()))
        else:
            shutil.copyfile(source, target)
            victim = target
        if rng.random() < 0.8:
            victim.write_bytes(mangled(rng, victim.read_bytes()))
        elif rng.random() < 0.1:
            victim.unlink()
            rng.choice(
                [victim.mkdir, lambda: victim.symlink_to(victim), lambda: victim.symlink_to("/dev/zero")]
            )()
        return name

    def out(self, *names: str) -> str:
        """Return a name that the call may create, or one that nobody can."""
        name = self.rng.choice(names)
        if self.rng.random() < 0.1:
            self.outputs.add("missing")  # a training makes the folders above its run
            return self.rng.choice(["/dev/null/x", "missing/" + name, "/proc/x", "\0"])
        self.outputs |= {name, str(Path(name).with_suffix(".dot"))}
        return name

    def number(self, *usual: object) -> str:
        return str(self.rng.choice(usual)) if self.rng.random() < 0.6 else self.rng.choice(NUMBERS)

    def word(self, *usual: str) -> str:
        return self.rng.choice(usual) if self.rng.random() < 0.7 else self.rng.choice(WORDS)


def make_good_files(folder: Path) -> None:
    """Write the good files, and train the two runs; all of it in a few seconds."""
    from tiny_lm import write_corpus
    from tiny_tokenizers import write_tokenizer

    from rrnn import zoo
    from rrnn.cli import main
    from rrnn.wfsa import EPSILON, WFSA
    from rrnn.wfsa.io import save

    for name in ("B", "F", "B-max-plus", "QRNN2"):
        (folder / f"{name}.cell").write_text(zoo.get_cell(name).to_text(), encoding="utf-8")
    (folder / "cycle.cell").write_text(
        "rrnn-cell 1\ncell Cycle\nsemiring log\nstates a b c\ninitial a\nloop a : one\narc a -> b : linear(\"u\")\n"
        "epsilon b -> c : log_sigmoid(parameter(\"p\"))\nepsilon c -> b : -0.5\nfinal c\noutput tanh(score)\n"
    )  # fmt: skip
    arcs = [(0, 1, 1, 0.5), (1, 2, 0, 0.25), (1, EPSILON, 0, 0.125), (0, 2, 0, 0.5)]
    machine = WFSA("real", alphabet=[1, 2], arcs=arcs, initial={0: 1.0}, final={1: 0.5})
    save(machine, folder / "m.json")
    save(machine, folder / "m.fst")
    (folder / "m.pautomac").write_text(
        "I: (state)\n\t(0) 1.0\nF: (state)\n\t(1) 0.5\nS: (state,symbol)\n\t(0,0) 0.5\n\t(0,1) 0.5\n\t(1,1) 1.0\n"
        "T: (state,symbol,state)\n\t(0,0,1) 1.0\n\t(0,1,0) 1.0\n\t(1,1,0) 1.0\n"
    )
    (folder / "symbols.txt").write_text("<eps> 0\na 1\nb 2\n")
    (folder / "strings.txt").write_text("4 2\n2 1 1\n0\n3 1 1 1\n1 1\n")
    rows = [(i % 2, f"{'good fine' if i % 2 else 'bad dull'} film {i % 5}") for i in range(60)]
    (folder / "texts.txt").write_text("".join(f"{label} {text}\n" for label, text in rows))
    (folder / "texts.csv").write_text("text,label\n" + "".join(f'"{text}",{label}\n' for label, text in rows))
    (folder / "texts.tsv").write_text("label\ttext\n" + "".join(f"{label}\t{text}\n" for label, text in rows))
    write_corpus(folder / "corpus.txt")
    words = ["good", "fine", "bad", "dull", "film"]
    (folder / "vectors.txt").write_text("".join(f"{w} 0.1 {i}.5 -0.25\n" for i, w in enumerate(words)))
    binary = b"".join(w.encode() + b" " + bytes(12) + b"\n" for w in words)
    (folder / "vectors.bin").write_bytes(b"5 3\n" + binary)
    write_tokenizer(folder / "tokenizer.json", "word-piece")
    small = ["--device", "cpu", "--epochs", "1", "--layers", "1", "--hidden-size", "3"]
    texts, corpus = str(folder / "texts.txt"), str(folder / "corpus.txt")
    assert (
        main(
            [
                "classify",
                "train",
                "--data",
                texts,
                "--out",
                str(folder / "classifier"),
                "--embedding-size",
                "3",
                *small,
            ]
        )
        == 0
    )
    assert (
        main(
            ["lm", "train", "--data", corpus, "--out", str(folder / "language"), "--batch-size", "4", *small]
        )
        == 0
    )
    pieces = ["--tokenizer", str(folder / "tokenizer.json"), *small]
    train = ["classify", "train", "--data", texts, "--out", str(folder / "pieces-classifier")]
    assert main([*train, "--embedding-size", "3", *pieces]) == 0
    train = ["lm", "train", "--data", corpus, "--out", str(folder / "pieces"), "--batch-size", "4"]
    assert main([*train, *pieces]) == 0
    for task in ("classifier", "language"):
        shutil.copyfile(folder / task / "config.json", folder / f"{task}.json")
        shutil.copyfile(folder / task / "best.safetensors", folder / f"{task}.safetensors")
    shutil.copyfile(folder / "language" / "vocabulary.json", folder / "vocabulary.json")


# ---- commands --------------------------------------------------------------------------------------------------------

Arguments = Callable[[World], list[str]]
CELLS = ("B.cell", "F.cell", "B-max-plus.cell", "QRNN2.cell", "cycle.cell")
NAMES = ("B", "F+o", "LSTM", "SRU", "ngram4", "ngram999", "b", "B+o+o", "CNN3", "ISAN", "zzz")
MACHINES = ("m.json", "m.fst", "m.pautomac")
TEXTS = ("texts.txt", "texts.csv", "texts.tsv")
CLASSIFIERS, LANGUAGE_MODELS = ("classifier", "pieces-classifier"), ("language", "pieces")
RUNS = (*CLASSIFIERS, *LANGUAGE_MODELS)


def _flags(w: World, most: int, **choices: Callable[[], str]) -> list[str]:
    """Return some of these flags with values, and now and then one that does not exist, or lacks its value."""
    names = w.rng.sample(list(choices), w.rng.randrange(min(most, len(choices)) + 1))
    found = [part for name in names for part in (f"--{name.replace('_', '-')}", choices[name]())]
    if w.rng.random() < 0.08:
        found.insert(
            w.rng.randrange(len(found) + 1), w.rng.choice(["--nonsense", "-x", "--seed", "--", "-", "\udcff"])
        )
    return found


def _cell(w: World) -> str:
    return w.given(*CELLS) if w.rng.random() < 0.7 else w.word(*NAMES)


def _derive(w: World) -> list[str]:
    return [
        "derive",
        _cell(w),
        *w.rng.sample(["--latex", "--ir", "--scan", "--c", "--triton"], w.rng.randrange(3)),
    ]


def _draw(w: World) -> list[str]:
    what = w.given(*MACHINES, *CELLS) if w.rng.random() < 0.8 else w.word(*NAMES)
    flags = _flags(
        w, 2, format=lambda: w.word("json", "openfst", "pautomac"), isymbols=lambda: w.given("symbols.txt")
    )
    return [
        "draw",
        what,
        "-o",
        w.out("p.svg", "p.dot", "p.png", "p"),
        *flags,
        *w.rng.sample(["--paper", "--no-legend"], 1),
    ]


def _score(w: World) -> list[str]:
    flags = _flags(
        w, 3, format=lambda: w.word("json", "openfst", "pautomac"), header=lambda: w.word("auto", "yes", "no"),
        semiring=lambda: w.word("real", "log", "max-plus", "signed-log", "boolean", "counting", "complex"),
        isymbols=lambda: w.given("symbols.txt"), costs=lambda: w.word("neglog", "plain"),
        acceptor=lambda: w.word("auto", "yes", "no"),
    )  # fmt: skip
    return ["score", w.given(*MACHINES), "--strings", w.given("strings.txt"), *flags]


def _verify(w: World) -> list[str]:
    flags = _flags(
        w, 3, seed=lambda: w.number(0, 5), tolerance=lambda: w.number(1e-10, 1),
        backend=lambda: w.word("auto", "reference", "native"),
    )  # fmt: skip
    return ["verify", _cell(w), *flags, *w.rng.sample(["--json"], w.rng.randrange(2))]


def _predict(w: World) -> list[str]:
    flags = _flags(
        w, 3, format=lambda: w.word("csv", "jsonl"), text_column=lambda: w.word("text", "0", "1", "5"),
        encoding=lambda: w.word("utf-8", "latin-1", "utf-16", "rot13", "base64"), window=lambda: w.number(1, 100),
    )  # fmt: skip
    return ["classify", "predict", w.given(*CLASSIFIERS), w.rng.choice([w.given(*TEXTS), "-"]), *flags]


def _classify_eval(w: World) -> list[str]:
    flags = _flags(
        w, 3, split=lambda: w.rng.choice([w.word("dev", "test", "train"), w.given(*TEXTS)]),
        text_column=lambda: w.word("text", "0", "5"), label_column=lambda: w.word("label", "1"),
        encoding=lambda: w.word("utf-8", "latin-1", "hex"),
    )  # fmt: skip
    return ["classify", "eval", w.given(*CLASSIFIERS), *flags]


def _explain(w: World) -> list[str]:
    flags = _flags(
        w, 3, label=lambda: w.word("0", "1", "2"), units=lambda: w.number(1, 3), paths=lambda: w.number(1, 3),
        html=lambda: w.out("page.html"),
    )  # fmt: skip
    texts = [w.word("a good film", "bad", "good " * 30) for _ in range(w.rng.randrange(3))]
    return ["explain", w.given(*CLASSIFIERS), *texts, *flags, *w.rng.sample(["--json"], w.rng.randrange(2))]


def _report(w: World) -> list[str]:
    runs = [w.given(*RUNS) for _ in range(w.rng.randrange(1, 3))]
    return ["report", *runs, "-o", w.out("report.html", "report.htm", "report")]


def _classify_train(w: World) -> list[str]:
    numbers = {
        "split_seed": (0, 3), "max_tokens": (3, 50), "vector_length": (1, 5), "embedding_size": (2, 3),
        "characters": (0, 4), "word_dropout": (0, 0.5), "batch_size": (4, 64), "lr": (0.01,), "l2": (0,), "clip": (5,),
        "average": (0, 0.9), "halve_after": (1,), "stop_after": (1,), "seed": (0, 1), "checkpoint_seconds": (0, 30),
        "hidden_size": (1, 4), "layers": (1, 2), "heads": (1, 3),
    }  # fmt: skip
    words = {
        "text_column": ("text", "1", "5"), "label_column": ("label", "0"), "encoding": ("utf-8", "latin-1", "hex"),
        "skip_broken": ("True", "False"), "cleaning": ("none", "lower", "glove", "kim"), "fine_tune": ("True",),
        "bidirectional": ("True",), "pooling": ("last", "mean", "max", "attention"), "readout": ("mlp", "linear"),
        "device": ("cpu", "cuda:9", "meta", "tpu"), "block": ("auto", "off", "Mamba", "F"),
    }  # fmt: skip
    files = {
        "data": TEXTS, "dev": TEXTS, "test": TEXTS, "vectors": ("vectors.txt", "vectors.bin"), "cell": CELLS,
        "config": ("classifier.json", "language.json"), "tokenizer": ("tokenizer.json",),
    }  # fmt: skip
    usual = [
        "--epochs",
        "1",
        "--hidden-size",
        "3",
        "--layers",
        "1",
        "--device",
        "cpu",
        "--data",
        w.given("texts.txt"),
    ]
    return ["classify", "train", "--out", w.out("run"), *usual, *_settings(w, numbers, words, files)]


def _lm_train(w: World) -> list[str]:
    numbers = {
        "max_words": (5, 50), "layers": (1, 2), "forget_bias": (1,), "rnn_gain": (1,), "embedding_dropout": (0.1,),
        "kept_units": (9,), "ar": (1,), "tar": (1,), "bptt": (3, 35), "lr": (0.1,), "weight_decay": (0,),
        "lr_decay": (0.5,), "lr_decay_from": (1,), "emas": (0.9,), "asgd_from": (1,), "average_every": (1, 3),
        "dev_streams": (1, 3), "seed": (0,), "hidden_size": (1, 4), "params": ("1k", "2k"), "batch_size": (2, 4),
        "heads": (1, 3),
    }  # fmt: skip
    words = {
        "level": ("word", "char"), "tokens": ("space", "text"), "output_gate": ("True", "False"), "shift": ("True",),
        "optimiser": ("sgd", "adam"), "precision": ("fp32", "bf16"), "preset": ("tiny",), "model": ("lstm", "gru"),
        "device": ("cpu", "cuda:9", "tpu"), "block": ("auto", "off", "Mamba", "F"),
    }  # fmt: skip
    files = {
        "data": ("corpus.txt",), "cell": CELLS, "config": ("language.json", "classifier.json"),
        "tokenizer": ("tokenizer.json",),
    }  # fmt: skip
    usual = ["--epochs", "1", "--hidden-size", "3", "--batch-size", "4", "--device", "cpu"]
    flags = _settings(w, numbers, words, files)
    return ["lm", "train", "--out", w.out("run"), *usual, "--data", w.given("corpus.txt"), *flags]


def _settings(
    w: World,
    numbers: dict[str, tuple[Any, ...]],
    words: dict[str, tuple[str, ...]],
    files: dict[str, Sequence[str]],
) -> list[str]:
    """Return some flags of a training, whose values are usual ones or mangled."""
    choices: dict[str, Callable[[], str]] = {}
    for name, usual in numbers.items():
        choices[name] = lambda usual=usual: w.number(*usual)
    for name, usual in words.items():
        choices[name] = lambda usual=usual: w.word(*usual)
    for name, usual in files.items():
        choices[name] = lambda usual=usual: w.given(*usual)
    return _flags(w, 4, **choices)


def _lm_eval(w: World) -> list[str]:
    flags = _flags(
        w, 2, split=lambda: w.rng.choice([w.word("dev", "test", "train"), w.given("corpus.txt")]),
        device=lambda: w.word("cpu", "tpu"),
    )  # fmt: skip
    return ["lm", "eval", w.given(*LANGUAGE_MODELS), *flags]


def _generate(w: World) -> list[str]:
    flags = _flags(
        w, 4, prompt=lambda: w.word("anna likes", "zzz"), temperature=lambda: w.number(1, 0, 0.5),
        top_k=lambda: w.number(1, 3), seed=lambda: w.number(0, 7),
    )  # fmt: skip
    lengths = ["5", "1", "-1", "x", "1.5", ""]  # 0 and huge ones would print for ever, as they should
    return ["lm", "generate", w.given(*LANGUAGE_MODELS), "--length", w.rng.choice(lengths), *flags]


def _export(w: World) -> list[str]:
    kind = w.rng.choice(["onnx", "c", "hf"])
    name = {"onnx": "model.onnx", "c": "model.c", "hf": "folder"}[kind]
    flags = _flags(w, 2, format=lambda: w.word(kind, "onnx"), name=lambda: w.word("m", "1m"))
    flags += ["--format", "hf"] if kind == "hf" and "--format" not in flags else []
    flags += w.rng.sample(["--lengths", "--no-states", "--no-vocabulary"], w.rng.randrange(2))
    place = w.out(name)
    w.outputs |= {str(Path(place).with_suffix(".h"))}
    return ["export", w.given(*RUNS), "-o", place, *flags]


def _table(w: World) -> list[str]:
    task = w.rng.choice(["lm", "classify"])
    runs = [w.given(*RUNS) for _ in range(w.rng.randrange(3))]
    return [task, "table", *runs, *_flags(w, 1, json=lambda: w.out("table.json"))]


def _search(w: World) -> list[str]:
    """Return a search that is refused: one that runs takes seconds."""
    wrong = ["0", "-1", "x", "1e21", "nan"]
    flag = w.rng.choice(["--trials", "--workers"])
    flags = _flags(
        w,
        2,
        study=lambda: w.word("s"),
        sampler=lambda: w.word("random", "tpe"),
        seeds=lambda: w.rng.choice(wrong),
    )
    return ["classify", "search", "--out", w.out("search"), flag, w.rng.choice(wrong), *flags]


def _data(w: World) -> list[str]:
    return [
        "data",
        w.rng.choice(["get", "path", "list"]),
        w.rng.choice([*WORDS[:9], "ptbb", "--check", "x" * 300]),
    ]


def _explore(w: World) -> list[str]:
    """Return a server that cannot start."""
    port = w.rng.choice(["-1", "65536", "x", "1e21", "9" * 30, ""])
    return ["explore", "--no-open", "--port", port, *_flags(w, 1, runs=lambda: w.word("runs"))]


def _nonsense(w: World) -> list[str]:
    return [
        w.rng.choice([*WORDS, "lm", "classify", "data", "drive", "--help", "--version"])
        for _ in range(w.rng.randrange(4))
    ]


COMMANDS: list[tuple[int, Arguments]] = [
    (12, _derive),
    (8, _draw),
    (16, _score),
    (4, _verify),
    (10, _predict),
    (5, _classify_eval),
    (4, _explain),
    (1, _report),
    (4, _classify_train),
    (3, _lm_train),
    (6, _lm_eval),
    (6, _generate),
    (5, _table),
    (4, _export),
    (2, _search),
    (4, _data),
    (2, _explore),
    (6, _nonsense),
]
"""How often each command is called, of a hundred or so."""


# ---- readers ---------------------------------------------------------------------------------------------------------


def readers() -> dict[str, tuple[Sequence[str], Callable[[Path], Any]]]:
    """Return every reader of files by name, with the good files that it reads."""
    import rrnn
    from rrnn.automata import Cell
    from rrnn.explorer.server import parse
    from rrnn.explorer.worker import JobError
    from rrnn.files import read_bytes
    from rrnn.report.run_summaries import _read as summary
    from rrnn.tasks import checkpoints
    from rrnn.tasks.classify.config import ClassifyConfig
    from rrnn.tasks.data.corpus import load_corpus
    from rrnn.tasks.data.labelled import load_dataset
    from rrnn.tasks.data.text_files import read_lines
    from rrnn.tasks.data.vectors import read_vectors
    from rrnn.tasks.lm.config import LMConfig
    from rrnn.tasks.runs import Run
    from rrnn.tasks.tokenizer import Tokenizer
    from rrnn.tasks.vocabulary import Vocabulary
    from rrnn.wfsa.io import load, load_strings, load_symbols
    from rrnn.zoo import read_cell

    def run(path: Path) -> None:
        opened = Run.open(path)
        _ = opened.records(), opened.cell_text, opened.load("last"), opened.best()

    def tokenizer(path: Path) -> None:
        read = Tokenizer.read(path, ("<s>", "</s>"))
        assert read.vocabulary.encode(tokens := read.split("a good, naïve film")).size == len(tokens)
        assert list(read.pieces("a film", iter([*tokens, "</s>", *tokens]), "</s>"))

    def request(path: Path) -> None:
        with contextlib.suppress(JobError):  # what the server answers with
            parse(read_bytes(path))

    return {
        "read_cell": (CELLS, read_cell),
        "Cell.from_text": (
            CELLS,
            lambda path: Cell.from_text(read_bytes(path).decode("utf-8", "replace")),
        ),
        "load": (MACHINES, load),
        "load over log": (MACHINES, lambda path: load(path, semiring="log")),
        "load_strings": (["strings.txt"], load_strings),
        "load_symbols": (["symbols.txt"], load_symbols),
        "Vocabulary.load": (["vocabulary.json"], Vocabulary.load),
        "ClassifyConfig": (["classifier.json"], ClassifyConfig.from_file),
        "LMConfig": (["language.json"], LMConfig.from_file),
        "read_lines": (TEXTS, read_lines),
        "load_dataset": (TEXTS, load_dataset),
        "load_corpus": (["corpus.txt"], load_corpus),
        "read_vectors": (["vectors.txt", "vectors.bin"], read_vectors),
        "decode": (["classifier.safetensors"], lambda path: checkpoints.decode(read_bytes(path), str(path))),
        "Run": (RUNS, run),
        "Tokenizer": (["tokenizer.json"], tokenizer),
        "rrnn.load": (RUNS, rrnn.load),
        "summary": (RUNS, lambda path: summary(path, "run")),
        "explorer": (["m.json", "classifier.json"], request),
    }


def random_text(rng: random.Random) -> bytes:
    """Return what a user may pipe into a command."""
    return "".join(rng.choice(string.printable + "éε\0") for _ in range(rng.randrange(200))).encode()


def listed(folder: Path) -> set[str]:
    """Return the paths of all files and folders below a folder."""
    return {
        os.path.join(base, name) for base, folders, files in os.walk(folder) for name in (*folders, *files)
    }
