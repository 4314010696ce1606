"""What generated queries are like: whether they find their own documents, what they repeat and what they add."""

from __future__ import annotations

import hashlib
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import Generic, TypeVar

import numpy as np

from vizsla.errors import VizslaError
from vizsla.expansion.records import queries_of
from vizsla.index import Index
from vizsla.models import QUERIES, Model, field_text, parse_model
from vizsla.runs import Document, Qrels
from vizsla.text import Analyzer

SAMPLE = 2000
"""Queries that are searched for."""
_BATCH = 500  # documents that are analyzed together
_BEGINNING = 200  # characters of a document that an example shows
_ANALYZER = "lucene-english"

T = TypeVar("T")


@dataclass(frozen=True)
class JudgedQueries:
    """The queries that people wrote for a collection, and the documents that are relevant to them."""

    name: str
    texts: Mapping[str, str]
    qrels: Qrels


@dataclass(frozen=True)
class Example:
    """A generated query, and the document it was generated for."""

    query: str
    document: str
    title: str
    text: str
    """Its beginning."""


@dataclass(frozen=True)
class HumanFacts:
    """Queries of people beside the generated ones."""

    name: str
    queries: int
    words: float
    new_words: float
    first: float
    """The share for which a relevant document is first."""


@dataclass(frozen=True)
class QueryFacts:
    """What generated queries are like. Shares are between 0 and 1."""

    documents: int
    without_queries: int
    """Documents that have none."""
    queries: int
    words: float
    """Of a query, on average."""
    repeated_in_document: float
    """The share of queries that repeat an earlier one of their document; case does not count."""
    repeated: float
    """The share of queries that repeat an earlier one of any document."""
    new_words: float
    """The share of the words of queries, stemmed and without stop words, that the document does not have."""
    model: str
    sample: int
    """How many queries were searched for."""
    first: float
    """The share of them that rank their own document first in the whole collection."""
    examples: tuple[Example, ...]
    human: HumanFacts | None = None


def describe_queries(
    documents: Iterable[Document],
    model: str | Model = "bm25",
    *,
    judged: JudgedQueries | None = None,
    sample: int = SAMPLE,
    examples: int = 20,
    seed: int = 0,
) -> QueryFacts:
    """Describe the generated queries of documents.

    `sample` queries, drawn at random, are searched for in an index of all documents that `model` makes, without their
    generated queries. `judged`: queries of people, which are searched for in the same index.
    """
    searched = parse_model(model) if isinstance(model, str) else model
    if QUERIES in searched.fields:
        raise VizslaError(f"{searched.name} reads the field {QUERIES!r} itself; search with a model that does not")
    if sample < 1 or examples < 0:
        raise VizslaError(f"a sample has 1 query or more, and 0 examples or more, not {sample} and {examples}")
    counts = _Counts(judged, Reservoir(sample, f"{seed}"), Reservoir(examples, f"{seed} examples"))
    with tempfile.TemporaryDirectory(prefix="vizsla-") as folder:
        if searched.needs_corpus_statistics:
            raise VizslaError(f"{searched.name} needs the statistics of all documents first; search with another model")
        with Index.create(Path(folder) / "index", searched, store=False) as index:
            index.add(_without_queries(counts.counted(documents), searched))
            index.commit()
            found = index.search_many([query for query, _ in counts.sample.items], 1) if counts.sample.items else []
            first = [
                bool(hits) and hits[0].id == own for hits, (_, own) in zip(found, counts.sample.items, strict=True)
            ]
            human = None if judged is None else _human(index, judged, counts)
    return counts.facts(searched.name, first, human)


class Reservoir(Generic[T]):
    """A random sample of a stream, each item as likely as any other.

    >>> numbers = Reservoir(3, "seed")
    >>> for n in range(1000):
    ...     numbers.add(n)
    >>> len(numbers.items)
    3
    """

    def __init__(self, size: int, seed: str) -> None:
        self.items: list[T] = []
        self._size, self._rng, self._seen = size, Random(seed), 0

    def add(self, item: T) -> None:
        """Take the item, in place of another one, or pass it by."""
        self._seen += 1
        if len(self.items) < self._size:
            self.items.append(item)
        elif self._size and (place := self._rng.randrange(self._seen)) < self._size:
            self.items[place] = item


@dataclass
class _NewWords:
    """Counts the words of queries that their documents do not have."""

    words: int = 0
    new: int = 0

    @property
    def share(self) -> float:
        return self.new / self.words if self.words else 0.0


@dataclass
class _Counts:
    """What is counted while the documents pass."""

    judged: JudgedQueries | None
    sample: Reservoir[tuple[str, str]]
    """Queries and the ids of their documents."""
    examples: Reservoir[Example]
    documents: int = 0
    without_queries: int = 0
    words: int = 0
    repeated_in_document: int = 0
    hashes: array[int] = field(default_factory=lambda: array("Q"))
    new: _NewWords = field(default_factory=_NewWords)
    human_new: _NewWords = field(default_factory=_NewWords)
    relevant: dict[str, list[str]] = field(default_factory=dict)
    """By document, the judged queries it is relevant to."""
    answered: dict[str, None] = field(default_factory=dict)
    """The judged queries that a document of the collection is relevant to."""

    def __post_init__(self) -> None:
        if self.judged is not None:
            for query, grades in self.judged.qrels.judgements.items():
                for doc_id in (d for d, grade in grades.items() if grade > 0 and query in self.judged.texts):
                    self.relevant.setdefault(doc_id, []).append(query)

    def counted(self, documents: Iterable[Document]) -> Iterator[Document]:
        """The same documents; they are counted as they pass."""
        lexicon = Analyzer.parse(_ANALYZER).lexicon()
        stream = iter(documents)
        while batch := list(islice(stream, _BATCH)):
            for document in batch:
                self._count(document, queries_of(document))
            self._count_new(batch, lexicon.encode)
            yield from batch

    def _count(self, document: Document, queries: Sequence[str]) -> None:
        self.documents += 1
        self.without_queries += not queries
        folded = [query.casefold() for query in queries]
        self.repeated_in_document += len(folded) - len(set(folded))
        self.words += sum(len(query.split()) for query in queries)
        title, text = (field_text(document.content, (name,)) for name in ("title", "text"))
        for query, key in zip(queries, folded, strict=True):
            digest = hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=8).digest()
            self.hashes.append(int.from_bytes(digest, "little"))
            self.sample.add((query, document.id))
            self.examples.add(Example(query, document.id, title, text[:_BEGINNING]))

    def _count_new(
        self, batch: Sequence[Document], encode: Callable[[Sequence[str]], tuple[np.ndarray, np.ndarray]]
    ) -> None:
        """Compare the words of queries, generated and judged ones, with those of their documents."""
        texts = [field_text(d.content, ("title", "text")) for d in batch]
        pairs: list[tuple[int, str, _NewWords]] = []
        for row, document in enumerate(batch):
            pairs += [(row, query, self.new) for query in queries_of(document)]
            for query in self.relevant.get(document.id, ()):
                assert self.judged is not None
                self.answered[query] = None
                pairs.append((row, self.judged.texts[query], self.human_new))
        numbers, ends = encode([*texts, *(query for _, query, _ in pairs)])
        rows = np.split(numbers, ends[:-1])
        known = [set(row.tolist()) for row in rows[: len(batch)]]
        for (row, _, counts), terms in zip(pairs, rows[len(batch) :], strict=True):
            counts.words += len(terms)
            counts.new += sum(term not in known[row] for term in terms.tolist())

    def facts(self, model: str, first: Sequence[bool], human: HumanFacts | None) -> QueryFacts:
        """All that was counted."""
        queries = len(self.hashes)
        distinct = len(np.unique(np.array(self.hashes, np.uint64)))
        return QueryFacts(
            documents=self.documents,
            without_queries=self.without_queries,
            queries=queries,
            words=self.words / max(queries, 1),
            repeated_in_document=self.repeated_in_document / max(queries, 1),
            repeated=(queries - distinct) / max(queries, 1),
            new_words=self.new.share,
            model=model,
            sample=len(first),
            first=sum(first) / max(len(first), 1),
            examples=tuple(self.examples.items),
            human=human,
        )


def _human(index: Index, judged: JudgedQueries, counts: _Counts) -> HumanFacts:
    """The judged queries that have a relevant document in the index, searched for in it."""
    answered = list(counts.answered)
    if not answered:
        raise VizslaError(
            f"none of the documents that are relevant in {judged.name} is here; is it the data set of this collection?"
        )
    found = index.search_many([judged.texts[query] for query in answered], 1)
    grades = judged.qrels.judgements
    first = sum(
        bool(hits) and grades[query].get(hits[0].id, 0) > 0 for query, hits in zip(answered, found, strict=True)
    )
    words = sum(len(judged.texts[query].split()) for query in answered)
    return HumanFacts(judged.name, len(answered), words / len(answered), counts.human_new.share, first / len(answered))


def _without_queries(documents: Iterable[Document], model: Model) -> Iterator[Document]:
    """The documents as a model reads them; those without text have an empty one, so that they count, too."""
    for document in documents:
        content = {name: document.content[name] for name in model.fields if document.get(name) is not None}
        yield Document(document.id, {"text": "", **content}, document.origin)
