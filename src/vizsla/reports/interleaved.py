"""Interleaved runs: tables in Markdown, CSV and JSON, and an HTML page with curves of consistency."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from vizsla.evaluation.interleaving import Consistency, Interleaving
from vizsla.reports import charts
from vizsla.reports.formats import Formats, escape_csv, escape_html, escape_markdown
from vizsla.reports.page import COLOURS, html_page, html_table
from vizsla.reports.tables import TEST_NAMES, markdown_table
from vizsla.runs import Measure

Cells = list[tuple[str, list[str], list[bool]]]


def interleaved_rows(result: Interleaving, measure: str) -> Cells:
    """For each first run its name, a cell for each second run, and which cells are the best of the row.

    A cell has the figure, its mark, and the gain over the first run alone: `0.2450+ (+31%)`.
    """
    lower = Measure.parse(measure).lower_is_better
    rows = []
    for first in result.names:
        values = [result.value(first, second, measure) for second in result.names]
        best = min(values) if lower else max(values)
        rows.append((first, [_cell(result, first, b, measure) for b in result.names], [v == best for v in values]))
    return rows


def _cell(result: Interleaving, first: str, second: str, measure: str) -> str:
    figure = f"{result.value(first, second, measure):.4f}"
    if first == second:
        return figure
    gain = result.gain(first, second, measure)
    return f"{figure}{result.mark(first, second, measure)} ({f'{100 * gain:+.0f}%' if gain is not None else 'from 0'})"


def interleaved_legend(result: Interleaving) -> str:
    """How to read the table, and how its figures were computed."""
    row = next(iter(result.rows.values()))
    many = f", {row.correction}-corrected in each row" if row.correction != "none" and len(result.names) > 2 else ""
    return (
        f"The run of the row first, that of the column second, {result.depth:,} deep; on the diagonal each run alone. "
        f"Convention: {row.convention}; + significantly better, - significantly worse than the row's run alone "
        f"({TEST_NAMES[row.test]}, p < 0.05{many})."
    )


def consistency_legend(c: Consistency) -> str:
    """What the curves of consistency show."""
    return f"C(n): the share of a run's first n documents that {c.reference} has among its first {c.pool_depth:,}."


def interleaved_data(result: Interleaving) -> dict[str, object]:
    """All figures as plain data, for JSON."""
    row = next(iter(result.rows.values()))
    data: dict[str, Any] = {
        "runs": list(result.names), "judged": result.judged, "measures": list(result.measures), "depth": result.depth,
        "convention": str(row.convention), "test": row.test, "correction": row.correction, "figures": _figures(result),
    }  # fmt: skip
    if result.consistency is not None:
        c = result.consistency
        curves = [{"run": r, "queries": c.queries[r], "values": {str(n): v for n, v in s.items()}}
                  for r, s in c.curves.items()]  # fmt: skip
        data["consistency"] = {"reference": c.reference, "pool": c.pool_depth, "runs": curves}
    return data


def _figures(result: Interleaving) -> list[dict[str, Any]]:
    figures = []
    for measure in result.measures:
        for first in result.names:
            for second in result.names:
                entry: dict[str, Any] = {"first": first, "second": second if second != first else None}
                entry |= {"measure": measure, "value": result.value(first, second, measure)}
                if second != first:
                    d, p = result.difference(first, second, measure)
                    entry |= {"difference": d.mean, "gain": result.gain(first, second, measure), "p": d.p}
                    entry |= {"p_corrected": p, "wins": d.wins, "ties": d.ties, "losses": d.losses}
                figures.append(entry)
    return figures


def _as_json(result: Interleaving) -> str:
    return json.dumps(interleaved_data(result), indent=1) + "\n"


def _as_csv(result: Interleaving) -> str:
    """A line for each figure. Consistency has the measure C@n and the reference as the second run."""
    columns = ("first", "second", "measure", "value", "difference", "gain", "p", "p_corrected")
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    for entry in _figures(result):
        names = [escape_csv(entry[c] or "") for c in columns[:3]]
        writer.writerow([*names, *("" if entry.get(c) is None else entry[c] for c in columns[3:])])
    if result.consistency is not None:
        reference = escape_csv(result.consistency.reference)
        for run, curve in result.consistency.curves.items():
            writer.writerows((escape_csv(run), reference, f"C@{n}", v, *[""] * 4) for n, v in curve.items())
    return file.getvalue()


def _as_markdown(result: Interleaving) -> str:
    parts = []
    for measure in result.measures:
        rows = [
            [first, *(f"**{cell}**" if best else cell for cell, best in zip(cells, bests, strict=True))]
            for first, cells, bests in interleaved_rows(result, measure)
        ]
        parts += [markdown_table([measure, *_seconds(result)], rows, left=1), ""]
    parts += [escape_markdown(interleaved_legend(result)), ""]
    if result.consistency is not None:
        c = result.consistency
        rows = [[str(n), *(f"{curve[n]:.4f}" for curve in c.curves.values())] for n in c.depths]
        parts += [markdown_table(["n", *c.curves], rows, left=0), "", escape_markdown(consistency_legend(c)), ""]
    return "\n".join(parts)


def _seconds(result: Interleaving) -> list[str]:
    return [f"+ {name}" for name in result.names]


def _as_html(result: Interleaving) -> str:
    title = f"Interleaving {', '.join(result.names)} on {result.judged}"
    measure = result.measures[0]
    sign = -1 if Measure.parse(measure).lower_is_better else 1
    pairs = [(a, b) for a in result.names for b in result.names]
    first, second = max(pairs, key=lambda pair: sign * result.value(pair[0], pair[1], measure))
    name = first if first == second else f"{first} + {second}"
    headline = (
        f"Best: <b>{escape_html(name)}</b> with {escape_html(measure)} {result.value(first, second, measure):.4f}."
    )
    tables = "".join(_html_table(result, measure) for measure in result.measures)
    sections = [("figures", "Every pair", f'{tables}<p class="small">{escape_html(interleaved_legend(result))}</p>')]
    if result.consistency is not None:
        c = result.consistency
        lines = [
            charts.Curve(name, tuple(curve.items()), (1 + i) % COLOURS)
            for i, (name, curve) in enumerate(c.curves.items())
        ]
        heading = f"Consistency with {c.reference}"
        drawn = charts.curves(lines, "n, number of documents", "C(n)", heading, log_x=True)
        figures = f"<figure>{drawn}</figure><figure>{_consistency_table(c)}</figure>"
        body = f'<div class="cards">{figures}</div><p class="small">{escape_html(consistency_legend(c))}</p>'
        sections.append(("consistency", heading, body))
    return html_page(title, headline, sections, "")


def _html_table(result: Interleaving, measure: str) -> str:
    lines = []
    for first, cells, bests in interleaved_rows(result, measure):
        lines.append([(first, False), *zip(cells, bests, strict=True)])
    return html_table([measure, *_seconds(result)], lines)


def _consistency_table(c: Consistency) -> str:
    rows = [[(f"{n:,}", False), *((f"{curve[n]:.4f}", False) for curve in c.curves.values())] for n in c.depths]
    return html_table(["n", *c.curves], rows)


INTERLEAVING_FORMATS = Formats[Interleaving](
    "a report of interleaving", {".html": _as_html, ".md": _as_markdown, ".csv": _as_csv, ".json": _as_json}
)
