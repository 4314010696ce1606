"""The pages of the site: plain Markdown of the repository, at their places, with links that hold there."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(!?\[[^\]]*\])\(([^()\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
NOTE = re.compile(r"^<!-- (?:not run|needs|file): .+ -->\n", re.MULTILINE)
"""What docs/run.py reads; nobody else needs it."""
COMMANDS = re.compile(r"^```console\n(?!\$ )(.)", re.MULTILINE)
"""Commands without what they print, which are coloured as a script."""
TOP = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages that stand above docs/, and their places on the site."""


class Broken(Exception):
    """A link leads nowhere, or a page has no place."""


def sources() -> dict[Path, str]:
    """The Markdown files of the site, and where each goes; model cards and others come in by links to them."""
    pages = {ROOT / name: place for name, place in TOP.items()}
    pages |= {file: file.relative_to(ROOT / "docs").as_posix() for file in sorted((ROOT / "docs").rglob("*.md"))}
    for file in list(pages):
        for target in linked(file):
            if target.suffix == ".md" and target not in pages:
                pages[target] = f"cards/{target.parent.name}.md"
    return pages


def linked(file: Path) -> Iterator[Path]:
    """The files that a page links to."""
    for _, link in LINK.findall(FENCE.sub("", file.read_text())):
        if not link.startswith(("http://", "https://", "mailto:", "#")):
            yield (file.parent / link.partition("#")[0]).resolve()


def navigation() -> list[tuple[str, list[tuple[str, str]]]]:
    """The sections of zensical.toml: title, and the title and file of each page."""
    project = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    sections = []
    for entry in project["nav"]:
        ((title, inner),) = entry.items()
        pages = [(title, inner)] if isinstance(inner, str) else [next(iter(page.items())) for page in inner]
        sections.append((title, pages))
    return sections


def converted(file: Path, pages: dict[Path, str], files: dict[Path, str]) -> str:
    """A page as the site has it: links to places on the site, no notes for docs/run.py.

    `files` receives what the page shows that is no page, such as pictures.
    """
    here = Path(pages[file]).parent
    outside = file.read_text().split("```")  # every other piece is code
    for i in range(0, len(outside), 2):
        outside[i] = LINK.sub(lambda match: _moved(match, file, here, pages, files), NOTE.sub("", outside[i]))
    return COMMANDS.sub("```bash\n\\1", "```".join(outside))


def _moved(match: re.Match[str], file: Path, here: Path, pages: dict[Path, str], files: dict[Path, str]) -> str:
    text, link = match.groups()
    if link.startswith(("http://", "https://", "mailto:", "#")):
        return match[0]
    name, hash_sign, anchor = link.partition("#")
    target = (file.parent / name).resolve()
    if not target.is_file():
        raise Broken(f"{file.relative_to(ROOT)}: the link to {link} leads nowhere")
    if target not in pages:
        files[target] = f"files/{target.name}"
    place = pages.get(target) or files[target]
    up = "../" * len(here.parts)
    return f"{text}({up}{place}{hash_sign}{anchor})"


def check_navigation(places: set[str]) -> None:
    """Every page is in the navigation once, and every entry of it is a page. Cards are reached by links alone."""
    listed = [file for _, pages in navigation() for _, file in pages]
    for file in listed:
        if file not in places:
            raise Broken(f"zensical.toml: {file} is in nav, but there is no such page")
        if listed.count(file) > 1:
            raise Broken(f"zensical.toml: {file} is twice in nav")
    for place in sorted(places):
        if place not in listed and not place.startswith("cards/"):
            raise Broken(f"docs/{place} is in no section of nav in zensical.toml; add it there")


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and the site make it.

    >>> slug("Facets, `like` and paging")
    'facets-like-and-paging'
    """
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings."""
    return {slug(heading) for heading in re.findall(r"^#{1,6} (.+)$", FENCE.sub("", text), re.MULTILINE)}


def broken_links() -> list[str]:
    """Links of the Markdown files to pages, files and headings that are not there."""
    problems = []
    pages = sources()
    for file in pages:
        for _, link in LINK.findall(FENCE.sub("", file.read_text())):
            if link.startswith(("http://", "https://", "mailto:")):
                continue
            name, _, anchor = link.partition("#")
            target = (file.parent / name).resolve() if name else file
            if not target.is_file():
                problems.append(f"{file.relative_to(ROOT)}: {link} leads nowhere")
            elif anchor and anchor not in anchors(target.read_text()):
                problems.append(f"{file.relative_to(ROOT)}: {link} names a heading that is not there")
    return problems
