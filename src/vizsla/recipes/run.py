"""A model on a data set: index, search, evaluate."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vizsla.datasets import BeirDataset, Document, RawLines
from vizsla.evaluation import Evaluation, evaluate
from vizsla.index import Index
from vizsla.models import Model
from vizsla.runs import Qrels, Run, parse_measures

DEPTH = 1000


@dataclass(frozen=True)
class Outcome:
    """What came out of a model on a data set, and how long each step took."""

    evaluation: Evaluation
    run: Run
    documents: int
    seconds: dict[str, float]


def evaluate_model(
    model: Model,
    dataset: BeirDataset,
    split: str,
    measures: list[str],
    depth: int = DEPTH,
    documents: Iterable[Document | RawLines] | None = None,
) -> Outcome:
    """Index a data set in a folder that is gone afterwards, answer its queries, evaluate.

    `documents`: the data set's own, perhaps watched by a progress bar; None reads them here.
    """
    qrels = dataset.qrels(split)
    with tempfile.TemporaryDirectory(prefix="vizsla-") as folder:
        started = time.perf_counter()
        with Index.create(Path(folder) / "index", model) as index:
            index.add(dataset.documents() if documents is None else documents)
            index.commit()
            indexed = time.perf_counter()
            return evaluate_index(index, dataset, qrels, measures, depth, {"index": indexed - started})


def evaluate_index(
    index: Index,
    dataset: BeirDataset,
    qrels: Qrels,
    measures: list[str],
    depth: int = DEPTH,
    seconds: dict[str, float] | None = None,
) -> Outcome:
    """Answer the queries a data set has judgements for, and evaluate."""
    parsed = parse_measures(measures)
    queries = {q: text for q, text in dataset.queries().items() if q in qrels.judgements}
    started = time.perf_counter()
    run = index.run(queries, depth + 1).without_own_ids()  # one more, as a query's own document does not count
    run = Run({q: ranking[:depth] for q, ranking in run.rankings.items()})
    searched = time.perf_counter()
    evaluation = evaluate(run, qrels, parsed)
    return Outcome(evaluation, run, len(index), {**(seconds or {}), "search": searched - started})
