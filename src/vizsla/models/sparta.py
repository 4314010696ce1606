"""SPARTA: a network gives weights to thousands of terms of a document, and queries need no network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from vizsla.errors import VizslaError
from vizsla.models.components import SearchContext
from vizsla.models.learned_sparse import NETWORK_OPTION, LearnedSparse
from vizsla.models.model import MODELS, Model
from vizsla.neural.chunks import SPECIAL_TOKENS
from vizsla.spec import options_of

TERMS, LENGTH = 2000, 500
"""How many terms of a document are kept, and how many tokens are read: those of BEIR's example."""


@dataclass(frozen=True)
class Sparta(LearnedSparse):
    """Documents have weights for terms of the whole vocabulary; a query is its word pieces, each of which counts 1.

    `terms`: how many terms of a document are kept, those with the highest weights; 0 for all.
    """

    terms: int = TERMS
    namespace: str = "sparta"
    name: str = "sparta"

    kind: ClassVar[str] = "sparta"
    expression_options: ClassVar[tuple[str, ...]] = ("terms", "length", "fields", "namespace")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network.kind != "sparta":
            raise VizslaError(f"sparta needs a network with the head sparta, and this one has {self.network.kind}")
        if self.terms < 0:
            raise VizslaError(f"terms must be 0 or more, not {self.terms}")

    @property
    def index_signature(self) -> tuple[Any, ...]:
        return *super().index_signature, self.terms

    def query_terms(self, texts: Sequence[str], context: SearchContext | None = None) -> list[dict[str, float]]:  # noqa: ARG002
        names = self.pieces.vocabulary
        return [{names[i]: 1.0 for i in ids if i not in SPECIAL_TOKENS} for ids in self.pieces.ids(texts)]

    def rows(self, ids: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pointers, pieces and weights of documents, the highest weights of each."""
        pointers, pieces, weights = super().rows(ids, starts)
        if not self.terms:
            return pointers, pieces, weights
        kept = [_highest(weights[a:z], self.terms) + a for a, z in pairwise(pointers.tolist())]
        places = np.concatenate([np.zeros(0, np.int64), *kept])
        return np.cumsum([0, *map(len, kept)]), pieces[places], weights[places]


def _highest(weights: np.ndarray, count: int) -> np.ndarray:
    """The places of the highest weights, in order; of equal weights the first are taken.

    >>> _highest(np.array([0.5, 2.0, 0.5, 1.0]), 3).tolist()
    [0, 1, 3]
    """
    return np.sort(np.argsort(-weights, kind="stable")[:count])


@MODELS.register(
    "sparta",
    help="SPARTA: a network gives documents terms, queries need none. You train it.",
    options=(
        NETWORK_OPTION,
        *options_of(
            Sparta,
            terms="how many terms of a document are kept; 0 for all",
            length="how many tokens of a document are read; 0 for as many as the network can",
            fields="the fields it reads, separated by /",
            namespace="keeps its terms apart from those of other parts of a sum",
        ),
    ),
)
def sparta(network: str = "", **options: Any) -> Sparta:
    """A SPARTA from the folder it was saved to."""
    if not network:
        raise VizslaError(
            "no SPARTA comes with Vizsla; train one, as in: vizsla train sparta --dataset DIR -o DIR, and name it: "
            '"sparta(network=DIR)"'
        )
    model = Model.load(network)
    if not isinstance(model, Sparta):
        raise VizslaError(f"{network}: sparta needs a SPARTA, and this model is something else")
    return replace(model, **options)
