"""Documents and queries for Elasticsearch and OpenSearch.

Documents are a folder with mapping.json and files for the bulk API. A namespace of terms becomes a field
`terms_NAMESPACE` of features with their full weights, a dense one a field `vector_NAMESPACE`. Both engines keep 9
significant bits of a feature's weight.

Queries are bodies of search requests. A sparse model becomes a query over features. A dense model, or a sum with one,
becomes a script over all documents that computes every inner product and adds it to the score of the terms. Engines
refuse negative scores, so the script adds `shift`, a bound that makes every score positive.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from vizsla.errors import UnknownNameError, VizslaError
from vizsla.index import Index, encoded_queries, exported_documents, facts_for_export
from vizsla.index.exporting import EncodedQuery, ExportedDocument, ExportFacts, max_norms

ENGINES = ("elasticsearch", "opensearch")
_PART_BYTES = 50_000_000  # of a file: half of the engines' default limit for one request
_MAX_ID_BYTES = 512
_MAX_DIMENSIONS = {"elasticsearch": 4096, "opensearch": 16_000}
_SMALLEST = float(np.finfo(np.float32).tiny)  # what a feature must weigh
MAX_WEIGHT = 64.0
"""The highest weight of a feature in a query: Lucene's limit."""
_MARGIN = 1.0001  # products are rounded
_QUERIES = 256  # that are encoded at once


@dataclass(frozen=True)
class EngineFields:
    """The fields of an index in an engine, by namespace."""

    engine: str
    facts: ExportFacts
    terms: dict[str, str]
    vectors: dict[str, str]

    @classmethod
    def of(cls, engine: str, facts: ExportFacts) -> EngineFields:
        if engine not in ENGINES:
            raise UnknownNameError("engine", engine, ENGINES)
        terms = {name: f"terms_{_plain(name)}" for name in facts.sparse}
        vectors = {name: f"vector_{_plain(name)}" for name in facts.dense}
        names = [*terms.values(), *vectors.values()]
        if len(set(names)) < len(names):
            raise VizslaError(f"two namespaces of {facts.model} would share a field of {engine}: {', '.join(names)}")
        return cls(engine, facts, terms, vectors)

    def norm(self, namespace: str) -> str:
        """The field with the length of a vector, which OpenSearch needs for inner products."""
        return f"{self.vectors[namespace]}_norm"

    def mapping(self) -> dict[str, Any]:
        """The body of the request that creates the index."""
        is_elastic = self.engine == "elasticsearch"
        fields: dict[str, Any] = {"document": {"type": "keyword"}, "content": {"type": "object", "enabled": False}}
        fields |= {name: {"type": "sparse_vector" if is_elastic else "rank_features"} for name in self.terms.values()}
        for namespace, size in self.facts.dense.items():
            if size > _MAX_DIMENSIONS[self.engine]:
                raise VizslaError(
                    f"{self.engine} takes vectors of at most {_MAX_DIMENSIONS[self.engine]:,} numbers, and those of "
                    f"{namespace} have {size:,}"
                )
            fields |= self._vector_fields(namespace, size)
        settings = {} if is_elastic or not self.vectors else {"settings": {"index": {"knn": True}}}
        about = {"made_by": "Vizsla", "model": self.facts.model}
        return {**settings, "mappings": {"dynamic": "strict", "_meta": about, "properties": fields}}

    def _vector_fields(self, namespace: str, size: int) -> dict[str, Any]:
        name = self.vectors[namespace]
        if self.engine == "elasticsearch":
            kind = {"type": "dense_vector", "dims": size, "index": True, "similarity": "max_inner_product"}
            return {name: {**kind, "index_options": {"type": "hnsw"}}}
        method = {"name": "hnsw", "engine": "faiss", "space_type": "innerproduct"}
        vector = {"type": "knn_vector", "dimension": size, "method": method}
        return {name: vector, self.norm(namespace): {"type": "double"}}


def feature(term: str) -> str:
    """A term as the name of a feature, which may have no dot and must not be empty.

    >>> feature("3.5"), feature("100%"), feature("")
    ('3%2E5', '100%25', '%')
    """
    return term.replace("%", "%25").replace(".", "%2E") or "%"


def _plain(namespace: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", namespace)


# Documents


def write_bulk(index: Index, engine: str, folder: Path, *, texts: bool = True) -> int:
    """Write a folder with mapping.json and bulk-00001.ndjson and so on, and return the number of documents or passages.

    The folder is created, and must be empty if it exists. `texts`: also write the fields of documents.
    """
    facts = facts_for_export(index)
    if texts and not facts.has_texts:
        raise VizslaError(f"{index.path}: this index keeps no texts to export; leave them out with --no-texts")
    fields = EngineFields.of(engine, facts)
    mapping = fields.mapping()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise VizslaError(f"{folder}: {engine} needs a folder that is new or empty")
    folder.mkdir(exist_ok=True)
    (folder / "mapping.json").write_text(json.dumps(mapping, indent=2) + "\n", encoding="utf-8")
    count = 0
    with _Parts(folder) as parts:
        for document in exported_documents(index, contents=texts):
            parts.write(_entry(document, fields, texts=texts))
            count += 1
    return count


class _Parts:
    """Files of the bulk API, a new one when the last is large enough."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self._file: IO[bytes] | None = None

    def __enter__(self) -> _Parts:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, entry: bytes) -> None:
        if self._file is None or (self._file.tell() and self._file.tell() + len(entry) > _PART_BYTES):
            if self._file is not None:
                self._file.close()
            self._number += 1
            self._file = (self._folder / f"bulk-{self._number:05}.ndjson").open("wb")
        self._file.write(entry)


def _entry(document: ExportedDocument, fields: EngineFields, *, texts: bool) -> bytes:
    """The two lines of a document."""
    if len(document.id.encode()) > _MAX_ID_BYTES:
        raise VizslaError(f"{fields.engine} takes ids of at most {_MAX_ID_BYTES} bytes, not {document.id[:40]!r}...")
    source: dict[str, Any] = {"document": document.document, **({"content": document.content} if texts else {})}
    for namespace, field in fields.terms.items():
        if features := _features(document.terms[namespace], fields):
            source[field] = features
    vectors = []
    for namespace, vector in document.vectors.items():
        norm = float(np.linalg.norm(vector.astype(np.float64)))
        if not norm:
            continue
        vectors.append(f'"{fields.vectors[namespace]}": {vector_text(vector)}')
        if fields.engine == "opensearch":
            source[fields.norm(namespace)] = norm
    rest = json.dumps(source, ensure_ascii=False)
    lines = json.dumps({"index": {"_id": document.id}}, ensure_ascii=False), ", ".join([rest[:-1], *vectors]) + "}"
    return "".join(line + "\n" for line in lines).encode()


def _features(terms: dict[str, float], fields: EngineFields) -> dict[str, float]:
    """Terms with weights of seven digits; a weight of 0 adds nothing and is left out."""
    if any(weight < 0 or not math.isfinite(weight) for weight in terms.values()):
        raise VizslaError(f"{fields.facts.model} gives terms negative weights, and {fields.engine} takes none")
    return {feature(term): float(f"{weight:.7g}") for term, weight in terms.items() if weight >= _SMALLEST}


def vector_text(vector: np.ndarray) -> str:
    """32-bit floats as JSON, with nine digits, which identify each of them exactly."""
    return f"[{','.join(map('%.9g'.__mod__, vector.tolist()))}]"


# Queries


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
