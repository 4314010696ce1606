"""A real browser for tests of the page: Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_EXPECTED = "Failed to load resource"  # the browser's own line about each answer that is an error


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser; where there is none, the test is skipped with a word."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip("there is no Chromium on this machine")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Complaints:
    """What went wrong on a page: errors of scripts, of the Content-Security-Policy, and dialogs that opened."""

    seen: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.seen.append(f"error: {error}"))
        page.on("dialog", self._dialog)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(_EXPECTED):
            self.seen.append(f"{message.type}: {message.text}")

    def _dialog(self, dialog: Dialog) -> None:
        self.seen.append(f"dialog: {dialog.message}")
        dialog.dismiss()


@contextmanager
def opened(browser: Browser, url: str, **options: Any) -> Iterator[Page]:
    """A page in a window of its own. Whatever it complains about fails the test."""
    complaints = Complaints()
    usual = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"}
    context = browser.new_context(base_url=url, **{**usual, **options})
    context.set_default_timeout(30_000)  # the first answer on a new machine waits for kernels
    try:
        page = context.new_page()
        complaints.watch(page)
        try:
            yield page
        except Exception as e:
            e.add_note(f"The page complained: {complaints.seen}")
            raise
        assert complaints.seen == []
    finally:
        context.close()


def wait_for_frames(page: Page) -> None:
    """Wait until a change of the window has been drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def wait_for_transitions(page: Page) -> None:
    """Wait until colours and places have reached their end; what moves for ever is not waited for."""
    wait_for_frames(page)
    page.wait_for_function(
        "() => document.getAnimations().every((a) => a.playState !== 'running'"
        " || a.effect.getComputedTiming().iterations === Infinity)"
    )


def does_not_scroll_sideways(page: Page) -> bool:
    """Whether the page fits into the window, once a change of the window has been drawn."""
    from playwright.sync_api import TimeoutError

    try:
        page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth", timeout=3000)
    except TimeoutError:
        return False
    return True
