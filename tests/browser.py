"""A real browser for tests of the page: Chromium, driven by Playwright.

    python tests/browser.py

gets one where there is none: root gets Debian's with apt-get, anybody else, or where there is no apt-get, Playwright's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from waiting import LIMIT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_EXPECTED = "Failed to load resource"  # the browser's own line about each answer that is an error
_APT = ["apt-get", "-qq", "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=60"]
_DOWNLOAD = 900  # seconds
ABSENT = "there is no Chromium on this machine; get one with: python tests/browser.py"


def find() -> str | None:
    """The browser of this machine, or Playwright's own; one that does not start is none."""
    installed = [path for path in map(shutil.which, _NAMES) if path is not None]
    return next(filter(_starts, installed), None) or next(filter(_starts, _playwrights_own()), None)


def _starts(program: str) -> bool:
    try:
        return subprocess.run([program, "--version"], capture_output=True, timeout=LIMIT).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def _playwrights_own() -> Iterator[str]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        if Path(driver.chromium.executable_path).is_file():
            yield driver.chromium.executable_path


def install() -> list[str]:
    """Get a browser; gives what went wrong where there is none afterwards."""
    problems: list[str] = []
    if os.geteuid() == 0 and shutil.which("apt-get"):
        get = [[*_APT, "update"], [*_APT, "install", "-y", "--no-install-recommends", "chromium"]]
        if all(_succeeds(command, problems) for command in get) and find() is not None:
            return []
    _succeeds([sys.executable, "-m", "playwright", "install", "chromium"], problems)
    return [] if find() is not None else problems or ["what was installed does not start"]


def _succeeds(command: list[str], problems: list[str]) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD)
    except (OSError, subprocess.SubprocessError) as e:
        problems.append(f"{command[0]}: {e}")
        return False
    if done.returncode != 0:
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        problems.append(f"{' '.join(command)}: {said[0].strip() if said else f'exit code {done.returncode}'}"[:300])
    return done.returncode == 0


def is_ci() -> bool:
    """Whether this is a run that decides about a change; then nothing may be left out."""
    return os.environ.get("CI") == "true"


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser; where there is none, the test is skipped with a word, and fails if this is CI."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = find()
    if found is None:
        (pytest.fail if is_ci() else pytest.skip)(ABSENT)
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


_USUAL: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"}


@dataclass(frozen=True)
class Window:
    """A page in a window of its own, and what it complains about, which fails the test."""

    page: Page
    complaints: Complaints

    @contextmanager
    def lent(self) -> Iterator[Page]:
        """The page for one test of several; afterwards it is blank again, and nothing is stored."""
        yield self.page
        self.page.unroute_all(behavior="ignoreErrors")
        for other in self.page.context.pages:
            if other != self.page:
                other.close()
        self.page.goto("about:blank")
        self.page.context.set_storage_state({})
        self.page.set_viewport_size(_USUAL["viewport"])
        self.page.emulate_media(color_scheme="light")
        self.page.mouse.move(0, 0)
        self.check()

    def check(self) -> None:
        seen, self.complaints.seen[:] = list(self.complaints.seen), []
        assert seen == []


@contextmanager
def window(browser: Browser, url: str, **options: Any) -> Iterator[Window]:
    context = browser.new_context(base_url=url, **{**_USUAL, **options})
    context.set_default_timeout(1000 * LIMIT)  # the first answer on a new machine waits for kernels
    try:
        found = Window(context.new_page(), Complaints())
        found.complaints.watch(found.page)
        yield found
    finally:
        context.close()


@contextmanager
def opened(browser: Browser, url: str, **options: Any) -> Iterator[Page]:
    """A page in a window of its own. Whatever it complains about fails the test."""
    with window(browser, url, **options) as own:
        try:
            yield own.page
        except Exception as e:
            e.add_note(f"The page complained: {own.complaints.seen}")
            raise
        own.check()


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
        page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth", timeout=60_000)
    except TimeoutError:
        return False
    return True


def main() -> None:
    """Get a browser if there is none. Without one the tests of the page are skipped, which is no error but in CI."""
    if find() is not None:
        return
    print("Installing Chromium for the tests of the page ...", flush=True)
    problems = install()
    if problems:
        print(f"There is no Chromium, so the tests of the page cannot run: {'; '.join(problems)}", file=sys.stderr)
        if is_ci():
            sys.exit(1)


if __name__ == "__main__":
    main()
