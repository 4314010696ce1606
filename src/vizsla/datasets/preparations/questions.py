"""Questions with answers, without judged passages: DPR's question files, EntityQuestions, PAQ.

Each question has its answers and its split as metadata. They are measured by answer accuracy on an index of `wiki-dpr`.
"""

from __future__ import annotations

from typing import Any

from vizsla.datasets.preparing import DatasetWriter, GivenFile, GivenFiles, PublishedFile, preparation
from vizsla.datasets.questions import parse_answers

_ADDRESS = "https://dl.fbaipublicfiles.com/dpr/data/retriever/{}"


def _published(name: str, records: int, compressed: str = "") -> PublishedFile:
    return PublishedFile(name, _ADDRESS.format(name + compressed), records, required=False)


@preparation(
    "openqa-nq",
    _published("nq-train.qa.csv", 79_168),
    _published("nq-dev.qa.csv", 8_757),
    _published("nq-test.qa.csv", 3_610),
    help="questions with answers",
)
@preparation(
    "openqa-triviaqa",
    _published("trivia-train.qa.csv", 78_785, ".gz"),
    _published("trivia-dev.qa.csv", 8_837, ".gz"),
    _published("trivia-test.qa.csv", 11_313, ".gz"),
    help="questions with answers",
)
@preparation("openqa-webquestions", _published("webquestions-test.qa.csv", 2_032), help="questions with answers")
@preparation(
    "openqa-curatedtrec", _published("curatedtrec-test.qa.csv", 694), help="questions with regular expressions"
)
@preparation("openqa-squad", _published("squad1-test.qa.csv", 10_570), help="questions with answers")
def prepare_questions(given: GivenFiles, to: DatasetWriter) -> None:
    """Each row is a question and a list of answers, in Python's notation."""
    for file in given.all:
        split = file.name.removesuffix(".qa.csv").rpartition("-")[2]
        for number, (line, (question, answers)) in enumerate(file.rows("question", "list of answers")):
            if not answers.strip().startswith("["):
                file.refuse("expected a question, a tab and a list of answers", line)
            to.query(f"{split}-{number}", question, answers=parse_answers(answers), split=split)


_SPLITS = {"train": 176_560, "dev": 22_068, "test": 22_075}
_RELATIONS = [
    PublishedFile(
        f"{split}/P*.{split}.json",
        "https://nlp.cs.princeton.edu/projects/entity-questions/dataset.zip",
        count,
        required=False,
        several=True,
    )
    for split, count in _SPLITS.items()
]
_RELATION_COUNT = 24


@preparation("entityquestions", *_RELATIONS, help="questions with answers, each with its relation")
def prepare_entityquestions(given: GivenFiles, to: DatasetWriter) -> None:
    """There are 24 files a split, one a relation, such as P17.test.json; a file is a list of questions."""
    for split, published in zip(_SPLITS, _RELATIONS, strict=True):
        files = given.every(published.name)
        if files and len(files) != _RELATION_COUNT:
            to.remark(f"there are {len(files)} relations of {split}, and {_RELATION_COUNT} are published")
        for file in files:
            relation = file.name.partition(".")[0]
            for number, (line, record) in enumerate(file.json_records()):
                question = file.text(record.get("question"), "question", line)
                answers = _answer_list(file, record.get("answers"), line)
                to.query(f"{relation}-{split}-{number}", question, answers=answers, split=split, relation=relation)


@preparation(
    "paq",
    PublishedFile("PAQ.filtered.jsonl", "https://dl.fbaipublicfiles.com/paq/v1/PAQ.tar.gz"),
    help="65 million generated questions with answers",
)
def prepare_paq(given: GivenFiles, to: DatasetWriter) -> None:
    """Each line is a question with a list of answers."""
    file = given.one("PAQ.filtered.jsonl")
    for number, (line, record) in enumerate(file.json_lines()):
        question = file.text(record.get("question"), "question", line)
        answers = record.get("answer", record.get("answers"))
        answers = [answers] if isinstance(answers, str) else _answer_list(file, answers, line)
        to.query(str(number), question, answers=answers, split="train")


def _answer_list(file: GivenFile, value: Any, line: int) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(answer, str) for answer in value):
        file.refuse("expected a list of texts 'answers'", line)
    return value
