"""PAQ: 65 million generated questions with answers and without judged passages, to measure answer accuracy."""

from __future__ import annotations

from vizsla.datasets.preparing import DatasetWriter, GivenFiles, PublishedFile, preparation


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
        answers = [answers] if isinstance(answers, str) else file.texts(answers, "answers", line)
        to.query(str(number), question, answers=answers, split="train")
