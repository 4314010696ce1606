"""What tests of the page share: the collections it shows, a browser, a server, and what many tests look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browser import Window, chromium, opened, window
from served import build, served
from vizsla.server.settings import Limits
from waiting import LIMIT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

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
PETS = [
    {"id": "1", "text": "The Vizsla is a Hungarian pointing dog that retrieves birds.", "year": 1999, "lang": "en"},
    {"id": "2", "text": "A cat purrs at night, and dogs bark.", "year": 2005, "lang": "de"},
    {"id": "3", "text": "Pointers are dogs that show hunters where game is.", "year": 2010, "lang": "en"},
]

SLOW = Limits(seconds=LIMIT)  # a machine may take long to answer

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
    indexes = {name: folder / name for name in ("dogs", "hostile", "mixed")}
    with served(indexes, state=str(folder / "state"), limits=SLOW) as client:
        yield client.url + "/"


@pytest.fixture(scope="module")
def one_window(browser: Browser, url: str) -> Iterator[Window]:
    """A window for test after test: the first page of a new one costs more than what a test does with it."""
    with window(browser, url) as found:
        yield found


@pytest.fixture
def page(one_window: Window) -> Iterator[Page]:
    with one_window.lent() as page:
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


def look_for(page: Page, text: str) -> None:
    """Type a query and wait for its results."""
    page.fill("#query", "")
    page.locator("#query").press_sequentially(text, delay=5)
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelectorAll('#results .hit').length && !document.body.matches('.slow')")


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
  const grounds = new Map();
  const behind = (e) => {
    if (!grounds.has(e)) {
      const color = rgba(getComputedStyle(e).backgroundColor);
      grounds.set(e, color[3] > 200 || !e.parentElement ? color : behind(e.parentElement));
    }
    return grounds.get(e);
  };
  const hasText = (e) => e.checkVisibility() && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
  return [...document.querySelectorAll("body *")].filter(hasText).map((e) => {
    const [a, b] = [light(rgba(getComputedStyle(e).color)), light(behind(e))];
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.outerHTML.slice(0, 100)];
  }).filter(([ratio]) => ratio < 4.5);
}"""
