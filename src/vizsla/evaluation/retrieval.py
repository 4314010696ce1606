"""A model on a data set: index, search, evaluate."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from vizsla.datasets import BeirDataset, Document, RawLines
from vizsla.errors import VizslaError
from vizsla.evaluation.answer_matching import accuracy, answer_rank, has_answer
from vizsla.evaluation.conventions import Convention
from vizsla.evaluation.figures import Evaluation, evaluate
from vizsla.index import Index
from vizsla.models import SAMPLE, Model
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
    *,
    combine: str | None = None,
    dense: str | None = None,
) -> Outcome:
    """Index a data set in a folder that is gone afterwards, answer its queries, evaluate.

    `documents`: the data set's own, perhaps watched by a progress bar; None reads them here. `combine` and `dense`: see
    `Index.search_many`.
    """
    qrels = dataset.qrels(split)
    with tempfile.TemporaryDirectory(prefix="vizsla-") as folder:
        started = time.perf_counter()
        settled = fitted_on(dataset, model) if model.needs_corpus_statistics else model
        with Index.create(Path(folder) / "index", settled, store=settled.reads_texts) as index:
            index.add(dataset.documents() if documents is None else documents)
            index.commit()
            index.ask_with(None, combine=combine, dense=dense)
            seconds = {"index": time.perf_counter() - started}
            return evaluate_retriever(index, dataset, qrels, measures, depth, seconds, convention)


def fitted_on(dataset: BeirDataset, model: Model) -> Model:
    """A model with what is to be fitted to documents fitted to those of a data set, all or the first of them."""
    if not model.needs_fit and not model.needs_corpus_statistics:
        return model
    return model.fit(
        [d.content for d in islice(dataset.documents(), None if model.needs_corpus_statistics else SAMPLE)]
    )


def evaluate_retriever(
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
    how = Convention.parse(convention) if isinstance(convention, str) else convention
    run = answer(index, dataset.queries_of(qrels), depth, own_ids=how.own_ids)
    searched = time.perf_counter()
    evaluation = evaluate(run, qrels, parsed, how)
    return Outcome(evaluation, run, len(index), {**(seconds or {}), "search": searched - started})


def answer_accuracy(
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
    ranks = answer_ranks(
        index, questions, answers, max(depths), run=run, model=model, regex=regex, progress=progress
    )  # fmt: skip
    return {f"Acc@{k}": value for k, value in accuracy(ranks, depths).items()}


def answer_ranks(
    index: Index,
    questions: Mapping[str, str],
    answers: Mapping[str, Sequence[str]],
    depth: int,
    *,
    run: Run | None = None,
    model: Model | None = None,
    regex: bool = False,
    progress: Callable[[int, int], None] = lambda _, __: None,
) -> dict[str, int | None]:
    """For each question the rank of the first document that holds an answer; None if none of the first `depth` does."""
    check_texts(index)
    ids = list(questions)
    ranks: dict[str, int | None] = {}
    for first in range(0, len(ids), _QUESTIONS):
        part = ids[first : first + _QUESTIONS]
        for question, texts in _texts_found(index, part, questions, depth, run, model).items():
            ranks[question] = answer_rank(texts, answers[question], regex=regex)
        progress(len(ranks), len(ranks))
    return ranks


def answer_qrels(
    index: Index, runs: Sequence[Run], answers: Mapping[str, Sequence[str]], depth: int, *, regex: bool = False
) -> Qrels:
    """Judgements by answers: of the first `depth` documents of all runs those that hold one, for each question.

    `Success@k` by them is answer accuracy, for the runs and for whatever is made of their documents.
    """
    check_texts(index)
    judged: dict[str, dict[str, int]] = {}
    for question, wanted in answers.items():
        found = dict.fromkeys(d for run in runs if question in run for d in run[question].documents[:depth])
        texts = index.texts(found)
        judged[question] = {d: int(has_answer(texts.get(d, ""), wanted, regex=regex)) for d in found}
    return Qrels(judged)


def check_texts(index: Index) -> None:
    """Refuse an index in whose documents nothing can be looked for."""
    if not index.info()["stored"]:
        raise VizslaError(f"{index.path}: the index keeps no texts, so answers cannot be looked for in them")


def _texts_found(
    index: Index, asked: Sequence[str], questions: Mapping[str, str], depth: int, run: Run | None, model: Model | None
) -> dict[str, list[str]]:
    """For each question the texts of what was found, best first; of a document in passages the one found, or all."""
    if run is None:
        worded = [q for q in asked if questions[q].strip()]
        found = index.search_many([questions[q] for q in worded], depth, model=model)
        texts = {q: [hit.document.get("text") or "" for hit in hits] for q, hits in zip(worded, found, strict=True)}
        return {q: texts.get(q, []) for q in asked}
    wanted = {d for q in asked if q in run for d in run[q].documents[:depth]}
    known = index.texts(wanted)
    return {q: [known.get(d, "") for d in run[q].documents[:depth]] if q in run else [] for q in asked}


def answer(
    index: Index, queries: Mapping[str, str], depth: int = DEPTH, model: Model | None = None, *, own_ids: bool = False
) -> Run:
    """A run as Anserini writes one: equal scores in the order of document ids, the queries' own documents left out.

    Equal scores are then told apart by the least, so that trec_eval, which would order them by descending id, and every
    other reader sees the same order. (On NFCorpus the order of ties alone moves BM25's nDCG@10 from 0.3218 to 0.3206.)
    """
    last = depth - 1 if own_ids else depth  # a query's own document does not count
    k = last + 2
    found = dict(index.run(queries, k, model=model))
    while tied := [q for q, r in found.items() if len(r) == k < len(index) and r.scores[last] == r.scores[-1]]:
        k = 4 * k  # which of the equal ones are in must not depend on the order of insertion
        found |= index.run({q: queries[q] for q in tied}, k, model=model)
    run = Run(found, (model or index.model).name)
    return (run if own_ids else run.without_own_ids()).untied().top(depth)
