"""Sets of questions, evaluated by judged documents or by answers in the documents' texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from vizsla.datasets import open_datasets, read_answers, read_queries, read_questions
from vizsla.errors import InputError, VizslaError
from vizsla.evaluation.answers import answer_ranks
from vizsla.evaluation.figures import evaluate
from vizsla.evaluation.retrieval import DEPTH, retrieve
from vizsla.runs import Measure, Qrels, Retriever

_SAMPLE = 100  # judged documents that are looked up to check that an index has the right documents
ValuesByQuestion = dict[str, dict[str, float]]
"""The values of measures: by the measure's name, then by question id."""


@dataclass(frozen=True)
class QuestionMeasures:
    """The measures to compute: on judged documents, or answer accuracy at some depths."""

    measures: Sequence[Measure]
    depths: Sequence[int] = (20, 100)
    regex: bool = False
    """Answers are regular expressions."""


@dataclass(frozen=True)
class QuestionSet:
    """Questions by id, with a name; they may have judgements, or answers, or neither.

    >>> questions = QuestionSet("dogs", {"q1": "who barks?", "q2": "who purrs?"}, {"q1": ["a dog"]})
    >>> questions.first(1).texts
    {'q1': 'who barks?'}
    """

    name: str
    texts: Mapping[str, str]
    answers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    qrels: Qrels | None = None
    relations: Mapping[str, str] = field(default_factory=dict)
    """What each question asks for, where its file says so, as EntityQuestions does."""
    regex: bool = False
    """Answers are regular expressions."""

    @classmethod
    def open(cls, source: str, data: Path | None = None, split: str | None = None) -> QuestionSet:
        """The questions in a file, or the queries of a data set's split, by its folder or name.

        A data set without judgements has questions with answers.
        """
        if (path := _file(source)) is not None:
            return cls(path.name.partition(".")[0], read_queries(path), read_answers(path))
        group = open_datasets(source, data)
        if len(group.members) > 1:
            raise VizslaError(f"{group.name} is {len(group.members)} collections; name one of them")
        member = group.members[0]
        if not member.splits:
            return cls.with_answers(source, data, split)
        qrels = member.qrels(group.split(split))
        return cls(member.name, member.queries_of(qrels), {}, qrels)

    @classmethod
    def with_answers(cls, source: str, data: Path | None = None, split: str | None = None) -> QuestionSet:
        """The questions with answers in a file, or of a data set's split, without judgements."""
        if (path := _file(source)) is not None:
            texts, answers, relations = read_questions(path)
            return cls(path.name, texts, answers, None, relations)
        group = open_datasets(source, data)
        if len(group.members) > 1:
            raise VizslaError(f"{group.name} is {len(group.members)} collections; name one of them")
        texts, answers, relations = group.members[0].questions(group.split(split))
        regex = group.entry is not None and group.entry.answers == "regex"
        return cls(group.name, texts, answers, None, relations, regex)

    def first(self, count: int | None) -> QuestionSet:
        """The first `count` questions; all if it is None."""
        texts = dict(list(self.texts.items())[:count])
        answers = {q: given for q, given in self.answers.items() if q in texts}
        return replace(self, texts=texts, answers=answers, qrels=self.qrels.only(texts.keys()) if self.qrels else None)

    def values(
        self,
        wanted: QuestionMeasures,
        retriever: Retriever,
        texts: Mapping[str, str] | None = None,
    ) -> ValuesByQuestion:
        """The values of measures for each question, for what a retriever finds.

        `texts`: other wordings of the questions, by the same ids. Answers are looked for in the documents of the
        retriever.
        """
        wordings = self.texts if texts is None else texts
        if self.qrels is not None:
            self._check_documents(retriever, self.qrels)
            run = retrieve(retriever, wordings, max(m.cutoff or DEPTH for m in wanted.measures))
            return evaluate(run, self.qrels, wanted.measures).by_query
        questions = {q: text for q, text in wordings.items() if q in self.answers}
        if not questions:
            raise VizslaError(f"{self.name} has neither judgements nor answers, so results cannot be evaluated")
        regex = wanted.regex or self.regex
        ranks = answer_ranks(retriever, questions, self.answers, max(wanted.depths), regex=regex)
        return {
            f"Acc@{k}": {q: float(rank is not None and rank <= k) for q, rank in ranks.items()} for k in wanted.depths
        }

    def _check_documents(self, retriever: Retriever, qrels: Qrels) -> None:
        """Refuse a retriever that has none of the first judged documents."""
        judged = islice((d for documents in qrels.judgements.values() for d in documents), _SAMPLE)
        if not retriever.get_many(judged):
            raise VizslaError(
                f"none of the documents judged in {self.name} is in the index; is it an index of other documents?"
            )


def _file(source: str) -> Path | None:
    """The file of questions at a path; None for a data set."""
    path = Path(source)
    if not path.is_file() and path.suffix in (".jsonl", ".tsv", ".csv", ".json"):
        raise InputError("this file does not exist", file=source)
    return path if path.is_file() else None
