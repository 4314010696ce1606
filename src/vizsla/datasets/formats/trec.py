"""TREC's SGML: each <DOC> is a document."""

from __future__ import annotations

from collections.abc import Iterator

from vizsla.datasets.confined import ConfinedReader
from vizsla.datasets.files import Progress
from vizsla.datasets.source_format import SOURCES, Part, Reading, SourceFormat
from vizsla.datasets.trec import read_trec
from vizsla.runs.documents import Document


@SOURCES.register("trec", help="TREC's SGML: each <DOC> is a document.")
class Trec(SourceFormat):
    """Documents in SGML."""

    endings = (".trec", ".sgml", ".sgm")

    def documents(self, part: Part, source: Reading, progress: Progress, reader: ConfinedReader) -> Iterator[Document]:  # noqa: ARG002
        return read_trec(part.file, progress)
