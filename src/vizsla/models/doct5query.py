"""docT5query by name: BM25 over documents and the queries that were generated for them."""

from __future__ import annotations

import math
from typing import Any

from vizsla.errors import VizslaError
from vizsla.models.bm25 import BM25, BM25_OPTIONS
from vizsla.models.fields import QUERIES, check_fields
from vizsla.models.model import MODELS, Model, Part, Sum
from vizsla.numbers import number_text
from vizsla.spec import Option

WEIGHT = 0.6  # chosen on dev queries of two sets and for two generators; BEIR has 1

_OPTIONS = tuple(
    option._replace(help="the fields of the document itself, separated by /") if option.name == "fields" else option
    for option in BM25_OPTIONS
)
_FIELD_OPTIONS = (Option("weight", "float", WEIGHT, "of the BM25 over the generated queries"), *_OPTIONS)


@MODELS.register(
    "doct5query", help="docT5query: BM25 over documents with their generated queries appended.", options=_OPTIONS
)
def doct5query(fields: tuple[str, ...] = BM25.fields, **options: Any) -> BM25:
    check_fields(fields)
    return BM25(**{"fields": (*(f for f in fields if f != QUERIES), QUERIES), "name": "doct5query", **options})


@MODELS.register(
    "doct5query-field",
    help="BM25 over documents plus BM25 over their generated queries, each with its own statistics.",
    options=_FIELD_OPTIONS,
)
def doct5query_by_field(weight: float = WEIGHT, **options: Any) -> Model:
    if not 0 < weight < math.inf:
        raise VizslaError(f"the weight of the generated queries must be a number above 0, not {number_text(weight)}")
    documents = BM25(**options)
    if QUERIES in documents.fields:
        raise VizslaError(f"the field {QUERIES!r} has a BM25 of its own in doct5query-field; leave it out of fields")
    queries = BM25(**{**options, "fields": (QUERIES,), "namespace": QUERIES, "name": QUERIES})
    return Sum((Part(1.0, documents), Part(weight, queries)), "doct5query-field")
