"""Queries for Elasticsearch and OpenSearch, over documents that `write_bulk` has written.

A sparse model becomes a query over features. A dense model, or a sum with one, becomes a script over all documents that
computes every inner product and adds it to the score of the terms. Engines refuse negative scores, so the script adds
`shift`, a bound that makes every score positive.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.backends.bulk import EngineFields, feature
from vizsla.errors import VizslaError
from vizsla.index import Index, encoded_queries, facts_for_export
from vizsla.index.exporting import EncodedQuery, max_norms

MAX_WEIGHT = 64.0
"""The highest weight of a feature in a query: Lucene's limit."""
_MARGIN = 1.0001  # products are rounded
_QUERIES = 256  # that are encoded at once


def search_bodies(index: Index, engine: str, queries: Mapping[str, str], k: int = 10) -> Iterator[tuple[str, Any]]:
    """For each query its id and the body of a search request for the top k."""
    if k < 1:
        raise VizslaError(f"the number of documents to retrieve must be 1 or more, not {k}")
    fields, norms = EngineFields.of(engine, facts_for_export(index)), max_norms(index)
    ids, texts = list(queries), list(queries.values())
    for first in range(0, len(ids), _QUERIES):
        encoded = encoded_queries(index, texts[first : first + _QUERIES])
        for query_id, query in zip(ids[first : first + _QUERIES], encoded, strict=True):
            yield query_id, search_body(fields, query, k, norms)


def write_bodies(index: Index, engine: str, queries: Mapping[str, str], output: Path, k: int = 10) -> int:
    """Write JSON lines {"id", "search"} and return the number of queries."""
    count = 0
    with output.open("w", encoding="utf-8") as file:
        for query_id, body in search_bodies(index, engine, queries, k):
            file.write(json.dumps({"id": query_id, "search": body}, ensure_ascii=False) + "\n")
            count += 1
    return count


def search_body(fields: EngineFields, query: EncodedQuery, k: int, norms: Mapping[str, float]) -> dict[str, Any]:
    """The body of a search request for the top k; the score of a document in passages is that of its best passage.

    `norms`: the length of the longest vector of each dense namespace.
    """
    clauses = [_features_query(fields, field, query.terms[name]) for name, field in fields.terms.items()]
    found = [clause for clause in clauses if clause is not None]
    body: dict[str, Any] = {"size": k, "_source": ["document", "content"]}
    if query.vectors:
        body["query"] = _scripted(fields, found, query.vectors, norms)
    elif len(found) > 1:
        body["query"] = {"bool": {"should": found}}
    else:
        body["query"] = found[0] if found else {"match_none": {}}
    return body | ({"collapse": {"field": "document"}} if fields.facts.has_passages else {})


def _features_query(fields: EngineFields, field: str, terms: Mapping[str, float]) -> dict[str, Any] | None:
    """The weighted features of a query; None if it has none. Weights above the limit are scaled, and scores back."""
    if any(weight < 0 for weight in terms.values()):
        raise VizslaError(
            f"{fields.facts.model} gives terms of queries negative weights, and {fields.engine} takes none"
        )
    weights = {feature(term): weight for term, weight in terms.items() if weight > 0}
    if not weights:
        return None
    boost = max(1.0, max(weights.values()) / MAX_WEIGHT)
    scaled = {name: float(f"{min(weight / boost, MAX_WEIGHT):.9g}") for name, weight in weights.items()}
    if fields.engine == "elasticsearch":
        return {"sparse_vector": {"field": field, "query_vector": scaled, "prune": False, "boost": boost}}
    return {"neural_sparse": {field: {"query_tokens": scaled, "boost": boost}}}


def _scripted(
    fields: EngineFields, clauses: list[dict[str, Any]], vectors: Mapping[str, np.ndarray], norms: Mapping[str, float]
) -> dict[str, Any]:
    """A query whose score is that of the clauses, the inner products with all vectors, and the shift."""
    params: dict[str, Any] = {}
    products, shift = [], 0.0
    for number, (namespace, vector) in enumerate(vectors.items()):
        name, norm = fields.vectors[namespace], float(np.linalg.norm(vector))
        params[f"query{number}"] = [float(f"{x:.9g}") for x in vector.tolist()]
        shift += norm * norms[namespace] * _MARGIN
        if fields.engine == "elasticsearch":
            product, present = f"dotProduct(params.query{number}, '{name}')", name
        else:
            params[f"norm{number}"], present = norm, fields.norm(namespace)
            cosine = f"cosineSimilarity(params.query{number}, doc['{name}'])"
            product = f"{cosine} * params.norm{number} * doc['{present}'].value"
        products.append(f"(doc['{present}'].size() == 0 ? 0 : {product})")
    params["shift"] = shift
    script = {"source": " + ".join(["_score", *products, "params.shift"]), "params": params}
    present_fields = [fields.vectors[n] if fields.engine == "elasticsearch" else fields.norm(n) for n in vectors]
    has_vector = [{"exists": {"field": name}} for name in present_fields]
    found = {"bool": {"should": [*clauses, *has_vector], "minimum_should_match": 1}}
    inner = {"bool": {"filter": [found], "should": clauses}} if clauses else {"bool": {"filter": [found]}}
    return {"script_score": {"query": inner, "script": script}}
