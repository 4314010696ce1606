"""An index for other engines: its documents, vectors, posting lists and queries as data, a little at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from vizsla.datasets import document_of
from vizsla.engine import Segment, by_document
from vizsla.engine.blocks import RANGE_SIZE
from vizsla.errors import VizslaError
from vizsla.index.index import Index
from vizsla.index.reading.snapshot import Snapshot
from vizsla.index.search.bound_model import DensePart, MatchPart, SparsePart
from vizsla.index.search.searcher import Searcher

_DOCUMENTS = 1000  # whose vectors are given at once


class ExportFacts(NamedTuple):
    """The facts of an index that another engine needs before the documents."""

    model: str
    sparse: tuple[str, ...]
    """The namespaces of terms."""
    dense: dict[str, int]
    """The namespaces of dense vectors, and how many numbers a vector has."""
    has_passages: bool
    has_texts: bool


class ExportedDocument(NamedTuple):
    """A document or passage for another engine."""

    id: str
    """Of a passage: the document's id, `#` and the passage's number."""
    document: str
    """The id of the whole document."""
    terms: dict[str, dict[str, float]]
    """By namespace the full weights of terms."""
    vectors: dict[str, np.ndarray]
    """By namespace dense vectors; a document without a known token has none."""
    content: dict[str, Any]
    """Its fields, if they are asked for."""


class TermList(NamedTuple):
    """The posting list of a term over the live documents."""

    term: str
    places: np.ndarray
    """Ascending: how many live documents were inserted before each document."""
    values: np.ndarray
    """What is stored, or full weights."""


class EncodedQuery(NamedTuple):
    """A query for documents whose vectors are those of `ExportedDocument`."""

    terms: dict[str, dict[str, float]]
    """By namespace the weights of terms, idf not included; terms that no document has are left out."""
    vectors: dict[str, np.ndarray]
    """By namespace dense vectors, the weight of the part multiplied in."""


class VectorBlock(NamedTuple):
    """The dense and the token vectors of some neighbouring live documents."""

    numbers: list[int]
    vectors: dict[str, np.ndarray]
    """By namespace: the decoded vectors of the documents, concatenated."""
    sizes: dict[str, np.ndarray]
    """By namespace with token vectors: how many of them each document has."""


def facts_for_export(index: Index) -> ExportFacts:
    """The facts for an export; raises an error if the scores of the index are not inner products."""
    with index._reading() as searcher:
        _check_exportable(searcher)
        own, snapshot = searcher.own, searcher.snapshot
        sizes = {part.component.namespace: part.component.dimensions for part in own.dense}
        return ExportFacts(
            own.model.name,
            tuple(part.component.namespace for part in own.sparse),
            sizes,
            snapshot.splitter is not None,
            snapshot.documents.has_texts,
        )


# Documents


def document_vectors(index: Index) -> Iterator[tuple[str, dict[str, float]]]:
    """The id of each document and the full weights of its terms, idf included; in a sum prefixed by their namespaces.

    A document in passages has a vector for each of them, one after the other, all with its id.
    """
    with index._reading() as searcher:
        snapshot, own = searcher.snapshot, searcher.own
        _check_passages_alone(searcher)
        if own.has_vectors:
            name = next(part.component.name for part in own.parts if not isinstance(part, SparsePart))
            raise VizslaError(
                f"the vectors of {name} have no terms to list; dense and token vectors are exported as arrays"
            )
        table = _term_table(snapshot, own.sparse, prefixed=len(own.sparse) > 1)
        for found in _ranges(snapshot, own.sparse, table):
            weights = found.weights.tolist()
            for row in np.flatnonzero(found.living).tolist():
                a, z = found.pointers[row : row + 2].tolist()
                names = (table.labels[n] for n in found.terms[a:z].tolist())
                number = int(found.segment.numbers[found.first + row])
                stored = snapshot.documents.ids([number])[number]
                doc_id = stored if snapshot.splitter is None else document_of(stored)
                yield doc_id, dict(zip(names, weights[a:z], strict=True))


def exported_documents(index: Index, *, contents: bool = False) -> Iterator[ExportedDocument]:
    """All documents or passages with their vectors, in the order of insertion; `contents`: with their fields."""
    with index._reading() as searcher:
        snapshot = searcher.snapshot
        documents = snapshot.documents
        if contents and not documents.has_texts:
            raise VizslaError(f"{index.path}: this index keeps no texts to export")
        for some in _vectors(searcher):
            numbers = [number for number, _, _ in some]
            ids = documents.ids(numbers)
            fields = documents.by_number(numbers) if contents else {}
            for number, terms, vectors in some:
                stored = ids[number]
                whole = stored if snapshot.splitter is None else document_of(stored)
                content = dict(fields[number].content) if contents else {}
                yield ExportedDocument(stored, whole, terms, vectors, content)


def stored_ids(index: Index) -> Iterator[str]:
    """The ids of all documents or passages, in the order of insertion."""
    with index._reading() as searcher:
        numbers = searcher.snapshot.numbers()
        for first in range(0, len(numbers), 1000):
            some = numbers[first : first + 1000].tolist()
            ids = searcher.snapshot.documents.ids(some)
            yield from (ids[number] for number in some)


def vector_blocks(index: Index) -> Iterator[tuple[list[str], VectorBlock]]:
    """The dense and token vectors of all documents, some documents at a time, with the ids of these documents."""
    with index._reading() as searcher:
        snapshot = searcher.snapshot
        for block in _blocks(searcher):
            stored = snapshot.documents.ids(block.numbers)
            ids = [stored[number] for number in block.numbers]
            yield ids if snapshot.splitter is None else [document_of(one) for one in ids], block


def _blocks(searcher: Searcher) -> Iterator[VectorBlock]:
    snapshot = searcher.snapshot
    parts = [part for part in searcher.own.parts if not isinstance(part, SparsePart)]
    if any(isinstance(part, MatchPart) for part in parts):
        raise VizslaError(f"{searcher.own.model.name} has vectors in posting lists, which cannot be exported")
    if not parts:
        raise VizslaError(f"{searcher.own.model.name} has no dense or token vectors; export its terms as jsonl")
    for segment, alive in zip(snapshot.segments, snapshot.alive, strict=True):
        for first in range(0, len(segment), _DOCUMENTS):
            last = min(first + _DOCUMENTS, len(segment))
            kept = np.ones(last - first, np.bool_) if alive is None else alive[first:last]
            vectors, sizes = {}, {}
            with snapshot.naming_damage():
                for part in parts:
                    name = part.component.namespace
                    if isinstance(part, DensePart):
                        vectors[name] = segment.dense[part.space][first:last][kept]
                        continue
                    rows = segment.tokens[part.space]
                    bounds = rows.bounds(first, last)
                    own = np.diff(bounds)
                    vectors[name] = rows.vectors[int(bounds[0]) : int(bounds[-1])][np.repeat(kept, own)]
                    sizes[name] = own[kept]
            yield VectorBlock(segment.numbers[first:last][kept].tolist(), vectors, sizes)


def _check_passages_alone(searcher: Searcher) -> None:
    """Refuse a model that scores whole documents beside passages: no other engine adds these scores."""
    if searcher.own.documents is not None:
        raise VizslaError(f"{searcher.own.model.name} adds scores of whole documents, which cannot be exported")


def _check_exportable(searcher: Searcher) -> None:
    """Refuse a model whose scores are no inner products, so that other engines cannot compute them."""
    _check_passages_alone(searcher)
    for part in searcher.own.parts:
        if not isinstance(part, SparsePart | DensePart):
            raise VizslaError(f"{part.component.name} has token vectors, which cannot be exported to other engines")


class _TermTable(NamedTuple):
    """By term number: what a term is called, its namespace, and the weight of a query that has it once."""

    labels: list[str]
    spaces: np.ndarray
    factors: np.ndarray


class _Range(NamedTuple):
    """The weighted terms of the documents first .. last - 1 of a segment, in CSR form."""

    segment: Segment
    first: int
    last: int
    living: np.ndarray
    """Which of the rows live."""
    pointers: np.ndarray
    terms: np.ndarray
    weights: np.ndarray


def _vectors(searcher: Searcher) -> Iterator[list[tuple[int, dict[str, dict[str, float]], dict[str, np.ndarray]]]]:
    """Numbers, full weights of terms and dense vectors of all live documents, some documents at a time."""
    _check_exportable(searcher)
    snapshot, sparse, dense = searcher.snapshot, searcher.own.sparse, searcher.own.dense
    table = _term_table(snapshot, sparse, prefixed=False)
    for found in _ranges(snapshot, sparse, table):
        vectors = {part.component.namespace: _dense_rows(snapshot, found, part) for part in dense}
        living = np.flatnonzero(found.living).tolist()
        for some in (living[a : a + _DOCUMENTS] for a in range(0, len(living), _DOCUMENTS)):
            numbers = found.segment.numbers[found.first :][some].tolist()
            own = [{name: rows[row] for name, (rows, present) in vectors.items() if present[row]} for row in some]
            terms = [_terms_of(found, row, sparse, table) for row in some]
            yield list(zip(numbers, terms, own, strict=True))


def _terms_of(found: _Range, row: int, parts: Sequence[SparsePart], table: _TermTable) -> dict[str, dict[str, float]]:
    a, z = found.pointers[row : row + 2].tolist()
    numbers, weights = found.terms[a:z], found.weights[a:z]
    by_space = {}
    for part in parts:
        here = slice(None) if len(parts) == 1 else table.spaces[numbers] == part.space
        names = (table.labels[n] for n in numbers[here].tolist())
        by_space[part.component.namespace] = dict(zip(names, weights[here].tolist(), strict=True))
    return by_space


def _dense_rows(snapshot: Snapshot, found: _Range, part: DensePart) -> tuple[np.ndarray, np.ndarray]:
    """The vectors of the rows of a range in 32 bits, and whether each document has one."""
    with snapshot.naming_damage():
        rows = np.asarray(found.segment.dense[part.space][found.first : found.last], np.float32)
        return rows, found.segment.sizes[part.space, found.first : found.last] > 0


def _ranges(snapshot: Snapshot, parts: Sequence[SparsePart], table: _TermTable) -> Iterator[_Range]:
    weightings = [(part.space, part.component.weighting(part.statistics)) for part in parts]
    for segment, alive in zip(snapshot.segments, snapshot.alive, strict=True):
        ranges = by_document(segment)
        for first in range(0, len(segment), RANGE_SIZE):
            last = min(first + RANGE_SIZE, len(segment))
            with snapshot.naming_damage():
                pointers, terms, values = next(ranges)
                rows = np.repeat(np.arange(first, last), np.diff(pointers))
                spaces, weights = table.spaces[terms], np.zeros(len(terms))
                for space, weighting in weightings:
                    here = spaces == space
                    codes = segment.lengths[space, rows[here]]
                    weights[here] = weighting.weigh(values[here], codes) * table.factors[terms[here]]
            living = np.ones(last - first, np.bool_) if alive is None else alive[first:last]
            yield _Range(segment, first, last, living, pointers, terms, weights)


def _term_table(snapshot: Snapshot, parts: Sequence[SparsePart], *, prefixed: bool) -> _TermTable:
    size = snapshot.meta["next_term"]
    labels, spaces, factors = [""] * size, np.full(size, -1, np.int64), np.zeros(size)
    for part in parts:
        prefix = f"{part.component.namespace}:" if prefixed else ""
        rows = snapshot.terms.all_of(part.space, size)
        (weights,) = part.query_weights([{term: 1.0 for _, term in rows}])
        for number, term in rows:
            labels[number], spaces[number] = prefix + term, part.space
            factors[number] = weights.get(term, 0.0)
    return _TermTable(labels, spaces, factors)


# Posting lists


def term_lists(index: Index, *, weighted: bool = False) -> Iterator[TermList]:
    """The posting lists of all terms of a sparse model, in the order of their UTF-8 bytes.

    `weighted`: full weights, idf included, instead of what is stored.
    """
    with index._reading() as searcher:
        snapshot, part = searcher.snapshot, _only_sparse_part(searcher)
        weighting = part.component.weighting(part.statistics)
        firsts, living = _places(snapshot)
        terms = snapshot.terms.all_of(part.space, snapshot.meta["next_term"])
        terms.sort(key=lambda row: row[1].encode())
        (factors,) = part.query_weights([{term: 1.0 for _, term in terms}]) if weighted else ({},)
        numbers = np.array([number for number, _ in terms], np.int64)
        readers = [_ListReader(segment, numbers) for segment in snapshot.segments]
        for i, (_, term) in enumerate(terms):
            places, values = [], []
            with snapshot.naming_damage():
                for reader, first, moved in zip(readers, firsts, living, strict=True):
                    for documents, stored in reader.lists(i):
                        rows = documents.astype(np.int64) if moved is None else moved[documents]
                        if weighted:
                            codes = reader.segment.lengths[part.space, documents]
                            stored = weighting.weigh(stored, codes) * factors.get(term, 0.0)
                        places.append(first + rows if moved is None else first + rows[rows >= 0])
                        values.append(stored if moved is None else stored[rows >= 0])
            if any(map(len, places)):
                yield _merged(term, places, values)


def stores_whole_numbers(index: Index) -> bool:
    """Whether posting lists hold counts or whole weights, which another engine can take as they are.

    It cannot if the model multiplies the weights by a factor per term.
    """
    with index._reading() as searcher:
        part = _only_sparse_part(searcher)
        if any(segment.large.values.dtype.kind == "f" for segment in searcher.snapshot.segments):
            return False
        if part.component.weighting(part.statistics).norms is not None:
            return True
        return bool((part.component.term_factors(np.array([1, 2]), max(part.statistics.documents, 2)) == 1).all())


def document_lengths(index: Index) -> np.ndarray:
    """The length of each document or passage for a sparse model, in the order of insertion."""
    with index._reading() as searcher:
        snapshot, part = searcher.snapshot, _only_sparse_part(searcher)
        sizes = [segment.sizes[part.space] for segment in snapshot.segments]
        living = [s if alive is None else s[alive] for s, alive in zip(sizes, snapshot.alive, strict=True)]
        return np.concatenate([*living, np.zeros(0, np.int64)]).astype(np.int64)


def _only_sparse_part(searcher: Searcher) -> SparsePart:
    """The sparse part of a model that has no other; any other model is refused."""
    _check_passages_alone(searcher)
    if len(searcher.own.parts) > 1 or not searcher.own.sparse:
        raise VizslaError(
            f"posting lists can be exported of one sparse model, and this index has {searcher.own.model.name}"
        )
    return searcher.own.sparse[0]


def _merged(term: str, places: list[np.ndarray], values: list[np.ndarray]) -> TermList:
    if len(places) == 1:
        return TermList(term, places[0], values[0])
    all_places = np.concatenate(places)
    order = np.argsort(all_places, kind="stable")
    return TermList(term, all_places[order], np.concatenate(values)[order])


class _ListReader:
    """Reads the lists of many terms of a segment; all terms are looked up once, in a batch."""

    def __init__(self, segment: Segment, numbers: np.ndarray) -> None:
        self.segment = segment
        self._numbers = numbers
        self._kinds = [(lists, lists.frequencies(numbers) > 0) for lists in (segment.small, segment.large)]

    def lists(self, at: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Documents and values of the small and of the large list of a term, if it has them."""
        for lists, has_list in self._kinds:
            if has_list[at]:
                yield lists.list_of(int(self._numbers[at]), len(self.segment))


def _places(snapshot: Snapshot) -> tuple[list[int], list[np.ndarray | None]]:
    """Each segment's first place, and the places of its rows from there: -1 for deleted rows, None if all are live."""
    firsts, places, first = [], [], 0
    for segment, alive in zip(snapshot.segments, snapshot.alive, strict=True):
        firsts.append(first)
        places.append(None if alive is None else np.where(alive, np.cumsum(alive) - 1, -1))
        first += len(segment) if alive is None else int(alive.sum())
    return firsts, places


# Queries


def encoded_queries(index: Index, texts: Sequence[str]) -> list[EncodedQuery]:
    """Queries as weighted terms, without idf, and dense vectors: for the documents of `exported_documents`."""
    with index._reading() as searcher:
        _check_exportable(searcher)
        queries = [EncodedQuery({}, {}) for _ in texts]
        context = searcher.context(None)
        for part in searcher.own.sparse:
            encoded = part.component.query_terms(texts, context)
            known = part.query_weights(encoded)
            for query, terms, present in zip(queries, encoded, known, strict=True):
                query.terms[part.component.namespace] = {term: w for term, w in terms.items() if term in present}
        for dense in searcher.own.dense:
            for query, vector in zip(queries, dense.encode(texts), strict=True):
                if vector is not None:
                    query.vectors[dense.component.namespace] = vector
        return queries


def max_norms(index: Index) -> dict[str, float]:
    """The length of the longest vector of each dense namespace; every vector is read once."""
    with index._reading() as searcher, searcher.snapshot.naming_damage():
        return {
            part.component.namespace: max((s.max_norms[part.space] for s in searcher.snapshot.segments), default=0.0)
            for part in searcher.own.dense
        }
