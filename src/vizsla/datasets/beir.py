"""Data sets in BEIR's layout: corpus.jsonl, queries.jsonl, qrels/<split>.tsv."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from vizsla.datasets.files import COMPRESSIONS, read_json_lines, read_lines
from vizsla.datasets.irds import SCHEME, beir_folder
from vizsla.errors import InputError
from vizsla.runs import Qrels
from vizsla.runs.documents import Document, Origin, document_id


def find_file(folder: Path, name: str) -> Path:
    """The path of a file in a folder, plain or compressed."""
    for ending in ("", *COMPRESSIONS):
        path = folder / (name + ending)
        if path.is_file():
            return path
    raise InputError(f"{name} does not exist in this folder", file=str(folder))


def is_beir(folder: Path) -> bool:
    """Whether a folder has a corpus in BEIR's layout."""
    return any((folder / ("corpus.jsonl" + ending)).is_file() for ending in ("", *COMPRESSIONS))


class TrainingDocuments(NamedTuple):
    """The documents to train a query with: positives answer it, hard negatives only look as if they did.

    `negatives` is None if the data set does not name them.
    """

    positives: tuple[str, ...]
    negatives: tuple[str, ...] | None


@dataclass(frozen=True)
class BeirDataset:
    """A data set in a folder of BEIR's layout: corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp(), "pets")
    >>> folder.mkdir()
    >>> _ = (folder / "corpus.jsonl").write_text('{"_id": "1", "title": "Dogs", "text": "Dogs bark."}\\n')
    >>> _ = (folder / "queries.jsonl").write_text('{"_id": "q", "text": "dog"}\\n')
    >>> dataset = BeirDataset.open(folder)
    >>> dataset.name, dataset.queries(), [document.id for document in dataset.documents()]
    ('pets', {'q': 'dog'}, ['1'])
    """

    folder: Path

    @classmethod
    def open(cls, folder: str | Path) -> BeirDataset:
        """The data set in a folder, or of the package ir_datasets, as in `irds:beir/scifact/test`."""
        path = beir_folder(folder)
        if not path.is_dir():
            raise InputError("this folder does not exist; expected a data set in BEIR's layout", file=str(path))
        find_file(path, "queries.jsonl")
        return cls(path)

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    def documents(self) -> Iterator[Document]:
        corpus = find_file(self.folder, "corpus.jsonl")
        for line, record in read_json_lines(corpus):
            yield Document.from_record(record, Origin(str(corpus), line))

    def queries(self) -> dict[str, str]:
        """All queries by id."""
        return read_queries(find_file(self.folder, "queries.jsonl"))

    def queries_of(self, qrels: Qrels) -> dict[str, str]:
        """The texts of the judged queries by id, in the order of the judgements."""
        if not qrels.judgements:
            raise InputError("this split has no judgements", file=str(self.folder))
        texts = self.queries()
        missing = [q for q in qrels.judgements if q not in texts]
        if len(missing) == len(qrels.judgements):
            raise InputError("none of the judged queries is in queries.jsonl", file=str(self.folder))
        return {q: texts[q] for q in qrels.judgements if q in texts}

    @property
    def splits(self) -> list[str]:
        return sorted(p.stem for p in (self.folder / "qrels").glob("*.tsv"))

    def answers(self) -> dict[str, list[str]]:
        """The answers (`metadata.answers`) by query id, for the questions that have answers."""
        return read_answers(find_file(self.folder, "queries.jsonl"))

    def hard_negatives(self, split: str = "train") -> dict[str, TrainingDocuments]:
        """The positives and hard negatives of a split by query id, from `train_hard_negatives.jsonl` for `train`.

        A line is `{"query-id": ..., "pos": [document ids], "neg": [document ids]}`; `neg` may be left out. Without
        the file the result is empty.
        """
        try:
            path = find_file(self.folder, f"{split}_hard_negatives.jsonl")
        except InputError:
            return {}
        return _read_hard_negatives(path)

    @property
    def has_corpus(self) -> bool:
        return is_beir(self.folder)

    def document_ids(self) -> Iterator[str]:
        """The ids of all documents."""
        corpus = find_file(self.folder, "corpus.jsonl")
        for line, record in read_json_lines(corpus):
            yield Document.from_record(record, Origin(str(corpus), line)).id

    def qrels(self, split: str = "test") -> Qrels:
        """The judgements of a split."""
        path = self.folder / "qrels" / f"{split}.tsv"
        if not path.is_file():
            hint = f"known: {', '.join(self.splits)}" if self.splits else "the data set has no judgements"
            raise InputError(f"unknown split {split!r}; {hint}", file=str(self.folder))
        return Qrels.read(path)


def _read_hard_negatives(path: Path) -> dict[str, TrainingDocuments]:
    by_query: dict[str, TrainingDocuments] = {}
    for line, record in read_json_lines(path):
        entry = record if isinstance(record, dict) else {}
        query, positives, negatives = (entry.get(name) for name in ("query-id", "pos", "neg"))
        if query is None or not isinstance(positives, list) or not isinstance(negatives, list | None):
            raise InputError("expected a query-id, a list 'pos' and a list 'neg'", file=str(path), line=line)
        origin = Origin(str(path), line)
        query_id = document_id(query, origin)
        if query_id in by_query:
            raise InputError(f"the query id {query_id!r} appears a second time", file=str(path), line=line)
        negative_ids = None if negatives is None else tuple(document_id(d, origin) for d in negatives)
        by_query[query_id] = TrainingDocuments(tuple(document_id(d, origin) for d in positives), negative_ids)
    return by_query


def read_queries(path: Path) -> dict[str, str]:
    """Queries by id from JSON lines ({_id, text}) or tab-separated lines (id, text), or those of `irds:NAME`."""
    if str(path).startswith(SCHEME):
        path = find_file(beir_folder(path), "queries.jsonl")
    queries: dict[str, str] = {}
    for line, query_id, text in _json_queries(path) if _is_json(path) else _tab_queries(path):
        if query_id in queries:
            raise InputError(f"the query id {query_id!r} appears a second time", file=str(path), line=line)
        queries[query_id] = text
    return queries


def read_answers(path: Path) -> dict[str, list[str]]:
    """Answers by question id, from JSON lines with `metadata.answers` or `answers`."""
    by_question: dict[str, list[str]] = {}
    for line, record in read_json_lines(path):
        query = Document.from_record(record, Origin(str(path), line))
        metadata = query.get("metadata")
        answers = query.get("answers") or (metadata.get("answers") if isinstance(metadata, dict) else None)
        if answers is None:
            continue
        answers = parse_answers(answers) if isinstance(answers, str) else answers
        if not isinstance(answers, list) or not all(isinstance(answer, str | int | float) for answer in answers):
            raise InputError(f"the answers of {query.id!r} are not a list of texts", file=str(path), line=line)
        by_question[query.id] = [str(answer) for answer in answers]
    return by_question


def parse_answers(text: str) -> list[Any]:
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


def _is_json(path: Path) -> bool:
    """Whether a file of queries is JSON: by its name, else by its first character."""
    if ".tsv" in path.name or ".json" in path.name:
        return ".tsv" not in path.name
    return next((text.lstrip()[:1] for _, text in read_lines(path) if text.strip()), "{") in ("{", "[")


def _json_queries(path: Path) -> Iterator[tuple[int, str, str]]:
    for line, record in read_json_lines(path):
        query = Document.from_record(record, Origin(str(path), line))
        text = query.get("text")
        if not isinstance(text, str):
            raise InputError(f"the query {query.id!r} has no text; expected a field 'text'", file=str(path), line=line)
        yield line, query.id, text


_QUERY_HEADERS = {("id", "text"), ("_id", "text"), ("qid", "query"), ("query-id", "text"), ("query_id", "query")}


def _tab_queries(path: Path) -> Iterator[tuple[int, str, str]]:
    for line, row in read_lines(path):
        columns = row.rstrip("\r\n").split("\t")
        if not row.strip() or (line == 1 and tuple(c.strip().lower() for c in columns) in _QUERY_HEADERS):
            continue
        if len(columns) != 2 or not columns[0].strip():
            actual = f", not {len(columns)} columns" if len(columns) != 2 else ""
            raise InputError(f"expected a query id, a tab and a text{actual}", file=str(path), line=line)
        yield line, columns[0], columns[1]
