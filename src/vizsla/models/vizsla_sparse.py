"""vizsla-sparse: BM25 plus a SPLADE network that was trained inside this sum."""

from __future__ import annotations

from typing import Any

from vizsla.models.bm25 import BM25_OPTIONS
from vizsla.models.bm51 import with_bm25
from vizsla.models.learned_sparse import LEARNED_OPTIONS, NEEDS, LearnedSparse
from vizsla.models.model import Model
from vizsla.models.registry import MODELS
from vizsla.spec import Option, with_defaults

_NETWORK = "vizsla-splade"
_LIMITS = {"max_terms": 192, "max_query_terms": 64}  # costs 0.2 points on dev queries of FeedbackQA, 0 on NFCorpus


@MODELS.register(
    _NETWORK,
    help="A SPLADE network trained beside BM25; search with vizsla-sparse, its sum with BM25.",
    options=with_defaults(LEARNED_OPTIONS, namespace=_NETWORK, **_LIMITS),
    needs=NEEDS,
)
def vizsla_splade(**options: Any) -> LearnedSparse:
    """The network alone.

    >>> vizsla_splade().network.kind, vizsla_splade().max_terms
    ('splade', 192)
    """
    return LearnedSparse.shipped(_NETWORK, **{**_LIMITS, **options})


_SUM_OPTIONS = (Option("weight", "float", 1.0, "of the network; 1 is what it was trained with"), *BM25_OPTIONS)


@MODELS.register(
    "vizsla-sparse",
    help="BM25 plus a SPLADE network that was trained inside this sum: the best sparse model that comes with Vizsla.",
    options=_SUM_OPTIONS,
    needs=NEEDS,
)
def vizsla_sparse(weight: float = 1.0, **options: Any) -> Model:
    """BM25 and the network in one index.

    >>> [part.component.name for part in vizsla_sparse().parts]
    ['bm25', 'vizsla-splade']
    """
    return with_bm25("vizsla-sparse", vizsla_splade(), weight, options)


@MODELS.register(
    "vizsla-sparse-doc",
    help="As vizsla-sparse, but only documents are read by the network; queries are looked up in a table.",
    options=_SUM_OPTIONS,
    needs=NEEDS,
)
def vizsla_sparse_doc(weight: float = 1.0, **options: Any) -> Model:
    """The same index as that of `vizsla-sparse`, and no network at query time.

    >>> [part.component.inference_free for part in vizsla_sparse_doc().parts[1:]]
    [True]
    """
    return with_bm25("vizsla-sparse-doc", vizsla_splade(inference_free=True), weight, options)
