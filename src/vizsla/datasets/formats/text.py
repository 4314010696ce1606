"""Plain text: the whole file is a document."""

from __future__ import annotations

from collections.abc import Iterator

from vizsla.datasets.files import InputFile
from vizsla.datasets.source_format import SOURCES, DocumentFormat, Extracted, Limits


@SOURCES.register("text", help="Plain text, as it is.")
class Text(DocumentFormat):
    """Plain text."""

    endings = (".txt", ".text", ".rst")

    def read(self, file: InputFile, limits: Limits) -> Iterator[Extracted]:  # noqa: ARG002
        yield Extracted(file.read_text())
