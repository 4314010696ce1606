"""Relevance judgements: which documents are relevant to which queries, and how much."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from vizsla.errors import InputError
from vizsla.runs.files import check_no_tabs, check_no_whitespace, numbered_lines

MOST_GRADE = 1_000_000
_HEADERS = ("query-id", "query_id", "qid")


@dataclass(frozen=True)
class Qrels:
    """For each query the judged documents and their grades; 0 or less means judged and not relevant.

    >>> qrels = Qrels({"q1": {"d1": 2, "d2": 0}})
    >>> qrels.relevant("q1"), len(qrels.judgements)
    ({'d1': 2}, 1)
    """

    judgements: Mapping[str, Mapping[str, int]]

    def relevant(self, query: str, least: int = 1) -> dict[str, int]:
        """The documents of a query with at least this grade."""
        return {d: grade for d, grade in self.judgements.get(query, {}).items() if grade >= least}

    def only(self, queries: Collection[str]) -> Qrels:
        """The judgements of some queries only."""
        return Qrels({q: judged for q, judged in self.judgements.items() if q in queries})

    def with_more(self, more: Qrels) -> Qrels:
        """These judgements with `more` added; if both judge a document, the judgement of `more` is used."""
        queries = dict.fromkeys([*self.judgements, *more.judgements])
        return Qrels({q: {**self.judgements.get(q, {}), **more.judgements.get(q, {})} for q in queries})

    def write(self, path: str | Path) -> None:
        """Write BEIR's three tab-separated columns under a header for a .tsv file, else TREC's four."""
        lines = self.lines(tabs=Path(path).suffix == ".tsv")  # all of them, before anything is written
        with Path(path).open("w", encoding="utf-8") as file:
            file.writelines(lines)

    def lines(self, *, tabs: bool = False) -> list[str]:
        """TREC's four columns, or BEIR's three under a header; an id that the columns cannot hold is refused.

        >>> Qrels({"q1": {"d1": 2}}).lines(), Qrels({"q1": {"d 1": 2}}).lines(tabs=True)
        (['q1 0 d1 2\\n'], ['query-id\\tcorpus-id\\tscore\\n', 'q1\\td 1\\t2\\n'])
        """
        rows = [(q, d, grade) for q, judged in self.judgements.items() for d, grade in judged.items()]
        check_no_whitespace(*self.judgements)
        (check_no_tabs if tabs else check_no_whitespace)(*(d for _, d, _ in rows))
        if tabs:
            return ["query-id\tcorpus-id\tscore\n", *(f"{q}\t{d}\t{grade}\n" for q, d, grade in rows)]
        return [f"{q} 0 {d} {grade}\n" for q, d, grade in rows]

    @classmethod
    def read(cls, path: str | Path) -> Qrels:
        """Read BEIR's three columns (query, document, score, with a header) or TREC's four."""
        judgements: dict[str, dict[str, int]] = {}
        for number, query, document, grade in _rows(Path(path)):
            judged = judgements.setdefault(query, {})
            if judged.setdefault(document, grade) != grade:
                message = f"the document {document!r} has two different judgements for the query {query!r}"
                raise InputError(message, file=str(path), line=number)
        return cls(judgements)


_GRADE = re.compile(r"[+-]?[0-9]{1,7}")
_ITERATION = re.compile(r"[0-9]+|Q0", re.IGNORECASE)


def _rows(path: Path) -> Iterator[tuple[int, str, str, int]]:
    """Line number, query, document and grade of each row. Tabs, or else blanks, separate the columns."""
    width = 0
    for number, line in numbered_lines(path):
        tabs = "\t" in line
        columns = line.rstrip("\r\n").split("\t") if tabs else line.split()
        if not width and columns[0].strip().lower() in _HEADERS:
            continue
        problem = _problem(columns, tabs, width)
        if problem is not None:
            raise InputError(problem, file=str(path), line=number)
        width = len(columns)
        yield number, columns[0], columns[-2], int(columns[-1])


def _problem(columns: list[str], tabs: bool, width: int) -> str | None:
    """Why the columns are not a judgement; None if they are one."""
    if len(columns) not in (3, 4):
        return f"expected three columns (query document score) or TREC's four, not {len(columns)}"
    if width and len(columns) != width:
        return f"expected {width} columns as in the lines before, not {len(columns)}"
    query, second, document, grade = columns[0], columns[1], columns[-2], columns[-1].strip()
    if query.split() != [query] or not document.strip():
        what = f"the query id {query!r}" if query.split() != [query] else f"the document id {document!r}"
        return f"{what} is empty or has a blank in it; are columns separated by both blanks and tabs?"
    if len(columns) == 4 and not _ITERATION.fullmatch(second.strip()):
        return f"expected TREC's four columns (query 0 document score), not {second!r} as the second"
    if len(columns) == 3 and not tabs and second.lower() in ("0", "q0"):
        return "expected TREC's four columns (query 0 document score), not three; there is no score"
    if not _GRADE.fullmatch(grade) or abs(int(grade)) > MOST_GRADE:
        return f"{grade!r} is not a judgement; expected a whole number"
    return None
