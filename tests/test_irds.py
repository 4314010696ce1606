"""Data sets of ir_datasets: which fields become the ids and texts of documents and queries.

A stand-in for the package has what the tests need of it: records with the fields of its own, and `load`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from vizsla import BeirDataset, read_documents
from vizsla.datasets import read_queries
from vizsla.errors import InputError


class TrecQuery(NamedTuple):
    query_id: str
    title: str
    description: str
    narrative: str

    def default_text(self) -> str:
        return self.title


class TrecDoc(NamedTuple):
    doc_id: str
    text: str
    marked_up_doc: str


class TrecBackgroundLinkingQuery(NamedTuple):
    query_id: str
    doc_id: str
    url: str


class WapoDoc(NamedTuple):
    doc_id: str
    url: str
    title: str
    published_date: int
    body: str
    body_paras_html: tuple[str, ...]

    def default_text(self) -> str:
        return f"{self.title} {self.body}"


class TrecQrel(NamedTuple):
    query_id: str
    doc_id: str
    relevance: int
    iteration: str


class Fake:
    """A data set of ir_datasets: records of documents, queries and judgements, any of which may be missing."""

    def __init__(self, docs: list[Any], queries: list[Any], qrels: list[TrecQrel]) -> None:
        self._parts = {"docs": docs, "queries": queries, "qrels": qrels}

    def __getattr__(self, name: str) -> Any:
        part = name.removeprefix("has_").removesuffix("_iter")
        if part not in self._parts:
            raise AttributeError(name)
        return lambda: bool(self._parts[part]) if name.startswith("has_") else iter(self._parts[part])

    def docs_store(self) -> Any:
        return {document.doc_id: document for document in self._parts["docs"]}


ROBUST = Fake(
    [TrecDoc("FT1", "Crime across borders.", "<TEXT>...")],
    [TrecQuery("301", "International Organized Crime", "Identify organizations that\nparticipate.", "A relevant ...")],
    [TrecQrel("301", "FT1", 1, "0")],
)
ARTICLES = [
    WapoDoc("9171", "https://a", "Women are half of the world", 1, "But few sit in parliaments.", ("<p>But ...",)),
    WapoDoc("11e6", "https://b", "Elections", 2, "Who was elected.", ()),
]
LINKING = [TrecBackgroundLinkingQuery("321", "9171", "https://a")]
KNOWN = {
    "disks45/nocr/trec-robust-2004": ROBUST,
    "disks45/nocr/trec-robust-2004/fold1": ROBUST,
    "trec-robust04": ROBUST,
    "gov2/trec-tb-2004": ROBUST,
    "wapo/v2/trec-news-2019": Fake(ARTICLES, LINKING, [TrecQrel("321", "11e6", 8, "0")]),
    "wapo/v3/trec-news-2020": Fake([], LINKING, []),
}


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "ir_datasets", SimpleNamespace(load=KNOWN.__getitem__))  # type: ignore[arg-type]


def test_a_query_of_trec_news_is_the_title_of_its_article() -> None:
    dataset = BeirDataset.open("irds:wapo/v2/trec-news-2019")
    assert dataset.queries() == {"321": "Women are half of the world"}
    assert dataset.qrels("trec-news-2019").judgements == {"321": {"11e6": 8}}
    assert dataset.queries_of(dataset.qrels("trec-news-2019"))


def test_a_title_is_not_a_part_of_the_text_too() -> None:
    first = next(iter(read_documents("irds:wapo/v2/trec-news-2019")))
    assert first.id == "9171"
    assert first.content == {
        "url": "https://a", "title": "Women are half of the world", "published_date": 1,
        "text": "But few sit in parliaments.",
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", ["disks45/nocr/trec-robust-2004", "disks45/nocr/trec-robust-2004/fold1", "trec-robust04"]
)
def test_queries_of_robust04_are_descriptions_as_in_beir(name: str) -> None:
    assert read_queries(f"irds:{name}") == {"301": "Identify organizations that\nparticipate."}
    assert read_queries(f"irds:{name}#title") == {"301": "International Organized Crime"}
    assert BeirDataset.open(f"irds:{name}#title").splits == [name.rpartition("/")[2] if "/" in name else "test"]


def test_other_queries_have_the_text_that_ir_datasets_gives_them() -> None:
    assert read_queries("irds:gov2/trec-tb-2004") == {"301": "International Organized Crime"}
    assert read_queries("irds:gov2/trec-tb-2004#narrative") == {"301": "A relevant ..."}


def test_queries_without_a_text_are_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match=r"its queries have no text, only doc_id, url; name one .* irds:NAME#FIELD"):
        read_queries("irds:wapo/v3/trec-news-2020")
    assert read_queries("irds:wapo/v3/trec-news-2020#url") == {"321": "https://a"}
    with pytest.raises(InputError, match="its queries have no text 'titel'; they have title, description, narrative"):
        read_queries("irds:trec-robust04#titel")
