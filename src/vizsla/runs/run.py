"""Runs and judgements: rankings as data, in and out of TREC's formats."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from vizsla.errors import InputError


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8-sig") as file:
            yield from ((n, line) for n, line in enumerate(file, 1) if line.strip())
    except FileNotFoundError:
        raise InputError("there is no such file", file=str(path)) from None
    except IsADirectoryError:
        raise InputError("this is a folder, not a file", file=str(path)) from None
    except UnicodeDecodeError:
        raise InputError("this is not a UTF-8 text file", file=str(path)) from None


@dataclass(frozen=True)
class Run:
    """For each query its documents with their scores, best first.

    >>> run = Run({"q1": [("d2", 3.0), ("q1", 2.0)]})
    >>> run.without_own_ids().rankings
    {'q1': [('d2', 3.0)]}
    """

    rankings: Mapping[str, list[tuple[str, float]]]

    def without_own_ids(self) -> Run:
        """The run without documents whose id is the query's own, as Anserini's -removeQuery leaves it."""
        return Run({q: [(d, s) for d, s in ranking if d != q] for q, ranking in self.rankings.items()})

    def write(self, path: str | Path, tag: str = "vizsla") -> None:
        """Write TREC's six columns: query, Q0, document, rank, score, tag."""
        with Path(path).open("w", encoding="utf-8") as file:
            for query, ranking in self.rankings.items():
                for rank, (document, score) in enumerate(ranking, 1):
                    if len(query.split()) != 1 or len(document.split()) != 1:
                        raise InputError(f"TREC's format has no room for blanks in ids ({query!r}, {document!r})")
                    file.write(f"{query} Q0 {document} {rank} {score:.9g} {tag}\n")

    @classmethod
    def read(cls, path: str | Path) -> Run:
        """Read TREC's six columns; each query's documents are ranked by score, ties as they stand."""
        rankings: dict[str, list[tuple[str, float]]] = {}
        for number, line in _lines(Path(path)):
            columns = line.split()
            if len(columns) != 6:
                message = f"expected six columns (query Q0 document rank score tag), not {len(columns)}"
                raise InputError(message, file=str(path), line=number)
            try:
                score = float(columns[4])
            except ValueError:
                score = math.nan
            if not math.isfinite(score):
                raise InputError(f"{columns[4]!r} is no score", file=str(path), line=number)
            rankings.setdefault(columns[0], []).append((columns[2], score))
        for ranking in rankings.values():
            ranking.sort(key=lambda hit: -hit[1])
        return cls(rankings)


@dataclass(frozen=True)
class Qrels:
    """For each query the judged documents and their relevance, 0 meaning judged and not relevant."""

    judgements: Mapping[str, Mapping[str, int]]

    @classmethod
    def read(cls, path: str | Path) -> Qrels:
        """Read BEIR's three columns (query, document, score, with a header) or TREC's four."""
        judgements: dict[str, dict[str, int]] = {}
        for number, line in _lines(Path(path)):
            columns = line.split("\t") if "\t" in line else line.split()
            if number == 1 and columns[0].strip().lower() in ("query-id", "query_id", "qid"):
                continue
            if len(columns) not in (3, 4):
                message = f"expected three columns (query document score) or TREC's four, not {len(columns)}"
                raise InputError(message, file=str(path), line=number)
            query, document, score = columns[0], columns[-2], columns[-1].strip()
            try:
                judgements.setdefault(query, {})[document] = int(score)
            except ValueError:
                message = f"{score!r} is no judgement; expected a whole number"
                raise InputError(message, file=str(path), line=number) from None
        return cls(judgements)
