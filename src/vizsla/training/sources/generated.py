"""Generated queries as training pairs: GenQ, and GPL where a teacher scores them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from vizsla.datasets import Document
from vizsla.datasets.files import read_json_lines
from vizsla.errors import InputError, VizslaError, kind_of
from vizsla.expansion import expand
from vizsla.index.storage.corpus_store import ChosenDocuments, CorpusStore
from vizsla.models import QUERIES, parse_model
from vizsla.models.generator import Sampling, open_generator
from vizsla.text import Analyzer
from vizsla.training.kind import TrainingInputs
from vizsla.training.settings import require_at_least, require_positive, setting
from vizsla.training.sources.judged import NUMBER, AnsweredQueries, numbers_of, ranked_ids, temporary_index
from vizsla.training.sources.pairs import BatchSource, MinedPairs, ScoredPairs, open_pairs
from vizsla.training.sources.source import PAIRS, SOURCE_HELP, drawing_options
from vizsla.training.sources.teacher import SumTeacherSettings, open_teachers, scaled, taught_pairs
from vizsla.training.sources.token_corpus import FIELDS, LINE_BREAK, TokenCorpus

_FILE = "queries.jsonl"  # in the folder of a run: documents with the queries that were generated for them
_SCORES = "teacher.scores"


@dataclass(frozen=True)
class GeneratedSource(SumTeacherSettings):
    """Generated queries, each paired with the document it was written for; the defaults are those of GenQ in BEIR.

    Queries are taken from a document's field `queries`; for documents without it a generator writes them.
    """

    reads_datasets: ClassVar[bool] = False
    document_fields: ClassVar[tuple[str, ...]] = FIELDS
    separator: ClassVar[str] = LINE_BREAK
    generator: str = setting("", "folder or name of a query generator, for documents without a field queries")
    queries_per_document: int = setting(5, "generated queries of a document that are used for training")
    generated_per_document: int = setting(0, "queries that the generator writes; 0 for as many as are used")
    top_k: int = setting(25, "the generator draws from this many tokens; 0 for all")
    top_p: float = setting(0.95, "the generator draws from the likeliest tokens with this share of probability")
    temperature: float = setting(1.0, "above 1 the generator draws unlikely tokens more often")
    max_documents: int = setting(100_000, "documents whose queries are used; of more, a random sample")
    max_own_rank: int = setting(0, "drop queries for which data.negatives ranks their document lower; 0 keeps all")
    negatives_per_query: int = setting(
        0, "hard negatives drawn for a query in each step; 0 for those of the batch only"
    )
    negatives: str = setting(
        "bm25", "model whose best documents are the hard negatives, and that ranks for max_own_rank"
    )
    negatives_depth: int = setting(50, "documents of a ranking that hard negatives are drawn from")
    max_query_length: int = setting(64, "tokens of a query that are read, special ones included")
    max_document_length: int = setting(256, "tokens of a document that are read, special ones included")
    seed: int = setting(0, "seed of the sample of documents and of generated queries")
    source: str = setting("generated", SOURCE_HELP)

    def __post_init__(self) -> None:
        require_at_least(self, "data", 0, "negatives_per_query", "top_k", "max_own_rank")
        require_at_least(self, "data", 1, "queries_per_document", "max_documents", "negatives_depth")
        require_at_least(self, "data", 3, "max_query_length", "max_document_length")
        require_positive(self, "data", "top_p", "temperature")
        self.check_teacher(self.negatives_per_query)

    def prepare(self, inputs: TrainingInputs, analyzer: Analyzer, folder: Path) -> None:
        """Read or generate queries, find negatives and a teacher's scores, and pack all texts."""
        generated_pairs(inputs.documents(), analyzer, self, folder).save(folder / PAIRS)

    def open_pairs(self, folder: Path) -> BatchSource:
        """The queries with their documents, perhaps with negatives and a teacher's scores."""
        return open_pairs(folder / PAIRS, beside=bool(self.beside), **drawing_options(self))

    def open_documents(self, folder: Path) -> TokenCorpus:
        """The packed documents."""
        return TokenCorpus.open(folder / PAIRS / "documents")

    @property
    def searches(self) -> bool:
        """Whether queries are searched for, with the model of `negatives`."""
        return bool(self.negatives_per_query or self.max_own_rank)

    @property
    def sampling(self) -> Sampling:
        """How a generator draws tokens."""
        return Sampling(
            texts=self.generated_per_document or self.queries_per_document, top_k=self.top_k, top_p=self.top_p,
            temperature=self.temperature, seed=self.seed,
        )  # fmt: skip


def generated_pairs(
    documents: Iterable[Document], analyzer: Analyzer, settings: GeneratedSource, folder: Path
) -> MinedPairs | ScoredPairs:
    """Generated queries, each paired with its document; perhaps with hard negatives and a teacher's scores.

    A query that was generated for several documents is answered by all of them. Hard negatives come from all
    documents, including those whose queries are not used. Generated queries and a teacher's scores are stored in the
    folder, so that an interrupted run continues from there.
    """
    answered = generated_queries(CorpusStore.of(documents), settings, folder)
    packed = answered.packed(analyzer)
    mined = replace(
        packed, queries=packed.queries.narrow(), documents=packed.documents.narrow(),
        negatives_per_query=settings.negatives_per_query,
    )  # fmt: skip
    if not settings.teacher:
        return mined
    teachers = open_teachers(settings.teacher)
    given = answered.documents, answered.queries, teachers, folder / _SCORES, settings.open_beside()
    taught = taught_pairs(mined, *given)
    return scaled(taught, settings)


def generated_queries(documents: CorpusStore, settings: GeneratedSource, folder: Path) -> AnsweredQueries:
    """Generated queries with their documents, and hard negatives if the settings require them."""
    everything: Sequence[Document] = documents
    chosen = _sample(len(documents), settings)
    written = queries_of(documents.chosen(chosen), settings, folder)
    numbers = chosen
    if not settings.searches:  # no other document is read
        everything, numbers = documents.chosen(chosen), np.arange(len(chosen))
    pairs = [(query, number) for number, some in zip(numbers.tolist(), written, strict=True) for query in some]
    rankings = _rankings(documents, [query for query, _ in pairs], settings) if settings.searches else None
    kept = _kept(pairs, rankings, settings)
    if not kept:
        raise VizslaError("there is no generated query to learn from; generate more, or keep more of them")
    pairs = [pairs[i] for i in kept]
    positives = _positives(pairs)
    ranked = rankings.chosen(np.array(kept)) if settings.negatives_per_query and rankings is not None else None
    return AnsweredQueries(
        everything, [query for query, _ in pairs], positives, _negatives(positives, ranked, settings)
    )


def queries_of(documents: Sequence[Document], settings: GeneratedSource, folder: Path) -> list[list[str]]:
    """The generated queries of each document, each once; a generator writes those of documents that have none."""
    given = [_given(document) for document in documents]
    missing = [number for number, queries in enumerate(given) if queries is None]
    if settings.generator and missing:
        folder.mkdir(parents=True, exist_ok=True)
        without = ChosenDocuments(documents, np.array(missing))
        expand(without, folder / _FILE, open_generator(settings.generator), settings.sampling)
        for number, (_, record) in zip(missing, read_json_lines(folder / _FILE), strict=True):
            given[number] = record[QUERIES]
    elif len(missing) == len(given):
        raise VizslaError(
            f"the documents have no field {QUERIES!r} with generated queries; write it with vizsla queries generate or "
            "name a generator with --generator"
        )
    return [list(_distinct(queries or ())) for queries in given]


def _given(document: Document) -> list[str] | None:
    """The queries in a document's field `queries`; None if it has no such field."""
    queries = document.content.get(QUERIES)
    if queries is None:
        return None
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        file, line = document.origin or (None, None)
        what = "not a list of texts" if isinstance(queries, list) else f"not a list, but {kind_of(queries)}"
        raise InputError(f"the field {QUERIES!r} of the document {document.id!r} is {what}", file=file, line=line)
    return queries


def _distinct(queries: Iterable[str]) -> Iterator[str]:
    """Queries that are not empty, each once."""
    return iter(dict.fromkeys(stripped for query in queries if (stripped := query.strip())))


def _sample(count: int, settings: GeneratedSource) -> np.ndarray:
    """The numbers of the documents that queries are learnt from, in order."""
    if count <= settings.max_documents:
        return np.arange(count)
    return np.sort(np.random.default_rng(settings.seed).permutation(count)[: settings.max_documents])


def _positives(pairs: Sequence[tuple[str, int]]) -> TokenCorpus:
    """For each pair its document first, and then the other documents with the same query."""
    answers: dict[str, list[int]] = {}
    for query, number in pairs:
        answers.setdefault(query, []).append(number)
    rows = [[number, *(other for other in answers[query] if other != number)] for query, number in pairs]
    return TokenCorpus.of([np.array(row, np.int64) for row in rows])


def _rankings(documents: CorpusStore, queries: Sequence[str], settings: GeneratedSource) -> TokenCorpus:
    """For each query the numbers of the best documents of a model."""
    depth = max(settings.negatives_depth, settings.max_own_rank)
    with temporary_index(documents, parse_model(settings.negatives)) as index:
        return numbers_of(documents, ranked_ids(index, queries, depth))


def _kept(pairs: Sequence[tuple[str, int]], rankings: TokenCorpus | None, settings: GeneratedSource) -> list[int]:
    """The indices of the pairs to use: those that find their document, and not too many of one document."""
    counts: dict[int, int] = {}
    kept = []
    for place, (_, number) in enumerate(pairs):
        if rankings is not None and settings.max_own_rank and number not in rankings[place][: settings.max_own_rank]:
            continue
        counts[number] = counts.get(number, 0) + 1
        if counts[number] <= settings.queries_per_document:
            kept.append(place)
    return kept


def _negatives(positives: TokenCorpus, rankings: TokenCorpus | None, settings: GeneratedSource) -> TokenCorpus:
    """For each query the documents of its ranking that are not its positives; none without rankings."""
    if rankings is None:
        return TokenCorpus(np.zeros(0, np.int64), np.zeros(len(positives) + 1, np.int64))
    firsts = (rankings[i][: settings.negatives_depth] for i in range(len(rankings)))
    negatives: TokenCorpus = TokenCorpus.of(
        (ranked[~np.isin(ranked, positives[i])] for i, ranked in enumerate(firsts)), NUMBER
    )
    if not len(negatives.ids):
        raise VizslaError(
            f"{settings.negatives} finds no document but its own for any query, so there are no negatives"
        )
    return negatives
