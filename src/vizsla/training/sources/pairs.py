"""Batches of queries and documents: pairs with hard negatives, and pairs that a teacher scored."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from vizsla.errors import VizslaError
from vizsla.lazy import cached_property
from vizsla.neural.lazy_torch import torch
from vizsla.npz import read_arrays, save_arrays
from vizsla.training.sources.token_corpus import TokenCorpus, with_special_tokens

if TYPE_CHECKING:
    from torch import Tensor


class TrainingBatch(NamedTuple):
    """Texts to encode: queries first, then the document of each query, then perhaps more documents."""

    texts: list[tuple[Tensor, Tensor]]
    """Token ids and mask of each group of texts."""
    false_negatives: Tensor | None = None
    """[queries, documents] True where a document answers a query but is not the one the query is paired with."""
    extra: Any = None
    """What the loss needs besides encoded texts, such as BM25's document vectors."""


class BatchSource(Protocol):
    """A source of batches: the same seed and step always give the same batch."""

    def batch(self, size: int, seed: int, step: int, device: torch.device) -> TrainingBatch:
        """The batch of a step, with `size` queries."""


@functools.lru_cache(maxsize=8)  # the sources of a run, each in one epoch
def epoch_order(count: int, seed: int, epoch: int) -> np.ndarray:
    """The random order in which an epoch goes through `count` queries; the same seed and epoch give the same."""
    return np.random.default_rng((seed, epoch)).permutation(count)


_PARTS = ("queries", "documents", "positives", "negatives")


@dataclass(frozen=True, eq=False)
class MinedPairs:
    """Queries with documents that answer them (positives) and documents that only look relevant (hard negatives).

    Every epoch goes through the queries in another order. A query's positives take turns by epoch. Of its negatives
    `negatives_per_query` are drawn at random; with 0 the other documents of the batch are the only negatives. A
    document of the batch that answers another query of the batch is not a negative for that query.

    `positive_decay`: for ranked positives. One of them is drawn at random, and each is this many times as likely as
    the one ranked before it; 1 makes all equally likely. Lengths include special tokens.
    """

    queries: TokenCorpus
    documents: TokenCorpus
    positives: TokenCorpus
    """For each query, the numbers of the documents that answer it."""
    negatives: TokenCorpus
    negatives_per_query: int = 7
    max_query_length: int = 64
    max_document_length: int = 256
    positive_decay: float | None = None

    def __post_init__(self) -> None:
        if self.positive_decay is not None and not 0 < self.positive_decay <= 1:
            raise VizslaError(f"positive_decay must be above 0 and at most 1, not {self.positive_decay:g}")
        if self.negatives_per_query < 0:
            raise VizslaError(f"negatives_per_query must be 0 or more, not {self.negatives_per_query}")

    @classmethod
    def concatenate(cls, several: Sequence[MinedPairs]) -> MinedPairs:
        """Pairs of several data sets as pairs of one; a batch mixes queries of all of them."""
        before = np.cumsum([0, *(len(pairs.documents) for pairs in several)]).tolist()

        def joined(name: str, document_numbers: bool = False) -> TokenCorpus:
            corpora: list[TokenCorpus] = [getattr(pairs, name) for pairs in several]
            if document_numbers:
                corpora = [c.shifted(first) for c, first in zip(corpora, before, strict=False)]
            return TokenCorpus.concatenate(corpora)

        return replace(
            several[0],
            queries=joined("queries"),
            documents=joined("documents"),
            positives=joined("positives", document_numbers=True),
            negatives=joined("negatives", document_numbers=True),
        )

    def __len__(self) -> int:
        """How many queries an epoch has: those with positives and, if negatives are drawn, with negatives."""
        return len(self.usable)

    def batch(self, size: int, seed: int, step: int, device: torch.device) -> TrainingBatch:
        """`size` queries, one positive for each, and `size * negatives_per_query` negatives."""
        return self.batch_of(self.draw(size, seed, step), device)

    def batch_of(self, drawn: tuple[np.ndarray, np.ndarray, np.ndarray], device: torch.device) -> TrainingBatch:
        """The batch of some queries, their positives and their negatives, given by their numbers."""
        queries, positives, negatives = drawn
        texts = [with_special_tokens(self.queries, queries, device, max_length=self.max_query_length)]
        texts += [
            with_special_tokens(self.documents, documents, device, max_length=self.max_document_length)
            for documents in ((positives, negatives) if len(negatives) else (positives,))
        ]
        false_negatives = self._false_negatives(queries, np.concatenate([positives, negatives]))
        return TrainingBatch(texts, false_negatives.to(device))

    def draw(self, size: int, seed: int, step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The numbers of queries, of a positive for each, and of `negatives_per_query` negatives each, in order."""
        return self.numbers_at(*self.draw_places(size, seed, step))

    def numbers_at(
        self, queries: np.ndarray, positives: np.ndarray, negatives: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The numbers of queries, and of the documents at these positions of `positives.ids` and `negatives.ids`."""
        return queries, self.positives.ids[positives].astype(np.int64), self.negatives.ids[negatives].astype(np.int64)

    def draw_places(self, size: int, seed: int, step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The numbers of drawn queries, and the positions of their documents in `positives.ids` and `negatives.ids`."""
        self.check_size(size)
        usable = self.usable
        steps = len(usable) // size
        epoch, place = divmod(step, steps)
        chosen = usable[epoch_order(len(usable), seed, epoch)[place * size : (place + 1) * size]]
        rng = np.random.default_rng((seed, epoch, place))
        return chosen, self.draw_positives(chosen, epoch, rng), self._draw_negatives(chosen, rng).ravel()

    def check_size(self, size: int) -> None:
        """Refuse a batch of more queries than there are."""
        if size > len(self.usable):
            needed = "positives and negatives" if self.negatives_per_query else "positives"
            raise VizslaError(
                f"a batch of {size:,} needs as many queries with {needed}, and there are {len(self.usable):,}; use a "
                "smaller batch, as in --set training.batch_size=64"
            )

    def narrow(self) -> MinedPairs:
        """The same pairs, with all numbers in the smallest integer type that fits."""
        return replace(self, **{name: getattr(self, name).narrow() for name in _PARTS})

    def save(self, folder: str | Path) -> None:
        """Write texts and numbers into a folder."""
        for name in _PARTS:
            getattr(self, name).save(Path(folder) / name)

    @classmethod
    def open(cls, folder: str | Path, **options: Any) -> MinedPairs:
        """Saved pairs, mapped into memory; `options` say how they are drawn."""
        queries, documents, positives, negatives = (TokenCorpus.open(Path(folder) / name) for name in _PARTS)
        return cls(queries, documents, positives, negatives, **options)

    @cached_property
    def usable(self) -> np.ndarray:
        """The queries that can be drawn."""
        answered = np.diff(self.positives.offsets) > 0
        return np.flatnonzero(answered & (np.diff(self.negatives.offsets) >= min(self.negatives_per_query, 1)))

    def draw_positives(self, queries: np.ndarray, epoch: int, rng: np.random.Generator) -> np.ndarray:
        """The position of a drawn positive of each query in `positives.ids`."""
        first, counts = _slices(self.positives, queries)
        if self.positive_decay is None:
            rank = epoch % counts
        else:
            cumulative = np.cumsum(self.positive_decay ** np.arange(counts.max(initial=1)))
            rank = np.searchsorted(cumulative, rng.random(len(queries)) * cumulative[counts - 1], side="right")
        places: np.ndarray = first + np.minimum(rank, counts - 1)
        return places

    def _draw_negatives(self, queries: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """[queries, negatives_per_query] positions of random negatives; if a query has too few, some are repeated."""
        if not self.negatives_per_query:
            return np.zeros((len(queries), 0), np.int64)
        first, counts = _slices(self.negatives, queries)
        keys = rng.random((len(queries), counts.max(initial=1)))
        keys[np.arange(keys.shape[1]) >= counts[:, None]] = 2.0  # sorts after the negatives of the query
        order = np.argsort(keys, axis=1)
        turns = np.arange(self.negatives_per_query)[None, :] % counts[:, None]
        places: np.ndarray = first[:, None] + np.take_along_axis(order, turns, axis=1)
        return places

    def _false_negatives(self, queries: np.ndarray, documents: np.ndarray) -> torch.Tensor:
        """[queries, documents] True where a document answers a query but is not the positive drawn for it."""
        first, sizes = _slices(self.positives, queries)
        answers = self.positives.ids[np.repeat(first, sizes) + _within(sizes)]
        order = np.argsort(documents, kind="stable")
        begin, end = (np.searchsorted(documents[order], answers, side) for side in ("left", "right"))
        rows = np.repeat(np.repeat(np.arange(len(queries)), sizes), end - begin)
        answering = np.zeros((len(queries), len(documents)), bool)
        answering[rows, order[np.repeat(begin, end - begin) + _within(end - begin)]] = True
        answering[np.arange(len(queries)), np.arange(len(queries))] = False
        return torch.from_numpy(answering)


def _slices(numbers: TokenCorpus, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the numbers of each query begin, and how many it has."""
    return numbers.offsets[queries], numbers.offsets[queries + 1] - numbers.offsets[queries]


def _within(sizes: np.ndarray) -> np.ndarray:
    """The positions 0, 1, ... within groups of these sizes.

    >>> _within(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # type: ignore[no-any-return]


_SCORES = "scores.npz"
_BESIDE = "beside_positives", "beside_negatives"


class Margins(NamedTuple):
    """A teacher's margins: its score of a query's positive minus its scores of other documents."""

    pairs: Tensor
    """[queries, negatives_per_query] over each of the query's own negatives."""
    in_batch: Tensor | None = None
    """[queries, documents] over each document of the batch, by a second teacher."""
    beside: Tensor | None = None
    """[queries, negatives_per_query] the margins of the model that is searched in a sum with the trained one."""


@dataclass(frozen=True, eq=False)
class ScoredPairs:
    """Mined pairs, and the score that a teacher gives each query with each of its positives and negatives.

    The scores are in the order of `pairs.positives.ids` and `pairs.negatives.ids`. `extra` of a batch has the teacher's
    margins.
    """

    pairs: MinedPairs
    positive_scores: np.ndarray
    negative_scores: np.ndarray
    beside: tuple[np.ndarray, np.ndarray] | None = None
    """The scores of positives and negatives by the model that is searched in a sum with the trained one."""

    def __post_init__(self) -> None:
        if not self.pairs.negatives_per_query:
            raise VizslaError("a teacher compares a document with negatives; set negatives_per_query to 1 or more")
        given = len(self.positive_scores), len(self.negative_scores)
        needed = len(self.pairs.positives.ids), len(self.pairs.negatives.ids)
        if given != needed:
            raise VizslaError(f"the teacher's scores do not fit the pairs: {given} scores for {needed} documents")

    @classmethod
    def concatenate(cls, several: Sequence[ScoredPairs]) -> ScoredPairs:
        """Pairs of several data sets as pairs of one."""
        positive, negative = (
            np.concatenate([getattr(one, name) for one in several]) for name in ("positive_scores", "negative_scores")
        )
        held = [one.beside for one in several if one.beside is not None]
        beside = (np.concatenate([p for p, _ in held]), np.concatenate([n for _, n in held])) if held else None
        return cls(MinedPairs.concatenate([one.pairs for one in several]), positive, negative, beside)

    def __len__(self) -> int:
        """How many queries are drawn in an epoch."""
        return len(self.pairs)

    def batch(self, size: int, seed: int, step: int, device: torch.device) -> TrainingBatch:
        """`size` queries, one positive for each, `size * negatives_per_query` negatives, and the teacher's margins."""
        return self.batch_of(self.pairs.draw_places(size, seed, step), device)

    def batch_of(self, places: tuple[np.ndarray, np.ndarray, np.ndarray], device: torch.device) -> TrainingBatch:
        """The batch of some queries, and of positives and negatives given by their positions in the arrays."""
        queries, positives, negatives = places
        batch = self.pairs.batch_of(self.pairs.numbers_at(*places), device)
        sides = [(self.positive_scores, self.negative_scores), *([] if self.beside is None else [self.beside])]
        margins = [one[positives][:, None] - other[negatives].reshape(len(queries), -1) for one, other in sides]
        taught, *beside = (torch.from_numpy(one.astype(np.float32)).to(device) for one in margins)
        return batch._replace(extra=Margins(taught, beside=beside[0] if beside else None))

    def narrow(self) -> ScoredPairs:
        """The same pairs, with all numbers in the smallest integer type that fits."""
        return replace(self, pairs=self.pairs.narrow())

    def save(self, folder: str | Path) -> None:
        """Write texts, numbers and scores into a folder."""
        self.pairs.save(folder)
        beside = {} if self.beside is None else dict(zip(_BESIDE, self.beside, strict=True))
        scores = {"positives": self.positive_scores, "negatives": self.negative_scores, **beside}
        save_arrays(Path(folder) / _SCORES, **scores)

    @classmethod
    def open(cls, folder: str | Path, *, beside: bool = False, **options: Any) -> ScoredPairs:
        """Saved pairs with scores, with `beside` also those of the other model of a sum; `options`: how to draw."""
        names = "positives", "negatives", *(_BESIDE if beside else ())
        positive, negative, *others = read_arrays(Path(folder) / _SCORES, *names)
        return cls(MinedPairs.open(folder, **options), positive, negative, (others[0], others[1]) if beside else None)


def open_pairs(folder: str | Path, *, beside: bool = False, **options: Any) -> MinedPairs | ScoredPairs:
    """Saved pairs, with the scores of a teacher if there are some; options as for `ScoredPairs.open`."""
    if (Path(folder) / _SCORES).is_file():
        return ScoredPairs.open(folder, beside=beside, **options)
    return MinedPairs.open(folder, **options)
