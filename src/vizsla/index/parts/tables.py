"""Analysed documents as tables: a row for each document or passage, and columns for each namespace of the model.

| column | what |
|---|---|
| `document` | the number of the document in its source, from 0 |
| `id`, `metadata`, `fields` | as an index stores them, the latter two as JSON |
| `NAMESPACE.length` | how long the document is there |
| `NAMESPACE.terms`, `.values` | a sparse namespace: the texts of terms, and their counts or weights |
| `NAMESPACE.vector` | a dense one, or the vector for a whole text |
| `NAMESPACE.vectors` | a vector for each token |
| `NAMESPACE.tokens` | the numbers of tokens that are compared where they are equal |
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np

from vizsla.datasets.passages import document_of, passage_of
from vizsla.engine import token_type
from vizsla.errors import VizslaError
from vizsla.index.writing.analysis import AnalysedBatch
from vizsla.index.writing.encoders import (
    DenseBatch,
    MatchBatch,
    NamespaceBatch,
    NamespaceEncoder,
    NgramBatch,
    SparseBatch,
    TokenBatch,
)
from vizsla.models import (
    Component,
    DenseComponent,
    MatchDocuments,
    NgramComponent,
    SparseComponent,
    TokenComponent,
    TokenMatchComponent,
)


def pyarrow() -> Any:
    """The optional package pyarrow, with its modules for Parquet, streams and computing."""
    try:
        import pyarrow as package
        import pyarrow.compute
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise VizslaError(
            "parts are Parquet files, which need pyarrow; get it with: pip install 'vizsla[parquet]'"
        ) from None
    return package


def table_of(batch: AnalysedBatch, namespaces: tuple[str, ...], first: int, *, passages: bool) -> Any:
    """A batch as a table; `first` is the number of its first document in the source.

    The batch must be the first of its analyst. Terms are in the order of their first occurrence in the batch, so that
    a reader of the rows sees new terms in the same order.
    """
    pa = pyarrow()
    ids = [row[0] for row in batch.stored]
    begins = [passage_of(i) == 0 for i in ids] if passages else np.ones(len(ids), np.int64)
    columns: dict[str, Any] = {
        "document": pa.array(np.cumsum(begins) + (first - 1), pa.int64()),
        "id": pa.array(ids, pa.string()),
        "metadata": pa.array([row[1] for row in batch.stored], pa.string()),
        "fields": pa.array([row[2] for row in batch.stored], pa.string()),
    }
    for namespace, rows in zip(namespaces, batch.namespaces, strict=True):
        columns[f"{namespace}.length"] = pa.array(rows.lengths.astype(np.uint32, copy=False))
        for name, column in _columns(rows).items():
            columns[f"{namespace}.{name}"] = column
    return pa.table(columns)


def _columns(rows: NamespaceBatch) -> dict[str, Any]:
    if isinstance(rows, SparseBatch):
        return _sparse_columns(rows)
    if isinstance(rows, DenseBatch):
        return {"vector": _matrix(rows.vectors)}
    if isinstance(rows, TokenBatch):
        return {"vectors": _lists(rows.starts, _matrix(rows.vectors))}
    if isinstance(rows, NgramBatch):
        return {"tokens": _lists(rows.starts, pyarrow().array(rows.tokens.astype(np.int64)))}
    tokens = pyarrow().array(rows.documents.terms.astype(np.int64, copy=False))
    columns = {
        "tokens": _lists(rows.documents.starts, tokens),
        "vectors": _lists(rows.documents.starts, _matrix(rows.documents.vectors)),
    }
    return {**columns, "vector": _matrix(rows.documents.texts)} if rows.documents.texts.shape[1] else columns


def _sparse_columns(rows: SparseBatch) -> dict[str, Any]:
    pa = pyarrow()
    owners = np.repeat(np.arange(len(rows.counts)), rows.counts)
    order = np.lexsort((rows.indices, owners))
    used, places = np.unique(rows.indices[order], return_inverse=True)
    terms = pa.array([rows.new_terms[i] for i in used.tolist()], pa.string())
    values = rows.values[order]
    starts = np.append(0, np.cumsum(rows.counts, dtype=np.int64))
    return {
        "terms": _lists(starts, terms.take(pa.array(places.ravel()))),
        "values": _lists(starts, pa.array(values if values.dtype.kind == "u" else values.astype(np.float64))),
    }


def _matrix(rows: np.ndarray) -> Any:
    pa = pyarrow()
    flat = np.ascontiguousarray(rows, np.float32).ravel()
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), rows.shape[1])


def _lists(starts: np.ndarray, elements: Any) -> Any:
    pa = pyarrow()
    return pa.LargeListArray.from_arrays(pa.array(starts.astype(np.int64, copy=False)), elements)


def common_schema(schemas: list[Any]) -> Any:
    """The schema that tables of one part are written in: weights are floats if they are in one of the tables."""
    pa = pyarrow()
    common = schemas[0]
    for schema in schemas[1:]:
        for i, field in enumerate(schema):
            if field.type != common.field(i).type:
                common = common.set(i, pa.field(field.name, pa.large_list(pa.float64())))
    return common


class BatchReader:
    """Reads batches from tables; it gives terms numbers in order of first sight, as an analyst does.

    It remembers terms up to `max_terms`, then forgets them all and starts again.
    """

    def __init__(self, components: tuple[Component, ...], max_terms: int) -> None:
        self._components = components
        self._max_terms = max_terms
        self._begin()

    def _begin(self) -> None:
        self._numbers: dict[str, dict[str, int]] = {c.namespace: {} for c in self._components}
        self._fresh = True

    def read(self, table: Any, *, passages: bool, fields: frozenset[str]) -> AnalysedBatch:
        """The batch in a table; its documents have no origins. `fields`: see `AnalysedBatch`."""
        if sum(map(len, self._numbers.values())) > self._max_terms:
            self._begin()
        fresh, self._fresh = self._fresh, False
        documents = table["document"].to_numpy()
        stored = list(zip(*(table[n].to_pylist() for n in ("id", "metadata", "fields")), strict=True))
        begins = np.flatnonzero(np.diff(documents, prepend=-1)).tolist()
        ids = [document_of(stored[i][0]) if passages else stored[i][0] for i in begins]
        rows = [self._rows(table, component, fresh) for component in self._components]
        return AnalysedBatch(0, fresh, ids, [None] * len(ids), stored, rows, fields)

    def _rows(self, table: Any, component: Component, fresh: bool) -> NamespaceBatch:
        def column(name: str) -> Any:
            return table[f"{component.namespace}.{name}"].combine_chunks()

        lengths = column("length").to_numpy(zero_copy_only=False)
        if isinstance(component, SparseComponent):
            return self._sparse(column("terms"), column("values"), lengths, component, fresh)
        if isinstance(component, DenseComponent):
            return DenseBatch(_rows_of(column("vector"), component.dimensions), lengths)
        if isinstance(component, NgramComponent):
            lists = column("tokens")
            tokens = lists.flatten().to_numpy(zero_copy_only=False).astype(token_type(component.token_numbers))
            return NgramBatch(tokens, _starts(lists), lengths)
        assert isinstance(component, TokenComponent | TokenMatchComponent)
        vectors = column("vectors")
        starts = _starts(vectors)
        matrix = _rows_of(vectors.flatten(), component.dimensions)
        if isinstance(component, TokenComponent):
            return TokenBatch(matrix, starts, lengths)
        tokens = column("tokens").flatten().to_numpy(zero_copy_only=False)
        width = component.cls_dimensions
        texts = _rows_of(column("vector"), width) if width else np.zeros((len(lengths), 0), np.float32)
        return MatchBatch(MatchDocuments(matrix, tokens, starts, texts, lengths.astype(np.int64)), lengths)

    def _sparse(
        self, terms: Any, values: Any, lengths: np.ndarray, component: SparseComponent, fresh: bool
    ) -> SparseBatch:
        numbers = self._numbers[component.namespace]
        before = len(numbers)
        if fresh:  # a model may have a vocabulary before it meets a document
            known = NamespaceEncoder.of(component).encode([])
            assert isinstance(known, SparseBatch)
            numbers.update((term, i) for i, term in enumerate(known.new_terms))
        encoded = terms.flatten().dictionary_encode()
        own = np.array([numbers.setdefault(t, len(numbers)) for t in encoded.dictionary.to_pylist()], np.uint32)
        new = list(islice(reversed(numbers), len(numbers) - before))[::-1]
        weights = values.flatten().to_numpy(zero_copy_only=False)
        if weights.dtype.kind == "f":
            weights = weights.astype(np.uint32 if (weights == np.floor(weights)).all() else np.float32)
        counts = np.diff(_starts(terms)).astype(np.uint32)
        return SparseBatch(counts, own[encoded.indices.to_numpy(zero_copy_only=False)], weights, lengths, new)


def _starts(lists: Any) -> np.ndarray:
    offsets = np.asarray(lists.offsets.to_numpy(zero_copy_only=False), np.int64)
    starts: np.ndarray = offsets - offsets[0]
    return starts


def _rows_of(lists: Any, width: int) -> np.ndarray:
    flat: np.ndarray = lists.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(-1, width)
