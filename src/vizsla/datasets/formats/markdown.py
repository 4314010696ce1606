"""Markdown: its text without marks, comments and targets of links; simple front matter becomes fields."""

from __future__ import annotations

from collections.abc import Iterator

from vizsla.datasets.confined import Limits
from vizsla.datasets.extracted import Extracted
from vizsla.datasets.files import InputFile
from vizsla.datasets.markdown import add_markdown, first_heading, front_matter
from vizsla.datasets.source_format import SOURCES, DocumentFormat, builder


@SOURCES.register("markdown", help="Markdown without its marks, comments and link targets; front matter is fields.")
class Markdown(DocumentFormat):
    """Markdown."""

    endings = (".md", ".markdown")

    def read(self, file: InputFile, limits: Limits) -> Iterator[Extracted]:  # noqa: ARG002
        fields, source = front_matter(file.read_text())
        text = builder(file)
        add_markdown(source, text)
        title = str(fields.pop("title", "") or "") or first_heading(text.extracted())
        yield text.extracted(title, fields)
