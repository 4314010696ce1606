"""Read queries and questions, with or without answers, in common formats."""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from vizsla.datasets.files import InputFile, find_file, read_lines
from vizsla.datasets.formats.csv import csv_rows
from vizsla.datasets.formats.json import read_json_records
from vizsla.datasets.irds import SCHEME, beir_folder
from vizsla.errors import InputError
from vizsla.runs.documents import Document, Origin


class Questions(NamedTuple):
    """Questions by id, and the answers of those that have some."""

    texts: dict[str, str]
    answers: dict[str, list[str]]
    relations: dict[str, str]
    """What a question asks for, such as P19, a place of birth, where the file says so (`metadata.relation`)."""


class _Row(NamedTuple):
    line: int
    id: str
    text: str
    answers: list[str] | None = None
    relation: str | None = None
    split: str | None = None


def read_queries(path: str | Path) -> dict[str, str]:
    """Queries by id from a file, or those of `irds:NAME`.

    A file has JSON lines ({_id, text}), tab-separated lines (id, text), or questions with answers in DPR's format
    (question, list of answers), EntityQuestions' JSON or PAQ's JSON lines. Queries without ids are identified by the
    name of the file and a number.
    """
    return _read(path).texts


def read_answers(path: str | Path) -> dict[str, list[str]]:
    """Answers by question id, of the questions in a file that have answers."""
    return _read(path).answers


def read_questions(path: str | Path, split: str | None = None) -> Questions:
    """The questions of a file that have answers, or those of a split (`metadata.split`); none is an error."""
    texts, answers, relations = _read(path, split)
    if not answers:
        of_split = f" of the split {split!r}" if split is not None else ""
        raise InputError(f"this file has no questions with answers{of_split}", file=str(path))
    return Questions({q: text for q, text in texts.items() if q in answers}, answers, relations)


def question_texts(path: str | Path) -> Iterator[str]:
    """The texts of the questions in a file, one at a time, so that there may be millions of them.

    Formats are those of `read_queries`; of the folder of a data set its `queries.jsonl` is read.
    """
    return (row.text for row in _rows(_file(path)))


def _file(path: str | Path) -> Path:
    if str(path).startswith(SCHEME):
        return find_file(beir_folder(path), "queries.jsonl")
    return find_file(Path(path), "queries.jsonl") if Path(path).is_dir() else Path(path)


def _read(path: str | Path, split: str | None = None) -> Questions:
    file = _file(path)
    found = Questions({}, {}, {})
    for row in _rows(file):
        if row.id in found.texts:
            raise InputError(f"the query id {row.id!r} appears a second time", file=str(file), line=row.line)
        if split is not None and row.split != split:
            continue
        found.texts[row.id] = row.text
        if row.answers is not None:
            found.answers[row.id] = row.answers
        if row.relation is not None:
            found.relations[row.id] = row.relation
    return found


def _rows(file: Path) -> Iterator[_Row]:
    """The rows of a file; its format follows from its name or otherwise from its first line."""
    if ".json" in file.name:
        return _json_rows(file)
    first = next((text for _, text in read_lines(file) if text.strip()), "")
    if ".tsv" not in file.name and first.lstrip()[:1] in ("{", "["):
        return _json_rows(file)
    return _dpr_rows(file) if _is_dpr(first, file.name) else _tab_rows(file)


def _json_rows(file: Path) -> Iterator[_Row]:
    """JSON records: queries as BEIR has them, perhaps with answers, or EntityQuestions'."""
    for number, (line, record) in enumerate(read_json_records(InputFile.of(file))):
        if isinstance(record, dict) and "question" in record and "text" not in record:
            record = {"_id": f"{file.name}-{number}", "text": record["question"], **record}
        query = Document.from_record(record, Origin(str(file), line))
        text, metadata = query.get("text"), query.get("metadata")
        facts = metadata if isinstance(metadata, dict) else {}
        if not isinstance(text, str):
            raise InputError(f"the query {query.id!r} has no text; expected a field 'text'", file=str(file), line=line)
        answers = query.get("answers") or facts.get("answers") or query.get("answer")  # the last is PAQ's name
        answers = parse_answers(answers) if isinstance(answers, str) else answers
        if answers is not None and not _are_answers(answers):
            raise InputError(f"the answers of {query.id!r} are not a list of texts", file=str(file), line=line)
        stated = (value if isinstance(value, str) else None for value in (facts.get("relation"), facts.get("split")))
        yield _Row(line, query.id, text, None if answers is None else [str(answer) for answer in answers], *stated)


def _are_answers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(answer, str | int | float) for answer in value)


_HEADERS = {("id", "text"), ("_id", "text"), ("qid", "query"), ("query-id", "text"), ("query_id", "query")}


def _tab_rows(file: Path) -> Iterator[_Row]:
    for line, row in read_lines(file):
        columns = row.rstrip("\r\n").split("\t")
        if not row.strip() or (line == 1 and tuple(c.strip().lower() for c in columns) in _HEADERS):
            continue
        if len(columns) != 2 or not columns[0].strip():
            actual = f", not {len(columns)} columns" if len(columns) != 2 else ""
            raise InputError(f"expected a query id, a tab and a text{actual}", file=str(file), line=line)
        yield _Row(line, columns[0], columns[1])


def _is_dpr(first: str, name: str) -> bool:
    """Whether a line is a question, a tab and a list of answers; in a .csv the list may lack quotes."""
    try:
        row = next(csv.reader([first], delimiter="\t"), [])
    except csv.Error:
        return False
    listed = len(row) == 2 and row[1].lstrip().startswith("[")
    return listed and (".csv" in name or parse_answers(row[1]) != [row[1]])


def _dpr_rows(file: Path) -> Iterator[_Row]:
    """The rows of a file of DPR's: tab-separated values with csv's quotes."""
    filled = ((line, row) for line, row in csv_rows(InputFile.of(file), "\t") if any(row))
    for number, (line, row) in enumerate(filled):
        if len(row) != 2 or not row[1].strip().startswith("["):
            raise InputError("expected a question, a tab and a list of answers", file=str(file), line=line)
        yield _Row(line, f"{file.name}-{number}", row[0], parse_answers(row[1]))


def parse_answers(text: str) -> list[str]:
    """The answers in a text: a Python list, also one that lacks quotes around an apostrophe, or a single answer.

    >>> parse_answers("['A', 'B']"), parse_answers("['A', Destiny's Child]"), parse_answers("A, B")
    (['A', 'B'], ['A', "Destiny's Child"], ['A, B'])
    """
    stripped = text.strip()
    try:
        value = ast.literal_eval(stripped)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = None
    if isinstance(value, list) and all(isinstance(answer, str) for answer in value):
        return value
    if not (stripped.startswith("[") and stripped.endswith("]")) or not re.search(r"['\"],|, ['\"]", stripped):
        return [text]
    parts = re.split(r"(?<=['\"]),\s+|,\s+(?=['\"])", stripped[1:-1])
    return [part.strip().strip("'\"") for part in parts if part.strip()]
