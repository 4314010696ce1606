"""Answer accuracy of a retriever: how often the documents it finds hold an answer to the question."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from vizsla.errors import VizslaError, kind_of
from vizsla.evaluation.answer_matching import accuracy, answer_rank, has_answer
from vizsla.runs import Document, Qrels, Retriever, Run

_BATCH = 256  # questions that are searched in one call


def answer_accuracy(
    retriever: Retriever,
    questions: Mapping[str, str],
    answers: Mapping[str, Sequence[str]],
    depths: Sequence[int],
    *,
    run: Run | None = None,
    regex: bool = False,
    progress: Callable[[int, int], None] = lambda _, __: None,
) -> dict[str, float]:
    """Answer accuracy at some depths, `Acc@20`: the share of questions with an answer among the first 20 documents.

    The texts come from the retriever, without titles, as in DPR. `run`: a ranking from elsewhere instead of a search.
    """
    ranks = answer_ranks(retriever, questions, answers, max(depths), run=run, regex=regex, progress=progress)
    return {f"Acc@{k}": value for k, value in accuracy(ranks, depths).items()}


def answer_ranks(
    retriever: Retriever,
    questions: Mapping[str, str],
    answers: Mapping[str, Sequence[str]],
    depth: int,
    *,
    run: Run | None = None,
    regex: bool = False,
    progress: Callable[[int, int], None] = lambda _, __: None,
) -> dict[str, int | None]:
    """For each question the rank of the first document that holds an answer; None if it is deeper than `depth`.

    `progress` is called with the number of questions done so far, twice, as progress bars need it.
    """
    ids = list(questions)
    ranks: dict[str, int | None] = {}
    for first in range(0, len(ids), _BATCH):
        batch = {q: questions[q] for q in ids[first : first + _BATCH]}
        texts = _search_texts(retriever, batch, depth) if run is None else _run_texts(retriever, batch, depth, run)
        for question, some in texts.items():
            ranks[question] = answer_rank(some, answers[question], regex=regex)
        progress(len(ranks), len(ranks))
    return ranks


def answer_qrels(
    retriever: Retriever,
    runs: Sequence[Run],
    answers: Mapping[str, Sequence[str]],
    depth: int,
    *,
    regex: bool = False,
) -> Qrels:
    """Judgements by answers: a document among the first `depth` of any run is relevant if it holds an answer.

    `Success@k` by them is answer accuracy, for the runs and for every fusion or reranking of them.
    """
    judged: dict[str, dict[str, int]] = {}
    for question, wanted in answers.items():
        ids = dict.fromkeys(d for run in runs if question in run for d in run[question].documents[:depth])
        texts = _texts(retriever, list(ids))
        judged[question] = {d: int(has_answer(texts.get(d, ""), wanted, regex=regex)) for d in ids}
    return Qrels(judged)


def _search_texts(retriever: Retriever, questions: Mapping[str, str], depth: int) -> dict[str, list[str]]:
    """For each question the texts of the documents found, best first; of a document in passages the passage found."""
    hits = retriever.search_many(list(questions.values()), depth)
    return {q: [_text(hit.document) for hit in some] for q, some in zip(questions, hits, strict=True)}


def _run_texts(retriever: Retriever, questions: Mapping[str, str], depth: int, run: Run) -> dict[str, list[str]]:
    """For each question the texts of a run's first documents; a document that the retriever lacks has an empty text."""
    rankings = {q: run[q].documents[:depth] if q in run else [] for q in questions}
    texts = _texts(retriever, list(dict.fromkeys(d for documents in rankings.values() for d in documents)))
    return {q: [texts.get(d, "") for d in documents] for q, documents in rankings.items()}


def _texts(retriever: Retriever, ids: Sequence[str]) -> dict[str, str]:
    return {doc_id: _text(document) for doc_id, document in retriever.get_many(ids).items()}


def _text(document: Document) -> str:
    if "text" not in document.content:
        raise VizslaError(
            f"the document {document.id!r} has no text to look for answers in; if its index was built with --no-store, "
            "build it again without"
        )
    text = document.get("text") or ""
    if not isinstance(text, str):
        raise VizslaError(f"the field 'text' of the document {document.id!r} is not a text, but {kind_of(text)}")
    return text
