"""How the page looks: in windows of all widths, in both themes, from right to left; and its use by keyboard alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote

from browser import does_not_scroll_sideways, wait_for_transitions
from the_page import CONTRAST, Opener, browser, folder, ids, one_window, open_page, page, url, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

# The keyboard


def test_all_of_it_by_keyboard(page: Page) -> None:
    page.goto("?q=nothing+here")
    page.locator(".empty").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("pointing dog")
    page.keyboard.press("Enter")
    page.locator(".hit").first.wait_for()
    page.keyboard.press("ArrowDown")
    focused = "document.activeElement.closest('.hit')?.dataset.id"
    assert page.evaluate(focused) == ids(page)[0]
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert page.evaluate(focused) == ids(page)[1]
    page.keyboard.press("e")
    page.locator(".why-box .term").first.wait_for()
    page.keyboard.press("Enter")
    page.locator(".doc-title").wait_for()
    opened_first = page.locator(".doc-title").inner_text()
    page.keyboard.press("j")
    page.wait_for_function("old => document.querySelector('.doc-title')?.innerText !== old", arg=opened_first)
    page.keyboard.press("Escape")
    page.keyboard.press("]")
    wait_for(page, "11–20")
    page.keyboard.press("c")
    page.locator(".column.b .hit").first.wait_for()
    page.keyboard.press("j")
    page.keyboard.press("l")
    assert page.evaluate("document.activeElement.closest('.hit').dataset.side") == "b"
    page.keyboard.press("c")
    page.locator(".columns").wait_for(state="detached")
    page.keyboard.press("?")
    assert page.locator("#guide").get_by_text("compare two models").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("t")
    assert page.get_attribute("html", "data-theme") == "dark"
    page.keyboard.press("/")
    page.keyboard.type("jet")
    assert page.input_value("#query") == "jet", "letters typed into a field are letters"


def test_focus_is_visible_and_the_landmarks_are_there(page: Page) -> None:
    page.goto("?q=dog")
    wait_for(page, "36 results")
    for role in ("banner", "search", "main", "complementary", "contentinfo"):
        assert page.get_by_role(role).count() >= 1, role
    assert page.locator("#count").get_attribute("aria-live") == "polite"
    for _ in range(12):
        page.keyboard.press("Tab")
        outlined = page.evaluate(
            "(e => getComputedStyle(e).outlineStyle !== 'none' || e.matches('.search *'))(document.activeElement)"
        )
        assert outlined, page.evaluate("document.activeElement.outerHTML.slice(0, 200)")
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, input, select, a')].filter(e => e.offsetParent && "
        "!(e.innerText.trim() || e.title || e.ariaLabel || e.labels?.length)).map(e => e.outerHTML)"
    )
    assert unnamed == []


# How it looks


VIEWS = {
    "/": ".shelf",
    "?q=pointing+vizsla+quokka&f=group%3D%22gundog%22": ".facet-value",
    "?q=pointing+dog&compare=1&b.model=bm25": ".column.b .hit",
    "?q=dog&doc=d3": ".doc-title",
    "docs": "article",
}


def views(page: Page) -> Iterator[str]:
    """The views of the page, one after the other, with an explanation open where there can be one."""
    for address, shown in VIEWS.items():
        page.goto(address)
        page.locator(shown).first.wait_for(state="attached")
        if page.locator(".why").count():
            page.locator(".why").first.dispatch_event("click")
            page.locator(".why-box .term").first.wait_for(state="attached")
        yield address


def test_no_width_scrolls_sideways(page: Page) -> None:
    for address in views(page):
        for width in (360, 768, 1280, 2560):
            page.set_viewport_size({"width": width, "height": 800})
            assert does_not_scroll_sideways(page), (address, width)


def is_in_view(node: Locator) -> bool:
    """Whether all of a node is in the window, and nothing lies over its middle."""
    return bool(
        node.evaluate(
            "e => { const r = e.getBoundingClientRect();"
            " return r.top >= 0 && r.bottom <= innerHeight && r.left >= 0 && r.right <= innerWidth"
            " && e.contains(document.elementFromPoint((r.left + r.right) / 2, (r.top + r.bottom) / 2)); }"
        )
    )


def test_on_a_phone_columns_are_tabs_and_filters_a_sheet(open_page: Opener) -> None:
    with open_page(viewport={"width": 390, "height": 800}, has_touch=True) as page:
        page.goto("?q=pointing+dog&compare=1&b.model=bm25")
        page.locator(".column.a .hit").first.wait_for()
        assert page.locator(".column.b .hit").first.is_hidden()
        page.get_by_role("tab", name="Model B").tap()
        assert page.locator(".column.b .hit").first.is_visible()
        assert page.locator(".column.a .hit").first.is_hidden()
        page.locator("#filters").tap()
        page.locator(".facet-value", has_text="terrier").tap()
        page.get_by_role("button", name="Close the filters").tap()
        page.locator(".active-chip").get_by_text("group: terrier").wait_for()
        small = page.evaluate(
            "[...document.querySelectorAll('.tools button, .actions button')].filter(e => e.offsetParent && "
            "e.getBoundingClientRect().height < 36).map(e => e.outerHTML)"
        )
        assert small == []


def test_on_a_phone_the_model_can_be_read(open_page: Opener) -> None:
    model = "bm25(k1=1.25, b=0.625) + 0.25 * bm25(fields=title, namespace=titles)"
    with open_page(viewport={"width": 360, "height": 800}, has_touch=True) as page:
        page.goto(f"?q=pointing+dog&model={quote(model)}")
        buttons = page.locator("#controls .button")
        buttons.first.wait_for()
        boxes = [box for box in (button.bounding_box() for button in buttons.all()) if box is not None]
        assert len(boxes) == 5
        assert all(box["width"] >= 80 for box in boxes)
        for i, a in enumerate(boxes):
            for b in boxes[:i]:  # none lies over another
                assert a["x"] >= b["x"] + b["width"] or a["y"] >= b["y"] + b["height"]
        name = page.locator(".picker .mono")
        assert name.inner_text() == model
        assert name.evaluate("e => e.scrollWidth <= e.clientWidth && e.scrollHeight <= e.clientHeight")


def test_in_a_narrow_window_the_condition_is_there_as_soon_as_the_filters_are(open_page: Opener) -> None:
    with open_page(viewport={"width": 900, "height": 500}) as page:
        page.goto("?q=dog")
        page.locator("#filters").click()
        page.locator(".facet-value").last.wait_for()
        assert is_in_view(page.locator("#where"))
        page.locator("#count").dispatch_event("pointerdown")  # elsewhere
        page.locator("#where").wait_for(state="hidden")


def test_a_title_from_right_to_left_begins_where_its_text_does(page: Page) -> None:
    page.goto("?index=mixed&q=كلب")
    hit = page.locator(".hit").first
    hit.wait_for()
    ends = hit.locator("h3, .snippet").evaluate_all("all => all.map((e) => e.getBoundingClientRect().right)")
    assert len(ends) == 2
    assert abs(ends[0] - ends[1]) < 1
    assert hit.locator(".score").evaluate("e => e.getBoundingClientRect().left") < 600, "the score is at the other end"
    page.fill("#query", "dog")
    wait_for(page, "A dog that points", "#results")
    starts = hit.locator("h3, .snippet").evaluate_all("all => all.map((e) => e.getBoundingClientRect().left)")
    assert abs(starts[0] - starts[1]) < 1


def test_texts_have_contrast_in_both_themes(page: Page) -> None:
    for address in views(page):
        for theme, paper in (("light", "rgb(251, 250, 247)"), ("dark", "rgb(21, 18, 16)")):
            page.emulate_media(color_scheme=theme)
            page.wait_for_function("paper => getComputedStyle(document.body).backgroundColor === paper", arg=paper)
            wait_for_transitions(page)
            assert page.evaluate(CONTRAST) == [], (address, theme)


def test_the_theme_is_kept(page: Page) -> None:
    page.goto("?q=dog")
    page.locator("#theme").click()
    assert page.get_attribute("html", "data-theme") == "dark"
    page.reload()
    assert page.get_attribute("html", "data-theme") == "dark"
    page.locator("#theme").click()
    assert page.get_attribute("html", "data-theme") == "light"
