"""The page, driven by a real browser against a real server: searching, the address, and what goes wrong."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from browser import does_not_scroll_sideways, opened
from served import build, served
from the_page import (
    ATTACK,
    DOCUMENTS,
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

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, Request, Route

PAGE = resources.files("vizsla.server").joinpath("page")


def lines_of(node: Locator) -> int:
    """In how many lines the text of a node is."""
    return int(
        node.evaluate(
            "e => { const r = document.createRange(); r.selectNodeContents(e);"
            " return new Set([...r.getClientRects()].map((line) => Math.round(line.top))).size; }"
        )
    )


# What it is made of


def test_the_page_is_small_and_asks_no_foreign_host() -> None:
    files = [f for f in PAGE.iterdir() if f.is_file()]
    # neither compressed nor minified, so that a browser shows them as they were written
    assert sum(len(f.read_bytes()) for f in files) < 120_000
    for file in files:
        text = file.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://\w", text), file.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            file.name
        )
        if file.name.endswith(".html"):
            assert not re.search(r'\sstyle=|\son\w+="|<script>|<style', text), file.name


# Searching


def test_first_visit(page: Page) -> None:
    page.goto("/")
    wait_for(page, "36 documents")
    assert page.locator(".card").count() == 3
    assert page.locator("#scope svg").is_visible(), "the list of indexes looks like one"
    assert page.evaluate("document.activeElement.id") == "query"
    assert page.get_attribute("#query", "placeholder") == "Search 36 documents"
    page.locator(".try").get_by_role("button", name="vizsla").click()
    wait_for(page, "6 results")


def test_what_is_typed_before_the_server_answers_is_kept(page: Page) -> None:
    waiting: list[Route] = []
    page.route("**/v1/indexes", lambda route: waiting.append(route))
    with page.expect_request("**/v1/indexes"):
        page.goto("/", wait_until="domcontentloaded")
    page.locator("#query").press_sequentially("pointin")
    with page.expect_response("**/v1/indexes"):
        waiting[0].continue_()
    page.locator("#query").press_sequentially("g dog", delay=20)
    wait_for(page, "results", "#count")
    assert page.input_value("#query") == "pointing dog"


def test_typing_finds_while_typing_and_marks_words(page: Page) -> None:
    page.goto("/")
    page.locator("#query").press_sequentially("pointing vizsla", delay=10)
    matching = sum("pointing" in d["text"] or "vizsla" in d["text"] for d in DOCUMENTS)
    wait_for(page, f"1–10 of {matching} results")  # a part of the query may have been searched before
    first = page.locator(".hit").first
    assert "vizsla" in first.locator(".title").inner_text()
    assert "pointing" in [mark.inner_text() for mark in first.locator(".snippet mark").all()]
    assert re.search(r"\d ms", page.inner_text("#count"))
    assert first.locator(".meter i").evaluate("e => e.style.width") == "100%"


def test_a_half_typed_word_is_found_until_the_query_is_sent(page: Page) -> None:
    page.goto("/")
    page.locator("#query").press_sequentially("spani", delay=10)
    wait_for(page, "6 results")
    assert "spaniel" in [mark.inner_text() for mark in page.locator(".hit").first.locator("mark").all()]
    page.fill("#query", "spani ")
    wait_for(page, "No results")
    page.fill("#query", "spani")
    wait_for(page, "6 results")
    page.keyboard.press("Enter")
    wait_for(page, "No results")
    assert page.inner_text("#spelling") == ""


def test_a_misspelt_query_is_corrected_and_the_page_says_so(page: Page) -> None:
    page.goto("?q=spaneil")
    wait_for(page, "6 results")
    assert page.inner_text("#spelling") == "Showing results for spaniel. Search instead for spaneil."
    page.locator(".hit").first.get_by_role("button", name="Why").click()
    wait_for(page, "spaniel", ".why-box")
    page.get_by_role("link", name="spaneil").click()
    wait_for(page, "No results")
    assert page.inner_text("#spelling") == "Did you mean spaniel?"
    assert page.input_value("#query") == "spaneil"
    page.reload()
    wait_for(page, "No results")
    page.get_by_role("link", name="spaniel").click()
    wait_for(page, "6 results")
    assert page.input_value("#query") == "spaniel"
    assert page.inner_text("#spelling") == ""
    page.go_back()
    wait_for(page, "Did you mean spaniel?")
    page.fill("#query", "spaniel poniting")
    page.keyboard.press("Enter")
    wait_for(page, "Showing results for spaniel pointing.")


def test_what_is_said_of_a_spelling_is_text(page: Page) -> None:
    page.goto("/")
    page.fill("#query", f"spaneil {ATTACK}")
    page.keyboard.press("Enter")
    wait_for(page, "Search instead for", "#spelling")
    assert ATTACK in page.inner_text("#spelling")
    assert page.locator("#spelling img, #spelling script").count() == 0
    assert does_not_scroll_sideways(page)


def test_suggestions_complete_the_word(page: Page) -> None:
    page.goto("/")
    query = page.locator("#query")
    query.press_sequentially("a vizs", delay=10)
    page.locator("#suggestions [role=option]").first.wait_for()
    assert query.get_attribute("aria-expanded") == "true"
    page.keyboard.press("ArrowDown")
    chosen = page.locator("#suggestions [aria-selected=true]")
    assert query.get_attribute("aria-activedescendant") == chosen.get_attribute("id")
    page.keyboard.press("Enter")
    assert query.input_value() == "a vizsla "
    assert page.locator("#suggestions").is_hidden()
    query.press_sequentially("poi", delay=10)
    page.locator("#suggestions [role=option]").first.wait_for()
    page.keyboard.press("Escape")
    assert page.locator("#suggestions").is_hidden()
    assert query.input_value() == "a vizsla poi"
    query.press_sequentially("n", delay=10)
    page.locator("#suggestions [role=option]").first.wait_for()
    page.keyboard.press("Tab")
    assert query.input_value().startswith("a vizsla point")


def test_an_answer_that_comes_late_is_dropped(page: Page) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        if (route.request.post_data_json or {}).get("query") == "beagle":
            held.append(route)
        else:
            route.continue_()

    page.route("**/search", hold)
    page.goto("?q=dog")
    wait_for(page, "1–10", "#count")
    page.fill("#query", "beagle")
    page.wait_for_function("() => document.body.matches('.slow')")
    assert page.locator(".hit").count() == 10, "the results before stay while it is slow"
    page.fill("#query", "spaniel")
    page.wait_for_function("() => document.querySelector('.title').textContent.includes('spaniel')")
    for route in held:
        route.continue_()
    page.wait_for_timeout(300)
    assert "spaniel" in page.locator(".title").first.inner_text()
    assert page.evaluate("!document.body.matches('.slow')")


def test_paging(page: Page) -> None:
    page.goto("?q=dog")
    wait_for(page, "1–10 of 36 results")
    first = ids(page)
    page.get_by_role("link", name="Next").click()
    wait_for(page, "11–20 of 36 results")
    assert len(first) == 10
    assert not set(first) & set(ids(page))
    assert page.locator(".rank").first.inner_text() == "11"
    page.keyboard.press("]")
    wait_for(page, "21–30 of 36 results")
    page.keyboard.press("]")
    wait_for(page, "31–36 of 36 results")
    assert page.locator("#page-next").count() == 0
    page.get_by_role("link", name="Previous").click()
    wait_for(page, "21–30 of 36 results")
    with page.context.expect_page() as other:
        page.locator("#page-next").click(modifiers=["Control"])
    wait_for(other.value, "31–36 of 36 results")
    assert "page=3" in page.url
    page.keyboard.press("[")
    wait_for(page, "11–20 of 36 results")


def test_a_field_with_an_odd_name_is_shown_by_its_name(page: Page) -> None:
    page.goto("?index=mixed&q=dog")
    page.locator(".facet legend", has_text="open access").wait_for()
    assert "open access" in page.locator(".facet legend").all_inner_texts()
    page.locator(".chip", has_text="open access").first.get_by_role("button", name="yes").click()
    wait_for(page, "3 results")
    assert page.inner_text(".active-chip") == "open access: yes"
    assert page.locator(".facet-value[aria-pressed=true]").inner_text().split() == ["yes", "3"]


def test_a_text_without_a_title_is_not_shown_twice(browser: Browser, tmp_path: Path) -> None:
    text = "A dog without a title points at birds and waits for the hunter who comes with a gun, a bag and a hat. " * 9
    build(tmp_path / "untitled", [{"id": "1", "text": text}])
    with served({"untitled": tmp_path / "untitled"}, judging=False) as server, opened(browser, server.url) as page:
        page.goto("?q=dogs")
        title = page.locator(".title")
        title.wait_for()
        assert (
            title.inner_text()
            == "A dog without a title points at birds and waits for the hunter who comes with a gun, a bag and a …"
        )


def test_a_path_that_is_the_id_is_shown_once(page: Page) -> None:
    page.goto("?q=pointing+dog")
    page.locator(".hit").first.wait_for()
    assert "group" in page.locator(".hit").first.inner_text()
    assert page.locator(".hit .chip", has_text="path").count() == 0


# The address


def test_a_link_restores_everything_and_back_works(page: Page, open_page: Opener) -> None:
    page.goto("/")
    look_for(page, "pointing dog")
    page.locator(".facet-value", has_text="gundog").click()
    wait_for(page, "of 12 results")
    page.locator("#page-next").click()
    wait_for(page, "11–12 of 12 results")
    page.locator("#compare").click()
    page.locator(".column.b .hit").first.wait_for()
    page.locator(".column.a .title").first.click()
    page.locator(".doc-title").wait_for()
    with open_page() as other:
        other.goto(page.url)
        other.locator(".doc-title").wait_for()
        assert other.input_value("#query") == "pointing dog"
        assert other.locator(".doc-title").inner_text() == page.locator(".doc-title").inner_text()
        assert ids(other, ".column.a") == ids(page, ".column.a")
        assert ids(other, ".column.b") == ids(page, ".column.b")
        assert other.locator(".active-chip").inner_text() == "group: gundog"
    page.go_back()
    page.locator("#panel").wait_for(state="hidden")
    page.go_back()
    page.locator(".columns").wait_for(state="detached")
    wait_for(page, "11–12 of 12 results")
    page.go_back()
    wait_for(page, "1–10 of 12 results")
    page.go_back()
    wait_for(page, "1–10 of 36 results")
    page.go_back()
    page.locator(".shelf").wait_for()
    assert page.input_value("#query") == ""
    page.go_forward()
    wait_for(page, "1–10 of 36 results")
    assert page.input_value("#query") == "pointing dog"


def test_a_pause_while_typing_is_no_step_of_its_own(page: Page) -> None:
    page.goto("/")
    page.locator("#query").press_sequentially("point")
    page.wait_for_url("**?q=point")
    page.locator("#query").press_sequentially("ing dog")
    page.keyboard.press("Enter")
    wait_for(page, "1–10 of 36 results")
    page.go_back()
    page.locator(".shelf").wait_for()


def test_the_other_index(page: Page) -> None:
    page.goto("?q=attack")
    wait_for(page, "Nothing found.")
    assert "“attack” is in no document." in wait_for(page, "is in no document").inner_text()
    page.select_option("#index", "hostile")
    page.locator(".hit").first.wait_for()
    assert "index=hostile" in page.url


# When things go wrong


def test_no_results_says_why_and_offers_a_way_out(page: Page) -> None:
    page.goto("?q=quokka+wombat&f=group%3D%22gundog%22")
    wait_for(page, "Nothing found.")
    assert wait_for(page, "in no document").inner_text() == "“quokka”, “wombat” are in no document."
    page.get_by_role("button", name="Search without filters").click()
    page.locator(".active-chip").wait_for(state="detached")
    page.goto("?q=dog&page=9")
    wait_for(page, "No more results.")
    page.get_by_role("button", name="Back to the first page").click()
    wait_for(page, "1–10")


def test_a_refusal_is_shown_in_the_servers_words_and_can_be_tried_again(page: Page) -> None:
    refuse = lambda route: route.fulfill(status=503, json={"error": "the index is being replaced, ask again"})  # noqa: E731
    page.goto("?q=dog")
    wait_for(page, "36 results")
    page.route("**/search", refuse)
    page.fill("#query", "beagle")
    wait_for(page, "The index is being replaced, ask again.")
    assert page.locator(".hit").count() == 10, "the results before stay"
    page.unroute("**/search")
    page.locator("#retry").click()
    page.wait_for_function("() => document.querySelector('.title').textContent.includes('beagle')")
    assert page.locator(".notice").count() == 0


def test_a_server_that_is_gone_and_comes_back(browser: Browser, folder: Path) -> None:
    indexes = {"dogs": folder / "dogs"}
    with opened(browser, "http://127.0.0.1/") as page:
        with served(indexes, judging=False) as client:
            page.goto(client.url + "/?q=dog")
            wait_for(page, "36 results")
        page.fill("#query", "beagle")
        wait_for(page, "Cannot reach the server.")
        assert page.locator(".hit").count() == 10
        port = int(client.url.rpartition(":")[2])
        with served(indexes, port=port, judging=False):
            page.wait_for_function("() => document.querySelector('.title').textContent.includes('beagle')")
            assert page.locator(".notice").count() == 0


def test_a_key_is_asked_for(browser: Browser, folder: Path) -> None:
    keys = Keys(read=("secret",))
    with (
        served({"dogs": folder / "dogs"}, keys=keys, judging=False) as client,
        opened(browser, client.url + "/") as page,
    ):
        page.goto("?q=dog")
        dialog = page.locator("#key")
        dialog.wait_for()
        assert lines_of(dialog.get_by_role("button", name="Continue")) == 1
        page.keyboard.type("wrong")
        page.keyboard.press("Enter")
        dialog.get_by_text("That key was not accepted").wait_for()
        page.keyboard.type("secret")
        page.keyboard.press("Enter")
        wait_for(page, "36 results")
        page.reload()
        wait_for(page, "36 results")
        assert "secret" not in page.url


# Hostile documents and queries


def test_nothing_in_a_document_or_a_query_runs(page: Page) -> None:
    requests: list[Request] = []
    page.on("request", lambda request: requests.append(request))
    page.goto("?index=hostile&q=attack")
    page.locator(".hit").nth(4).wait_for()
    assert page.locator("#results script, #results img, #results b").count() == 0
    assert does_not_scroll_sideways(page)
    assert page.locator("#results a:not(.title)").count() == 0, "neither javascript: nor data: is a link"
    for hit in page.locator(".hit").all():
        hit.locator(".why").click()
        hit.locator(".why-box .term").first.wait_for()
        hit.locator(".title").click()
        page.wait_for_function("() => document.querySelector('#panel .facts')")
        assert page.locator("#panel script, #panel img, #panel a, #panel dd b").count() == 0
        assert page.locator("#panel .text").inner_text().startswith(("attack", "הכלב"))
        assert does_not_scroll_sideways(page)
        page.keyboard.press("Escape")
    page.locator(".thumb").first.click()
    page.get_by_text("Judged relevant").wait_for()
    page.keyboard.press("c")
    page.locator(".column.b .hit").nth(4).wait_for()
    assert does_not_scroll_sideways(page)
    host = page.url.split("/")[2]
    assert {request.url.split("/")[2] for request in requests} == {host}


def test_a_hostile_query_is_text(page: Page) -> None:
    page.goto("/")
    look = f'"{ATTACK} dog\\ `${{alert(5)}}`'
    page.fill("#query", look)
    page.keyboard.press("Enter")
    page.locator(".hit").first.wait_for()
    assert page.input_value("#query") == look
    page.goto(
        "?q=dog&f=a%3D%3Cimg%3E&f=__proto__%3D1&f=group%3D%22%3Cimg+src%3Dx+onerror%3Dalert(6)%3E%22&index=%3Cb%3E&page=-1&doc=%3Cb%3E"
    )
    page.locator(".active-chip", has_text="<img").wait_for()
    page.locator("#panel .wrong").wait_for()
    assert page.evaluate("Object.prototype.x") is None


def test_matches_count_code_points(page: Page) -> None:
    page.goto("?index=hostile&q=חתולים")
    marks = page.locator(".hit").first.locator(".snippet mark")
    marks.first.wait_for()
    assert marks.all_inner_texts() == ["חתולים"]
    assert page.locator(".snippet").first.evaluate("e => getComputedStyle(e).direction") == "rtl"


# The page of the API


def test_the_page_of_the_api(page: Page) -> None:
    page.goto("docs")
    route = page.locator("article", has_text="POST /v1/{index}/search").first
    route.wait_for()
    assert {"query", "k", "filter", "facets"} <= {name.strip() for name in route.locator("dt").all_inner_texts()}
    assert "curl -X POST" in route.locator("pre").inner_text()
    page.locator("#routes a", has_text="explain").first.click()
    assert page.locator("article", has_text="POST /v1/{index}/explain").first.is_visible()
