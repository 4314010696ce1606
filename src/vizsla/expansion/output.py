"""The file of an expansion, lines of JSON that grow block by block, and its settings, with which a run is resumed."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Self

from vizsla.errors import InputError, VizslaError
from vizsla.index.storage.locks import FileLock, LockedError
from vizsla.models import QUERIES
from vizsla.models.generator import Sampling
from vizsla.plain_data import DescriptionError, check_type, fields_from_data, parse_json, parse_settings
from vizsla.runs import Document
from vizsla.runs.documents import refusal

FORMAT = 2
ENDING = ".expansion"
_WORDS = {
    "texts": "queries", "top_k": "top-k", "top_p": "top-p", "temperature": "a temperature of",
    "max_tokens": "max-tokens", "seed": "the seed",
}  # fmt: skip


@dataclass(frozen=True)
class ExpansionSettings:
    """Everything that determines the output of an expansion for given documents."""

    generator: str
    digest: str
    """The digest of the generator's weights and settings."""
    sampling: Sampling
    fields: tuple[str, ...] = ("title", "text")
    """The fields that the generator reads."""
    block: int = 64
    """How many documents one call of the generator reads: rounding depends on the texts of a call."""

    def __post_init__(self) -> None:
        if self.block < 1:
            raise VizslaError(f"a batch has 1 document or more, not {self.block}")

    def difference(self, other: ExpansionSettings) -> tuple[str, str] | None:
        """The first setting that differs, as described here and in the other settings; None if all are equal."""
        if self.digest != other.digest:
            if self.generator != other.generator:
                return f"the generator {self.generator}", f"the generator {other.generator}"
            return f"a generator {self.generator}", "another one of that name"
        for field in fields(Sampling):
            mine, theirs = (getattr(s.sampling, field.name) for s in (self, other))
            if mine != theirs:
                word = _WORDS.get(field.name, field.name)
                return (f"{mine} queries", f"{theirs}") if field.name == "texts" else (f"{word} {mine}", f"{theirs}")
        if self.fields != other.fields:
            return f"the fields {'/'.join(self.fields)}", "/".join(other.fields)
        if self.block != other.block:
            return f"batches of {self.block}", f"{other.block}"
        return None

    def write(self, file: Path) -> None:
        """Write the settings atomically."""
        text = json.dumps({"format": FORMAT, **asdict(self)}, indent=2) + "\n"
        beside = file.with_name(file.name + ".new")
        with beside.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(file)

    @classmethod
    def read(cls, file: Path) -> ExpansionSettings | None:
        """The settings in a file; None if there is no such file."""
        try:
            data = parse_settings(file.read_text("utf-8"))
            check_type("the file", data, "dict")
            if data.pop("format", None) != FORMAT:
                raise InputError("another version of Vizsla wrote these settings; write to a new file", file=str(file))
            sampling = Sampling(**fields_from_data(Sampling, data.pop("sampling", None)))
            values: dict[str, Any] = fields_from_data(cls, {**data, "sampling": {}}, sampling="dict")
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, DescriptionError) as e:
            raise InputError(f"these are not the settings of an expansion ({e})", file=str(file)) from None
        return cls(**{**values, "sampling": sampling})


def settings_file(output: Path) -> Path:
    """The file of settings beside a file of expanded documents."""
    return output.with_name(output.name + ENDING)


ID = "_id"
SCORES = "query_scores"
"""The field with the scores of the queries, where a filter writes them."""
_MARK = f', "{QUERIES}": ['.encode()  # cannot occur inside a text, where quotes are escaped
_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


class ExpandedLine(NamedTuple):
    """A line of an expanded file: the bytes before the queries, the document's id, and the queries."""

    start: bytes
    id: str
    queries: list[str]


def line_start(document: Document) -> bytes:
    """A document's line up to its queries; an error if it already has queries or cannot be written as JSON."""
    content = document.content
    if QUERIES in content:
        raise refusal(
            f"the document {document.id!r} has a field {QUERIES!r} already; expand the documents as they were, or "
            "rename the field",
            document.origin,
        )
    if ID in content:
        raise refusal(
            f"the document {document.id!r} has a field {ID!r} beside its id; rename or remove it", document.origin
        )
    return _encoded({ID: document.id, **content}, document)[:-1] + _MARK[:-1]


def line_of(start: bytes, queries: list[str]) -> bytes:
    """The whole line of a document, given its beginning."""
    return start + _JSON(queries).encode() + b"}\n"


def whole_line(document: Document, queries: list[str], scores: list[float] | None = None) -> bytes:
    """The line of an expanded document with other queries, and with their scores if there are any."""
    content = {name: value for name, value in document.content.items() if name not in (QUERIES, SCORES)}
    if scores is not None:
        content[SCORES] = scores
    return _encoded({ID: document.id, **content, QUERIES: queries}, document) + b"\n"


def read_line(line: bytes) -> ExpandedLine | None:
    """The parts of a line; None if it is not whole, or not one that `line_of` writes."""
    at = line.rfind(_MARK)
    if at < 0 or not line.endswith(b"}\n"):
        return None
    start = line[: at + len(_MARK) - 1]
    try:
        record: Any = parse_json(line)
    except ValueError:
        return None
    doc_id, queries = record.get(ID), _texts(record.get(QUERIES))
    if not isinstance(doc_id, str) or queries is None:
        return None
    return ExpandedLine(start, doc_id, queries)


def queries_of(document: Document) -> list[str]:
    """The generated queries of a document; one without them is refused."""
    queries = _texts(document.get(QUERIES))
    if queries is None:
        raise refusal(
            f"the document {document.id!r} has no texts in the field {QUERIES!r}; vizsla queries generate writes it",
            document.origin,
        )
    return queries


def _texts(value: object) -> list[str] | None:
    """A list of texts; None for anything else."""
    return value if isinstance(value, list) and all(isinstance(item, str) for item in value) else None


def _encoded(record: dict[str, Any], document: Document) -> bytes:
    try:
        return _JSON(record).encode()
    except (TypeError, ValueError, RecursionError) as e:
        name = document.id.encode("utf-8", "replace").decode()
        raise refusal(f"the document {name!r} cannot be written as JSON ({e})", document.origin) from None


_OTHER_FILE = "write to another file, or replace this one with --overwrite"


class ExpansionFile:
    """A file of expanded documents that one process writes.

    Blocks of documents are passed in the order of the source. `holds` returns the queries of a block that the file has
    already, and compares its documents; later blocks are written with `append`. A block is written at once and
    synced, so that a killed process leaves complete blocks and at most one incomplete one, which is dropped.
    """

    def __init__(self, path: Path, settings: ExpansionSettings, *, overwrite: bool = False) -> None:
        self.path = path
        self._real = path.resolve()  # a lock does not follow links
        try:
            self._lock = FileLock(self._real)
        except LockedError:
            raise VizslaError(
                f"{path}: another vizsla queries generate is writing this file; wait until it has ended"
            ) from None
        self._file: BinaryIO | None = None
        try:
            self._begin(settings, overwrite)
        except BaseException:
            self.close()
            raise

    def _begin(self, settings: ExpansionSettings, overwrite: bool) -> None:
        self._file = self._real.open("r+b")
        self._size = os.fstat(self._file.fileno()).st_size
        self._end = 0
        self._lines = 0
        beside = settings_file(self._real)
        if self._size and not overwrite:
            self._check(ExpansionSettings.read(beside), settings)
            return
        try:
            self._file.truncate(0)
            settings.write(beside)
        except OSError as e:
            raise self._stopped(e) from None
        self._size = 0

    def _check(self, begun: ExpansionSettings | None, settings: ExpansionSettings) -> None:
        if begun is None:
            raise VizslaError(
                f"{self.path}: this file is there, and {settings_file(self.path).name} is not beside it, so it cannot "
                "be gone on with; name another file, or replace it with --overwrite"
            )
        difference = begun.difference(settings)
        if difference is not None:
            raise VizslaError(
                f"{self.path}: this file was begun with {difference[0]}, and now it is {difference[1]}; give what it "
                "was begun with to go on, or write to another file"
            )

    def holds(self, ids: Sequence[str], starts: Sequence[bytes]) -> list[list[str]] | None:
        """The queries of the next documents, if the file has all of them; otherwise None: they have to be written.

        `starts`: the lines of the documents up to their queries. Documents other than those in the file are refused.
        """
        if self._end >= self._size:
            return None
        assert self._file is not None
        self._file.seek(self._end)
        lines = [self._file.readline() for _ in starts]
        end = self._file.tell()
        held = [read_line(line) for line in lines]
        if not all(held):
            if end < self._size:
                number = self._lines + held.index(None) + 1
                raise InputError(
                    "this line is not as it was written; restore the file, or replace it with --overwrite",
                    file=str(self.path),
                    line=number,
                )
            self._drop()
            return None
        known = [line for line in held if line is not None]
        for doc_id, start, line in zip(ids, starts, known, strict=True):
            if line.start != start:
                raise VizslaError(self._changed(doc_id, line))
        self._end = end
        self._lines += len(known)
        return [line.queries for line in known]

    def _changed(self, doc_id: str, line: ExpandedLine) -> str:
        if doc_id == line.id:
            return f"{self.path}: the document {doc_id!r} has changed since it was expanded; {_OTHER_FILE}"
        return (
            f"{self.path}: the source has the document {doc_id!r} where it had {line.id!r}, so documents were added, "
            f"removed or reordered since they were expanded; {_OTHER_FILE}"
        )

    def _drop(self) -> None:
        """Truncate the file after the last complete block."""
        assert self._file is not None
        self._file.truncate(self._end)
        self._size = self._end

    def append(self, starts: Sequence[bytes], queries: Sequence[list[str]]) -> None:
        """Write a block of documents with their queries."""
        assert self._file is not None
        data = b"".join(line_of(start, texts) for start, texts in zip(starts, queries, strict=True))
        try:
            self._file.seek(self._end)
            self._file.write(data)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as e:
            raise self._stopped(e) from None
        self._end = self._size = self._end + len(data)
        self._lines += len(starts)

    def finish(self) -> None:
        """Check, after the last block of the source, that the file has no further documents."""
        if self._end < self._size:
            assert self._file is not None
            self._file.seek(self._end)
            line = read_line(self._file.readline())
            further = "a further line" if line is None else f"the document {line.id!r}"
            raise VizslaError(
                f"{self.path}: this file has {further}, and the source has ended before it, so documents were removed "
                f"since they were expanded; {_OTHER_FILE}"
            )

    def _stopped(self, error: OSError) -> VizslaError:
        with suppress(OSError):  # the next run would drop the rest of the block anyway
            os.truncate(self._real, self._end)
        what = error.strerror or str(error)
        return VizslaError(
            f"{self.path}: this file cannot be written ({what}); run the same command again to resume, once it can be"
        )

    def close(self) -> None:
        """Close the file and free it for others."""
        if self._file is not None:
            with suppress(OSError):  # a full disk has been reported
                self._file.close()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
