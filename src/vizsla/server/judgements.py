"""Relevance judgements from the search page, in a file of the server, and the measures of models on them.

The file is a small SQLite database beside the index, never inside it. Every call opens it, runs one transaction and
closes it, so that threads, worker processes and forks need no coordination. A judgement is on disk when `set` returns.
"""

from __future__ import annotations

import json
import sqlite3
import time
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from vizsla.errors import VizslaError, kind_of
from vizsla.evaluation import evaluate, retrieve
from vizsla.index.storage.forking import inside_sqlite
from vizsla.runs import Measure, Qrels, Retriever, document_id, parse_measures
from vizsla.runs.retriever import check_count, query_with_words

BEST_GRADE = 3
"""Grades go from 0, judged and not relevant, to this."""
SHOWN = 10
"""The depth at which the share of unjudged documents is computed."""

_APPLICATION = 0x567A4A67  # "VzJg", which marks the file as ours
_VERSION = 1
_WAIT = 10.0  # seconds to wait for another process that writes
_SCHEMA = """
CREATE TABLE queries (number INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE judgements (
    query INTEGER NOT NULL REFERENCES queries, document TEXT NOT NULL,
    grade INTEGER NOT NULL CHECK (grade BETWEEN 0 AND 3), time TEXT NOT NULL, PRIMARY KEY (query, document)
) WITHOUT ROWID;
"""


class JudgementsError(VizslaError):
    """The file of judgements cannot be used. The message does not name the file, so that it can be sent to clients.

    `path` is the file, for the log.
    """

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"the file of judgements {problem}")
        self.path = path


@dataclass(frozen=True)
class JudgedQuery:
    """A judged query: its id, its text, and the grade of each judged document."""

    qid: str
    query: str
    grades: dict[str, int]

    @property
    def judged(self) -> int:
        """How many documents have a grade."""
        return len(self.grades)

    @property
    def relevant(self) -> int:
        """How many documents have a grade of 1 or more."""
        return sum(grade > 0 for grade in self.grades.values())


class Judgements:
    """Which documents people found relevant to which queries, in a file that is created with the first judgement.

    A query is identified by its text: differences in white space and Unicode normalisation are ignored. It keeps its id
    (q1, q2, ...), even if all its judgements are removed.

    >>> import tempfile
    >>> judgements = Judgements(Path(tempfile.mkdtemp(), "judgements.db"))
    >>> judgements.set("barking  dogs", "d1", 2), judgements.set("barking dogs", "d4", 0)
    (1, 2)
    >>> judgements.grades("barking dogs")
    {'d1': 2, 'd4': 0}
    >>> print(judgements.export_qrels() + judgements.export_queries(), end="")
    q1 0 d1 2
    q1 0 d4 0
    {"_id": "q1", "text": "barking dogs"}
    """

    def __init__(self, path: str | Path, *, is_made: bool = True) -> None:
        """`is_made`: make the folder of the file if it is not there."""
        self.path = Path(path)
        self._is_made = is_made
        if "\0" in str(path):
            raise JudgementsError(self.path, "cannot have a name with a NUL in it")

    def set(self, query: str, doc_id: str, grade: int | None) -> int:
        """Set a document's grade for a query, or remove it (None); returns how many grades the query then has."""
        text, document = query_key(query), document_id(doc_id)
        check_grade(grade)
        if grade is None and not self._exists():
            return 0
        with self._writing() as db:
            if grade is not None:
                db.execute("INSERT OR IGNORE INTO queries (text) VALUES (?)", (text,))
            row = db.execute("SELECT number FROM queries WHERE text = ?", (text,)).fetchone()
            if row is None:
                return 0
            if grade is None:
                db.execute("DELETE FROM judgements WHERE query = ? AND document = ?", (*row, document))
            else:
                now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                db.execute("INSERT OR REPLACE INTO judgements VALUES (?, ?, ?, ?)", (*row, document, grade, now))
            count: int = db.execute("SELECT count(*) FROM judgements WHERE query = ?", row).fetchone()[0]
            return count

    def find(self, query: str) -> JudgedQuery | None:
        """A query with its id and its grades; None if nothing was ever judged for it."""
        text = query_key(query)
        with self._reading() as db:
            row = None if db is None else db.execute("SELECT number FROM queries WHERE text = ?", (text,)).fetchone()
            if db is None or row is None:
                return None
            grades = db.execute("SELECT document, grade FROM judgements WHERE query = ? ORDER BY document", row)
            return JudgedQuery(f"q{row[0]}", text, dict(grades))

    def grades(self, query: str) -> dict[str, int]:
        """The grade of each document that was judged for a query."""
        found = self.find(query)
        return {} if found is None else found.grades

    def queries(self) -> list[JudgedQuery]:
        """All queries with judgements, in the order of their ids."""
        with self._reading() as db:
            if db is None:
                return []
            rows = db.execute(
                "SELECT number, text, document, grade FROM judgements JOIN queries ON number = query "
                "ORDER BY number, document"
            ).fetchall()
        grades: dict[tuple[int, str], dict[str, int]] = {}
        for number, text, document, grade in rows:
            grades.setdefault((number, text), {})[document] = grade
        return [JudgedQuery(f"q{number}", text, judged) for (number, text), judged in grades.items()]

    def qrels(self) -> Qrels:
        """All judgements by query id."""
        return Qrels({q.qid: q.grades for q in self.queries()})

    def export_qrels(self, *, tabs: bool = False) -> str:
        """All judgements in TREC's four columns; with `tabs` in BEIR's three, whose document ids may have blanks."""
        return "".join(self.qrels().lines(tabs=tabs))

    def export_queries(self) -> str:
        """All judged queries as JSON lines with `_id` and `text`, as in BEIR's queries.jsonl."""
        lines = (json.dumps({"_id": q.qid, "text": q.query}, ensure_ascii=False) for q in self.queries())
        return "".join(f"{line}\n" for line in lines)

    def _exists(self) -> bool:
        try:
            return self.path.stat().st_size > 0
        except FileNotFoundError:
            return False
        except OSError as e:
            raise JudgementsError(self.path, f"cannot be read ({e.strerror})") from None

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """The database in a read transaction; None before the first judgement."""
        if not self._exists():
            yield None
            return
        with inside_sqlite, self._plain_errors("cannot be read"), closing(self._connect("rw")) as db:
            db.execute("BEGIN")
            yield None if self._is_new(db) else db  # new: the first judgement was interrupted

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """The database in a transaction that is on disk when it ends; the tables are made if there are none."""
        self._make_folder()
        with inside_sqlite, self._plain_errors("cannot be written"), closing(self._connect("rwc")) as db:
            db.execute("PRAGMA synchronous=EXTRA")  # also sync the deletion of the journal
            db.execute("BEGIN IMMEDIATE")
            if self._is_new(db):
                for statement in (*_SCHEMA.split(";\n")[:-1], f"PRAGMA user_version={_VERSION}"):
                    db.execute(statement)
                db.execute(f"PRAGMA application_id={_APPLICATION}")
            yield db
            db.execute("COMMIT")

    def _make_folder(self) -> None:
        try:
            if self._is_made:
                self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise JudgementsError(self.path, f"has no folder, and none can be made ({e.strerror})") from None

    def _connect(self, mode: str) -> sqlite3.Connection:
        if self.path.is_dir():
            raise JudgementsError(self.path, "is a folder; name a file")
        uri = f"{self.path.absolute().as_uri()}?mode={mode}"
        return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_WAIT)

    def _is_new(self, db: sqlite3.Connection) -> bool:
        """Whether the database has nothing in it; one that is not ours is refused."""
        application = db.execute("PRAGMA application_id").fetchone()[0]
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if not application and not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return True
        if application != _APPLICATION:
            raise JudgementsError(self.path, "is a database of something else; name another file")
        if version != _VERSION:
            raise JudgementsError(self.path, f"has version {version}, and this Vizsla reads version {_VERSION}")
        return False

    @contextmanager
    def _plain_errors(self, doing: str) -> Iterator[None]:
        """Translate errors of SQLite into one sentence."""
        try:
            yield
        except sqlite3.Error as e:
            name = getattr(e, "sqlite_errorname", "")
            kinds = {prefix: problem for prefix, problem in _PROBLEMS.items() if name.startswith(prefix)}
            raise JudgementsError(self.path, next(iter(kinds.values()), f"{doing} ({e})")) from e


_PROBLEMS = {
    "SQLITE_FULL": "cannot grow, since the disk is full; earlier judgements are intact",
    "SQLITE_IOERR": "cannot be used, since the disk is full or failing; earlier judgements are intact",
    "SQLITE_BUSY": "is in use by another process; try again",
    "SQLITE_READONLY": "or its folder cannot be written to; check their permissions",
    "SQLITE_CANTOPEN": "cannot be opened; check the permissions of its folder",
    "SQLITE_PERM": "cannot be opened; check the permissions of its folder",
    "SQLITE_NOTADB": "is something else, or its start is damaged; name another file, or restore a backup",
    "SQLITE_CORRUPT": "is damaged; restore a backup, or name another file",
    "SQLITE_ERROR": "is damaged, since its tables are not those of judgements; restore a backup",
}


def query_key(query: str) -> str:
    """The text that identifies a query: in NFC with single spaces, otherwise as it was typed.

    >>> query_key("  cafe\u0301 au\\tlait ")
    'café au lait'
    """
    text = " ".join(unicodedata.normalize("NFC", query_with_words(query)).split())
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise VizslaError("the query contains a lone surrogate, which cannot be stored")
    return text


def check_grade(grade: object) -> None:
    """Refuse what is neither a grade nor None."""
    if grade is not None and (type(grade) is not int or not 0 <= grade <= BEST_GRADE):
        received = f"the number {grade}" if type(grade) is int and abs(grade) < 10**9 else kind_of(grade)
        raise VizslaError(f"a grade is a whole number from 0 to {BEST_GRADE}, or null to forget it, not {received}")


@dataclass(frozen=True)
class MeasuredModel:
    """A model's measures on the judged queries: the means, the value of each query, and the unjudged share."""

    model: str
    mean: dict[str, float]
    per_query: dict[str, dict[str, float]]
    unjudged: float
    """The share of unjudged documents in the top 10 of all queries, from 0 to 1."""


@dataclass(frozen=True)
class Measured:
    """The measures of several models on the judged queries."""

    queries: int
    measures: list[str]
    models: list[MeasuredModel]


def measures(
    judgements: Judgements,
    retrievers: Mapping[str, Retriever],
    measures: str | Sequence[str | Measure] = ("nDCG@10", "P@5", "R@10", "RR"),
    depth: int = 100,
) -> Measured:
    """Search the judged queries with every retriever, and compute the measures of what it finds.

    An unjudged document counts as not relevant, as is usual in evaluation. If only the results of one model were
    judged, the measures of the others are therefore too low. `unjudged` is the share of each model's top 10 that this
    concerns; if it is below a few percent for all models, they can be compared.

    Figures are those of trec_eval with -c: a query whose judged documents are all irrelevant counts as 0 for every
    model. Such queries lower all means and do not change which model is better.
    """
    wanted = parse_measures(measures)
    depth = check_count(depth, "the depth of a measurement")
    deep = next((m for m in wanted if m.cutoff is not None and m.cutoff > depth), None)
    if deep is not None:
        raise VizslaError(f"{deep} needs {deep.cutoff:,} documents; choose a depth of {deep.cutoff:,} or more")
    if not retrievers:
        raise VizslaError("no model was named; name at least one to measure")
    judged = judgements.queries()
    if not judged:
        raise VizslaError("no query has judgements yet; mark some results as relevant or not first")
    qrels = Qrels({q.qid: q.grades for q in judged})
    texts = {q.qid: q.query for q in judged}
    models = [_measure(name, retriever, texts, qrels, wanted, depth) for name, retriever in retrievers.items()]
    return Measured(len(judged), [str(m) for m in wanted], models)


def _measure(
    name: str, retriever: Retriever, texts: Mapping[str, str], qrels: Qrels, measures: Sequence[Measure], depth: int
) -> MeasuredModel:
    # Query ids are generated here, so a document with the same id is not the query itself and must not be excluded.
    run = retrieve(retriever, texts, max(depth, SHOWN), own_ids=True)
    figures = evaluate(run.top(depth), qrels, measures, "trec")
    per_query = {qid: {m: values[qid] for m, values in figures.by_query.items()} for qid in texts}
    first = [(qid, document) for qid in texts if qid in run for document in run[qid].documents[:SHOWN]]
    missing = sum(document not in qrels.judgements[qid] for qid, document in first)
    return MeasuredModel(name, figures.measures, per_query, missing / len(first) if first else 0.0)
