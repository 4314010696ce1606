"""A reader's view of a collection: the last commit when it was opened, whatever writers do later."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.datasets import Document, Splitter, document_of
from vizsla.datasets.passages import MARK
from vizsla.engine import (
    DamagedSegmentError,
    Query,
    Segment,
    TopDocuments,
    VectorIndex,
    by_document,
    read_vector_index,
    search_among,
    search_many,
)
from vizsla.errors import CollectionError, VizslaError
from vizsla.index import checksums, database, files, forking
from vizsla.index.asking import BoundModel
from vizsla.index.search.sql_filter import DocumentTable
from vizsla.models import Component, Model, Part, Statistics
from vizsla.models.expansion import SearchContext
from vizsla.runs.filters import Filter

ATTEMPTS = 5
_MOST_CACHED_TERMS = 100_000
_MOST_CACHED_FILTERS = 64
_MOST_CACHED_IDS = 500_000
_MOST_CACHED_MODELS = 8
_MOST_SQL_VALUES = 30_000
_BATCH = 1000  # documents that are read together
_Numbered = tuple[np.ndarray, np.ndarray, np.ndarray]
_NO_TERMS: _Numbered = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)


@dataclass(frozen=True)
class _NamespaceStatistics:
    """The statistics of one namespace over the snapshot's living documents."""

    documents: int
    total_length: int
    longest: int
    namespace: str
    snapshot: Snapshot

    def document_frequencies(self, terms: Sequence[str]) -> np.ndarray:
        return self.snapshot.terms_of(self.namespace, terms)[1]


@dataclass(frozen=True)
class _Filtered:
    """The documents that meet a condition, for queries that are made from documents: others must leave no trace."""

    snapshot: Snapshot
    condition: Filter

    def best(self, component: Component, asked: Sequence[Mapping[str, float]], k: int) -> list[dict[int, float]]:
        return self.snapshot.best(component, asked, k, self.condition)

    def contents(self, numbers: Sequence[int]) -> dict[int, Mapping[str, Any]]:
        return self.snapshot.contents(numbers)

    def statistics_of(self, component: Component) -> Statistics:
        return self.snapshot.statistics_of(component)


def _read(fields: str | None, path: Path) -> dict[str, Any]:
    """What is stored of a document."""
    try:
        found = {} if fields is None else json.loads(fields)
    except (ValueError, TypeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise database.damaged(path, "what is stored of a document is no JSON object")
    return found


class _Part:
    """A segment with what has died in it."""

    def __init__(self, path: Path, name: str, facts: dict[str, files.Facts]) -> None:
        self.segment = files.read_segment(path, name, facts)
        present = [key for key in (files.ALIVE, files.FREQUENCIES) if key in facts]
        arrays = {key: files.read_array(path, name, facts[key]) for key in present}
        self.alive = arrays.get(files.ALIVE)
        self.frequencies = arrays.get(files.FREQUENCIES)
        if self.alive is not None and self.alive.shape != self.segment.numbers.shape:
            raise CollectionError(f"{path}: segment {name} is damaged: its arrays contradict each other")


class Snapshot:
    """Segments mapped into memory and an open read transaction, so that both stay as they are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.RLock()  # one connection, many threads; garbage that is collected may want it, too
        self._terms: dict[str, dict[str, tuple[int, int]]] = {}
        self._masks: dict[str, list[np.ndarray]] = {}
        self._ids: dict[int, str] = {}
        self._asked: dict[int, tuple[Model, BoundModel]] = {}
        self._users = 0
        self._retired = False
        for attempt in range(ATTEMPTS):
            self._db = database.connect(path, write=False)
            self._close_database = database.close_with(self, self._db)
            try:
                self._load()
                return
            except BaseException as e:
                self._close_database()
                # A newer commit may have removed a file before it could be mapped; the next try finds that commit.
                if not isinstance(e, files.MissingFileError) or attempt == ATTEMPTS - 1:
                    raise

    def _load(self) -> None:
        with database.told_plainly(self.path):
            self._db.execute("BEGIN")
            self.meta: dict[str, Any] = database.read_meta(self._db, self.path)
            self.generation: int = self.meta["generation"]
            self.splitter = Splitter(*self.meta["passages"]) if self.meta["passages"] else None
            rows = database.segment_rows(self._db, self.path, self.generation)
            if problem := checksums.wrong_table(self._db, self.generation):
                raise database.damaged(self.path, f"{problem} is not what was written")
        self._stamp = database.stamp(self.path) if isinstance(self._db, database.Unlocked) else None
        files.check_model_folder(self.path / "model")
        self.kind = read_vector_index(self.meta.get(database.DENSE))
        self.model = Model.from_description(self.meta["model"], self.path / "model")
        if any(statistics["namespaces"].keys() != set(self.model.namespaces) for *_, statistics in rows):
            raise database.damaged(self.path, "a segment has other namespaces than the model")
        parts = [_Part(self.path, name, facts) for name, facts, _ in rows]
        if not all(self._fits(p.segment) for p in parts):
            raise database.damaged(self.path, "a segment has not what the model needs")
        parts.sort(key=lambda p: int(p.segment.numbers[0]))
        self.segments = [p.segment for p in parts]
        self.alive = [p.alive for p in parts]
        self._frequencies = [p.frequencies for p in parts]
        by_segment = [statistics for *_, statistics in rows]
        self.stored_count: int = sum(s["living"] for s in by_segment)
        self.file_bytes: int = sum(f["bytes"] for _, facts, _ in rows for f in facts.values())
        self.statistics = {name: self._sum_up(name, by_segment) for name in self.model.namespaces}
        self.asking = self.bind(self.model)

    def _fits(self, segment: Segment) -> bool:
        """Whether a segment has what the model's namespaces need, so that nothing is looked for where it is not."""
        widths = {i: part.component.dimensions for i, part in enumerate(self.model.parts) if part.component.dimensions}
        return len(segment.sizes) == len(self.model.parts) and widths == {
            space: rows.shape[1] for space, rows in segment.dense.items()
        }

    def _sum_up(self, namespace: str, by_segment: list[dict[str, Any]]) -> _NamespaceStatistics:
        entries = [s["namespaces"][namespace] for s in by_segment]
        return _NamespaceStatistics(
            sum(e["documents"] for e in entries),
            sum(e["total_length"] for e in entries),
            max((e["longest"] for e in entries), default=0),
            namespace,
            self,
        )

    # Its own life

    def pin(self) -> None:
        """Hold on to this commit whatever others write; the log of writes cannot shrink meanwhile."""
        with self.lock, database.told_plainly(self.path):
            if not self._retired and not self._db.in_transaction:
                self._db.execute("BEGIN")
                database.get_meta(self._db, "generation")

    def unpin(self) -> None:
        """Let go while nobody else can write, so that what this commit holds stays there."""
        with self.lock, database.told_plainly(self.path):
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def acquire(self) -> bool:
        """Keep the snapshot open until `release`, even if it is closed meanwhile; False if it is closed already."""
        if self._stamp is not None and self._stamp != database.stamp(self.path):
            raise CollectionError(
                f"{self.path}: the index has changed, and who may not write to it cannot keep what he has opened; "
                "refresh() or open it again"
            )
        with self.lock:
            self._users += not self._retired
            return not self._retired

    def release(self) -> None:
        with self.lock:
            self._users -= 1
            self._close_if_done()

    def close(self) -> None:
        """Close the snapshot as soon as its last user is done with it."""
        with self.lock:
            self._retired = True
            self._close_if_done()

    def _close_if_done(self) -> None:
        """Let go of everything at once: what is left to the garbage collector may be collected late."""
        if self._retired and self._users == 0:
            self._close_database()
            self.segments, self.alive, self._frequencies = [], [], []
            self.statistics, self._asked, self._masks = {}, {}, {}
            self.__dict__.pop("asking", None)

    def close_in_child(self, may_close: bool) -> None:
        """Close what a forked child has inherited, where no other thread goes on; or leave it as it is."""
        self._close_database.detach()
        if not may_close and not self._retired:
            forking.leave_alone(self.path, self._db)
            return
        with suppress(sqlite3.Error):
            self._db.close()
        self.lock = threading.RLock()
        self._users = 0
        self.close()

    @contextmanager
    def damage_told(self) -> Iterator[None]:
        try:
            yield
        except (DamagedSegmentError, IndexError):
            raise CollectionError(f"{self.path}: a segment is damaged; 'vizsla verify' tells which") from None

    # Terms

    def terms_of(self, namespace: str, terms: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The terms' numbers in the index, -1 for those it does not have, and in how many living documents they are.

        What was asked for is remembered, since queries share their words.
        """
        known = self._terms.setdefault(namespace, {})
        if len(known) > _MOST_CACHED_TERMS:
            known = self._terms[namespace] = {}
        new = [t for t in dict.fromkeys(terms) if t not in known]
        if new:
            numbers = self._find_terms(namespace, new)
            found = zip(numbers.tolist(), self._document_frequencies(numbers).tolist(), strict=True)
            known.update(zip(new, found, strict=True))
        pairs = np.array([known[t] for t in terms] if terms else np.zeros((0, 2)), np.int64)
        return pairs[:, 0], pairs[:, 1]

    def _find_terms(self, namespace: str, terms: Sequence[str]) -> np.ndarray:
        find = "SELECT number FROM terms WHERE namespace = ? AND term = ?"
        with self.lock, database.told_plainly(self.path):
            written = [t.encode("utf-8", "replace").decode() for t in terms]
            space = self.model.namespaces.index(namespace)
            rows = [self._db.execute(find, (space, t)).fetchone() for t in written]
            return np.array([database.term_number(row, self.path) for row in rows], np.int64)

    def _document_frequencies(self, numbers: np.ndarray) -> np.ndarray:
        df = np.zeros(len(numbers), np.int64)
        with self.damage_told():
            for segment, living in zip(self.segments, self._frequencies, strict=True):
                df += segment.frequencies(numbers, living)
        return df

    def occurrences(self, numbers: np.ndarray) -> list[float]:
        """How often the terms with these numbers occur in living documents, or what their weights add up to."""
        totals = np.zeros(len(numbers))
        with self.damage_told():
            for segment, alive in zip(self.segments, self.alive, strict=True):
                for i, number in enumerate(numbers.tolist()):
                    documents, values = segment.list_of(number)
                    totals[i] += values.sum() if alive is None else values[alive[documents]].sum()
        return totals.tolist()

    # Searching

    def bind(self, model: Model) -> BoundModel:
        """How this collection is asked with its own model or another; the last answers are kept."""
        known = self._asked.get(id(model))
        if known is None:
            if len(self._asked) >= _MOST_CACHED_MODELS:
                self._asked = {}
            known = self._asked[id(model)] = model, BoundModel.make(model, self.model, self.statistics)
        return known[1]

    def bytes_of(self, model: Model) -> int:
        """What a model that is asked of this collection would take alone, without the documents."""
        total = 0
        for space, part in self.bind(model).parts:
            if part.component.dimensions:
                total += sum(segment.dense_bytes(space) + segment.numbers.nbytes for segment in self.segments)
                continue
            with self.lock, database.told_plainly(self.path):
                rows = self._db.execute("SELECT number FROM terms WHERE namespace = ?", (space,)).fetchall()
            terms = np.array([number for (number,) in rows], np.int64)
            with self.damage_told():
                total += sum(segment.bytes_of(terms) for segment in self.segments)
        return total

    def query_weights(
        self, text: str, asking: BoundModel, condition: Filter | None = None
    ) -> dict[str, dict[str, float]]:
        """For each namespace the query's terms and their final weights; terms no document has are left out."""
        parts, seen = [part for _, part in asking.parts], self.seen_through(condition)
        return {p.component.namespace: self._weigh(p, p.component.query_terms_in([text], seen))[0] for p in parts}

    def seen_through(self, condition: Filter | None) -> SearchContext:
        """The documents a query may be made from: those that meet the condition it is asked with."""
        return self if condition is None else _Filtered(self, condition)

    def best(
        self, component: Component, asked: Sequence[Mapping[str, float]], k: int, condition: Filter | None = None
    ) -> list[dict[int, float]]:
        """For queries given as weighted terms of one component the numbers of the best documents and their scores."""
        asking = self.bind(component)
        ((space, part),) = asking.parts
        weighed = self._weigh(part, asked)
        queries = [Query(*row) for row in self._numbered(space, part.component, weighed)]
        found = self.search(queries, asking, k, condition)
        return [dict(zip(hits.numbers.tolist(), hits.scores.tolist(), strict=True)) for hits in found]

    def contents(self, numbers: Sequence[int]) -> dict[int, Mapping[str, Any]]:
        """The fields of documents by their numbers."""
        return {number: document.content for number, document in self.documents(numbers).items()}

    def statistics_of(self, component: Component) -> Statistics:
        """How common the terms of a component are."""
        ((_, part),) = self.bind(component).parts
        return self.statistics[part.component.namespace]

    def _weigh(self, part: Part, asked: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
        statistics = self.statistics[part.component.namespace]
        weighed = part.component.query_weights_of(asked, statistics)
        if part.weight == 1:
            return weighed
        return [{term: part.weight * w for term, w in weights.items()} for weights in weighed]

    def encode_queries(self, texts: Sequence[str], asking: BoundModel, condition: Filter | None = None) -> list[Query]:
        """Queries as numbers for the engine; terms no document has are left out.

        A query that is made from documents is made from those that meet the condition.
        """
        sparse = [(space, part) for space, part in asking.parts if not part.component.dimensions]
        with self.damage_told():
            rows = [self._encode_part(space, part, texts, condition) for space, part in sparse]
        dense = self._dense_vectors(texts, asking)
        if len(rows) == 1:
            return [Query(*only, vectors) for only, vectors in zip(rows[0], dense, strict=True)]
        if not rows:
            return [Query(*_NO_TERMS, vectors) for vectors in dense]
        found = []
        for parts, vectors in zip(zip(*rows, strict=True), dense, strict=True):
            terms, spaces, weights = map(np.concatenate, zip(*parts, strict=True))
            found.append(Query(terms, spaces, weights, vectors))
        return found

    def _dense_vectors(self, texts: Sequence[str], asking: BoundModel) -> list[dict[int, np.ndarray]]:
        """For each query its vector in each namespace that has dense ones, the weight of the part multiplied in."""
        found: list[dict[int, np.ndarray]] = [{} for _ in texts]
        for space, part in asking.parts:
            for query, vector in zip(found, part.component.dense_queries(texts), strict=True):
                if vector is not None:
                    query[space] = part.weight * vector
        return found

    def _encode_part(self, space: int, part: Part, texts: Sequence[str], condition: Filter | None) -> list[_Numbered]:
        """For each query the numbers, spaces and weights of its terms in one namespace."""
        asked = part.component.query_terms_in(texts, self.seen_through(condition))
        return self._numbered(space, part.component, self._weigh(part, asked))

    def _numbered(self, space: int, component: Component, weighed: Sequence[Mapping[str, float]]) -> list[_Numbered]:
        numbers, _ = self.terms_of(component.namespace, [t for w in weighed for t in w])
        weights = np.array([w for terms in weighed for w in terms.values()], np.float64)
        spaces = np.full(len(numbers), space, np.int64)
        ends = [0, *accumulate(map(len, weighed))]
        return [(numbers[a:z], spaces[a:z], weights[a:z]) for a, z in pairwise(ends)]

    def search(
        self,
        queries: Sequence[Query],
        asking: BoundModel,
        k: int,
        condition: Filter | None,
        expected: float = 1.0,
        search_params: VectorIndex | None = None,
    ) -> list[TopDocuments]:
        """For each query the best k living documents, of those that meet a condition if there is one.

        `expected` below 1, or an `search_params`: approximately, see `search_many`.
        """
        allowed = self.alive if condition is None else self.allowed(condition)
        k = min(k, max(self.stored_count, 1))
        with self.damage_told():
            return search_many(
                self.segments, queries, asking.weightings, k, allowed, expected=expected, search_params=search_params
            )

    def search_among(self, query: Query, asking: BoundModel, numbers: np.ndarray, k: int) -> TopDocuments:
        """The best k of some living documents."""
        with self.damage_told():
            return search_among(self.segments, query, asking.weightings, numbers, min(k, max(len(numbers), 1)))

    @cached_property
    def _table(self) -> DocumentTable:
        return DocumentTable(self._db, self.generation, self.model.fields)

    def meets(self, number: int, condition: Filter) -> bool:
        """Whether the document with an insertion number meets a condition."""
        place = self.place(number)
        return place is not None and bool(self.allowed(condition)[place[0]][place[1]])

    def allowed(self, condition: Filter) -> Sequence[np.ndarray]:
        """For each segment the mask of its documents that meet a condition; kept, since filters come again."""
        key = str(condition)
        with self.lock, database.told_plainly(self.path):
            masks = self._masks.get(key)
            if masks is None:
                numbers = self._table.numbers(condition)
                masks = [np.isin(segment.numbers, numbers, assume_unique=True) for segment in self.segments]
                if len(self._masks) >= _MOST_CACHED_FILTERS:
                    self._masks.clear()
                self._masks[key] = masks
        return masks

    # Documents

    @cached_property
    def document_count(self) -> int:
        """How many documents there are, those in passages counted once: each has a passage 0."""
        if self.splitter is None:
            return self.stored_count
        first = f"{MARK}0".encode()  # bytes, as SQLite's texts end at a NUL for substr
        count = "SELECT count(*) FROM documents WHERE generation <= ? AND substr(CAST(id AS BLOB), ?) = ?"
        with self.lock, database.told_plainly(self.path):
            ((found,),) = self._db.execute(count, (self.generation, -len(first), first))
        return int(found)

    def place(self, number: int) -> tuple[int, int] | None:
        """The segment and the place in it of the document with an insertion number."""
        for i, segment in enumerate(self.segments):
            at = int(np.searchsorted(segment.numbers, number))
            if at < len(segment) and segment.numbers[at] == number:
                return i, at
        return None

    def ids(self, numbers: Iterable[int]) -> dict[int, str]:
        """The ids of documents by their insertion numbers; what was looked up is remembered, as rankings share them."""
        wanted = set(numbers)
        known = self._ids
        if missing := sorted(wanted.difference(known)):  # in the order they lie on the disk
            found = self._find_ids(missing)
            if len(known) + len(found) > _MOST_CACHED_IDS:
                known = self._ids = {n: known[n] for n in wanted if n in known}
            known.update(found)
        return {n: known[n] for n in wanted}

    def _find_ids(self, numbers: list[int]) -> dict[int, str]:
        """All in one row: for each row the GIL would be given up and waited for again, which threads would feel."""
        find = "SELECT json_group_object(number, id) FROM documents WHERE number IN (SELECT value FROM json_each(?))"
        with self.lock, database.told_plainly(self.path):
            ((found,),) = self._db.execute(find, (json.dumps(numbers),)).fetchall()
        ids = {int(number): doc_id for number, doc_id in json.loads(found).items()}
        if len(ids) < len(numbers):
            raise self._not_stored()
        return ids

    def documents(self, numbers: Iterable[int]) -> dict[int, Document]:
        """Stored documents by their insertion numbers."""
        wanted = sorted(numbers)  # as they lie on the disk
        if self.meta["stored"]:
            rows = self._select("number, id, fields, metadata", wanted, "documents JOIN contents USING (number)")
        else:
            rows = self._select("number, id, NULL, metadata", wanted, "documents")
        return {number: Document(doc_id, self._content(fields, metadata)) for number, doc_id, fields, metadata in rows}

    def whole_documents(self, ids: Iterable[str]) -> dict[str, Document]:
        """Stored documents by their ids, those in passages put together again; without those that are not there."""
        numbers = {doc_id: self.numbers_of(doc_id) for doc_id in ids}
        stored = self.documents({n for some in numbers.values() for n in some})
        return {d: self._whole([stored[n] for n in some]) for d, some in numbers.items() if some}

    def all_documents(self) -> Iterator[Document]:
        """All stored documents in order of insertion, those in passages put together again."""
        numbers = self.numbers().tolist()
        batches = (numbers[a : a + _BATCH] for a in range(0, len(numbers), _BATCH))
        rows = (document for batch in batches for _, document in sorted(self.documents(batch).items()))
        if self.splitter is None:
            yield from rows
        else:  # the passages of a document follow one another
            yield from (self._whole(list(passages)) for _, passages in groupby(rows, lambda p: document_of(p.id)))

    def _whole(self, rows: Sequence[Document]) -> Document:
        return rows[0] if self.splitter is None else self.splitter.whole(rows)

    def _content(self, fields: str | None, metadata: str | None) -> dict[str, Any]:
        found = _read(fields, self.path)
        return found if metadata is None else {**found, **_read(metadata, self.path)}

    def vectors(self) -> Iterator[tuple[int, dict[str, float]]]:
        """Each living document's number and weights, what the query side adds to a term included.

        In a sum the terms are prefixed by their namespaces.
        """
        if dense := [p.component.name for p in self.model.parts if p.component.dimensions]:
            raise VizslaError(f"the vectors of {dense[0]} are dense and have no terms to list")
        names, spaces, factors = self._term_table()
        single = len(self.model.parts) == 1
        weightings = [p.component.weighting(self.statistics[p.component.namespace]) for p in self.model.parts]
        for segment, alive in zip(self.segments, self.alive, strict=True):
            with self.damage_told():
                pointers, terms, values = by_document(segment)
            for d in range(len(segment)) if alive is None else np.flatnonzero(alive).tolist():
                numbers = terms[pointers[d] : pointers[d + 1]]
                stored = values[pointers[d] : pointers[d + 1]]
                weights = np.zeros(len(numbers))
                for s, weighting in enumerate(weightings):
                    mine = spaces[numbers] == s
                    codes = np.full(int(mine.sum()), segment.lengths[s, d])
                    weights[mine] = weighting.weigh(stored[mine], codes) * factors[numbers[mine]]
                labels = (names[n] if single else f"{self.model.namespaces[spaces[n]]}:{names[n]}" for n in numbers)
                yield int(segment.numbers[d]), dict(zip(labels, weights.tolist(), strict=True))

    def _term_table(self) -> tuple[list[str], np.ndarray, np.ndarray]:
        """For each term number its term, its namespace's place, and what a query with it once weighs it."""
        size = self.meta["next_term"]
        names, spaces, factors = [""] * size, np.zeros(size, np.int64), np.zeros(size)
        for s, part in enumerate(self.model.parts):
            component = part.component
            with self.lock, database.told_plainly(self.path):
                find = "SELECT number, term FROM terms WHERE namespace = ? AND number < ?"
                rows = self._db.execute(find, (s, size)).fetchall()
            weights = component.query_weights({t: 1.0 for _, t in rows}, self.statistics[component.namespace])
            for number, term in rows:
                names[number], spaces[number] = term, s
                factors[number] = part.weight * weights.get(term, 0.0)
        return names, spaces, factors

    def numbers(self) -> np.ndarray:
        """The insertion numbers of all living documents, ascending."""
        living = [s.numbers if a is None else s.numbers[a] for s, a in zip(self.segments, self.alive, strict=True)]
        return np.concatenate([*living, np.zeros(0, np.int64)])

    def _select(self, columns: str, numbers: list[int], table: str) -> list[Any]:
        rows: list[Any] = []
        with self.lock, database.told_plainly(self.path):
            for a in range(0, len(numbers), _MOST_SQL_VALUES):
                part = numbers[a : a + _MOST_SQL_VALUES]
                marks = ",".join("?" * len(part))
                rows += self._db.execute(f"SELECT {columns} FROM {table} WHERE number IN ({marks})", part)
        if len(rows) < len(numbers):
            raise self._not_stored()
        return rows

    def _not_stored(self) -> CollectionError:
        return CollectionError(f"{self.path}: documents that are indexed are not stored; run 'vizsla verify'")

    def numbers_of(self, doc_id: str) -> list[int]:
        """The insertion numbers of the living document with an id: one, or one for each of its passages."""
        first, last = (doc_id, doc_id) if self.splitter is None else (doc_id + MARK, doc_id + chr(ord(MARK) + 1))
        with self.lock, database.told_plainly(self.path):
            rows = self._db.execute(
                "SELECT number, id FROM documents WHERE id BETWEEN ? AND ? AND generation <= ? "
                "AND NOT EXISTS (SELECT 1 FROM deletions WHERE number = documents.number AND generation <= ?) "
                "ORDER BY number",
                (first, last, self.generation, self.generation),
            ).fetchall()
        return [number for number, found in rows if self.splitter is None or document_of(found) == doc_id]
