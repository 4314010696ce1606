"""What clients ask of a vizsla server and what they make of the answers, without any network.

Each call is a generator: it yields requests, is sent the JSON of each answer, and returns the result. So one
description of the calls serves the synchronous client and the asynchronous one (`remote.py`).
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypedDict, TypeVar, Unpack
from urllib.parse import quote

from vizsla.datasets import RawLines, Skipped, changes_by_id
from vizsla.datasets.records import BATCH
from vizsla.errors import InputError, UnknownNameError, UnsupportedError, VizslaError, kind_of
from vizsla.index import Added, Facets, FacetValue, FieldFacets, Suggestion, TermStatistics, Updated
from vizsla.index.collection import ids_or_filter
from vizsla.index.search.plan import (
    NO_PASSAGES,
    NO_TOTAL,
    NO_TYPOS,
    ModelFreeOptions,
    SearchKeywords,
    SearchSettings,
    check_options,
)
from vizsla.models import Model
from vizsla.runs import Document, Explanation, Filter, FilterLike, Hits, KnownDocuments, Run, document_id
from vizsla.runs.hits import check_max_tokens, check_total, check_typos
from vizsla.runs.query_language import check_syntax
from vizsla.runs.retriever import (
    check_count,
    check_mapping,
    check_queries,
    document_ids,
    query_with_words,
    ranking_of,
)

QUERIES = 32
"""The maximum number of queries in one request, so that no request takes long."""
HITS = 20_000  # of one answer at most, over all its queries
IDS = 1000  # of one request
CHUNK_BYTES, CHUNK_DOCUMENTS = 2 << 20, 5000
"""Documents are sent in pieces of about this size, each of which can be sent again."""

T = TypeVar("T")
_WAY = ("model", "combine", "search_params", "syntax", "language")  # options of a search that a server takes
_PAGE = ("sort", "collapse", "min_score", "typos", "total", "passages", "window", "max_tokens")
_WHOLE: Mapping[str, tuple[int, ...]] = {"passages": (1,), "window": (0,), "max_tokens": ()}  # options of a run
_SPELLING = ("did_you_mean", "corrected")
_OF_SCORES = ("model", "weights", "expand", "syntax", "language")  # options that decide the score of a document


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


@dataclass(frozen=True)
class RemoteOptions:
    """Search options of a server; None stands for the default of the index."""

    model: str | Model | None = None
    weights: tuple[float, ...] | None = None
    combine: str | None = None
    expand: str | None = None
    search_params: str | None = None
    rerank: str | None = None
    depth: int | None = None
    syntax: str | None = None
    language: str | None = None

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


class RemoteKeywords(ModelFreeOptions, total=False):
    """How a server searches, apart from the model."""

    weights: Sequence[float] | None
    expand: str | None
    rerank: str | None
    depth: int | None


class CollectionSettings(TypedDict, total=False):
    """What can be changed of a collection of a server."""

    description: str
    read_only: bool
    documents: int | None
    bytes: int | None


class CollectionProperties(CollectionSettings, total=False):
    """What a collection of a server is created with."""

    model: str | None
    passages: int | None
    store: bool
    positions: bool


def meet(server: str, name: str) -> Call[Calls]:
    """The calls to an index of a server; its name may be empty if the server has only one."""
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
    return Calls(chosen, str(facts["model"]), limits)


@dataclass(frozen=True)
class Limits:
    """The limits of a server: queries per request, and results per query."""

    queries: int = QUERIES
    k: int = 1000

    @classmethod
    def of(cls, reported: Mapping[str, Any]) -> Limits:
        """The limits that a server reports, with defaults for those that it does not report."""
        queries, k = int(reported.get("queries", cls.queries)), int(reported.get("k", cls.k))
        return cls(max(min(queries, QUERIES), 1), max(k, 1))


@dataclass
class Seen:
    """The minimum generation that searches must see; the server waits until it sees that commit. 0 for any."""

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
    """The calls to one index of a server, searched in one way: the methods of a `Collection`, and some of a client.

    Those without a docstring do what `Collection` says of them.
    """

    index: str
    name: str = ""
    """What the model is called."""
    limits: Limits = Limits()
    options: RemoteOptions = RemoteOptions()
    seen: Seen = field(default_factory=Seen)

    # Searching

    def search(
        self, query: str, k: int = 10, filter: FilterLike = None, **options: Unpack[SearchKeywords]
    ) -> Call[Hits]:
        return (yield from self.search_many([query_with_words(query)], k, filter, **options))[0]

    def search_many(
        self,
        queries: Sequence[str],
        k: int = 10,
        filter: FilterLike = None,
        *,
        documents: bool = True,
        **options: Unpack[SearchKeywords],
    ) -> Call[list[Hits]]:
        # A chunk of the queries goes with each request.
        calls, texts, k = (
            self._searched_with(options),
            check_queries(queries),
            check_count(k, "k, the number of results,"),
        )
        asked = [number for number, text in enumerate(texts) if text.strip()]
        found = [Hits().with_total(0) for _ in texts]
        at_once = max(min(self.limits.queries, HITS // k), 1)
        page = {name: options[name] for name in _PAGE if options.get(name) is not None}  # type: ignore[literal-required]
        check_typos(page.get("typos"))
        check_total(page.get("total", False))
        if check_max_tokens(page.get("max_tokens")) is not None:
            k = min(k, self.limits.k)  # one request fills the budget
        body = {**_filter(filter), **({} if documents else {"fields": []}), **page}
        first = options.get("offset", 0)
        if type(first) is not int or first < 0:
            raise VizslaError(f"offset, how many results are left out, must be 0 or more, not {kind_of(first)}")
        for start in range(0, len(asked), at_once):
            chunk = asked[start : start + at_once]
            hits = yield from calls._all_pages({"queries": [texts[number] for number in chunk], **body}, k, first)
            for number, own in zip(chunk, hits, strict=True):
                found[number] = own
        return found

    def _all_pages(self, body: Mapping[str, Any], k: int, first: int = 0) -> Call[list[Hits]]:
        """The k best results of each query after the first `first`, all from one commit.

        They are fetched in pages if k is above the limit of the server.
        """
        found: list[list[dict[str, Any]]] = [[] for _ in body["queries"]]
        generation, offset = None, first
        spelled: list[dict[str, str]] = []
        totals: list[int | None] = []
        while offset < first + k:
            size = min(first + k - offset, self.limits.k)
            answer = yield self._search({**body, "k": size, **({"offset": offset} if offset else {})})
            if generation not in (None, answer["generation"]):
                found, generation, offset = [[] for _ in found], None, first
                continue
            generation, offset = answer["generation"], offset + size
            spelled = [{name: row[name] for name in _SPELLING if name in row} for row in answer["results"]]
            totals = [row.get("total") for row in answer["results"]]
            for own, result in zip(found, answer["results"], strict=True):
                own.extend(result["hits"])
            if all(first + len(own) < offset for own in found):
                break  # there are no more
        return [
            _hits(own).with_spelling(**said).with_total(total)
            for own, said, total in zip(found, spelled, totals, strict=True)
        ]

    def run(
        self, queries: Mapping[str, str], k: int = 1000, filter: FilterLike = None, **options: Unpack[SearchSettings]
    ) -> Call[Run]:
        texts = list(check_mapping(queries).values())
        if check_typos(options.get("typos")) is not None:
            raise VizslaError(NO_TYPOS)
        if options.get("total"):
            raise VizslaError(NO_TOTAL)
        if any(options.get(name) not in (None, *plain) for name, plain in _WHOLE.items()):
            raise VizslaError(NO_PASSAGES)
        found = yield from self.search_many(texts, k, filter, documents=False, **options)
        return Run(dict(zip(queries, map(ranking_of, found), strict=True)), str(options.get("model") or self.name))

    def with_model(self, model: str | Model | None = None, **options: Unpack[RemoteKeywords]) -> Call[Calls]:
        """The calls that search with another model or in another way; what the server cannot do is refused here.

        `model`: a text, as in `bm25(k1=1.2)`. `weights`: of the parts of the index's own model. `expand`: a query
        expander, as in `rm3`. `rerank`: the name of a reranker of the server, and `depth`: how many documents it reads.
        For `combine`, `search_params`, `syntax` and `language` see `Collection.search_many`.
        """
        given = _for_a_server(options)
        for name in given:
            if name not in RemoteOptions.__dataclass_fields__:
                raise UnknownNameError("search option", name, tuple(RemoteOptions.__dataclass_fields__))
        weights = given.get("weights")
        if weights is not None:
            given["weights"] = tuple(float(weight) for weight in weights)
        calls = self._with(RemoteOptions(model, **given))
        answer = yield calls._search({"query": "vizsla", "k": 1, "fields": []})
        return replace(calls, name=str(answer["model"]))

    # Asking

    def get(self, doc_id: str | int) -> Call[Document | None]:
        return (yield from self.get_many([doc_id])).get(document_id(doc_id))

    def get_many(self, ids: Iterable[str | int]) -> Call[dict[str, Document]]:
        wanted = list(dict.fromkeys(document_ids(ids)))
        found: dict[str, Document] = {}
        after = self.seen.as_body()
        for start in range(0, len(wanted), IDS):
            answer = yield self._request("POST", "/docs", body={"ids": wanted[start : start + IDS], **after})
            found |= {row["id"]: Document(row["id"], row["document"]) for row in answer["documents"]}
        return found

    def explain(
        self,
        query: str,
        doc_id: str | int,
        filter: FilterLike = None,
        *,
        model: str | Model | None = None,
        syntax: str | None = None,
        language: str | None = None,
    ) -> Call[Explanation]:
        options = self._searched_with({"model": model, "syntax": syntax, "language": language}).options
        wanted = {"query": query_with_words(query), "id": document_id(doc_id)}
        body = {**wanted, **_filter(filter), **options.for_explaining(), **self.seen.as_body()}
        answer = yield self._request("POST", "/explain", body=body)
        return _explanation(answer["explanation"])

    def facets(
        self,
        fields: Sequence[str],
        query: str | None = None,
        filter: FilterLike = None,
        *,
        over: str | int = "all",
        size: int = 10,
        model: str | Model | None = None,
        syntax: str | None = None,
        language: str | None = None,
    ) -> Call[Facets]:
        if isinstance(fields, str):
            raise VizslaError(f'fields are a list of names, as in ["year", "lang"], not {kind_of(fields)}')
        calls = self._searched_with({"model": model, "syntax": syntax, "language": language})
        wanted = {"fields": list(fields), "over": over, "size": check_count(size, "size, the number of values,")}
        asked = {} if query is None else {"query": query_with_words(query)}
        answer = yield calls._search({**asked, "k": 0, "facets": wanted, **_filter(filter)})
        result = answer["results"][0]
        return Facets(
            {name: _field_facets(counted) for name, counted in result["facets"].items()},
            result["facets_over"]["documents"],
        )

    def count(
        self,
        query: str | None = None,
        filter: FilterLike = None,
        *,
        model: str | Model | None = None,
        syntax: str | None = None,
        language: str | None = None,
    ) -> Call[int]:
        if query is None and filter is None:
            return int((yield from self.info())["documents"])
        return (yield from self.facets([], query, filter, model=model, syntax=syntax, language=language)).documents

    def similar(
        self, doc_id: str | int, k: int = 10, filter: FilterLike = None, *, model: str | Model | None = None
    ) -> Call[Hits]:
        calls, k = self._searched_with({"model": model}), check_count(k, "k, the number of results,")
        answer = yield calls._search({"like": document_id(doc_id), "k": k, **_filter(filter)})
        return _hits(answer["results"][0]["hits"])

    def suggest(self, prefix: str, size: int = 8, *, language: str | None = None) -> Call[list[Suggestion]]:
        chosen = language or self.options.language
        wanted = {"prefix": prefix, "size": str(size), **({} if chosen is None else {"language": chosen})}
        answer = yield self._request("GET", "/suggest", parameters=wanted)
        return [Suggestion(row["text"], row["documents"]) for row in answer["suggestions"]]

    def term_statistics(self, text: str) -> Call[list[TermStatistics]]:
        answer = yield self._request("GET", "/terms", parameters={"text": query_with_words(text)})
        return [TermStatistics(**{**row, "words": tuple(row["words"])}) for row in answer["terms"]]

    def info(self) -> Call[dict[str, Any]]:
        """What the server says of the index: documents, generation, model, fields, models to choose from."""
        after = {name: str(value) for name, value in self.seen.as_body().items()}
        facts: dict[str, Any] = yield self._request("GET", parameters=after)
        return facts

    def generation(self) -> Call[int]:
        """The number of the commit that searches see."""
        return int((yield from self.info())["generation"])

    def refresh(self) -> Call[None]:
        """Let all later searches see the newest commit, whichever process of the server answers."""
        self.seen.at_least((yield from self.generation()))

    def wait_for(self, generation: int) -> Call[int]:
        """Wait until searches see a commit of any client, or a later one; returns the generation they see."""
        answer = yield replace(self, seen=Seen(generation))._search({"query": "vizsla", "k": 0})
        return self.seen.at_least(int(answer["generation"]))

    # Changing

    def add(
        self,
        documents: Iterable[Document | Mapping[str, Any] | RawLines],
        *,
        workers: int | None = None,
        skip_bad: bool = False,
    ) -> Call[Added]:
        """Send documents; see `Collection.add`. `commit` makes them findable.

        They are sent in pieces while they are read, so any number takes little memory. If an error ends this, what was
        sent before stays with the server for the next commit. The server decides how it analyses them, whatever
        `workers` says.
        """
        del workers
        pieces = Pieces(skip_bad=skip_bad)
        for document in _one_by_one(documents):
            if piece := pieces.take(document):
                pieces.sent((yield self.piece(piece, skip_bad=skip_bad)))
        if piece := pieces.rest():
            pieces.sent((yield self.piece(piece, skip_bad=skip_bad)))
        return pieces.added

    def piece(self, lines: bytes, *, skip_bad: bool = False) -> Request:
        """The request that sends some documents as JSON lines."""
        parameters = {"commit": "false", **({"skip_bad": "true"} if skip_bad else {})}
        return self._request("POST", "/documents", parameters=parameters, lines=lines, writes=True)

    def update(self, documents: Iterable[Document | Mapping[str, Any]]) -> Call[Updated]:
        """Send changes of fields; see `Collection.update`. `commit` makes them visible.

        They are sent in pieces. If an error ends this, what was sent before stays with the server for the next commit.
        """
        changes, updated, missing = Pieces(), Updated(), dict[str, None]()
        for doc_id, fields in changes_by_id(documents).items():
            if piece := changes.take({**{name: fields[name] for name in fields if name != "_id"}, "_id": doc_id}):
                _note_update(updated, missing, (yield self._piece("PATCH", piece)))
        if piece := changes.rest():
            _note_update(updated, missing, (yield self._piece("PATCH", piece)))
        updated.missing = list(missing)
        return updated

    def _piece(self, method: str, lines: bytes) -> Request:
        return self._request(method, "/documents", parameters={"commit": "false"}, lines=lines, writes=True)

    def delete(self, ids: str | int | Iterable[str | int] | None = None, *, filter: FilterLike = None) -> Call[int]:
        ids_or_filter(ids, filter)
        if ids is None:
            answer = yield self._change("/delete", _filter(filter), commit="false")
            return int(answer.get("deleted", 0))
        wanted, deleted = document_ids(ids), 0
        for start in range(0, len(wanted), IDS):
            answer = yield self._change("/delete", {"ids": wanted[start : start + IDS]}, commit="false")
            deleted += int(answer.get("deleted", 0))
        return deleted

    def commit(self) -> Call[int]:
        """Make what was added and deleted visible, at once and durably; gives the generation of the commit."""
        answer = yield self._change("/commit")
        return self.seen.at_least(int(answer["generation"]))

    def rollback(self) -> Call[None]:
        """Discard what was added and deleted since the last commit, by whomever."""
        yield self._change("/rollback")

    def compact(self) -> Call[int]:
        """Let the server rewrite the index without deleted and replaced documents; gives the new generation."""
        answer = yield self._change("/compact")
        return self.seen.at_least(int(answer["generation"]))

    # The collection itself, on a server that was started with --collections

    def create(self, properties: CollectionProperties) -> Call[bool]:
        """Create the index on the server; False if it was there, created in the same way."""
        answer = yield self._request("PUT", body=dict(properties), writes=True)
        return bool(answer["created"])

    def configure(self, **settings: Unpack[CollectionSettings]) -> Call[dict[str, Any]]:
        """Change settings of the collection, with an admin key; those that are left out stay. Gives all of them.

        `description`: what it is, for people. `read_only`: whether its documents cannot be changed. `documents` and
        `bytes`: how large it may become; None is what the server allows.
        """
        answer = yield self._request("PATCH", body=dict(settings), writes=True)
        changed: dict[str, Any] = answer["collection"]["settings"]
        return changed

    def drop(self) -> Call[None]:
        """Delete the collection from the server, with all its documents, with an admin key."""
        yield self._request("DELETE", writes=True)

    # Requests

    def _searched_with(self, options: SearchKeywords | SearchSettings) -> Calls:
        """The calls for the options of one search."""
        check_options(options)
        given = _for_a_server(options)
        chosen = {name: given[name] for name in _WAY if given.get(name) is not None}
        if "model" in chosen:
            chosen["weights"] = None
        return self._with(replace(self.options, **chosen)) if chosen else self

    def _with(self, options: RemoteOptions) -> Calls:
        """The same with other options. Both see the same commits."""
        return replace(self, options=options)

    def _change(self, path: str, body: Mapping[str, Any] | None = None, **parameters: str) -> Request:
        return self._request("POST", path, parameters=parameters, body=body or {}, writes=True)

    def _search(self, body: Mapping[str, Any]) -> Request:
        return self._request("POST", "/search", body={**body, **self.options.as_body(), **self.seen.as_body()})

    def _request(self, method: str, path: str = "", **details: Any) -> Request:
        return Request(method, f"/v1/{quote(self.index, safe='')}{path}", **details)


def _note_update(updated: Updated, missing: dict[str, None], answer: Mapping[str, Any]) -> None:
    """Note what the server says of a piece of changes."""
    updated.documents += int(answer.get("updated", 0))
    missing |= dict.fromkeys(answer.get("missing", ()))


def _for_a_server(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options without those that have no meaning for a client; what a server does not take is refused."""
    for name, instead in (("approximate", "search exactly"), ("timeout", "give the client a timeout when you open it")):
        if options.get(name) is not None:
            raise UnsupportedError(f"a server does not take the option {name}; {instead}")
    return {name: value for name, value in options.items() if name not in ("approximate", "timeout", "threads")}


def _one_by_one(documents: Iterable[Any]) -> Iterator[Any]:
    for document in documents:
        if isinstance(document, RawLines):
            yield from document.documents()
        else:
            yield document


class Pieces:
    """Documents as JSON lines, gathered until there are enough of them for a request."""

    def __init__(self, *, skip_bad: bool = False) -> None:
        self.added = Added()
        self._skip_bad = skip_bad
        self._lines: list[bytes] = []
        self._bytes = 0
        self._taken = 0
        self._numbers: list[int] = []  # of the documents in the lines, and in those that were sent last
        self._sent: list[int] = []

    def take(self, document: Document | Mapping[str, Any]) -> bytes | None:
        """Take a document; gives the lines to send if there are enough now."""
        self._taken += 1
        try:
            line = _line(document)
        except VizslaError as e:
            if not self._skip_bad:
                raise
            self.added.skipped.add(InputError(str(e), file=BATCH, line=self._taken))
            return None
        self.added.documents += 1
        self._lines.append(line)
        self._numbers.append(self._taken)
        self._bytes += len(line)
        return self.rest() if self._bytes >= CHUNK_BYTES or len(self._lines) >= CHUNK_DOCUMENTS else None

    def sent(self, answer: Mapping[str, Any]) -> None:
        """Note what the server says of a piece."""
        self.added.replaced += int(answer.get("replaced", 0))
        repeated, skipped = int(answer.get("repeated") or 0), Skipped.from_json(answer.get("skipped"))
        self.added.repeated += repeated
        self.added.documents -= repeated + skipped.count
        places = [self._sent[e.line - 1] if e.line and e.line <= len(self._sent) else None for e in skipped.errors]
        skipped.errors = [
            InputError(e.problem, file=BATCH, line=n) for e, n in zip(skipped.errors, places, strict=True)
        ]
        self.added.skipped.merge(skipped)
        self.added.empty += [Document(doc_id, {}) for doc_id in answer.get("empty", ())]

    def rest(self) -> bytes:
        """The lines that were not sent yet."""
        lines, self._lines, self._bytes = b"".join(self._lines), [], 0
        if lines:
            self._sent, self._numbers = self._numbers, []
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
    values = tuple(FacetValue(row["value"], row["count"], row.get("filter")) for row in counted["values"])
    return FieldFacets(values, counted["distinct"], counted["missing"])


def _explanation(tree: Mapping[str, Any]) -> Explanation:
    facts = {name: value for name, value in tree.items() if name not in ("name", "score", "parts")}
    parts = tuple(_explanation(part) for part in tree.get("parts", ()))
    return Explanation(tree["name"], tree["score"], facts, parts)
