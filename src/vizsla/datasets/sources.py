"""Sources of documents: what `vizsla index` can be pointed at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vizsla.datasets.beir import find_file, is_beir
from vizsla.datasets.document import USUAL, Document, FieldNames, Origin
from vizsla.datasets.files import parse_json, read_json_lines, read_lines
from vizsla.datasets.matrix import read_matrix
from vizsla.datasets.tables import read_parquet, read_separated
from vizsla.datasets.texts import TEXT_ENDINGS, bare_name, read_text_file, read_trec, text_files
from vizsla.errors import InputError, UnknownNameError

Progress = Callable[[int], None] | None

ENDINGS = {
    "jsonl": (".jsonl", ".ndjson", ".json"),
    "csv": (".csv",),
    "tsv": (".tsv", ".tab"),
    "parquet": (".parquet", ".pq"),
    "trec": (".trec", ".sgml", ".sgm"),
    "npz": (".npz",),
    "text": TEXT_ENDINGS,
}


RAW_LINES = 2000
RAW_CHARACTERS = 4_000_000


@dataclass(frozen=True)
class RawLines:
    """Some lines of a file of JSON lines, still to be read: what other processes are given to do."""

    path: Path
    names: FieldNames
    lines: list[tuple[int, str]]

    def documents(self) -> list[Document]:
        rows = ((number, parse_json(line, self.path, number)) for number, line in self.lines if line.strip())
        return [Document.from_record(record, Origin(str(self.path), n), self.names) for n, record in rows]


@dataclass(frozen=True)
class Source:
    """A file or a folder of documents, and how to read it."""

    path: Path
    format: str
    names: FieldNames = USUAL

    @classmethod
    def find(cls, source: str | Path, format: str | None = None, names: FieldNames = USUAL) -> Source:
        """The source at a path: a file by its ending, a folder by what is in it, unless the format is named."""
        path = Path(source)
        if format is not None and format not in ENDINGS:
            raise UnknownNameError("format", format, tuple(ENDINGS))
        if not path.exists():
            raise InputError("there is no such file or folder", file=str(path))
        if path.is_dir():
            return cls._in_folder(path, format, names)
        if format is None:
            format = next((f for f, endings in ENDINGS.items() if bare_name(path).endswith(endings)), None)
        if format is None:
            known = ", ".join(endings[0] for endings in ENDINGS.values())
            message = f"what is this? expected a folder or a file of {known} (with .gz, .xz or .zst), or --format"
            raise InputError(message, file=str(path))
        return cls(path, format, names)

    @classmethod
    def _in_folder(cls, path: Path, format: str | None, names: FieldNames) -> Source:
        if format is None and is_beir(path):
            return cls(find_file(path, "corpus.jsonl"), "jsonl", names)
        if format in (None, "text") and text_files(path):
            return cls(path, "text", names)
        raise InputError("this folder holds neither a corpus.jsonl nor text, Markdown or HTML files", file=str(path))

    @property
    def bytes(self) -> int:
        """How much there is to read."""
        files = text_files(self.path) if self.path.is_dir() else [self.path]
        return sum(f.stat().st_size for f in files)

    def documents(self, progress: Progress = None) -> Iterator[Document]:
        """The documents, one by one; `progress` is told the bytes read so far."""
        if self.format == "jsonl":
            file = str(self.path)
            for line, record in read_json_lines(self.path, progress):
                yield Document.from_record(record, Origin(file, line), self.names)
        elif self.format in ("csv", "tsv"):
            yield from read_separated(self.path, self.names, "," if self.format == "csv" else "\t", progress)
        elif self.format == "parquet":
            yield from read_parquet(self.path, self.names, progress)
        elif self.format == "trec":
            yield from read_trec(self.path, progress)
        elif self.format == "npz":
            yield from read_matrix(self.path)
        else:
            yield from self._texts(progress)

    def raw_lines(self, progress: Progress = None) -> Iterator[RawLines] | None:
        """The lines in batches, not yet read; None where documents are not lines."""
        return self._raw_lines(progress) if self.format == "jsonl" else None

    def _raw_lines(self, progress: Progress) -> Iterator[RawLines]:
        lines: list[tuple[int, str]] = []
        size = 0
        for number, line in read_lines(self.path, progress):
            lines.append((number, line))
            size += len(line)
            if len(lines) == RAW_LINES or size > RAW_CHARACTERS:
                yield RawLines(self.path, self.names, lines)
                lines, size = [], 0
        if lines:
            yield RawLines(self.path, self.names, lines)

    def _texts(self, progress: Progress) -> Iterator[Document]:
        if self.path.is_file():
            yield read_text_file(self.path, self.path.name)
            return
        done = 0
        for file in text_files(self.path):
            yield read_text_file(file, file.relative_to(self.path).as_posix())
            done += file.stat().st_size
            if progress is not None:
                progress(done)

    def guess(self) -> str | None:
        """Which fields were taken for what, where that was not said and is not the usual; None otherwise."""
        if self.format not in ("jsonl", "csv", "tsv", "parquet"):
            return None
        first = next(self._first_keys(), None)
        if first is None:
            return None
        found = self.names.found(first)
        taken = {"id": found.id, "text": found.text, "title": found.title}
        odd = {k: v for k, v in taken.items() if v is not None and v not in (k, "_id") and v != getattr(self.names, k)}
        return ", ".join(f"the {key} from {name!r}" for key, name in odd.items()) or None

    def _first_keys(self) -> Iterator[list[str]]:
        if self.format == "jsonl":
            for _, record in read_json_lines(self.path):
                yield list(record) if isinstance(record, dict) else []
        elif self.format == "parquet":
            import pyarrow.parquet as parquet

            yield list(parquet.read_schema(self.path).names)
        else:
            import csv

            lines = (text for _, text in read_lines(self.path))
            yield from csv.reader(lines, delimiter="," if self.format == "csv" else "\t")


def read_documents(source: str | Path, progress: Progress = None) -> Iterator[Document]:
    """The documents of a file or a folder, one by one."""
    return Source.find(source).documents(progress)


def documents_from(items: Iterable[Any]) -> Iterator[Document | RawLines]:
    """Documents from mappings or documents, as a program has them; raw lines stay what they are."""
    if isinstance(items, str | Mapping):
        raise InputError("documents come as a list or another iterable, not as a single one")
    return (item if isinstance(item, RawLines) else Document.from_record(item) for item in items)
