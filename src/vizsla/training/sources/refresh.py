"""Hard negatives that the network itself finds, mined again during training (ANCE)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.neural.lazy_torch import no_grad, torch
from vizsla.npz import read_arrays, save_arrays
from vizsla.training.loop.distributed import Distributed
from vizsla.training.loop.products import scores_of, sparse_rows
from vizsla.training.sources.dev_set import Assemble, BestDocuments, Encode, found, numbered_folders, text_vectors
from vizsla.training.sources.pairs import MinedPairs
from vizsla.training.sources.token_corpus import TokenCorpus

NEGATIVES = "negatives"


@dataclass(frozen=True, eq=False)
class Collections:
    """Which queries and documents of pairs belong to the same data set; a query is searched in its own."""

    query_starts: np.ndarray
    document_starts: np.ndarray
    own: np.ndarray
    """[queries] the document that has the same id as the query and is never its negative; -1 for none."""

    def save(self, file: str | Path) -> None:
        """Write all arrays into one file."""
        save_arrays(file, query_starts=self.query_starts, document_starts=self.document_starts, own=self.own)

    @classmethod
    def open(cls, file: str | Path) -> Collections:
        """Saved arrays."""
        return cls(*read_arrays(file, "query_starts", "document_starts", "own"))

    def __iter__(self) -> Iterator[tuple[slice, slice]]:
        """The queries and the documents of each data set."""
        starts = zip(self.query_starts.tolist(), self.document_starts.tolist(), strict=True)
        first = next(starts)
        for last in starts:
            yield slice(first[0], last[0]), slice(first[1], last[1])
            first = last


def collections_of(several: Sequence[tuple[MinedPairs, np.ndarray]]) -> Collections:
    """The ranges of each data set's queries and documents, given its pairs and the documents with a query's id."""
    queries, documents = (
        np.cumsum([0, *(len(getattr(pairs, name)) for pairs, _ in several)]) for name in ("queries", "documents")
    )
    own = [np.where(named >= 0, named + first, -1) for (_, named), first in zip(several, documents[:-1], strict=True)]
    return Collections(queries, documents, np.concatenate(own))


@dataclass(frozen=True, eq=False)
class NegativesRefresh:
    """The pairs of a run whose hard negatives are mined again every `steps` steps with the current network.

    A query's new negatives are the `depth` documents that the network scores highest, without those that answer it.
    They are kept in the folder of the run, so that a resumed run has them.
    """

    pairs: MinedPairs
    collections: Collections
    steps: int
    depth: int
    folder: Path
    sparse: bool = False
    """Whether a query finds only documents with a score above 0, as in an inverted index."""

    def last(self, step: int) -> int:
        """The step at which the negatives of a step were mined; 0 for those that the run began with."""
        return step // self.steps * self.steps

    def mined(self, step: int, encode: Encode, assemble: Assemble, distributed: Distributed) -> MinedPairs:
        """The pairs with negatives that the current network finds; all processes use those of the main process."""
        negatives = mined_negatives(self, encode, assemble, distributed.device)
        if distributed.is_main:
            negatives.narrow().save(self._place(step))
        distributed.barrier()
        return self.opened(step)

    def opened(self, step: int) -> MinedPairs:
        """The pairs with the negatives that were mined before a step."""
        return replace(self.pairs, negatives=TokenCorpus.open(self._place(step)) if step else self.pairs.negatives)

    def drop_before(self, step: int) -> None:
        """Delete negatives that were mined before a step and that no checkpoint needs any more."""
        for place in numbered_folders(self.folder, NEGATIVES):
            if int(place.name.removeprefix(f"{NEGATIVES}-")) < step:
                shutil.rmtree(place)

    def _place(self, step: int) -> Path:
        return self.folder / f"{NEGATIVES}-{step}"


@no_grad
def mined_negatives(refresh: NegativesRefresh, encode: Encode, assemble: Assemble, device: torch.device) -> TokenCorpus:
    """For each query the documents of its data set that score highest, best first, without those that answer it."""
    return TokenCorpus.of(_mined(refresh, encode, assemble, device), np.uint32)


def _mined(refresh: NegativesRefresh, encode: Encode, assemble: Assemble, device: torch.device) -> Iterator[np.ndarray]:
    pairs = refresh.pairs
    for queries, documents in refresh.collections:
        depth = min(refresh.depth, documents.stop - documents.start)
        bests = [
            _Best(sparse_rows(part) if refresh.sparse else part, depth)
            for part in _vectors(pairs.queries, queries, 0, pairs.max_query_length, encode, assemble, device)
        ]
        excluded, answers = _excluded(pairs, refresh.collections, queries)
        first = documents.start
        for block in _vectors(pairs.documents, documents, 1, pairs.max_document_length, encode, assemble, device):
            here = (answers >= first) & (answers < first + len(block))
            begin = 0
            for best in bests:
                own = here & (excluded >= begin) & (excluded < begin + len(best.queries))
                best.add(block, first, excluded[own] - begin, answers[own] - first, sparse=refresh.sparse)
                begin += len(best.queries)
            first += len(block)
        yield from (row for best in bests for row in best.rows())


class _Best:
    """The documents with the highest scores for some queries, of those that were added so far."""

    def __init__(self, queries: Any, depth: int) -> None:
        self.queries, self._best = queries, BestDocuments(depth)

    def add(self, documents: Any, first: int, rows: np.ndarray, columns: np.ndarray, *, sparse: bool) -> None:
        """Score documents, which are numbered from `first`; pairs of these rows and columns are left out."""
        scores = self.queries @ documents.T if sparse else scores_of(self.queries, [documents])
        if sparse:
            scores = found(scores)
        scores[torch.from_numpy(rows).to(scores.device), torch.from_numpy(columns).to(scores.device)] = -torch.inf
        self._best.add(scores, first)

    def rows(self) -> list[np.ndarray]:
        """For each query the numbers of its documents, best first."""
        numbers, scores = (tensor.cpu().numpy() for tensor in (self._best.numbers, self._best.scores))
        return [row[kept] for row, kept in zip(numbers, scores > -np.inf, strict=True)]


def _vectors(
    texts: TokenCorpus, part: slice, side: int, max_length: int, encode: Encode, assemble: Assemble,
    device: torch.device,
) -> Iterator[Any]:  # fmt: skip
    """The vectors of some neighbouring texts, block by block."""
    some = TokenCorpus(texts.ids, texts.offsets[part.start : part.stop + 1])
    return (block.float() for block in text_vectors(some, side, max_length, encode, assemble, device))


def _excluded(pairs: MinedPairs, collections: Collections, queries: slice) -> tuple[np.ndarray, np.ndarray]:
    """Queries of a data set, counted from its first, and the documents that are not negatives of each."""
    offsets = pairs.positives.offsets[queries.start : queries.stop + 1]
    answered = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    own = collections.own[queries]
    named = np.flatnonzero(own >= 0)
    answers = pairs.positives.ids[offsets[0] : offsets[-1]].astype(np.int64)
    return np.concatenate([answered, named]), np.concatenate([answers, own[named]])
