"""What a search gives back: documents with their scores, best first."""

from __future__ import annotations

import html
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from importlib import import_module
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypedDict, TypeVar, overload

from vizsla.errors import UnknownNameError, VizslaError, kind_of
from vizsla.harmless import harmless
from vizsla.runs.documents import Document
from vizsla.runs.outline import Place
from vizsla.text.tokens import count_tokens

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")
_Row = tuple[int, float, str, int | None, int]  # rank, score, id, passage, and the number of the document in its source
_SHOWN = 200  # characters of a text in a notebook


class DocumentSource(Protocol):
    """Reads the documents of hits when they are accessed."""

    def document(self, number: int, doc_id: str) -> Document:
        """The document with a number, under the id that its hit has."""


class _NoDocuments:
    """Documents without content."""

    def document(self, number: int, doc_id: str) -> Document:  # noqa: ARG002 (a source like any other)
        return Document(doc_id, {})


NO_DOCUMENTS = _NoDocuments()
"""The source of hits that have ids and scores only."""


class KnownDocuments:
    """A source of documents whose contents are known: a number is a place among them.

    >>> KnownDocuments([{"title": "Dogs"}, {"title": "Cats"}]).document(1, "8")
    Document(id='8', content={'title': 'Cats'})
    """

    def __init__(self, contents: Sequence[Mapping[str, Any]]) -> None:
        self._contents = contents

    def document(self, number: int, doc_id: str) -> Document:
        """The document at a place, under an id."""
        return Document(doc_id, self._contents[number])


class Hit:
    """A document that was found, its score, and its rank from 1. A hit cannot be changed.

    `hit["title"]` and `hit.get("title")` are fields of the document; `hit["id"]` is its id, unless it has such a field.
    The document is read when it is first accessed, and then kept.

    >>> hit = Hit(1, 2.5, Document("7", {"title": "Dogs"}))
    >>> hit.id, hit["title"], hit.get("year")
    ('7', 'Dogs', None)
    """

    __slots__ = ("_document", "_row")

    def __init__(self, rank: int, score: float, document: Document, passage: int | None = None) -> None:
        self._row: _Row = (rank, score, document.id, passage, 0)
        self._document: Document | DocumentSource = document

    @property
    def rank(self) -> int:
        """The rank, from 1."""
        return self._row[0]

    @property
    def score(self) -> float:
        """The score; higher is better."""
        return self._row[1]

    @property
    def id(self) -> str:
        """The id of the document."""
        return self._row[2]

    @property
    def passage(self) -> int | None:
        """In an index of passages: the number of the passage that was found, from 0. The document has its text."""
        return self._row[3]

    @property
    def document(self) -> Document:
        """The document."""
        document = self._document
        if not isinstance(document, Document):
            document = self._document = document.document(self._row[4], self._row[2])
        return document

    @property
    def place(self) -> Place:
        """Where the text stands in its document: under which headings, on which pages, from which character on.

        >>> hit = Hit(1, 2.5, Document("7", {"title": "Dogs", "text": "They bark.", "outline": {"pages": [0]}}))
        >>> str(hit.place)
        'Dogs, page 1'
        """
        return Place.of(self.document.content)

    @property
    def context(self) -> str:
        """The text for a language model, under a line that says where it is from; see `Hits.context`."""
        text = self.document.content.get("text")
        head = f"[{self.rank}] {str(self.place) or self.id}"
        return f"{head}\n{text.strip()}" if isinstance(text, str) else head

    def at_rank(self, rank: int, score: float | None = None) -> Hit:
        """The same hit with another rank and, if it is given, another score; the document is not looked at.

        >>> Hit(3, 2.5, Document("7", {})).at_rank(1)
        Hit(rank=1, score=2.5, document=Document(id='7', content={}), passage=None)
        """
        hit = Hit.__new__(Hit)
        hit._row = (rank, self.score if score is None else score, *self._row[2:])
        hit._document = self._document
        return hit

    def __getitem__(self, key: str) -> Any:
        if key == "id" and key not in self.document.content:
            return self.id
        return self.document.content[key]

    def __contains__(self, key: object) -> bool:
        return key == "id" or key in self.document.content

    def get(self, key: str, default: Any = None) -> Any:
        """A field of the document, or a default if it has no such field.

        >>> Hit(1, 2.5, Document("7", {"title": "Dogs"})).get("year", 1999)
        1999
        """
        try:
            return self[key]
        except KeyError:
            return default

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Hit):
            return NotImplemented
        return self._row[:4] == other._row[:4] and self.document == other.document

    def __hash__(self) -> int:
        return hash(self._row[:4])

    def __repr__(self) -> str:
        return f"Hit(rank={self.rank}, score={self.score!r}, document={self.document!r}, passage={self.passage})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copying and pickling: the document itself is copied, not the source it is read from."""
        return Hit, (self.rank, self.score, self.document, self.passage)


class PageOptions(TypedDict, total=False):
    """Which results of a search are given; see `Index.search_many`."""

    offset: int
    sort: str | None
    collapse: str | None
    min_score: float | None
    typos: str | None
    total: bool
    passages: int
    window: int | str
    max_tokens: int | None


TYPOS = ("off", "suggest", "on")
"""What may be done about typing errors: nothing, a suggestion, or a correction."""


def check_typos(name: object) -> str | None:
    """What to do about typing errors, None for nothing; anything else is refused."""
    if name is not None and not isinstance(name, str):
        raise VizslaError(f"typos is a text, as in 'suggest', not {kind_of(name)}")
    if name is not None and name not in TYPOS:
        raise UnknownNameError("way with typos", name, TYPOS)
    return None if name == "off" else name


def check_total(value: object) -> bool:
    """Whether the total of all results is asked for; anything but true and false is refused."""
    if not isinstance(value, bool):
        raise VizslaError(f"total is true or false, not {kind_of(value)}")
    return value


def check_max_tokens(value: object) -> int | None:
    """A budget of tokens, None for no limit; anything but a positive whole number is refused."""
    if value is not None and (type(value) is not int or value < 1):
        raise VizslaError(f"max_tokens is a whole number of 1 or more, not {kind_of(value)}")
    return value


class _DocumentsOfHits:
    """A source with the documents of existing hits; a number is a position among the hits."""

    def __init__(self, hits: Sequence[Hit]) -> None:
        self._hits = hits

    def document(self, number: int, doc_id: str) -> Document:  # noqa: ARG002 (the hit knows its id)
        return self._hits[number].document


class _Columns:
    """The columns of a ranking, and the documents that have been read: a source whose numbers are rows."""

    __slots__ = (
        "_documents", "_id_lists", "_ids", "_numbers", "_place", "_scores", "_source", "passages", "ranks", "spelling",
        "total",
    )  # fmt: skip

    def __init__(
        self,
        ids: Sequence[list[str]],
        place: int,
        scores: list[float] | np.ndarray,
        ranks: range | list[int],
        passages: Sequence[int | None] | None,
        numbers: Sequence[int] | np.ndarray,
        source: DocumentSource,
    ) -> None:
        """`ids`: those of several rankings, of which this is the one at `place`; they are not looked at yet."""
        self._id_lists, self._place, self._scores, self.ranks, self.passages = ids, place, scores, ranks, passages
        self._numbers, self._source = numbers, source
        self._ids: list[str] | None = None
        self._documents: dict[int, Document] = {}
        self.spelling: tuple[str | None, str | None] = (None, None)
        self.total: int | None = None

    @classmethod
    def of(cls, hits: Sequence[Hit]) -> _Columns:
        """The columns of hits."""
        ids, scores, ranks = [hit.id for hit in hits], [hit.score for hit in hits], [hit.rank for hit in hits]
        return cls([ids], 0, scores, ranks, [hit.passage for hit in hits], range(len(hits)), _DocumentsOfHits(hits))

    @property
    def ids(self) -> list[str]:
        if self._ids is None:
            self._ids = self._id_lists[self._place]
        return self._ids

    @property
    def scores(self) -> list[float]:
        scores = self._scores
        if not isinstance(scores, list):
            scores = self._scores = scores.tolist()
        return scores

    def document(self, number: int, doc_id: str) -> Document:
        """The document of a row, read at the first look."""
        known = self._documents.get(number)
        if known is None:
            read = self._source.document(int(self._numbers[number]), doc_id)
            known = self._documents.setdefault(number, read)  # another thread may have been faster
        return known

    def hits(self, rows: range) -> Iterator[Hit]:
        """The hits of some rows, made as they are looked at."""
        new = Hit.__new__
        passages = repeat(None, len(rows)) if self.passages is None else _picked(self.passages, rows)
        ranks, scores, ids = _picked(self.ranks, rows), _picked(self.scores, rows), _picked(self.ids, rows)
        for row in zip(ranks, scores, ids, passages, rows, strict=True):
            hit = new(Hit)  # a function call for each hit would take a third longer
            hit._row = row
            hit._document = self
            yield hit


def _picked(column: Any, rows: range) -> Any:
    """Some rows of a column."""
    return column[rows.start : rows.stop] if rows.step == 1 else [column[row] for row in rows]


class Hits(Sequence[Hit]):
    """The hits of a query: a sequence that cannot be changed, can become a table, and is one in a notebook.

    `hits.ids` and `hits.scores` are lists. A `Hit` is made when it is looked at, so a long ranking costs little.

    >>> hits = Hits([Hit(1, 2.5, Document("7", {"title": "Dogs"})), Hit(2, 1.5, Document("8", {"year": 1999}))])
    >>> hits[0]["title"], hits[1:].ids, [hit.rank for hit in hits], len(hits)
    ('Dogs', ['8'], [1, 2], 2)
    """

    __slots__ = ("_lists", "_own", "_place", "_source")
    __hash__ = None  # type: ignore[assignment]
    _own: tuple[_Columns, range] | None
    """The columns and the rows of the hits; None where they are still to be cut out."""
    _lists: HitLists
    """Without own columns: the hits of several queries, the place of this query, and the source of its documents."""
    _place: int
    _source: DocumentSource

    def __init__(self, hits: Iterable[Hit] = ()) -> None:
        if isinstance(hits, Hits):
            self._own = hits._looked_at()
        else:
            columns = _Columns.of(list(hits))
            self._own = columns, range(len(columns.ranks))

    @classmethod
    def from_columns(
        cls,
        ids: list[str],
        scores: list[float] | np.ndarray,
        numbers: Sequence[int] | np.ndarray | None = None,
        source: DocumentSource = NO_DOCUMENTS,
        *,
        first: int = 1,
        passages: Sequence[int | None] | None = None,
        total: int | None = None,
    ) -> Hits:
        """Hits from ids and scores, best first.

        `source` reads the documents, by their `numbers`, when they are accessed; by default the numbers are positions
        and documents have no content. `first`: the rank of the first hit. `passages`: the passage numbers, if any.
        `total`: how many results there are in all, where that is known.

        >>> hits = Hits.from_columns(["7", "8"], [2.5, 1.5], source=KnownDocuments([{"title": "Dogs"}, {}]), first=11)
        >>> hits[0]["title"], hits[-1].rank, hits.scores
        ('Dogs', 12, [2.5, 1.5])
        """
        count = len(scores)
        if len(ids) != count:
            raise ValueError("hits need a score for every id")
        places, ranks = range(count), range(first, first + count)
        known = places if numbers is None else numbers
        columns = _Columns([ids], 0, scores, ranks, passages, known, source)
        columns.total = total
        return cls._view(columns, places)

    @classmethod
    def _view(cls, columns: _Columns, rows: range) -> Hits:
        hits = cls.__new__(cls)
        hits._own = columns, rows
        return hits

    def _looked_at(self) -> tuple[_Columns, range]:
        own = self._own
        if own is None:
            columns = self._lists.columns(self._place, self._source)
            own = self._own = columns, range(len(columns.ranks))
        return own

    @property
    def _columns(self) -> _Columns:
        return self._looked_at()[0]

    @property
    def _rows(self) -> range:
        return self._looked_at()[1]

    @property
    def ids(self) -> list[str]:
        """The ids of the documents, in order; no hit is made.

        >>> Hits([Hit(1, 2.5, Document("7", {})), Hit(2, 1.5, Document("8", {}))]).ids
        ['7', '8']
        """
        return self._lists.ids[self._place] if self._own is None else self._column(self._columns.ids)

    @property
    def scores(self) -> list[float]:
        """The scores, in order; no hit is made.

        >>> Hits([Hit(1, 2.5, Document("7", {})), Hit(2, 1.5, Document("8", {}))]).scores
        [2.5, 1.5]
        """
        return self._lists.scores_of(self._place) if self._own is None else self._column(self._columns.scores)

    @property
    def did_you_mean(self) -> str | None:
        """The query without what may be typing errors, where a search with `typos="suggest"` finds any.

        >>> Hits([]).with_spelling(did_you_mean="dogs").did_you_mean
        'dogs'
        """
        return self._columns.spelling[0]

    @property
    def corrected(self) -> str | None:
        """The query that was searched instead of the one that was typed, by a search with `typos="on"`.

        >>> Hits([]).corrected is None
        True
        """
        return self._columns.spelling[1]

    @property
    def total(self) -> int | None:
        """How many results all pages have together; None where the search has not counted them.

        A search counts them with `total=True`, or by itself where it has found them all anyway. Part of some hits has
        the same total.

        >>> hits = Hits([Hit(1, 2.5, Document("7", {}))])
        >>> hits.total, hits.with_total(234)[:0].total
        (None, 234)
        """
        return self._columns.total

    def with_total(self, total: int | None) -> Hits:
        """The same hits, with how many results there are in all.

        >>> Hits([]).with_total(0).total
        0
        """
        columns = copy(self._columns)
        columns.total = total
        return self._view(columns, self._rows)

    def with_spelling(self, *, did_you_mean: str | None = None, corrected: str | None = None) -> Hits:
        """The same hits, with what is to be said about the spelling of the query.

        >>> Hits([]).with_spelling(corrected="dogs").corrected
        'dogs'
        """
        columns = copy(self._columns)
        columns.spelling = did_you_mean, corrected
        return self._view(columns, self._rows)

    @property
    def context(self) -> str:
        """The texts for the context of a language model, each under a line with its number, headings and pages.

        >>> print(Hits([Hit(1, 2.5, Document("7", {"title": "Dogs", "text": "They bark."}))]).context)
        [1] Dogs
        They bark.
        """
        return "\n\n".join(hit.context for hit in self)

    def within(self, max_tokens: int, count: Callable[[str], int] = count_tokens) -> Hits:
        """The best hits whose `context` has at most so many tokens together, with new ranks.

        A hit that does not fit any more is left out; smaller ones after it may still fit. `count`: how many tokens a
        text has; by default about (`count_tokens`). A tokenizer counts exactly: `lambda text: len(encode(text))`.

        >>> hits = Hits([Hit(n, 1.0, Document(str(n), {"text": "dogs " * 4 * n})) for n in (1, 3, 2)])
        >>> hits.within(20).ids
        ['1', '2']
        """
        budget = check_max_tokens(max_tokens)
        kept: list[Hit] = []
        for hit in self:
            numbered = hit.at_rank(self[0].rank + len(kept))
            size = count(numbered.context)
            if budget is None or size <= budget:
                budget = None if budget is None else budget - size
                kept.append(numbered)
        said = Hits(kept).with_spelling(did_you_mean=self.did_you_mean, corrected=self.corrected)
        return said.with_total(self.total)

    def _column(self, values: Sequence[T]) -> list[T]:
        return list(_picked(values, self._rows))

    def __len__(self) -> int:
        return self._lists.size(self._place) if self._own is None else len(self._rows)

    @overload
    def __getitem__(self, at: int) -> Hit: ...
    @overload
    def __getitem__(self, at: slice) -> Hits: ...
    def __getitem__(self, at: int | slice) -> Hit | Hits:
        columns, rows = self._looked_at()
        try:
            if isinstance(at, slice):
                return self._view(columns, rows[at])
            row = rows[at]
        except IndexError:
            raise IndexError(f"there is no hit at {at}; the number of hits is {len(self)}") from None
        except TypeError:
            raise TypeError(f"hits are looked up by a whole number or a slice, not by {kind_of(at)}") from None
        return next(columns.hits(range(row, row + 1)))

    def __iter__(self) -> Iterator[Hit]:
        columns, rows = self._looked_at()
        return columns.hits(rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Hits | list):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))

    def __repr__(self) -> str:
        return f"Hits({list(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copying and pickling: the hits are copied with their documents, not with the source they are read from."""
        return _restored, (list(self), self.did_you_mean, self.corrected, self.total)

    def columns(self) -> dict[str, list[Any]]:
        """Ranks, ids, scores and the fields of documents, a list of values each; None where a document has none.

        A field that is called rank, id, score or passage is named `document.rank` and so on.

        >>> Hits([Hit(1, 2.5, Document("7", {"title": "Dogs"})), Hit(2, 1.5, Document("8", {"year": 1999}))]).columns()
        {'rank': [1, 2], 'id': ['7', '8'], 'score': [2.5, 1.5], 'title': ['Dogs', None], 'year': [None, 1999]}
        """
        table: dict[str, list[Any]] = {"rank": self._column(self._columns.ranks), "id": self.ids, "score": self.scores}
        passages = [] if self._columns.passages is None else self._column(self._columns.passages)
        if any(passage is not None for passage in passages):
            table["passage"] = passages
        own = {*table, "passage"}
        contents = [hit.document.content for hit in self]
        for field in dict.fromkeys(field for content in contents for field in content):
            table[f"document.{field}" if field in own else field] = [content.get(field) for content in contents]
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
        spelled = f"<p>showing results for <b>{_escaped(self.corrected)}</b></p>" if self.corrected else ""
        spelled += f"<p>did you mean <b>{_escaped(self.did_you_mean)}</b>?</p>" if self.did_you_mean else ""
        return spelled + (f"<table>{head}{rows}</table>" if self else "<p>nothing found</p>")


class HitLists(NamedTuple):
    """The columns of the hits of several queries, end to end: the i-th has the rows from bounds[i] to bounds[i + 1].

    A search of many queries spends little on each: the columns of a query are cut out when somebody looks at more than
    ids and scores. That counts where threads search, since only one of them runs Python at a time.

    >>> import numpy as np
    >>> lists = HitLists([["7", "8"], ["9"]], np.array([2.5, 1.5, 3.0]), np.array([0, 1, 2]), [0, 2, 3], below=2)
    >>> dogs, cats = lists.hits(range(2), KnownDocuments([{"title": "Dogs"}, {}, {"title": "Cats"}]))
    >>> dogs.ids, dogs.total, cats[0]["title"], cats.scores, cats.total
    (['7', '8'], None, 'Cats', [3.0], 1)
    """

    ids: Sequence[list[str]]
    """The ids of each query."""
    scores: np.ndarray
    numbers: np.ndarray
    bounds: Sequence[int]
    first: int = 1
    """The rank of the first hit of each query."""
    below: int = 0
    """Fewer hits than this are all that a query has, so that their total is known."""

    def hits(self, places: range, source: DocumentSource) -> list[Hits]:
        """The hits of some of the queries; `source` reads their documents by `numbers`."""
        new, made = Hits.__new__, []
        for place in places:  # a function call for each would take twice as long
            hits = new(Hits)
            hits._lists, hits._place, hits._source, hits._own = self, place, source, None
            made.append(hits)
        return made

    def size(self, place: int) -> int:
        """How many hits a query has."""
        return self.bounds[place + 1] - self.bounds[place]

    def scores_of(self, place: int) -> list[float]:
        """The scores of a query."""
        scores: list[float] = self.scores[self.bounds[place] : self.bounds[place + 1]].tolist()
        return scores

    def columns(self, place: int, source: DocumentSource) -> _Columns:
        """The columns of a query."""
        a, z = self.bounds[place], self.bounds[place + 1]
        ranks = range(self.first, self.first + z - a)
        columns = _Columns(self.ids, place, self.scores[a:z], ranks, None, self.numbers[a:z], source)
        columns.total = z - a if z - a < self.below else None
        return columns


def _restored(hits: list[Hit], did_you_mean: str | None, corrected: str | None, total: int | None) -> Hits:
    """Hits that were pickled."""
    return Hits(hits).with_spelling(did_you_mean=did_you_mean, corrected=corrected).with_total(total)


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
