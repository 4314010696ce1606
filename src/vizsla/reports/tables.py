"""A comparison as a table: Markdown, CSV, LaTeX, JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

from vizsla.evaluation.comparison import Comparison
from vizsla.harmless import harmless
from vizsla.reports.escaping import escape_csv, escape_latex, escape_markdown
from vizsla.runs import Measure

TEST_NAMES = {"t-test": "paired t-test", "randomisation": "randomisation test"}


def legend(c: Comparison) -> str:
    """How the figures were computed and what the marks mean, in one sentence."""
    many = f", {c.correction}-corrected" if c.correction != "none" and len(c.systems) > 2 else ""
    marks = (
        f"; + significantly better, - significantly worse than {c.baseline} ({TEST_NAMES[c.test]}, p < 0.05{many})"
        if len(c.systems) > 1
        else ""
    )
    return f"Convention: {c.convention}{marks}."


def rows(c: Comparison) -> list[list[str]]:
    """A row for each data set and measure, a column for each system."""
    shown = [(d, m) for d in (*c.datasets, *c.groups) for m in c.measures]
    out = [[_title(c, d), m, *_cells(c, d, m)] for d, m in shown]
    if len(c.rows) > 1:
        out += [["mean", m, *(f"{c.mean(s, m):.4f}" for s in c.systems)] for m in c.measures]
    return out


def _title(c: Comparison, dataset: str) -> str:
    if dataset in c.groups:
        return f"{dataset} (mean of {len(c.groups[dataset])})"
    return dataset if c.splits[dataset] == "test" else f"{dataset} {c.splits[dataset]}"


def _cells(c: Comparison, dataset: str, measure: str) -> list[str]:
    return [f"{c.value(dataset, s, measure):.4f}{c.mark(dataset, s, measure)}" for s in c.systems]


def best_of(measure: str, row: list[str]) -> list[bool]:
    """Which figures of a row are the best."""
    values = [float(cell.rstrip("+-")) for cell in row]
    best = min(values) if Measure.parse(measure).lower_is_better else max(values)
    return [v == best for v in values]


def as_markdown(c: Comparison) -> str:
    """A Markdown table; the best figure of a row in bold."""
    lines = []
    for name, measure, *cells in rows(c):
        shown = [f"**{cell}**" if best else cell for cell, best in zip(cells, best_of(measure, cells), strict=True)]
        lines.append([name, measure, *shown])
    table = markdown_table(["data set", "measure", *c.systems], lines, left=2)
    return "\n".join([table, "", escape_markdown(legend(c)), ""])


def markdown_table(head: list[str], rows: list[list[str]], left: int) -> str:
    """A table in Markdown; the first `left` columns are names, the others numbers."""
    escaped = [[*map(escape_markdown, row[:left]), *row[left:]] for row in rows]
    lines = ["| " + " | ".join(row) + " |" for row in ([*map(escape_markdown, head)], *escaped)]
    return "\n".join([lines[0], "|---" * left + "|---:" * (len(head) - left) + "|", *lines[1:]])


def as_csv(c: Comparison) -> str:
    """One line for each figure, with the difference from the baseline and its p-value."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["dataset", "split", "system", "measure", "value", "difference", "p", "p_corrected", "effect"])
    for entry in _entries(c):
        names = [escape_csv(entry.get(k, "")) for k in ("dataset", "split", "system", "measure")]
        writer.writerow([*names, *(entry.get(k, "") for k in ("value", "difference", "p", "p_corrected", "effect"))])
    return file.getvalue()


def as_latex(c: Comparison) -> str:
    """A booktabs table; the best figure of a row in bold, an arrow where a difference is significant."""
    lines = [f"\\begin{{tabular}}{{ll{'r' * len(c.systems)}}}", "\\toprule"]
    lines.append(" & ".join(escape_latex(h) for h in ("data set", "measure", *c.systems)) + r" \\")
    lines.append("\\midrule")
    for name, measure, *cells in rows(c):
        shown = []
        for cell, best in zip(cells, best_of(measure, cells), strict=True):
            plain, mark = cell.rstrip("+-"), cell[-1:] if cell[-1:] in "+-" else ""
            sign = {"+": r"$^{\uparrow}$", "-": r"$^{\downarrow}$", "": ""}[mark]
            shown.append((f"\\textbf{{{plain}}}" if best else plain) + sign)
        lines.append(" & ".join([escape_latex(name), escape_latex(measure), *shown]) + r" \\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", f"% {harmless(legend(c))}", ""])


def as_data(c: Comparison) -> dict[str, object]:
    """All figures, tests and facts as plain data, for JSON."""
    return {
        "systems": list(c.systems), "baseline": c.baseline, "datasets": list(c.datasets), "splits": c.splits,
        "measures": list(c.measures), "convention": str(c.convention), "test": c.test, "correction": c.correction,
        "groups": {name: list(members) for name, members in c.groups.items()},
        "figures": _entries(c),
        "facts": [
            {"dataset": d, "system": s, "cached": r.cached, **r.facts, **r.evaluation.facts}
            for (d, s), r in c.results.items()
        ],
    }  # fmt: skip


def as_json(c: Comparison) -> str:
    """All figures, tests and facts as JSON."""
    return json.dumps(as_data(c), indent=1) + "\n"


def _entries(c: Comparison) -> list[dict[str, Any]]:
    entries = []
    for dataset in c.datasets:
        for measure in c.measures:
            differences = c.differences(dataset, measure)
            for system in c.systems:
                value = c.value(dataset, system, measure)
                entry: dict[str, Any] = {"dataset": dataset, "split": c.splits[dataset], "system": system}
                entry |= {"measure": measure, "value": value}
                if system in differences:
                    d, p = differences[system]
                    interval = list(d.interval) if d.interval else None
                    entry |= {"difference": d.mean, "p": d.p, "p_corrected": p, "effect": d.effect,
                              "interval": interval, "wins": d.wins, "ties": d.ties,
                              "losses": d.losses}  # fmt: skip
                entries.append(entry)
    means = [(g, m, s) for g in c.groups for m in c.measures for s in c.systems]
    entries += [{"dataset": g, "system": s, "measure": m, "value": c.value(g, s, m)} for g, m, s in means]
    return entries


FORMATS: dict[str, Callable[[Comparison], str]] = {
    ".md": as_markdown,
    ".csv": as_csv,
    ".tex": as_latex,
    ".json": as_json,
}
"""What writes a comparison as text, by the ending of the file."""
