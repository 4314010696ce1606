"""The page: filters, conditions that are typed, the syntax of queries, and the order of results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from browser import opened
from served import build, served
from the_page import MIXED, PETS, SLOW, browser, folder, ids, one_window, page, url, wait_for
from vizsla.runs.filters import parse_condition

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

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


def test_a_field_without_values_among_the_results_is_not_shown(page: Page) -> None:
    page.goto("?index=mixed&q=كلب")
    page.locator(".facet", has_text="colour").wait_for()
    page.fill("#query", "dog")
    page.locator(".facet", has_text="colour").wait_for(state="detached")


# Conditions


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


def test_a_condition_is_wrong_in_its_own_place(browser: Browser, tmp_path: Path) -> None:
    folder = build(tmp_path / "x.index", PETS)
    with served({"x": folder}, limits=SLOW) as client, opened(browser, client.url + "/") as page:
        page.goto('?q=dogs&f=lang="en"')
        page.locator(".hit").nth(1).wait_for()
        error = page.locator("#where-error")
        for typed, place in (
            ("year >= = 3", "at character 9:"),
            ("year = 1999) or (year = 2005", "at character 12:"),  # no part of another text, whose brackets would fit
            ('year = "x"', "(character 1 of the filter)"),
        ):
            page.fill("#where", typed)
            page.keyboard.press("Enter")
            error.get_by_text(place).wait_for()
        page.fill("#where", "year < 2000 or year = 2005")
        page.keyboard.press("Enter")
        page.wait_for_function("() => document.querySelectorAll('#results .hit').length === 1")
        assert page.locator(".hit").get_attribute("data-id") == "1"
        assert not error.is_visible()


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


# The syntax of queries


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
