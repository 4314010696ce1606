"""The site: every page has a place, every link a target, every public name a description; make docs builds it."""

from __future__ import annotations

import doctest
import importlib
import re
import sys
from pathlib import Path

import pytest

import vizsla

SITE = Path(__file__).resolve().parents[1] / "docs" / "site"
sys.path.insert(0, str(SITE))

import check  # noqa: E402
import docstrings  # noqa: E402
import llms  # noqa: E402
import pages  # noqa: E402
import reference  # noqa: E402


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """The Markdown of all pages, by their places on the site."""
    sources = pages.sources()
    files: dict[Path, str] = {}
    written = {place: pages.converted(file, sources, files) for file, place in sources.items()}
    return written | {"reference/commands.md": reference.commands_page(), **dict(reference.api_pages())}


def test_every_page_has_a_place(texts: dict[str, str]) -> None:
    pages.check_navigation(set(texts))
    with pytest.raises(pages.Broken, match=r"docs/new\.md is in no section of nav in zensical\.toml; add it there"):
        pages.check_navigation({*texts, "new.md"})
    with pytest.raises(pages.Broken, match=r"searching\.md is in nav, but there is no such page"):
        pages.check_navigation(texts.keys() - {"searching.md"})


def test_links_lead_somewhere() -> None:
    assert pages.broken_links() == []


def test_links_are_those_of_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    (tmp_path / "README.md").write_text("[a](docs/a.md#b) ![p](docs/p.png)\n")
    (tmp_path / "docs" / "p.png").write_bytes(b"")
    (tmp_path / "docs" / "a.md").write_text("# A\n")
    page = tmp_path / "docs" / "deep" / "b.md"
    text = "[r](../../README.md) [x](https://x.org)\n\n<!-- not run: no -->\n```console\n[a](b.md)\n```\n"
    page.write_text(text)
    sources = {tmp_path / "README.md": "index.md", tmp_path / "docs" / "a.md": "a.md", page: "deep/b.md"}
    files: dict[Path, str] = {}
    assert pages.converted(tmp_path / "README.md", sources, files) == "[a](a.md#b) ![p](files/p.png)\n"
    assert files == {tmp_path / "docs" / "p.png": "files/p.png"}
    assert pages.converted(page, sources, files) == ("[r](../index.md) [x](https://x.org)\n\n```bash\n[a](b.md)\n```\n")
    page.write_text("[r](nowhere.md)\n")
    with pytest.raises(pages.Broken, match=r"docs/deep/b\.md: the link to nowhere\.md leads nowhere"):
        pages.converted(page, sources, files)


def test_the_reference_has_every_public_name() -> None:
    listed = {name for _, _, names in reference.API.values() for name in names}
    described = set()
    for name in sorted(listed):
        if name.startswith("vizsla.adapters."):  # frameworks that are not everywhere; test_adapters has them
            continue
        module, _, last = name.rpartition(".")
        thing = getattr(importlib.import_module(module), last)
        assert thing.__doc__, f"{name} has no docstring"
        described.add(thing)
    assert [name for name in vizsla.__all__ if getattr(vizsla, name) not in described] == []


def test_the_reference_has_every_command(texts: dict[str, str]) -> None:
    from vizsla.cli.commands import COMMANDS

    page = texts["reference/commands.md"]
    for name in (name for verbs in COMMANDS.values() for name in verbs):
        assert f"### vizsla {name}\n" in page
    assert "### vizsla datasets fetch\n" in page
    assert re.search(r"^\| `-k N`, `--k N` \| .+ \|$", page, re.MULTILINE), "an option has a row"


def test_programs_read_all_pages(texts: dict[str, str]) -> None:
    listed = llms.llms(texts)
    for _, entries in pages.navigation():
        for title, place in entries:
            line = next(line for line in listed.split("\n") if line.startswith(f"- [{title}]({place[:-2]}"))
            assert len(line.partition("): ")[2]) > 10, f"{place} begins without a sentence"
    whole = llms.llms_full(texts)
    assert "<!-- searching.md -->" in whole
    assert "\n::: " not in whole


def test_examples_are_true() -> None:
    for module in (docstrings, llms, pages):
        assert doctest.testmod(module).failed == 0


def test_a_site_that_does_not_hold_together_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<link rel="stylesheet" href="s.css"><script src="https://cdn.org/x.js"></script>'
        '<a href="b.html#here">b</a><a href="b.html#there">b</a><a href="c.html">c</a><a href="https://x.org">x</a>'
    )
    (tmp_path / "b.html").write_text('<h1 id="here">b</h1><link rel="canonical" href="https://us.org/b.html">')
    (tmp_path / "s.css").write_text("a { background: url(//fonts.org/f.woff) }")
    assert check.problems(tmp_path) == [
        "a.html: https://cdn.org/x.js is fetched from another host",
        "a.html: b.html#there leads to a place that the page does not have",
        "a.html: c.html leads to no file",
        "s.css: //fonts.org/f.woff is fetched from another host",
    ]
