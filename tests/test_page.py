"""The page, driven by a real browser against a real server."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from browser import chromium, does_not_scroll_sideways, opened, wait_for_transitions
from scattered import ScatteredTokens
from served import build, running, served
from vizsla import Index, parse_model
from vizsla.runs.filters import parse_condition
from vizsla.server.settings import Keys

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, Request, Route

PAGE = resources.files("vizsla.server").joinpath("page")
BREEDS = ["vizsla", "setter", "pointer", "spaniel", "retriever", "beagle"]
GROUPS = ["hound", "gundog", "terrier"]
DOCUMENTS = [
    {
        "id": f"d{i}",
        "title": f"The {BREEDS[i % 6]}, part {i}",
        "text": f"A dog, a {BREEDS[i % 6]}. " + "It is pointing at birds. " * (i % 4) + "It barks at night. " * (i % 7),
        "year": 1990 + i % 9,
        "group": GROUPS[i % 3],
        "site": f"https://example.org/{i}",
        "path": f"d{i}",
    }
    for i in range(36)
]  # fmt: skip
ATTACK = "<script>alert(1)</script><img src=x onerror=alert(2)><svg onload=alert(3)>"
HOSTILE = [
    {"id": f'"><b>{ATTACK}', "title": f"attack {ATTACK}", "text": f"attack {ATTACK}", "site": "javascript:alert(4)"},
    {"id": "a/b?c#d&e", "title": "attack", "text": "attack \u202e right to left", "site": "data:text/html,<b>x"},
    {"id": "rtl", "title": "attack של כלבים", "text": "הכלב נובח attack 🐕 על 𝒳 חתולים", "`\"odd name'": ATTACK},
    {"id": "long", "title": "attack " + "w" * 1_000_000, "text": "attack " + "x" * 1_000_000, "kind": "y" * 5000},
    {"id": "__proto__", "text": "attack without a title\nand a second line", "constructor": "z", "__proto__": {"x": 1}},
]
TITLES = ["كلب يشير إلى الطيور", "A dog that points at birds"]
MIXED = [
    {
        "id": f"m{i}",
        "title": TITLES[i % 2],
        "text": ["كلب يشير إلى الطيور وينتظر. ", "A dog that points and waits. "][i % 2] * 9,
        "colour": None if i % 2 else ["brown", "white"][i % 4 // 2],
        "price": 9.5 + 7 * i % 11,
        "open access": ["yes", "no"][i % 4 // 2],
    }
    for i in range(12)
]

Opener = Callable[..., AbstractContextManager["Page"]]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    build(folder / "dogs", DOCUMENTS, "bm25 + 0.5 * bm25(fields=title, namespace=titles)")
    build(folder / "hostile", HOSTILE)
    build(folder / "mixed", MIXED)
    return folder


@pytest.fixture(scope="module")
def url(folder: Path, browser: Browser) -> Iterator[str]:
    assert browser.is_connected()
    with running(folder / "dogs", folder / "hostile", folder / "mixed", "--state", folder / "state") as server:
        yield server.client.url + "/"


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    with opened(browser, url) as page:
        yield page


@pytest.fixture
def open_page(browser: Browser, url: str) -> Opener:
    return lambda **options: opened(browser, url, **options)


def ids(page: Page, within: str = "#results") -> list[str]:
    return [str(hit.get_attribute("data-id")) for hit in page.locator(f"{within} .hit").all()]


def wait_for(page: Page, text: str, within: str = "main") -> Locator:
    found = page.locator(within).get_by_text(text).first
    found.wait_for()
    return found


def lines_of(node: Locator) -> int:
    """In how many lines the text of a node is."""
    return int(
        node.evaluate(
            "e => { const r = document.createRange(); r.selectNodeContents(e);"
            " return new Set([...r.getClientRects()].map((line) => Math.round(line.top))).size; }"
        )
    )


def is_in_view(node: Locator) -> bool:
    """Whether all of a node is in the window, and nothing lies over its middle."""
    return bool(
        node.evaluate(
            "e => { const r = e.getBoundingClientRect();"
            " return r.top >= 0 && r.bottom <= innerHeight && r.left >= 0 && r.right <= innerWidth"
            " && e.contains(document.elementFromPoint((r.left + r.right) / 2, (r.top + r.bottom) / 2)); }"
        )
    )


def look_for(page: Page, text: str) -> None:
    """Type a query and wait for its results."""
    page.fill("#query", "")
    page.locator("#query").press_sequentially(text, delay=5)
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelectorAll('#results .hit').length && !document.body.matches('.slow')")


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
    wait_for(page, "results", "#count")
    first = page.locator(".hit").first
    assert "vizsla" in first.locator(".title").inner_text()
    assert "pointing" in [mark.inner_text() for mark in first.locator(".snippet mark").all()]
    assert re.search(r"\d ms", page.inner_text("#count"))
    matching = sum("pointing" in d["text"] or "vizsla" in d["text"] for d in DOCUMENTS)
    wait_for(page, f"1–10 of {matching} results")
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
    page.locator(".hit").first.wait_for()
    assert "d6" not in ids(page)
    assert "vizsla" in page.locator(".title").first.inner_text()


# Why


def test_why_shows_the_part_of_each_word(page: Page) -> None:
    page.goto("?q=pointing+vizsla+quokka")
    hit = page.locator(".hit").first
    hit.locator(".why").click()
    box = hit.locator(".why-box")
    box.locator(".term").first.wait_for()
    assert "of the score comes from" in box.locator(".sentence").inner_text()
    assert box.locator("h4").count() == 2, "a group for each part of the sum"
    assert "quokka (in no document)" in box.inner_text()
    words = box.locator(".group").first.locator("dt").all_inner_texts()
    assert set(words) == {"pointing", "vizsla"}
    widths = [
        float(w.removesuffix("%")) for w in box.locator(".term i").evaluate_all("all => all.map(e => e.style.width)")
    ]
    assert max(widths) == 100
    assert all(0 < w <= 100 for w in widths)
    hit.locator(".why").click()
    assert hit.locator(".why-box").count() == 0
    assert "“quokka” is in no document." in page.inner_text("#count")


def test_why_marks_words_that_an_expansion_added(page: Page) -> None:
    page.goto("?q=vizsla&expand=rm3")
    page.locator(".why").first.click()
    page.locator(".why-box .term").first.wait_for()
    added = page.locator(".why-box .term", has=page.locator(".tag"))
    assert added.count() > 0
    assert added.first.locator("i").get_attribute("class") == "added"
    assert "Query expansion added" in page.locator(".sentence").inner_text()


def test_why_colours_which_query_token_met_which_document_token(browser: Browser, tmp_path: Path) -> None:
    documents = [
        {"id": "d1", "text": "a pointing dog ##gy barks at [mask] night <b>dog</b>"},
        {"id": "d2", "text": "cats sleep"},
        {"id": "long", "text": "dog " + "word " * 1500},
    ]
    with Index.create(tmp_path / "tokens", parse_model("bm25") + 0.5 * ScatteredTokens()) as index:
        index.add(documents)
        index.commit()
    with served({"tokens": tmp_path / "tokens"}, judging=False) as client, opened(browser, client.url + "/") as page:
        page.goto("?q=[mask]+dog+pointing")
        hit = page.locator(".hit[data-id=d1]")
        hit.locator(".why").click()
        tokens = hit.locator(".tokens")
        tokens.wait_for()
        assert hit.locator(".why-box h4").count() == 2, "a group for each part of the sum"
        assert tokens.inner_text() == "a pointing doggy barks at [mask] night <b>dog</b>"
        found = {token.inner_text(): token for token in tokens.locator(".token").all()}
        assert set(found) == {"pointing", "dog", "[mask]"}
        rows = {word.inner_text(): word for word in hit.locator(".group").last.locator("dt .token").all()}
        colours = {word: colour(row) for word, row in rows.items()}
        assert {word: colour(token) for word, token in found.items()} == colours
        assert len(set(colours.values())) == 3
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            wait_for_transitions(page)
            assert page.evaluate(CONTRAST) == [], scheme
        product = ScatteredTokens().query_embeddings(["dog"])[0][0]
        assert found["dog"].get_attribute("title") == f"dog {product @ product:.3f}"
        assert "meets pointing" in hit.locator(".group").last.inner_text()
        page.locator(".hit[data-id=long] .why").click()
        page.locator(".hit[data-id=long] .tokens").wait_for()
        assert page.locator(".hit[data-id=long] .tokens").inner_text().endswith("word …")


def colour(node: Locator) -> str:
    return str(node.evaluate("node => getComputedStyle(node).backgroundColor"))


# Filters


def test_facets_filter_and_chips_take_it_back(page: Page) -> None:
    page.goto("?q=dog")
    value = page.locator(".facet-value", has_text="gundog")
    assert value.locator("small").inner_text() == "12"
    value.click()
    wait_for(page, "1–10 of 12 results")
    assert set(page.locator(".meta").first.inner_text().split()) >= {"gundog"}
    assert page.locator(".facet-value", has_text="hound").is_visible(), "the alternatives stay"
    page.locator(".facet-value", has_text="hound").click()
    wait_for(page, "1–10 of 24 results")
    assert page.locator(".facet-value[aria-pressed=true]").count() == 2
    page.get_by_role("button", name="Remove group: gundog").click()
    wait_for(page, "1–10 of 12 results")
    page.locator(".chip button").first.click()
    assert page.locator(".active-chip").count() == 2
    page.get_by_role("button", name="Clear filters").click()
    wait_for(page, "1–10 of 36 results")


def test_dates_are_counted_and_chosen(browser: Browser, tmp_path: Path) -> None:
    days = ["2021-03-01", "2021-07-09", "2023-01-02"]
    build(tmp_path / "dated", [{"id": str(i), "text": "dogs", "day": days[i % 3]} for i in range(36)])
    with served({"dated": tmp_path / "dated"}) as server, opened(browser, server.url) as page:
        page.goto("?q=dogs")
        page.locator(".facet-value").first.wait_for()
        assert page.locator(".facet legend").all_inner_texts() == ["day by year"]
        assert page.locator(".facet-value bdi").all_inner_texts() == ["2021", "2023"], "2022 has no documents"
        page.locator(".facet-value", has_text="2021").click()
        wait_for(page, "1–10 of 24 results")
        page.reload()
        wait_for(page, "1–10 of 24 results")
        assert page.locator(".facet-value[aria-pressed=true]").count() == 1
        page.locator(".facet-value", has_text="2023").click()
        wait_for(page, "1–10 of 36 results")
        page.get_by_role("button", name="Remove day by year: 2021").click()
        wait_for(page, "1–10 of 12 results")


def test_a_condition_and_what_is_wrong_with_it(page: Page) -> None:
    page.goto("?q=dog")
    wait_for(page, "36 results")
    page.fill("#where", 'year >= 1996 and group != "hound"')
    page.press("#where", "Enter")
    page.wait_for_function("() => !document.querySelector('#count').textContent.includes('36')")
    years = [int(text.split()[1]) for text in page.locator(".chip", has_text="year").all_inner_texts()]
    assert years
    assert all(year >= 1996 for year in years)
    page.fill("#where", "year >= = 3")
    page.press("#where", "Enter")
    error = page.locator("#where-error")
    error.wait_for()
    assert "character" in error.inner_text()
    assert page.get_attribute("#where", "aria-invalid") == "true"
    page.get_by_role("button", name="Search without filters").click()
    wait_for(page, "36 results")
    assert error.is_hidden()
    assert page.input_value("#where") == ""


def test_a_click_elsewhere_uses_a_condition_and_is_a_click(page: Page) -> None:
    """The field loses the focus while the button is pressed, which must not replace the button."""
    page.goto("?q=dog")
    wait_for(page, "36 results")
    for button, effect in (("#syntax", "syntax=lucene"), ("#compare", "b.model=")):
        page.locator("#where").press_sequentially("year >= 1996")
        box = page.locator(button).bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.mouse.down()
        page.wait_for_url("**where=*")
        assert page.input_value("#where") == "year >= 1996"
        page.mouse.up()
        page.wait_for_url(f"**{effect}*")
        page.get_by_role("button", name="Remove year >= 1996").click()
        page.wait_for_function("() => !location.search.includes('where=')")
        assert page.input_value("#where") == ""


def test_a_query_that_waits_for_its_search_survives_a_condition(page: Page) -> None:
    """Both are typed faster than a query waits for its next letter."""
    page.goto("?q=dog")
    wait_for(page, "36 results")
    page.evaluate(
        """() => {
            const [query, where] = [document.querySelector("#query"), document.querySelector("#where")];
            query.focus();
            query.value = "vizsla";
            query.dispatchEvent(new InputEvent("input", {bubbles: true}));
            where.focus();
            where.value = "year >= 1900";
            where.form.requestSubmit();
        }"""
    )
    page.wait_for_url("**q=vizsla*")
    assert "where=" in page.url
    assert (page.input_value("#query"), page.input_value("#where")) == ("vizsla", "year >= 1900")


def test_the_query_language_and_a_mistake_in_its_place(page: Page) -> None:
    page.goto("?q=%2Bdog+-vizsla&syntax=lucene")
    wait_for(page, "30 results")
    button = page.locator("#syntax")
    assert button.get_attribute("aria-pressed") == "true"
    page.locator(".why").first.click()
    page.locator(".why-box .term").first.wait_for()
    button.click()
    wait_for(page, "36 results")
    assert "syntax" not in page.url
    page.locator("#syntax").click()
    page.fill("#query", '+dog "vizsla')
    page.keyboard.press("Enter")
    page.locator(".place").wait_for()
    assert page.locator(".place").inner_text().split("\n") == ['  +dog "vizsla', "       ^"]
    assert "not closed" in page.locator(".notice").inner_text()
    page.fill("#query", '+dog "vizsla"')
    page.keyboard.press("Enter")
    wait_for(page, "6 results")


def test_help_with_the_query_syntax(page: Page) -> None:
    page.goto("?q=%2Bdog+-vizsla")
    signs = page.locator("#signs")
    assert "signs are ignored" in wait_for(page, "signs are ignored", "#signs").inner_text()
    signs.get_by_role("button", name="Use the query syntax").click()
    wait_for(page, "30 results")
    assert signs.locator("code").all_inner_texts()[:2] == ["+must", "-not"]
    signs.get_by_role("button", name="All signs").click()
    guide = page.locator("#guide")
    assert guide.locator("h2").all_inner_texts()[0] == "Query syntax"
    shown = guide.locator("section").first.locator("dt").all_inner_texts()
    page.keyboard.press("Escape")
    for form in shown:  # what the help shows is understood
        page.fill("#query", form)
        with page.expect_response("**/search") as answer:
            page.keyboard.press("Enter")
        assert answer.value.ok or form.startswith(("-", "lang")), (form, answer.value.text())
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert guide.locator("h2").all_inner_texts()[0] == "Keyboard"
    conditions = guide.locator("section", has_text="Among the filters").locator("dt").all_inner_texts()
    for condition in conditions:
        parse_condition(condition)


# Order


def test_results_are_sorted_by_a_field(page: Page) -> None:
    page.goto("?index=mixed&q=dog")
    wait_for(page, "6 results")
    best = ids(page)
    page.keyboard.press("Escape")
    page.keyboard.press("s")
    assert page.evaluate("document.activeElement.id") == "sort"
    order = page.locator("#sort")
    assert order.locator("option").all_inner_texts() == [
        "Best first", "colour, ascending", "colour, descending", "price, ascending", "price, descending",
        "open access, ascending", "open access, descending",
    ]  # fmt: skip
    order.select_option("-price")
    dearest = sorted(best, key=lambda name: -MIXED[int(name[1:])]["price"])
    assert dearest != best
    page.wait_for_function("id => document.querySelector('.hit')?.dataset.id === id", arg=dearest[0])
    assert ids(page) == dearest
    assert page.locator(".chip").first.inner_text().split() == ["price", str(MIXED[int(dearest[0][1:])]["price"])]
    page.reload()
    page.locator(".hit").first.wait_for()
    assert ids(page) == dearest
    page.keyboard.press("c")
    page.locator(".column.b .hit").first.wait_for()
    assert page.locator("#sort").count() == 0, "two models are compared by their own order"
    assert ids(page, ".column.a") == best
    page.keyboard.press("c")
    page.locator("#sort").select_option("")
    page.wait_for_function("id => document.querySelector('.hit')?.dataset.id === id", arg=best[0])
    page.goto("?index=mixed&q=dog&sort=nothing")
    page.get_by_role("button", name="Show the best first").click()
    wait_for(page, "6 results")


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


# Two models


def test_side_by_side_says_what_moved(page: Page) -> None:
    page.goto("?q=pointing+vizsla")
    wait_for(page, "results", "#count")
    page.locator("#compare").click()
    page.locator(".column.b .hit").first.wait_for()
    a, b = ids(page, ".column.a"), ids(page, ".column.b")
    assert len(a) == len(b) == 10
    same = len(set(a) & set(b))
    assert f"{same} of the first 10 are the same (overlap@10 {same / 10:.2f})" in page.inner_text(".summary")
    for rank, doc in enumerate(b):
        badge = page.locator(f".column.b .hit[data-id={doc}] .move").inner_text()
        if doc in a:
            step = a.index(doc) - rank
            assert badge == ("=" if step == 0 else f"{'▲' if step > 0 else '▼'}{abs(step)}")
    assert page.locator(".lines path").count() == same
    shared = next(doc for doc in a if doc in b)
    page.locator(f".column.a .hit[data-id={shared}] .title").hover()
    assert page.locator(".linked").count() == 3, "both results and the line between them"
    page.locator(".column.b .why").first.click()
    page.locator(".column.b .why-box .term").first.wait_for()
    page.locator("#compare").click()
    page.locator(".columns").wait_for(state="detached")


def test_a_model_is_chosen_from_the_list_or_written(page: Page) -> None:
    page.goto("?q=pointing+vizsla")
    scores = lambda: page.locator(".score").all_inner_texts()  # noqa: E731
    wait_for(page, "results", "#count")
    before = scores()
    page.locator(".picker").click()
    page.locator(".option").get_by_text("bm25", exact=True).click()
    page.wait_for_function("old => document.querySelector('.score')?.innerText !== old", arg=before[0])
    assert page.locator(".picker .mono").inner_text() == "bm25"
    middle = scores()
    page.locator(".picker").click()
    page.locator(".expression input").fill("bm25(k1=2)")
    page.locator(".expression input").press("Enter")
    page.wait_for_function("old => document.querySelector('.score')?.innerText !== old", arg=middle[0])
    assert "model=bm25%28k1%3D2%29" in page.url
    page.locator(".picker").click()
    page.locator(".expression input").fill("nonsense(")
    page.locator(".expression input").press("Enter")
    page.locator(".notice").wait_for()
    page.get_by_role("button", name="Use the index's own model").click()
    page.wait_for_function("old => document.querySelector('.score')?.innerText === old", arg=before[0])
    assert page.locator(".notice").count() == 0


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


def test_the_other_index(page: Page) -> None:
    page.goto("?q=attack")
    wait_for(page, "Nothing found.")
    assert "“attack” is in no document." in wait_for(page, "is in no document").inner_text()
    page.select_option("#index", "hostile")
    page.locator(".hit").first.wait_for()
    assert "index=hostile" in page.url


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


def test_a_field_with_an_odd_name_is_shown_by_its_name(page: Page) -> None:
    page.goto("?index=mixed&q=dog")
    page.locator(".facet legend", has_text="open access").wait_for()
    assert "open access" in page.locator(".facet legend").all_inner_texts()
    page.locator(".chip", has_text="open access").first.get_by_role("button", name="yes").click()
    wait_for(page, "3 results")
    assert page.inner_text(".active-chip") == "open access: yes"
    assert page.locator(".facet-value[aria-pressed=true]").inner_text().split() == ["yes", "3"]


def test_a_field_without_values_among_the_results_is_not_shown(page: Page) -> None:
    page.goto("?index=mixed&q=كلب")
    page.locator(".facet", has_text="colour").wait_for()
    page.fill("#query", "dog")
    page.locator(".facet", has_text="colour").wait_for(state="detached")


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


CONTRAST = """() => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const seen = {};
  const rgba = (color) => {
    if (color in seen) return seen[color];
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = color;
    pen.fillRect(0, 0, 1, 1);
    return (seen[color] = [...pen.getImageData(0, 0, 1, 1).data]);
  };
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const behind = (e) => {
    const color = rgba(getComputedStyle(e).backgroundColor);
    return color[3] > 200 || !e.parentElement ? color : behind(e.parentElement);
  };
  const hasText = (e) => e.checkVisibility() && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
  return [...document.querySelectorAll("body *")].filter(hasText).map((e) => {
    const [a, b] = [light(rgba(getComputedStyle(e).color)), light(behind(e))];
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.outerHTML.slice(0, 100)];
  }).filter(([ratio]) => ratio < 4.5);
}"""


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
