"""TREC's SGML: each <DOC> is a document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vizsla.datasets.files import Progress
from vizsla.datasets.source_format import SOURCES, Part, SourceFormat
from vizsla.datasets.trec import read_trec
from vizsla.runs.documents import Document

if TYPE_CHECKING:
    from vizsla.datasets.confined import ConfinedReader
    from vizsla.datasets.sources import Source


@SOURCES.register("trec", help="TREC's SGML: each <DOC> is a document.")
class Trec(SourceFormat):
    """Documents in SGML."""

    endings = (".trec", ".sgml", ".sgm")

    def documents(self, part: Part, source: Source, progress: Progress, confined: ConfinedReader) -> Iterator[Document]:  # noqa: ARG002
        return read_trec(part.file, progress)
