"""vizsla trust: let faiss open the vector indexes that another machine has built."""

from __future__ import annotations

from vizsla.cli import console, options


def trust(index: options.IndexFolder) -> None:
    """Allow faiss to open an index that another machine has built.

    faiss does not check what it reads. Trust an index only if you know who has built it.
    """
    from vizsla.index import Index, trust_vector_indexes

    with Index.open(index) as opened:
        count = trust_vector_indexes(opened)
    if count:
        console.remark(f"{console.count(count, 'structure')} for approximate search may be opened from now on")
    else:
        console.remark("this index has no structures for approximate search; there is nothing to trust")
