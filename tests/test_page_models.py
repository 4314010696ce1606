"""The page with learned models, with conditions that are typed, and with keys that may judge or not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browser import chromium, opened
from served import build, served
from vizsla import parse_model
from vizsla.server.settings import Keys, Limits

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DOCUMENTS = [
    {"id": "1", "text": "The Vizsla is a Hungarian pointing dog that retrieves birds.", "year": 1999, "lang": "en"},
    {"id": "2", "text": "A cat purrs at night, and dogs bark.", "year": 2005, "lang": "de"},
    {"id": "3", "text": "Pointers are dogs that show hunters where game is.", "year": 2010, "lang": "en"},
]
SLOW = Limits(seconds=300)  # the first answer on a new machine waits for kernels


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def test_why_with_a_learned_model(browser: Browser, tmp_path: Path) -> None:
    folder = build(tmp_path / "x.index", DOCUMENTS, parse_model("vizsla-sparse"))
    with served({"x": folder}, limits=SLOW) as client, opened(browser, client.url + "/") as page:
        page.goto("?q=which+Vizslas+retrieve+zyxgame")
        page.locator(".hit[data-id='1'] .why").click()
        box = page.locator(".why-box")
        box.locator(".term").first.wait_for()
        sentence = box.locator(".sentence").inner_text()
        named = set(re.findall("“(.*?)”", sentence.split(".")[0]))
        assert {"Vizslas"} <= named <= {"Vizslas", "retrieve"}  # all pieces of a word together
        assert "The model added" in sentence
        assert "2 words of the query do not match." in sentence  # neither pieces nor added terms are words
        learned = box.locator(".group").nth(1)
        rows = {row.locator("bdi").inner_text(): row for row in learned.locator(".term").all()}
        assert "a piece of Vizslas" in rows["##sl"].inner_text()
        assert "a piece of Vizslas" in rows["viz"].inner_text()
        assert rows["##sl"].locator(".tag").count() == rows["retrieve"].locator(".tag").count() == 0
        tags = learned.locator(".tag")
        shown = sum(tag.is_visible() for tag in tags.all())
        assert 0 < shown <= 8 < tags.count()
        learned.locator("summary").click()  # the weaker ones wait behind a line
        assert set(tags.all_inner_texts()) == {"added by the model"}
        assert learned.locator(".tag").last.is_visible()
        assert "(a piece of zyxgame, in no document)" in learned.inner_text()
        assert "that the model added are not here." in learned.inner_text()
        page.get_by_text("are in no document.").wait_for()
        assert page.locator("#unknown b").all_inner_texts() == ["“which”", "“zyxgame”"]


def test_a_snippet_shows_what_a_learned_model_added(browser: Browser, tmp_path: Path) -> None:
    folder = build(tmp_path / "x.index", DOCUMENTS, parse_model("vizsla-sparse"))
    with (
        served({"x": folder}, limits=SLOW, expanders={"rm3": "rm3(documents=3)"}) as client,
        opened(browser, client.url + "/") as page,
    ):
        page.goto("?q=puppies")
        snippets = page.locator(".snippet")
        snippets.nth(2).wait_for()
        assert {mark.lower() for mark in snippets.locator("mark").all_inner_texts()} >= {"dog", "dogs"}
        page.fill("#query", "birds")
        page.keyboard.press("Enter")
        page.wait_for_function("() => document.querySelector('.snippet mark')?.innerText === 'birds'")
        assert page.locator(".hit[data-id='1'] mark").all_inner_texts() == ["birds"], "words that were typed come first"
        page.locator(".picker").click()
        expanders = page.locator(".segment[aria-label='Query expansion'] button").all_inner_texts()
        assert expanders.count("rm3") == 1, "a name of the server's own is offered once"


def test_a_condition_is_wrong_in_its_own_place(browser: Browser, tmp_path: Path) -> None:
    folder = build(tmp_path / "x.index", DOCUMENTS)
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


READ, JUDGE = "a-key-for-reading", "a-key-for-judging"


def test_who_may_not_judge_has_no_buttons(browser: Browser, tmp_path: Path) -> None:
    folder = build(tmp_path / "x.index", DOCUMENTS)
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
    folder = build(tmp_path / "x.index", DOCUMENTS)
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
