"""Findings as HTML pages and tables: comparisons, interleaved runs, reranking at several depths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from vizsla.datasets import BeirDataset
from vizsla.errors import VizslaError
from vizsla.evaluation.systems import Comparison
from vizsla.models import Model
from vizsla.reports.page import html_report
from vizsla.reports.reproduced import reproduced_html, reproduced_markdown
from vizsla.reports.tables import FORMATS, as_data, as_markdown, legend, rows

__all__ = [
    "REPORTS",
    "as_data",
    "as_markdown",
    "check_ending",
    "html_report",
    "legend",
    "reproduced_html",
    "reproduced_markdown",
    "rows",
    "write_report",
]

REPORTS = (".html", *FORMATS)


def check_ending(path: Path) -> None:
    """Refuse a file whose ending is not that of a report; call it before the work begins."""
    if path.suffix not in REPORTS:
        raise VizslaError(f"a report ends in {', '.join(REPORTS)}, not {path.suffix or path.name!r}")


def write_report(
    comparison: Comparison, path: Path, datasets: Sequence[BeirDataset], models: Mapping[str, Model], title: str = ""
) -> None:
    """Write a comparison as HTML, Markdown, CSV, LaTeX or JSON, as the ending of the file says.

    `datasets` and `models` are for the HTML page, which shows examples.
    """
    check_ending(path)
    if path.suffix == ".html":
        text = html_report(comparison, datasets, models, title or "Comparison of retrieval systems")
    else:
        text = FORMATS[path.suffix](comparison)
    path.write_text(text, "utf-8")
