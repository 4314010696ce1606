"""A collection on disk: documents, a model, and an inverted index that answers queries."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import vizsla
from vizsla.datasets import Document, RawLines, Splitter, document_id, document_of, documents_from
from vizsla.engine import VectorIndex
from vizsla.errors import CollectionError, UncommittedChangesWarning, VizslaError, kind_of
from vizsla.index import database, files, forking, trust
from vizsla.index.explain import explain
from vizsla.index.folder import absolute, is_being_built, recover, replace_index
from vizsla.index.highlight import Highlighter, Snippet
from vizsla.index.kinds import check_change, check_kind, dense_facts
from vizsla.index.pooling import Pool, pools_of
from vizsla.index.recall import Recall, measure_recall
from vizsla.index.searching import Choices, Search
from vizsla.index.snapshot import Snapshot
from vizsla.index.verify import verify
from vizsla.index.view import IndexView
from vizsla.index.writer import DEFAULT_MEMORY, Added, Writer
from vizsla.models import Model, parse_model
from vizsla.runs import Hit, Retriever, Run
from vizsla.runs.explanation import Explanation
from vizsla.runs.filters import Filter
from vizsla.runs.retriever import check_query, query_with_words

T = TypeVar("T")


class TermStatistics(NamedTuple):
    """How common a term is in the living documents."""

    namespace: str
    term: str
    documents: int
    occurrences: float


class Index(Retriever):
    """A collection in a folder of its own.

    Reading sees the last commit there was when the index was opened or this object committed. Use it as a
    context manager, or call `close`.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp() + "/dogs.index"
    >>> with Index.create(folder, "bm25") as index:
    ...     _ = index.add([{"id": "1", "text": "Dogs bark."}, {"id": "2", "text": "Cats do not."}])
    ...     index.commit()
    ...     [(hit.id, hit["text"]) for hit in index.search("a barking dog")]
    [('1', 'Dogs bark.')]
    """

    def __init__(self, path: str | Path, *, memory: int = DEFAULT_MEMORY) -> None:
        self.path = absolute(path)
        recover(self.path)
        self.memory = memory
        self._writing = threading.RLock()  # one thread writes at a time; the others wait
        self._changing = False
        self._given_up = False
        self._closed = False
        self._opened: Snapshot | None = Snapshot(self.path)
        self._writer: Writer | None = None
        self._asked: Model | None = None
        self._parsed = lru_cache(maxsize=8)(parse_model)  # opening a network takes far longer than a search
        self._ways: dict[str, str | None] = {"combine": None, "dense": None}
        forking.watch(self)

    @classmethod
    def create(
        cls,
        path: str | Path,
        model: Model | str = "bm25",
        *,
        overwrite: bool = False,
        memory: int = DEFAULT_MEMORY,
        passages: Splitter | int | None = None,
        store: bool = True,
        dense: str | VectorIndex = "exact",
    ) -> Index:
        """A new, empty collection; an index that is there already is only replaced when told to.

        `memory`: about how many bytes writing may take; more makes for fewer, larger segments.
        `passages`: cut documents into passages, of so many words or as a `Splitter` says; a search finds documents by
        their best passage.
        `store`: keep the texts the model reads, to be shown and exported. Ids and metadata are kept in any case.
        `dense`: how dense vectors are kept and searched, as in `hnsw` or `ivf(nlist=1024)`; see `VectorIndex`.
        """
        folder = absolute(path)
        chosen = parse_model(model) if isinstance(model, str) else model
        kind = VectorIndex.parse(dense) if isinstance(dense, str) else dense
        check_kind(kind, chosen)
        if chosen.needs_corpus_statistics:
            raise VizslaError(f"{chosen.name} freezes statistics of all documents; give it them first: model.fit(...)")
        meta = {
            "stored": store,
            "passages": None if passages is None else astuple(Splitter.of(passages)),
            database.DENSE: str(kind),
            "vizsla": vizsla.__version__,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        if is_being_built(folder):
            _write_new(folder, chosen, meta)
        else:
            with replace_index(folder, overwrite=overwrite) as building:
                _write_new(building, chosen, meta)
        return cls(folder, memory=memory)

    @classmethod
    def open(cls, path: str | Path, *, memory: int = DEFAULT_MEMORY) -> Index:
        """The collection in a folder."""
        return cls(path, memory=memory)

    def __enter__(self) -> Index:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        with self._writing:
            given_up = kind is None and self._writer is not None and self._writer.changed
            self.close()
        if given_up:
            warnings.warn(
                f"{self.path}: changes that were not committed are given up; call commit() to keep them",
                UncommittedChangesWarning,
                stacklevel=2,
            )

    def close(self) -> None:
        """Give up what is not committed and free files and locks."""
        with self._writing:
            self.rollback()
            self._closed = True
            if self._opened is not None:
                self._opened.close()

    # A fork of the process: see `forking`

    def clean_up_in_child(self, may_close: bool) -> None:
        self._writing = threading.RLock()
        self._changing = False
        snapshot, writer = self._opened, self._writer
        self._writer = None
        if snapshot is not None:
            snapshot.close_in_child(may_close and writer is None)
        if not self._closed:  # it is opened again when it is used
            self._opened = None
        if writer is not None:
            writer.leave_to_parent()

    @property
    def _snapshot(self) -> Snapshot:
        """What this object sees; in a forked child it is opened again."""
        opened = self._opened
        if opened is None:
            with self._writing:
                opened = self._opened = self._opened or Snapshot(self.path)
        return opened

    def _check_open(self) -> None:
        if self._closed:
            raise CollectionError(f"{self.path}: the index has been closed")

    # Writing

    def add(self, documents: Iterable[Document | Mapping[str, Any] | RawLines], *, workers: int = 1) -> Added:
        """Add documents: mappings with an id under `_id` or `id` and a `text`. `commit` makes them findable.

        A document whose id is there already replaces it; an id twice in one call is refused. A call that fails adds
        nothing; what earlier calls have added stays. If storing itself fails, as on a full disk, all pending changes
        are given up, and `commit` refuses until you call `rollback`. Any thread may call it; calls take turns.

        `workers`: more than one analyses documents in so many other processes; call it under
        `if __name__ == "__main__":` then. `Source.raw_lines` lets them read JSON, too.
        """
        if workers < 1:
            raise VizslaError(f"there must be at least one worker, not {workers}")
        return self._change(lambda writer: writer.add(documents_from(documents), workers))

    def delete(self, ids: str | int | Iterable[str | int]) -> int:
        """Delete documents by id; gives how many there were. `commit` makes it so."""
        given = [ids] if isinstance(ids, str | int) else ids
        wanted = [document_id(i) for i in given]
        return self._change(lambda writer: writer.delete(wanted))

    def _change(self, change: Callable[[Writer], T]) -> T:
        """Change something by the writer; when that leaves it in an unknown state, all that is pending is given up."""
        with self._writing:
            self._check_idle()
            writer = self._open_writer()
            self._changing = True
            try:
                return change(writer)
            finally:
                self._changing = False
                if not writer.sound:
                    given_up = writer.changed
                    self.rollback()
                    self._given_up = given_up

    def _check_idle(self) -> None:
        """Refuse to write to a closed index, from inside another change, or after pending changes were given up."""
        self._check_open()
        forking.check(self.path)
        if self._changing:
            raise VizslaError("this index is being changed; documents that are added cannot change it themselves")
        if self._given_up:
            raise CollectionError(
                f"{self.path}: an earlier call failed while it was stored, and all changes since the last commit were "
                "given up; call rollback() to begin again"
            )

    def _open_writer(self) -> Writer:
        if self._writer is None:
            uuid, splitter = self._snapshot.meta["uuid"], self._snapshot.splitter
            self._writer = Writer(self.path, self.model, uuid, splitter, self.memory)
            if self._writer.base == self._snapshot.generation:
                self._snapshot.unpin()  # nobody else writes now; pinned, it would keep the log of writes growing
        return self._writer

    def commit(self) -> None:
        """Make all changes visible, at once and durably."""
        with self._writing:
            self._check_idle()
            if self._writer is not None:
                self._finish(compact=False)

    def compact(self, dense: str | VectorIndex | None = None) -> None:
        """Commit, and rewrite the collection as one segment without what has been deleted or replaced.

        `dense`: keep and search dense vectors in another way from now on; what was stored in fewer bits stays so.
        """
        kind = VectorIndex.parse(dense) if isinstance(dense, str) else dense
        if kind is not None:
            check_kind(kind, self.model)
            check_change(kind, self._snapshot.kind)
        with self._writing:
            self._check_idle()
            self._finish(compact=True, kind=kind)

    def _finish(self, *, compact: bool, kind: VectorIndex | None = None) -> None:
        try:
            # Pinned again at the last moment, so that searches going on keep what the commit removes.
            self._open_writer().commit(compact=compact, just_before=self._snapshot.pin, kind=kind)
            self._see_commit()
            if compact:  # the log of writes now holds a copy of everything; empty it as soon as nobody reads from it
                self._open_writer().empty_log()
                self._see_commit()
                self._open_writer().empty_log()
        finally:
            self.rollback()

    def _see_commit(self) -> None:
        """See what was just committed. It is durable, so what fails now is no failed commit."""
        try:
            self.refresh()
        except VizslaError as e:
            raise CollectionError(f"the changes are committed, but cannot be read yet: {e}") from e

    def rollback(self) -> None:
        """Give up what was changed since the last commit."""
        with self._writing:
            if self._changing:
                raise VizslaError("this index is being changed; documents that are added cannot change it themselves")
            self._given_up = False
            if self._writer is not None:
                writer, self._writer = self._writer, None
                try:
                    self._snapshot.pin()
                finally:
                    writer.close()

    def refresh(self) -> None:
        """See the newest commit of any writer from now on."""
        with self._writing:
            self._check_open()
            old, self._opened = self._opened, Snapshot(self.path)
            if old is not None:
                old.close()

    # Reading

    @contextmanager
    def _reading(self) -> Iterator[Snapshot]:
        """The snapshot of now, kept open to the end of what is done with it, whatever is committed meanwhile."""
        snapshot = self._snapshot
        while not snapshot.acquire():
            if snapshot is self._snapshot:
                raise CollectionError(f"{self.path}: the index has been closed")
            snapshot = self._snapshot
        try:
            yield snapshot
        finally:
            snapshot.release()

    @property
    def model(self) -> Model:
        return self._snapshot.model

    def __len__(self) -> int:
        """How many documents there are; one in passages counts once."""
        return self._snapshot.document_count

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.model.name

    def with_model(
        self,
        model: str | Model | None = None,
        *,
        combine: str | None = None,
        search_params: str | None = None,
        approximate: float | None = None,
        threads: int | None = None,
    ) -> IndexView:
        """The index searched with another model, or in another way, than its own; see `search_many`.

        What the index cannot be searched with is refused here.
        """
        chosen = self._model_of(model) or self.model
        with self._reading() as snapshot:
            Search.prepare(snapshot, 1, Choices(model=chosen, combine=combine, dense=search_params))
        return IndexView(self, chosen, combine, search_params, approximate, threads)

    def ask_with(self, model: str | Model | None, *, combine: str | None = None, dense: str | None = None) -> None:
        """Ask in this way from now on wherever nothing else is said; None is the index's own. See `search_many`."""
        chosen = self._model_of(model)
        with self._reading() as snapshot:
            Search.prepare(snapshot, 1, Choices(model=chosen, combine=combine, dense=dense))  # refuses what cannot be
        self._asked = chosen
        self._ways = {"combine": combine, "dense": dense}

    @property
    def asked(self) -> Model:
        """The model that is asked with where none is named."""
        return self._asked or self.model

    def _model_of(self, told: str | Model | None) -> Model | None:
        if told is not None and not isinstance(told, str | Model):
            raise VizslaError(f"a model is a Model or its name, as in 'bm25(k1=1.2)', not {kind_of(told)}")
        return self._parsed(told) if isinstance(told, str) else told

    def _chosen(self, model: str | Model | None) -> Model | None:
        return self._model_of(model) or self._asked

    def _prepared(self, snapshot: Snapshot, k: int, model: str | Model | None, **told: Any) -> Search:
        ways = {name: self._ways[name] if told[name] is None else told[name] for name in self._ways}
        return Search.prepare(snapshot, k, Choices(model=self._chosen(model), **{**told, **ways}))

    def search(
        self,
        query: str,
        k: int = 10,
        filter: str | Mapping[str, Any] | Filter | None = None,
        *,
        model: str | Model | None = None,
        approximate: float | None = None,
        combine: str | None = None,
        dense: str | None = None,
    ) -> list[Hit]:
        """The k best documents, best first; equal scores in order of insertion. An empty query is refused.

        `filter`: a condition on the documents, as in `year >= 1999 and lang = "en"`, applied before the best are
        taken, so k come back whenever there are k. A mapping, as in `{"year": 1999, "lang": ["en", "de"]}`, names
        fields and the value of each, or several of which one will do. For the others see `search_many`.
        """
        ways: dict[str, Any] = {"model": model, "approximate": approximate, "combine": combine, "dense": dense}
        return self.search_many([query_with_words(query)], k, filter, threads=1, **ways)[0]

    def search_many(
        self,
        queries: Sequence[str],
        k: int = 10,
        filter: str | Mapping[str, Any] | Filter | None = None,
        *,
        model: str | Model | None = None,
        threads: int | None = None,
        documents: bool = True,
        approximate: float | None = None,
        combine: str | None = None,
        dense: str | None = None,
    ) -> list[list[Hit]]:
        """The hits of many queries, in `threads` threads, as many as there are processors if not told.

        An empty query finds nothing. Without `documents` a hit's document has an id and nothing else, which is faster.

        `model`: ask with another model than the index's own, one that reads the same postings: other k1, b, variant
        or weights, or only some parts of a sum. Nothing is indexed anew.

        `approximate`: a number from 0 to 1 makes the search faster and may miss documents: common words are reckoned
        to add no more than this share of what they could. Scores stay exact, and so is the search without it.

        `combine`: how the parts of a sum become one ranking: `sum` is exact; `union` and `rrf` look at the best of each
        part alone, see `Combination`.

        `dense`: how dense vectors are searched where the index has a structure for it: `exact`, or with another effort
        than its own, as in `ef_search=200` or `nprobe=64`. A sum is searched exactly.
        """
        told = {"filter": filter, "threads": threads, "approximate": approximate, "combine": combine, "dense": dense}
        with self._reading() as snapshot:
            return self._prepared(snapshot, k, model, **told).hits(queries, documents=documents)

    def run(
        self,
        queries: Mapping[str, str],
        k: int = 1000,
        filter: str | Mapping[str, Any] | Filter | None = None,
        *,
        model: str | Model | None = None,
        threads: int | None = None,
        approximate: float | None = None,
        combine: str | None = None,
        dense: str | None = None,
    ) -> Run:
        """The rankings of many queries, by query id; see `search_many`. An empty query finds nothing."""
        if not isinstance(queries, Mapping):
            raise VizslaError("run() takes a mapping of query ids to texts; for a list of texts there is search_many()")
        told = {"filter": filter, "threads": threads, "approximate": approximate, "combine": combine, "dense": dense}
        with self._reading() as snapshot:
            rankings = self._prepared(snapshot, k, model, **told).rankings(queries.values())
        return Run(dict(zip(queries, rankings, strict=True)))

    def pools(self, queries: Sequence[str], depth: int = 100, *, model: str | Model | None = None) -> list[Pool]:
        """For each query the best `depth` documents of each part of a model, with their scores by all parts."""
        with self._reading() as snapshot:
            return pools_of(snapshot, queries, depth, self._chosen(model))

    def recall(
        self,
        queries: Sequence[str],
        settings: Sequence[str],
        k: int = 10,
        *,
        model: str | Model | None = None,
        together: int = 1,
    ) -> list[Recall]:
        """What settings of `dense` find of the exact top k, how fast, `together` queries a time; exact search first."""
        with self._reading() as snapshot:
            return measure_recall(snapshot, self._chosen(model), queries, k, settings, together)

    def get(self, doc_id: str | int) -> Document | None:
        """The document with an id, or None; one in passages is put together again."""
        return self.get_many([doc_id]).get(document_id(doc_id))

    def get_many(self, ids: Iterable[str | int]) -> dict[str, Document]:
        """Documents by id, without those that are not there; one in passages is put together again."""
        given = [ids] if isinstance(ids, str | int) else ids
        with self._reading() as snapshot:
            return snapshot.whole_documents(map(document_id, given))

    def texts(self, ids: Iterable[str | int], field: str = "text") -> dict[str, str]:
        """A field of the documents with these ids, which must be a text; empty where a document has no such field."""
        found = {doc_id: document.get(field) or "" for doc_id, document in self.get_many(ids).items()}
        for doc_id, text in found.items():
            if not isinstance(text, str):
                raise VizslaError(f"the field {field!r} of the document {doc_id!r} is no text but {kind_of(text)}")
        return found

    def contents(self, ids: Iterable[str | int]) -> dict[str, dict[str, Any]]:
        """The fields of the documents with these ids."""
        return {doc_id: dict(document.content) for doc_id, document in self.get_many(ids).items()}

    def documents(self) -> Iterator[Document]:
        """All documents, in order of insertion; those in passages are put together again."""
        with self._reading() as snapshot:
            yield from snapshot.all_documents()

    def vectors(self) -> Iterator[tuple[str, dict[str, float]]]:
        """Each document's id and the full weights of its terms, rarity included: BM25 as data.

        A document in passages has a vector for each of them, one after the other, all with its id.
        """
        with self._reading() as snapshot:
            for number, vector in snapshot.vectors():
                stored = snapshot.ids([number])[number]
                yield stored if snapshot.splitter is None else document_of(stored), vector

    def explain(
        self,
        query: str,
        doc_id: str | int,
        filter: str | Mapping[str, Any] | Filter | None = None,
        *,
        model: str | Model | None = None,
    ) -> Explanation:
        """Why a document has its score for a query: each term's part, adding up to the score.

        Give the `filter` of the search: where a query is expanded from documents, it says from which.
        """
        query_with_words(query)
        doc_id = document_id(doc_id)
        condition = Filter.of(filter)
        with self._reading() as snapshot:
            numbers = snapshot.numbers_of(doc_id)
            if not numbers:
                raise VizslaError(f"there is no document with the id {doc_id!r}")
            with snapshot.damage_told():
                asked = self._chosen(model) or snapshot.model
                if condition is not None and not any(snapshot.meets(n, condition) for n in numbers):
                    raise VizslaError(f"the document {doc_id!r} does not meet the filter")
                return max((explain(snapshot, asked, query, n, condition) for n in numbers), key=lambda e: e.score)

    def highlighter(self, query: str, filter: str | Mapping[str, Any] | Filter | None = None) -> Highlighter:
        """Shows where documents answer a query; give it the filter of the search, as `explain`."""
        with self._reading() as snapshot:
            asking = snapshot.bind(self._asked or snapshot.model)
            weights = snapshot.query_weights(check_query(query), asking, Filter.of(filter))
            return Highlighter(snapshot.model, weights)

    def highlight(self, query: str, document: Document, field: str = "text", width: int = 240) -> Snippet:
        """The stretch of a field that best answers a query, with the places of the matching words."""
        return self.highlighter(query).snippet(document, field, width)

    def term_statistics(self, text: str) -> list[TermStatistics]:
        """For each term a text is analyzed to, in each namespace, in how many documents and how often it occurs."""
        if not isinstance(text, str):
            raise VizslaError(f"term statistics are those of a text, not of {kind_of(text)}")
        found = []
        with self._reading() as snapshot:
            for part in snapshot.model.parts:
                namespace, terms = part.component.namespace, list(part.component.own_terms(text))
                numbers, frequencies = snapshot.terms_of(namespace, terms)
                counts = frequencies.tolist(), snapshot.occurrences(numbers)
                found += [TermStatistics(namespace, *row) for row in zip(terms, *counts, strict=True)]
        return found

    def verify(self) -> list[str]:
        """Check every file and how they fit together; gives a sentence for each thing that is wrong."""
        return verify(self.path)

    def trust(self) -> int:
        """Let faiss open what was built over dense vectors elsewhere; gives how many structures there are.

        Do so only if you know who has made the index: faiss follows what it reads without looking whether it is sound.
        """
        with self._reading() as snapshot:
            hashes = {ann_index.sha256 for segment in snapshot.segments for ann_index in segment.ann.values()}
        for sha256 in hashes:
            trust.remember(sha256)
        return len(hashes)

    def bytes_of(self, model: Model) -> int:
        """What an index of this model alone would take, one of those that this index can be asked with."""
        with self._reading() as snapshot:
            return snapshot.bytes_of(model)

    def info(self) -> dict[str, Any]:
        """What there is to know about the collection.

        `documents` counts whole documents; where they are cut into passages, `passages` says how many these are, and
        `deleted` and `namespaces` count passages. Else it is None.
        """
        with self._reading() as snapshot:
            return self._info(snapshot)

    def _info(self, s: Snapshot) -> dict[str, Any]:
        database_bytes = sum(f.stat().st_size for f in self.path.glob(database.FILE + "*"))
        return {
            "path": str(self.path),
            "model": s.model.name,
            "documents": s.document_count,
            "passages": None if s.splitter is None else s.stored_count,
            "deleted": sum(len(segment) for segment in s.segments) - s.stored_count,
            "segments": len(s.segments),
            "postings": sum(segment.postings for segment in s.segments),
            "namespaces": {
                name: {
                    "documents": statistics.documents,
                    "terms": statistics.total_length,
                    "average_length": statistics.total_length / max(statistics.documents, 1),
                    "dimensions": component.dimensions,
                }
                for (name, statistics), (_, component) in zip(s.statistics.items(), s.model.parts, strict=True)
            },
            "dense": dense_facts(s.kind, s.segments, s.model),
            "index_bytes": s.file_bytes,
            "document_bytes": database_bytes,
            "stored": s.meta["stored"],
            "created": s.meta["created"],
            "vizsla": s.meta["vizsla"],
            "format": s.meta["format"],
            "generation": s.generation,
        }


def _write_new(folder: Path, model: Model, meta: Mapping[str, Any]) -> None:
    """An index without documents in a folder that is there already."""
    try:
        described = {"model": model.describe(folder / "model")}
        hashes = {name: files.hash_file(f) for name, f in files.model_files(folder / "model")}
        database.create(folder, {**described, **meta, "model_files": hashes})
        files.sync_folder(folder)
    except OSError as e:
        raise CollectionError(f"{folder}: cannot be written to ({e.strerror})") from e
