"""Questions, and how what is found for them is judged: by judgements of documents, or by answers in their texts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from vizsla.datasets import open_datasets, read_answers, read_queries, read_questions
from vizsla.errors import InputError, VizslaError
from vizsla.evaluation.figures import evaluate
from vizsla.evaluation.retrieval import DEPTH, answer, answer_ranks
from vizsla.index import Index
from vizsla.models import Model
from vizsla.runs import Measure, Qrels, Run

_LOOKED_FOR = 100
Values = dict[str, dict[str, float]]
"""By measure, then by question."""


@dataclass(frozen=True)
class Judging:
    """What is computed: measures where documents are judged, accuracy at depths where answers are known."""

    measures: Sequence[Measure]
    depths: Sequence[int] = (20, 100)
    regex: bool = False
    """Answers are regular expressions."""


@dataclass(frozen=True)
class QuestionSet:
    """Questions with a name; with judgements, with answers, or with neither."""

    name: str
    texts: Mapping[str, str]
    answers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    qrels: Qrels | None = None

    @classmethod
    def open(cls, source: str, data: Path | None = None, split: str | None = None) -> QuestionSet:
        """A file of questions, or the queries of a data set's split, by its folder or name."""
        path = Path(source)
        if path.is_file():
            return cls._of_file(path)
        if path.suffix in (".jsonl", ".tsv", ".csv", ".json"):
            raise InputError("there is no such file", file=source)
        group = open_datasets(source, data)
        if len(group.members) > 1:
            raise VizslaError(f"{group.name} is {len(group.members)} collections; name one of them")
        member = group.members[0]
        qrels = member.qrels(group.split(split))
        return cls(member.name, member.queries_of(qrels), {}, qrels)

    @classmethod
    def _of_file(cls, path: Path) -> QuestionSet:
        name = path.name.partition(".")[0]
        if ".tsv" in path.name:
            return cls(name, read_queries(path))
        if ".jsonl" not in path.name:
            return cls(name, *read_questions(path))
        return cls(name, read_queries(path), read_answers(path))

    def first(self, most: int | None) -> QuestionSet:
        """The first so many questions, or all."""
        kept = dict(list(self.texts.items())[:most])
        answers = {q: given for q, given in self.answers.items() if q in kept}
        return replace(self, texts=kept, answers=answers, qrels=self.qrels.only(kept.keys()) if self.qrels else None)

    def values(
        self,
        how: Judging,
        *,
        index: Index | None = None,
        model: Model | None = None,
        run: Run | None = None,
        texts: Mapping[str, str] | None = None,
    ) -> Values:
        """What a model finds in an index, or a run has found, judged question by question.

        `texts`: the questions in other words, by the same ids. A run is judged without an index where there are
        judgements; answers are looked for in the texts that an index has.
        """
        worded = self.texts if texts is None else texts
        if self.qrels is not None:
            if run is None:
                if index is None:
                    raise VizslaError("there is neither an index to search nor a run")
                self._check_index(index, self.qrels)
                run = answer(index, worded, max(m.cutoff or DEPTH for m in how.measures), model)
            return evaluate(run, self.qrels, how.measures).by_query
        asked = {q: text for q, text in worded.items() if q in self.answers}
        if not asked:
            raise VizslaError(f"{self.name} has neither judgements nor answers, so what is found cannot be judged")
        if index is None:
            raise VizslaError(f"the answers of {self.name} are looked for in the texts of an index; name it by --index")
        ranks = answer_ranks(index, asked, self.answers, max(how.depths), run=run, model=model, regex=how.regex)
        return {f"Acc@{k}": {q: float(rank is not None and rank <= k) for q, rank in ranks.items()} for k in how.depths}

    def _check_index(self, index: Index, qrels: Qrels) -> None:
        """Refuse an index that has none of the documents judged, or of the first of them."""
        judged = islice((d for documents in qrels.judgements.values() for d in documents), _LOOKED_FOR)
        if all(index.get(d) is None for d in judged):
            raise VizslaError(f"{index.path}: none of the documents judged in {self.name} is here; is it its index?")

    def write(self, path: Path, texts: Mapping[str, str]) -> None:
        """Write the questions in other words as JSON lines, with their ids and answers."""
        with path.open("w", encoding="utf-8") as file:
            for question, text in texts.items():
                record: dict[str, object] = {"_id": question, "text": text}
                if question in self.answers:
                    record["metadata"] = {"answers": list(self.answers[question])}
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
