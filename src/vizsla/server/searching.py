"""A search that is served: what a request asks for, checked; found, reranked, highlighted, counted; written as JSON."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from pydantic import ValidationError

from vizsla import stopping
from vizsla.errors import VizslaError
from vizsla.index.search.facets import Facets, facets_of_hits, value_as_json
from vizsla.index.search.highlight import Highlighter
from vizsla.models import Model, Reranker, in_language
from vizsla.retrievers import rerank_hits
from vizsla.runs import Hit, Hits, document_id
from vizsla.runs.filters import Filter
from vizsla.runs.hits import check_typos
from vizsla.runs.outline import OUTLINE
from vizsla.server.errors import NotFoundError, RequestError
from vizsla.server.gate import App, Receive, Scope, Send
from vizsla.server.hosting import Hosted, public_error
from vizsla.server.schemas import FacetsBody, FilterBody, HighlightBody, SearchBody, SearchParameters, json_bytes
from vizsla.server.service import Service
from vizsla.server.settings import Limits

MAX_EXPLAINED = 100  # hits of a request
_ATTEMPTS = 5


class Arrangement(NamedTuple):
    """Which results are returned and in which order, before paging, and what is done about typing errors."""

    sort: str | None = None
    collapse: str | None = None
    min_score: float | None = None
    typos: str | None = None
    total: bool = False
    passages: int = 1
    window: int | str = 0


_BY_SCORE = Arrangement()


class Shape(NamedTuple):
    """How the answer is written: as Anserini's and Pyserini's servers do, and with documents as JSON texts."""

    as_pyserini: bool = False
    doc_as_text: bool = False


_OWN = Shape()


@dataclass(frozen=True)
class SearchPlan:
    """A search whose request has been checked. Requests with an equal `key` may be searched together."""

    hosted: Hosted
    k: int
    offset: int
    filter: Filter | None
    model: Model | None
    combine: str | None = None
    search_params: str | None = None
    reranker: Reranker | None = None
    depth: int = 100
    fields: tuple[str, ...] | None = None
    highlight: HighlightBody | None = None
    explain: bool = False
    facets: FacetsBody | None = None
    like: str | None = None
    shape: Shape = _OWN
    syntax: str | None = None
    language: str | None = None
    arrangement: Arrangement = _BY_SCORE
    max_tokens: int | None = None

    @property
    def key(self) -> Hashable:
        """Everything but the query that determines the answer."""
        extra = (self.fields, str(self.highlight), self.explain, str(self.facets), self.like)
        how = (
            self.combine,
            self.search_params,
            self.syntax,
            self.language,
            self.arrangement,
            self.max_tokens,
            id(self.model),
            id(self.reranker),
            self.depth,
        )
        return (id(self.hosted), self.k, self.offset, self.filter and str(self.filter), how, extra, self.shape)

    async def submit(self, service: Service, queries: Sequence[str]) -> list[bytes]:
        """The answers to queries, which wait for their turn."""
        results, is_slow = self.k + self.offset, self.reranker is not None
        futures = service.batcher.submit(self.key, queries, self.answers, results, is_slow=is_slow)
        return [await futures[0]] if len(futures) == 1 else list(await asyncio.gather(*futures))

    def answers(self, queries: Sequence[str]) -> list[bytes]:
        """The answer to each query, as JSON.

        If a commit after the search has deleted a document before it was read, the search is repeated.
        """
        for _ in range(_ATTEMPTS):
            seen = self.hosted.generation
            try:
                return self._answers(queries)
            except VizslaError:
                if self.hosted.generation == seen:
                    raise
        return self._answers(queries)

    def _answers(self, queries: Sequence[str]) -> list[bytes]:
        found = self._search(queries)
        if self.shape.as_pyserini:
            return [self._candidates(query, hits) for query, hits in zip(queries, found, strict=True)]
        return [json_bytes(self._result(query, hits)) for query, hits in zip(queries, found, strict=True)]

    def _search(self, queries: Sequence[str]) -> list[Hits]:
        wanted = self.k + self.offset + (0 if self.like is None else self.arrangement.passages)
        if (
            self.k == 0
            and (self.arrangement.typos, self.arrangement.total) == (None, False)
            and (self.facets is None or self.facets.over == "all")
        ):
            return [Hits() for _ in queries]
        depth = max(wanted, self.facets.over if self.facets is not None and self.facets.over != "all" else 0)
        if self.reranker is not None:
            depth = max(depth, self.depth)
        found = self.hosted.index.search_many(
            queries, max(depth, 1), self.filter, model=self.model, combine=self.combine,
            search_params=self.search_params, threads=1, documents=self._reads_documents, syntax=self.syntax,
            language=self.language, **self.arrangement._asdict(),
        )  # fmt: skip
        if self.reranker is not None:
            found = [
                _like(
                    hits,
                    [*rerank_hits(hits[: self.depth], hits.corrected or query, self.reranker), *hits[self.depth :]],
                )
                for query, hits in zip(queries, found, strict=True)
            ]
        return found

    @property
    def _way(self) -> dict[str, Any]:
        """The options that decide which documents match, and their scores."""
        return {"model": self.model, "syntax": self.syntax, "language": self.language}

    @property
    def _reads_documents(self) -> bool:
        """Whether ids and scores are not enough."""
        counts_best = self.facets is not None and self.facets.over != "all"
        has_use = self.highlight is not None or self.reranker is not None or self.max_tokens is not None
        return self.fields != () or has_use or counts_best

    def _page(self, hits: Hits) -> Hits:
        if self.like is not None:
            hits = Hits(hit for hit in hits if hit.id != self.like)
        page = hits[self.offset : self.offset + self.k]
        return page if self.max_tokens is None else page.within(self.max_tokens)

    def _result(self, query: str, found: Hits) -> dict[str, Any]:
        page, typed, query = self._page(found), query, found.corrected or query
        index, highlighter = self.hosted.index, None
        if self.highlight is not None:
            highlighter = index.highlighter(query, self.filter, **self._way)
        hits = [self._hit(hit, rank, highlighter) for rank, hit in enumerate(page, self.offset + 1)]
        if self.explain:
            for hit, written in zip(page, hits, strict=True):
                explanation = index.explain(query, hit.id, self.filter, **self._way)
                written["explanation"] = explanation.as_dict()
        total = found.total
        if not query:  # all documents that pass the filter
            total = index.count(None, self.filter) if self.arrangement.total else None
        known = {} if total is None or self.like is not None else {"total": total}
        result: dict[str, Any] = {"query": typed, **_spelling(found), **known, "hits": hits}
        if self.facets is not None:
            result |= self._facets(self.facets, query, found)
        return result

    def _hit(self, hit: Hit, rank: int, highlighter: Highlighter | None) -> dict[str, Any]:
        content = hit.document.content
        kept = content if self.fields is None else {f: content[f] for f in self.fields if f in content}
        written: dict[str, Any]
        if self.shape.as_pyserini:
            doc = {"id": hit.id, **kept}
            shown = json_bytes(doc).decode() if self.shape.doc_as_text else doc
            written = {"docid": hit.id, "score": hit.score, "rank": rank, "doc": shown}
        else:
            written = {"id": hit.id, "score": hit.score, "rank": rank}
            if hit.passage is not None:
                written["passage"] = hit.passage
            if self.fields != () and (hit.passage is not None or OUTLINE in content):
                written["place"] = hit.place.as_dict()
            written["document"] = kept
        if highlighter is not None and self.highlight is not None:
            stopping.check()
            fields = self.highlight.fields or self.hosted.index.model.fields
            snippets = {name: highlighter.snippet(hit.document, name, self.highlight.width) for name in fields}
            written["highlights"] = {
                name: {"text": s.text, "matches": s.matches, "at_start": s.at_start, "at_end": s.at_end}
                for name, s in snippets.items()
                if s.text
            }
        return written

    def _facets(self, wanted: FacetsBody, query: str, found: Hits) -> dict[str, Any]:
        fields = list(dict.fromkeys(wanted.fields))
        index = self.hosted.index
        if wanted.over == "all" and not fields:
            counted = Facets({}, index.count(query or None, self.filter, **self._way))
            over = {"documents": counted.documents, "exact": True, "top": None}
        elif wanted.over == "all":
            counted = index.facets(fields, query or None, self.filter, size=wanted.size, **self._way)
            over = {"documents": counted.documents, "exact": True, "top": None}
        else:
            best = {hit.id: hit for hit in found[: wanted.over]}  # a document with several passages counts once
            counted = facets_of_hits([*best.values()], fields, wanted.size)
            over = {"documents": counted.documents, "exact": False, "top": wanted.over}
        return {"facets": _counts(counted), "facets_over": over}

    def _candidates(self, query: str, found: Hits) -> bytes:
        """The answer in the shape of Anserini's and Pyserini's servers, with what else was asked for."""
        result = self._result(query, found)
        asked = {"text": query, **_spelling(found)}
        answer: dict[str, Any] = {"api": "v1", "index": self.hosted.name, "query": asked}
        answer |= {name: result[name] for name in ("total", "facets", "facets_over") if name in result}
        return json_bytes({**answer, "candidates": result["hits"]})


def _spelling(hits: Hits) -> dict[str, str]:
    """What is said about the spelling of a query, if anything."""
    said = {"did_you_mean": hits.did_you_mean, "corrected": hits.corrected}
    return {name: text for name, text in said.items() if text is not None}


def _like(found: Hits, hits: Sequence[Hit]) -> Hits:
    """Other hits, with what was said of the spelling and the total."""
    said = Hits(hits).with_spelling(did_you_mean=found.did_you_mean, corrected=found.corrected)
    return said.with_total(found.total)


def _counts(counted: Facets) -> dict[str, Any]:
    return {
        name: {
            "values": [value_as_json(v) for v in field.values],
            "distinct": field.distinct,
            "missing": field.missing,
        }
        for name, field in counted.fields.items()
    }


def model_name(hosted: Hosted, model: Model | None, language: str | None) -> str:
    """The name of the model of a request."""
    chosen = model or hosted.index.model
    return chosen.name if language is None else in_language(chosen, language).name


def parsed_filter(condition: FilterBody | None) -> Filter | None:
    """The filter of a request; a wrong one is refused here."""
    return Filter.all_of(condition if isinstance(condition, list) else [condition or {}])


async def answer_parameters(service: Service, hosted: Hosted, asked: SearchParameters) -> bytes:
    """The JSON answer to a search by GET, in the shape of Anserini's and Pyserini's servers."""
    if asked.hits is not None and "k" in asked.model_fields_set and asked.hits != asked.k:
        raise RequestError("hits and k are the same; give one of them")
    try:
        body = asked.as_body()
    except ValidationError as e:
        first = e.errors()[0]
        raise RequestError(f"{'.'.join(map(str, first['loc']))[:200]}: {first['msg']}") from None
    except ValueError as e:
        raise RequestError(f"lists and objects are written as JSON in a parameter ({e})") from None
    counts = body.facets is not None or body.total
    if body.query is None and body.like is None and not (counts and body.k == 0):
        raise RequestError("query is missing")
    if body.k < 1 and not counts:
        raise RequestError(f"hits, the number of results, must be 1 or more, not {body.k}")
    await service.see(hosted, body.generation)
    # what takes long, such as parsing a new model, must not block the event loop
    shape = Shape(as_pyserini=True, doc_as_text=not asked.parse)
    slow = (body.model, body.weights, body.expand, body.like, body.rerank, body.filter)
    if slow == (None,) * len(slow):
        plan, queries = _planned(service, hosted, body, shape)
    else:
        plan, queries = await service.read(_planned, service, hosted, body, shape)
    return (await plan.submit(service, queries))[0]


async def answer_search(service: Service, hosted: Hosted, body: SearchBody) -> bytes:
    """The JSON answer to a search."""
    started = time.perf_counter()
    await service.see(hosted, body.generation)
    plan, queries = await service.read(_planned, service, hosted, body)
    generation = hosted.generation
    results = await plan.submit(service, queries)
    head = {
        "index": hosted.name,
        "model": model_name(hosted, plan.model, plan.language),
        "generation": generation,
        "took_ms": round(1000 * (time.perf_counter() - started), 3),
    }
    return json_bytes(head)[:-1] + b',"results":[' + b",".join(results) + b"]}"


def _planned(service: Service, hosted: Hosted, body: SearchBody, shape: Shape = _OWN) -> tuple[SearchPlan, list[str]]:
    """What to search, checked."""
    limits = service.settings.limits
    check_page(limits, body.k, body.offset)
    model = hosted.models.model(body.model, body.weights, body.expand)
    like = None if body.like is None else document_id(body.like)
    queries = _queries(hosted, body, model, like)
    if not queries and body.k == 0 and (body.total if body.facets is None else body.facets.over == "all"):
        queries = [""]  # all documents
    elif like is None:
        check_queries_count(limits, queries, body.k + body.offset)
        queries = [check_query_text(limits, query) for query in queries]
    if like is not None and body.total:
        raise RequestError("like gives only the best, so there is no total; leave out total")
    if body.explain and body.passages > 1:
        raise RequestError("explain is about the best passage of a document; leave out explain or passages")
    if body.explain and body.rerank is not None:
        raise RequestError("a reranker cannot explain its scores; leave out explain or rerank")
    if body.rerank is not None and (body.sort is not None or body.min_score is not None):
        raise RequestError("a reranker orders results by its own scores; leave out sort and min_score, or rerank")
    if body.explain and body.k * len(queries) > MAX_EXPLAINED:
        raise RequestError(f"this server explains at most {MAX_EXPLAINED} hits a request; ask for fewer")
    if body.facets is not None and body.facets.over != "all":
        check_page(limits, body.facets.over, 0)
    highlight = HighlightBody.model_validate({}) if body.highlight is True else body.highlight or None
    plan = SearchPlan(
        hosted, body.k, body.offset, parsed_filter(body.filter), model, body.combine, body.search_params,
        None if body.rerank is None else service.hosting.reranker(body.rerank), body.depth,
        None if body.fields is None else tuple(body.fields), highlight, body.explain, body.facets, like, shape,
        syntax=None if like is not None else body.syntax, language=None if like is not None else body.language,
        arrangement=Arrangement(
            body.sort, body.collapse, body.min_score, None if like is not None else check_typos(body.typos), body.total,
            body.passages, body.window,
        ),
        max_tokens=body.max_tokens,
    )  # fmt: skip
    return plan, queries


def _queries(hosted: Hosted, body: SearchBody, model: Model | None, like: str | None) -> list[str]:
    given = [name for name in ("query", "queries", "like") if getattr(body, name) is not None]
    if len(given) > 1:
        raise RequestError(f"give one of query, queries and like, not {' and '.join(given)}")
    if like is not None:
        if hosted.index.get(like) is None:
            raise NotFoundError(f"there is no document with the id {like[:200]!r}")
        return [hosted.index.similar_query(like, model=model)]
    if body.queries is not None:
        return body.queries
    return [] if body.query is None else [body.query]


# Limits of a request


def check_page(limits: Limits, k: int, offset: int) -> None:
    """Refuse more results than the server returns."""
    if k < 0:
        raise RequestError(f"k, the number of results, must be 0 or more, not {k}")
    if k > limits.k:
        raise RequestError(f"k is {k}, and this server gives at most {limits.k} results")
    if offset < 0:
        raise RequestError(f"offset must be 0 or more, not {offset}")
    if offset > limits.offset:
        raise RequestError(f"offset is {offset}, and this server goes to at most {limits.offset}")


def check_query_text(limits: Limits, query: str) -> str:
    """Refuse a query that is too long or has no word."""
    if len(query) > limits.query_characters:
        raise RequestError(f"the query has {len(query)} characters, and this server reads {limits.query_characters}")
    if not query.strip():
        raise RequestError("the query is empty; give at least one word")
    return query.encode("utf-8", "replace").decode() if not query.isprintable() else query


def check_queries_count(limits: Limits, queries: Sequence[str], results: int) -> None:
    """Refuse more queries than one request may have, and more results over all of them."""
    if not queries:
        raise RequestError("there is no query; give query, queries or like")
    if len(queries) > limits.queries:
        raise RequestError(f"there are {len(queries)} queries, and this server answers {limits.queries} a request")
    if len(queries) > 1 and len(queries) * results > limits.results:
        raise RequestError(
            f"{len(queries)} queries with {results} results each are {len(queries) * results}, and this server gives "
            f"at most {limits.results} a request; send fewer queries at a time"
        )


# The short way of GET

ROUTE = "/v1/{index}/search"
_PATH = re.compile(r"/v1/([^/]+)/search")


class FastPath:
    """Wraps an application, and answers `GET /v1/{index}/search`, the request that comes most often, itself.

    It reads the same parameters and gives the same answer as the route of the API. Beside the search it takes less than
    half of the processor time.
    """

    def __init__(self, app: App, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _PATH.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "GET" else None
        hosting = self._service.hosting
        hosted = None if found is None or not hosting.is_current(found[1]) else hosting.indexes.get(found[1])
        asked = None if hosted is None else _parameters(scope["query_string"])
        if hosted is None or asked is None:  # the application reports the error
            await self._app(scope, receive, send)
            return
        scope["vizsla.route"], scope["path_params"] = ROUTE, {"index": hosted.name}
        try:
            status, body, more = 200, await answer_parameters(self._service, hosted, asked), {}
        except VizslaError as e:
            refused = public_error(e, hosted)
            status, body, more = refused.status, json_bytes({"error": str(refused)}), refused.headers
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        headers += [(name.lower().encode(), value.encode()) for name, value in more.items()]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _parameters(query_string: bytes) -> SearchParameters | None:
    """The parameters of a request; None if there is something wrong with them."""
    given = dict(parse_qsl(query_string.decode("latin-1"), keep_blank_values=True))
    try:
        return SearchParameters.model_validate(given)
    except ValidationError:
        return None
