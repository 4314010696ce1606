"""The gain of reranking at several depths: tables in Markdown, CSV and JSON, and an HTML page with curves."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from vizsla.evaluation.retrieval import DepthResult
from vizsla.reports import charts
from vizsla.reports.formats import Formats, escape_csv, escape_html
from vizsla.reports.page import COLOURS, html_page, html_table
from vizsla.reports.tables import markdown_table
from vizsla.runs import Measure

RECALL = "recall"


def depth_tables(results: Sequence[DepthResult]) -> dict[str, tuple[list[str], list[list[str]]]]:
    """For each measure, and for the recall of the first stage, the head of a table and a row for each depth.

    The figures of other runs are followed by the relative difference from the first run, in brackets.
    """
    names = list(dict.fromkeys(result.run for result in results))
    tables = {}
    for measure in (*results[0].measures, RECALL):
        values = _values(results, measure)
        rows = []
        for depth in dict.fromkeys(depth for _, depth in values):
            first = values[names[0], depth]
            cells = [f"{first:.4f}"]
            for name in names[1:]:
                value = values[name, depth]
                cells.append(f"{value:.4f} ({value / first - 1:+.0%})" if first else f"{value:.4f}")
            seconds = [result.seconds for result in results if result.depth == depth]
            mean = f"{sum(seconds) / len(seconds):.3f}" if depth else ""
            rows.append([str(depth or "first stage"), *cells, mean])
        tables[measure] = [f"{measure} at depth", *names, "s/query"], rows
    return tables


def _values(results: Sequence[DepthResult], measure: str) -> Mapping[tuple[str, int], float]:
    values = {}
    for result in results:
        value = result.recall if measure == RECALL else result.measures[measure]
        if value is not None:
            values[result.run, result.depth] = value
    return values


def _as_json(results: Sequence[DepthResult]) -> str:
    return json.dumps([asdict(result) for result in results], indent=2) + "\n"


def _as_csv(results: Sequence[DepthResult]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("run", "depth", *results[0].measures, RECALL, "seconds_a_query"))
    writer.writerows(
        (escape_csv(result.run), result.depth, *result.measures.values(), result.recall, result.seconds)
        for result in results
    )
    return file.getvalue()


def _as_markdown(results: Sequence[DepthResult]) -> str:
    return "\n".join(f"{markdown_table(head, rows, left=1)}\n" for head, rows in depth_tables(results).values())


def _as_html(results: Sequence[DepthResult]) -> str:
    names = list(dict.fromkeys(result.run for result in results))
    measure = next(iter(results[0].measures))
    sign = -1 if Measure.parse(measure).lower_is_better else 1
    best = max(results, key=lambda result: sign * result.measures[measure])
    where = f"with its first {best.depth:,} documents reranked" if best.depth else "without reranking"
    figure = f"{escape_html(measure)} {best.measures[measure]:.4f}"
    headline = f"Best: <b>{escape_html(best.run)}</b> {where}, {figure}."
    sections: list[tuple[str, str, str]] = []
    for name, (head, rows) in depth_tables(results).items():
        values = _values(results, name)
        lines = [
            charts.Curve(run, [(depth, v) for (r, depth), v in values.items() if r == run and depth], (1 + i) % COLOURS)
            for i, run in enumerate(names)
        ]
        drawn = charts.curves(lines, "documents reranked", name, f"{name} by depth", log_x=True)
        cells = [[(cell, False) for cell in row] for row in rows]
        body = f'<div class="cards"><figure>{drawn}</figure><figure>{html_table(head, cells)}</figure></div>'
        sections.append((f"m{len(sections)}", name, body))
    return html_page(f"Reranking {', '.join(names)}", headline, sections, "")


DEPTH_FORMATS = Formats[Sequence[DepthResult]](
    "a report of reranking", {".html": _as_html, ".md": _as_markdown, ".csv": _as_csv, ".json": _as_json}
)
