"""What GAR's generators learn from: questions with an answer, a sentence that holds it, and titles of passages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vizsla.datasets import BeirDataset, Document
from vizsla.errors import InputError, UnknownNameError
from vizsla.evaluation.answer_matching import has_answer
from vizsla.models import field_text
from vizsla.text.sentences import sentences_of

GAR_TASKS = ("answer", "sentence", "title")
SEPARATOR = " *** "
"""Stands between titles, as in the texts that GAR's authors generated."""


def gar_pairs(dataset: BeirDataset, split: str, task: str) -> Iterator[tuple[str, str]]:
    """The questions of a split, each with what a generator of a task is to write.

    `answer`: the first answer of the question (`metadata.answers`). `sentence`: the first sentence of a relevant
    passage that holds an answer. `title`: the titles of all relevant passages. A question without it is left out.
    """
    if task not in GAR_TASKS:
        raise UnknownNameError("task of GAR", task, GAR_TASKS)
    qrels, answers = dataset.qrels(split), dataset.answers()
    questions = dataset.queries_of(qrels)
    if task != "title" and not any(answers.get(question) for question in questions):
        raise InputError(f"no question of {split} has answers (metadata.answers)", file=str(dataset.folder))
    if task == "answer":
        outputs = {question: _first_answer(answers.get(question, ())) for question in questions}
    else:
        outputs = _from_passages(dataset, task, split, questions, answers)
    for question, text in questions.items():
        if outputs.get(question):
            yield text, outputs[question]


def _first_answer(answers: Sequence[str]) -> str:
    return next((answer.strip() for answer in answers if answer.strip()), "")


def _from_passages(
    dataset: BeirDataset, task: str, split: str, questions: Mapping[str, str], answers: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """What the relevant passages of each question give."""
    judged, named = dataset.qrels(split).judgements, dataset.hard_negatives(split)
    relevant = {}
    for question in questions:
        also = named[question].positives if question in named else ()
        relevant[question] = list(dict.fromkeys([*(d for d, grade in judged[question].items() if grade > 0), *also]))
    wanted = {passage for passages in relevant.values() for passage in passages}
    known = {document.id: document for document in dataset.documents() if document.id in wanted}
    outputs = {}
    for question, passages in relevant.items():
        found = [known[passage] for passage in passages if passage in known]
        outputs[question] = _titles(found) if task == "title" else _sentence(found, answers.get(question, ()))
    return outputs


def _titles(passages: Sequence[Document]) -> str:
    titles = (field_text(passage.content, ("title",)).strip() for passage in passages)
    return SEPARATOR.join(dict.fromkeys(title for title in titles if title))


def _sentence(passages: Sequence[Document], answers: Sequence[str]) -> str:
    """The first sentence with an answer; nothing if none has one."""
    texts = (field_text(passage.content, ("text",)) for passage in passages)
    sentences = (sentence for text in texts for sentence in sentences_of(text))
    return next((" ".join(s.split()) for s in sentences if has_answer(s, answers)), "")
