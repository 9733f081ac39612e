"""Mangled files of every format: a machine or an `RRNNError` comes out, nothing else, and quickly.

Files start from good ones and are broken in ways that reach deep into a parser. A failure prints its seed:
`mangled(format, seed)` is the file. `RRNN_FUZZ_ROUNDS=100000` looks further.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrnn.errors import RRNNError
from rrnn.wfsa.io import (
    from_json,
    from_openfst,
    from_pautomac,
    load,
    load_strings,
    load_symbols,
    symbols_for,
    to_json,
    to_openfst,
)
from rrnn.wfsa.machine import EPSILON, WFSA

ROUNDS = int(os.environ.get("RRNN_FUZZ_ROUNDS", "1000"))

MACHINE = WFSA(
    "log",
    alphabet=["a", "b", "ä"],
    arcs=[
        ("p", "a", "q", -0.5),
        ("p", EPSILON, "q", -1.25),
        ("q", "b", "q", -0.125),
        (("r", 1), "ä", "p", float("-inf")),
        ("q", "b", ("r", 1), 3.0),
    ],
    initial={"p": 0.0, "q": -2.0},
    final={"q": -0.75, "p": -1e-90},
)
PAUTOMAC = """I: (state)
\t(0) 0.25
\t(1) 0.75
F: (state)
\t(1) 0.5
S: (state,symbol)
\t(0,0) 0.5
\t(0,3) 0.5
\t(1,3) 1.0
T: (state,symbol,state)
\t(0,0,0) 0.25
\t(0,0,1) 0.75
\t(0,3,1) 1.0
\t(1,3,0) 1e0
"""
TABLE = "<eps>\t0\na\t1\nb\t2\nä\t3\n"
GOOD = {
    "json": to_json(MACHINE),
    "components": to_json(MACHINE.with_semiring("signed-log")),
    "openfst": to_openfst(MACHINE, isymbols=symbols_for(MACHINE.alphabet)),
    "integers": "0\t1\t1\t0.5\n1\t1\t2\n1\t2\t0\n2\t0.25\n",
    "transducer": "0 1 a a 0.5\n1 1 b b\n1 Infinity\n0\n",
    "pautomac": PAUTOMAC,
    "symbols": TABLE,
    "strings": "3 20\n2 7 4\n0\n4 1 1 19 0\n",
}
TOKENS = [
    *(
        "0",
        "1",
        "-1",
        "1e400",
        "-1e400",
        "1e-400",
        "nan",
        "NaN",
        "Infinity",
        "-Infinity",
        "inf",
        "0x10",
        "1_0",
        "１",
    ),
    *(
        "9" * 19,
        "9" * 30,
        "9" * 5000,
        "1" + "0" * 12,
        "0." + "3" * 400,
        "1e" + "9" * 4400,
        "-0",
        "+1",
        ".",
        "1.",
        "e",
    ),
    *(
        "[" * 3000,
        '{"a":' * 3000,
        "{}",
        "[]",
        "null",
        "true",
        '""',
        '"a"',
        '{"tuple": []}',
        '{"float": "Infinity"}',
    ),
    *(
        "(",
        ")",
        ",",
        ":",
        "I: (state)",
        "T:",
        "<eps>",
        "a",
        "\t",
        "\n",
        "\r",
        "\0",
        "\x0c",
        "\u2028",
        "\ufeff",
        "𝕏",
    ),
    *('"real"', '"counting"', '"boolean"', '"min-plus"', "\\ud800", "\\u0000"),
]


def mangled(name: str, seed: int) -> bytes:
    """A good file with a few things wrong."""
    rng = random.Random(seed)
    data = GOOD[name].encode()
    for _ in range(rng.choice([1, 1, 1, 2, 4, 10])):
        data = rng.choice(MUTATIONS)(data, rng)
    return data


def span(data: bytes, rng: random.Random) -> tuple[int, int]:
    start = rng.randint(0, len(data))
    return start, min(len(data), start + rng.choice([1, 1, 2, 5, 40]))


def flip(data: bytes, rng: random.Random) -> bytes:
    at, _ = span(data, rng)
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def delete(data: bytes, rng: random.Random) -> bytes:
    start, end = span(data, rng)
    return data[:start] + data[end:]


def duplicate(data: bytes, rng: random.Random) -> bytes:
    start, end = span(data, rng)
    return data[:end] + data[start:end] * rng.choice([1, 1, 2, 50]) + data[end:]


def truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randint(0, len(data))]


def insert(data: bytes, rng: random.Random) -> bytes:
    at, _ = span(data, rng)
    return data[:at] + rng.choice(TOKENS).encode() + data[at:]


def replace_token(data: bytes, rng: random.Random) -> bytes:
    """A number or a word exchanged whole: the file keeps its form, the value is wild."""
    separators = b" \t\n,()[]:"
    starts = [
        i for i in range(len(data)) if data[i] not in separators and (not i or data[i - 1] in separators)
    ]
    if not starts:
        return data
    start = rng.choice(starts)
    end = next((i for i in range(start, len(data)) if data[i] in separators), len(data))
    return data[:start] + rng.choice(TOKENS).encode() + data[end:]


def shuffle_lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[i], lines[j] = lines[j], lines[i]
    return b"\n".join(lines)


def unicode(data: bytes, rng: random.Random) -> bytes:
    at, _ = span(data, rng)
    return (
        data[:at]
        + chr(rng.choice([rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)])).encode()
        + data[at:]
    )


MUTATIONS: list[Callable[[bytes, random.Random], bytes]] = [
    flip,
    delete,
    duplicate,
    truncate,
    insert,
    replace_token,
    replace_token,
    shuffle_lines,
    unicode,
]

READERS: dict[str, Callable[[Path], Any]] = {
    "json": lambda path: load(path, "json"),
    "components": lambda path: load(path, "json"),
    "openfst": lambda path: load(
        path, "openfst", semiring="log", isymbols={"<eps>": 0, "a": 1, "b": 2, "ä": 3}
    ),
    "integers": lambda path: load(path, "openfst", semiring="real"),
    "transducer": lambda path: load(path, "openfst", isymbols={"<eps>": 0, "a": 1, "b": 2}),
    "pautomac": lambda path: load(path, "pautomac"),
    "symbols": load_symbols,
    "strings": lambda path: load_strings(path, alphabet=range(20)),
}


@pytest.mark.parametrize("name", READERS)
def test_good_files_are_read(name: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text(GOOD[name], encoding="utf-8")
    assert READERS[name](tmp_path / "f")


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_only_rrnn_errors_come_out(name: str, tmp_path: Path) -> None:
    path, read, refused = tmp_path / "f", READERS[name], 0
    for seed in range(ROUNDS):
        path.write_bytes(mangled(name, seed))
        began = time.process_time()
        try:
            found = read(path)
            if isinstance(found, WFSA):  # what was accepted is a machine, whole
                found.score([(), tuple(found.alphabet[:3])])
        except RRNNError as error:
            refused += 1
            assert len(str(error)) < 2000, f"seed {seed}: a message for a book"
        except BaseException as error:
            raise AssertionError(
                f"mangled({name!r}, {seed}) raised {type(error).__name__}: {error}"
            ) from error
        assert time.process_time() - began < 2.0, f"mangled({name!r}, {seed}) took long"
    assert ROUNDS // 10 < refused < ROUNDS  # else the mangling is too gentle, or breaks all files alike


@pytest.mark.parametrize("read", [from_json, from_openfst, from_pautomac])
@given(text=st.text() | st.text("01. \t\n,()ISFT:{}[]\"'-einf"))
def test_any_text_at_all(read: Callable[[str], WFSA], text: str) -> None:
    with contextlib.suppress(RRNNError):
        read(text)


@given(data=st.binary())
def test_any_bytes_at_all(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(data)
    for read in READERS.values():
        with contextlib.suppress(RRNNError):
            read(path)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (from_openfst, "0 1 1 1" + "0" * 1_000_000 + "\n1\n"),
        (from_openfst, "\n" * 1_000_000),
        (from_pautomac, "I: (state)\n(" + "0," * 500_000 + ") 1\n"),
        (from_pautomac, PAUTOMAC.replace("0.25", "0." + "2" * 1_000_000)),
        (from_json, '{"format": "rrnn-wfsa", "version": ' + "[" * 1_000_000),
        (from_json, "1" * 1_000_000),
    ],
)
def test_large_nonsense_is_refused_quickly(read: Callable[[str], WFSA], text: str) -> None:
    began = time.process_time()
    with pytest.raises(RRNNError) as caught:
        read(text)
    assert time.process_time() - began < 2.0
    assert len(str(caught.value)) < 1000
