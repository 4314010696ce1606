"""Sources of documents: the files, folders and pipes that `vizsla index` reads."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from vizsla.datasets.beir import is_beir
from vizsla.datasets.files import (
    MAX_DOCUMENT,
    InputFile,
    Progress,
    find_file,
    is_pipe,
    spool,
)
from vizsla.datasets.irds import beir_folder
from vizsla.datasets.raw_lines import RawLines, read_raw_lines
from vizsla.datasets.records import is_json_lines, read_json_records
from vizsla.datasets.tables import Table, parquet_columns, read_parquet
from vizsla.datasets.texts import TEXT_ENDINGS, bare_name, read_text_file, read_trec
from vizsla.datasets.values import TYPES, Types, checked_types, joined_type, plain_content, public_type
from vizsla.errors import InputError, UnknownNameError, VizslaError
from vizsla.lazy import cached_property
from vizsla.plain_data import parse_json
from vizsla.runs.documents import USUAL_NAMES, Document, FieldNames, Origin, document_id, listed

ENDINGS = {
    "jsonl": (".jsonl", ".ndjson", ".json"),
    "csv": (".csv",),
    "tsv": (".tsv", ".tab"),
    "parquet": (".parquet", ".pq"),
    "trec": (".trec", ".sgml", ".sgm"),
    "text": TEXT_ENDINGS,
}
_TABLES = ("csv", "tsv")
MAX_SAMPLED = 1 << 16  # bytes of a line of a sample


@dataclass(frozen=True)
class Part:
    """A file of a source, and its format."""

    file: InputFile
    format: str
    id: str
    """The id of the document if the whole file is one document."""


@dataclass(frozen=True)
class Source:
    """A file, a folder or a pipe of documents, and how to read it."""

    name: str
    parts: tuple[Part, ...]
    names: FieldNames = USUAL_NAMES
    delimiter: str | None = None
    """The separator of columns in csv and tsv files; None to guess it."""
    types: Types = field(default_factory=dict)
    """Types of columns of csv and tsv files; the types of other columns are inferred."""
    fields: tuple[str, ...] = ()
    """The fields that a model reads; such columns stay texts."""
    allow_empty: bool = False
    skipped: Mapping[str, int] = field(default_factory=dict)
    """The number of skipped files of a folder, by ending."""

    @classmethod
    def find(
        cls,
        source: str | Path,
        format: str | None = None,
        names: FieldNames = USUAL_NAMES,
        *,
        delimiter: str | None = None,
        types: Types | None = None,
        fields: Collection[str] = (),
        max_document: int = MAX_DOCUMENT,
        allow_empty: bool = False,
    ) -> Source:
        """The source at a path. The endings of its files say their format, unless `format` does.

        `-`, pipes and process substitutions need a format; they are copied to a temporary file while they are used.
        `irds:NAME` is a data set of the package ir_datasets.
        """
        if format is not None and format not in ENDINGS:
            raise UnknownNameError("format", format, tuple(ENDINGS))
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
            raise VizslaError(f"a delimiter is one character other than a quote or a line end, not {delimiter!r}")
        if max_document < 1:
            raise VizslaError(f"the most bytes of a document must be 1 or more, not {max_document}")
        path, piped, skipped = beir_folder(source), is_pipe(source), dict[str, int]()
        parts: tuple[Part, ...]
        if piped:
            parts = (_piped(source, format, max_document),)
        elif not path.exists():
            raise InputError("this file or folder does not exist", file=str(source))
        elif path.is_dir():
            parts, skipped = _in_folder(path, format, max_document)
        else:
            parts = (Part(InputFile(path, str(path), max_document), format or _format_of(path), path.name),)
        checked = checked_types(types or {})
        opened = cls(str(source), parts, names, delimiter, checked, tuple(fields), allow_empty, skipped)
        if piped:
            weakref.finalize(opened, parts[0].file.path.unlink, missing_ok=True)
        return opened

    @property
    def bytes(self) -> int:
        """The size of all files in bytes."""
        return sum(part.file.path.stat().st_size for part in self.parts)

    def documents(self, progress: Progress = None) -> Iterator[Document]:
        """The documents, one by one; `progress` is called with the number of bytes read so far.

        A source without documents is an error, unless `allow_empty` is set.
        """
        before = count = 0
        for part in self.parts:
            for document in self._documents(part, _offset(progress, before)):
                count += 1
                yield document
            before += part.file.path.stat().st_size
            if progress is not None:
                progress(before)
        self._check_empty(count)

    def _check_empty(self, count: int) -> None:
        if not count and not self.allow_empty:
            raise InputError(
                "this source has no documents; --allow-empty (in Python allow_empty=True) allows that", file=self.name
            )

    def _documents(self, part: Part, progress: Progress) -> Iterator[Document]:
        file = part.file
        if part.format == "jsonl":
            for line, record in read_json_records(file, progress):
                yield Document.from_record(record, Origin(file.name, line), self.names)
        elif part.format in _TABLES:
            table = self._table(part)
            if table is not None:
                yield from table.documents(self.column_types, self.fields, progress)
        elif part.format == "parquet":
            yield from read_parquet(file, self.names, progress)
        elif part.format == "trec":
            yield from read_trec(file, progress)
        else:
            yield read_text_file(file, part.id)

    def _table(self, part: Part) -> Table | None:
        return Table.open(part.file, self.names, part.format, self.delimiter)

    @cached_property
    def column_types(self) -> dict[str, str]:
        """The types of the columns of all tables: `types`, and for other columns the types that fit all rows."""
        inferred: dict[str, str] = {}
        columns: set[str] = set()
        for part in self.parts:
            table = self._table(part) if part.format in _TABLES else None
            if table is None or table.header is None:
                continue
            columns.update(table.header)
            for name, kind in table.infer(self.types, self.fields).items():
                inferred[name] = joined_type(inferred.get(name), kind)
        unknown = next((name for name in self.types if name not in columns), None)
        if unknown is not None:
            hint = "types are for csv and tsv files with a header"
            if columns:
                hint = f"the columns are {listed(sorted(columns))}"
            raise InputError(f"the column {unknown!r} does not exist; {hint}", file=self.name)
        return {**inferred, **self.types}

    def sample(self, first: int = 100, places: int = 100) -> Iterator[Document]:
        """Some documents: the first, and of plain files of JSON lines one at each of some places, evenly spread.

        Lines that hold no document are left out; whoever reads all documents refuses them.
        """
        yield from islice(self.documents(), first)
        for part in self.parts:
            path = part.file.path
            if part.format != "jsonl" or path.suffix.lower() not in ENDINGS["jsonl"]:
                continue
            size = path.stat().st_size
            with path.open("rb") as file:
                for place in range(size // places, size, max(size // places, MAX_SAMPLED)):
                    file.seek(place)
                    file.readline()
                    try:
                        yield Document.from_record(parse_json(file.readline(MAX_SAMPLED)), names=self.names)
                    except (ValueError, VizslaError):
                        continue

    def raw_lines(self, progress: Progress = None) -> Iterator[RawLines] | None:
        """The lines in batches, not yet parsed; None unless each line of the source is a document."""
        lines = all(part.format == "jsonl" and is_json_lines(part.file) for part in self.parts)
        return self._raw_lines(progress) if lines else None

    def _raw_lines(self, progress: Progress) -> Iterator[RawLines]:
        before, found = 0, False
        for part in self.parts:
            for lines in read_raw_lines(part.file, self.names, _offset(progress, before)):
                found = found or lines.has_documents
                yield lines
            before += part.file.path.stat().st_size
        self._check_empty(int(found))

    def remarks(self) -> Iterator[str]:
        """Messages about how the source is read: what was guessed, inferred or skipped."""
        if self.skipped:
            files = ", ".join(f"{ending or 'no ending'} ({count:,})" for ending, count in self.skipped.items())
            yield f"skipping files that are not documents: {files}"
        printed = set[str]()
        for part in self.parts:
            table = self._table(part) if part.format in _TABLES else None
            for remark in (table.remark if table else None, self._guess(part)):
                if remark is not None and remark not in printed:
                    printed.add(remark)
                    yield remark
        if types := self._inferred():
            yield f"columns that are not texts: {types} (--types changes that)"

    def _inferred(self) -> str:
        """The columns whose types were inferred, except texts, grouped by type."""
        by_type: dict[str, list[str]] = {}
        for name, kind in self.column_types.items():
            if name not in self.types and kind != "text":
                by_type.setdefault(TYPES[public_type(kind)], []).append(name)
        return "; ".join(f"{', '.join(map(repr, columns))} {kind}" for kind, columns in by_type.items())

    def _guess(self, part: Part) -> str | None:
        """A message that says which fields became id, text and title, if these were guessed from unusual names."""
        keys = self._first_keys(part)
        if keys is None:
            return None
        names = self.names.resolve(keys)
        used = {"id": names.id, "text": names.text, "title": names.title}
        odd = {k: v for k, v in used.items() if v is not None and v not in (k, "_id") and v != getattr(self.names, k)}
        as_named = {k for k, v in odd.items() if v in self.fields and k not in self.fields and k != "id"}
        guesses = [f"the {key} from {name!r}" for key, name in odd.items() if key not in as_named]
        return f"taking {', '.join(guesses)}" if guesses else None

    def _first_keys(self, part: Part) -> Collection[str] | None:
        if part.format == "jsonl":
            _, record = next(read_json_records(part.file), (0, None))
            return record if isinstance(record, dict) else None
        if part.format == "parquet":
            return parquet_columns(part.file)
        table = self._table(part) if part.format in _TABLES else None
        return None if table is None else table.header


def _offset(progress: Progress, by: int) -> Progress:
    return None if progress is None else lambda done: progress(by + done)


def _format_of(path: Path) -> str:
    format = _ending_format(path)
    if format is None:
        endings = ", ".join(ending for endings in ENDINGS.values() for ending in endings)
        raise InputError(
            f"the format is unknown; expected a folder, or a file of {endings} (with .gz, .xz or .zst), or name the "
            "format with --format (in Python format=)",
            file=str(path),
        )
    return format


def _ending_format(path: Path) -> str | None:
    return next((f for f, endings in ENDINGS.items() if bare_name(path).endswith(endings)), None)


def _piped(source: str | Path, format: str | None, max_document: int) -> Part:
    if format is None:
        message = "a pipe has no file ending that shows its format; name it, as in --format jsonl (in Python format=)"
        raise InputError(message, file=str(source))
    return Part(InputFile(spool(source), str(source), max_document), format, str(source))


def _in_folder(path: Path, format: str | None, max_document: int) -> tuple[tuple[Part, ...], dict[str, int]]:
    """BEIR's corpus, or all files of known formats, or of `format`; and the number of other files by ending."""
    if format is None and is_beir(path):
        corpus = find_file(path, "corpus.jsonl")
        return (Part(InputFile(corpus, str(corpus), max_document), "jsonl", corpus.name),), {}
    parts, skipped = [], Counter[str]()
    for file in sorted(path.rglob("*")):
        relative = file.relative_to(path)
        if any(part.startswith(".") for part in relative.parts) or not file.is_file():
            continue
        file_format = _ending_format(file)
        if file_format is None or (format is not None and file_format != format):
            skipped[file.suffix.lower()] += 1
        else:
            parts.append(Part(InputFile(file, str(file), max_document), str(file_format), relative.as_posix()))
    if not parts:
        every = ", ".join(ending for endings in ENDINGS.values() for ending in endings)
        message = f"this folder holds no files of {', '.join(ENDINGS[format]) if format else every}"
        raise InputError(message, file=str(path))
    return tuple(parts), dict(skipped.most_common())


def read_documents(
    source: str | Path,
    progress: Progress = None,
    format: str | None = None,
    names: FieldNames = USUAL_NAMES,
    **options: Any,
) -> Iterator[Document]:
    """The documents of a file or a folder, one by one; options as for `Source.find`.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp(), "pets.csv")
    >>> _ = file.write_text("id,text\\n1,Dogs bark.\\n2,Cats purr.\\n")
    >>> [(document.id, document["text"]) for document in read_documents(file)]
    [('1', 'Dogs bark.'), ('2', 'Cats purr.')]
    """
    return Source.find(source, format, names, **options).documents(progress)


def documents_from(items: Iterable[Any]) -> Iterator[Document | RawLines]:
    """Documents from the mappings or documents of a program; raw lines are passed through."""
    if isinstance(items, str | Path):
        message = f"documents come as a list or another iterable; for a file, read_documents({str(items)!r})"
        raise InputError(message)
    if isinstance(items, Mapping | Document) or not isinstance(items, Iterable):
        raise InputError("documents come as a list or another iterable, not as a single one")
    if hasattr(items, "to_dict"):
        raise InputError("documents come as a list of records; for a pandas table pass table.to_dict('records')")
    return map(_document_from, items)


def _checked(document: Document) -> Document:
    """A document of a program, checked by the same rules as a document from a file."""
    return replace(document, id=document_id(document.id), content=plain_content(document.content))


def _document_from(item: Any) -> Document | RawLines:
    if isinstance(item, RawLines):
        return item
    try:
        if isinstance(item, Document):
            return item if item.origin is not None else _checked(item)
        return Document.from_record(plain_content(item) if isinstance(item, Mapping) else item)
    except RecursionError:
        raise InputError("a document is nested too deeply") from None
