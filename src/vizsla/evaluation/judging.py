"""Unjudged documents among the first k, as a sheet for people to fill in (judging bias, BEIR paper, section 6)."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vizsla.datasets import Document
from vizsla.errors import InputError
from vizsla.evaluation.figures import in_order
from vizsla.harmless import harmless
from vizsla.runs import Qrels, Run

_FORMULA = tuple("=+-@'")


def quote_formula(text: str) -> str:
    """A text for a cell, with a leading quote if a spreadsheet would evaluate it; see `unquote_formula`.

    >>> quote_formula("=1+1"), quote_formula("bm25")
    ("'=1+1", 'bm25')
    """
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


def unquote_formula(text: str) -> str:
    """The text that `quote_formula` was given.

    >>> unquote_formula(quote_formula("=1+1")), unquote_formula("'tis")
    ('=1+1', "'tis")
    """
    return text[1:] if text.startswith("'") and text[1:].lstrip().startswith(_FORMULA) else text


COLUMNS = ("query-id", "corpus-id", "score", "query", "title", "text")


@dataclass(frozen=True)
class Unjudged:
    """A document without a judgement that some systems have among their first for a query."""

    query: str
    document: str
    systems: tuple[str, ...]


def unjudged(runs: Sequence[Run], qrels: Qrels, depth: int = 10) -> list[Unjudged]:
    """The documents without a judgement among the first `depth` of any run, in the order of ids.

    They are pooled over all systems, so that none has an advantage. Their order reveals nothing about ranks or systems.

    >>> runs = [Run({"q": [("a", 2.0), ("b", 1.0)]}, "one"), Run({"q": [("c", 2.0), ("b", 1.0)]}, "two")]
    >>> [(u.document, u.systems) for u in unjudged(runs, Qrels({"q": {"a": 1}}))]
    [('b', ('one', 'two')), ('c', ('two',))]
    """
    systems_by_pair: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        for query in qrels.judgements:
            documents = in_order(run[query], query, keep_ties=False, own_ids=False) if query in run else []
            for document in documents[:depth]:
                if document not in qrels.judgements[query]:
                    systems_by_pair.setdefault((query, document), []).append(run.name)
    return [Unjudged(q, d, tuple(systems)) for (q, d), systems in sorted(systems_by_pair.items())]


def write_sheet(
    path: Path, rows: Iterable[Unjudged], queries: Mapping[str, str], documents: Mapping[str, Document]
) -> int:
    """Write a CSV sheet for people to fill in, with an empty column `score`; returns the number of its rows."""
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for row in rows:
            document = documents.get(row.document)
            title, text = (document.get("title") or "", document.get("text") or "") if document else ("", "")
            shown = (harmless(str(each), lines=True) for each in (queries.get(row.query, ""), title, text))
            writer.writerow([quote_formula(row.query), quote_formula(row.document), "", *map(quote_formula, shown)])
            count += 1
    return count


def read_sheet(path: Path) -> tuple[Qrels, int]:
    """The judgements in a sheet that was filled in, and how many rows have no score."""
    judgements: dict[str, dict[str, int]] = {}
    empty = 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            if not {"query-id", "corpus-id", "score"} <= set(reader.fieldnames or ()):
                message = "expected the columns query-id, corpus-id and score, separated by commas"
                raise InputError(message, file=str(path))
            for row in reader:
                score = (row["score"] or "").strip()
                if not score:
                    empty += 1
                    continue
                try:
                    grade = int(score)
                except ValueError:
                    message = f"{score!r} is not a judgement; expected a whole number"
                    raise InputError(message, file=str(path), line=reader.line_num) from None
                query, document = unquote_formula(row["query-id"] or ""), unquote_formula(row["corpus-id"] or "")
                judged = judgements.setdefault(query, {})
                if judged.setdefault(document, grade) != grade:
                    message = f"the document {document!r} has two different judgements"
                    raise InputError(message, file=str(path), line=reader.line_num)
    except FileNotFoundError:
        raise InputError("this file does not exist", file=str(path)) from None
    except (UnicodeDecodeError, csv.Error) as e:
        raise InputError(f"this is not a sheet of judgements ({e})", file=str(path)) from None
    return Qrels(judgements), empty
