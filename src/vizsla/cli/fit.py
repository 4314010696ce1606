"""vizsla fit: the weights of a sum, fitted to the documents of an index."""

from __future__ import annotations

from vizsla.cli import console, options


def fit(index: options.IndexFolder) -> None:
    """Fit the weights of a sum to the documents of an index.

    No queries and no judgements are needed. Nothing is indexed again. auto(bm25, minilm) is fitted to its first
    documents; do it again when there are many others. To choose weights by judged queries, see vizsla tune.
    """
    from vizsla.index import Index
    from vizsla.models import expression

    with Index.open(index) as opened:
        before = expression(opened.model)
        after = expression(opened.fit_weights())
    console.remark(f"before: {before}")
    console.remark(f"now:    {after}" if after != before else "the weights are as before")
