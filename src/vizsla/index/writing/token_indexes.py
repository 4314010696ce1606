"""Centroids, residual codes and lists of token vectors, which a commit builds for segments that are large enough.

All segments share a codec, so that segments are merged without loss. It is learnt once, from the documents of the first
such commit. A compaction of the whole index learns it again if the options have changed, or if the index has grown so
much that it should have four times as many centroids.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vizsla.engine import (
    Plaid,
    ResidualCodec,
    ResidualRows,
    Segment,
    TokenRows,
    VectorIndex,
    build_token_index,
    learn_codec,
)

GROWTH = 4


class TokenIndexes:
    """Builds the token indexes that the segments of a commit need."""

    def __init__(self, vector_index: VectorIndex, segments: Sequence[Segment]) -> None:
        """`segments`: those before the commit merges any."""
        self._plaid = vector_index if isinstance(vector_index, Plaid) else None
        self._present: dict[int, ResidualCodec] = {}
        for segment in sorted(segments, key=len):
            for space, rows in segment.tokens.items():
                codec = _codec_of(rows)
                if codec is not None:
                    self._present[space] = codec
        self._chosen: dict[int, ResidualCodec] = {}

    def built(self, space: int, rows: TokenRows, segments: Sequence[Segment], *, whole: bool) -> TokenRows | None:
        """Token vectors with what they lack; None if they lack nothing, or are too few.

        `segments`: all of the commit, to learn from. `whole`: the whole index is compacted.
        """
        if self._plaid is None or len(rows.vectors) == 0:
            return None
        has_codes = isinstance(rows.vectors, ResidualRows)
        if not has_codes and len(rows) < self._plaid.min_documents:
            return None
        codec = self._codec(space, segments, whole)
        present = _codec_of(rows)
        if rows.lists is not None and present is not None and present.same_as(codec):
            return None
        return build_token_index(rows, codec)

    def keeps(self, rows: TokenRows) -> bool:
        """Whether the index uses the centroid lists of token vectors."""
        return self._plaid is not None or isinstance(rows.vectors, ResidualRows)

    def _codec(self, space: int, segments: Sequence[Segment], whole: bool) -> ResidualCodec:
        if space not in self._chosen:
            assert self._plaid is not None
            rows = [segment.tokens[space] for segment in segments if self._is_large(segment.tokens[space])]
            tokens, present = sum(len(some.vectors) for some in rows), self._present.get(space)
            if present is not None and self._suits(present, tokens, whole):
                self._chosen[space] = present
            else:
                self._chosen[space] = learn_codec(rows, self._plaid.centroids(tokens), self._plaid.nbits)
        return self._chosen[space]

    def _is_large(self, rows: TokenRows) -> bool:
        assert self._plaid is not None
        return isinstance(rows.vectors, ResidualRows) or len(rows) >= self._plaid.min_documents

    def _suits(self, codec: ResidualCodec, tokens: int, whole: bool) -> bool:
        """Whether a codec is still suitable."""
        assert self._plaid is not None
        if len(codec.means) != (1 << self._plaid.nbits if self._plaid.nbits else 0):
            return False
        if not whole:
            return True
        wanted, count = self._plaid.centroids(tokens), len(codec.centroids)
        return count == wanted if self._plaid.nlist else wanted < GROWTH * count


def _codec_of(rows: TokenRows) -> ResidualCodec | None:
    """The codec of token vectors; one without codes where they have lists alone."""
    if isinstance(rows.vectors, ResidualRows):
        return rows.vectors.codec
    return None if rows.lists is None else ResidualCodec(rows.lists.centroids, np.zeros(0, np.float32))
