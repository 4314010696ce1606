"""Interleaved runs: tables in Markdown, CSV and JSON, and an HTML page with curves of consistency."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from vizsla.evaluation.interleaving import Consistency, Interleaving
from vizsla.reports import charts
from vizsla.reports.escaping import escape_csv, escape_html, escape_markdown
from vizsla.reports.formats import Formats
from vizsla.reports.page import COLOURS, html_page, html_table
from vizsla.reports.tables import TEST_NAMES, markdown_table
from vizsla.runs import Measure

Cells = list[tuple[str, list[str], list[bool]]]


def interleaved_rows(found: Interleaving, measure: str) -> Cells:
    """For each first run its name, a cell for each second run, and which cells are the best of the row.

    A cell has the figure, its mark, and the gain over the first run alone: `0.2450+ (+31%)`.
    """
    lower = Measure.parse(measure).lower_is_better
    rows = []
    for first in found.names:
        values = [found.value(first, second, measure) for second in found.names]
        best = min(values) if lower else max(values)
        rows.append((first, [_cell(found, first, b, measure) for b in found.names], [v == best for v in values]))
    return rows


def _cell(found: Interleaving, first: str, second: str, measure: str) -> str:
    figure = f"{found.value(first, second, measure):.4f}"
    if first == second:
        return figure
    gain = found.gain(first, second, measure)
    return f"{figure}{found.mark(first, second, measure)} ({f'{100 * gain:+.0f}%' if gain is not None else 'from 0'})"


def interleaved_legend(found: Interleaving) -> str:
    """How to read the table, and how its figures were computed."""
    row = next(iter(found.rows.values()))
    many = f", {row.correction}-corrected in each row" if row.correction != "none" and len(found.names) > 2 else ""
    return (
        f"The run of the row first, that of the column second, {found.depth:,} deep; the diagonal has each run alone. "
        f"Convention: {row.convention}; + significantly better, - significantly worse than the row's run alone "
        f"({TEST_NAMES[row.test]}, p < 0.05{many})."
    )


def consistency_legend(c: Consistency) -> str:
    """What the curves of consistency show."""
    return f"C(n): the share of a run's first n documents that {c.reference} has among its first {c.pool_depth:,}."


def interleaved_data(found: Interleaving) -> dict[str, object]:
    """All figures as plain data, for JSON."""
    row = next(iter(found.rows.values()))
    data: dict[str, Any] = {
        "runs": list(found.names), "judged": found.judged, "measures": list(found.measures), "depth": found.depth,
        "convention": str(row.convention), "test": row.test, "correction": row.correction, "figures": _figures(found),
    }  # fmt: skip
    if found.consistency is not None:
        c = found.consistency
        curves = [{"run": r, "queries": c.queries[r], "values": {str(n): v for n, v in s.items()}}
                  for r, s in c.curves.items()]  # fmt: skip
        data["consistency"] = {"reference": c.reference, "pool": c.pool_depth, "runs": curves}
    return data


def _figures(found: Interleaving) -> list[dict[str, Any]]:
    figures = []
    for measure in found.measures:
        for first in found.names:
            for second in found.names:
                entry: dict[str, Any] = {"first": first, "second": second if second != first else None}
                entry |= {"measure": measure, "value": found.value(first, second, measure)}
                if second != first:
                    d, p = found.difference(first, second, measure)
                    entry |= {"difference": d.mean, "gain": found.gain(first, second, measure), "p": d.p}
                    entry |= {"p_corrected": p, "wins": d.wins, "ties": d.ties, "losses": d.losses}
                figures.append(entry)
    return figures


def _as_json(found: Interleaving) -> str:
    return json.dumps(interleaved_data(found), indent=1) + "\n"


def _as_csv(found: Interleaving) -> str:
    """A line for each figure. Consistency has the measure C@n and the reference as the second run."""
    columns = ("first", "second", "measure", "value", "difference", "gain", "p", "p_corrected")
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    for entry in _figures(found):
        names = [escape_csv(entry[c] or "") for c in columns[:3]]
        writer.writerow([*names, *("" if entry.get(c) is None else entry[c] for c in columns[3:])])
    if found.consistency is not None:
        reference = escape_csv(found.consistency.reference)
        for run, curve in found.consistency.curves.items():
            writer.writerows((escape_csv(run), reference, f"C@{n}", v, *[""] * 4) for n, v in curve.items())
    return file.getvalue()


def _as_markdown(found: Interleaving) -> str:
    parts = []
    for measure in found.measures:
        rows = [
            [first, *(f"**{cell}**" if best else cell for cell, best in zip(cells, bests, strict=True))]
            for first, cells, bests in interleaved_rows(found, measure)
        ]
        parts += [markdown_table([measure, *_seconds(found)], rows, left=1), ""]
    parts += [escape_markdown(interleaved_legend(found)), ""]
    if found.consistency is not None:
        c = found.consistency
        rows = [[str(n), *(f"{curve[n]:.4f}" for curve in c.curves.values())] for n in c.depths]
        parts += [markdown_table(["n", *c.curves], rows, left=0), "", escape_markdown(consistency_legend(c)), ""]
    return "\n".join(parts)


def _seconds(found: Interleaving) -> list[str]:
    return [f"+ {name}" for name in found.names]


def _as_html(found: Interleaving) -> str:
    title = f"Interleaving {', '.join(found.names)} on {found.judged}"
    measure = found.measures[0]
    sign = -1 if Measure.parse(measure).lower_is_better else 1
    pairs = [(a, b) for a in found.names for b in found.names]
    first, second = max(pairs, key=lambda pair: sign * found.value(pair[0], pair[1], measure))
    name = first if first == second else f"{first} + {second}"
    headline = (
        f"Best: <b>{escape_html(name)}</b> with {escape_html(measure)} {found.value(first, second, measure):.4f}."
    )
    tables = "".join(_html_table(found, measure) for measure in found.measures)
    sections = [("figures", "Every pair", f'{tables}<p class="small">{escape_html(interleaved_legend(found))}</p>')]
    if found.consistency is not None:
        c = found.consistency
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


def _html_table(found: Interleaving, measure: str) -> str:
    lines = []
    for first, cells, bests in interleaved_rows(found, measure):
        lines.append([(first, False), *zip(cells, bests, strict=True)])
    return html_table([measure, *_seconds(found)], lines)


def _consistency_table(c: Consistency) -> str:
    rows = [[(f"{n:,}", False), *((f"{curve[n]:.4f}", False) for curve in c.curves.values())] for n in c.depths]
    return html_table(["n", *c.curves], rows)


INTERLEAVING_FORMATS = Formats[Interleaving](
    "a report of interleaving", {".html": _as_html, ".md": _as_markdown, ".csv": _as_csv, ".json": _as_json}
)
