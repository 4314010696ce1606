"""A collection in Qdrant as a retriever with writing: `vizsla.open("qdrant://localhost:6333/my")`."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from types import TracebackType
from typing import Any

from qdrant_client import QdrantClient

from vizsla.backends.qdrant.connection import Address, Connection
from vizsla.backends.qdrant.generations import create_generation, drop, find_generations
from vizsla.backends.qdrant.layout import check_collection
from vizsla.backends.qdrant.lock import DEFAULT_TIMEOUT
from vizsla.backends.qdrant.model_files import load_model
from vizsla.backends.qdrant.points import all_points, find_points, points_in_order
from vizsla.backends.qdrant.reweighing import needs_reweighing, reweigh, score_errors
from vizsla.backends.qdrant.searching import Context, Plan, Reader, refuse_syntax
from vizsla.backends.qdrant.state import CollectionState, check_searchable, read_state
from vizsla.backends.qdrant.unsupported import cannot
from vizsla.backends.qdrant.writer import QdrantWriter
from vizsla.datasets import RawLines
from vizsla.errors import CollectionError, UncommittedChangesWarning, UnsupportedError, VizslaError
from vizsla.index import Added, Facets, Highlighter, Suggestion, TermStatistics, Updated
from vizsla.index.creation import check_documents_read
from vizsla.index.search.plan import SearchOptions
from vizsla.index.search.similar import query_like, without_itself
from vizsla.index.searchable import SearchableCollection
from vizsla.models import (
    LANGUAGE_SAMPLE,
    DenseComponent,
    Model,
    TokenComponent,
    check_model,
    has_network,
    parse_model,
    warn_of_language,
)
from vizsla.runs import Document, Explanation, Filter, FilterLike, Hits, Run, document_id
from vizsla.runs.retriever import check_count, check_mapping, check_query, document_ids, query_with_words
from vizsla.stopping import check_seconds, time_limit

FRESH = 1.0
"""Seconds for which a client uses its statistics before it looks for newer ones."""


class QdrantIndex(SearchableCollection):
    """A collection of documents in Qdrant, searched and changed like an `Index`.

    `address`: `qdrant://host:6333,host2:6333/NAME`, any servers of one cluster; `qdrants` for TLS. With
    `?reweigh=auto` at its end, a commit after which the mean length has drifted by 1% renews the weights of all
    documents, and with `?reweigh=0.05` after one of 5%; see `reweigh`. `key`: the API key,
    by default the environment variable QDRANT_API_KEY. `timeout`: how many seconds a request may take. `patience`: how
    many seconds to retry while no server answers. `options`: further arguments of `QdrantClient`.

    Rankings and scores are those of a local index with the mean document length of the last build; `info` shows how
    much it has drifted. Searches see the commits of others within a second. Added documents are sent at the commit,
    which is not atomic: see docs/cluster.md. All methods may be called from any thread. A pickled collection is opened
    again where it is unpickled, as in a worker process; what is not committed stays behind.
    """

    def __init__(
        self,
        address: str | Address,
        *,
        key: str | None = None,
        timeout: float = 60.0,
        patience: float = 5.0,
        options: Mapping[str, Any] | None = None,
        connection: Connection | None = None,
    ) -> None:
        super().__init__()
        where = Address.parse(address) if isinstance(address, str) else address
        self.address = str(where)
        self._place = where
        self._name = where.name
        self._connection = connection or Connection(
            where.servers, key=key, timeout=timeout, patience=patience, options=options
        )
        self._turns = threading.RLock()
        self._writer: QdrantWriter | None = None
        self._has_looked = False
        try:
            if connection is None:
                self._connection.check_version()
            self._reader = self._read(None)
        except BaseException:
            if connection is None:
                self._connection.close()
            raise
        self._read_at = time.monotonic()
        self.name = self.model.name

    @classmethod
    def create(
        cls,
        address: str | Address,
        model: Model | str = "bm25",
        *,
        overwrite: bool = False,
        shards: int | None = None,
        replicas: int | None = None,
        connection: Connection | None = None,
        **options: Any,
    ) -> QdrantIndex:
        """A new, empty collection. An existing one is replaced only with `overwrite`.

        `shards` and `replicas`: into how many shards the documents are divided, and how many servers have each; by
        default the servers' settings. `options`: as for `QdrantIndex`.
        """
        where = Address.parse(address) if isinstance(address, str) else address
        chosen = parse_model(model) if isinstance(model, str) else check_model(model)
        check_documents_read(chosen, None)
        opened = connection or Connection(where.servers, **options)
        try:
            create_generation(opened, where.name, chosen, overwrite=overwrite, shards=shards, replicas=replicas)
        finally:
            if connection is None:
                opened.close()
        return cls(where, connection=connection, **options)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}: {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened_again, (type(self), self.address, self._connection)

    def close(self) -> None:
        """Discard uncommitted changes and close the connections."""
        if self._writer is not None:
            self._writer.close()
        self._connection.close()

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        lost = kind is None and self._writer is not None and self._writer.has_changes
        self.close()
        if lost:
            warnings.warn(
                f"{self.address}: changes that were not committed are discarded; call commit() to keep them",
                UncommittedChangesWarning,
                stacklevel=2,
            )

    # Writing

    def writer(self, *, timeout: float | None = DEFAULT_TIMEOUT) -> QdrantWriter:
        """A writer of this collection; `timeout`: how many seconds its commit waits for other writers."""
        return _ShowingWriter(self, timeout)

    def add(
        self,
        documents: Iterable[Document | Mapping[str, Any] | RawLines],
        *,
        workers: int | None = None,
        skip_bad: bool = False,
    ) -> Added:
        """Stage documents on this machine; see `Collection.add`. `commit` sends them."""
        return self._own_writer().add(self._looked_at(documents), workers=workers, skip_bad=skip_bad)

    def _looked_at(self, documents: Iterable[Any]) -> Iterable[Any]:
        """The documents; the language of the very first ones is looked at."""
        if self._has_looked or not isinstance(documents, list | tuple | Iterator) or len(self):
            return documents
        self._has_looked = True
        if not has_network(self.model):
            return documents
        rest = iter(documents)
        first = list(islice(rest, LANGUAGE_SAMPLE))
        contents = (item.content if isinstance(item, Document) else item for item in first)
        warn_of_language(self.model, [content for content in contents if isinstance(content, Mapping)])
        return chain(first, rest)

    def update(self, documents: Iterable[Document | Mapping[str, Any]]) -> Updated:
        """Not possible: a cluster replaces whole documents."""
        del documents
        raise UnsupportedError("documents of a cluster cannot be changed in part; add them as a whole")

    def _delete(self, ids: str | int | Iterable[str | int]) -> int:
        return self._own_writer().delete(ids)

    def commit(self) -> int:
        """Send what `add` and `delete` have staged; another writer is waited for. Gives the number of the commit."""
        if self._writer is not None or self._place.reweigh is not None:
            self._own_writer().commit()
        return self.generation

    def compact(self) -> int:
        """The servers do this themselves."""
        raise cannot(self.address, "compact")

    def rollback(self) -> None:
        """Discard the changes that `add` and `delete` have staged."""
        if self._writer is not None:
            self._writer.rollback()

    def _own_writer(self) -> QdrantWriter:
        with self._turns:
            if self._writer is None:
                self._writer = self.writer()
            return self._writer

    # Reading

    def refresh(self) -> None:
        """See the newest state of the collection from now on."""
        with self._turns:
            self._reader = self._read(self._reader)
            self._read_at = time.monotonic()
            self.name = self._reader.model.name

    def _read(self, known: Reader | None) -> Reader:
        state = read_state(self._connection, self._name)
        check_searchable(state)
        if known is not None and state == known.state:
            return known
        if known is not None and (state.build, state.model) == (known.state.build, known.state.model):
            return Reader(self._connection, state, known.model)
        model = load_model(self._connection, state)
        check_collection(self._connection, state.base, model)
        return Reader(self._connection, state, model)

    @property
    def reader(self) -> Reader:
        """A reader of the collection's state, which is at most a second old."""
        if time.monotonic() - self._read_at > FRESH:
            self.refresh()
        return self._reader

    @property
    def generation(self) -> int:
        return self.reader.state.generation

    @property
    def model(self) -> Model:
        return self._reader.model

    def __len__(self) -> int:
        """How many documents there are."""
        return self.reader.state.documents

    def _check_options(self, options: SearchOptions) -> None:
        Plan.prepare(self.reader, options, self.address)

    def _search_with(
        self, options: SearchOptions, queries: Sequence[str], k: int, filter: FilterLike, documents: bool
    ) -> list[Hits]:
        with time_limit(check_seconds(options.timeout)):
            return Plan.prepare(self.reader, options, self.address, k, filter).hits(queries, documents=documents)

    def _run_with(self, options: SearchOptions, queries: Mapping[str, str], k: int, filter: FilterLike) -> Run:
        texts = list(check_mapping(queries).values())
        with time_limit(check_seconds(options.timeout)):
            rankings = Plan.prepare(self.reader, options, self.address, k, filter).rankings(texts)
        return Run(dict(zip(queries, rankings, strict=True)), (options.model or self.model).name)

    def get_many(self, ids: Iterable[str | int]) -> dict[str, Document]:
        """Documents by id, without those that are not there."""
        wanted = document_ids(ids)
        found = find_points(self._connection, self.reader.state.base, list(dict.fromkeys(wanted)))
        by_id = {point.doc_id: point.document for point in found}
        return {doc_id: by_id[doc_id] for doc_id in wanted if doc_id in by_id}

    def documents(self) -> Iterator[Document]:
        """All documents, in order of insertion."""
        for points in points_in_order(self._connection, self.reader.state.base):
            yield from (point.document for point in points)

    def explain(
        self,
        query: str,
        doc_id: str | int,
        filter: FilterLike = None,
        *,
        model: str | Model | None = None,
        syntax: str | None = None,
        language: str | None = None,
    ) -> Explanation:
        refuse_syntax(self.address, syntax)
        text, wanted, chosen, reader = (
            query_with_words(query),
            document_id(doc_id),
            self._model_of(model),
            self.reader,
        )
        return reader.explain(reader.chosen(chosen, language), text, wanted, Filter.of(filter))

    def highlighter(
        self,
        query: str,
        filter: FilterLike = None,
        *,
        model: str | Model | None = None,
        syntax: str | None = None,
        language: str | None = None,
    ) -> Highlighter:
        refuse_syntax(self.address, syntax)
        reader, chosen = self.reader, self._model_of(model)
        weights = reader.chosen(chosen, language).query_weights(check_query(query), Context(reader, Filter.of(filter)))
        return Highlighter(reader.model, weights)

    def _facets_with(
        self, options: SearchOptions, fields: Sequence[str], query: str | None, filter: FilterLike, size: int
    ) -> Facets:
        del options, fields, query, filter, size
        raise cannot(self.address, "facets")

    def count(
        self,
        query: str | None = None,
        filter: FilterLike = None,
        *,
        model: str | Model | None = None,
        syntax: str | None = None,
        language: str | None = None,
    ) -> int:
        """How many documents pass a filter; those that match a query cannot be counted here."""
        refuse_syntax(self.address, syntax)
        if query is not None:
            raise cannot(self.address, "count")
        reader, condition = self.reader, Filter.of(filter)
        reader.chosen(self._model_of(model), language)  # refuses what it cannot be searched with
        if condition is None:
            return len(self)
        return self._connection.call(QdrantClient.count, reader.state.base, reader.translated(condition)).count

    def similar(
        self, doc_id: str | int, k: int = 10, filter: FilterLike = None, *, model: str | Model | None = None
    ) -> Hits:
        wanted, k = document_id(doc_id), check_count(k, "k, the number of results,")
        query = self.similar_query(wanted, model=model)
        return without_itself(self.search(query, k + 1, filter, model=model), wanted, k) if query else Hits()

    def similar_query(self, doc_id: str | int, *, model: str | Model | None = None) -> str:
        wanted, reader, chosen = document_id(doc_id), self.reader, self._model_of(model)
        document = self.get(wanted)
        if document is None:
            raise VizslaError(f"there is no document with the id {wanted!r}")
        return query_like(document, reader.own if chosen is None else reader.bind(chosen))

    def suggest(self, prefix: str, size: int = 8, *, language: str | None = None) -> list[Suggestion]:
        """Words are not completed here."""
        del prefix, size, language
        raise cannot(self.address, "suggest")

    def term_statistics(self, text: str) -> list[TermStatistics]:
        return self.reader.term_statistics(check_query(text))

    def matching_ids(self, filter: FilterLike) -> list[str]:
        condition, reader = Filter.of(filter), self.reader
        if condition is None:
            raise VizslaError("give a filter, as in year < 1999; without one all documents would match")
        translated = reader.translated(condition)
        found = all_points(reader.connection, reader.state.base, document=False, condition=translated)
        return [p.doc_id for p in sorted((p for some in found for p in some), key=lambda p: p.number)]

    def info(self) -> dict[str, Any]:
        """Facts about the collection.

        `drift` is the relative change of the mean length since it was frozen, and `score_error` by what share of itself
        a score of this namespace may be off for it, at most.
        """
        self.refresh()
        return collection_info(self._connection, self._place, self._reader.state, self._reader.model)


def _opened_again(kind: type[QdrantIndex], address: str, connection: Connection) -> QdrantIndex:
    """A collection that was pickled."""
    return kind(address, connection=connection)


class _ShowingWriter(QdrantWriter):
    """A writer whose commits its retriever sees at once."""

    def __init__(self, index: QdrantIndex, timeout: float | None) -> None:
        index.refresh()  # start from the current state of the collection, not from that of a second ago
        state = index.reader.state
        super().__init__(index._connection, state.base, index.model, timeout=timeout)
        self._index = index
        self._build = state.build

    def commit(self) -> CollectionState | None:
        self._check_build()
        state = super().commit()
        if state is not None:
            self._index.refresh()
        threshold = self._index._place.reweigh
        return state if threshold is None else self._reweighed(threshold, state)

    def _reweighed(self, threshold: float, committed: CollectionState | None) -> CollectionState | None:
        """Renew the weights if the mean length has drifted, also by an earlier commit whose renewal was stopped."""
        index, before = self._index, self._index._reader.state
        if not needs_reweighing(before, index.model, threshold):
            return committed
        try:
            renewed = reweigh(index._place, threshold, timeout=self._timeout, connection=index._connection)
        except VizslaError as e:
            raise CollectionError(f"everything is committed, but the weights could not be renewed: {e}") from None
        index.refresh()
        if renewed.renewed:
            state = index._reader.state
            self._base, self._build = state.base, state.build
            drop(index._connection, [before.base])
        return index._reader.state if committed is not None else None

    def _check_build(self) -> None:
        self._index.refresh()
        if self._index.reader.state.build != self._build:
            raise CollectionError(
                f"{self._index.address}: the collection has been replaced by another one; open it again"
            )


def collection_info(connection: Connection, place: Address, state: CollectionState, model: Model) -> dict[str, Any]:
    """What there is to know about a collection; see `QdrantIndex.info`."""
    namespaces, errors = {}, score_errors(state, model)
    for name, (_, component) in zip(model.namespaces, model.parts, strict=True):
        space = state.namespaces[name]
        namespaces[name] = {
            "documents": space.documents,
            "tokens": space.total_length,
            "average_length": space.total_length / max(space.documents, 1),
            "frozen_average_length": space.frozen_average,
            "drift": space.drift,
            "score_error": errors.get(name, 0.0),
            "dimensions": component.dimensions if isinstance(component, DenseComponent | TokenComponent) else 0,
        }
    params = connection.call(QdrantClient.get_collection, state.base).config.params
    return {
        "address": str(place),
        "collection": state.base,
        "kept": list(find_generations(connection, place.name).others),
        "model": model.name,
        "documents": state.documents,
        "passages": None,
        "stored": True,
        "distinct_terms": state.distinct_terms,
        "namespaces": namespaces,
        "shards": params.shard_number or 1,
        "replicas": params.replication_factor or 1,
        "status": state.status,
        "writer": None if state.writer is None else {k: state.writer.get(k) for k in ("host", "process", "since")},
        "created": state.created,
        "vizsla": state.vizsla,
        "format": state.format,
        "generation": state.generation,
    }
