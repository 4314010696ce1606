"""A query and a document as one text, as cross-encoders read them. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

START, END = 101, 102
"""[CLS] and [SEP] of BERT's uncased vocabulary."""
HEAD = ("pooler.dense.weight", "pooler.dense.bias", "classifier.weight", "classifier.bias")
"""What a cross-encoder has beside its encoder, under transformers' names."""
RERANKER = "reranker.json"
"""The file that says how much of query and document a cross-encoder reads."""
LEAST = 4  # tokens: both special ones, the one between, and one of a text


def joint_ids(
    query: Sequence[int], document: Sequence[int], query_length: int, length: int, start: int = START, end: int = END
) -> list[int]:
    """Query and document between special tokens, cut to what is read of them.

    `query_length`: tokens of the query, with the special ones around it. `length`: tokens of the whole; the rest of the
    document is cut off. The query loses what looks like a special token, since the first one behind it marks
    where the document begins.

    >>> joint_ids([7, 102, 8, 9], [5, 6, 5, 6], query_length=5, length=8)
    [101, 7, 8, 9, 102, 5, 6, 102]
    """
    query_ids = [int(i) for i in query if i != end][: max(min(query_length, length - 1) - 2, 0)]
    return [start, *query_ids, end, *map(int, document[: length - 3 - len(query_ids)]), end]


Texts = tuple[np.ndarray, np.ndarray]
"""Token ids of texts that lie behind one another, and where each text begins, with the end of the last."""


def joint_pairs(
    queries: Texts,
    documents: Texts,
    query_numbers: np.ndarray,
    document_numbers: np.ndarray,
    query_length: int,
    length: int,
    start: int = START,
    end: int = END,
) -> Texts:
    """Many pairs, given by the numbers of their queries and documents, each as `joint_ids` has it.

    >>> texts = np.array([7, 102, 8, 9, 5, 6, 5, 6]), np.array([0, 4, 8])
    >>> ids, starts = joint_pairs(texts, texts, np.array([0, 1]), np.array([1, 1]), query_length=5, length=8)
    >>> ids.tolist(), starts.tolist()
    ([101, 7, 8, 9, 102, 5, 6, 102, 101, 5, 6, 5, 102, 5, 6, 102], [0, 8, 16])
    """
    used, places = np.unique(query_numbers, return_inverse=True)
    most = max(min(query_length, length - 1) - 2, 0)
    given = [queries[0][queries[1][q] : queries[1][q + 1]] for q in used.tolist()]
    rows = [row[row != end][:most].astype(np.int64) for row in given]
    row_starts = np.cumsum([0, *map(len, rows)])
    query_sizes, query_starts = np.diff(row_starts)[places], row_starts[:-1][places]
    document_starts = documents[1][document_numbers]
    sizes = np.minimum(documents[1][document_numbers + 1] - document_starts, length - 3 - query_sizes)
    starts = np.concatenate([[0], np.cumsum(query_sizes + sizes + 3)])
    ids = np.full(starts[-1], end, np.int64)
    ids[starts[:-1]] = start
    _copy(ids, starts[:-1] + 1, np.concatenate([np.zeros(0, np.int64), *rows]), query_starts, query_sizes)
    _copy(ids, starts[:-1] + 2 + query_sizes, documents[0], document_starts, sizes)
    return ids, starts


def _copy(target: np.ndarray, to: np.ndarray, source: np.ndarray, begins: np.ndarray, sizes: np.ndarray) -> None:
    """Copy stretches of these sizes, which begin in the source at `begins` and in the target at `to`."""
    inside = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    target[np.repeat(to, sizes) + inside] = source[np.repeat(begins, sizes) + inside]


def one_label(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays of a cross-encoder with one score; of two labels, the second's minus the first's."""
    renamed = dict(arrays)
    weight, bias = (renamed.get(name) for name in HEAD[2:])
    if weight is not None and bias is not None and len(weight) == 2:
        renamed |= {HEAD[2]: weight[1:] - weight[:1], HEAD[3]: bias[1:] - bias[:1]}
    return renamed
