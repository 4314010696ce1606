"""What a search gives back: documents with their scores, best first."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import repeat
from typing import Any, NamedTuple, Protocol, TypedDict

from vizsla.errors import VizslaError
from vizsla.harmless import harmless
from vizsla.kernels.objects import maker
from vizsla.runs.documents import Document

_SHOWN = 200  # characters of a text in a notebook
_MANY = 32  # hits that machine code is worth loading for
_RANKS = list(range(1, 1001))  # of most rankings


class DocumentSource(Protocol):
    """What gives the documents of hits when they are looked at."""

    def document(self, number: int, doc_id: str) -> Document:
        """The document with a number, under the id that its hit has."""


@dataclass(frozen=True, slots=True)
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

    @property
    def id(self) -> str:
        """The id of the document."""
        return self.document.id

    def at_rank(self, rank: int, score: float | None = None) -> Hit:
        """The same hit with another rank and, if it is given, another score; the document is not looked at.

        >>> Hit(3, 2.5, Document("7", {})).at_rank(1)
        Hit(rank=1, score=2.5, document=Document(id='7', content={}), passage=None)
        """
        return replace(self, rank=rank, score=self.score if score is None else score)

    def as_passage(self, doc_id: str, passage: int, rank: int) -> Hit:
        """The hit of a document whose passage was found, given that of the passage."""
        return Hit(rank, self.score, Document(doc_id, self.document.content), passage)

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


class _Found(NamedTuple):
    """Where the documents of hits can be read."""

    numbers: Sequence[int]
    first: int
    """The rank of the hit that the first number belongs to."""
    source: DocumentSource

    def number_at(self, rank: int) -> int:
        """The number of the document at a rank."""
        return int(self.numbers[rank - self.first])


class _LazyHit(Hit):
    """A hit whose document is read when it is looked at. It passes for a `Hit`, which it is to all who ask.

    It is made three times as fast as a `Hit`, since Python does not check that nothing is changed, and many are made
    by machine code.
    """

    __slots__ = ("_found", "id")
    __setattr__ = object.__setattr__
    __delattr__ = object.__delattr__  # or the other is called like a function of Python
    __class__ = property(lambda _: Hit)  # for `replace`, == and the text of a hit
    passage: int | None = None

    def __init__(self, doc_id: str, rank: int, score: float, found: _Found) -> None:
        self.id = doc_id  # type: ignore[misc]  # a slot, since Python would have to call a property
        self.rank = rank  # type: ignore[misc]
        self.score = score  # type: ignore[misc]
        self._found = found

    @property
    def document(self) -> Document:
        """The document, read at the first use."""
        try:
            return _READ.__get__(self)  # type: ignore[no-any-return]
        except AttributeError:
            found = self._found
        document = found.source.document(found.number_at(self.rank), self.id)
        _READ.__set__(self, document)
        return document

    def at_rank(self, rank: int, score: float | None = None) -> Hit:
        return self._like(rank, self.score if score is None else score, self.id, self.passage)

    def as_passage(self, doc_id: str, passage: int, rank: int) -> Hit:
        return self._like(rank, self.score, doc_id, passage)

    def _like(self, rank: int, score: float, doc_id: str, passage: int | None) -> Hit:
        found = _Found([self._found.number_at(self.rank)], rank, self._found.source)
        if passage is None:
            return _LazyHit(doc_id, rank, score, found)
        return _LazyPassage(doc_id, rank, score, found, passage)

    def __reduce__(self) -> tuple[Any, ...]:
        """What is copied and pickled: the document itself, not where it could be read."""
        return Hit, (self.rank, self.score, self.document, self.passage)


class _LazyPassage(_LazyHit):
    """The same of a passage."""

    __slots__ = ()

    def __init__(self, doc_id: str, rank: int, score: float, found: _Found, passage: int) -> None:
        super().__init__(doc_id, rank, score, found)
        self.passage = passage


_FILLED = ("id", "rank", "score", "_found")
_READ: Any = Hit.__dict__["document"]  # the slot that a lazy hit keeps its document in
_LazyPassage.passage = Hit.__dict__["passage"]
_LazyHit.__name__ = _LazyPassage.__name__ = "Hit"  # in messages


def lazy_hits(
    numbers: Sequence[int], ids: list[str], scores: list[float], source: DocumentSource, first: int = 1
) -> list[Hit]:
    """Hits whose documents are read from a source when one of them is looked at; `first`: the rank of the first.

    >>> class Titles:
    ...     def document(self, number, doc_id):
    ...         return Document(doc_id, {"title": ("Dogs", "Cats")[number]})
    >>> [hit] = lazy_hits([1], ["b"], [2.5], Titles())
    >>> hit.id, hit["title"], hit == Hit(1, 2.5, Document("b", {"title": "Cats"}))
    ('b', 'Cats', True)
    """
    count, found = len(ids), _Found(numbers, first, source)
    ranks = _RANKS if first == 1 and count <= len(_RANKS) else list(range(first, first + count))
    if count < _MANY:
        return list(map(_LazyHit, ids, ranks, scores, repeat(found)))
    return maker(_LazyHit, _FILLED)(ids, ranks, scores, found)


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
