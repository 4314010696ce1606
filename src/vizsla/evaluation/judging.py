"""Judging bias: what nobody has judged among the first k, for people to judge (BEIR paper, section 6)."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vizsla.datasets import Document
from vizsla.errors import InputError
from vizsla.reports.escaping import quoted, unquoted
from vizsla.evaluation.matching import in_order
from vizsla.harmless import harmless
from vizsla.runs import Qrels, Run

COLUMNS = ("query-id", "corpus-id", "score", "query", "title", "text")


@dataclass(frozen=True)
class Unjudged:
    """A document that systems put among their first for a query, and nobody has judged."""

    query: str
    document: str
    systems: tuple[str, ...]


def unjudged(runs: Sequence[Run], qrels: Qrels, depth: int = 10) -> list[Unjudged]:
    """What is to be judged: pooled over the systems, so that none of them is favoured, in order of ids.

    The order says nothing of ranks or systems, so that a judge cannot be swayed by them.

    >>> runs = [Run({"q": [("a", 2.0), ("b", 1.0)]}, "one"), Run({"q": [("c", 2.0), ("b", 1.0)]}, "two")]
    >>> [(u.document, u.systems) for u in unjudged(runs, Qrels({"q": {"a": 1}}))]
    [('b', ('one', 'two')), ('c', ('two',))]
    """
    found: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        for query in qrels.judgements:
            documents = in_order(run[query], query, keep_ties=False, own_ids=False) if query in run else []
            for document in documents[:depth]:
                if document not in qrels.judgements[query]:
                    found.setdefault((query, document), []).append(run.name)
    return [Unjudged(q, d, tuple(systems)) for (q, d), systems in sorted(found.items())]


def write_sheet(
    path: Path, rows: Iterable[Unjudged], queries: Mapping[str, str], documents: Mapping[str, Document]
) -> int:
    """A sheet for people to fill in: an empty column `score`, the query, the document. Gives how many rows it has."""
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for row in rows:
            document = documents.get(row.document)
            title, text = (document.get("title") or "", document.get("text") or "") if document else ("", "")
            shown = (harmless(str(each), lines=True) for each in (queries.get(row.query, ""), title, text))
            writer.writerow([quoted(row.query), quoted(row.document), "", *map(quoted, shown)])
            count += 1
    return count


def read_sheet(path: Path) -> tuple[Qrels, int]:
    """The judgements in a sheet that was filled in, and how many rows were left empty."""
    judgements: dict[str, dict[str, int]] = {}
    left = 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            if not {"query-id", "corpus-id", "score"} <= set(reader.fieldnames or ()):
                message = "expected the columns query-id, corpus-id and score, separated by commas"
                raise InputError(message, file=str(path))
            for row in reader:
                score = (row["score"] or "").strip()
                if not score:
                    left += 1
                    continue
                try:
                    grade = int(score)
                except ValueError:
                    message = f"{score!r} is no judgement; expected a whole number"
                    raise InputError(message, file=str(path), line=reader.line_num) from None
                query, document = unquoted(row["query-id"] or ""), unquoted(row["corpus-id"] or "")
                judged = judgements.setdefault(query, {})
                if judged.setdefault(document, grade) != grade:
                    message = f"the document {document!r} has a second, other judgement"
                    raise InputError(message, file=str(path), line=reader.line_num)
    except FileNotFoundError:
        raise InputError("there is no such file", file=str(path)) from None
    except (UnicodeDecodeError, csv.Error) as e:
        raise InputError(f"this is not a sheet of judgements ({e})", file=str(path)) from None
    return Qrels(judgements), left
