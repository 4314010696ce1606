"""Search the queries of a data set, and evaluate what comes back: figures, imitation of a teacher, reranking depths."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from vizsla.datasets import BeirDataset, Document, RawLines
from vizsla.errors import VizslaError
from vizsla.evaluation.figures import Convention, Evaluation, evaluate
from vizsla.index import Index, scores_among
from vizsla.index.storage.corpus_store import CorpusStore
from vizsla.models import SAMPLE, Model
from vizsla.retrievers import PairScores, rerank_by_scores
from vizsla.runs import DEFAULT_MEASURES, Measure, Qrels, Retriever, Run, parse_measures

DEPTH = 1000


@dataclass(frozen=True)
class EvaluatedRun:
    """A run, its figures, how many documents were searched, and how many seconds each step took."""

    evaluation: Evaluation
    run: Run
    documents: int
    seconds: dict[str, float]


def evaluate_retriever(
    retriever: Retriever,
    dataset: BeirDataset,
    split: str = "test",
    measures: str | Sequence[str | Measure] = DEFAULT_MEASURES,
    depth: int = DEPTH,
    convention: str | Convention = "anserini",
) -> EvaluatedRun:
    """Search the judged queries of a data set's split with any retriever, and evaluate the run.

    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp(), "pets")
    >>> (folder / "qrels").mkdir(parents=True)
    >>> lines = '{"_id": "1", "text": "Dogs bark."}\\n{"_id": "2", "text": "Cats purr."}\\n'
    >>> _ = (folder / "corpus.jsonl").write_text(lines)
    >>> _ = (folder / "queries.jsonl").write_text('{"_id": "q", "text": "dog"}\\n')
    >>> _ = (folder / "qrels" / "test.tsv").write_text("query-id\\tcorpus-id\\tscore\\nq\\t1\\t1\\n")
    >>> with Index.create(folder.with_name("pets.index")) as index:
    ...     _ = index.add(BeirDataset.open(folder).documents())
    ...     _ = index.commit()
    ...     evaluate_retriever(index, BeirDataset.open(folder)).evaluation.measures
    {'nDCG@10': 1.0, 'R@100': 1.0}
    """
    parsed = parse_measures(measures)
    qrels = dataset.qrels(split)
    started = time.perf_counter()
    rules = Convention.parse(convention) if isinstance(convention, str) else convention
    run = retrieve(retriever, dataset.queries_of(qrels), depth, own_ids=rules.own_ids)
    seconds = {"search": time.perf_counter() - started}
    return EvaluatedRun(evaluate(run, qrels, parsed, rules), run, len(retriever), seconds)


def evaluate_model(
    model: Model,
    dataset: BeirDataset,
    split: str = "test",
    measures: str | Sequence[str | Measure] = DEFAULT_MEASURES,
    depth: int = DEPTH,
    convention: str | Convention = "anserini",
    *,
    documents: Iterable[Document | RawLines] | None = None,
    combine: str | None = None,
    search_params: str | None = None,
) -> EvaluatedRun:
    """Index a data set with a model in a temporary folder, search its judged queries, and evaluate the run.

    `documents`: those of the data set, perhaps with a progress bar; None reads them here. `combine` and
    `search_params`: see `Index.with_model`.
    """
    dataset.qrels(split)  # raise an error for a missing split before the work begins
    dataset = dataset.reading(model.fields)
    with tempfile.TemporaryDirectory(prefix="vizsla-") as folder:
        started = time.perf_counter()
        fitted = fit_to_dataset(model, dataset) if model.needs_corpus_statistics else model
        with Index.create(Path(folder) / "index", fitted, store=fitted.needs_texts) as index:
            index.add(dataset.documents() if documents is None else documents)
            index.commit()
            retriever = index.with_model(combine=combine, search_params=search_params)
            indexing = time.perf_counter() - started
            evaluated = evaluate_retriever(retriever, dataset, split, measures, depth, convention)
    return replace(evaluated, seconds={"index": indexing, **evaluated.seconds})


def fit_to_dataset(model: Model, dataset: BeirDataset) -> Model:
    """A model fitted to the documents of a data set, to all or to a sample, if it needs that; else the model itself."""
    if not model.needs_fit and not model.needs_corpus_statistics:
        return model
    if model.needs_corpus_statistics:
        return model.fit(CorpusStore.of(dataset.documents()).contents)
    return model.fit([document.content for document in islice(dataset.documents(), SAMPLE)])


def retrieve(retriever: Retriever, queries: Mapping[str, str], depth: int = DEPTH, *, own_ids: bool = False) -> Run:
    """A run as Anserini writes one: equal scores in the order of document ids, without the queries' own documents.

    A query's own document is the one with the query's id; `own_ids` keeps it. Equal scores are then made slightly
    different, so that trec_eval, which orders them by descending id, and every other reader see the same order. (On
    NFCorpus the order of ties alone moves BM25's nDCG@10 from 0.3218 to 0.3206.)
    """
    last = depth - 1 if own_ids else depth  # a query's own document does not count
    k = last + 2
    rankings = dict(retriever.run(queries, k))
    size = len(retriever)
    while tied := [q for q, r in rankings.items() if len(r) == k < size and r.scores[last] == r.scores[-1]]:
        k = 4 * k  # with ties at the end, the choice must not depend on the order of insertion
        rankings |= retriever.run({q: queries[q] for q in tied}, k)
    run = Run(rankings, retriever.name)
    return (run if own_ids else run.without_own_ids()).untied().top(depth)


@dataclass(frozen=True)
class ImitationPool:
    """Questions with the teacher's first document for each; the pool also has one low-ranked document per question."""

    texts: Sequence[str]
    documents: Sequence[str]
    first: np.ndarray
    """[questions] which document of the pool the teacher ranks first."""

    @classmethod
    def search(
        cls,
        index: Index,
        teacher: str | Model,
        texts: Mapping[str, str],
        *,
        depth: int = 50,
        last: int = 5,
        seed: int = 0,
    ) -> ImitationPool:
        """The pool of questions in an index: the teacher's first document and one of the last `last` of its `depth`.

        Questions for which the teacher finds fewer than `depth` documents are left out. A document is in the pool once.
        """
        if not 1 <= last < depth:
            raise VizslaError(f"expected 1 <= last < depth for the pool, not last={last} and depth={depth}")
        run = retrieve(index.with_model(teacher), texts, depth)
        ranked = {q: run[q].documents for q in texts if q in run and len(run[q]) == depth}
        if not ranked:
            raise VizslaError(f"the teacher finds {depth} documents for none of the questions")
        places = np.random.default_rng(seed).integers(1, last + 1, len(ranked)).tolist()
        pooled = [(ranking[0], ranking[-place]) for ranking, place in zip(ranked.values(), places, strict=True)]
        numbers: dict[str, int] = {}
        for pair in pooled:
            for document in pair:
                numbers.setdefault(document, len(numbers))
        first = np.array([numbers[document] for document, _ in pooled], np.int64)
        return cls([texts[q] for q in ranked], list(numbers), first)

    def mrr(self, index: Index, model: str | Model) -> float:
        """The mean reciprocal rank that a model in the same index gives the teacher's first document in the pool.

        A document with the same score counts as ranked before it.
        """
        scores = scores_among(index, self.texts, self.documents, index.with_model(model).model)
        reciprocal: list[float] = []
        for block in scores:
            own = self.first[len(reciprocal) : len(reciprocal) + len(block)]
            ranks = (block >= block[np.arange(len(block)), own][:, None]).sum(1)
            reciprocal += (1 / ranks).tolist()
        return float(np.mean(reciprocal))


@dataclass(frozen=True)
class DepthResult:
    """The figures of a first stage with its first `depth` documents reranked; depth 0 is the first stage alone."""

    run: str
    depth: int
    measures: dict[str, float]
    recall: float | None
    """The recall of the first stage at this depth, which limits what any reranker can reach."""
    seconds: float
    """How long reranking takes for a query."""


def evaluate_at_depths(
    runs: Mapping[str, Run],
    scores: PairScores,
    qrels: Qrels,
    measures: str | Sequence[str | Measure],
    depths: Sequence[int],
    convention: str = "anserini",
) -> list[DepthResult]:
    """The figures of first stages at several depths, by scores that were computed once for the deepest."""
    wanted = parse_measures(measures)
    results = []
    for name, run in runs.items():
        for depth in (0, *depths):
            recall = Measure("R", depth) if depth else None
            reranked = rerank_by_scores(run, scores.scores, depth) if depth else run
            figures = evaluate(reranked, qrels, wanted, convention).measures
            reached = evaluate(run, qrels, [recall], convention).measures[str(recall)] if recall else None
            seconds = scores.seconds_per_query(run, depth) if depth else 0.0
            results.append(DepthResult(name, depth, figures, reached, seconds))
    return results


def parse_depths(text: str) -> list[int]:
    """Depths from a text, ascending, each once.

    >>> parse_depths("50,5,10,5")
    [5, 10, 50]
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise VizslaError(f"{text!r} are no depths; expected something like 5,10,50,100")
    return sorted({int(part) for part in parts})
