"""BM25 over documents of several languages: one part a language, with analysis and statistics of its own.

Each document is in one part, so it is scored by the query as its language analyses it, with the document frequencies,
the number of documents and the mean length of its language. A part counts by how many of the query's words it knows. A
part for all other languages takes what no part is for.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from vizsla.errors import LanguageWarning, VizslaError, kind_of
from vizsla.models.bm25 import BM25, DocumentCounter, bm25_of, multiplied
from vizsla.models.components import SearchContext, SparseDocumentEncoder, SparseDocuments
from vizsla.models.fields import Fields, field_text
from vizsla.models.model import MODELS, Component, Model, Sum
from vizsla.models.statistics import Statistics
from vizsla.plain_data import fields_from_data
from vizsla.spec import Option
from vizsla.text import Analyzer
from vizsla.text.detection import count_languages, document_language, is_english_vocabulary
from vizsla.text.languages import GENERAL, LANGUAGES, Language, parse_language
from vizsla.vectors import SparseVectors

OTHER = "other"
"""Stands for all languages that have no part."""
_SMALLEST_SHARE, _FEWEST = 0.01, 3
"""The share of the documents, and the documents, that a language must have to get a part of its own."""
_FITTING = 4
"""Chosen on a collection of ten languages; see docs/languages.md."""
_FOREIGN = 0.1
"""The share of documents in other languages that an English model may have without a warning."""
LANGUAGE_SAMPLE = 100
"""Documents that are looked at before a warning."""


@dataclass(frozen=True)
class LanguageBM25(BM25):
    """BM25 over the documents of one language; a part of `multilingual`.

    `languages`: those of all parts. `main`: the language of documents whose own cannot be told.
    """

    language: str = "en"
    languages: tuple[str, ...] = ("en",)
    main: str = "en"

    kind: ClassVar[str] = "bm25-language"
    reads_every_document: ClassVar[bool] = False

    @property
    def index_signature(self) -> tuple[Any, ...]:
        return *super().index_signature, self.language, self.languages, self.main

    @property
    def expression_name(self) -> str:
        return ""

    @property
    def counts_words(self) -> bool:
        return False

    def document_encoder(self) -> SparseDocumentEncoder:
        return _OneLanguage(self)

    def query_terms(self, texts: Sequence[str], context: SearchContext | None = None) -> Sequence[dict[str, float]]:
        rows = super().query_terms(texts)
        return rows if context is None else multiplied(rows, texts, self, context.statistics_of(self))

    def query_vectors(self, texts: Sequence[str], statistics: Statistics) -> SparseVectors:
        rows = multiplied(self.query_terms(texts), texts, self, statistics)
        return SparseVectors.from_rows(self.query_weights(rows, statistics), self.namespace)

    def query_factor(self, text: str, statistics: Statistics) -> float:
        """The share of a query's words that are in documents of the language or are its stop words, to a power.

        So documents in the language of the query come before those in others that share a name or a number with it. A
        query of which the language knows nothing has the factor 1.
        """
        words = self.text_analyzer.terms_by_word(text)
        terms = list(dict.fromkeys(term for word in words for term in word))
        known = dict(zip(terms, (statistics.document_frequencies(terms) > 0).tolist(), strict=True))
        count = sum(not word or any(known[term] for term in word) for word in words)
        return (count / len(words)) ** _FITTING if count else 1.0

    def has(self, document: Fields) -> bool:
        """Whether a document belongs to this part: by its field `language`, else by its text."""
        found = _language_of(document, self.fields)
        code = self.main if found is None else found.code
        return (code if code in self.languages else OTHER) == self.language

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> LanguageBM25:
        types = {"analyzer": "str", "fields": "tuple[str, ...]", "languages": "tuple[str, ...]"}
        values = fields_from_data(cls, options, **types)
        return cls(**{**values, "analyzer": Analyzer.parse(values["analyzer"], folder)})


def in_language(model: Model, language: str) -> Model:
    """A model for documents of several languages, without its parts for languages other than those named.

    Parts that are for no language stay.

    >>> both = multilingual(["de", "en"])
    >>> in_language(both, "de").namespaces, in_language(both, "en,other").namespaces
    (('words-de',), ('words-en', 'words-other'))
    """
    wanted = languages_wanted(language)
    languages = [_part_language(part.component) for part in model.parts]
    held = [code for code in languages if code is not None]
    if not held:
        raise VizslaError(f"{model.name} has no parts for languages, so a query cannot be analysed in {language}")
    if missing := [code for code in wanted if code not in held]:
        what = "all other languages" if missing[0] == OTHER else LANGUAGES[missing[0]].name.capitalize()
        raise VizslaError(f"{model.name} has no part for {what}; language is one of {', '.join(held)}")
    kept = [part for part, code in zip(model.parts, languages, strict=True) if code is None or code in wanted]
    return kept[0].component if len(kept) == 1 and kept[0].weight == 1 else Sum(tuple(kept))


def languages_wanted(language: object) -> tuple[str, ...]:
    """The codes of the languages that a query is to be analysed in, as in `de` or `de,other`."""
    if not isinstance(language, str):
        raise VizslaError(f"language is a text, as in 'de', not {kind_of(language)}")
    names = [name.strip() for name in language.split(",")]
    return tuple(OTHER if name.lower() == OTHER else parse_language(name).code for name in names)


def _part_language(component: Component) -> str | None:
    words = bm25_of(component)
    return words.language if isinstance(words, LanguageBM25) else None


def part_has(component: Component, document: Fields) -> bool:
    """Whether a part of a model reads a document: one for a language reads those of the language, others read all."""
    words = bm25_of(component)
    return not isinstance(words, LanguageBM25) or words.has(document)


class _OneLanguage(DocumentCounter):
    """Counts terms of the documents of one language; the others have none."""

    def __init__(self, model: LanguageBM25) -> None:
        super().__init__(model)
        self._model = model

    def encode(self, documents: Sequence[Fields]) -> SparseDocuments:
        return super().encode([document if self._model.has(document) else {} for document in documents])


def multilingual(languages: Sequence[str], main: str = "", **options: Any) -> Model:
    """BM25 for documents of these languages, and of others; `main` is the language of documents that do not tell.

    >>> multilingual(["de", "en"]).namespaces
    ('words-de', 'words-en', 'words-other')
    """
    codes = tuple(dict.fromkeys(parse_language(language).code for language in languages))
    if not codes:
        raise VizslaError("multilingual needs the languages of the documents, as in multilingual(languages=de/en)")
    default = parse_language(main).code if main else codes[0]
    if default not in codes:
        raise VizslaError(f"the main language {default} is not among the languages {', '.join(codes)}")
    parts = [
        LanguageBM25(
            **{
                "analyzer": LANGUAGES[code].analyzer if code != OTHER else GENERAL,
                "namespace": f"words-{code}", "name": f"bm25-{code}",
                "language": code, "languages": codes, "main": default, **options,
            }
        )
        for code in (*codes, OTHER)
    ]  # fmt: skip
    return Sum(tuple(part for component in parts for part in component.parts), f"multilingual({', '.join(codes)})")


@MODELS.register(
    "multilingual",
    help="BM25 over documents of several languages, each analysed in its own.",
    options=(
        Option("languages", "tuple[str, ...]", ("en",), "codes separated by /, as in de/en"),
        Option("main", "str", "", "the language of documents that do not tell theirs; the first by default"),
        Option("k1", "float", 0.9, "term frequency saturation"),
        Option("b", "float", 0.4, "length normalisation, from 0 to 1"),
    ),
)
def _multilingual(languages: tuple[str, ...] = ("en",), main: str = "", **options: Any) -> Model:
    return multilingual(languages, main, **options)


def language_model(languages: Sequence[str]) -> Model:
    """The model of documents in some languages, the first of which is the main one: BM25, or `multilingual`.

    >>> language_model(["en"]).name, str(language_model(["de"]).analyzer), language_model(["de", "en"]).name
    ('bm25', 'german', 'multilingual(de, en)')
    """
    codes = list(dict.fromkeys(parse_language(language).code for language in languages))
    if len(codes) != 1:
        return multilingual(codes)
    return BM25(analyzer=LANGUAGES[codes[0]].analyzer)


class DetectedModel(NamedTuple):
    """The model for some documents, and what was found in them."""

    model: Model
    languages: tuple[Language, ...]
    """The main language first."""
    counts: Counter[str]
    looked_at: int

    @property
    def remark(self) -> str:
        """What was found, in a line; empty if it is English or nothing, for which the model is plain BM25."""
        if self.languages[0].code == "en" and len(self.languages) == 1:
            return ""
        names = [language.name.capitalize() for language in self.languages]
        listed = names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
        how = f"analysed by {self.languages[0].analyzer}" if len(names) == 1 else "each analysed in its own"
        seen = sum(self.counts[language.code] for language in self.languages)
        found = f"{seen:,} of {self.looked_at:,} documents looked at are {listed}"
        return f"{found}: {how}; --language or --model changes this"


def detect_model(documents: Iterable[Fields], fields: Sequence[str] = ("title", "text")) -> DetectedModel:
    """The BM25 for the languages of some documents; a language of fewer than one in a hundred gets no part.

    >>> detected = detect_model([{"text": "Der Hund ist nicht in dem Garten, sondern auf der Straße."}] * 3)
    >>> str(detected.model.analyzer), detected.remark.partition(";")[0]
    ('german', '3 of 3 documents looked at are German: analysed by german')
    """
    found = [_language_of(document, fields) for document in documents]
    counts = count_languages(found)
    needed = max(_FEWEST, _SMALLEST_SHARE * sum(counts.values()))
    codes = [code for code, n in counts.most_common() if n >= needed]
    codes = codes or [*(code for code, _ in counts.most_common(1)), "en"][:1]
    return DetectedModel(language_model(codes), tuple(LANGUAGES[code] for code in codes), counts, len(found))


def has_network(model: Model) -> bool:
    """Whether a part of a model may have been trained for some languages alone."""
    return any(type(part.component).vocabulary is not Component.vocabulary for part in model.parts)


def warn_of_language(model: Model, documents: Sequence[Fields]) -> None:
    """Say in one sentence that documents are in a language that a network of the model was not made for."""
    found = [_language_of(document, part.component.fields) for part in model.parts[:1] for document in documents]
    counts = count_languages(found)
    foreign = [(code, n) for code, n in counts.most_common() if code != "en"]
    number = sum(n for _, n in foreign)
    if not foreign or number < max(min(_FEWEST, len(found)), _FOREIGN * len(found)):
        return
    names = [part.component.name for part in model.parts if is_english_vocabulary(part.component.vocabulary())]
    if names:
        language = LANGUAGES[foreign[0][0]]
        others = " or another language" if len(foreign) > 1 else ""
        warnings.warn(
            f"{number:,} of {len(found):,} documents looked at are in {language.name.capitalize()}{others}, and "
            f"{names[0]} knows the words of English alone; BM25 of the language finds more, as in --language "
            f"{language.code}, or a multilingual encoder, as in dense(checkpoint=hf:BAAI/bge-m3)",
            LanguageWarning,
            stacklevel=2,
        )


def _language_of(document: Fields, fields: Sequence[str]) -> Language | None:
    declared = None if isinstance(document, str) else document.get("language")
    return document_language(declared, field_text(document, fields))


def languages_named(text: str) -> list[str]:
    """The codes of languages that are named in a list, as in `de,en`."""
    return [parse_language(name).code for name in text.split(",")]


def mismatch(model: Model, documents: Iterable[Fields]) -> str:
    """A line that says that documents are in a language other than those a model analyses; empty if they are not.

    Documents are looked at only where the model says which languages it analyses.
    """
    words = [bm25 for part in model.parts if (bm25 := bm25_of(part.component)) is not None]
    own = {component.language for component in words if isinstance(component, LanguageBM25)}
    analyzers = {component.text_analyzer for component in words}
    known_by = {code: {of.analyzer, f"lucene-{of.name}", f"snowball-{of.name}"} for code, of in LANGUAGES.items()}
    known_by |= {code: known_by[code] | {"cjk", "lucene-cjk"} for code in ("ja", "ko", "zh")}
    held = own or {code for code, names in known_by.items() if names & set(map(str, analyzers))}
    if not held:
        return ""
    detected = detect_model(documents)
    foreign = [of for of in detected.languages if of.code not in held and detected.counts[of.code]]
    if not foreign:
        return ""
    known = ", ".join(LANGUAGES[code].name.capitalize() for code in sorted(held - {OTHER}))
    found = f"{foreign[0].name.capitalize()} documents are added to an index of {known}"
    how = "they are analysed as text of any language" if own else f"they are analysed as {known}"
    return f"{found}: {how}; build the index again to have them in their own"
