"""The page: where a score comes from, two models side by side, and learned models."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from browser import opened, wait_for_transitions
from scattered import ScatteredTokens
from served import build, served
from the_page import CONTRAST, PETS, SLOW, browser, folder, ids, one_window, page, url, wait_for
from vizsla import Index, parse_model

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

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


# Learned models


def test_why_with_a_learned_model(browser: Browser, tmp_path: Path) -> None:
    folder = build(tmp_path / "x.index", PETS, parse_model("vizsla-sparse"))
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
    folder = build(tmp_path / "x.index", PETS, parse_model("vizsla-sparse"))
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
