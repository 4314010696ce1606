"""Anserini's JsonVectorCollection with integer weights, and topics for it.

Anserini turns a vector into a text in which each term is repeated according to its weight, and searches it with
`-impact -pretokenized`. Therefore weights are integers, and terms contain no white space.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from vizsla.backends.impacts import DEFAULT_QUANTISER, check_positive, fitted, whole_query
from vizsla.errors import VizslaError
from vizsla.index import Index, encoded_queries, exported_documents, facts_for_export
from vizsla.index.exporting import ExportFacts

_QUERIES = 256  # that are encoded at once


def write_collection(index: Index, output: Path, quantiser: str | None = None) -> int:
    """Write the documents' vectors as JSON lines and return their number; weights are multiplied by 100 and rounded.

    `quantiser`: another way to round weights to integers.
    """
    facts = _checked(index)
    chosen = fitted(quantiser or DEFAULT_QUANTISER, (weights for _, _, weights in _vectors(index, facts)))
    count = 0
    with output.open("w", encoding="utf-8") as file:
        for doc_id, terms, weights in _vectors(index, facts):
            check_positive(weights, facts.model, "anserini")
            whole = chosen.quantise(weights).tolist()
            vector = {_word(term): weight for term, weight in zip(terms, whole, strict=True) if weight > 0}
            file.write(json.dumps({"id": doc_id, "contents": "", "vector": vector}, ensure_ascii=False) + "\n")
            count += 1
    return count


def _vectors(index: Index, facts: ExportFacts) -> Iterator[tuple[str, list[str], np.ndarray]]:
    for document in exported_documents(index):
        vector = joined(document.terms, facts)
        yield document.id, list(vector), np.fromiter(vector.values(), np.float64, len(vector))


def write_topics(index: Index, queries: Mapping[str, str], output: Path) -> int:
    """Write queries for `-topicReader TsvString`: id, tab, and each term repeated according to its weight.

    Weights that are not integers are multiplied by 100 and rounded. Returns the number of queries.
    """
    facts = _checked(index)
    ids, texts = list(queries), list(queries.values())
    with output.open("w", encoding="utf-8") as file:
        for first in range(0, len(ids), _QUERIES):
            encoded = encoded_queries(index, texts[first : first + _QUERIES])
            for query_id, query in zip(ids[first : first + _QUERIES], encoded, strict=True):
                terms = whole_query(joined(query.terms, facts))
                words = [_word(term) for term, count in terms.items() for _ in range(count)]
                file.write(f"{_word(query_id)}\t{' '.join(words)}\n")
    return len(ids)


def joined(terms: Mapping[str, Mapping[str, float]], facts: ExportFacts) -> dict[str, float]:
    """The terms of all namespaces; in a sum they are prefixed by their namespaces."""
    if len(facts.sparse) == 1:
        return dict(terms[facts.sparse[0]])
    return {f"{name}:{term}": weight for name, some in terms.items() for term, weight in some.items()}


def _checked(index: Index) -> ExportFacts:
    facts = facts_for_export(index)
    if facts.dense:
        raise VizslaError(
            f"the vectors of {next(iter(facts.dense))} have no terms, and files for Anserini hold only terms"
        )
    return facts


def _word(text: str) -> str:
    """A term or an id; an error if Anserini would split it."""
    if text.split() != [text]:
        raise VizslaError(f"{text!r} is empty or has white space in it, where Anserini would cut it")
    return text
