"""DPR's files: Wikipedia in passages of 100 words, questions with answers, and training data.

The corpus is that of open-domain question answering. Question files have answers and no judged passages; they are
measured by answer accuracy on an index of `wiki-dpr`.

A training file is one JSON list of questions with `positive_ctxs`, `hard_negative_ctxs` and `negative_ctxs`. DPR trains
with the first positive, which for Natural Questions and SQuAD is the annotated passage, and with one of the hard
negatives, the best passages of BM25 without an answer string. The corpus that is written has the positives and the
negatives of all questions; figures are measured on `wiki-dpr`, whose passages have the same ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from vizsla.datasets.preparing import DatasetWriter, GivenFile, GivenFiles, PublishedFile, preparation
from vizsla.datasets.questions import parse_answers

_ADDRESS = "https://dl.fbaipublicfiles.com/dpr/data/retriever/{}"
PASSAGES = PublishedFile(
    "psgs_w100.tsv",
    "https://dl.fbaipublicfiles.com/dpr/wikipedia_split/psgs_w100.tsv.gz",
    records=21_015_324,
    checksums=("md5:612fe66e0b6b41ee28f806140226c563",),  # of the .gz, in the catalogue of ir_datasets
)


@preparation("wiki-dpr", PASSAGES, help="the corpus: 21,015,324 passages of Wikipedia of December 2018")
def prepare_wiki_dpr(given: GivenFiles, to: DatasetWriter) -> None:
    """Each row is an id, a text and a title."""
    passages = given.one(PASSAGES.name)
    for line, (number, text, title) in passages.rows("id", "text", "title", header=("id", "text", "title")):
        if not number.strip():
            passages.refuse("this passage has no id", line)
        to.document(number, text, title)


def _question_file(name: str, records: int, compressed: str = "") -> PublishedFile:
    return PublishedFile(name, _ADDRESS.format(name + compressed), records, required=False)


@preparation(
    "openqa-nq",
    _question_file("nq-train.qa.csv", 79_168),
    _question_file("nq-dev.qa.csv", 8_757),
    _question_file("nq-test.qa.csv", 3_610),
    help="questions with answers",
)
@preparation(
    "openqa-triviaqa",
    _question_file("trivia-train.qa.csv", 78_785, ".gz"),
    _question_file("trivia-dev.qa.csv", 8_837, ".gz"),
    _question_file("trivia-test.qa.csv", 11_313, ".gz"),
    help="questions with answers",
)
@preparation("openqa-webquestions", _question_file("webquestions-test.qa.csv", 2_032), help="questions with answers")
@preparation(
    "openqa-curatedtrec", _question_file("curatedtrec-test.qa.csv", 694), help="questions with regular expressions"
)
@preparation("openqa-squad", _question_file("squad1-test.qa.csv", 10_570), help="questions with answers")
def prepare_questions(given: GivenFiles, to: DatasetWriter) -> None:
    """Each row is a question and a list of answers, in Python's notation; no passage is judged."""
    for file in given.all:
        split = file.name.removesuffix(".qa.csv").rpartition("-")[2]
        for number, (question, answers) in enumerate(answered_questions(file)):
            to.query(f"{split}-{number}", question, answers=answers, split=split)


def answered_questions(file: GivenFile) -> Iterator[tuple[str, list[str]]]:
    """The questions of one of DPR's question files, with their answers."""
    for line, (question, listed) in file.rows("question", "list of answers"):
        if not listed.strip().startswith("["):
            file.refuse("expected a question, a tab and a list of answers", line)
        yield question, parse_answers(listed)


def _published(name: str, records: int | None = None, md5: str = "") -> PublishedFile:
    return PublishedFile(
        f"biencoder-{name}.json",
        _ADDRESS.format(f"biencoder-{name}.json.gz"),
        records,
        (f"md5:{md5}",) if md5 else (),
        required=False,
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
            answers = file.texts(record.get("answers"), "answers", line)
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
