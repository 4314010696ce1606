"""The formats of files that documents are read from: each registers itself in a file of `vizsla.datasets.formats`.

    @SOURCES.register("log", help="Logs of a server.")
    class Log(DocumentFormat):
        endings = (".log",)

        def read(self, file, limits):
            yield Extracted(file.read_text(), title="A log")

A file outside of the package registers one in the same way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Protocol

from vizsla.datasets.confined import ConfinedReader, Limits
from vizsla.datasets.extracted import Extracted, TextBuilder, TooMuchTextError
from vizsla.datasets.files import COMPRESSIONS, InputFile, Progress
from vizsla.errors import MissingPackageError
from vizsla.runs.documents import Document, FieldNames, Origin
from vizsla.runs.outline import OUTLINE
from vizsla.spec.registry import Entry, Registry


@dataclass(frozen=True)
class Part:
    """A file of a source, and its format."""

    file: InputFile
    format: str
    id: str
    """The id of the document if the whole file is one document: its path in the source."""


class Reading(Protocol):
    """What a format may ask of the source that a file belongs to."""

    @property
    def names(self) -> FieldNames:
        """The names of the fields with id, text and title."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that a model reads."""

    @property
    def limits(self) -> Limits:
        """What the reader of a file may take."""

    @property
    def column_types(self) -> Mapping[str, str]:
        """The types of the columns of all tables of the source."""

    @property
    def delimiter(self) -> str | None:
        """The separator of columns in csv and tsv files; None to guess it."""


class SourceFormat(ABC):
    """A format of files: how documents are read from a file."""

    endings: ClassVar[tuple[str, ...]] = ()
    """The endings of the names of its files, in lower case."""

    @abstractmethod
    def documents(self, part: Part, source: Reading, progress: Progress, reader: ConfinedReader) -> Iterator[Document]:
        """The documents of a file. What cannot be read is given to `part.file.leave_out`."""

    def first_keys(self, part: Part, source: Reading) -> Collection[str] | None:  # noqa: ARG002
        """The names of the fields of the first record; None for a format without records."""
        return None


class DocumentFormat(SourceFormat):
    """A format whose files are documents themselves: a page, a paper, a message."""

    confined: ClassVar[bool] = False
    """Whether files are read in another process, with limits of time and memory: true for what others' code parses."""

    @abstractmethod
    def read(self, file: InputFile, limits: Limits) -> Iterable[Extracted]:
        """The text of a file; a file with several documents, as a mailbox, gives each with an id."""

    def documents(self, part: Part, source: Reading, progress: Progress, reader: ConfinedReader) -> Iterator[Document]:
        """The documents of a file: title, text, path, outline, and fields of the format."""
        if self.confined:
            found: Iterable[Extracted] = reader.read(part.format, part.file, source.limits)
        else:
            found = extracted(self, part.file, source.limits)
        path = Path(part.file.name)
        for one in found:
            content = {"title": one.title or path.name, "text": one.text, "path": part.id, **one.fields}
            if outline := one.outline.as_field():
                content[OUTLINE] = outline
            yield Document(one.id or part.id, content, Origin(part.file.name, one.line))
            if progress is not None and one.id:
                progress(0)


def extracted(format: DocumentFormat, file: InputFile, limits: Limits) -> Iterator[Extracted]:
    """The text of a file; one that is too long is refused."""
    try:
        yield from format.read(file, limits)
    except TooMuchTextError:
        raise file.too_large(1) from None


def builder(file: InputFile) -> TextBuilder:
    """An empty text, of at most as many bytes as a document may have."""
    return TextBuilder(file.max_document)


SOURCES = Registry[SourceFormat](
    "format", package="vizsla.datasets.formats", example="jsonl", first=("json", "csv", "parquet", "trec")
)
"""The formats of files by name."""


def format_of(path: Path) -> str | None:
    """The name of the format that a file's name stands for; None if no format has its ending.

    >>> format_of(Path("dogs.jsonl.gz")), format_of(Path("dogs.PDF")), format_of(Path("dogs.xyz"))
    ('jsonl', 'pdf', None)
    """
    name = bare_name(path)
    for names in (SOURCES.own_names, SOURCES.names):  # plugins are looked for when nothing else is left
        for format in names():
            if name.endswith(endings_of(SOURCES[format])):
                return format
    return None


def bare_name(path: Path) -> str:
    """The name of a file in lower case, without the ending of a compression."""
    name = path.name
    for ending in COMPRESSIONS:
        name = name.removesuffix(ending)
    return name.lower()


def endings_of(entry: Entry[SourceFormat]) -> tuple[str, ...]:
    """The endings of a format's files."""
    make: Any = entry.make
    return tuple(make.endings)


def missing_package(format: str) -> MissingPackageError | None:
    """The error for a format whose package is not installed."""
    entry = SOURCES[format]
    absent = [name for name in entry.needs if find_spec(name) is None]
    if not absent:
        return None
    extra = {"pypdfium2": "vizsla[documents]", "pyarrow": "vizsla[parquet]"}.get(absent[0], absent[0])
    return MissingPackageError(
        f"{format} files need {absent[0]}, which is not installed; get it with: pip install '{extra}'"
    )
