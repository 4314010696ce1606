"""DPR's training data for five question sets: questions with answers, positives and hard negatives of Wikipedia.

A file is one JSON list of questions with `positive_ctxs`, `hard_negative_ctxs` and `negative_ctxs`. DPR trains with the
first positive, which for Natural Questions and SQuAD is the annotated passage, and with one of the hard negatives, the
best passages of BM25 without an answer string. The corpus that is written has the positives and the negatives of all
questions; figures are measured on `wiki-dpr`, whose passages have the same ids.
"""

from __future__ import annotations

import hashlib
from typing import Any

from vizsla.datasets.preparing import DatasetWriter, GivenFile, GivenFiles, PublishedFile, preparation

_ADDRESS = "https://dl.fbaipublicfiles.com/dpr/data/retriever/biencoder-{}.json.gz"


def _published(name: str, records: int | None = None, md5: str = "") -> PublishedFile:
    return PublishedFile(
        f"biencoder-{name}.json", _ADDRESS.format(name), records, (f"md5:{md5}",) if md5 else (), required=False
    )


# Counts and checksums: the catalogue of ir_datasets (dpr-w100).
NQ = (
    _published("nq-train", 58_880, "a1c927b5adae71388eb064329387709f"),
    _published("nq-dev", 6_515, "2640483dbe0df7ae29c6da419c551a80"),
)
TRIVIAQA = (
    _published("trivia-train", 78_785, "5aa4d3577c91425cd20e239ed89a252b"),
    _published("trivia-dev", 8_837, "d559dffe09acfe5a6370adea55b8abf2"),
)
WEBQUESTIONS = (_published("webquestions-train"), _published("webquestions-dev"))
CURATEDTREC = (_published("curatedtrec-train"), _published("curatedtrec-dev"))
SQUAD = (_published("squad1-train"), _published("squad1-dev"))


@preparation("dpr-nq", *NQ, help="questions with positives and hard negatives")
@preparation("dpr-triviaqa", *TRIVIAQA, help="questions with positives and hard negatives")
@preparation("dpr-webquestions", *WEBQUESTIONS, help="questions with positives and hard negatives")
@preparation("dpr-curatedtrec", *CURATEDTREC, help="questions with positives and hard negatives")
@preparation("dpr-squad", *SQUAD, help="questions with positives and hard negatives")
def prepare_dpr(given: GivenFiles, to: DatasetWriter) -> None:
    """The first positive of a question is judged relevant. No other positive is a negative."""
    passages = _Passages(to)
    for file in given.all:
        split = file.name.removesuffix(".json").rpartition("-")[2]
        unanswered = 0
        for number, (line, record) in enumerate(file.json_records()):
            question = file.text(record.get("question"), "question", line)
            answers = _answers(file, record, line)
            positives = passages.ids(file, record, "positive_ctxs", line)
            negatives = passages.ids(file, record, "hard_negative_ctxs", line)
            if not positives:
                unanswered += 1
                continue
            negatives = negatives or passages.ids(file, record, "negative_ctxs", line)
            query = f"{split}-{number}"
            to.query(query, question, answers=answers, split=split)
            to.judgement(split, query, positives[0])
            found = set(positives)
            to.training_documents(split, query, positives[:1], [d for d in negatives if d not in found])
        if unanswered:
            to.remark(f"{unanswered:,} questions of {file.name} have no positive and are left out, as in DPR")


def _answers(file: GivenFile, record: dict[str, Any], line: int) -> list[str]:
    answers = record.get("answers")
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        file.refuse("expected a list of texts 'answers'", line)
    return answers


class _Passages:
    """The passages that questions name. Each is written once, when it is named first."""

    def __init__(self, to: DatasetWriter) -> None:
        self._to = to
        self._numbers = bytearray()  # a bit a passage of Wikipedia, which has 21 million
        self._others: set[str] = set()

    def ids(self, file: GivenFile, record: dict[str, Any], key: str, line: int) -> list[str]:
        """The ids of the passages in a list of a question, without repetitions."""
        listed = record.get(key, [])
        if not isinstance(listed, list):
            file.refuse(f"expected a list {key!r}", line)
        return list(dict.fromkeys(self._id(file, passage, key, line) for passage in listed))

    def _id(self, file: GivenFile, passage: Any, key: str, line: int) -> str:
        if not isinstance(passage, dict):
            file.refuse(f"expected objects in {key!r}", line)
        text, title = file.text(passage.get("text"), "text", line), passage.get("title") or ""
        named = passage.get("passage_id", passage.get("psg_id"))
        # A passage without an id is known by its content.
        number = hashlib.sha1(f"{title}\n{text}".encode()).hexdigest()[:16] if named in (None, "") else str(named)
        if self._is_new(number):
            self._to.document(number, text, str(title))
        return number

    def _is_new(self, number: str) -> bool:
        if not number.isdecimal() or not number.isascii() or len(number) > 8 or number != str(int(number)):
            before = len(self._others)
            self._others.add(number)
            return len(self._others) > before
        place, bit = int(number) >> 3, 1 << (int(number) & 7)
        if place >= len(self._numbers):
            self._numbers.extend(bytes(max(place + 1 - len(self._numbers), 1 << 16)))
        if self._numbers[place] & bit:
            return False
        self._numbers[place] |= bit
        return True
