"""What generated queries are like, as Markdown or JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from vizsla.expansion import QueryFacts
from vizsla.reports.escaping import escape_markdown
from vizsla.reports.formats import Formats


def query_rows(facts: QueryFacts) -> tuple[list[str], list[list[str]]]:
    """The columns and rows of a table: generated queries, and queries of people where there are any."""
    human = facts.human
    columns = ["", "generated", *([] if human is None else [human.name])]
    pairs: list[tuple[str, str, str]] = [
        ("queries", f"{facts.queries:,}", "" if human is None else f"{human.queries:,}"),
        ("words of a query", f"{facts.words:.1f}", "" if human is None else f"{human.words:.1f}"),
        (
            "words that the document does not have",
            f"{facts.new_words:.1%}",
            "" if human is None else f"{human.new_words:.1%}",
        ),
        (
            f"{facts.model} ranks a right document first",
            f"{facts.first:.1%}",
            "" if human is None else f"{human.first:.1%}",
        ),
        ("repeat a query of the same document", f"{facts.repeated_in_document:.1%}", ""),
        ("repeat a query of any document", f"{facts.repeated:.1%}", ""),
    ]
    return columns, [list(row[: len(columns)]) for row in pairs]


def query_note(facts: QueryFacts) -> str:
    """What the figures of the table are of, in a sentence."""
    without = f", {facts.without_queries:,} of them without queries" if facts.without_queries else ""
    return (
        f"{facts.queries:,} queries of {facts.documents:,} documents{without}; {facts.sample:,} of them, drawn at "
        "random, were searched for."
    )


def query_markdown(facts: QueryFacts) -> str:
    """A table, and the examples as another one."""
    columns, rows = query_rows(facts)
    lines = [query_note(facts), "", _row(columns), "|---|" + "---:|" * (len(columns) - 1), *map(_row, rows)]
    if facts.examples:
        lines += ["", _row(["generated query", "document"]), "|---|---|"]
        lines += [_row([e.query, e.title or e.text[:80]]) for e in facts.examples]
    return "\n".join(lines) + "\n"


def query_data(facts: QueryFacts) -> dict[str, Any]:
    """All figures and examples as plain data."""
    return asdict(facts)


QUERY_FORMATS: Formats[QueryFacts] = Formats(
    "a report of generated queries",
    {".md": query_markdown, ".json": lambda facts: json.dumps(query_data(facts), indent=2, ensure_ascii=False) + "\n"},
)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(escape_markdown(' '.join(cell.split())) for cell in cells)} |"
