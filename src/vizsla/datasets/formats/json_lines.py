"""JSON: one record a line, one array of records, or records over several lines."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from vizsla.datasets.confined import ConfinedReader
from vizsla.datasets.files import Progress
from vizsla.datasets.records import read_json_records
from vizsla.datasets.source_format import SOURCES, Part, Reading, SourceFormat
from vizsla.errors import InputError
from vizsla.runs.documents import Document, Origin


@SOURCES.register("jsonl", help="JSON: a record a line, an array of records, or records over several lines.")
class JsonRecords(SourceFormat):
    """Records of JSON, each a document."""

    endings = (".jsonl", ".ndjson", ".json")

    def documents(self, part: Part, source: Reading, progress: Progress, reader: ConfinedReader) -> Iterator[Document]:  # noqa: ARG002
        file = part.file
        for line, record in read_json_records(file, progress):
            try:
                document = Document.from_record(record, Origin(file.name, line), source.names)
            except InputError as e:
                file.leave_out(e)
                continue
            yield document

    def first_keys(self, part: Part, source: Reading) -> Collection[str] | None:  # noqa: ARG002
        _, record = next(read_json_records(part.file.without_notes()), (0, None))
        return record if isinstance(record, dict) else None
