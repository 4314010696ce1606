"""SPAR's Lambda: a dense model that imitates a lexical one on queries drawn from documents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from vizsla.datasets import BeirDataset, Document, article_of, question_texts
from vizsla.errors import InputError, VizslaError
from vizsla.index import Index
from vizsla.index.storage.corpus_store import CorpusStore
from vizsla.models import Dense, Model, Spar, field_text, parse_model
from vizsla.models.components import batches_of
from vizsla.neural.lazy_torch import no_grad, torch
from vizsla.scratch import GrowingArray, StoredTexts
from vizsla.text import Analyzer
from vizsla.text.random_words import random_number, random_words
from vizsla.text.sentences import sentences_of
from vizsla.training.kind import TRAINED_KINDS, TrainingData, TrainingInputs
from vizsla.training.kinds.dense import DenseKindBase, DenseNetwork
from vizsla.training.loop.objectives import TAUGHT, ContrastiveLoss
from vizsla.training.loop.products import inner_products
from vizsla.training.settings import TrainingSettings, require_at_least, require_one_of, require_positive, setting
from vizsla.training.sources.dev_set import Assemble, Encode, numbered_folders, text_vectors
from vizsla.training.sources.judged import NUMBER, SEP_HELP, ranked_ids, separator_of, temporary_index
from vizsla.training.sources.pairs import BatchSource, MinedPairs
from vizsla.training.sources.source import PAIRS, drawing_options
from vizsla.training.sources.token_corpus import (
    FIELDS,
    GrowingCorpus,
    TextPacker,
    TokenCorpus,
    packed_texts,
    read_texts,
)

if TYPE_CHECKING:
    from torch import Tensor


_IMITATION = "imitation"  # the folders of dev questions, numbered, in that of a run
_RANKED = 4096  # queries whose documents are looked up at once
SAMPLED, ALL, NONE = "sampled", "all", "none"
QUESTIONS_HELP = (
    "real questions that are queries, too: files, folders of data sets, or a split of one (FOLDER:train), separated by "
    "commas"
)
_SHORT_QUERY = 3, 10  # words
_QUESTION_BODY = 2, 8  # words of a sentence in a made-up question
_QUESTION_START = 1, 3  # words of a real question that a made-up question begins with


@dataclass(frozen=True)
class ImitationSource:
    """Sentences of documents, and questions, with a teacher's first documents as positives and later ones as negatives.

    The defaults are those of SPAR on Wikipedia. There queries are sentences: from the i-th document with the same
    title, one in `sentence_thinning * i` sentences is drawn, and at least one. On MS MARCO all sentences are queries
    (`sentences=all`); SPAR's models of NQ and PAQ learn from questions alone (`sentences=none` and `questions`).

    >>> ImitationSource().depth
    50
    """

    reads_datasets: ClassVar[bool] = False
    document_fields: ClassVar[tuple[str, ...]] = FIELDS
    teacher: str = setting("bm25", "the model to imitate")
    depth: int = setting(50, "documents of the teacher's ranking")
    top_positives: int = setting(10, "first documents of the ranking that are positives")
    bottom_negatives: int = setting(5, "last documents of the ranking that are negatives")
    negatives_per_query: int = setting(1, "negatives drawn for a query in each step")
    positive_decay: float = setting(1.0, "how likely a positive is drawn, relative to the one ranked before it")
    max_query_length: int = setting(64, "tokens of a query that are read, special ones included")
    max_document_length: int = setting(224, "tokens of a document that are read, special ones included")
    sentences: str = setting(
        SAMPLED, "sentences of documents that are queries: sampled (fewer of an article's later passages), all or none"
    )
    sentence_thinning: float = setting(1.2, "the higher, the fewer sentences are sampled from later passages")
    short_queries: float = setting(0.0, "share of sentences that are cut to three to ten random words")
    max_sentences: int = setting(0, "sentences that are queries at most, drawn at random; 0 for all of the above")
    questions: str = setting("", QUESTIONS_HELP)
    max_questions: int = setting(0, "questions that are queries at most, drawn at random; 0 for all")
    question_queries: float = setting(0.0, "share of sentences that are reworded like the real questions")
    dev_questions: str = setting("", "dev questions for SPAR's validation MRR; named as questions are")
    seed: int = setting(0, "seed of the drawn queries")
    sep_after_title: bool = setting(False, SEP_HELP)

    def __post_init__(self) -> None:
        if (
            min(self.top_positives, self.bottom_negatives) < 1
            or self.top_positives + self.bottom_negatives > self.depth
        ):
            raise VizslaError(
                f"data.top_positives {self.top_positives} and data.bottom_negatives {self.bottom_negatives} do not fit "
                f"data.depth {self.depth}: both must be 1 or more, and together at most the depth"
            )
        require_one_of("data.sentences", self.sentences, (SAMPLED, ALL, NONE))
        require_positive(self, "data", "sentence_thinning")
        require_at_least(self, "data", 0, "max_sentences", "max_questions")
        if not 0 <= self.short_queries <= 1:
            raise VizslaError(f"data.short_queries must be between 0 and 1, not {self.short_queries:g}")
        rest = 1 - self.short_queries
        if not 0 <= self.question_queries <= rest:
            raise VizslaError(f"data.question_queries must be between 0 and {rest:g}, not {self.question_queries:g}")
        stems = [_label(name) for name in _names(self.dev_questions)]
        if len(set(stems)) < len(stems):
            raise VizslaError("two files of data.dev_questions have the same name; figures go by name, so rename one")
        if self.question_queries and not self.questions:
            raise VizslaError("data.question_queries needs real questions, as in --set data.questions=train.jsonl")
        if self.sentences == NONE and (self.short_queries or self.question_queries):
            raise VizslaError(
                "data.short_queries and data.question_queries change sentences, and data.sentences=none draws none"
            )

    @property
    def separator(self) -> str:
        """What is between the fields of a document."""
        return separator_of(self.sep_after_title)

    def prepare(self, inputs: TrainingInputs, analyzer: Analyzer, folder: Path) -> None:
        """Draw queries, rank the documents with the teacher, and pack all texts."""
        data = imitation_data(inputs.documents(), parse_model(self.teacher), analyzer, self)
        data.pairs.save(folder / PAIRS)
        for number, dev in enumerate(data.dev):
            dev.save(folder / f"{_IMITATION}-{number}")

    def open_pairs(self, folder: Path) -> BatchSource:
        """The queries with their positives and negatives."""
        return MinedPairs.open(folder / PAIRS, **drawing_options(self), positive_decay=self.positive_decay or None)

    def open_documents(self, folder: Path) -> TokenCorpus:
        """The packed documents."""
        return TokenCorpus.open(folder / PAIRS / "documents")

    def open_imitation(self, folder: Path) -> list[ImitationDev]:
        """The dev questions with the teacher's documents."""
        lengths = {"max_query_length": self.max_query_length, "max_document_length": self.max_document_length}
        return [ImitationDev.open(place, **lengths) for place in numbered_folders(folder, _IMITATION)]


@dataclass(frozen=True)
class LambdaSettings:
    """The settings of a dense model that imitates a teacher."""

    network: DenseNetwork = field(default_factory=DenseNetwork)
    data: ImitationSource = field(default_factory=ImitationSource)
    loss: ContrastiveLoss = field(default_factory=ContrastiveLoss)
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def __post_init__(self) -> None:
        if self.loss.name in TAUGHT:
            raise VizslaError(f"loss.name={self.loss.name} learns a teacher's scores, but lambda learns its ranking")


def read_questions(settings: ImitationSource) -> Sequence[str]:
    """The real questions that the settings name, on disk; a file named twice counts twice."""
    names = _names(settings.questions)
    questions = StoredTexts.of(chain.from_iterable(map(_questions_in, names)))
    if names and not len(questions):
        raise VizslaError(f"there are no questions in {settings.questions}")
    return _at_most(settings.max_questions, questions, (settings.seed, 3))


def _questions_in(name: str) -> Iterator[str]:
    """The questions of a file, of a data set, or of one split of a data set (FOLDER:SPLIT)."""
    folder, colon, split = name.rpartition(":")
    if colon and Path(folder).is_dir():
        dataset = BeirDataset.open(folder)
        return iter(dataset.queries_of(dataset.qrels(split)).values())
    return question_texts(name)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _label(name: str) -> str:
    """What a file of questions is called in figures.

    >>> _label("data/nq-dev.qa.csv"), _label("data/dpr-nq:dev")
    ('nq-dev', 'dpr-nq-dev')
    """
    return Path(name).name.partition(".")[0].replace(":", "-")


def _at_most(count: int, texts: Sequence[str], seed: tuple[int, ...]) -> Sequence[str]:
    """`count` random texts in their order; 0 for all."""
    if not 0 < count < len(texts):
        return texts
    chosen = np.random.default_rng(seed).permutation(len(texts))[:count]
    return StoredTexts.of(map(texts.__getitem__, np.sort(chosen).tolist()))


def drawn_queries(
    documents: Iterable[Document], settings: ImitationSource, questions: Sequence[str] = ()
) -> Iterator[str]:
    """Sentences of documents, all or fewer of later passages of an article (neighbouring documents with one title).

    Reworded sentences begin like one of `questions`.
    """
    if settings.sentences == NONE:
        return
    rng = np.random.default_rng(settings.seed)
    for _, article in groupby(documents, key=article_of):
        for place, document in enumerate(article):
            sentences = sentences_of(field_text(document.content, ("text",)))
            if not sentences:
                continue
            share = settings.sentence_thinning * (place + 1) if settings.sentences == SAMPLED else 1
            for chosen in rng.permutation(len(sentences))[: max(1, round(len(sentences) / share))].tolist():
                draw = rng.random() if settings.short_queries or settings.question_queries else 1.0
                words = sentences[chosen].split()
                if draw < settings.short_queries:
                    words = random_words(words, random_number(_SHORT_QUERY, rng), rng)
                elif draw < settings.short_queries + settings.question_queries:
                    words = _as_question(words, field_text(document.content, ("title",)), questions, rng)
                yield " ".join(words)


def _as_question(words: list[str], title: str, questions: Sequence[str], rng: np.random.Generator) -> list[str]:
    """The first words of a question, then some words of a sentence, perhaps with the title."""
    count = random_number(_QUESTION_BODY, rng)
    if rng.random() < 0.5:
        first = int(rng.integers(max(1, len(words) - count + 1)))
        body = words[first : first + count]
    else:
        body = random_words(words, count, rng)
    if rng.random() < 0.5:
        title_words = re.sub(r"\(.*?\)", "", title).split()
        body = title_words + body if rng.random() < 0.5 else body + title_words
    start = questions[int(rng.integers(len(questions)))].split()[: random_number(_QUESTION_START, rng)]
    return start + body


_FIRST, _DEV_NAME = "first.npy", "name.txt"


@dataclass(frozen=True, eq=False)
class ImitationDev:
    """Questions, and a pool of documents: for each question the teacher's first document and one of its last."""

    name: str
    queries: TokenCorpus
    documents: TokenCorpus
    """The pool, each document once."""
    first: np.ndarray
    """[queries] which document of the pool the teacher ranks first."""
    max_query_length: int = 64
    max_document_length: int = 224

    @classmethod
    def of(
        cls,
        name: str,
        queries: TokenCorpus,
        collection: TokenCorpus,
        first: np.ndarray,
        last: np.ndarray,
        *,
        max_query_length: int = 64,
        max_document_length: int = 224,
    ) -> ImitationDev:
        """From the numbers of the teacher's documents in a collection: its first for each query, and one of its last.

        >>> texts = TokenCorpus.pack([[7], [8], [9], [6]])
        >>> dev = ImitationDev.of("dev", TokenCorpus.pack([[7], [9]]), texts, np.array([0, 2]), np.array([2, 3]))
        >>> len(dev.documents), dev.first.tolist()
        (3, [0, 1])
        """
        pool = np.unique(np.concatenate([first, last]))
        documents = collection.chosen(pool)
        return cls(name, queries, documents, np.searchsorted(pool, first), max_query_length, max_document_length)

    def save(self, folder: str | Path) -> None:
        """Write all arrays into a folder."""
        path = Path(folder)
        self.documents.save(path / "documents")
        self.queries.save(path / "queries")
        np.save(path / _FIRST, self.first, allow_pickle=False)
        (path / _DEV_NAME).write_text(self.name, "utf-8")

    @classmethod
    def open(cls, folder: str | Path, *, max_query_length: int = 64, max_document_length: int = 224) -> ImitationDev:
        """A saved dev set."""
        path = Path(folder)
        try:
            first, name = np.load(path / _FIRST, allow_pickle=False), (path / _DEV_NAME).read_text("utf-8")
        except (FileNotFoundError, ValueError):
            raise InputError(f"there is no dev set here (no {_FIRST} and {_DEV_NAME})", file=str(folder)) from None
        documents, queries = TokenCorpus.open(path / "documents"), TokenCorpus.open(path / "queries")
        return cls(name, queries, documents, first, max_query_length, max_document_length)

    @no_grad
    def figures(self, encode: Encode, assemble: Assemble, device: torch.device) -> dict[str, float]:
        """The mean reciprocal rank of the teacher's first document in the pool; of equal scores the worst rank."""

        def vectors(texts: TokenCorpus, side: int, max_length: int) -> Tensor:
            return torch.cat([*text_vectors(texts, side, max_length, encode, assemble, device)])

        queries = vectors(self.queries, 0, self.max_query_length)
        scores = inner_products(queries, vectors(self.documents, 1, self.max_document_length))
        own = scores.gather(1, torch.from_numpy(np.asarray(self.first, np.int64)).to(device)[:, None])
        ranks = (scores >= own).sum(1)
        return {f"{self.name} MRR": float((1 / ranks.double()).mean())}


class ImitationData(NamedTuple):
    """Training pairs from a teacher, and the dev questions on which the model is compared with it."""

    pairs: MinedPairs
    dev: list[ImitationDev]


def imitation_data(
    documents: Iterable[Document], teacher: Model, analyzer: Analyzer, settings: ImitationSource
) -> ImitationData:
    """Queries drawn from documents, with the first and the last documents of the teacher's ranking; and dev questions.

    Queries for which the teacher finds fewer than `depth` documents are left out.
    """
    documents, questions = CorpusStore.of(documents), read_questions(settings)
    drawn = _at_most(
        settings.max_sentences, StoredTexts.of(drawn_queries(documents, settings, questions)), (settings.seed, 1)
    )
    queries = StoredTexts.of(chain(questions, drawn)) if len(questions) else drawn
    dev_questions = {name: StoredTexts.of(_questions_in(name)) for name in _names(settings.dev_questions)}
    which = " and ".join([*(["the sentences"] if len(drawn) else []), *(["the questions"] if len(questions) else [])])
    with temporary_index(documents, teacher) as index:
        ranked = _rank(queries, which, documents, index, analyzer, settings)
        dev_ranked = {
            _label(name): _rank(some, f"the questions in {name}", documents, index, analyzer, settings)
            for name, some in dev_questions.items()
        }
    texts = packed_texts(read_texts(documents, FIELDS, settings.separator), analyzer)
    pairs = MinedPairs(ranked.queries, texts, ranked.positives, ranked.negatives)
    return ImitationData(pairs, [_imitation_dev(name, one, texts, settings) for name, one in dev_ranked.items()])


class _Ranked(NamedTuple):
    queries: TokenCorpus
    positives: TokenCorpus
    negatives: TokenCorpus  # as the teacher ranks them, the last one last


def _rank(
    queries: Sequence[str], which: str, documents: CorpusStore, index: Index, analyzer: Analyzer,
    settings: ImitationSource,
) -> _Ranked:  # fmt: skip
    """The queries for which the teacher finds enough documents, as token ids, and its first and last documents."""
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


def _imitation_dev(name: str, ranked: _Ranked, texts: TokenCorpus, settings: ImitationSource) -> ImitationDev:
    """The first document for each question, and one of the last, drawn at random."""
    count = len(ranked.queries)
    places = np.random.default_rng((settings.seed, 2)).integers(1, settings.bottom_negatives + 1, count)
    firsts = ranked.positives.ids.reshape(count, -1).astype(np.int64)[:, 0]
    lasts = ranked.negatives.ids.reshape(count, -1).astype(np.int64)[np.arange(count), -places]
    return ImitationDev.of(name, ranked.queries, texts, firsts, lasts)


@TRAINED_KINDS.register(
    "lambda", help="A dense model that imitates a lexical one (SPAR).", needs=("torch", "transformers", "onnx")
)
class LambdaKind(DenseKindBase[LambdaSettings]):
    """Trains a dense model on sentences of documents with a teacher's ranking."""

    settings_class = LambdaSettings

    def check_inputs(self, inputs: TrainingInputs) -> None:
        """Refuse settings without queries, before anything is read."""
        super().check_inputs(inputs)
        if self.settings.data.sentences == NONE and not self.settings.data.questions:
            raise VizslaError(
                f"{self.name} learns from questions; name them, as in --set data.questions=train.jsonl, or take "
                "sentences of the documents with --set data.sentences=sampled"
            )

    def open_data(self, folder: Path) -> TrainingData:
        """The pairs, the dev sets, and the dev questions on which the model is compared with its teacher."""
        data = super().open_data(folder)
        return TrainingData(data.pairs, [*data.dev, *self.settings.data.open_imitation(folder)])

    def with_companion(self, model: Dense, weight: float) -> Spar:
        """The frozen companion and the model as one; the companion is the first part and weighs 1."""
        return Spar(self.companion(weight), model, 1 / weight, namespace=self.name, name=self.name)

    def usage(self, output: Path) -> str:
        """A command that indexes with the model."""
        alone = super().usage(output)
        return alone if self.settings.network.companion else f'{alone}, or "spar(dense=minilm, lexical={output})"'
