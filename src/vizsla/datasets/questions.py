"""Questions with answers, in the formats they come in: JSON lines, DPR's tab-separated files, EntityQuestions' JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from vizsla.datasets.beir import parse_answers, read_answers, read_queries
from vizsla.datasets.files import InputFile
from vizsla.datasets.records import read_json_records
from vizsla.datasets.tables import csv_rows
from vizsla.errors import InputError


class Questions(NamedTuple):
    """Questions and their answers by id."""

    texts: dict[str, str]
    answers: dict[str, list[str]]


def read_questions(path: str | Path) -> Questions:
    """The questions of a file that have answers; questions without ids get the name of the file and a number."""
    file = Path(path)
    if ".jsonl" in file.name:
        answers = read_answers(file)
        texts = {q: text for q, text in read_queries(file).items() if q in answers}
    else:
        rows = list(_entity_questions(file) if file.suffix == ".json" else _dpr(file))
        texts = {f"{file.name}-{i}": text for i, (text, _) in enumerate(rows)}
        answers = {f"{file.name}-{i}": row_answers for i, (_, row_answers) in enumerate(rows)}
    if not texts:
        raise InputError("this file has no questions with answers", file=str(path))
    return Questions(texts, answers)


def _dpr(file: Path) -> Iterator[tuple[str, list[str]]]:
    """The rows of a file of DPR's: tab-separated values with csv's quotes."""
    for line, row in csv_rows(InputFile.of(file), "\t"):
        if not any(row):
            continue
        if len(row) != 2 or not row[1].strip().startswith("["):
            raise InputError("expected a question, a tab and a list of answers", file=str(file), line=line)
        yield row[0], _checked(parse_answers(row[1]), file, line)


def _entity_questions(file: Path) -> Iterator[tuple[str, list[str]]]:
    for line, row in read_json_records(InputFile.of(file)):
        question = row.get("question") if isinstance(row, dict) else None
        if not isinstance(question, str) or not isinstance(row.get("answers"), list):
            message = 'expected a list of {"question": ..., "answers": [...]}'
            raise InputError(message, file=str(file), line=line)
        yield question, _checked(row["answers"], file, line)


def _checked(answers: Any, file: Path, line: int | None) -> list[str]:
    if not isinstance(answers, list) or not all(isinstance(a, str) for a in answers):
        raise InputError("expected a question, a tab and a list of answers", file=str(file), line=line)
    return answers
