"""Sources of documents: the files, folders and pipes that `vizsla index` reads."""

from __future__ import annotations

import os
import weakref
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from vizsla.datasets.beir import is_beir
from vizsla.datasets.confined import ConfinedReader
from vizsla.datasets.files import (
    MAX_DOCUMENT,
    InputFile,
    Progress,
    find_file,
    is_pipe,
    spool,
)
from vizsla.datasets.formats.csv import TYPES, Table, Types, checked_types, joined_type, public_type
from vizsla.datasets.formats.json import is_json_lines
from vizsla.datasets.irds import beir_folder
from vizsla.datasets.raw_lines import RawLines, read_raw_lines
from vizsla.datasets.skipped import Skipped
from vizsla.datasets.source_format import (
    SOURCES,
    DocumentFormat,
    Limits,
    Part,
    endings_of,
    format_of,
    missing_package,
)
from vizsla.errors import InputError, MissingPackageError, NoTextError, UnknownNameError, VizslaError
from vizsla.lazy import cached_property
from vizsla.plain_data import parse_json
from vizsla.runs.documents import USUAL_NAMES, Document, FieldNames, listed

_TABLES = ("csv", "tsv")
MAX_SAMPLED = 1 << 16  # bytes of a line of a sample
_SAMPLED_FILES = 24  # that are documents themselves


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
    limits: Limits = field(default_factory=Limits)
    """What the reader of a PDF, Word or mail file may take."""
    is_folder: bool = False
    unread: Mapping[str, int] = field(default_factory=dict)
    """The number of files of a folder that are not read, by reason."""
    skip_bad: bool = False
    """Whether what cannot be read is left out; otherwise the first of it is an error."""
    skipped: Skipped = field(default_factory=Skipped, compare=False)
    """What the last reading has left out. Files of a folder that have no text are always left out."""

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
        skip_bad: bool = False,
        ocr: bool = False,
    ) -> Source:
        """The source at a path. The endings of its files say their format, unless `format` does.

        `skip_bad`: leave out what cannot be read, and note it in `skipped`. `ocr`: recognise characters in the pages of
        a PDF that are pictures; this needs rapidocr.

        `-`, pipes and process substitutions need a format; they are copied to a temporary file while they are used.
        `irds:NAME` is a data set of the package ir_datasets.
        """
        if format is not None and format not in SOURCES:
            raise UnknownNameError("format", format, SOURCES.names())
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
            raise VizslaError(f"a delimiter is one character other than a quote or a line end, not {delimiter!r}")
        if max_document < 1:
            raise VizslaError(f"the most bytes of a document must be 1 or more, not {max_document}")
        path, piped, unread = beir_folder(source), is_pipe(source), dict[str, int]()
        parts: tuple[Part, ...]
        skipped = Skipped()
        if ocr:
            check_ocr()
        if piped:
            parts = (_piped(source, format, max_document),)
        elif not path.exists():
            raise InputError("this file or folder does not exist", file=str(source))
        elif path.is_dir():
            parts, unread = _in_folder(path, format, max_document)
        else:
            parts = (Part(InputFile(path, str(path), max_document), format or _format_of(path), path.name),)
            if (missing := missing_package(parts[0].format)) is not None:
                raise missing
        if skip_bad:
            parts = tuple(replace(part, file=replace(part.file, skipped=skipped)) for part in parts)
        opened = cls(
            str(source), parts, names, delimiter, checked_types(types or {}), tuple(fields), allow_empty,
            Limits(ocr=ocr), path.is_dir(), unread, skip_bad, skipped,
        )  # fmt: skip
        if piped:
            weakref.finalize(opened, parts[0].file.path.unlink, missing_ok=True)
        return opened

    @property
    def bytes(self) -> int:
        """The size of all files in bytes."""
        return sum(_size(part) for part in self.parts)

    def documents(self, progress: Progress = None) -> Iterator[Document]:
        """The documents, one by one; `progress` is called with the number of bytes read so far.

        A source without documents is an error, unless `allow_empty` is set.
        """
        self.skipped.clear()
        count = 0
        for document in self._read(self.parts, progress):
            count += 1
            yield document
        self._check_empty(count)

    def _read(self, parts: Iterable[Part], progress: Progress = None, *, most: int | None = None) -> Iterator[Document]:
        """The documents of some files, at most some of each."""
        before = 0
        with ConfinedReader() as confined:
            for part in parts:
                yield from islice(self._documents(part, _offset(progress, before), confined), most)
                before += _size(part)
                if progress is not None:
                    progress(before)

    def _check_empty(self, count: int) -> None:
        if count or self.allow_empty:
            return
        if not self.skipped.count:
            raise InputError(
                "this source has no documents; --allow-empty (in Python allow_empty=True) allows that", file=self.name
            )
        first = self.skipped.errors[0]
        others = f", and {self.skipped.count - 1:,} more" if self.skipped.count > 1 else ""
        raise InputError(f"nothing in this source can be read: {first}{others}", file=self.name)

    def _documents(self, part: Part, progress: Progress, confined: ConfinedReader) -> Iterator[Document]:
        """The documents of a file. In a folder, a file without text does not stop the others."""
        try:
            yield from SOURCES[part.format].make().documents(part, self, progress, confined)
        except NoTextError as e:
            if not self.is_folder and not self.skip_bad:
                raise
            self.skipped.add(e)
        except InputError as e:
            part.file.leave_out(e)

    def _tables(self) -> Iterator[Table]:
        """All tables, read besides the reading that notes what is left out."""
        for part in self.parts:
            if part.format in _TABLES:
                try:
                    table = Table.open(part.file.without_notes(), self.names, part.format, self.delimiter)
                except InputError:
                    if not self.skip_bad:
                        raise
                    continue
                if table is not None:
                    yield table

    @cached_property
    def column_types(self) -> dict[str, str]:
        """The types of the columns of all tables: `types`, and for other columns the types that fit all rows."""
        inferred: dict[str, str] = {}
        columns: set[str] = set()
        for table in self._tables():
            if table.header is None:
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

        Of files that are documents, such as PDF, some are read; characters are recognised in one of them at most, if no
        other has a text. Lines that hold no document are left out; whoever reads all documents refuses them.
        """
        records = [part for part in self.parts if not _is_document(part)]
        yield from islice(self._read(records), first)
        files, found = [part for part in self.parts if _is_document(part)], False
        quick = replace(self, limits=replace(self.limits, ocr=False), skip_bad=True, skipped=Skipped())
        for document in quick._read(files[:: -(-len(files) // _SAMPLED_FILES) or 1], most=first):
            found = True
            yield document
        if self.limits.ocr and not found:
            yield from self._read(files[:1], most=first)
        for part in records:
            path = part.file.path
            if part.format != "jsonl" or path.suffix.lower() not in endings_of(SOURCES["jsonl"]):
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
        """The lines in batches, not yet parsed; None unless each line of the source is a document, without fail."""
        lines = not self.skip_bad and all(part.format == "jsonl" and is_json_lines(part.file) for part in self.parts)
        return self._raw_lines(progress) if lines else None

    def _raw_lines(self, progress: Progress) -> Iterator[RawLines]:
        before, found = 0, False
        for part in self.parts:
            for lines in read_raw_lines(part.file, self.names, _offset(progress, before)):
                found = found or lines.has_documents
                yield lines
            before += _size(part)
        self._check_empty(int(found))

    def remarks(self) -> Iterator[str]:
        """Messages about how the source is read: what was guessed, inferred or skipped."""
        for reason, count in self.unread.items():
            yield f"skipping {count:,} {'file' if count == 1 else 'files'}: {reason}"
        printed = set[str]()
        tables = (table.remark for table in self._tables())
        for remark in (*tables, *map(self._guess, self.parts)):
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
        if names.id is None and names.text is not None and self.names.id is None:
            guesses.append("a hash of its content as the id of each document without one")
        return f"taking {', '.join(guesses)}" if guesses else None

    def _first_keys(self, part: Part) -> Collection[str] | None:
        try:
            return SOURCES[part.format].make().first_keys(replace(part, file=part.file.without_notes()), self)
        except InputError:
            if not self.skip_bad:
                raise
            return None


def check_ocr() -> None:
    """Raise an error where no characters can be recognised."""
    from importlib.util import find_spec

    if find_spec("rapidocr") is None:
        raise MissingPackageError(
            "recognising characters needs rapidocr, which is not installed; get it with: pip install 'vizsla[ocr]'"
        )


def _is_document(part: Part) -> bool:
    """Whether a file is a document itself."""
    make: Any = SOURCES[part.format].make
    return issubclass(make, DocumentFormat)


def _size(part: Part) -> int:
    try:
        return part.file.path.stat().st_size
    except OSError:  # it is gone, or a link to nothing
        return 0


def _offset(progress: Progress, by: int) -> Progress:
    return None if progress is None else lambda done: progress(by + done)


def _format_of(path: Path) -> str:
    format = format_of(path)
    if format is None:
        endings = ", ".join(ending for entry in SOURCES if entry.name != "code" for ending in endings_of(entry))
        raise InputError(
            f"the format is unknown; expected a folder, or a file of {endings} (with .gz, .xz or .zst) or of source "
            "code, or name the format with --format (in Python format=)",
            file=str(path),
        )
    return format


def _piped(source: str | Path, format: str | None, max_document: int) -> Part:
    if format is None:
        message = "a pipe has no file ending that shows its format; name it, as in --format jsonl (in Python format=)"
        raise InputError(message, file=str(source))
    return Part(InputFile(spool(source), str(source), max_document), format, str(source))


def _in_folder(path: Path, format: str | None, max_document: int) -> tuple[tuple[Part, ...], dict[str, int]]:
    """BEIR's corpus, or all files of known formats, or of `format`; and the number of other files by reason."""
    if format is None and is_beir(path):
        corpus = find_file(path, "corpus.jsonl")
        return (Part(InputFile(corpus, str(corpus), max_document), "jsonl", corpus.name),), {}
    parts: list[Part] = []
    others, unread = Counter[str](), Counter[str]()
    for file in _files(path, unread):
        file_format = format_of(file)
        if file_format is None or (format is not None and file_format != format):
            others[file.suffix.lower()] += 1
        elif (missing := missing_package(file_format)) is not None:
            unread[str(missing)] += 1
        else:
            name = file.relative_to(path).as_posix()
            parts.append(Part(InputFile(file, str(file), max_document), file_format, name))
    if not parts:
        if unread:
            raise InputError(f"no file in this folder can be read: {next(iter(unread))}", file=str(path))
        named = [SOURCES[format]] if format else [entry for entry in SOURCES if entry.name != "code"]
        every = ", ".join(ending for entry in named for ending in endings_of(entry))
        raise InputError(f"this folder holds no files of {every}", file=str(path))
    if others:
        endings = ", ".join(f"{ending or 'no ending'} ({count:,})" for ending, count in others.most_common())
        unread[f"not documents: {endings}"] = others.total()
    return tuple(parts), dict(unread)


def _files(folder: Path, unread: Counter[str]) -> list[Path]:
    """The files in a folder and below, in order; links to folders are not followed, and hidden files are left out."""

    def failed(e: OSError) -> None:
        unread[f"a folder cannot be read ({e.strerror}): {e.filename}"] += 1

    found: list[Path] = []
    for here, folders, names in os.walk(folder, onerror=failed):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += (Path(here, name) for name in names if not name.startswith("."))
    files = []
    for file in sorted(found):
        try:
            known = file.is_file()
        except OSError:  # a circle of links
            known = False
        if known:
            files.append(file)
        elif file.is_symlink():
            unread["links to nothing"] += 1
    return files


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
