"""Queries with positives and hard negatives that a teacher has scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vizsla.errors import VizslaError
from vizsla.training.arrays.batch import TrainingBatch
from vizsla.training.arrays.files import read_arrays, save_arrays
from vizsla.training.arrays.mined_pairs import MinedPairs

_SCORES = "scores.npz"
_BESIDE = "beside_positives", "beside_negatives"


class Margins(NamedTuple):
    """By how much a teacher scores a query's positive higher than other documents."""

    pairs: Tensor
    """[queries, negatives_per_query] than each of its own negatives."""
    in_batch: Tensor | None = None
    """[queries, documents] than each document of the batch, as a second teacher scores them."""
    beside: Tensor | None = None
    """[queries, negatives_per_query] what the model that is searched in a sum with the trained one gives already."""


@dataclass(frozen=True, eq=False)
class ScoredPairs:
    """Mined pairs, and the score that a teacher gives each query with each of its positives and negatives.

    The scores lie in the order of `pairs.positives.ids` and `pairs.negatives.ids`. `extra` of a batch are the teacher's
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
        """The batch of some queries, and of positives and negatives given by their places in the arrays of numbers."""
        queries, positives, negatives = places
        batch = self.pairs.batch_of(self.pairs.numbers_at(*places), device)
        sides = [(self.positive_scores, self.negative_scores), *([] if self.beside is None else [self.beside])]
        margins = [one[positives][:, None] - other[negatives].reshape(len(queries), -1) for one, other in sides]
        taught, *beside = (torch.from_numpy(one.astype(np.float32)).to(device) for one in margins)
        return batch._replace(extra=Margins(taught, beside=beside[0] if beside else None))

    def narrow(self) -> ScoredPairs:
        """The same pairs, with all numbers in as few bytes as they need."""
        return replace(self, pairs=self.pairs.narrow())

    def save(self, folder: str | Path) -> None:
        """Write texts, numbers and scores into a folder."""
        self.pairs.save(folder)
        beside = {} if self.beside is None else dict(zip(_BESIDE, self.beside, strict=True))
        scores = {"positives": self.positive_scores, "negatives": self.negative_scores, **beside}
        save_arrays(Path(folder) / _SCORES, **scores)

    @classmethod
    def open(cls, folder: str | Path, *, beside: bool = False, **options: Any) -> ScoredPairs:
        """Saved pairs with scores, `beside` with those of a model beside; `options` say how they are drawn."""
        names = "positives", "negatives", *(_BESIDE if beside else ())
        positive, negative, *others = read_arrays(Path(folder) / _SCORES, *names)
        return cls(MinedPairs.open(folder, **options), positive, negative, (others[0], others[1]) if beside else None)


def open_pairs(folder: str | Path, **options: Any) -> MinedPairs | ScoredPairs:
    """Saved pairs, with the scores of a teacher where there are some; `options` say how they are drawn."""
    kind: type[MinedPairs | ScoredPairs] = ScoredPairs if (Path(folder) / _SCORES).is_file() else MinedPairs
    return kind.open(folder, **options)
