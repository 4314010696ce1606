"""Search the queries of a data set, and evaluate what comes back."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from vizsla.datasets import BeirDataset, Document, RawLines
from vizsla.evaluation.conventions import Convention
from vizsla.evaluation.figures import Evaluation, evaluate
from vizsla.index import Index
from vizsla.models import SAMPLE, Model
from vizsla.runs import DEFAULT_MEASURES, Measure, Retriever, Run, parse_measures

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

    `documents`: those of the data set, perhaps behind a progress bar; None reads them here. `combine` and
    `search_params`: see `Index.with_model`.
    """
    dataset.qrels(split)  # a split that is not there is refused before the work
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
    count = None if model.needs_corpus_statistics else SAMPLE
    return model.fit([document.content for document in islice(dataset.documents(), count)])


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
        k = 4 * k  # which of the equal ones are in must not depend on the order of insertion
        rankings |= retriever.run({q: queries[q] for q in tied}, k)
    run = Run(rankings, retriever.name)
    return (run if own_ids else run.without_own_ids()).untied().top(depth)
