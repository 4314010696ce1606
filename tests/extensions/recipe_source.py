"""A format of one's own: recipes, whose first line is the title and whose other lines begin with a star or a number."""

from __future__ import annotations

from collections.abc import Iterator

from vizsla.datasets import SOURCES, DocumentFormat, Extracted, Limits, TextBuilder
from vizsla.datasets.files import InputFile


@SOURCES.register("recipe", help="Recipes of a kitchen.")
class Recipe(DocumentFormat):
    """A recipe; a line with a star is a heading."""

    endings = (".recipe",)

    def read(self, file: InputFile, limits: Limits) -> Iterator[Extracted]:  # noqa: ARG002
        title, *lines = file.read_text().splitlines()
        text = TextBuilder(file.max_document)
        for line in lines:
            if line.startswith("*"):
                text.heading(1, line.lstrip("* "))
            else:
                text.paragraph(line)
        yield text.extracted(title, {"steps": len(lines)})
