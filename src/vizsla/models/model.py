"""Models and their algebra: two encoders and an inner product, summed and scaled.

bm25 + pieces           vectors are concatenated, so scores add: still one inverted index
bm25 + 0.5 * pieces     the weight sits on the query side: the index does not change
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from vizsla.errors import InputError, VizslaError
from vizsla.models.card import write_card
from vizsla.models.fields import Fields, missing_problem, text_problem
from vizsla.models.statistics import Statistics
from vizsla.numbers import number_text
from vizsla.plain_data import DescriptionError, check_type, fields_from_data, parse_settings
from vizsla.runs.outline import DOCUMENT_TEXT
from vizsla.spec import Registry
from vizsla.vectors import Vectors

CollectionStatistics = Mapping[str, Statistics]
"""The statistics of each namespace of a model."""


class Model(ABC):
    """Text to vectors. `a + b` and `w * a` are models as well.

    >>> from vizsla.models import BM25
    >>> both = BM25(fields=("title",), namespace="title") + 0.5 * BM25(fields=("text",), namespace="text", name="text")
    >>> both.name, both.namespaces
    ('bm25 + 0.5 * text', ('title', 'text'))
    """

    name: str
    fields: tuple[str, ...]
    """The fields of documents that the model reads."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """The components that this model is the sum of, one per namespace, each with its weight."""

    def __add__(self, other: Model) -> Model:
        return Sum(self.parts + other.parts)

    def __mul__(self, weight: float) -> Model:
        return Sum(tuple(Part(weight * p.weight, p.component) for p in self.parts))

    __rmul__ = __mul__

    def with_name(self, name: str) -> Self:
        """The model under another name."""
        return replace(self, name=name)  # type: ignore[type-var]

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The names under which an index keeps the parts apart."""
        return tuple(p.component.namespace for p in self.parts)

    @property
    def needs_fit(self) -> bool:
        """Whether weights of parts are still to be fitted to documents."""
        return False

    @property
    def needs_corpus_statistics(self) -> bool:
        """Whether statistics of the whole corpus must be counted before a document can be encoded."""
        return False

    def fit(self, documents: Sequence[Fields]) -> Model:  # noqa: ARG002 (most models have nothing to fit)
        """The model with weights or statistics fitted to these documents."""
        return self

    @property
    def needs_texts(self) -> bool:
        """Whether a search reads the texts of documents, so that an index has to keep them."""
        return any(p.component.needs_texts for p in self.parts if p.component is not self)

    @property
    def counts_words(self) -> bool:
        """Whether documents are encoded by counting single words, which several threads can do at a time."""
        return all(part.component.counts_words for part in self.parts)

    @property
    def device(self) -> str:
        """The device that the model was opened on; empty if none was named."""
        networks = [getattr(part.component, "network", None) for part in self.parts]
        return next((device for network in networks if (device := getattr(network, "device", ""))), "")

    def problem(self, content: Mapping[str, Any]) -> str | None:
        """Why a document with these fields cannot be encoded, as a predicate with it as the subject; None if it can."""
        problems = (part.component.field_problem(content) for part in self.parts)
        return next((p for p in problems if p is not None), None) or missing_problem(content, self.fields)

    def statistics(self, documents: Sequence[Fields]) -> CollectionStatistics:
        """The statistics of documents in memory, to encode with."""
        return {p.component.namespace: p.component.count(documents) for p in self.parts}

    def encode_documents(self, documents: Sequence[Fields], statistics: CollectionStatistics | None = None) -> Vectors:
        """The vectors of documents; without `statistics` those of the documents themselves are used."""
        known = self.statistics(documents) if statistics is None else statistics
        return reduce(add, (p.component.document_vectors(documents, known[p.component.namespace]) for p in self.parts))

    def encode_queries(self, texts: Sequence[str], statistics: CollectionStatistics) -> Vectors:
        """The vectors of queries; their inner products with the documents' vectors are the scores."""
        return reduce(
            add,
            (p.weight * p.component.query_vectors(texts, statistics[p.component.namespace]) for p in self.parts),
        )

    def describe(self, folder: Path) -> dict[str, Any]:
        """The model as plain data; files it needs are written to the folder."""
        parts = []
        for weight, component in self.parts:
            options = component.options(folder)
            if reserved := options.keys() & {"weight", "kind"}:
                raise VizslaError(f"{component.name} cannot be stored: rename its option {min(reserved)!r}")
            parts.append({"weight": weight, "kind": component.kind, **options})
        return {"name": self.name, "parts": parts}

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder of its own, with a model card; `Model.load` reads it back."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        (path / "model.json").write_text(json.dumps(self.describe(path), indent=2) + "\n")
        write_card(path)

    @staticmethod
    def load(folder: str | Path) -> Model:
        """The model saved in a folder."""
        path = Path(folder)
        file = path / "model.json"
        try:
            description = parse_settings(file.read_text("utf-8"))
        except FileNotFoundError:
            raise InputError("there is no saved model here (no model.json)", file=str(folder)) from None
        except ValueError as e:
            raise InputError(f"this is not the description of a model ({e})", file=str(file)) from None
        try:
            return Model.from_description(description, path)
        except DescriptionError as e:
            raise InputError(f"this is not the description of a model ({e})", file=str(file)) from None

    @staticmethod
    def from_description(description: object, folder: Path) -> Model:
        """The model that plain data describes; the files it needs are in the folder."""
        if not isinstance(description, dict):
            raise DescriptionError("it is not an object of names and values")
        for name, kind in (("name", "str"), ("parts", "list")):
            check_type(name, description.get(name), kind)
        parts = []
        for entry in description["parts"]:
            check_type("a part", entry, "dict")
            check_type("a weight", entry.get("weight"), "float")
            rest = {name: value for name, value in entry.items() if name != "weight"}
            parts.append(Part(entry["weight"], component_from(rest, folder)))
        if not parts:
            raise DescriptionError("it has no parts")
        if len(parts) == 1 and parts[0].weight == 1.0:
            return parts[0].component
        kind = next((kind for kind in Sum.kinds if kind and description.get(kind)), "")
        return Sum.kinds[kind](tuple(parts), description["name"])


class Component(Model):
    """A leaf of every sum: a model with one namespace.

    A component is a `SparseComponent` (weighted terms), a `DenseComponent` (one vector a text), a `TokenComponent` (a
    vector for each token), a `TokenMatchComponent` (the same, compared where tokens are equal) or an `NgramComponent`
    (weighted n-grams). It is a frozen dataclass; a subclass with a `kind` can be stored in an index.
    """

    kind: ClassVar[str]
    """Names the class in saved models and indexes."""
    namespace: str
    expression_options: ClassVar[tuple[str, ...]] = ("fields", "namespace")
    """The options that `expression` prints if they differ from the default."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kind" in vars(cls):
            about = (cls.__doc__ or "").strip().partition("\n")[0]
            COMPONENTS.register(cls.kind, help=about)(cls)

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part(1.0, self),)

    @property
    def needs_texts(self) -> bool:
        return False

    @property
    def counts_words(self) -> bool:
        return False

    @property
    def reads_documents(self) -> bool:
        """Whether it scores the whole document of a passage rather than the passage."""
        return self.fields == (DOCUMENT_TEXT,)

    @property
    def batch_size(self) -> int:
        """How many documents are best encoded at once."""
        return 2000

    @property
    def index_signature(self) -> tuple[Any, ...]:
        """The settings that determine what an index stores; components with equal signatures can share an index."""
        own = (getattr(self, f.name) for f in fields(self) if f.name not in ("name", "namespace"))  # type: ignore[arg-type]
        return self.kind, *own

    @property
    def expression_name(self) -> str:
        """The name or folder that stands for this component in an expression; empty if there is none.

        A component of a plugin goes by the name that its file registers.
        """
        return ""

    def vocabulary(self) -> Iterable[str]:
        """The pieces of words that its network reads; none without a network."""
        return ()

    def with_frozen_statistics(self, held: Component) -> Self:  # noqa: ARG002 (most components freeze nothing)
        """The component with the statistics that were frozen into one of the same signature."""
        return self

    def field_problem(self, content: Mapping[str, Any]) -> str | None:
        """Why the fields of a document cannot be read; None if they can, or are missing."""
        return text_problem(content, self.fields)

    @abstractmethod
    def count(self, documents: Sequence[Fields]) -> Statistics:
        """The statistics of documents in memory."""

    @abstractmethod
    def document_vectors(self, documents: Sequence[Fields], statistics: Statistics) -> Vectors:
        """The vectors of documents under some statistics."""

    @abstractmethod
    def query_vectors(self, texts: Sequence[str], statistics: Statistics) -> Vectors:
        """The vectors of queries under some statistics."""

    def options(self, folder: Path) -> dict[str, Any]:  # noqa: ARG002 (most components need no files)
        """The options as plain data; files the component needs are written to the folder."""
        return dict(vars(self))

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> Self:  # noqa: ARG003
        """The component with these options; files they name are in the folder."""
        return cls(**fields_from_data(cls, options))


class Part(NamedTuple):
    """A component of a sum and its weight."""

    weight: float
    component: Component


COMPONENTS: Registry[Component] = Registry("component", package="vizsla.models")
"""The kinds of components that an index or a saved model can hold."""


def component_from(description: Mapping[str, Any], folder: Path) -> Component:
    """The component that plain data describes; the files it names are in the folder."""
    kind = str(description.get("kind"))
    if kind not in COMPONENTS:
        raise VizslaError(
            f"this version does not know components of the kind {kind!r}; if a plugin has it, name the file in "
            "VIZSLA_PLUGINS, else try a newer version"
        )
    options = {name: value for name, value in description.items() if name != "kind"}
    made: Component = COMPONENTS[kind].make.from_options(options, folder)  # type: ignore[attr-defined]
    return made


@dataclass(frozen=True)
class Sum(Model):
    """Models added up: vectors concatenated, scores added, one inverted index."""

    summands: tuple[Part, ...]
    name: str = ""

    kind: ClassVar[str] = ""
    kinds: ClassVar[dict[str, type[Sum]]] = {}
    """Kinds of sums by the key that marks them in a description."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        Sum.kinds[cls.kind] = cls

    def __post_init__(self) -> None:
        if not all(isinstance(weight, int | float) and math.isfinite(weight) for weight, _ in self.parts):
            raise VizslaError("the weights of a sum must be finite numbers")
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
        parts = [(weight, component.fit(documents)) for weight, component in self.parts]
        return Sum(tuple(Part(w, c) for w, c in parts if isinstance(c, Component)), self.name)

    @property
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(dict.fromkeys(f for p in self.parts for f in p.component.fields))


Sum.kinds[Sum.kind] = Sum


MODELS: Registry[Model] = Registry(
    "model", package="vizsla.models", example='"bm25", "bm25(k1=1.2, b=0.75)" or "bm25 + 0.5 * bm25-wp"',
    first=(
        "bm25", "learned_sparse", "augmenter", "auto_weighted", "coil", "colbert", "counts", "gar",
        "precomputed", "rm3", "seal", "sketch", "spar", "sums", "synonyms", "dense",
    ),
)  # fmt: skip
"""Everything that `parse_model` knows by name. A model of your own registers itself in the same way."""
