"""A closer look at an index: its newest commit, the size of its models, the vector indexes of others."""

from __future__ import annotations

from vizsla.index.index import Index
from vizsla.index.search.bound_model import SparsePart
from vizsla.index.storage import trust
from vizsla.models import Model


def newest_generation(index: Index) -> int:
    """The number of the last commit that the folder of the index holds now; `refresh` would make it visible.

    This takes microseconds as long as nothing is written. If the folder holds another index by now, it is the number
    of that one's last commit, so ask `Index.is_outdated` whether to refresh.
    """
    index._check_open()
    return index._searcher.snapshot.watch.newest().generation


def bytes_of(index: Index, model: Model) -> int:
    """How many bytes an index of this model alone would take, without documents."""
    with index._reading() as searcher:
        snapshot, total = searcher.snapshot, 0
        for part in searcher.bind(model).all_parts:
            if not isinstance(part, SparsePart):
                total += sum(segment.vector_bytes(part.space) + segment.numbers.nbytes for segment in snapshot.segments)
                continue
            terms = snapshot.terms.numbers_of(part.space)
            with snapshot.naming_damage():
                total += sum(segment.bytes_of(terms) for segment in snapshot.segments)
        return total


def trust_vector_indexes(index: Index) -> int:
    """Let faiss open the vector indexes that were built on another machine; gives how many there are.

    Do this only if you know who made the index: faiss does not check the files it reads.
    """
    with index._reading() as searcher:
        hashes = {ann.sha256 for segment in searcher.snapshot.segments for ann in segment.ann.values()}
    for sha256 in hashes:
        trust.remember(sha256)
    return len(hashes)
