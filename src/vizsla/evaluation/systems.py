"""A model on a data set: index, search, evaluate."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vizsla.datasets import BeirDataset, Document, RawLines
from vizsla.evaluation.answers import accuracy, answer_ranks
from vizsla.evaluation.conventions import Convention
from vizsla.evaluation.figures import Evaluation, evaluate
from vizsla.index import Index
from vizsla.models import Model
from vizsla.runs import Qrels, Run, parse_measures

DEPTH = 1000
_QUESTIONS = 256  # answered together


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
    convention: str | Convention = "anserini",
) -> Outcome:
    """Index a data set in a folder that is gone afterwards, answer its queries, evaluate.

    `documents`: the data set's own, perhaps watched by a progress bar; None reads them here.
    """
    qrels = dataset.qrels(split)
    with tempfile.TemporaryDirectory(prefix="vizsla-") as folder:
        started = time.perf_counter()
        with Index.create(Path(folder) / "index", model, store=False) as index:
            index.add(dataset.documents() if documents is None else documents)
            index.commit()
            seconds = {"index": time.perf_counter() - started}
            return evaluate_index(index, dataset, qrels, measures, depth, seconds, convention)


def evaluate_index(
    index: Index,
    dataset: BeirDataset,
    qrels: Qrels,
    measures: list[str],
    depth: int = DEPTH,
    seconds: dict[str, float] | None = None,
    convention: str | Convention = "anserini",
) -> Outcome:
    """Answer the queries a data set has judgements for, and evaluate."""
    parsed = parse_measures(measures)
    started = time.perf_counter()
    run = answer(index, dataset.queries_of(qrels), depth)
    searched = time.perf_counter()
    evaluation = evaluate(run, qrels, parsed, convention)
    return Outcome(evaluation, run, len(index), {**(seconds or {}), "search": searched - started})


def answer_figures(
    index: Index,
    questions: Mapping[str, str],
    answers: Mapping[str, Sequence[str]],
    depths: Sequence[int],
    *,
    run: Run | None = None,
    model: Model | None = None,
    regex: bool = False,
    progress: Callable[[int, int], None] = lambda _, __: None,
) -> dict[str, float]:
    """Answer accuracy at some depths, `Acc@20`: the share of questions with an answer among the documents found.

    The texts come from the index, without titles, as in DPR. `run`: a ranking from elsewhere instead of a search.
    """
    ids, deepest = list(questions), max(depths)
    ranks: dict[str, int | None] = {}
    for first in range(0, len(ids), _QUESTIONS):
        part = ids[first : first + _QUESTIONS]
        texts: dict[str, str] = {}
        if run is None:
            rankings = index.search_many([questions[q] for q in part], deepest, model=model)
            found = Run({q: [(hit.id, hit.score) for hit in hits] for q, hits in zip(part, rankings, strict=True)})
            texts = {hit.id: hit.document.get("text") or "" for hits in rankings for hit in hits}
        else:
            found = run.only(part)
            wanted = {d for ranking in found.values() for d in ranking.documents[:deepest]}
            texts = {d: document.get("text") or "" for d, document in index.get_many(wanted).items()}
        ranks |= answer_ranks(found, {q: answers[q] for q in part}, texts, deepest, regex=regex)
        progress(len(ranks), len(ranks))
    return {f"Acc@{k}": value for k, value in accuracy(ranks, depths).items()}


def answer(index: Index, queries: Mapping[str, str], depth: int = DEPTH, model: Model | None = None) -> Run:
    """A run as Anserini writes one: without the queries' own documents, equal scores in the order of document ids.

    Equal scores are then told apart by the least, so that trec_eval, which would order them by descending id, and every
    other reader sees the same order. (On NFCorpus the order of ties alone moves BM25's nDCG@10 from 0.3218 to 0.3206.)
    """
    found = index.run(queries, depth + 1, model=model)  # one more, as a query's own document does not count
    run = found.without_own_ids().untied().top(depth)
    return Run(run, (model or index.model).name)
