"""Training data for questions that name no passages: the best passages that hold an answer, and those that do not.

This is how DPR's authors made theirs for TriviaQA, WebQuestions and CuratedTREC, and those of EntityQuestions for
theirs: BM25 ranks 100 passages, and answer strings decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vizsla.datasets.preparing import DatasetWriter, new_dataset
from vizsla.errors import VizslaError
from vizsla.evaluation.answers import document_text, has_answer
from vizsla.evaluation.questions import QuestionSet
from vizsla.runs import Document, Retriever

_BATCH = 256  # questions that are searched in one call


@dataclass
class MinedPassages:
    """What was written: questions with a passage and those without by split, and the number of passages."""

    found: dict[str, int] = field(default_factory=dict)
    without: dict[str, int] = field(default_factory=dict)
    passages: int = 0


def mine_passages(
    retriever: Retriever,
    questions: Mapping[str, QuestionSet],
    folder: str | Path,
    *,
    depth: int = 100,
    negatives: int = 50,
    progress: Callable[[int], None] = lambda _: None,
) -> MinedPassages:
    """Write a data set in BEIR's layout with passages for questions with answers, by split, such as `train` and `dev`.

    Of the first `depth` documents of a question the first that holds an answer is judged relevant, and the first
    `negatives` that hold none are its hard negatives. Titles do not count. A question without such a document is left
    out. `progress` is called with the number of questions searched so far. The folder appears when it is complete.

    >>> from vizsla import BM25, BeirDataset, Index
    >>> import tempfile
    >>> root = Path(tempfile.mkdtemp())
    >>> texts = {"1": "A vizsla is a dog.", "2": "A dog from Hungary points.", "3": "Cats purr."}
    >>> question_set = QuestionSet("dogs", {"q": "Which dog points?"}, {"q": ["Hungary", "Vizsla"]})
    >>> with Index.create(root / "index", BM25()) as index:
    ...     _ = index.add([{"id": i, "text": text} for i, text in texts.items()])
    ...     _ = index.commit()
    ...     mine_passages(index, {"train": question_set}, root / "dogs").found
    {'train': 1}
    >>> BeirDataset.open(root / "dogs").qrels("train").judgements
    {'q': {'2': 1}}
    """
    if depth < 1 or negatives < 0:
        raise VizslaError(f"expected a depth of 1 or more and 0 or more negatives, not {depth} and {negatives}")
    report = MinedPassages()
    with new_dataset(folder) as writer:
        known: set[str] = set()
        for split, question_set in questions.items():
            _mine(retriever, split, question_set, writer, report, known, depth, negatives, progress)
        report.passages = writer.documents
        if not any(report.found.values()):
            raise VizslaError("no document that was found holds an answer; are the questions about these documents?")
    return report


def _mine(
    retriever: Retriever,
    split: str,
    question_set: QuestionSet,
    writer: DatasetWriter,
    report: MinedPassages,
    known: set[str],
    depth: int,
    negatives: int,
    progress: Callable[[int], None],
) -> None:
    """Write the questions of a split, and the passages that are not known yet."""
    ids = [q for q in question_set.texts if question_set.answers.get(q)]
    report.found[split] = report.without[split] = 0
    before = sum(report.found.values()) + sum(report.without.values())
    for first in range(0, len(ids), _BATCH):
        some = ids[first : first + _BATCH]
        hits = retriever.search_many([question_set.texts[q] for q in some], depth)
        for question, found in zip(some, hits, strict=True):
            documents = [hit.document for hit in found]
            positive, others = _bucketed(documents, question_set.answers[question], question_set.regex, negatives)
            if positive is None:
                report.without[split] += 1
                continue
            report.found[split] += 1
            for document in (positive, *others):
                if document.id not in known:
                    known.add(document.id)
                    writer.document(document.id, document_text(document), str(document.get("title") or ""))
            relation = {"relation": question_set.relations[question]} if question in question_set.relations else {}
            writer.query(
                question, question_set.texts[question], answers=question_set.answers[question], split=split, **relation
            )
            writer.judgement(split, question, positive.id)
            writer.training_documents(split, question, [positive.id], [d.id for d in others])
        progress(before + first + len(some))


def _bucketed(
    documents: Sequence[Document], answers: Sequence[str], regex: bool, negatives: int
) -> tuple[Document | None, list[Document]]:
    """The first document that holds an answer, and the first ones that hold none."""
    positive: Document | None = None
    others: list[Document] = []
    for document in documents:
        if has_answer(document_text(document), answers, regex=regex):
            positive = positive or document
        elif len(others) < negatives:
            others.append(document)
        if positive is not None and len(others) == negatives:
            break
    return positive, others
