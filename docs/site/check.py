"""Whether a built site holds together: every link has a target, and nothing is fetched from another host."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}
"""What a browser loads by itself; `link` is looked at by its `rel`."""
LOADED_LINKS = {"stylesheet", "preconnect", "preload", "prefetch", "dns-prefetch", "icon", "modulepreload", "manifest"}
IN_STYLES = re.compile(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)")


class Page(HTMLParser):
    """The anchors, the links and the fetched addresses of an HTML page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag declares."""
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and LOADED_LINKS & set(values.get("rel", "").split()):
            self.fetched.append(values.get("href", ""))
        elif tag in FETCHED and FETCHED[tag] in values:
            self.fetched.append(values[FETCHED[tag]])


def problems(folder: Path) -> list[str]:
    """What is wrong with the site in a folder; one sentence each."""
    pages = {file: Page(file.read_text()) for file in sorted(folder.rglob("*.html"))}
    found = []
    for file, page in pages.items():
        if file.name == "404.html":  # it stands for any address, so its links begin at the root
            continue
        name = file.relative_to(folder).as_posix()
        found += [f"{name}: {a} is fetched from another host" for a in page.fetched if urlsplit(a).netloc]
        links = ((a, _unreachable(a, file, pages)) for a in (*page.links, *page.fetched))
        found += [f"{name}: {address} {reason}" for address, reason in links if reason]
    for file in sorted(folder.rglob("*.css")):
        name = file.relative_to(folder).as_posix()
        found += [f"{name}: {a} is fetched from another host" for a in IN_STYLES.findall(file.read_text())]
    return found


def _unreachable(address: str, file: Path, pages: dict[Path, Page]) -> str | None:
    """Why a link inside of the site leads nowhere; None if it does not, or leads elsewhere."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc or address.startswith("data:"):
        return None
    target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return "leads to no file"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids | {"__top"}:
        return "leads to a place that the page does not have"
    return None
