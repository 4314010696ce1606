"""What a format of files is, and the text with headings and pages that it makes of a file.

Each format registers itself in a file of `vizsla.datasets.formats`:

    @SOURCES.register("log", help="Logs of a server.")
    class Log(DocumentFormat):
        endings = (".log",)

        def read(self, file, limits):
            text = TextBuilder(file.max_document)
            text.heading(1, "A log")
            text.paragraph(file.read_text())
            yield text.extracted()

A file outside of the package registers one in the same way. A document carries headings and pages as its field
`outline`, so that passages know where they come from.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Protocol

from vizsla.datasets.files import COMPRESSIONS, InputFile, Progress
from vizsla.errors import MissingPackageError
from vizsla.runs.documents import Document, FieldNames, Origin
from vizsla.runs.outline import LEVELS, OUTLINE, Heading, Outline
from vizsla.spec.registry import Entry, Registry

MAX_HEADING = 200  # characters; longer ones are paragraphs that are set like a heading
MAX_TITLE = 300
_TOP = 10_000  # characters: a heading behind them does not name the document
_NONE = Outline()
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True)
class Extracted:
    """The text of a file, or of one of the messages in it."""

    text: str
    title: str = ""
    outline: Outline = _NONE
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Other fields of the document, as an author and a date."""
    id: str = ""
    """What it is called in its file, if the file holds several; empty for the path of the file."""
    line: int = 1
    """The line of the file where it begins, for messages."""

    def as_message(self) -> dict[str, Any]:
        """Plain JSON, to be sent to another process."""
        return {
            "text": self.text, "title": self.title, "outline": self.outline.as_field(), "fields": dict(self.fields),
            "id": self.id, "line": self.line,
        }  # fmt: skip

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Extracted:
        """The same from plain JSON; what is not of the right type is a ValueError."""
        texts = [message.get(name) for name in ("text", "title", "id")]
        outline, fields, line = Outline.of(message.get("outline")), message.get("fields"), message.get("line")
        if not all(isinstance(text, str) for text in texts) or outline is None:
            raise ValueError("a text is missing")
        if not isinstance(fields, dict) or type(line) is not int:
            raise ValueError("a field is missing")
        return cls(str(texts[0]), str(texts[1]), outline, fields, str(texts[2]), line)


class TooMuchTextError(Exception):
    """A text grows beyond what a document may have."""


class TextBuilder:
    """Puts a text together from paragraphs, headings and pages. Blocks are separated by an empty line.

    >>> text = TextBuilder()
    >>> text.page(); text.heading(1, "Dogs"); text.paragraph(" Dogs\\n bark. ")
    >>> text.extracted().text, text.extracted().outline.headings
    ('Dogs\\n\\nDogs bark.', (Heading(offset=0, level=1, text='Dogs'),))
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        """`max_bytes`: the size of a text, beyond which it is refused."""
        self._max_bytes = max_bytes
        self._parts: list[str] = []
        self._length = self._bytes = 0
        self._headings: list[Heading] = []
        self._pages: list[int] = []

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def paragraph(self, text: str) -> None:
        """Add a paragraph; its white space becomes single blanks."""
        self.block(" ".join(text.split()))

    def lines(self, text: str) -> None:
        """Add a block whose line ends are kept, such as code or the rows of a table."""
        kept = [line.rstrip() for line in text.expandtabs().split("\n")]
        self.block("\n".join(kept).strip("\n"))

    def row(self, text: str) -> None:
        """Add a line to the block before: a row of a table, an item of a list."""
        self.block(" ".join(text.split()), between="\n")

    def heading(self, level: int, text: str) -> None:
        """Add a heading; one of very many words is a paragraph."""
        words = " ".join(_CONTROLS.sub("", text).split())
        if words and len(words) <= MAX_HEADING:
            self.mark(level, words, after=2)
        self.block(words)

    def mark(self, level: int, text: str, *, after: int = 0) -> None:
        """A heading that begins here, or so many characters after what there is; its words are added later."""
        offset = self._length + (after if self._parts else 0)
        self._headings.append(Heading(offset, min(max(level, 1), LEVELS), text))

    def page(self, after: int = 0) -> None:
        """Begin a page, with the next block or so many characters after its begin."""
        self._pages.append(self._length + (2 if self._parts else 0) + after)

    def first_page(self) -> None:
        """Say that what there is so far stands on the first page, if nothing has been said yet."""
        if not self._pages:
            self._pages.append(0)

    def block(self, text: str, between: str = "\n\n") -> None:
        """Add a block as it is, without characters that are no text."""
        text = _CONTROLS.sub("", text)
        if not text.strip():
            return
        if self._parts:
            text = between + text
        self._length += len(text)
        self._bytes += len(text) if text.isascii() else len(text.encode())
        if self._max_bytes is not None and self._bytes > self._max_bytes:
            raise TooMuchTextError
        self._parts.append(text)

    def extracted(self, title: str = "", fields: Mapping[str, Any] | None = None, **more: Any) -> Extracted:
        """What was put together. Without a title it is the first heading of the highest level near the beginning."""
        text = "".join(self._parts)
        outline = Outline(
            tuple(heading for heading in self._headings if heading.offset < len(text)),
            tuple(min(page, len(text)) for page in self._pages),
        )
        chosen = " ".join(_CONTROLS.sub("", title).split())[:MAX_TITLE]
        at_the_top = [heading for heading in outline.headings[:20] if heading.offset < _TOP]
        if not chosen and at_the_top:
            chosen = min(at_the_top, key=lambda heading: heading.level).text
        kept = {name: value for name, value in (fields or {}).items() if value not in ("", None, [])}
        return Extracted(text, chosen, outline, kept, **more)


@dataclass(frozen=True)
class Limits:
    """What the reader of a file in a foreign format may take, before the file is refused."""

    seconds: float = 60.0
    """For each document. On Linux the seconds in which the process waits for a busy processor do not count, up to ten
    times as many."""
    memory: int = 1 << 30
    """In bytes, of the process that reads it."""
    pages: int = 10_000
    ocr: bool = False
    """Whether pages without text are read by optical character recognition, which takes seconds a page."""

    @property
    def time(self) -> float:
        """The seconds for a document."""
        return 60 * self.seconds if self.ocr else self.seconds

    @property
    def bytes(self) -> int:
        """The memory of a reader; the networks of a character recognition take some."""
        return self.memory + (3 << 30) * self.ocr


class Refusal(Exception):
    """A reason why a file cannot be read; whoever knows the name of the file makes an error of it."""


class NoText(Refusal):
    """A reason why a file has no text that can be read."""


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


class FileReader(Protocol):
    """What reads files of foreign formats in a process of its own: a `ConfinedReader`."""

    def read(self, format: str, file: InputFile, limits: Limits) -> Iterator[Extracted]:
        """The text of a file; a file that cannot be read within the limits is refused in one sentence."""


class SourceFormat(ABC):
    """A format of files: how documents are read from a file."""

    endings: ClassVar[tuple[str, ...]] = ()
    """The endings of the names of its files, in lower case."""

    @abstractmethod
    def documents(self, part: Part, source: Reading, progress: Progress, reader: FileReader) -> Iterator[Document]:
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

    def documents(self, part: Part, source: Reading, progress: Progress, reader: FileReader) -> Iterator[Document]:
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
