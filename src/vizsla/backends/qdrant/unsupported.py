"""What a collection in Qdrant cannot do that an index in a folder can; each is said here and nowhere else."""

from __future__ import annotations

from vizsla.errors import UnsupportedError

_CANNOT = {
    "approximate": "search approximately; its searches are exact",
    "search_params": "take search parameters; its searches are exact",
    "syntax": "read a query language; give plain words",
    "sort": "sort by a field; it gives the best by score",
    "collapse": "collapse results by a field; it gives the best by score",
    "union": "search the union of the best of each part; add the parts up, or fuse them, as by rrf",
    "facets": "count the values of fields over all documents that match; count the best ones, as with over=100",
    "passages": "search for passages, since it has whole documents; an index in a folder can",
    "count": "count all documents that match a query; count those that pass a filter",
    "total": "count all results of a search; count the documents that pass a filter",
    "typos": "correct words; an index in a folder can",
    "suggest": "complete words; an index in a folder can",
    "compact": "be compacted from here; its servers compact it themselves",
}


def cannot(address: str, what: str) -> UnsupportedError:
    """The error for something that a collection in Qdrant cannot do.

    >>> print(cannot("qdrant://localhost:6333/dogs", "sort"))
    qdrant://localhost:6333/dogs: a collection in Qdrant cannot sort by a field; it gives the best by score
    """
    return UnsupportedError(f"{address}: a collection in Qdrant cannot {_CANNOT[what]}")
