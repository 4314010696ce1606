"""What a client asks of a vizsla server and what it makes of the answers, without any network.

Each call is a generator: it yields requests, is sent the JSON of each answer, and returns the result. So the same calls
serve the synchronous client and the asynchronous one.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from vizsla.errors import UnknownNameError, VizslaError, kind_of
from vizsla.index.search.facets import Facets, FacetValue, FieldFacets
from vizsla.runs import Document, Explanation, Filter, FilterLike, Hits, KnownDocuments, PageOptions, document_id
from vizsla.runs.query_language import check_syntax
from vizsla.runs.retriever import check_count, check_queries, document_ids, query_with_words

QUERIES = 32
"""Queries of one request at most; the others wait, so that no request takes long."""
HITS = 20_000  # of one answer at most, over all its queries
IDS = 1000  # of one request
CHUNK_BYTES, CHUNK_DOCUMENTS = 2 << 20, 5000
"""Documents are sent in pieces of about this size, each of which can be sent again."""

T = TypeVar("T")
_OF_SCORES = ("model", "weights", "expand", "syntax")  # options that decide the score of a document


@dataclass(frozen=True)
class Request:
    """A request to a server, whose address comes before the path."""

    method: str
    path: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    lines: bytes | None = None
    """JSON lines, instead of a body."""
    writes: bool = False
    """Whether it changes documents, which may take longer than reading."""


Call = Generator[Request, Any, T]


class Suggestion(NamedTuple):
    """A word that completes what somebody types, and in how many documents it occurs."""

    text: str
    documents: int


@dataclass(frozen=True)
class RemoteOptions:
    """How a server searches; None is the index's own way."""

    model: str | None = None
    weights: tuple[float, ...] | None = None
    combine: str | None = None
    expand: str | None = None
    search_params: str | None = None
    rerank: str | None = None
    depth: int | None = None
    syntax: str | None = None

    def __post_init__(self) -> None:
        if self.model is not None and not isinstance(self.model, str):
            raise VizslaError(f"a server takes a model as a text, as in bm25(k1=1.2), not {kind_of(self.model)}")
        check_syntax(self.syntax)

    def as_body(self) -> dict[str, Any]:
        """The options that were chosen, as a search sends them."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def for_explaining(self) -> dict[str, Any]:
        """The options that decide the score of a document alone."""
        return {name: value for name, value in self.as_body().items() if name in _OF_SCORES}


def meet(server: str, name: str) -> Call[tuple[Calls, dict[str, Any]]]:
    """The calls to an index of a server, and what the server says of it; `name` may be empty if it has only one."""
    answer = yield Request("GET", "/v1/indexes")
    try:
        indexes = {facts["name"]: facts for facts in answer["indexes"]}
        limits = Limits.of(answer.get("limits", {}))
        str(answer["vizsla"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise VizslaError(f"{server}: this is not a vizsla server: it does not say which indexes it has") from None
    if not name and len(indexes) != 1:
        raise VizslaError(f"{server}: add the name of an index after a slash; there is {', '.join(indexes) or 'none'}")
    chosen = name or next(iter(indexes))
    if chosen not in indexes:
        raise VizslaError(f"{server}: {UnknownNameError('index', chosen, tuple(indexes))}")
    facts = indexes[chosen]
    if "model" not in facts:
        reason = facts.get("reason") or "the server does not say why"
        raise VizslaError(f"{server}: the index {chosen} cannot be searched now: {reason}")
    abilities = Abilities(str(answer["vizsla"]), frozenset(map(str, answer.get("abilities", ()))))
    return Calls(chosen, limits, abilities=abilities), facts


@dataclass(frozen=True)
class Limits:
    """What a server takes at most: queries of a request, and results of a query."""

    queries: int = QUERIES
    k: int = 1000

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Limits:
        """The limits that a server tells; those it does not tell are usual ones."""
        queries, k = int(told.get("queries", cls.queries)), int(told.get("k", cls.k))
        return cls(max(min(queries, QUERIES), 1), max(k, 1))


@dataclass(frozen=True)
class Abilities:
    """What a server can do beyond what all servers can; one of an earlier version can do less."""

    version: str = ""
    known: frozenset[str] = frozenset()

    def check(self, wanted: Iterable[str]) -> None:
        """Refuse what the server does not know."""
        for ability in wanted:
            if ability not in self.known:
                version = f"runs vizsla {self.version} and " if self.version else ""
                raise VizslaError(f"the server {version}does not know {ability}; update it, or leave {ability} out")


@dataclass
class Seen:
    """The newest commit that searches must see; the server waits until it does. 0 is any."""

    generation: int = 0

    def as_body(self) -> dict[str, int]:
        """What a request sends for it."""
        return {"generation": self.generation} if self.generation else {}

    def at_least(self, generation: int) -> int:
        """Let all later searches see this commit."""
        self.generation = max(self.generation, generation)
        return generation


@dataclass(frozen=True)
class Calls:
    """The calls to one index of a server, searched in one way."""

    index: str
    limits: Limits = Limits()
    options: RemoteOptions = RemoteOptions()
    seen: Seen = field(default_factory=Seen)
    abilities: Abilities = Abilities()

    def searched_with(self, options: RemoteOptions) -> Calls:
        """The same with other options. Both see the same commits."""
        self.abilities.check(["syntax"] if options.syntax is not None else [])
        return replace(self, options=options)

    # Reading

    def info(self) -> Call[dict[str, Any]]:
        """What the server says of the index."""
        after = {name: str(value) for name, value in self.seen.as_body().items()}
        facts: dict[str, Any] = yield self._request("GET", parameters=after)
        return facts

    def model_name(self) -> Call[str]:
        """The name of the model that searches use; one that the index cannot search with is refused."""
        answer = yield self._search({"query": "vizsla", "k": 1, "fields": []})
        return str(answer["model"])

    def search_many(
        self,
        queries: Sequence[str],
        k: int = 10,
        filter: FilterLike = None,
        documents: bool = True,
        page: PageOptions | None = None,
    ) -> Call[list[Hits]]:
        """The hits of many queries, a chunk of them with each request; a query without a word finds nothing."""
        texts, k = check_queries(queries), check_count(k, "k, the number of results,")
        asked = [number for number, text in enumerate(texts) if text.strip()]
        found = [Hits() for _ in texts]
        at_once = max(min(self.limits.queries, HITS // k), 1)
        chosen = {name: value for name, value in (page or {}).items() if value is not None and name != "offset"}
        self.abilities.check(chosen)
        body = {**_filter(filter), **({} if documents else {"fields": []}), **chosen}
        first = 0 if page is None else page.get("offset", 0)
        if type(first) is not int or first < 0:
            raise VizslaError(f"offset, how many results are left out, must be 0 or more, not {kind_of(first)}")
        for start in range(0, len(asked), at_once):
            chunk = asked[start : start + at_once]
            hits = yield from self._all_pages({"queries": [texts[number] for number in chunk], **body}, k, first)
            for number, own in zip(chunk, hits, strict=True):
                found[number] = own
        return found

    def _all_pages(self, body: Mapping[str, Any], k: int, first: int = 0) -> Call[list[Hits]]:
        """The k best of each query behind the first ones, all of one commit.

        They come in pages if the server gives fewer at a time.
        """
        found: list[list[dict[str, Any]]] = [[] for _ in body["queries"]]
        generation, offset = None, first
        while offset < first + k:
            size = min(first + k - offset, self.limits.k)
            answer = yield self._search({**body, "k": size, **({"offset": offset} if offset else {})})
            if generation not in (None, answer["generation"]):
                found, generation, offset = [[] for _ in found], None, first
                continue
            generation, offset = answer["generation"], offset + size
            for own, result in zip(found, answer["results"], strict=True):
                own.extend(result["hits"])
            if all(first + len(own) < offset for own in found):
                break  # there are no more
        return [_hits(own) for own in found]

    def similar(self, doc_id: str | int, k: int = 10, filter: FilterLike = None) -> Call[Hits]:
        """The documents that are most like one, without itself."""
        k = check_count(k, "k, the number of results,")
        answer = yield self._search({"like": document_id(doc_id), "k": k, **_filter(filter)})
        return _hits(answer["results"][0]["hits"])

    def facets(
        self, fields: Sequence[str], query: str | None, filter: FilterLike, over: str | int, size: int
    ) -> Call[Facets]:
        """How often the values of fields occur among the documents that match a query."""
        if isinstance(fields, str):
            raise VizslaError(f'fields are a list of names, as in ["year", "lang"], not {kind_of(fields)}')
        wanted = {"fields": list(fields), "over": over, "size": check_count(size, "size, the number of values,")}
        asked = {} if query is None else {"query": query_with_words(query)}
        answer = yield self._search({**asked, "k": 0, "facets": wanted, **_filter(filter)})
        result = answer["results"][0]
        return Facets(
            {name: _field_facets(counted) for name, counted in result["facets"].items()},
            result["facets_over"]["documents"],
        )

    def suggest(self, prefix: str, size: int = 8) -> Call[list[Suggestion]]:
        """Words of the collection that complete the last word of a text."""
        answer = yield self._request("GET", "/suggest", parameters={"prefix": prefix, "size": str(size)})
        return [Suggestion(row["text"], row["documents"]) for row in answer["suggestions"]]

    def get_many(self, ids: Iterable[str | int]) -> Call[dict[str, Document]]:
        """Documents by id, without those that are not there."""
        wanted = list(dict.fromkeys(document_ids(ids)))
        found: dict[str, Document] = {}
        after = self.seen.as_body()
        for start in range(0, len(wanted), IDS):
            answer = yield self._request("POST", "/docs", body={"ids": wanted[start : start + IDS], **after})
            found |= {row["id"]: Document(row["id"], row["document"]) for row in answer["documents"]}
        return found

    def explain(self, query: str, doc_id: str | int, filter: FilterLike = None) -> Call[Explanation]:
        """Why a document has its score."""
        wanted = {"query": query_with_words(query), "id": document_id(doc_id)}
        body = {**wanted, **_filter(filter), **self.options.for_explaining(), **self.seen.as_body()}
        answer = yield self._request("POST", "/explain", body=body)
        return _explanation(answer["explanation"])

    def wait_for(self, generation: int) -> Call[int]:
        """The generation that searches see, once it is this one or a later one."""
        answer = yield replace(self, seen=Seen(generation))._search({"query": "vizsla", "k": 0})
        return self.seen.at_least(int(answer["generation"]))

    # Writing

    def add(self, documents: Iterable[Document | Mapping[str, Any]]) -> Call[int]:
        """Send documents, in pieces; how many there were."""
        pieces = Pieces()
        for document in documents:
            if piece := pieces.take(document):
                yield self.piece(piece)
        if piece := pieces.rest():
            yield self.piece(piece)
        return pieces.count

    def piece(self, lines: bytes) -> Request:
        """The request that sends some documents as JSON lines."""
        return self._request("POST", "/documents", parameters={"commit": "false"}, lines=lines, writes=True)

    def delete(self, ids: str | int | Iterable[str | int] | None, filter: FilterLike) -> Call[None]:
        """Delete documents by id or by a filter."""
        if (ids is None) == (filter is None):
            raise VizslaError("give either the ids of the documents to delete or a filter")
        if ids is None:
            yield self._change("/delete", _filter(filter), commit="false")
            return
        wanted = document_ids(ids)
        for start in range(0, len(wanted), IDS):
            yield self._change("/delete", {"ids": wanted[start : start + IDS]}, commit="false")

    def commit(self) -> Call[int]:
        """Make what was sent visible, to all later searches; the new generation."""
        answer = yield self._change("/commit")
        return self.seen.at_least(int(answer["generation"]))

    def compact(self) -> Call[int]:
        """Rewrite the index without what was deleted; the new generation."""
        answer = yield self._change("/compact")
        return self.seen.at_least(int(answer["generation"]))

    def _change(self, path: str, body: Mapping[str, Any] | None = None, **parameters: str) -> Request:
        return self._request("POST", path, parameters=parameters, body=body or {}, writes=True)

    def _search(self, body: Mapping[str, Any]) -> Request:
        return self._request("POST", "/search", body={**body, **self.options.as_body(), **self.seen.as_body()})

    def _request(self, method: str, path: str = "", **details: Any) -> Request:
        return Request(method, f"/v1/{quote(self.index, safe='')}{path}", **details)


class Pieces:
    """Documents as JSON lines, gathered until there are enough of them for a request."""

    def __init__(self) -> None:
        self.count = 0
        self._lines: list[bytes] = []
        self._bytes = 0

    def take(self, document: Document | Mapping[str, Any]) -> bytes | None:
        """Take a document; gives the lines to send if there are enough now."""
        line = _line(document)
        self.count += 1
        self._lines.append(line)
        self._bytes += len(line)
        return self.rest() if self._bytes >= CHUNK_BYTES or len(self._lines) >= CHUNK_DOCUMENTS else None

    def rest(self) -> bytes:
        """The lines that were not sent yet."""
        lines, self._lines, self._bytes = b"".join(self._lines), [], 0
        return lines


def _line(document: Document | Mapping[str, Any]) -> bytes:
    if isinstance(document, Document):
        record: Mapping[str, Any] = {**document.content, "_id": document.id}
    elif isinstance(document, Mapping):
        record = document
    else:
        raise VizslaError(f"a document is a mapping with an id and a text, not {kind_of(document)}")
    try:
        return json.dumps(dict(record), allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as e:
        wanted = next((record[key] for key in ("_id", "id") if key in record), None)
        raise VizslaError(f"the document {wanted!r} cannot be sent, since it cannot be written as JSON: {e}") from None


def _filter(filter: FilterLike) -> dict[str, str]:
    """A filter for a request; a wrong one is refused before anything is sent."""
    condition = Filter.of(filter)
    return {} if condition is None else {"filter": str(condition)}


def _hits(rows: Sequence[Mapping[str, Any]]) -> Hits:
    """The hits of a query, whose ranks follow one another."""
    if not rows:
        return Hits()
    ids, scores = [row["id"] for row in rows], [row["score"] for row in rows]
    source, passages = KnownDocuments([row["document"] for row in rows]), [row.get("passage") for row in rows]
    return Hits.from_columns(ids, scores, source=source, first=rows[0]["rank"], passages=passages)


def _field_facets(counted: Mapping[str, Any]) -> FieldFacets:
    values = tuple(FacetValue(row["value"], row["count"]) for row in counted["values"])
    return FieldFacets(values, counted["distinct"], counted["missing"])


def _explanation(tree: Mapping[str, Any]) -> Explanation:
    facts = {name: value for name, value in tree.items() if name not in ("name", "score", "parts")}
    parts = tuple(_explanation(part) for part in tree.get("parts", ()))
    return Explanation(tree["name"], tree["score"], facts, parts)
