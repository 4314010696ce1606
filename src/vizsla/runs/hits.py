"""What a search gives back: documents with their scores, best first."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from vizsla.errors import VizslaError
from vizsla.harmless import harmless
from vizsla.runs.documents import Document

_SHOWN = 200  # characters of a text in a notebook


class DocumentSource(Protocol):
    """What gives the documents of hits when they are looked at."""

    def document(self, number: int, doc_id: str) -> Document:
        """The document with a number, under the id that its hit has."""


class _Id:
    """The id of a hit's document; a hit that is made by `lazy_hits` has an attribute of its own."""

    def __get__(self, hit: Any, owner: type) -> str:
        return self if hit is None else hit.document.id  # type: ignore[return-value]


@dataclass(frozen=True)
class Hit:
    """A document that was found, its score, and its rank from 1.

    `hit["title"]` and `hit.get("title")` are fields of the document; `hit["id"]` is its id, unless it has such a field.

    >>> hit = Hit(1, 2.5, Document("7", {"title": "Dogs"}))
    >>> hit.id, hit["title"], hit.get("year")
    ('7', 'Dogs', None)
    """

    rank: int
    score: float
    document: Document
    passage: int | None = None
    """In an index of passages: the number of the passage that was found, from 0. The document has its text."""

    if TYPE_CHECKING:

        @property
        def id(self) -> str:
            """The id of the document."""
    else:
        id = _Id()

        def __getattr__(self, name: str) -> Any:
            """The document of a lazy hit, which is read when it is looked at for the first time."""
            own = self.__dict__
            if name != "document" or "_source" not in own:
                raise AttributeError(f"a hit has no attribute {name!r}")
            document = own["document"] = own["_source"].document(own["_number"], own["id"])
            return document

    def __getstate__(self) -> dict[str, Any]:
        """What is copied and pickled: the document itself, not where it could be read."""
        return {"rank": self.rank, "score": self.score, "document": self.document, "passage": self.passage}

    def at_rank(self, rank: int, score: float | None = None) -> Hit:
        """The same hit with another rank and, if it is given, another score; the document is not looked at.

        >>> Hit(3, 2.5, Document("7", {})).at_rank(1)
        Hit(rank=1, score=2.5, document=Document(id='7', content={}), passage=None)
        """
        return self._changed(rank=rank, score=self.score if score is None else score)

    def as_passage(self, doc_id: str, passage: int, rank: int) -> Hit:
        """The hit of a document whose passage was found, given that of the passage."""
        hit = self._changed(rank=rank, passage=passage, id=doc_id)
        if "document" in hit.__dict__:
            hit.__dict__["document"] = Document(doc_id, self.document.content)
        return hit

    def _changed(self, **values: Any) -> Hit:
        hit = object.__new__(Hit)
        hit.__dict__.update(self.__dict__, **values)
        return hit

    def __getitem__(self, key: str) -> Any:
        if key == "id" and key not in self.document.content:
            return self.document.id
        return self.document.content[key]

    def __contains__(self, key: object) -> bool:
        return key == "id" or key in self.document.content

    def get(self, key: str, default: Any = None) -> Any:
        """A field of the document, or a default if it has no such field."""
        try:
            return self[key]
        except KeyError:
            return default


def lazy_hits(
    numbers: Sequence[int], ids: Sequence[str], scores: Sequence[float], source: DocumentSource, first: int = 1
) -> list[Hit]:
    """Hits whose documents are read from a source when one of them is looked at; `first`: the rank of the first.

    >>> class Titles:
    ...     def document(self, number, doc_id):
    ...         return Document(doc_id, {"title": ("Dogs", "Cats")[number]})
    >>> [hit] = lazy_hits([1], ["b"], [2.5], Titles())
    >>> hit.id, hit["title"], hit == Hit(1, 2.5, Document("b", {"title": "Cats"}))
    ('b', 'Cats', True)
    """
    hits, new = [], object.__new__
    for rank, (number, doc_id, score) in enumerate(zip(numbers, ids, scores, strict=True), first):
        hit = new(Hit)  # three times as fast as the constructor
        own = hit.__dict__
        own["rank"], own["score"], own["id"], own["_number"], own["_source"] = rank, score, doc_id, number, source
        hits.append(hit)
    return hits


class PageOptions(TypedDict, total=False):
    """Which results of a search are given; see `Index.search_many`."""

    offset: int
    sort: str | None
    collapse: str | None
    min_score: float | None


class Hits(list[Hit]):
    """The hits of a query: a list that can become a table, and is one in a notebook.

    >>> hits = Hits([Hit(1, 2.5, Document("7", {"title": "Dogs"})), Hit(2, 1.5, Document("8", {"year": 1999}))])
    >>> hits.columns()
    {'rank': [1, 2], 'id': ['7', '8'], 'score': [2.5, 1.5], 'title': ['Dogs', None], 'year': [None, 1999]}
    """

    def columns(self) -> dict[str, list[Any]]:
        """Ranks, ids, scores and the fields of documents, a list of values each; None where a document has none.

        A field that is called rank, id, score or passage is named `document.rank` and so on.
        """
        table: dict[str, list[Any]] = {
            "rank": [hit.rank for hit in self],
            "id": [hit.id for hit in self],
            "score": [hit.score for hit in self],
        }
        if any(hit.passage is not None for hit in self):
            table["passage"] = [hit.passage for hit in self]
        own = {*table, "passage"}
        for field in dict.fromkeys(field for hit in self for field in hit.document.content):
            name = f"document.{field}" if field in own else field
            table[name] = [hit.document.content.get(field) for hit in self]
        return table

    def to_pandas(self) -> Any:
        """The hits as a DataFrame of pandas, which must be installed."""
        return _module("pandas").DataFrame(self.columns())

    def to_polars(self) -> Any:
        """The hits as a DataFrame of polars, which must be installed."""
        return _module("polars").DataFrame(self.columns(), strict=False)

    def _repr_html_(self) -> str:
        """A table for notebooks: rank, score, id and how each document begins."""
        rows = "".join(
            f"<tr><td>{hit.rank}</td><td>{hit.score:.4f}</td><td><code>{_escaped(hit.id)}</code></td>"
            f'<td style="text-align: left">{_summary(hit)}</td></tr>'
            for hit in self
        )
        head = "<tr><th>rank</th><th>score</th><th>id</th><th>document</th></tr>"
        return f"<table>{head}{rows}</table>" if self else "<p>nothing found</p>"


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise VizslaError(f"{name} is not installed; run: pip install {name}") from None


def _summary(hit: Hit) -> str:
    """Title and beginning of the text, as HTML."""
    title, text = hit.document.content.get("title"), hit.document.content.get("text")
    shown = [f"<b>{_escaped(title)}</b>"] if isinstance(title, str) and title else []
    return " ".join([*shown, _escaped(text)] if isinstance(text, str) and text else shown)


def _escaped(text: str) -> str:
    return html.escape(harmless(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"))
