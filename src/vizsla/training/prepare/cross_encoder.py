"""What a cross-encoder is trained on: judged and generated queries with hard negatives, perhaps scored by a teacher."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vizsla.datasets import BeirDataset, Document
from vizsla.errors import VizslaError
from vizsla.models import BM25, QUERIES, Model, Reranker, field_text
from vizsla.text import Analyzer
from vizsla.training.inputs import TrainingInputs
from vizsla.training.prepare.answers import AnsweredQueries
from vizsla.training.prepare.generated import GeneratedQueries, generated_queries
from vizsla.training.prepare.judged import (
    NEGATIVES_DEPTH,
    check_run_has_one_dataset,
    first_stage_rankings,
    judgement_rows,
    positives_and_negatives,
)
from vizsla.training.prepare.teacher import TeacherSettings, open_teachers, scaled, taught_pairs
from vizsla.training.prepare.texts import FIELDS, packed_texts
from vizsla.training.schema import setting
from vizsla.training.settings import require_at_least

if TYPE_CHECKING:
    from vizsla.training.arrays.cross_encoder import CrossEncoderData, CrossEncoderDev
    from vizsla.training.arrays.mined_pairs import MinedPairs
    from vizsla.training.arrays.scored_pairs import ScoredPairs


@dataclass(frozen=True)
class CrossEncoderDataSettings(TeacherSettings):
    """Which documents a query is trained with, whose scores are learnt, and what is reranked in dev sets."""

    max_queries: int = setting(0, "train queries of a data set; of more a random sample is taken; 0 for all")
    queries_per_document: int = setting(5, "generated queries of a document of --corpus that are learnt from")
    max_documents: int = setting(100_000, "documents of --corpus with queries; of more a random sample is taken")
    negatives_per_query: int = setting(7, "hard negatives drawn for a query in each step")
    negatives: str = setting("", "TREC run or model whose best documents are the hard negatives; else BM25")
    negatives_depth: int = setting(1000, "documents of a ranking that hard negatives are drawn from")
    kept_negatives: int = setting(0, "hard negatives of a query that are kept, drawn at random once; 0 for all")
    candidates: str = setting("", "TREC run or model whose documents are reranked in dev sets; else as for negatives")
    candidates_depth: int = setting(NEGATIVES_DEPTH, "candidates of a dev query")
    max_query_length: int = setting(64, "tokens of a query that are read, special ones included")
    max_length: int = setting(256, "tokens of query and document together, special ones included")
    seed: int = setting(0, "seed of the samples of queries, documents and negatives")

    def __post_init__(self) -> None:
        positive = "negatives_per_query", "negatives_depth", "candidates_depth", "queries_per_document", "max_documents"
        require_at_least(self, "data", 1, *positive)
        require_at_least(self, "data", 0, "max_queries", "kept_negatives")
        self.check_teacher(self.negatives_per_query)

    @property
    def dev_first_stage(self) -> str:
        """What ranks the candidates of dev queries."""
        return self.candidates or self.negatives or "bm25"

    @property
    def generated(self) -> GeneratedQueries:
        """How generated queries are read, and which negatives they get."""
        return GeneratedQueries(
            queries_per_document=self.queries_per_document, max_documents=self.max_documents,
            negatives_per_query=self.negatives_per_query, negatives=self.negatives or "bm25",
            negatives_depth=self.negatives_depth, seed=self.seed,
        )  # fmt: skip

    def open_teachers(self) -> list[Model | Reranker]:
        """The teachers; a cross-encoder reads no more of a pair than the one that learns from it."""
        return [self._as_short(one) if isinstance(one, Reranker) else one for one in open_teachers(self.teacher)]

    def _as_short(self, teacher: Reranker) -> Reranker:
        lengths = min(teacher.query_length, self.max_query_length), min(teacher.length, self.max_length)
        return replace(teacher, query_length=lengths[0], length=lengths[1])


def cross_encoder_data(
    settings: CrossEncoderDataSettings, analyzer: Analyzer, inputs: TrainingInputs, folder: Path
) -> CrossEncoderData:
    """Train queries with hard negatives and a teacher's scores, and dev queries with candidates, as arrays.

    A teacher's scores are kept in the folder, so that a run that was stopped there goes on.
    """
    from vizsla.training.arrays.cross_encoder import CrossEncoderData

    check_run_has_one_dataset(settings.dev_first_stage, inputs.dev)
    pairs = cross_encoder_pairs(settings, analyzer, inputs, folder)
    dev = [cross_encoder_dev(dataset, analyzer, settings) for dataset in inputs.dev]
    return CrossEncoderData(pairs, dev, analyzer.tokenizer.content)  # type: ignore[attr-defined]


def cross_encoder_pairs(
    settings: CrossEncoderDataSettings, analyzer: Analyzer, inputs: TrainingInputs, folder: Path
) -> MinedPairs | ScoredPairs:
    """All train queries, judged and generated ones together."""
    from vizsla.training.arrays.mined_pairs import MinedPairs
    from vizsla.training.arrays.scored_pairs import ScoredPairs

    collections = _collections(settings, inputs, folder)
    if not settings.teacher:
        return MinedPairs.concatenate([one.packed(analyzer) for one in collections])
    teachers = settings.open_teachers()
    taught = [
        taught_pairs(one.packed(analyzer), one.documents, one.queries, teachers, folder / f"teacher-{number}.scores")
        for number, one in enumerate(collections)
    ]
    return scaled(ScoredPairs.concatenate(taught), settings)


def _collections(settings: CrossEncoderDataSettings, inputs: TrainingInputs, folder: Path) -> Iterator[AnsweredQueries]:
    """The queries of each data set, then the generated ones."""
    check_run_has_one_dataset(settings.negatives, inputs.datasets)
    corpus = None if inputs.corpus is None else _expanded(inputs.corpus, settings)
    for dataset in inputs.datasets:
        rng = np.random.default_rng(settings.seed)
        yield _judged(dataset, settings, rng).thinned(settings.kept_negatives, rng)
    if corpus is not None:
        rng = np.random.default_rng(settings.seed)
        yield generated_queries(corpus, settings.generated, folder).thinned(settings.kept_negatives, rng)


def _expanded(corpus: Iterable[Document], settings: CrossEncoderDataSettings) -> list[Document]:
    """The documents, which must have generated queries, and no run as their first stage."""
    documents = list(corpus)
    if Path(settings.negatives).is_file():
        raise VizslaError(
            f"{settings.negatives}: a run has no generated queries, those of --corpus; name a model instead"
        )
    if not any(QUERIES in document.content for document in documents):
        raise VizslaError(
            f"the documents have no field {QUERIES!r} with generated queries; write it with vizsla queries generate or "
            "name judged queries with --dataset"
        )
    return documents


def _judged(dataset: BeirDataset, settings: CrossEncoderDataSettings, rng: np.random.Generator) -> AnsweredQueries:
    queries, documents = dataset.queries_of(dataset.qrels("train")), list(dataset.documents())
    if settings.max_queries and len(queries) > settings.max_queries:
        names = list(queries)
        chosen = np.sort(rng.permutation(len(names))[: settings.max_queries])
        queries = {names[i]: queries[names[i]] for i in chosen.tolist()}
    bm25, depth = BM25(fields=FIELDS), settings.negatives_depth
    numbers = positives_and_negatives(documents, queries, dataset, "train", bm25, settings.negatives, depth)
    return AnsweredQueries(documents, list(queries.values()), *numbers)


def cross_encoder_dev(
    dataset: BeirDataset, analyzer: Analyzer, settings: CrossEncoderDataSettings, split: str = "dev"
) -> CrossEncoderDev:
    """A data set's judged queries with the candidates of a first stage."""
    from vizsla.training.arrays.cross_encoder import CrossEncoderDev
    from vizsla.training.arrays.token_corpus import TokenCorpus

    qrels = dataset.qrels(split)
    queries, documents = dataset.queries_of(qrels), list(dataset.documents())
    rankings = first_stage_rankings(settings.dev_first_stage, documents, queries, settings.candidates_depth)
    numbers = {d.id: i for i, d in enumerate(documents)}
    candidates = [np.array([numbers[d] for d in rankings[q] if d in numbers and d != q], np.int64) for q in queries]
    return CrossEncoderDev.of(
        dataset.name,
        packed_texts(list(queries.values()), analyzer),
        packed_texts([field_text(d.content, FIELDS) for d in documents], analyzer),
        TokenCorpus.of(candidates),
        judgement_rows(documents, queries, qrels),
        max_query_length=settings.max_query_length,
        max_length=settings.max_length,
    )
