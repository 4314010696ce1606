"""Judgements: which documents answer which queries, and how well."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from vizsla.errors import InputError
from vizsla.runs.files import no_blanks, numbered_lines

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
        """The judgements of some queries."""
        return Qrels({q: judged for q, judged in self.judgements.items() if q in queries})

    def with_more(self, more: Qrels) -> Qrels:
        """These judgements and others; where both judge a document, the others count."""
        queries = dict.fromkeys([*self.judgements, *more.judgements])
        return Qrels({q: {**self.judgements.get(q, {}), **more.judgements.get(q, {})} for q in queries})

    def write(self, path: str | Path) -> None:
        """Write BEIR's three tab-separated columns under a header for a .tsv file, else TREC's four."""
        rows = [(q, d, grade) for q, judged in self.judgements.items() for d, grade in judged.items()]
        with Path(path).open("w", encoding="utf-8") as file:
            if Path(path).suffix == ".tsv":
                file.write("query-id\tcorpus-id\tscore\n")
                file.writelines(f"{q}\t{d}\t{grade}\n" for q, d, grade in rows)
            else:
                for q, d, grade in rows:
                    no_blanks(q, d)
                    file.write(f"{q} 0 {d} {grade}\n")

    @classmethod
    def read(cls, path: str | Path) -> Qrels:
        """Read BEIR's three columns (query, document, score, with a header) or TREC's four."""
        judgements: dict[str, dict[str, int]] = {}
        for number, query, document, grade in _rows(Path(path)):
            judged = judgements.setdefault(query, {})
            if judged.setdefault(document, grade) != grade:
                message = f"the document {document!r} has a second, other judgement for the query {query!r}"
                raise InputError(message, file=str(path), line=number)
        return cls(judgements)


def _rows(path: Path) -> Iterator[tuple[int, str, str, int]]:
    for number, line in numbered_lines(path):
        columns = line.split("\t") if "\t" in line else line.split()
        if number == 1 and columns[0].strip().lower() in _HEADERS:
            continue
        if len(columns) not in (3, 4):
            message = f"expected three columns (query document score) or TREC's four, not {len(columns)}"
            raise InputError(message, file=str(path), line=number)
        try:
            grade = int(columns[-1])
            if abs(grade) > MOST_GRADE:
                raise ValueError
        except ValueError:
            message = f"{columns[-1].strip()!r} is no judgement; expected a whole number"
            raise InputError(message, file=str(path), line=number) from None
        yield number, columns[0], columns[-2], grade
