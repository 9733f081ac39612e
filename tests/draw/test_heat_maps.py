"""Heat maps: one word per row and column, well-formed whatever the words are, and sizes that pages can show."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from rrnn.draw.heat_maps import MAX_WORDS, heat_map
from rrnn.errors import ShapeError

SVG = "{http://www.w3.org/2000/svg}"
ROWS = [[1.0, 0.0, 0.0], [-0.25, 0.75, 0.0], [0.004, float("nan"), -0.5]]


def drawn(rows: list[list[float]], words: list[str], **options: bool) -> ElementTree.Element:
    return ElementTree.fromstring(heat_map(rows, words, title="a <map> & more", **options))


def test_every_share_is_a_cell() -> None:
    picture = drawn(ROWS, ["<b>", "&", "c"])
    cells = [rect for rect in picture.iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None]
    assert [cell.get("class") for cell in cells] == ["plus", "minus", "plus", "minus"]  # not 0.004, not NaN
    assert [cell.findtext(f"{SVG}title") for cell in cells] == [
        "<b> → <b>: +100%",
        "<b> → &: −25%",
        "& → &: +75%",
        "c → c: −50%",
    ]
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert texts[:4] == ["a <map> & more", "<b>", "&", "c"] and "+100%" in texts
    assert "after & mostly &, +75%" in (picture.findtext(f"{SVG}desc") or "")


def test_a_backward_map_has_its_words_on_the_left() -> None:
    turned = [row[::-1] for row in ROWS[::-1]]
    words = [text for text in drawn(turned, ["a", "b", "c"], backward=True).iter(f"{SVG}text")][1:4]
    assert all(word.get("text-anchor") == "end" for word in words)


def test_pages_have_the_style_and_files_bring_it() -> None:
    assert drawn(ROWS, ["a", "b", "c"]).find(f"{SVG}style") is not None
    text = heat_map(ROWS, ["a", "b", "c"], title="", alone=False)
    assert "style" not in text and "paper" not in text  # the explorer refuses inline styles


@pytest.mark.parametrize("n", [1, 40, MAX_WORDS])
def test_sizes(n: int) -> None:
    rows = [[1 / (t + 1) if s <= t else 0.0 for s in range(n)] for t in range(n)]
    picture = drawn(rows, ["a-very-long-word-indeed"] * n)
    width, height = (float(picture.get(name) or 0) for name in ("width", "height"))
    right = max(float(r.get("x") or 0) + float(r.get("width") or 0) for r in picture.iter(f"{SVG}rect"))
    assert right <= width <= 1100 and height <= 900
    assert (picture.get("class") == "heat wide") == (width > 460)


@pytest.mark.parametrize(
    ("rows", "words", "message"),
    [
        ([], [], "room for 1 to 200 words; got 0"),
        ([[0.0] * 201] * 201, ["a"] * 201, "room for 1 to 200 words; got 201"),
        ([[1.0, 0.0]], ["a", "b"], "2 rows of 2 shares"),
    ],
)
def test_mistakes(rows: list[list[float]], words: list[str], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        heat_map(rows, words, title="")
