"""llms.txt and llms-full.txt: the documentation as one list and as one text, for programs that read."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pages import FENCE, navigation

INTRODUCTION = (
    "Vizsla is a Python toolkit for first-stage text retrieval: BM25 exactly as Lucene scores it, learned sparse and "
    "dense models, and their sums, in one index with exact search. Install it with pip; it needs no Java."
)


def llms(pages: Mapping[str, str]) -> str:
    """The list: each page with its first sentence; `pages` is Markdown by place."""
    lines = ["# Vizsla", "", f"> {INTRODUCTION}", ""]
    for title, entries in navigation():
        lines += [f"## {title}", ""]
        lines += [f"- [{name}]({_address(place, pages[place])}): {summary(pages[place])}" for name, place in entries]
        lines.append("")
    return "\n".join(lines)


def llms_full(pages: Mapping[str, str]) -> str:
    """The text: all pages in the order of the navigation, but those that are made from docstrings."""
    places = [place for _, entries in navigation() for _, place in entries if not is_generated(pages[place])]
    return "\n\n".join(f"<!-- {place} -->\n\n{pages[place].strip()}" for place in places) + "\n"


def _address(place: str, text: str) -> str:
    """Where a program reads a page: its Markdown, or its HTML where that is made from docstrings."""
    return place.removesuffix(".md") + ".html" if is_generated(text) else place


def is_generated(text: str) -> bool:
    """Whether a page is made from docstrings."""
    return "\n::: " in text


def summary(text: str) -> str:
    """The first sentence of a page, or its headings if the page has no sentence.

    >>> summary("# Dogs\\n\\nDogs bark. Cats\\ndo not.")
    'Dogs bark.'
    """
    for paragraph in FENCE.sub("", text).split("\n\n"):
        plain = " ".join(paragraph.split())
        if plain and not plain.startswith(("#", "|", "![", "<", "- ", ":::")) and not plain.endswith(":"):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", plain)
            return re.split(r"(?<=[.!?]) (?=[A-Z`*])", plain)[0]
    return ", ".join(re.findall(r"^## (.+)$", text, re.MULTILINE))
