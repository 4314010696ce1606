"""Answer accuracy: how often the documents that a retriever finds hold an answer, matched as DPR does."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache

import numpy as np

from vizsla.errors import VizslaError, kind_of
from vizsla.runs import Document, Qrels, Retriever, Run


@cache
def _word_pattern() -> re.Pattern[str]:
    """Matches a sequence of letters, digits and marks, or any other single character that is visible.

    Python's regular expressions have no Unicode categories, so the classes are written out as ranges.
    """
    inside: list[str] = []
    outside: list[str] = []
    for first, last, group in _category_ranges():
        text = f"{re.escape(chr(first))}-{re.escape(chr(last))}"
        (inside if group == "word" else outside).append(text)
    return re.compile(f"[{''.join(inside)}]+|[^{''.join(inside)}{''.join(outside)}]")


def _category_ranges() -> Iterable[tuple[int, int, str]]:
    """Ranges of code points that are part of words (L, N, M) or never part of words (Z, C)."""
    start, current = 0, ""
    for code in range(sys.maxunicode + 2):
        category = unicodedata.category(chr(code))[0] if code <= sys.maxunicode else "end"
        group = "word" if category in "LNM" else "none" if category in "ZC" else "sign"
        if group != current or code > sys.maxunicode:
            if current in ("word", "none"):
                yield start, code - 1, current
            start, current = code, group


def words_of(text: str) -> list[str]:
    """The words of a text as DPR's tokenizer finds them, in lower case.

    >>> words_of("Zoe's 2nd dog (1999)")
    ['zoe', "'", 's', '2nd', 'dog', '(', '1999', ')']
    """
    return [word.lower() for word in _word_pattern().findall(unicodedata.normalize("NFD", text))]


@lru_cache(maxsize=50_000)
def _joined(text: str) -> str:
    """A text's words between separators that no word contains, so that a sequence of words is a substring."""
    return "\x00" + "\x00".join(words_of(text)) + "\x00"


def has_answer(text: str, answers: Sequence[str], *, regex: bool = False) -> bool:
    """Whether a text holds one of the answers.

    >>> has_answer("It was built in 1889 by Gustave Eiffel.", ["gustave eiffel", "Eiffel"])
    True
    >>> has_answer("The towers of Paris", ["tower"]), has_answer("The towers", ["tow.r"], regex=True)
    (False, True)
    """
    if regex:
        patterns = [p for p in map(_pattern, answers) if p is not None]
        return any(p.search(unicodedata.normalize("NFD", text)) for p in patterns)
    possible = [answer for answer in answers if _is_possible(text, answer)]
    if not possible:
        return False
    joined = _joined(text)
    return any(wanted != "\x00\x00" and wanted in joined for wanted in map(_joined, possible))


def _is_possible(text: str, answer: str) -> bool:
    """A quick check whether a text may hold an answer: an ASCII text must contain the answer's longest word."""
    longest = _longest_word(answer)
    return not longest or not text.isascii() or longest in text.lower()


@lru_cache(maxsize=50_000)
def _longest_word(answer: str) -> str:
    return max(words_of(answer), key=len, default="") if answer.isascii() else ""


@lru_cache(maxsize=50_000)
def _pattern(answer: str) -> re.Pattern[str] | None:
    """A compiled pattern; None for an invalid one, which matches nothing, as in DPR."""
    try:
        return re.compile(unicodedata.normalize("NFD", answer), re.IGNORECASE | re.UNICODE | re.MULTILINE)
    except re.error:
        return None


def answer_rank(texts: Iterable[str], answers: Sequence[str], *, regex: bool = False) -> int | None:
    """The rank, from 1, of the first text that holds an answer; None if none does.

    >>> answer_rank(["nothing", "in Paris"], ["paris"])
    2
    """
    return next((rank for rank, text in enumerate(texts, 1) if has_answer(text, answers, regex=regex)), None)


def accuracy(ranks: Mapping[str, int | None], depths: Sequence[int]) -> dict[int, float]:
    """The share of questions with an answer within each depth, from the ranks of `answer_rank`.

    >>> accuracy({"a": 1, "b": 7, "c": None, "d": 30}, [5, 20, 100])
    {5: 0.25, 20: 0.5, 100: 0.75}
    """
    reached = np.array([rank or np.inf for rank in ranks.values()])
    return {k: float((reached <= k).mean()) if len(reached) else 0.0 for k in depths}


def mean_accuracy(
    ranks: Mapping[str, int | None], relations: Mapping[str, str], depths: Sequence[int]
) -> dict[int, float]:
    """The macro mean of EntityQuestions: accuracy of the questions of each relation, averaged over relations.

    >>> ranks, relations = {"a": 1, "b": 1, "c": 1, "d": None}, {"a": "P17", "b": "P17", "c": "P17", "d": "P19"}
    >>> mean_accuracy(ranks, relations, [20]), accuracy(ranks, [20])
    ({20: 0.5}, {20: 0.75})
    """
    groups: dict[str, dict[str, int | None]] = {}
    for question, rank in ranks.items():
        if question in relations:
            groups.setdefault(relations[question], {})[question] = rank
    by_relation = [accuracy(group, depths) for group in groups.values()]
    return {k: float(np.mean([one[k] for one in by_relation])) if by_relation else 0.0 for k in depths}


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

    `progress` is called with two arguments, as progress bars need them; both are the number of questions done so far.
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
    return {q: [document_text(hit.document) for hit in some] for q, some in zip(questions, hits, strict=True)}


def _run_texts(retriever: Retriever, questions: Mapping[str, str], depth: int, run: Run) -> dict[str, list[str]]:
    """For each question the texts of a run's first documents; a document that the retriever lacks has an empty text."""
    rankings = {q: run[q].documents[:depth] if q in run else [] for q in questions}
    texts = _texts(retriever, list(dict.fromkeys(d for documents in rankings.values() for d in documents)))
    return {q: [texts.get(d, "") for d in documents] for q, documents in rankings.items()}


def _texts(retriever: Retriever, ids: Sequence[str]) -> dict[str, str]:
    return {doc_id: document_text(document) for doc_id, document in retriever.get_many(ids).items()}


def document_text(document: Document) -> str:
    """The text in which answers are looked for, without the title; an error for a document that was not stored."""
    if "text" not in document.content:
        raise VizslaError(
            f"the document {document.id!r} has no text to search for answers; if its index was built with --no-store, "
            "build it again without this option"
        )
    text = document.get("text") or ""
    if not isinstance(text, str):
        raise VizslaError(f"the field 'text' of the document {document.id!r} is not a text, but {kind_of(text)}")
    return text
