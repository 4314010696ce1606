"""The page: a document over the results or beside them, and judging."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from browser import opened
from served import build, served
from the_page import (
    DOCUMENTS,
    PETS,
    SLOW,
    Opener,
    browser,
    folder,
    ids,
    look_for,
    one_window,
    open_page,
    page,
    url,
    wait_for,
)
from vizsla.server.settings import Keys
from waiting import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

# A document


def test_a_document_opens_with_all_its_fields(page: Page) -> None:
    page.goto("?q=pointing")
    title = page.locator(".title").first
    title.click()
    panel = page.locator("#panel")
    panel.locator(".doc-title").wait_for()
    assert panel.locator(".doc-title").inner_text() == title.inner_text()
    assert panel.locator(".facts a").get_attribute("rel") == "noopener noreferrer"
    assert {"id", "year", "group", "site"} <= set(panel.locator("dt").all_inner_texts())
    assert "pointing" in panel.locator("mark").all_inner_texts()
    page.keyboard.press("Escape")
    panel.wait_for(state="hidden")
    assert page.evaluate("document.activeElement.className") == "title"


def test_similar_documents(page: Page) -> None:
    page.goto("?q=vizsla&doc=d6")
    page.get_by_role("button", name="Similar documents").click()
    page.locator(".active-chip").get_by_text("similar to d6").wait_for()
    eventually(lambda: bool(ids(page)) and "d6" not in ids(page))
    assert "vizsla" in page.locator(".title").first.inner_text()


# Beside the list


WIDE = {"width": 1920, "height": 900}


def shown_beside(page: Page, doc: str) -> None:
    """Wait until the panel has this document, and the list says so."""
    page.wait_for_function(
        "id => document.querySelector('#panel .facts dd')?.innerText === id"
        " && document.querySelector('#panel article').ariaBusy === 'false'",
        arg=doc,
    )
    assert {hit.get_attribute("data-id") for hit in page.locator(".hit.shown").all()} == {doc}
    assert page.locator(".title[aria-current=true]").first.inner_text() == page.inner_text("#panel .doc-title")


def test_a_wide_window_shows_a_document_beside_the_list(open_page: Opener) -> None:
    with open_page(viewport=WIDE) as page:
        page.goto("?q=pointing+dog")
        page.locator(".hit").first.wait_for()
        first, second, third = ids(page)[:3]
        shown_beside(page, first)
        assert "doc=" not in page.url
        assert page.evaluate("document.activeElement.closest('#panel')") is None, "it does not take the focus"
        list_, panel = page.locator("#results").bounding_box(), page.locator("#panel").bounding_box()
        assert list_ is not None
        assert panel is not None
        assert list_["x"] + list_["width"] < panel["x"]
        assert panel["x"] + panel["width"] > 0.95 * WIDE["width"], "the right side is used"
        assert {"pointing"} <= set(page.locator("#panel mark").all_inner_texts())
        page.fill("#query", "beagle")
        page.keyboard.press("Enter")
        page.wait_for_function("() => document.querySelector('.title').textContent.includes('beagle')")
        shown_beside(page, ids(page)[0])
        assert page.evaluate("document.activeElement.id") == "query"
        page.fill("#query", "quokka")
        page.keyboard.press("Enter")
        wait_for(page, "Nothing found.")
        page.locator("#panel").wait_for(state="hidden")
        assert page.evaluate("document.activeElement.id") == "query"
        assert {first, second, third} <= {str(d["id"]) for d in DOCUMENTS}


def test_beside_the_list_keys_and_history_work(open_page: Opener) -> None:
    with open_page(viewport=WIDE) as page:
        page.goto("/")
        look_for(page, "pointing dog")
        first, second, third = ids(page)[:3]
        shown_beside(page, first)
        steps = page.evaluate("history.length")
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement.tagName") == "BODY", "Escape leaves the field; the document stays"
        for doc in (first, second, third):
            page.keyboard.press("j")
            shown_beside(page, doc)
        page.keyboard.press("k")
        shown_beside(page, second)
        assert page.evaluate("history.length") == steps, "what is only looked at is no step back"
        page.keyboard.press("1")
        page.get_by_text("Judged relevant").wait_for()
        assert page.locator("#panel .scale [aria-pressed=true]").inner_text().split() == ["1", "relevant"]
        page.keyboard.press("x")
        page.get_by_text("Judgement taken back").wait_for()
        page.keyboard.press("Enter")
        page.wait_for_url(f"**doc={second}")
        assert page.evaluate("document.activeElement.id") == "panel", "what is opened is read with the arrows"
        shown_beside(page, second)
        page.keyboard.press("j")
        page.wait_for_url(f"**doc={third}")
        shown_beside(page, third)
        page.go_back()
        page.wait_for_function("() => !location.search.includes('doc=')")
        page.wait_for_function("() => document.querySelector('#panel').dataset.kind === 'beside'")
        shown_beside(page, third)
        page.go_forward()
        page.wait_for_function("() => document.querySelector('#panel').dataset.kind === 'document'")
        page.keyboard.press("Escape")
        page.wait_for_function("() => document.querySelector('#panel').dataset.kind === 'beside'")
        page.keyboard.press("m")
        page.locator("#panel").get_by_role("heading", name="Judgements").wait_for()
        page.keyboard.press("Escape")
        page.wait_for_function("() => document.querySelector('#panel').dataset.kind === 'beside'")
        page.keyboard.press("c")
        page.locator(".column.b .hit").first.wait_for()
        assert page.locator("#panel").is_hidden(), "two models need the room"
        page.keyboard.press("c")
        page.locator(".columns").wait_for(state="detached")
        page.locator("#panel .doc-title").wait_for()


def test_beside_the_list_is_no_place_that_must_be_used(open_page: Opener) -> None:
    with open_page(viewport=WIDE) as page:
        page.goto("?q=pointing+dog")
        page.locator("#panel .doc-title").wait_for()
        page.set_viewport_size({"width": 1280, "height": 900})
        page.locator("#panel").wait_for(state="hidden")
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.wait_for_timeout(200)
        assert page.locator("#panel").is_hidden()
        page.set_viewport_size(WIDE)
        page.locator("#panel .doc-title").wait_for()
        page.locator("#panel").get_by_role("button", name="Close").click()
        page.locator("#panel").wait_for(state="hidden")
        assert page.locator(".hit.shown").count() == 0
        page.keyboard.press("j")
        page.wait_for_timeout(200)
        assert page.locator("#panel").is_hidden(), "it was closed"
        page.locator(".title").nth(2).click()
        page.locator("#panel .doc-title").wait_for()
        page.keyboard.press("Escape")
        page.locator("#panel").wait_for(state="hidden")


# Judging


def test_judging_ends_in_a_number(page: Page, open_page: Opener, tmp_path: Path) -> None:
    page.goto("?q=pointing+beagle&compare=1&b.model=bm25")
    page.locator(".column.b .hit").first.wait_for()
    first, second, third = ids(page, ".column.a")[:3]
    page.locator(".column.a .hit").nth(0).get_by_role("button", name="Relevant", exact=True).click()
    page.locator(".column.a .title").nth(1).focus()
    page.keyboard.press("0")
    page.keyboard.press("j")
    page.keyboard.press("3")
    page.get_by_text("Judged perfect").wait_for()
    assert page.locator(f"[data-judge={third}]").first.inner_text() == "3"
    page.reload()
    up = page.locator(f".column.a [data-judge={first}] .thumb").first
    page.wait_for_function(
        "id => document.querySelector(`[data-judge=${id}] .thumb`)?.ariaPressed === 'true'", arg=first
    )
    assert up.get_attribute("aria-pressed") == "true"
    page.keyboard.press("m")
    panel = page.locator("#panel")
    panel.locator("tbody tr").first.wait_for()
    assert panel.locator("tbody").first.locator("th").all_inner_texts() == ["nDCG@10", "P@5", "R@10", "RR"]
    assert "are not judged" in panel.inner_text()
    assert panel.locator(".judged").get_by_text("pointing beagle").is_visible()
    with page.expect_download() as download:
        panel.get_by_role("button", name="Export qrels").click()
    download.value.save_as(tmp_path / "qrels")
    lines = [line.split() for line in (tmp_path / "qrels").read_text().splitlines()]
    assert {(line[2], line[3]) for line in lines} == {(first, "1"), (second, "0"), (third, "3")}
    with page.expect_download() as download:
        panel.get_by_role("button", name="Export queries").click()
    download.value.save_as(tmp_path / "queries")
    assert "pointing beagle" in (tmp_path / "queries").read_text()
    with open_page() as other:
        other.goto("?q=dog&judgements=1")
        other.locator("#panel").get_by_text("2 relevant of 3").click()
        other.wait_for_function("() => document.querySelector('#query').value === 'pointing beagle'")
    page.keyboard.press("Escape")
    page.locator(".column.a .title").first.focus()
    page.keyboard.press("x")
    page.get_by_text("Judgement taken back").wait_for()
    assert up.get_attribute("aria-pressed") == "false"


def test_all_four_grades_in_the_document(page: Page) -> None:
    page.goto("?q=spaniel&doc=d3")
    page.get_by_role("button", name="2 very relevant").click()
    page.get_by_text("Judged very relevant").wait_for()
    assert page.locator(".scale [aria-pressed=true]").inner_text().split() == ["2", "very", "relevant"]
    page.keyboard.press("x")
    page.get_by_text("Judgement taken back").wait_for()


def test_a_judgement_outlives_an_older_answer(page: Page) -> None:
    """Grades that were asked for before a judgement, and come after it, do not take it away."""
    waiting: list[Route] = []
    page.route(re.compile(r"/judgements\?"), lambda route: waiting.append(route))
    page.goto("?q=spaniel&doc=d4")
    page.get_by_role("button", name="3 perfect").click()
    page.get_by_text("Judged perfect").wait_for()
    for route in waiting:
        route.fulfill(json={"query": "spaniel", "grades": {}})
    page.wait_for_timeout(300)
    assert waiting
    assert page.locator(".scale [aria-pressed=true]").inner_text().split() == ["3", "perfect"]
    page.keyboard.press("x")
    page.get_by_text("Judgement taken back").wait_for()


READ, JUDGE = "a-key-for-reading", "a-key-for-judging"


def test_who_may_not_judge_has_no_buttons(browser: Browser, tmp_path: Path) -> None:
    folder = build(tmp_path / "x.index", PETS)
    keys = Keys(read=(READ,), judge=(JUDGE,))
    with served({"x": folder}, keys=keys, limits=SLOW) as client:
        for key, buttons in ((READ, 0), (JUDGE, 6)):
            with opened(browser, client.url + "/") as page:
                page.goto("?q=dogs")
                page.locator("#key").wait_for()
                page.keyboard.type(key)
                page.keyboard.press("Enter")
                page.locator(".hit").nth(2).wait_for()
                assert page.locator(".thumb").count() == buttons
                assert page.locator("#judging").is_visible()  # what was judged can be read


def test_a_key_is_asked_for_when_somebody_judges(browser: Browser, tmp_path: Path) -> None:
    folder = build(tmp_path / "x.index", PETS)
    with (
        served({"x": folder}, keys=Keys(judge=(JUDGE,)), limits=SLOW) as client,
        opened(browser, client.url + "/") as page,
    ):
        page.goto("?q=dogs")
        thumb = page.locator(".hit").first.get_by_role("button", name="Relevant", exact=True)
        thumb.click()
        page.get_by_text("Judging needs a key").wait_for()
        page.keyboard.press("Escape")
        page.get_by_text("Nothing was changed: this needs a key.").wait_for()
        assert thumb.get_attribute("aria-pressed") == "false"
        thumb.click()
        page.get_by_text("Judging needs a key").wait_for()
        page.keyboard.type("a-key-that-is-wrong")
        page.keyboard.press("Enter")
        page.get_by_text("That key was not accepted").wait_for()
        page.keyboard.type(JUDGE)
        page.keyboard.press("Enter")
        page.get_by_text("Judged relevant").wait_for()
        assert len(client.get("/v1/x/judgements").data["queries"]) == 1
