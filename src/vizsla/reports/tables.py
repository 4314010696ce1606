"""A comparison as a table: Markdown, CSV, LaTeX, JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from vizsla.evaluation.systems import AgainstBaseline, Comparison
from vizsla.harmless import harmless
from vizsla.reports.formats import escape_csv, escape_latex, escape_markdown
from vizsla.runs import Measure

MISSING = "–"
_CSV_NUMBERS = (
    "value", "difference", "p", "p_corrected", "effect",
    "relative", "datasets", "better", "equal", "worse", "significantly_better", "significantly_worse",
)  # fmt: skip
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
    """A row for each data set and measure, a column for each system; a mean says if it leaves out data sets."""
    shown = [(d, m) for d in (*c.datasets, *c.groups) for m in c.measures]
    out = [[_title(c, d), m, *(_cell(c, d, s, m) for s in c.systems)] for d, m in shown]
    if len(c.rows) > 1:
        out += [["mean", m, *(_mean(c, s, m) for s in c.systems)] for m in c.measures]
    return out


def summary_rows(c: Comparison) -> list[list[str]]:
    """Rows with the average difference from the baseline, and with the data sets a system is better and worse on.

    They have the columns of `rows`. There are none for one system or one data set.
    """
    if len(c.systems) < 2 or len(c.rows) < 2:
        return []
    out = []
    for measure in c.measures:
        found = [c.against_baseline(s, measure) for s in c.systems[1:]]
        out.append([f"mean against {c.baseline}", measure, MISSING, *map(_difference, found)])
        out.append([f"better / worse than {c.baseline}", measure, MISSING, *map(_counts, found)])
    return out


def summary_legend(c: Comparison) -> str:
    """How `summary_rows` count, in one sentence; empty without them."""
    counted = "Better and worse count data sets, and in brackets those with a significant difference."
    return counted if summary_rows(c) else ""


def _difference(found: AgainstBaseline) -> str:
    if not found.datasets:
        return MISSING
    share = "" if found.relative is None else f" ({found.relative:+.1%})"
    return f"{found.difference:+.4f}{share}"


def _counts(found: AgainstBaseline) -> str:
    better = f"{found.better} ({found.significantly_better})"
    return f"{better} / {found.worse} ({found.significantly_worse})" if found.datasets else MISSING


def _title(c: Comparison, dataset: str) -> str:
    if dataset in c.groups:
        return f"{dataset} (mean of {len(c.groups[dataset])})"
    return dataset if c.splits[dataset] == "test" else f"{dataset} {c.splits[dataset]}"


def _cell(c: Comparison, dataset: str, system: str, measure: str) -> str:
    if not c.has(dataset, system):
        return MISSING
    return f"{c.value(dataset, system, measure):.4f}{c.mark(dataset, system, measure)}"


def _mean(c: Comparison, system: str, measure: str) -> str:
    count = sum(c.has(d, system) for d in c.rows)
    if not count:
        return MISSING
    partly = "" if count == len(c.rows) else f" ({count} of {len(c.rows)})"
    return f"{c.mean(system, measure):.4f}{partly}"


def best_of(measure: str, row: list[str]) -> list[bool]:
    """Which figures of a row are the best; never a missing one, or a mean over only some data sets."""
    is_figure = [cell != MISSING and not cell.endswith(")") for cell in row]
    values = [float(cell.rstrip("+-")) for cell, known in zip(row, is_figure, strict=True) if known]
    best = (min if Measure.parse(measure).lower_is_better else max)(values)
    return [known and float(cell.rstrip("+-")) == best for cell, known in zip(row, is_figure, strict=True)]


def as_markdown(c: Comparison) -> str:
    """A Markdown table; the best figure of a row in bold."""
    lines = []
    for name, measure, *cells in rows(c):
        shown = [f"**{cell}**" if best else cell for cell, best in zip(cells, best_of(measure, cells), strict=True)]
        lines.append([name, measure, *shown])
    table = markdown_table(["data set", "measure", *c.systems], [*lines, *summary_rows(c)], left=2)
    return "\n".join([table, "", escape_markdown(f"{legend(c)} {summary_legend(c)}".strip()), ""])


def markdown_table(head: list[str], rows: list[list[str]], left: int) -> str:
    """A table in Markdown; the first `left` columns are names, the others numbers."""
    escaped = [[*map(escape_markdown, row[:left]), *row[left:]] for row in rows]
    lines = ["| " + " | ".join(row) + " |" for row in ([*map(escape_markdown, head)], *escaped)]
    return "\n".join([lines[0], "|---" * left + "|---:" * (len(head) - left) + "|", *lines[1:]])


def as_csv(c: Comparison) -> str:
    """One line for each figure, with the difference from the baseline and its p-value; the means come last."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    names = ["dataset", "split", "system", "measure"]
    writer.writerow([*names, *_CSV_NUMBERS])
    for entry in [*_entries(c), *({"dataset": "mean", **entry} for entry in _summary(c))]:
        values = (entry.get(k) for k in _CSV_NUMBERS)
        writer.writerow([*(escape_csv(entry.get(k, "")) for k in names), *("" if v is None else v for v in values)])
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
            text = "--" if plain == MISSING else plain
            shown.append((f"\\textbf{{{text}}}" if best else text) + sign)
        lines.append(" & ".join([escape_latex(name), escape_latex(measure), *shown]) + r" \\")
    for name, measure, *cells in summary_rows(c):
        shown = ["--" if cell == MISSING else escape_latex(cell) for cell in cells]
        lines.append(" & ".join([escape_latex(name), escape_latex(measure), *shown]) + r" \\")
    legends = [f"% {harmless(text)}" for text in (legend(c), summary_legend(c)) if text]
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", *legends, ""])


def as_data(c: Comparison) -> dict[str, object]:
    """All figures, tests and facts as plain data, for JSON."""
    return {
        "systems": list(c.systems), "baseline": c.baseline, "datasets": list(c.datasets), "splits": c.splits,
        "measures": list(c.measures), "convention": str(c.convention), "test": c.test, "correction": c.correction,
        "groups": {name: list(members) for name, members in c.groups.items()},
        "figures": _entries(c), "summary": _summary(c),
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
            for system in (s for s in c.systems if c.has(dataset, s)):
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
    means = [(g, m, s) for g in c.groups for m in c.measures for s in c.systems if c.has(g, s)]
    entries += [{"dataset": g, "system": s, "measure": m, "value": c.value(g, s, m)} for g, m, s in means]
    return entries


def _summary(c: Comparison) -> list[dict[str, Any]]:
    """For each measure and system its mean and its comparison with the baseline; nothing for one data set."""
    if len(c.rows) < 2:
        return []
    entries = []
    for measure in c.measures:
        for system in c.systems:
            found = asdict(c.against_baseline(system, measure))
            value = found.pop("mean")
            if not found["datasets"]:
                continue
            if system == c.baseline:
                found = {"datasets": found["datasets"]}
            entries.append({"system": system, "measure": measure, "value": value, **found})
    return entries


FORMATS: dict[str, Callable[[Comparison], str]] = {
    ".md": as_markdown,
    ".csv": as_csv,
    ".tex": as_latex,
    ".json": as_json,
}
"""The functions that write a comparison as text, by file ending."""
