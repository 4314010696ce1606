"""BM51 and BM51e: BM25 plus a learned sparse model, in one index; and the sums exactly as the BM26 paper adds them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from vizsla.errors import VizslaError
from vizsla.models.auto_weighted import AutoWeightedSum
from vizsla.models.bm25 import BM25, BM25_OPTIONS, WORD_PIECES
from vizsla.models.impacts import Impacts
from vizsla.models.learned_sparse import NEEDS, NETWORK_OPTION, LearnedSparse, load_learned
from vizsla.models.model import Model, Part, Sum
from vizsla.models.registry import MODELS
from vizsla.numbers import number_text
from vizsla.spec import Option

DEFAULT_WEIGHT = 0.85
"""Of BM26 in BM51, if there are too few documents to fit it: the mean of the sets it was measured on."""
_OPTIONS = (
    Option("weight", "float | None", None, "of the learned model; fitted to the documents if it is not given"),
    NETWORK_OPTION,
    *BM25_OPTIONS,
)


@MODELS.register("bm51", help="BM51: BM25 plus BM26 at equal strength, in one index.", options=_OPTIONS, needs=NEEDS)
def bm51(weight: float | None = None, network: str = "", **options: Any) -> Model:
    learned = load_learned("bm26", network) if network else LearnedSparse.shipped("bm26")
    return with_bm25("bm51", learned, weight, options)


@MODELS.register("bm51e", help="BM51e: BM25 plus a BM26e of your own.", options=_OPTIONS, needs=NEEDS)
def bm51e(weight: float | None = None, network: str = "", **options: Any) -> Model:
    return with_bm25("bm51e", load_learned("bm51e", network), weight, options)


@MODELS.register(
    "bm51-paper",
    help="BM51 as the paper adds it: both parts in 8 bits, with weights of 1.",
    options=(NETWORK_OPTION, *BM25_OPTIONS),
    needs=NEEDS,
)
def bm51_paper(network: str = "", **options: Any) -> Model:
    learned = load_learned("bm51-paper", network) if network else LearnedSparse.shipped("bm26")
    return _in_whole_numbers("bm51-paper", learned, options)


@MODELS.register(
    "bm51e-paper",
    help="BM51e as the paper adds it: BM25 and a BM26e of your own, both in 8 bits, with weights of 1.",
    options=(NETWORK_OPTION, *BM25_OPTIONS),
    needs=NEEDS,
)
def bm51e_paper(network: str = "", **options: Any) -> Model:
    return _in_whole_numbers("bm51e-paper", load_learned("bm51e-paper", network), options)


@MODELS.register(
    "bm25-prime-paper",
    help="BM25' as the paper adds it: words and word pieces, both in 8 bits.",
    options=BM25_OPTIONS,
)
def bm25_prime_paper(**options: Any) -> Model:
    words = Impacts(BM25(**options), name="bm25")
    pieces = Impacts(BM25(**{**WORD_PIECES, **options}), namespace="pieces", name="bm25-wp")
    return Sum(words.parts + pieces.parts, "bm25-prime-paper")


def _in_whole_numbers(name: str, learned: LearnedSparse, options: dict[str, Any]) -> Model:
    """BM25 with frozen statistics and a learned model, the weights of both whole numbers of 8 bits."""
    whole = replace(_reading(learned, options), whole=True)
    return Sum(Impacts(BM25(**options), name="bm25").parts + whole.parts, name)


def _reading(learned: LearnedSparse, options: dict[str, Any]) -> LearnedSparse:
    """The learned model, reading the fields that BM25 reads."""
    return replace(learned, fields=options["fields"]) if "fields" in options else learned


def with_bm25(name: str, learned: LearnedSparse, weight: float | None, options: dict[str, Any]) -> Model:
    """BM25 with these options plus a learned model that reads the same fields.

    `weight`: of the learned model; None fits it to the documents.
    """
    if weight is not None and not 0 < weight < math.inf:
        raise VizslaError(f"the weight of {learned.name} in {name} must be a number above 0, not {number_text(weight)}")
    learned = _reading(learned, options)
    parts = Part(1.0, BM25(**options)), Part(DEFAULT_WEIGHT if weight is None else weight, learned)
    return AutoWeightedSum(parts, name) if weight is None else Sum(parts, name)
