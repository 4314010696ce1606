"""Queries drawn from documents: what to train on where there are neither judgements nor a generator.

A style says what of a document becomes a query. The document is judged relevant to it, and all of this is written as a
data set in BEIR's layout, which training reads like any other.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import groupby, pairwise
from math import ceil
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vizsla.datasets import DatasetWriter, Document, article_of, new_dataset
from vizsla.errors import UnknownNameError, VizslaError
from vizsla.expansion.expanding import FIELDS
from vizsla.expansion.output import queries_of
from vizsla.index.storage.corpus_store import CorpusStore
from vizsla.models import field_text, text_problem
from vizsla.models.components import batches_of
from vizsla.plain_data import parse_json
from vizsla.runs.documents import refusal
from vizsla.scratch import StoredTexts
from vizsla.text.random_words import random_number, random_words
from vizsla.text.sentences import sentences_of

SPLIT = "train"
_SENTENCE = 5  # words of a sentence that becomes a query, at least
_KEYWORDS = 2, 6  # words of a keyword query
_RAREST = 1 / 3  # of a document's words, from which keywords are drawn
_FEWEST_RAREST = 6
_BEGINNING = 8, 24  # words of a passage that are a query for the next one
_WORD = re.compile(r"(?<![^\W_])[^\W\d_](?:[^\W_]|['’.-](?=[^\W_]))*")  # begins with a letter
_SLOTS = 1 << 22  # of the table that counts in how many documents a word is


@dataclass(frozen=True)
class DrawingSettings:
    """How many queries are drawn, and how much of them stays in their documents.

    >>> DrawingSettings(per_document=2).removed
    0.9
    """

    per_document: int = 1
    """Queries of a document in each style; a title and the beginning of a passage are one query."""
    max_queries: int = 0
    """Queries of each style, drawn at random from those of all documents; 0 for all."""
    left_out: float = 0.6
    """Words of a sentence that are left out: a share that is drawn for each sentence, up to this."""
    removed: float = 0.9
    """Share of sentences and titles that are taken out of their document, as in the inverse cloze task."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.per_document < 1 or self.max_queries < 0:
            raise VizslaError(
                f"expected 1 or more queries a document and 0 or more of a style, not {self.per_document} and "
                f"{self.max_queries}"
            )
        for name, share, below in (("left out", self.left_out, "below 1"), ("removed", self.removed, "1")):
            if not 0 <= share <= 1 or (below != "1" and share == 1):
                raise VizslaError(f"the share that is {name} must be from 0 to {below}, not {share:g}")


class DrawnQuery(NamedTuple):
    """A query, the numbers of the documents that it was drawn from, and what of which field would tell them."""

    text: str
    documents: Sequence[int]
    field: str = ""
    part: str = ""


Style = Callable[[CorpusStore, DrawingSettings, np.random.Generator], Iterator[DrawnQuery]]


def sentences(documents: CorpusStore, settings: DrawingSettings, rng: np.random.Generator) -> Iterator[DrawnQuery]:
    """Sentences of documents with words left out."""
    for number, document in enumerate(documents):
        all_sentences = sentences_of(_text(document))
        long = [s for s in all_sentences if len(s.split()) >= _SENTENCE]
        for chosen in rng.permutation(len(long))[: settings.per_document].tolist():
            words = long[chosen].split()
            words = random_words(words, ceil(len(words) * (1 - settings.left_out * rng.random())), rng)
            yield DrawnQuery(" ".join(words), [number], "text", long[chosen] if len(all_sentences) > 1 else "")


def keywords(documents: CorpusStore, settings: DrawingSettings, rng: np.random.Generator) -> Iterator[DrawnQuery]:
    """Two to six rare words of a document that other documents have, too."""
    counts = DocumentFrequencies.of(documents)
    for number, document in enumerate(documents):
        words = [word for word in words_of(document) if counts[word] > 1]
        count = max(_FEWEST_RAREST, round(_RAREST * len(words)))
        rarest = set(sorted(words, key=counts.__getitem__)[:count])
        words = [word for word in words if word in rarest]
        if len(words) < _KEYWORDS[0]:
            continue
        for _ in range(settings.per_document):
            yield DrawnQuery(" ".join(random_words(words, random_number(_KEYWORDS, rng), rng)), [number])


def titles(documents: CorpusStore, settings: DrawingSettings, rng: np.random.Generator) -> Iterator[DrawnQuery]:
    """Titles; that of an article is one query for all its passages."""
    del settings, rng
    for _, passages in groupby(enumerate(documents), key=lambda numbered: article_of(numbered[1])):
        article = list(passages)
        if title := _one_line(field_text(article[0][1].content, ("title",))):
            yield DrawnQuery(title, [number for number, _ in article], "title", title)


def next_passages(documents: CorpusStore, settings: DrawingSettings, rng: np.random.Generator) -> Iterator[DrawnQuery]:
    """The beginning of a passage, as a query for the next passage of the article."""
    del settings
    for (_, one), (number, other) in pairwise(enumerate(documents)):
        words = _text(one).split()
        if article_of(one) == article_of(other) and len(words) >= _BEGINNING[0] and _text(other):
            yield DrawnQuery(" ".join(words[: random_number(_BEGINNING, rng)]), [number])


def generated(documents: CorpusStore, settings: DrawingSettings, rng: np.random.Generator) -> Iterator[DrawnQuery]:
    """The first queries that a generator has written for a document, in its field `queries`."""
    del rng
    for number, document in enumerate(documents):
        written = dict.fromkeys(filter(None, map(_one_line, queries_of(document))))
        yield from (DrawnQuery(query, [number]) for query in list(written)[: settings.per_document])


STYLES: Mapping[str, Style] = {
    "sentences": sentences, "keywords": keywords, "titles": titles, "next": next_passages, "generated": generated,
}  # fmt: skip
"""The styles by name. Each has random numbers of its own, so what one draws does not depend on the others."""
DEFAULT_STYLES = ("sentences", "keywords", "titles", "next")
"""Those that need no generator."""


@dataclass
class DrawnDataset:
    """What was written: the numbers of documents, of queries by style, and of documents that lost a part."""

    documents: int = 0
    queries: dict[str, int] = field(default_factory=dict)
    shortened: int = 0


def draw_queries(
    documents: Iterable[Document],
    folder: str | Path,
    styles: Sequence[str] = DEFAULT_STYLES,
    settings: DrawingSettings | None = None,
    *,
    progress: Callable[[int, int], None] = lambda _, __: None,
) -> DrawnDataset:
    """Write documents and queries drawn from them as a data set with train judgements; each query has its style.

    Documents keep title and text; a title or a sentence that is a query may be missing in its document. The same
    documents, styles and settings give the same files. `progress` is called with the number of documents that are
    written and of all. The folder appears when it is complete.

    >>> import tempfile
    >>> from vizsla import BeirDataset
    >>> text = "A vizsla is a dog that points and retrieves. It comes from Hungary."
    >>> folder = Path(tempfile.mkdtemp(), "drawn")
    >>> draw_queries([Document("1", {"title": "Vizsla", "text": text})], folder, ["sentences", "titles"]).queries
    {'sentences': 1, 'titles': 1}
    >>> BeirDataset.open(folder).queries()["titles-0"]
    'Vizsla'
    """
    settings, report = settings or DrawingSettings(), DrawnDataset()
    chosen = list(dict.fromkeys(styles))
    for style in chosen:
        if style not in STYLES:
            raise UnknownNameError("style", style, list(STYLES))
    with new_dataset(folder) as writer:
        store = CorpusStore.of(map(_checked, documents))
        drawn = {style: _drawn(style, store, settings) for style in chosen}
        report.queries = {style: len(queries) for style, queries in drawn.items()}
        if not any(report.queries.values()):
            raise VizslaError(f"no query of the styles {', '.join(chosen)} can be drawn from {len(store):,} documents")
        removals = merge(*(_removals(queries, settings) for queries in drawn.values()), key=lambda one: one.document)
        _write_documents(store, removals, writer, report, progress)
        for style, queries in drawn.items():
            for number, query in enumerate(map(_read, queries)):
                writer.query(f"{style}-{number}", query.text, style=style)
                for document in query.documents:
                    writer.judgement(SPLIT, f"{style}-{number}", store[document].id)
    return report


def _checked(document: Document) -> Document:
    if problem := text_problem(document.content, FIELDS):
        raise refusal(f"the document {document.id!r} {problem}", document.origin)
    return document


def _drawn(style: str, documents: CorpusStore, settings: DrawingSettings) -> Sequence[str]:
    """The queries of a style, as JSON on disk."""
    rng = np.random.default_rng([settings.seed, *style.encode()])
    queries = StoredTexts.of(map(json.dumps, STYLES[style](documents, settings, rng)))
    if not 0 < settings.max_queries < len(queries):
        return queries
    kept = np.sort(rng.permutation(len(queries))[: settings.max_queries])
    return StoredTexts.of(queries[number] for number in kept.tolist())


def _read(line: str) -> DrawnQuery:
    return DrawnQuery(*parse_json(line))


class _Removal(NamedTuple):
    """What is taken out of a field of a document."""

    document: int
    field: str
    part: str


def _removals(queries: Sequence[str], settings: DrawingSettings) -> Iterator[_Removal]:
    """What some of the queries take out of their documents, in the order of these."""
    rng = np.random.default_rng(settings.seed)
    for query in map(_read, queries):
        if query.part and rng.random() < settings.removed:
            yield from (_Removal(document, query.field, query.part) for document in query.documents)


def _write_documents(
    documents: CorpusStore,
    removals: Iterator[_Removal],
    writer: DatasetWriter,
    report: DrawnDataset,
    progress: Callable[[int, int], None],
) -> None:
    """Write title and text of all documents, without what is taken out unless nothing would be left."""
    removal = next(removals, None)
    for batch in batches_of(enumerate(documents)):
        last = documents.numbers([document.id for _, document in batch]).tolist()
        for (number, document), same in zip(batch, last, strict=True):
            if same != number:
                raise refusal(f"two documents have the id {document.id!r}", document.origin)
            content = {name: field_text(document.content, (name,)) for name in FIELDS}
            before = dict(content)
            while removal is not None and removal.document == number:
                content = _without(content, removal)
                removal = next(removals, None)
            writer.document(document.id, content["text"], content["title"])
            report.shortened += content != before
        report.documents = writer.documents
        progress(report.documents, len(documents))


def _without(content: dict[str, str], removal: _Removal) -> dict[str, str]:
    """The fields of a document without a part; all of them if no text would be left."""
    if removal.field == "title":
        return {**content, "title": ""} if content["text"].strip() else content
    before, part, after = content["text"].partition(removal.part)
    rest = f"{before.rstrip()} {after.lstrip()}".strip()
    return {**content, "text": rest} if part and rest else content


class DocumentFrequencies:
    """In how many documents a word is, in a table of fixed size; words that share a slot of it are counted together.

    >>> counts = DocumentFrequencies.of([Document("1", {"text": "a dog"}), Document("2", {"text": "a cat, a dog"})])
    >>> counts["dog"], counts["cat"], counts["cow"]
    (2, 1, 0)
    """

    def __init__(self) -> None:
        self._counts = np.zeros(_SLOTS, np.uint32)

    @classmethod
    def of(cls, documents: Iterable[Document]) -> DocumentFrequencies:
        """Count the words of documents."""
        made = cls()
        for batch in batches_of(documents):
            slots = [slot for document in batch for slot in set(map(_slot, words_of(document)))]
            np.add.at(made._counts, slots, 1)
        return made

    def __getitem__(self, word: str) -> int:
        return int(self._counts[_slot(word)])


def _slot(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "surrogatepass")) % _SLOTS


def words_of(document: Document) -> list[str]:
    """The words of title and text in lower case, each once, in their order.

    >>> words_of(Document("1", {"title": "Dogs", "text": "Dogs don't purr, cats do."}))
    ['dogs', "don't", 'purr', 'cats', 'do']
    """
    return list(dict.fromkeys(_WORD.findall(field_text(document.content, FIELDS).lower())))


def _text(document: Document) -> str:
    return field_text(document.content, ("text",))


def _one_line(text: str) -> str:
    return " ".join(text.split())
