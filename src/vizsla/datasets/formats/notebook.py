"""Jupyter notebooks: the cells of text and of code, without outputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vizsla.datasets.files import InputFile
from vizsla.datasets.formats.markdown import add_markdown
from vizsla.datasets.source_format import SOURCES, DocumentFormat, Extracted, Limits, TextBuilder
from vizsla.plain_data import parse_json


@SOURCES.register("notebook", help="Jupyter notebooks: text and code, without outputs.")
class Notebook(DocumentFormat):
    """A notebook."""

    endings = (".ipynb",)

    def read(self, file: InputFile, limits: Limits) -> Iterator[Extracted]:  # noqa: ARG002
        try:
            notebook = parse_json(file.read_text())
        except ValueError as e:
            raise file.refusal(f"this is not a notebook ({e})") from None
        cells = _cells(notebook)
        if cells is None:
            raise file.refusal("this is not a notebook: expected an object with a list of cells")
        text = TextBuilder(file.max_document)
        for cell in cells:
            source = _joined(cell.get("source", cell.get("input", "")))
            if cell.get("cell_type") == "markdown":
                add_markdown(source, text)
            elif cell.get("cell_type") == "heading":
                text.heading(level if isinstance(level := cell.get("level"), int) else 1, source)
            else:
                text.lines(source)
        metadata = notebook.get("metadata")
        title = metadata.get("title") if isinstance(metadata, dict) else ""
        yield text.extracted(title if isinstance(title, str) else "", {"language": _language(metadata)})


def _cells(notebook: Any) -> list[dict[str, Any]] | None:
    """The cells of a notebook of any version."""
    if not isinstance(notebook, dict):
        return None
    cells = notebook.get("cells")
    if cells is None and isinstance(sheets := notebook.get("worksheets"), list):
        inner = [sheet.get("cells") for sheet in sheets if isinstance(sheet, dict)]
        cells = [cell for some in inner if isinstance(some, list) for cell in some]
    return [cell for cell in cells if isinstance(cell, dict)] if isinstance(cells, list) else None


def _joined(source: Any) -> str:
    if isinstance(source, list):
        return "".join(line for line in source if isinstance(line, str))
    return source if isinstance(source, str) else ""


def _language(metadata: Any) -> str:
    for name in ("language_info", "kernelspec"):
        described = metadata.get(name) if isinstance(metadata, dict) else None
        language = described.get("name" if name == "language_info" else "language") if described else None
        if isinstance(language, str):
            return language.lower()
    return ""
