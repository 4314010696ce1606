"""Builds what a search by centroids needs of token vectors: centroids, codes, lists of documents."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from vizsla.engine.centroids import learn_centroids, sample_places
from vizsla.engine.residual_rows import ResidualCodec, ResidualRows, narrow, number_dtype
from vizsla.engine.token_lists import TokenLists
from vizsla.engine.token_rows import TokenRows
from vizsla.engine.vector_rows import wide_rows

_BLOCK = 1 << 18  # vectors that get their centroids together


def learn_codec(rows: Sequence[TokenRows], centroids: int, bits: int) -> ResidualCodec:
    """Centroids and buckets for token vectors, learnt from a sample of them; without bits, centroids alone."""
    sizes = [len(some.vectors) for some in rows]
    ends, places = np.cumsum([0, *sizes]), sample_places(sum(sizes), centroids)
    own = [places[(places >= a) & (places < z)] - a for a, z in pairwise(ends.tolist())]
    sample = np.concatenate([_rows_at(some, at) for some, at in zip(rows, own, strict=True)])
    learnt = learn_centroids(sample, centroids)
    if not bits:
        return ResidualCodec(narrow(learnt), np.zeros(0, np.float32))
    return ResidualCodec.learn(learnt, sample[:: max(len(sample) // (1 << 15), 1)], bits)


def _rows_at(rows: TokenRows, places: np.ndarray) -> np.ndarray:
    """Some vectors in 32 bits."""
    chosen: np.ndarray = rows.vectors[places].astype(np.float32)
    return chosen


def build_token_index(rows: TokenRows, codec: ResidualCodec) -> TokenRows:
    """Token vectors with lists by centroid, and in the codes of a codec that has any; its own codes are kept."""
    vectors, starts = rows.vectors, rows.bounds(0, len(rows))
    if isinstance(vectors, ResidualRows) or len(codec.means):
        if not isinstance(vectors, ResidualRows) or not vectors.codec.same_as(codec):
            vectors = codec.encode_blocks(lambda a, z: _wide(rows, a, z), len(vectors))
        lists = TokenLists.build(vectors.codec.centroids, vectors.assigned, starts)
        return TokenRows(vectors, rows.starts, lists)
    assigned = np.empty(len(vectors), np.int64)
    for a in range(0, len(vectors), _BLOCK):
        z = min(a + _BLOCK, len(vectors))
        assigned[a:z] = codec.nearest(_wide(rows, a, z))
    numbers = assigned.astype(number_dtype(len(codec.centroids)))
    return TokenRows(vectors, rows.starts, TokenLists.build(codec.centroids, numbers, starts))


def _wide(rows: TokenRows, a: int, z: int) -> np.ndarray:
    """The vectors from a to z in 32 bits, scaled."""
    return rows.vectors[a:z] if not isinstance(rows.vectors, np.ndarray) else wide_rows(rows.vectors, a, z)
