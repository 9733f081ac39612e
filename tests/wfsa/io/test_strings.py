"""Files of strings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rrnn.errors import FormatError
from rrnn.wfsa.io import StringsFile, load_strings, save_strings


def read(tmp_path: Path, text: str, **options: Any) -> tuple[list[tuple[str, ...]], int | None, int | None]:
    (tmp_path / "s").write_bytes(text.encode())
    file = StringsFile(tmp_path / "s", **options)
    return [string.symbols for string in file], file.count, file.alphabet_size


@pytest.mark.parametrize(
    ("text", "strings", "header"),
    [
        ("", [], (None, None)),
        ("0\n", [()], (None, None)),
        ("2 5 7\n0\n1 3\n", [("5", "7"), (), ("3",)], (None, None)),
        ("2 9\n2 5 7\n0\n", [("5", "7"), ()], (2, 9)),
        ("2 9\r\n2\t5  7 \r\n0\r\n\r\n \n", [("5", "7"), ()], (2, 9)),
        ("0 9\n", [], (0, 9)),
        ("2 a b", [("a", "b")], (None, None)),
        ("\ufeff1 9\n2 5 7\n", [("5", "7")], (1, 9)),
        ("1 9\n", [("9",)], (None, None)),  # a header would promise one string more
        ("1 9\n1 10\n", [("9",), ("10",)], (None, None)),  # 10 is not below 9
        ("1 9\n1 a\n", [("9",), ("a",)], (None, None)),
        ("1 9\n1 2\n1 3\n", [("9",), ("2",), ("3",)], (None, None)),
        ("1 9\n1 2\n\n", [("2",)], (1, 9)),  # could be both: read as PAutomaC writes it
    ],
)
def test_strings_are_read(tmp_path: Path, text: str, strings: list[Any], header: tuple[Any, Any]) -> None:
    assert read(tmp_path, text) == (strings, *header)


def test_the_header_can_be_told(tmp_path: Path) -> None:
    assert read(tmp_path, "1 9\n1 2\n", header=False) == ([("9",), ("2",)], None, None)
    assert read(tmp_path, "1 9\n1 2\n", header=True) == ([("2",)], 1, 9)
    with pytest.raises(FormatError, match="s:1: the header must be two numbers"):
        read(tmp_path, "2 5 7\n", header=True)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("x\n", 1, "must start with its length"),
        ("-1\n", 1, "must start with its length"),
        ("1.0 3\n", 1, "must start with its length"),
        ("99999999999999999999999 3\n", 1, "must start with its length"),
        ("3 1 2\n", 1, "is 3, but 2 symbols follow"),
        ("0\n1 1 2\n", 2, "is 1, but 2 symbols follow"),
        ("0\n\n0\n", 2, "blank line between"),
        ("3 9\n0\n0\n", 3, "promises 3 strings, but the file has 2"),
        ("2 9\n0\n0\n0\n", 4, "promises 2 strings, but the file has 3"),
        ("2 9\n", 1, "promises 2 strings, but the file has 0"),
        ("1000000000000 1000000000000\n0\n", 2, "promises"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, text: str, line: int, message: str) -> None:
    with pytest.raises(FormatError, match=message) as caught:
        read(tmp_path, text)
    assert caught.value.line == line


def test_undecodable_bytes_have_a_line(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(b"0\n0\n0\n0\n1 \xff\n")
    with pytest.raises(FormatError, match=r"s:5: .*0xff"):
        load_strings(tmp_path / "s")


def test_symbols_are_names_first_and_integers_then(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("4 1 2 a -3\n")
    assert load_strings(tmp_path / "s", alphabet=[1, "1", 2, "a", -3]) == [("1", 2, "a", -3)]
    assert load_strings(tmp_path / "s") == [("1", "2", "a", "-3")]
    with pytest.raises(FormatError, match=r"s:1: symbol 'a' .number 3"):
        load_strings(tmp_path / "s", alphabet=[1, 2])


@pytest.mark.parametrize("size", [None, 12])
def test_strings_come_back(tmp_path: Path, size: int | None) -> None:
    strings = [(3, 4), (), (11,), (0, 0, 0)]
    save_strings(strings, tmp_path / "s", alphabet_size=size)
    assert load_strings(tmp_path / "s", alphabet=range(12)) == strings


def test_what_a_line_cannot_hold_is_refused(tmp_path: Path) -> None:
    for symbol in ("a b", "", "a\nb", ("a",), 1.5):
        with pytest.raises(FormatError):
            save_strings([(symbol,)], tmp_path / "s")
    with pytest.raises(FormatError, match="alphabet_size"):
        save_strings([(9,), (2,)], tmp_path / "s")
    assert not list(tmp_path.iterdir())
