"""The tab Design in a real browser: texts are kept, undone, saved and scored; nothing stale can be used."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from rrnn.automata import Cell
from rrnn.zoo import get_cell

sync_api = pytest.importorskip("playwright.sync_api")
expect = sync_api.expect
pytestmark = pytest.mark.slow
F, B = (get_cell(name).to_text().strip() for name in ("F", "B"))
MINE = B.replace("cell B", "cell Mine")


def settled(page: Any, caption: str) -> None:
    expect(page.locator("#cell-caption")).to_contain_text(caption)


def test_the_text_is_kept_in_the_address_and_in_storage(visit: Callable[..., Any], address: str) -> None:
    page = visit()
    assert page.url.endswith("#design?from=F")
    page.fill("#cell-text", MINE)
    settled(page, "Mine over the real")
    link = page.url
    assert "text=rrnn-cell" in link
    page.goto("about:blank")
    page.goto(address)  # no cell in the address: that of the last visit
    settled(page, "Mine over the real")
    assert page.input_value("#cell-text") == MINE
    assert page.locator("#example-paper").text_content() == "edited from F"

    other = visit()  # another visitor, who has stored nothing
    settled(other, "F over the real")
    other.evaluate("link => { location.href = link; }", link)  # a link in the open page
    settled(other, "Mine over the real")
    assert other.input_value("#cell-text") == MINE
    other.locator("#cell-text").press("Control+z")
    assert other.input_value("#cell-text") == F

    wrong = B.replace("loop q1 : f", "loop q1 : g")  # what cannot be compiled is kept, too
    other.goto("about:blank")
    other.goto(f"{address}#design?text={quote(wrong)}")
    expect(other.locator("#cell-problem")).to_contain_text("g")
    assert other.input_value("#cell-text") == wrong


def test_undo_goes_back_across_examples(visit: Callable[..., Any]) -> None:
    page = visit()
    undo, redo, area = (page.locator(name) for name in ("#cell-undo", "#cell-redo", "#cell-text"))
    assert undo.is_disabled() and redo.is_disabled()
    area.press("Control+End")
    page.keyboard.type("\n# mine")
    page.select_option("#example", "B")
    settled(page, "B over the real")
    page.select_option("#example", "SRU")
    settled(page, "SRU over the real")
    undo.click()
    settled(page, "B over the real")
    assert page.input_value("#example") == "B" and page.input_value("#cell-text") == B
    area.press("Control+z")
    assert page.input_value("#cell-text") == F + "\n# mine"
    expect(page.locator("#example-paper")).to_have_text("edited from F")
    for _ in range(12):  # more often than there are steps
        area.press("Control+z")
    assert page.input_value("#cell-text") == F
    expect(page.locator("#example")).to_have_value("F")
    assert undo.is_disabled()
    for _ in range(12):
        area.press("Control+Shift+z")
    settled(page, "SRU over the real")
    assert redo.is_disabled() and page.input_value("#example") == "SRU"
    area.press("Control+z")
    area.press("Control+End")
    page.keyboard.type(" ")  # typing forgets what was undone
    assert redo.is_disabled()


def saved(page: Any, button: str) -> tuple[str, bytes]:
    with page.expect_download() as download:
        page.click(button)
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def test_files_and_title_have_the_name_of_the_cell(visit: Callable[..., Any]) -> None:
    page = visit()
    assert page.title() == "Design: F (Peng et al. 2018) · rrnn explore"
    name, content = saved(page, "#cell-save-cell")
    assert (name, Cell.from_text(content.decode())) == ("F.cell", get_cell("F"))
    name, content = saved(page, "#cell-save-png")
    width, height = struct.unpack(">II", content[16:24])
    assert name == "F.png" and content.startswith(b"\x89PNG") and width > height > 900
    page.fill("#cell-text", F + "\n# mine")
    expect(page.locator("#example-paper")).to_have_text("edited from F")
    page.wait_for_function("document.title.startsWith('Design: F (edited from F)')")
    assert saved(page, "#cell-save-svg")[0] == "F-edited.svg"
    page.fill("#cell-text", MINE)
    settled(page, "Mine over the real")
    assert page.title() == "Design: Mine (edited from F) · rrnn explore"
    assert saved(page, "#cell-save-svg")[0] == "Mine.svg"
    assert saved(page, "#cell-save-cell") == ("Mine.cell", (MINE + "\n").encode())
    page.click("#tab-score")
    assert page.title() == "Score: F · rrnn explore"
    page.click("#tab-explain")
    assert page.title().startswith("Explain: ")


PARTS = ("#cell-stage .picture", "#facts", "#equations", "#code")
BUTTONS = ("copy-latex", "copy-code", "cell-save-cell", "cell-save-svg", "cell-save-png", "cell-score")
SELECTABLE = "e => { getSelection().selectAllChildren(e); return getSelection().toString().trim().length; }"


def test_what_is_stale_is_faded_and_cannot_be_copied(visit: Callable[..., Any]) -> None:
    page = visit()
    for part in PARTS[1:]:
        assert page.locator(part).evaluate(SELECTABLE) > 0
    page.fill("#cell-text", F.replace("loop q1 : f1", "loop q1 : f9"))
    expect(page.locator("#cell-problem")).to_contain_text("f9")
    page.wait_for_timeout(400)  # the fade
    for part in PARTS:
        assert page.locator(part).evaluate("e => getComputedStyle(e).opacity") == "0.35", part
        assert page.locator(part).evaluate(SELECTABLE) == 0, part
        assert page.locator(part).evaluate("e => e.inert")
    assert all(page.locator(f"#{button}").is_disabled() for button in BUTTONS)
    page.locator("#cell-text").press("Control+z")
    expect(page.locator("#cell-problem")).to_be_empty()
    for part in PARTS:
        assert not page.locator(part).evaluate("e => e.inert || e.classList.contains('stale')")
    assert not any(page.locator(f"#{button}").is_disabled() for button in BUTTONS)

    page.click("#tab-score")
    page.get_by_label("u₂ of good").fill("four")
    expect(page.locator("#score-problem")).to_contain_text("four")
    for part in ("#score-stage .picture", "#forward-card", "#paths-card"):
        assert page.locator(part).evaluate("e => e.inert && e.classList.contains('stale')"), part
    page.get_by_label("u₂ of good").fill("4")
    expect(page.locator("#score-total")).to_contain_text("4.645")
    assert page.locator(".stale").count() == 0


def test_python_code_builds_the_cell(visit: Callable[..., Any]) -> None:
    page = visit()
    page.click("#tab-python")
    names: dict[str, Any] = {}
    exec(page.locator("#code").text_content(), names)
    assert names["F"] == get_cell("F")


def test_score_this_cell(visit: Callable[..., Any]) -> None:
    page = visit()
    page.click("#cell-score")  # one of the paper's automata: with the paper's numbers
    expect(page.locator("#panel-score")).to_be_visible()
    assert page.input_value("#automaton") == "F" and "2.345" in page.locator("#score-total").text_content()
    page.click("#tab-design")
    page.fill(
        "#cell-text",
        F.replace("cell F", "cell Mine").replace("epsilon q0 -> q3 : r", "epsilon q0 -> q3 : p1"),
    )
    settled(page, "Mine over the real")
    page.click("#cell-score")
    assert page.locator("#automaton option:checked").text_content() == "Mine (from Design)"
    assert page.title() == "Score: Mine (from Design) · rrnn explore"
    heads = page.locator("#numbers thead th").all_text_contents()
    assert heads == ["α", "u₁(α)", "f₁(α)", "u₂(α)", "f₂(α)"]
    assert page.locator("#constants label").all_text_contents() == ["p₁ ", "p₂ "]
    for name, value in (("u₁", 0.0), ("f₁", 0.0), ("u₂", 0.0), ("f₂", 0.0)):
        for word in ("the", "film", "is", "not", "so", "good"):
            page.get_by_label(f"{name} of {word}").fill(str(value))
    page.get_by_label("u₂ of good").fill("3")
    page.get_by_label("p₁").fill("0.5")
    page.get_by_label("p₂").fill("2")
    expect(page.locator("#score-total")).to_contain_text("score 3 over")  # ε 0.5, good 3, final 2
    # the page goes on: steps, paths
    page.click("#back")
    assert "q₂ = 0.5" in page.locator("#step-says").text_content()
    page.click("#tab-design")
    page.select_option("#example", "QRNN2")  # a weight that sees two words has no column
    settled(page, "QRNN2")
    assert page.locator("#cell-score").is_disabled()
    assert "2 symbols" in page.locator("#cell-score").get_attribute("title")


def test_equations_and_pictures_are_in_the_bundled_font(visit: Callable[..., Any]) -> None:
    """σ(b_r) has its subscript below the line, on every machine: the page brings its own maths font."""
    page = visit()
    page.evaluate("document.fonts.ready")
    faces = page.evaluate(
        "[...document.fonts].filter(f => f.status === 'loaded').map(f => f.family + f.style)"
    )
    assert sorted(face.replace('"', "") for face in faces) == ["rrnn Mathitalic", "rrnn Mathnormal"]
    places = page.evaluate(
        """() => { const math = [...document.querySelectorAll("#equations math")].find(
                       (m) => m.textContent.replace("\\u2061", "") === "σ(br)");
                   const [b, r] = math.querySelector("msub").children;
                   return [b, r].map((e) => e.getBoundingClientRect()).map((box) => [box.bottom, box.height]); }"""
    )
    (base, height), (below, small) = places
    assert below > base + 0.1 * height and small < 0.85 * height


def test_table_and_lit_arcs_are_on_one_screen(visit: Callable[..., Any]) -> None:
    page = visit("score", viewport={"width": 1280, "height": 800})
    page.click("#first")
    page.click("#next")
    boxes = [page.locator(name).bounding_box() for name in ("#score-stage svg", "#forward", "#step-says h3")]
    assert page.evaluate("scrollY") == 0
    assert all(box["y"] >= 0 and box["y"] + box["height"] <= 800 for box in boxes)
    size = "e => parseFloat(getComputedStyle(e).fontSize) * e.getScreenCTM().a"
    assert page.locator("#score-stage svg text").first.evaluate(size) >= 11
