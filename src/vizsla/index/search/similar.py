"""Documents like a document: its most telling words, or its text, become a query."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vizsla.errors import VizslaError
from vizsla.index.search.bound_model import BoundModel, SparsePart
from vizsla.index.search.highlight import MAX_CHARACTERS
from vizsla.index.search.plan import Search, SearchOptions, positive
from vizsla.index.search.searcher import Searcher
from vizsla.models import Model, as_text, field_text, is_text, part_has
from vizsla.runs import Document, Filter, FilterLike, Hits

MAX_WORDS = 25
"""The number of words of a query made from a document, as in Lucene's MoreLikeThis."""
MAX_TEXT = 1000
"""Characters of a document's text that a dense model reads as a query."""


def similar(searcher: Searcher, doc_id: str, k: int, filter: FilterLike, model: Model | None) -> Hits:
    """The k best documents for the query that a document makes, without the document itself."""
    k = positive(k, "k, the number of results,")
    query = similar_query(searcher, doc_id, model)
    search = Search.prepare(searcher, k + 1, Filter.of(filter), SearchOptions(model, threads=1))
    if not query:
        return Hits()
    return without_itself(search.hits_of(query), doc_id, k)


def without_itself(hits: Hits, doc_id: str, k: int) -> Hits:
    """The first k hits, without the document that the query was made from."""
    others = [hit for hit in hits if hit.id != doc_id][:k]
    return Hits(hit.at_rank(rank) for rank, hit in enumerate(others, 1))


def similar_query(searcher: Searcher, doc_id: str, model: Model | None) -> str:
    """The query that finds documents like a document; empty if the document has no words."""
    bound = searcher.own if model is None else searcher.bind(model)
    store = searcher.snapshot.documents
    document = store.by_id([doc_id]).get(doc_id)
    if document is None:
        raise VizslaError(f"there is no document with the id {doc_id!r}")
    if not store.has_texts:
        raise VizslaError("this index does not keep the texts of documents, so it cannot find similar documents")
    return query_like(document, bound)


def query_like(document: Document, bound: BoundModel) -> str:
    """The query that a document makes for a model: its most telling words, or its beginning for one with vectors."""
    return _beginning(document, bound) if bound.has_vectors else _telling_words(document, bound.sparse)


def _beginning(document: Document, bound: BoundModel) -> str:
    """The fields that a model reads, up to a length, cut at a word."""
    fields = list(dict.fromkeys(field for part in bound.parts for field in part.component.fields))
    text = field_text(_texts(document.content), fields).strip()
    if len(text) <= MAX_TEXT:
        return text
    return text[: MAX_TEXT + 1].rpartition(" ")[0] or text[:MAX_TEXT]


def _texts(content: Mapping[str, Any]) -> dict[str, str]:
    return {name: as_text(value) for name, value in content.items() if is_text(value)}


def _telling_words(document: Document, parts: Sequence[SparsePart]) -> str:
    """The words of a document with the highest tf times idf, the best first.

    For a model of precomputed vectors: the terms of the document's vector, with their weights.
    """
    for part in parts:
        vector = document.get(part.component.fields[0])
        if isinstance(vector, Mapping):
            return _telling_weights(vector, part)
    worth: dict[str, float] = {}
    for part in parts:
        if not part_has(part.component, document.content):
            continue
        for word, value in _worth_of_words(document, part).items():
            worth[word] = max(worth.get(word, 0.0), value)
    best = sorted(worth, key=lambda word: (-worth[word], word))
    return " ".join(best[:MAX_WORDS])


def _worth_of_words(document: Document, part: SparsePart) -> dict[str, float]:
    """For each term of a document its most frequent word, and the term's tf times idf."""
    text = field_text(_texts(document.content), part.component.fields)[:MAX_CHARACTERS]
    words: dict[str, Counter[str]] = {}
    for term, word in _words(text, part):
        words.setdefault(term, Counter())[word] += 1
    rarity = _rarity(list(words), part)
    chosen = {term: min(forms, key=lambda word: (-forms[word], word)) for term, forms in words.items()}
    return {chosen[term]: forms.total() * rarity[term] for term, forms in words.items() if term in rarity}


def _words(text: str, part: SparsePart) -> list[tuple[str, str]]:
    """The terms of a text and the words they stand for; pieces of a word are one, by its first piece."""
    words: list[tuple[str, str]] = []
    last = -1
    for term, start, end in part.component.tokens(text):
        if start == last and term.startswith("##"):
            first, begun = words[-1]
            words[-1] = first, begun + text[start:end]
        else:
            words.append((term, text[start:end]))
        last = end
    return [(term, word.lower()) for term, word in words]


def _rarity(terms: Sequence[str], part: SparsePart) -> dict[str, float]:
    """The idf of terms as Lucene's MoreLikeThis counts it; terms that no document has are left out."""
    frequencies = part.statistics.document_frequencies(terms)
    idf = np.log((part.statistics.documents + 1) / (frequencies + 1)) + 1
    return {term: float(x) for term, x, n in zip(terms, idf, frequencies, strict=True) if n}


def _telling_weights(vector: Mapping[str, Any], part: SparsePart) -> str:
    """The highest weights of a vector, as a query has them."""
    rarity = _rarity(list(vector), part)
    best = sorted(rarity, key=lambda term: (-vector[term] * rarity[term], term))[:MAX_WORDS]
    weights = {term: vector[term] for term in best if vector[term]}
    return json.dumps(weights, ensure_ascii=False) if weights else ""
