"""Queries drawn from documents, with the ranking of a teacher to imitate: how SPAR's Lambda is trained."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vizsla.datasets import Document, read_queries
from vizsla.errors import VizslaError
from vizsla.index.storage.document_store import DocumentStore
from vizsla.models import Model, field_text
from vizsla.models.components import batches_of
from vizsla.scratch import GrowingArray, StoredTexts
from vizsla.text import Analyzer
from vizsla.text.sentences import sentences_of
from vizsla.training.prepare.judged import NUMBER, ranked_ids, temporary_index
from vizsla.training.prepare.texts import FIELDS, TextPacker, packed_texts
from vizsla.training.settings import require_positive, setting

if TYPE_CHECKING:
    from vizsla.index import Index
    from vizsla.training.arrays.dev_set import ImitationDev
    from vizsla.training.arrays.pairs import MinedPairs
    from vizsla.training.arrays.token_corpus import TokenCorpus

_RANKED = 4096  # queries whose documents are looked up at once
_SHORT_QUERY = 3, 10  # words
_QUESTION_BODY = 2, 8  # words of a sentence in a made-up question
_QUESTION_START = 1, 3  # words of a real question that a made-up question begins with


@dataclass(frozen=True)
class DistillationSettings:
    """How queries are drawn from documents, and which documents of the teacher's ranking are positives and negatives.

    The defaults are those of SPAR. From the i-th document with the same title, one in `sentence_thinning * i` sentences
    is drawn, and at least one.

    >>> DistillationSettings().depth
    50
    """

    teacher: str = setting("bm25", "the model to imitate")
    depth: int = setting(50, "documents of the teacher's ranking")
    top_positives: int = setting(10, "first documents of the ranking that are positives")
    bottom_negatives: int = setting(5, "last documents of the ranking that are negatives")
    negatives_per_query: int = setting(1, "negatives drawn for a query in each step")
    positive_decay: float = setting(1.0, "how likely a positive is drawn, relative to the one ranked before it")
    max_query_length: int = setting(64, "tokens of a query that are read, special ones included")
    max_document_length: int = setting(224, "tokens of a document that are read, special ones included")
    sentence_thinning: float = setting(1.2, "the higher, the fewer sentences are drawn from later passages")
    short_queries: float = setting(0.0, "share of sentences that are cut to three to ten random words")
    questions: str = setting("", "files of real questions that are used as queries as well, separated by commas")
    question_queries: float = setting(0.0, "share of sentences that are reworded like the real questions")
    max_queries: int = setting(0, "queries drawn from sentences at most; 0 for all")
    dev_questions: str = setting("", "files of dev questions, separated by commas, for SPAR's validation MRR")
    seed: int = setting(0, "seed of the drawn queries")

    def __post_init__(self) -> None:
        if (
            min(self.top_positives, self.bottom_negatives) < 1
            or self.top_positives + self.bottom_negatives > self.depth
        ):
            raise VizslaError(
                f"data.top_positives {self.top_positives} and data.bottom_negatives {self.bottom_negatives} do not fit "
                f"data.depth {self.depth}: both must be 1 or more, and together at most the depth"
            )
        require_positive(self, "data", "sentence_thinning")
        if not 0 <= self.short_queries <= 1:
            raise VizslaError(f"data.short_queries must be between 0 and 1, not {self.short_queries:g}")
        rest = 1 - self.short_queries
        if not 0 <= self.question_queries <= rest:
            raise VizslaError(f"data.question_queries must be between 0 and {rest:g}, not {self.question_queries:g}")
        stems = [file.name.partition(".")[0] for file in _files(self.dev_questions)]
        if len(set(stems)) < len(stems):
            raise VizslaError("two files of data.dev_questions have the same name; figures go by name, so rename one")
        if self.question_queries and not self.questions:
            raise VizslaError("data.question_queries needs real questions, as in --set data.questions=train.jsonl")


def read_questions(settings: DistillationSettings) -> list[str]:
    """The real questions in the files of the settings; a file named twice counts twice."""
    files = _files(settings.questions)
    questions = [text for file in files for text in read_queries(file).values()]
    if files and not questions:
        raise VizslaError(f"there are no questions in {settings.questions}")
    return questions


def _files(names: str) -> list[Path]:
    return [Path(name.strip()) for name in names.split(",") if name.strip()]


def drawn_queries(
    documents: Iterable[Document], settings: DistillationSettings, questions: Sequence[str] = ()
) -> Iterator[str]:
    """Random sentences of documents, fewer of later passages of an article (neighbouring documents with one title).

    Reworded sentences begin like one of `questions`.
    """
    rng = np.random.default_rng(settings.seed)
    for _, article in groupby(documents, key=lambda d: d.content.get("title") or d.id):
        for place, document in enumerate(article):
            sentences = sentences_of(field_text(document.content, ("text",)))
            if not sentences:
                continue
            count = max(1, round(len(sentences) / (settings.sentence_thinning * (place + 1))))
            for chosen in rng.permutation(len(sentences))[:count].tolist():
                draw = rng.random() if settings.short_queries or settings.question_queries else 1.0
                words = sentences[chosen].split()
                if draw < settings.short_queries:
                    words = _random_words(words, _random_number(_SHORT_QUERY, rng), rng)
                elif draw < settings.short_queries + settings.question_queries:
                    words = _as_question(words, field_text(document.content, ("title",)), questions, rng)
                yield " ".join(words)


def _as_question(words: list[str], title: str, questions: Sequence[str], rng: np.random.Generator) -> list[str]:
    """The first words of a question, then some words of a sentence, perhaps with the title."""
    count = _random_number(_QUESTION_BODY, rng)
    if rng.random() < 0.5:
        first = int(rng.integers(max(1, len(words) - count + 1)))
        body = words[first : first + count]
    else:
        body = _random_words(words, count, rng)
    if rng.random() < 0.5:
        title_words = re.sub(r"\(.*?\)", "", title).split()
        body = title_words + body if rng.random() < 0.5 else body + title_words
    start = questions[int(rng.integers(len(questions)))].split()[: _random_number(_QUESTION_START, rng)]
    return start + body


def _random_words(words: list[str], count: int, rng: np.random.Generator) -> list[str]:
    return [words[i] for i in sorted(rng.permutation(len(words))[:count].tolist())]


def _random_number(bounds: tuple[int, int], rng: np.random.Generator) -> int:
    return int(rng.integers(bounds[0], bounds[1] + 1))


class DistillationData(NamedTuple):
    """Training pairs from a teacher, and the dev questions on which the model is compared with it."""

    pairs: MinedPairs
    dev: list[ImitationDev]


def distillation_data(
    documents: Iterable[Document], teacher: Model, analyzer: Analyzer, settings: DistillationSettings
) -> DistillationData:
    """Queries drawn from documents, with the first and the last documents of the teacher's ranking; and dev questions.

    Queries for which the teacher finds fewer than `depth` documents are left out.
    """
    from vizsla.training.arrays.pairs import MinedPairs

    documents, questions = DocumentStore.of(documents), read_questions(settings)
    drawn = StoredTexts.of(drawn_queries(documents, settings, questions))
    if settings.max_queries and len(drawn) > settings.max_queries:
        chosen = np.random.default_rng((settings.seed, 1)).permutation(len(drawn))[: settings.max_queries]
        drawn = StoredTexts.of(map(drawn.__getitem__, np.sort(chosen).tolist()))
    queries = StoredTexts.of(chain(questions, drawn)) if questions else drawn
    dev_questions = {file: list(read_queries(file).values()) for file in _files(settings.dev_questions)}
    with temporary_index(documents, teacher) as index:
        ranked = _rank(queries, "the sentences", documents, index, analyzer, settings)
        dev_ranked = {
            file.name.partition(".")[0]: _rank(
                questions_of_file, f"the questions in {file}", documents, index, analyzer, settings
            )
            for file, questions_of_file in dev_questions.items()
        }
    texts = packed_texts(documents.texts(FIELDS), analyzer)
    pairs = MinedPairs(ranked.queries, texts, ranked.positives, ranked.negatives)
    return DistillationData(pairs, [_imitation_dev(name, one, texts, settings) for name, one in dev_ranked.items()])


class _Ranked(NamedTuple):
    queries: TokenCorpus
    positives: TokenCorpus
    negatives: TokenCorpus  # as the teacher ranks them, the last one last


def _rank(
    queries: Sequence[str], which: str, documents: DocumentStore, index: Index, analyzer: Analyzer,
    settings: DistillationSettings,
) -> _Ranked:  # fmt: skip
    """The queries for which the teacher finds enough documents, as token ids, and its first and last documents."""
    from vizsla.training.arrays.token_corpus import GrowingCorpus, TokenCorpus

    packer, depth = TextPacker(analyzer), settings.depth
    kept_queries = GrowingCorpus(packer.dtype)
    firsts, lasts = GrowingArray(NUMBER), GrowingArray(NUMBER)
    found = batches_of(zip(queries, ranked_ids(index, queries, depth), strict=True), _RANKED)
    for block in found:
        tokens, lengths = packer.block([query for query, _ in block])
        kept = np.array([len(ranking) == depth for _, ranking in block]) & (lengths > 0)
        kept_queries.append(tokens[np.repeat(kept, lengths)], lengths[kept])
        best = [doc_id for (_, ranking), keeps in zip(block, kept.tolist(), strict=True) if keeps for doc_id in ranking]
        numbers = documents.numbers(best).reshape(-1, depth)
        firsts.append(numbers[:, : settings.top_positives].ravel())
        lasts.append(numbers[:, -settings.bottom_negatives :].ravel())
    if not len(kept_queries):
        raise VizslaError(f"{index.model.name} finds {settings.depth} documents for none of {which}")
    sides = (
        TokenCorpus(numbers.array(), np.arange(len(kept_queries) + 1) * count)
        for numbers, count in ((firsts, settings.top_positives), (lasts, settings.bottom_negatives))
    )
    return _Ranked(kept_queries.corpus(), *sides)


def _imitation_dev(name: str, ranked: _Ranked, texts: TokenCorpus, settings: DistillationSettings) -> ImitationDev:
    """The first document for each question, and one of the last, drawn at random."""
    from vizsla.training.arrays.dev_set import ImitationDev

    count = len(ranked.queries)
    places = np.random.default_rng((settings.seed, 2)).integers(1, settings.bottom_negatives + 1, count)
    firsts = ranked.positives.ids.reshape(count, -1).astype(np.int64)[:, 0]
    lasts = ranked.negatives.ids.reshape(count, -1).astype(np.int64)[np.arange(count), -places]
    return ImitationDev.of(name, ranked.queries, texts, firsts, lasts)
