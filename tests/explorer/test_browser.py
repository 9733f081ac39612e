"""The page in a real browser: Debian's Chromium, driven by Playwright; `chromium.sh` installs it where it is not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sync_api = pytest.importorskip("playwright.sync_api")
expect = sync_api.expect
pytestmark = pytest.mark.slow
PANELS = ("design", "score", "explain")
PROBES = (Path(__file__).parent / "probes.js").read_text(encoding="utf-8")
FAINT, NAMELESS = f"() => {{ {PROBES} return faint(); }}", f"() => {{ {PROBES} return nameless(); }}"
SELECTED = """() => { const area = document.activeElement;
                       return area.value.slice(area.selectionStart, area.selectionEnd); }"""


def test_typing_changes_everything(visit: Callable[..., Any]) -> None:
    page = visit()
    picture, caption, code = (page.locator(name) for name in ("#cell-stage svg", "#cell-caption", "#code"))
    assert picture.locator("circle").count() == 6 and page.locator("#equations .equation").count() == 11
    before = code.text_content()
    area = page.locator("#cell-text")
    area.fill(area.input_value().replace("states q0 q1 q2 q3", "states q0 q1 q2 q3 q4"))
    area.press("Control+End")
    page.keyboard.type('\nepsilon q0 -> q4 : parameter("extra")\narc q4 -> q2 : u1')
    expect(caption).to_contain_text("5 states, 9 arcs (2 ε)")
    expect(picture).to_contain_text("extra")
    assert picture.locator("circle").count() == 7
    assert code.text_content() != before
    assert "extra" in page.locator("#equations").text_content()
    page.click("#tab-triton")
    assert "@triton.jit" in code.text_content()


def test_a_mistake_stands_at_its_line(visit: Callable[..., Any]) -> None:
    page = visit()
    area, problem, stage = (
        page.locator(name) for name in ("#cell-text", "#cell-problem", "#cell-stage .picture")
    )
    good = area.input_value()
    line = good.splitlines().index("loop q1 : f1") + 1
    area.fill(good.replace("loop q1 : f1", "loop q1 : f9"))
    expect(problem).to_contain_text(re.compile(f"^Line {line}.*f9"))
    marks = [mark.get_attribute("class") for mark in page.locator("#cell-editor .line").all()]
    assert [i for i, mark in enumerate(marks, 1) if "bad" in mark] == [line]
    assert area.get_attribute("aria-invalid") == "true" and "stale" in stage.get_attribute("class")
    problem.get_by_role("button").click()  # leads there
    assert page.evaluate(SELECTED) == "loop q1 : f9"
    page.keyboard.type("loop q1 : f1")
    expect(problem).to_be_empty()
    assert page.locator("#cell-editor .bad").count() == 0 and "stale" not in stage.get_attribute("class")


def test_examples(visit: Callable[..., Any]) -> None:
    page = visit()
    for name, title in (
        ("B-max-plus", "max-plus"),
        ("SoPa4", "SoPa"),
        ("QRNN2", "QRNN"),
        ("B", "cell B over the real"),
    ):
        page.select_option("#example", name)
        expect(page.locator("#cell-stage svg title")).to_contain_text(title)
        assert not page.locator("#cell-problem").text_content()
    with page.expect_download() as download:
        page.click("#cell-save-svg")
    saved = Path(download.value.path()).read_text(encoding="utf-8")
    assert saved.startswith("<svg") and "<style>" in saved and 'class="on"' not in saved


def test_forward_step_by_step(visit: Callable[..., Any]) -> None:
    page = visit("score")
    total = "2.345"
    assert total in page.locator("#score-total").text_content()

    def filled() -> int:
        return page.locator("#forward tbody td.filled").count()

    assert filled() == 4 * 7
    page.click("#first")
    assert filled() == 4 and "Before the first symbol" in page.locator("#step-says").text_content()
    assert page.locator("#back").is_disabled()
    scores = page.locator("#forward tr.scores td.filled, #forward tr.scores td.now")
    for step in range(1, 7):
        page.click("#next")
        assert filled() == 4 * (step + 1)
        assert scores.count() == step + 1
        assert page.locator("#forward tr.scores td.filled").count() == min(
            step + 1, 6
        )  # the last: at the end
    assert "q₂ = 0.9 · 2 (q₁) + 0.25 · 2 (q₃) = 2.3" in page.locator("#step-says").text_content()
    lit = page.locator("#score-stage svg g.on .arc").count()
    assert lit == 5  # loops on q0 and q1, into q2 twice, ε
    page.focus("#step")
    page.keyboard.press("End")
    assert total in page.locator("#step-says").text_content()

    # a path in the picture, and out of it again
    page.locator("#paths button").first.click()
    assert page.locator("#paths button[aria-pressed=true]").count() == 1
    assert page.locator("#score-stage svg g.on .arc").count() == 4
    page.click("#first")
    assert page.locator("#paths button[aria-pressed=true]").count() == 0

    # it plays by itself
    page.click("#play")
    page.wait_for_selector("#forward tbody td.filled[data-t='1']")
    page.click("#play")
    assert page.locator("#play").get_attribute("aria-pressed") == "false"


def test_a_long_string_leaves_room_for_words(visit: Callable[..., Any]) -> None:
    page = visit("score")
    page.fill("#string", " ".join(["not so good the"] * 15))
    expect(page.locator("#step")).to_have_attribute("max", "61")
    assert page.locator("#step-says").bounding_box()["width"] > 250
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_the_page_stays_where_one_types(visit: Callable[..., Any]) -> None:
    page = visit("design", viewport={"width": 400, "height": 900})
    page.click("#tab-score")
    assert page.evaluate("scrollY") == 0
    box = "document.querySelector('#forward').parentElement"
    assert page.evaluate(
        f"{box}.scrollLeft + {box}.clientWidth >= {box}.scrollWidth - 1"
    )  # the score is in view
    field = page.get_by_label("u₁ of the")
    field.scroll_into_view_if_needed()
    before = page.evaluate("scrollY")
    field.fill("1")
    expect(page.locator("#score-total")).not_to_contain_text("2.345")
    assert page.evaluate("scrollY") == before
    page.click("#first")
    start, names = (page.locator(f"#forward thead th:nth-child({n})").bounding_box() for n in (2, 1))
    assert start["x"] >= names["x"] + names["width"] - 1  # beside the names, not under them


def test_numbers_and_texts_are_scored(visit: Callable[..., Any]) -> None:
    page = visit("score")
    page.get_by_label("u₂ of good").fill("4")
    expect(page.locator("#score-total")).to_contain_text("4.645")
    page.get_by_label("u₂ of good").fill("four")
    expect(page.locator("#score-problem")).to_contain_text("four")
    expect(page.locator("#score-total")).to_have_text("")
    page.select_option("#automaton", "text")
    expect(page.locator("#score-total")).to_contain_text("score 3 over the counting")
    page.select_option("#automaton", "B")  # and back: its own semiring and string
    expect(page.locator("#score-total")).to_contain_text("over the real")
    assert page.locator("#string").input_value() == "the film is not so good"
    page.select_option("#automaton", "text")
    # names that would be markup, if anything took them for it
    page.locator("#wfsa-text").fill(
        page.locator("#wfsa-text").input_value().replace('"q1"', '"<img src=x onerror=alert(1)><b id=evil>"')
    )
    expect(page.locator("#forward")).to_contain_text("<img")
    assert page.locator("#evil").count() == 0 and page.locator("main img").count() == 0


def test_explain(visit: Callable[..., Any]) -> None:
    page = visit("explain")
    page.select_option("#run", "F")
    page.fill("#sentence", "this is so awfully good <b id=evil>")
    page.keyboard.press("Enter")
    words = page.locator("#words li")
    expect(words.nth(3)).to_contain_text("awfully")
    assert "unknown" in words.nth(3).get_attribute("class") and page.locator("#evil").count() == 0
    lost = words.all_text_contents()
    page.get_by_label("added by its paths").check()
    expect(page.locator("#words-note")).to_contain_text("first order")
    expect(page.locator("#words-note")).to_contain_text("Green speaks for")
    assert words.all_text_contents() != lost
    expect(page.locator("#units-note")).to_contain_text("to first order: + speaks for")
    expect(page.locator("#units")).to_contain_text("of the total path weight")

    # the first path is lit; another one is, when it is pressed
    paths = page.locator("#units .paths button")
    lit = page.locator("#unit-stage svg g.on")
    assert paths.first.get_attribute("aria-pressed") == "true" and lit.count() > 0
    caption = page.locator("#unit-caption").text_content()
    paths.nth(1).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#unit-caption")).not_to_have_text(caption)
    assert page.locator("#units [aria-pressed=true]").count() == 1

    other = {"yes": "no", "no": "yes"}[page.locator("#target").input_value()]
    page.select_option("#target", other)
    expect(page.locator("#verdict")).to_contain_text(f"the margin of {other}")
    page.select_option("#run", "B-max-plus")  # its scores are no sums over words
    expect(page.locator("#words-note")).to_contain_text("not sums")
    assert all(text.endswith(("–", "– unknown")) for text in words.all_text_contents())
    page.select_option("#run", "search/seed-0")  # an LSTM: words, but nothing to look into
    expect(page.locator("#words-note")).to_contain_text("no automata")
    assert not page.locator("#inside").is_visible()
    page.fill("#sentence", "")
    page.click("#explain-go")
    expect(page.locator("#explain-problem")).to_contain_text("no word")


def test_explain_opens_on_the_most_accurate_run(visit: Callable[..., Any], trained: Path) -> None:
    results = {name: trained / name / "result.json" for name in ("F", "B-max-plus", "search/seed-0")}
    before = {name: file.read_text() for name, file in results.items()}
    try:
        for name, accuracy in (("F", 60.0), ("B-max-plus", 90.0), ("search/seed-0", 80.0)):
            results[name].write_text(json.dumps(json.loads(before[name]) | {"dev": accuracy}))
        page = visit("explain")
        assert page.input_value("#run") == "B-max-plus"
        assert page.title() == "Explain: B-max-plus (B-max-plus) · rrnn explore"
    finally:
        for name, file in results.items():
            file.write_text(before[name])


def test_contributions_have_one_sign_convention(visit: Callable[..., Any]) -> None:
    """+ and green speak for the label, − and red against it: units, paths, words and the paths of Score."""
    page = visit("explain")
    page.select_option("#run", "F")
    page.wait_for_selector("#explained[aria-busy=false]")
    seen = set()
    for target in ("yes", "no"):
        page.select_option("#target", target)
        expect(page.locator("#verdict")).to_contain_text(f"the margin of {target}")
        for row in page.locator("#units h3, #units .paths button").all():
            number, bar = row.locator("strong"), row.locator(".bar")
            negative = number.text_content().startswith("−")
            if number.text_content() != "0":
                seen.add(negative)
                assert ("against" in number.get_attribute("class")) == negative
                assert ("minus" in bar.get_attribute("class")) == negative
    assert seen == {True, False}
    assert all(
        re.fullmatch(r"0|[+−]\d+\.\d\d", text) for text in page.locator("#units strong").all_text_contents()
    )
    assert re.search(r"margin of no is [+−]", page.locator("#verdict").text_content())
    colour = "e => getComputedStyle(e).backgroundImage.match(/rgb\\([^)]*\\)/)[0]"
    green = page.locator("#units .bar:not(.minus)").first.evaluate(colour)
    page.click("#tab-score")
    assert page.locator("#paths .bar").first.evaluate(colour) == green


@pytest.mark.parametrize("width", [1280, 400])
def test_labels_and_bars_of_explain_are_level(visit: Callable[..., Any], width: int) -> None:
    """Bars of units and of their paths begin at one line, as bold digits are wider than others."""
    page = visit("explain", viewport={"width": width, "height": 800})
    page.locator("#units .bar").first.wait_for()
    left = {round(bar.bounding_box()["x"]) for bar in page.locator("#units .bar").all()}
    assert len(left) == 1
    tops = {round(page.locator(f"label[for={name}]").bounding_box()["y"]) for name in ("run", "sentence")}
    assert len(tops) == (1 if width == 1280 else 2)


def test_keyboard(visit: Callable[..., Any]) -> None:
    page = visit()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "tab-design"
    for key, panel in (
        ("ArrowRight", "score"),
        ("End", "explain"),
        ("ArrowRight", "design"),
        ("ArrowLeft", "explain"),
        ("Home", "design"),
    ):
        page.keyboard.press(key)
        assert page.evaluate("document.activeElement.id") == f"tab-{panel}"
        assert [name for name in PANELS if page.locator(f"#panel-{name}").is_visible()] == [panel]
        assert page.locator(".top [aria-selected=true]").get_attribute("id") == f"tab-{panel}"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    page.keyboard.press("Tab")  # one stop for all tabs: on to the example
    assert page.evaluate("document.activeElement.id") == "example"


def test_the_address_chooses_the_tab(visit: Callable[..., Any]) -> None:
    page = visit()
    for go, panel in (
        (lambda: page.evaluate("location.hash = '#explain'"), "explain"),
        (lambda: page.evaluate("location.hash = '#score'"), "score"),
        (page.go_back, "explain"),
        (page.go_forward, "score"),
        (lambda: page.evaluate("document.querySelector('.skip').click()"), "score"),  # #main is no tab
    ):
        go()
        expect(page.locator(f"#panel-{panel}")).to_be_visible()
        assert page.locator(".top [aria-selected=true]").get_attribute("id") == f"tab-{panel}"
        assert page.title().lower().startswith(panel)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_both_schemes_and_widths(visit: Callable[..., Any], scheme: str, width: int) -> None:
    page = visit(viewport={"width": width, "height": 800}, color_scheme=scheme)
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every(v => v < 60)")
    assert dark == (scheme == "dark")
    for panel in PANELS:
        page.click(f"#tab-{panel}")
        page.wait_for_selector(f"#panel-{panel} .stage svg")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, panel
        assert page.evaluate(FAINT) == [], panel
        assert page.evaluate(NAMELESS) == [], panel
    # the longest number that is written out does not reach into the path beside it
    number = page.locator("#units .paths strong").first
    beside = "e => { e.textContent = '−12345.67'; return e.scrollWidth <= e.clientWidth; }"
    assert number.evaluate(beside)
    # no picture is cut off: what does not fit can be scrolled to
    page.click("#tab-design")
    page.select_option("#example", "SoPa4")
    expect(page.locator("#cell-stage svg title")).to_contain_text("SoPa4")
    left = "e => e.querySelector('svg').getBoundingClientRect().left - e.getBoundingClientRect().left"
    frame = page.locator("#cell-stage .picture")
    assert frame.evaluate(left) >= 0 and frame.get_attribute("tabindex") == ("0" if width == 400 else None)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # the picture is drawn in the scheme of the page, on the colour of its card
    colour = "e => getComputedStyle(e)[e.matches('.paper') ? 'fill' : 'backgroundColor']"
    colours = [page.locator(name).evaluate(colour) for name in ("#cell-stage .paper", "#cell-stage")]
    assert colours[0] == colours[1]


def test_less_motion(visit: Callable[..., Any]) -> None:
    def duration(page: Any) -> str:
        return page.evaluate(
            "getComputedStyle(document.querySelector('#forward td span')).transitionDuration"
        )

    assert duration(visit("score", reduced_motion="no-preference")) != "0s"
    assert duration(visit("score", reduced_motion="reduce")) == "0s"


def test_landmarks_and_live_regions(visit: Callable[..., Any]) -> None:
    page = visit()
    assert [page.locator(name).count() for name in ("header", "main", "footer", "h1")] == [1, 1, 1, 1]
    assert page.locator("#cell-problem").get_attribute("role") == "alert"
    assert page.locator("#cell-caption").get_attribute("role") == "status"
    assert page.locator("html").get_attribute("lang") == "en"
    picture = page.locator("#cell-stage svg")
    assert (
        picture.get_attribute("role") == "img"
        and "state q₀, initial" in picture.locator("desc").text_content()
    )
