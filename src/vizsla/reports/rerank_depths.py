"""What reranking gains at which depth as tables and as a page: Markdown, CSV, JSON, HTML with the curves."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from vizsla.evaluation.rerank_depths import DepthResult
from vizsla.reports.escaping import escape_csv, escape_html
from vizsla.reports import charts
from vizsla.reports.formats import Formats
from vizsla.reports.page import COLOURS, html_page, html_table
from vizsla.reports.tables import markdown_table
from vizsla.runs import Measure

RECALL = "recall"


def depth_tables(found: Sequence[DepthResult]) -> dict[str, tuple[list[str], list[list[str]]]]:
    """For each measure, and for the recall that bounds them, the head of a table and its rows, one a depth.

    What other first stages have more than the first stands beside their figures.
    """
    names = list(dict.fromkeys(one.run for one in found))
    tables = {}
    for measure in (*found[0].measures, RECALL):
        values = _values(found, measure)
        rows = []
        for depth in dict.fromkeys(depth for _, depth in values):
            first = values[names[0], depth]
            cells = [f"{first:.4f}"]
            for name in names[1:]:
                value = values[name, depth]
                cells.append(f"{value:.4f} ({value / first - 1:+.0%})" if first else f"{value:.4f}")
            seconds = [one.seconds for one in found if one.depth == depth]
            mean = f"{sum(seconds) / len(seconds):.3f}" if depth else ""
            rows.append([str(depth or "first stage"), *cells, mean])
        tables[measure] = [f"{measure} at depth", *names, "s/query"], rows
    return tables


def _values(found: Sequence[DepthResult], measure: str) -> Mapping[tuple[str, int], float]:
    values = {}
    for one in found:
        value = one.recall if measure == RECALL else one.measures[measure]
        if value is not None:
            values[one.run, one.depth] = value
    return values


def _as_json(found: Sequence[DepthResult]) -> str:
    return json.dumps([asdict(one) for one in found], indent=2) + "\n"


def _as_csv(found: Sequence[DepthResult]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("run", "depth", *found[0].measures, RECALL, "seconds_a_query"))
    writer.writerows((escape_csv(one.run), one.depth, *one.measures.values(), one.recall, one.seconds) for one in found)
    return file.getvalue()


def _as_markdown(found: Sequence[DepthResult]) -> str:
    return "\n".join(f"{markdown_table(head, rows, left=1)}\n" for head, rows in depth_tables(found).values())


def _as_html(found: Sequence[DepthResult]) -> str:
    names = list(dict.fromkeys(one.run for one in found))
    measure = next(iter(found[0].measures))
    sign = -1 if Measure.parse(measure).lower_is_better else 1
    best = max(found, key=lambda one: sign * one.measures[measure])
    where = f"its first {best.depth:,} ranked anew" if best.depth else "as it is"
    headline = f"Best: <b>{escape_html(best.run)}</b>, {where}, with {escape_html(measure)} {best.measures[measure]:.4f}."
    sections: list[tuple[str, str, str]] = []
    for name, (head, rows) in depth_tables(found).items():
        values = _values(found, name)
        lines = [
            charts.Curve(run, [(depth, v) for (r, depth), v in values.items() if r == run and depth], (1 + i) % COLOURS)
            for i, run in enumerate(names)
        ]
        drawn = charts.curves(lines, "documents ranked anew", name, f"{name} at several depths", log_x=True)
        cells = [[(cell, False) for cell in row] for row in rows]
        body = f'<div class="cards"><figure>{drawn}</figure><figure>{html_table(head, cells)}</figure></div>'
        sections.append((f"m{len(sections)}", name, body))
    return html_page(f"{', '.join(names)} ranked anew", headline, sections, "")


RERANKED = Formats[Sequence[DepthResult]](
    "a report of reranking", {".html": _as_html, ".md": _as_markdown, ".csv": _as_csv, ".json": _as_json}
)
