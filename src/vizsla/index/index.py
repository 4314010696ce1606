"""An index: documents, a model, and what finds documents for queries, in a folder."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from vizsla.datasets import RawLines, Splitter
from vizsla.engine import VectorIndex
from vizsla.engine.arrays import distinct
from vizsla.errors import CollectionError, VizslaError, kind_of
from vizsla.index.creation import check_change, check_positions, check_vector_index, create_index
from vizsla.index.info import index_info
from vizsla.index.reading.snapshot import Snapshot
from vizsla.index.search import facets, matching, similar
from vizsla.index.search.explain import explain
from vizsla.index.search.facets import Facets
from vizsla.index.search.highlight import Highlighter, highlighter
from vizsla.index.search.plan import Search, SearchOptions
from vizsla.index.search.searcher import Searcher
from vizsla.index.search.suggestions import Suggestion
from vizsla.index.search.term_statistics import TermStatistics, term_statistics
from vizsla.index.searchable import SearchableCollection
from vizsla.index.storage import forking, in_memory
from vizsla.index.storage.folder import absolute
from vizsla.index.storage.in_memory import MemoryFolder
from vizsla.index.writing.transaction import Added, Updated
from vizsla.index.writing.writer import DEFAULT_MEMORY, DEFAULT_TIMEOUT, Hooks, Target, Writer, warn_of_lost_changes
from vizsla.models import SAMPLE, Model, check_model, fitted_again, language_model, languages_named, parse_model
from vizsla.neural.device import device_of_opening, opening_on
from vizsla.runs import Document, Explanation, Filter, FilterLike, Hits, Run, document_id
from vizsla.runs.query_language import check_syntax
from vizsla.runs.retriever import check_mapping, check_query, document_ids, query_with_words
from vizsla.stopping import check_seconds, time_limit


class Index(SearchableCollection):
    """A searchable collection of documents in a folder.

    Searches see the commit that was current when the index was opened, or the last commit made through this object;
    with `refresh_every` they also see those of others. Use it as a context manager, or call `close`. All methods may be
    called from any thread. A pickled index is opened again where it is unpickled, as in a worker process: it sees the
    last commit of its folder, and not what this object has yet to commit.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp() + "/dogs.index"
    >>> with Index.create(folder, "bm25") as index:
    ...     _ = index.add([{"id": "1", "text": "Dogs bark."}, {"id": "2", "text": "Cats do not."}])
    ...     _ = index.commit()
    ...     [(hit.id, hit["text"]) for hit in index.search("a barking dog")]
    [('1', 'Dogs bark.')]
    """

    def __init__(
        self,
        path: str | Path,
        *,
        memory: int = DEFAULT_MEMORY,
        device: str | None = None,
        refresh_every: float | None = None,
    ) -> None:
        super().__init__()
        self.path = absolute(path)
        self.memory = memory
        self.device = device or device_of_opening()
        self.refresh_every = _checked_interval(refresh_every)
        self._next_look = 0.0 if refresh_every is None else time.monotonic() + refresh_every
        self._in_memory: MemoryFolder | None = None
        self._turns = threading.RLock()  # serialises refreshing, opening writers and closing
        self._closed = False
        self._current: Searcher | None = Searcher(Snapshot(self.path, device=self.device))
        self.name = self.model.name
        self._own_writer: Writer | None = None  # of `add` and `delete`; it locks the index until the commit
        self._writer: Writer | None = None  # the last one that `writer` gave
        forking.watch(self, Index._clean_up_in_child)

    @classmethod
    def create(
        cls,
        path: str | Path,
        model: Model | str | None = None,
        *,
        language: str | Sequence[str] | None = None,
        overwrite: bool = False,
        memory: int = DEFAULT_MEMORY,
        passages: Splitter | int | None = None,
        store: bool = True,
        vector_index: str | VectorIndex = "exact",
        positions: bool = False,
        device: str | None = None,
    ) -> Index:
        """A new, empty index. An existing index is replaced only with `overwrite`.

        `path`: the folder of the index; `:memory:` makes an index in memory, which is removed when it is closed. A
        pickled one can be read in other processes as long as it is open.
        `model`: by default BM25 with Lucene's English analysis.
        `language`: that of the documents, by code or name, as in `de`. With several, as in `de,en`, each document is
        analysed in its own language, or in the first if its language cannot be detected.
        `memory`: how many bytes adding may take, all threads together; more memory makes fewer, larger segments.
        `passages`: split documents into passages, of so many words or by a `Splitter`; a search finds documents by
        their best passage.
        `store`: keep the texts that the model reads, to show and export them. Ids and metadata are always kept.
        `vector_index`: how dense vectors are stored and searched, as in `hnsw` or `ivf(nlist=1024)`; see `VectorIndex`.
        `positions`: store the positions of words, so that phrases and words of a field are found fast; see `syntax` in
        `search_many`. Without them the stored texts are read.
        `device`: where the networks of the model run while the index is open, as in cpu or cuda:1; by default the
        device of the model, or of the process (`vizsla.use_device`). It is not saved.
        """
        chosen = _chosen_model(model, language, device)
        splitter = None if passages is None else Splitter.of(passages)
        temporary = MemoryFolder() if path == in_memory.NAME else None
        folder = create_index(
            temporary.path if temporary else path, chosen, overwrite=overwrite, splitter=splitter, store=store,
            vector_index=vector_index, positions=positions,
        )  # fmt: skip
        index = cls(folder, memory=memory, device=device or chosen.device)
        index._in_memory = temporary
        return index

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        memory: int = DEFAULT_MEMORY,
        device: str | None = None,
        refresh_every: float | None = None,
    ) -> Index:
        """The index in a folder.

        `device`: where the networks of its model run, as in cpu or cuda:1.
        `refresh_every`: let searches see what others commit, at most this many seconds late; 0 looks before each call,
        which takes microseconds. An index that has become unreadable is then an error of the search. By default the
        index stays at the commit it has, until `refresh`.
        """
        return cls(path, memory=memory, device=device, refresh_every=refresh_every)

    def __reduce__(self) -> tuple[Any, ...]:
        self._check_open()
        return _opened_again, (type(self), self.path, self.memory, self.device, self.refresh_every)

    def __repr__(self) -> str:
        if self._closed:
            return f"<Index {self.path}: closed>"
        count, unit = len(self), "document" if len(self) == 1 else "documents"
        return f"<Index {self.path}: {self.name}, {count:,} {unit}, generation {self.generation}>"

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        lost = kind is None and self._own_writer is not None and self._own_writer.has_changes
        self.close()
        if lost:
            warn_of_lost_changes(self.path)

    def close(self) -> None:
        """Discard what is not committed, and free files and locks."""
        self._close_writers()  # without our lock: a running commit needs it to refresh this object
        with self._turns:
            self._closed = True
        self._close_writers()
        if self._current is not None:
            self._current.close()
        if self._in_memory is not None:
            self._in_memory.remove()

    def _close_writers(self) -> None:
        for writer in (self._own_writer, self._writer):
            if writer is not None:
                writer.close()

    # Writing

    def writer(self, *, timeout: float | None = DEFAULT_TIMEOUT) -> Writer:
        """A writer of this index. There is at most one at a time, in all threads and processes.

        `timeout`: how many seconds to wait for another writer to finish; 0 refuses at once, None waits for ever.
        """
        self._check_open()
        if self._own_writer is not None and self._own_writer.is_used_by_this_thread:
            raise CollectionError(f"{self.path}: this Index has uncommitted changes; call commit() or rollback() first")
        writer = self._new_writer(timeout, keep_lock=True)
        with self._turns:
            if not self._closed:
                self._writer = writer
                return writer
        writer.close()
        raise CollectionError(f"{self.path}: the index has been closed")

    def add(
        self,
        documents: Iterable[Document | Mapping[str, Any] | RawLines],
        *,
        workers: int | None = None,
        skip_bad: bool = False,
    ) -> Added:
        return self._open_own_writer().add(documents, workers=workers, skip_bad=skip_bad)

    def update(self, documents: Iterable[Document | Mapping[str, Any]]) -> Updated:
        return self._open_own_writer().update(documents)

    def _delete(self, ids: str | int | Iterable[str | int]) -> int:
        return self._open_own_writer().delete(ids)

    def commit(self) -> int:
        self._check_open()
        forking.check(self.path)
        if self._own_writer is not None:
            self._own_writer.commit()
        return self.generation

    def compact(self, vector_index: str | VectorIndex | None = None, *, positions: bool | None = None) -> int:
        """Commit, and rewrite the index as one segment without deleted and replaced documents; gives the generation.

        `vector_index`: store and search dense vectors in another way from now on. Vectors that were stored in fewer
        bits stay so. `positions`: store the positions of words from now on, or no longer; see `create`.
        """
        vectors = VectorIndex.parse(vector_index) if isinstance(vector_index, str) else vector_index
        if vectors is not None:
            check_vector_index(vectors, self.model)
            check_change(vectors, self._searcher.snapshot.vector_index)
        if positions is not None:
            check_positions(positions, self.model, self._searcher.snapshot.documents.has_texts)
        self._open_own_writer().compact(vectors, positions=positions)
        return self.generation

    def fit_weights(self) -> Model:
        """Commit, and fit the weights of a sum to the current documents; returns the model with its weights.

        The weights of `auto(bm25, minilm)` are fitted to the first documents that are added. This fits the weights of
        any sum again, to a sample of the whole index. It needs stored texts; no document is indexed again.
        """
        self.commit()
        with self._reading() as searcher:
            documents = searcher.snapshot.documents
            if not documents.has_texts:
                raise VizslaError(f"{self.path}: the texts are not stored, so there is nothing to fit weights to")
            numbers = searcher.snapshot.numbers()
            spread = distinct(np.linspace(0, max(len(numbers) - 1, 0), min(SAMPLE, len(numbers))).astype(np.int64))
            contents = [document.content for document in documents.all(numbers[spread].tolist())]
        fitted = fitted_again(self.model, contents)
        writer = self._open_own_writer()
        writer.set_weights(fitted)
        writer.commit()
        return self.model

    def rollback(self) -> None:
        if self._own_writer is not None:
            self._own_writer.rollback()

    def refresh(self) -> None:
        """Switch to the newest commit, even if another index has replaced this one; an error changes nothing."""
        with self._turns:
            self._check_open()
            old = self._current
            self._current = Searcher(Snapshot(self.path, None if old is None else old.snapshot, self.device))
            self.name = self._current.snapshot.model.name
            if old is not None:
                old.close()
                self._current.snapshot.leave_log()

    def _open_own_writer(self) -> Writer:
        """The writer behind `add` and `delete`."""
        with self._turns:
            self._check_open()
            if self._writer is not None and self._writer.is_used_by_this_thread:
                raise CollectionError(f"{self.path}: this Index has a writer open; use it, or close it first")
            own = self._own_writer  # after a refresh it may be that of an index that was replaced
            if own is None or not (own.is_writing or own.writes_to(self._searcher.snapshot.meta["uuid"])):
                own = self._own_writer = self._new_writer(DEFAULT_TIMEOUT, keep_lock=False)
            return own

    def _new_writer(self, timeout: float | None, *, keep_lock: bool) -> Writer:
        snapshot = self._searcher.snapshot
        target = Target(self.path, snapshot.meta["uuid"], snapshot.model, snapshot.splitter)
        hooks = Hooks(self._unpin, self._pin, self._show_commit, self._pin, self.matching_ids)
        return Writer(target, memory=self.memory, timeout=timeout, hooks=hooks, keep_lock=keep_lock)

    def _unpin(self, generation: int) -> None:
        """End the read transaction while our own writer works, so that the log can shrink; nobody else can write."""
        snapshot = self._searcher.snapshot
        if generation == snapshot.generation:
            snapshot.unpin()

    def _pin(self) -> None:
        """Keep the current snapshot readable before a commit replaces it: searches may be running."""
        self._searcher.snapshot.pin()

    def _show_commit(self) -> None:
        with self._turns:
            if not self._closed:
                self.refresh()

    def _check_open(self) -> None:
        if self._closed:
            raise CollectionError(f"{self.path}: the index has been closed")

    def _clean_up_in_child(self, may_close: bool) -> None:
        """In a forked child: leave the parent's connections alone, and open the index again when it is used."""
        self._turns = threading.RLock()
        searcher, writers = self._current, [w for w in (self._own_writer, self._writer) if w is not None]
        self._own_writer = self._writer = None
        if searcher is not None:
            searcher.snapshot.close_in_child(may_close and not any(writer.is_writing for writer in writers))
        if not self._closed:
            self._current = None
        for writer in writers:
            writer.leave_to_parent()

    # Reading

    @property
    def _searcher(self) -> Searcher:
        """The searcher of the current snapshot; in a forked child it is opened again."""
        searcher = self._current
        if searcher is None:
            with self._turns:
                searcher = self._current = self._current or Searcher(Snapshot(self.path, device=self.device))
        return searcher

    def _model_of(self, model: str | Model | None) -> Model | None:
        with opening_on(self.device):
            return super()._model_of(model)

    @contextmanager
    def _reading(self) -> Iterator[Searcher]:
        """A context with the current searcher, which stays open until the end of the block whatever is committed."""
        searcher = self._acquired()
        try:
            yield searcher
        finally:
            searcher.snapshot.release()

    def _follow(self) -> None:
        """Look for a newer commit, if it is time to, and switch to it."""
        assert self.refresh_every is not None
        if time.monotonic() >= self._next_look or self._searcher.snapshot.is_unlocked:
            if self.is_outdated():
                with self._turns:
                    if self.is_outdated():  # another thread may have refreshed it
                        self.refresh()
            self._next_look = time.monotonic() + self.refresh_every

    def _acquired(self) -> Searcher:
        """The searcher that a call uses; the caller must release its snapshot."""
        if self.refresh_every is not None:
            self._follow()
        searcher = self._searcher
        while not searcher.snapshot.acquire():
            if searcher is self._searcher:
                raise CollectionError(f"{self.path}: the index has been closed")
            searcher = self._searcher
        return searcher

    @property
    def model(self) -> Model:
        if self.refresh_every is not None:
            self._follow()
        return self._searcher.snapshot.model

    @property
    def generation(self) -> int:
        if self.refresh_every is not None:
            self._follow()
        return self._searcher.snapshot.generation

    def is_outdated(self) -> bool:
        """Whether `refresh` would find something other than what this object sees; this takes microseconds.

        That is a newer commit, another index in its place, or no index or a damaged one, which `refresh` reports as
        an error.
        """
        self._check_open()
        return not self._searcher.snapshot.is_newest

    def __len__(self) -> int:
        """How many documents there are; a document in passages counts once."""
        if self.refresh_every is not None:
            self._follow()
        return self._searcher.snapshot.document_count

    def _check_options(self, options: SearchOptions) -> None:
        with self._reading() as searcher:
            Search.prepare(searcher, 1, None, options)

    def _search_one(self, options: SearchOptions, query: str, k: int, filter: FilterLike) -> Hits:
        if options.timeout is not None:
            return self._search_with(options, [query], k, filter, True)[0]
        searcher = self._acquired()  # no context manager: it would take longer than everything else here
        try:
            return Search.prepare(searcher, k, filter, options).hits_of(query)
        finally:
            searcher.snapshot.release()

    def _search_with(
        self, options: SearchOptions, queries: Sequence[str], k: int, filter: FilterLike, documents: bool
    ) -> list[Hits]:
        with time_limit(check_seconds(options.timeout)), self._reading() as searcher:
            return Search.prepare(searcher, k, filter, options).hits(queries, documents=documents)

    def _run_with(self, options: SearchOptions, queries: Mapping[str, str], k: int, filter: FilterLike) -> Run:
        texts = list(check_mapping(queries).values())
        with time_limit(check_seconds(options.timeout)), self._reading() as searcher:
            rankings = Search.prepare(searcher, k, filter, options).rankings(texts)
        return Run(dict(zip(queries, rankings, strict=True)), (options.model or self.model).name)

    def get_many(self, ids: Iterable[str | int]) -> dict[str, Document]:
        """Documents by id, without those that are not there; passages are joined to whole documents."""
        wanted = document_ids(ids)
        with self._reading() as searcher:
            return searcher.snapshot.documents.by_id(wanted)

    def documents(self) -> Iterator[Document]:
        """All documents, in order of insertion; passages are joined to whole documents."""
        with self._reading() as searcher:
            yield from searcher.snapshot.documents.all(searcher.snapshot.numbers().tolist())

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
        text, wanted, chosen = query_with_words(query), document_id(doc_id), self._model_of(model)
        with self._reading() as searcher:
            bound = searcher.chosen(chosen, language)
            return explain(searcher, bound, text, wanted, Filter.of(filter), check_syntax(syntax))

    def highlighter(
        self,
        query: str,
        filter: FilterLike = None,
        *,
        model: str | Model | None = None,
        syntax: str | None = None,
        language: str | None = None,
    ) -> Highlighter:
        with self._reading() as searcher:
            bound = searcher.chosen(self._model_of(model), language)
            return highlighter(searcher, bound, check_query(query), Filter.of(filter), check_syntax(syntax))

    def _facets_with(
        self, options: SearchOptions, fields: Sequence[str], query: str | None, filter: FilterLike, size: int
    ) -> Facets:
        text, condition, syntax = None if query is None else check_query(query), Filter.of(filter), options.syntax
        with self._reading() as searcher:
            bound = searcher.chosen(options.model, options.language)
            return facets.count_facets(searcher, bound, fields, text, condition, size, check_syntax(syntax))

    @property
    def has_words(self) -> bool:
        with self._reading() as searcher:
            return any(not part.has_pieces for part in searcher.words)

    def facet_fields(self) -> list[str]:
        """The fields worth counting, found by looking at the metadata of the first documents; at most a dozen.

        These are fields of short texts, numbers or booleans, or of lists of them, whose values come again or are few.
        The fields that the model reads are not among them.
        """
        with self._reading() as searcher:
            return facets.facet_fields(searcher)

    def sort_fields(self) -> list[str]:
        """The fields worth sorting by, found by looking at the metadata of the first documents; at most a dozen.

        These are fields of numbers, of dates or of short texts that come again, with one value a document.
        """
        with self._reading() as searcher:
            return facets.sort_fields(searcher)

    def similar(
        self, doc_id: str | int, k: int = 10, filter: FilterLike = None, *, model: str | Model | None = None
    ) -> Hits:
        wanted, chosen = document_id(doc_id), self._model_of(model)
        with self._reading() as searcher:
            return similar.similar(searcher, wanted, k, filter, chosen)

    def similar_query(self, doc_id: str | int, *, model: str | Model | None = None) -> str:
        wanted, chosen = document_id(doc_id), self._model_of(model)
        with self._reading() as searcher:
            return similar.similar_query(searcher, wanted, chosen)

    def suggest(self, prefix: str, size: int = 8, *, language: str | None = None) -> list[Suggestion]:
        with self._reading() as searcher:
            return searcher.completer(language).suggest(prefix, size)

    def term_statistics(self, text: str) -> list[TermStatistics]:
        if not isinstance(text, str):
            raise VizslaError(f"term statistics need a text, not {kind_of(text)}")
        with self._reading() as searcher:
            return term_statistics(searcher, text)

    def matching_ids(self, filter: FilterLike) -> list[str]:
        condition = Filter.of(filter)
        if condition is None:
            raise VizslaError("give a filter, as in year < 1999; without one all documents would match")
        with self._reading() as searcher:
            return matching.matching_ids(searcher, condition)

    def cache_sizes(self) -> dict[str, int]:
        """How many filters, models, ids of documents and terms are kept in memory for the next searches."""
        with self._reading() as searcher:
            return {**searcher.cache_sizes, **searcher.snapshot.cache_sizes}

    def info(self) -> dict[str, Any]:
        """What there is to know about the index.

        `documents` counts whole documents. If they are cut into passages, `passages` says how many there are, and
        `deleted` and `namespaces` count passages; else `passages` is None.
        """
        with self._reading() as searcher:
            return index_info(searcher.snapshot)


def _opened_again(kind: type[Index], path: Path, memory: int, device: str, refresh_every: float | None) -> Index:
    """An index that was pickled."""
    return kind(path, memory=memory, device=device, refresh_every=refresh_every)


def _checked_interval(seconds: object) -> float | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
        raise VizslaError(f"refresh_every is a number of seconds, 0 or more, not {kind_of(seconds)}")
    return float(seconds)


def _chosen_model(model: Model | str | None, language: str | Sequence[str] | None, device: str | None) -> Model:
    """The model of a new index: the one that is named, that of its languages, or BM25."""
    if language is None:
        return parse_model(model or "bm25", device=device) if isinstance(model, str | None) else check_model(model)
    if model is not None:
        raise VizslaError("name a model or the language of the documents, not both: a model says how text is analysed")
    if language == "auto":
        raise VizslaError("languages are detected before an index is made; name model=detect_model(documents).model")
    return language_model(languages_named(language) if isinstance(language, str) else language)
