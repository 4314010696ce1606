"""A query and a document as one text, as cross-encoders read them. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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


def one_label(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays of a cross-encoder with one score; of two labels, the second's minus the first's."""
    renamed = dict(arrays)
    weight, bias = (renamed.get(name) for name in HEAD[2:])
    if weight is not None and bias is not None and len(weight) == 2:
        renamed |= {HEAD[2]: weight[1:] - weight[:1], HEAD[3]: bias[1:] - bias[:1]}
    return renamed
