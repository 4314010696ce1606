"""The model contract and its algebra: two encoders and an inner product, summed and scaled.

bm25 + pieces           vectors concatenated, so scores add: still one inverted index
bm25 + 0.5 * pieces     the weight sits on the query side: the index never changes
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from vizsla.described import DescriptionError, check
from vizsla.engine import Weighting
from vizsla.errors import InputError, VizslaError, kind_of
from vizsla.models.statistics import CountedStatistics, Statistics
from vizsla.numbers import number_text
from vizsla.text import Token
from vizsla.vectors import SparseVectors, Vectors

Fields = Mapping[str, Any] | str
"""What a model reads: fields by name, or a text, which counts as the field `text`."""


def field_text(document: Fields, fields: Sequence[str]) -> str:
    """The text of some fields of a document, joined by line breaks; fields that are absent are passed over."""
    if isinstance(document, str):
        return document if "text" in fields else ""
    if len(fields) == 1:
        return document.get(fields[0]) or ""
    return "\n".join(document[f] for f in fields if document.get(f))


def text_problem(content: Mapping[str, Any], fields: Sequence[str]) -> str | None:
    """Why some fields cannot be read as text, to follow the document's name in a sentence; None if they can."""
    for name in fields:
        value = content.get(name)
        if value is not None and not isinstance(value, str):
            return f"has a field {name!r} that is no text, but {kind_of(value)}"
    return None


CollectionStatistics = Mapping[str, Statistics]
"""The statistics of each namespace of a model."""


class Stored(NamedTuple):
    """What an index stores of some documents for one namespace."""

    vectors: SparseVectors
    lengths: np.ndarray
    dense: np.ndarray | None = None
    """[documents, dimensions] where the namespace has dense vectors instead; then there are no terms."""


def counted(stored: Stored) -> CountedStatistics:
    """The statistics of documents in memory."""
    vectors, lengths, _ = stored
    terms = [term for _, term in map(vectors.vocabulary.__getitem__, range(len(vectors.vocabulary)))]
    frequencies = np.bincount(vectors.indices, minlength=len(terms)).tolist()
    there = {term: n for term, n in zip(terms, frequencies, strict=True) if n}
    return CountedStatistics(int(np.count_nonzero(lengths)), int(lengths.sum()), int(lengths.max(initial=0)), there)


class Reader(ABC):
    """Reads documents batch by batch for an index; it remembers the words it has met, so keep it."""

    @abstractmethod
    def read(self, documents: Sequence[Fields]) -> Stored:
        """What the index stores of these documents."""


class Model(ABC):
    """Text to vectors. `a + b` and `w * a` are models."""

    name: str
    fields: tuple[str, ...]
    """The fields of documents that the model reads."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """The components this model is a sum of, one a namespace, each with its weight."""

    def __add__(self, other: Model) -> Model:
        return Sum(self.parts + other.parts)

    def __mul__(self, weight: float) -> Model:
        return Sum(tuple(Part(weight * p.weight, p.component) for p in self.parts))

    __rmul__ = __mul__

    @property
    def needs_fit(self) -> bool:
        """Whether weights of its parts are still to be fitted to documents."""
        return False

    @property
    def needs_corpus_statistics(self) -> bool:
        """Whether statistics of all documents have to be counted before any can be encoded."""
        return False

    def fit(self, documents: Sequence[Fields]) -> Model:  # noqa: ARG002 (most models need none)
        """The model with what is to be fitted to documents fitted to these."""
        return self

    @property
    def reads_texts(self) -> bool:
        """Whether a search looks at the texts of documents, so that an index has to keep them."""
        return any(p.component.reads_texts for p in self.parts if p.component is not self)

    @property
    def namespaces(self) -> tuple[str, ...]:
        return tuple(p.component.namespace for p in self.parts)

    def problem(self, content: Mapping[str, Any]) -> str | None:
        """Why a document with this content cannot be read, to follow its name in a sentence; None if it can."""
        for part in self.parts:
            problem = part.component.field_problem(content)
            if problem is not None:
                return problem
        needed = ["text"] if "text" in self.fields else list(self.fields)
        if any(content.get(f) is not None for f in needed):
            return None
        names = ("text", "contents") if needed == ["text"] else needed
        what = "text" if "text" in needed else needed[0]
        named = "; name another with --text-field" if what == "text" else ""
        there = f" among its fields {', '.join(map(repr, [*content][:12]))}{named}" if content else ""
        return f"has no {what}; expected a field {' or '.join(map(repr, names))}{there}"

    def statistics(self, documents: Sequence[Fields]) -> CollectionStatistics:
        """The statistics of a collection given in memory, to encode with."""
        return {p.component.namespace: p.component.count(documents) for p in self.parts}

    def encode_documents(
        self, documents: Sequence[Fields], statistics: CollectionStatistics | None = None
    ) -> Any:  # sparse, dense or joined vectors
        """The documents' vectors; without statistics, those of the documents themselves are taken."""
        known = self.statistics(documents) if statistics is None else statistics
        rows = [p.component.document_vectors(documents, known[p.component.namespace]) for p in self.parts]
        return reduce(add, rows)

    def encode_queries(self, texts: Sequence[str], statistics: CollectionStatistics) -> Any:
        """The queries' vectors; with the documents' vectors their inner products are the scores."""
        rows = [p.weight * p.component.query_vectors(texts, statistics[p.component.namespace]) for p in self.parts]
        return reduce(add, rows)

    def describe(self, folder: Path) -> dict[str, Any]:
        """The model as plain data; files it needs are written to the folder."""
        parts = [{"weight": p.weight, "kind": p.component.kind, **p.component.options(folder)} for p in self.parts]
        return {"name": self.name, "parts": parts}

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder of its own."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        (path / "model.json").write_text(json.dumps(self.describe(path), indent=2) + "\n")

    @staticmethod
    def load(folder: str | Path) -> Model:
        """The model saved in a folder."""
        path = Path(folder)
        file = path / "model.json"
        try:
            description = json.loads(file.read_text("utf-8"))
        except FileNotFoundError:
            raise InputError("there is no saved model here (no model.json)", file=str(folder)) from None
        except (ValueError, RecursionError) as e:
            raise InputError(f"this is not the description of a model ({e})", file=str(file)) from None
        try:
            return Model.from_description(description, path)
        except DescriptionError as e:
            raise InputError(f"this is not the description of a model ({e})", file=str(file)) from None

    @staticmethod
    def from_description(description: object, folder: Path) -> Model:
        """The model described by plain data beside the files in a folder."""
        if not isinstance(description, dict):
            raise DescriptionError("no object of names and values")
        for name, kind in (("name", "str"), ("parts", "list")):
            check(name, description.get(name), kind)
        parts = []
        for entry in description["parts"]:
            check("a part", entry, "dict")
            check("a weight", entry.get("weight"), "float")
            rest = {name: value for name, value in entry.items() if name != "weight"}
            parts.append(Part(entry["weight"], component_from(rest, folder)))
        if not parts:
            raise DescriptionError("it has no parts")
        if len(parts) == 1 and parts[0].weight == 1.0:
            return parts[0].component
        if description.get("balanced"):
            from vizsla.models.auto_weighted import AutoWeightedSum

            return AutoWeightedSum(tuple(parts), description["name"])
        return Sum(tuple(parts), description["name"])


class Component(Model):
    """A model with one namespace: a leaf of every sum."""

    kind: ClassVar[str]
    namespace: str

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part(1.0, self),)

    @property
    def batch_size(self) -> int:
        """How many documents are best read at once."""
        return 2000

    @property
    def dimensions(self) -> int:
        """How many numbers its vectors have where they are dense; 0 where they are terms with weights."""
        return 0

    def dense_queries(self, texts: Sequence[str]) -> list[np.ndarray | None]:
        """The dense vectors of queries, None for a query of no known token, or where there are none."""
        return [None] * len(texts)

    @property
    @abstractmethod
    def index_signature(self) -> tuple[Any, ...]:
        """What decides what an index stores; components that agree in it can be asked of the same index."""

    def with_frozen_statistics(self, held: Component) -> Component:  # noqa: ARG002 (most components freeze nothing)
        """The component with what was frozen into one of the same storage, which an index holds."""
        return self

    @abstractmethod
    def field_problem(self, content: Mapping[str, Any]) -> str | None:
        """Why the fields this component reads cannot be read; None if they can, or are absent."""

    @abstractmethod
    def reader(self) -> Reader:
        """A reader of documents for an index."""

    @abstractmethod
    def length_codes(self, lengths: np.ndarray) -> np.ndarray:
        """Documents' lengths as the index stores them."""

    @abstractmethod
    def weighting(self, statistics: Statistics) -> Weighting:
        """How a stored value becomes a weight under these statistics."""

    @abstractmethod
    def tokens(self, text: str) -> list[Token]:
        """The terms of a text and where they stand in it, for highlighting."""

    @abstractmethod
    def query_terms(self, text: str) -> dict[str, float]:
        """The terms of a query with their weights before any statistics."""

    def query_terms_of(self, texts: Sequence[str]) -> list[dict[str, float]]:
        """The same for many queries, where it is faster so."""
        return [self.query_terms(text) for text in texts]

    def own_terms(self, text: str) -> dict[str, float]:
        """The terms a text itself is analyzed to, whatever a query is made into."""
        return self.query_terms(text)

    def query_terms_in(self, texts: Sequence[str], collection: Any) -> list[dict[str, float]]:  # noqa: ARG002
        """The same where the collection that is asked may be looked at first: see `models.expansion.SearchContext`."""
        return [self.query_terms(texts[0])] if len(texts) == 1 else self.query_terms_of(texts)

    @abstractmethod
    def term_factors(self, frequencies: np.ndarray, documents: int) -> np.ndarray:
        """What a query's terms are multiplied by, given in how many of so many documents each occurs: rarity."""

    def query_weights_of(self, asked: Sequence[Mapping[str, float]], statistics: Statistics) -> list[dict[str, float]]:
        """The final weights of the terms of many queries; those no document has are left out."""
        df = statistics.document_frequencies([term for terms in asked for term in terms])
        factors = np.full(len(df), np.nan)
        factors[df > 0] = self.term_factors(df[df > 0], statistics.documents)
        pairs = zip((df > 0).tolist(), factors.tolist(), strict=True)
        return [
            {term: weight * f for (term, weight), (known, f) in zip(terms.items(), pairs, strict=False) if known}
            for terms in asked
        ]

    def query_weights(self, terms: Mapping[str, float], statistics: Statistics) -> dict[str, float]:
        """The same for one query."""
        return self.query_weights_of([terms], statistics)[0]

    @abstractmethod
    def count(self, documents: Sequence[Fields]) -> Statistics:
        """The statistics of documents given in memory."""

    @abstractmethod
    def options(self, folder: Path) -> dict[str, Any]:
        """The component's options as plain data; files it needs are written to the folder."""

    @classmethod
    @abstractmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> Component:
        """The component with these options; files they name lie in the folder."""

    def document_vectors(self, documents: Sequence[Fields], statistics: Statistics) -> Vectors:
        return self.weighed(self.reader().read(documents), statistics)

    def weighed(self, stored: Stored, statistics: Statistics) -> SparseVectors:
        """The vectors of documents that have been read."""
        vectors, lengths, _ = stored
        codes = np.repeat(self.length_codes(lengths), np.diff(vectors.pointers))
        values = self.weighting(statistics).weigh(vectors.values, codes)
        return SparseVectors(vectors.vocabulary, vectors.pointers, vectors.indices, values)

    def query_vectors(self, texts: Sequence[str], statistics: Statistics) -> Vectors:
        return SparseVectors.from_rows(self.query_weights_of(self.query_terms_of(texts), statistics), self.namespace)


class Part(NamedTuple):
    """A component of a sum and its weight."""

    weight: float
    component: Component


COMPONENTS: dict[str, type[Component]] = {}
"""The kinds of components an index can be opened with, by name."""


def component_from(description: Mapping[str, Any], folder: Path) -> Component:
    """The component described by its kind and its options; files they name lie in the folder."""
    kind = str(description.get("kind"))
    if kind not in COMPONENTS:
        raise VizslaError(f"this version knows no component of the kind {kind!r}; a newer one may")
    return COMPONENTS[kind].from_options({n: value for n, value in description.items() if n != "kind"}, folder)


@dataclass(frozen=True)
class Sum(Model):
    """Models added up: vectors concatenated, scores added, one inverted index."""

    summands: tuple[Part, ...]
    name: str = ""

    def __post_init__(self) -> None:
        if len(set(self.namespaces)) < len(self.parts):
            ((repeated, _),) = Counter(self.namespaces).most_common(1)
            raise VizslaError(
                f"the parts of a sum need namespaces of their own, but {repeated!r} occurs twice; "
                "give one part another, as in bm25(namespace=other)"
            )
        if not self.name:
            terms = (
                p.component.name if p.weight == 1 else f"{number_text(p.weight)} * {p.component.name}"
                for p in self.parts
            )
            object.__setattr__(self, "name", " + ".join(terms))

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.summands

    @property
    def needs_corpus_statistics(self) -> bool:
        return any(p.component.needs_corpus_statistics for p in self.parts)

    def fit(self, documents: Sequence[Fields]) -> Model:
        if not self.needs_corpus_statistics:
            return self
        return Sum(tuple(Part(w, c.fit(documents)) for w, c in self.parts), self.name)  # type: ignore[arg-type]

    @property
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(dict.fromkeys(f for p in self.parts for f in p.component.fields))
