"""Documents to a part: one shard of a source is encoded, and written so that any machine can do it alone."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from vizsla.datasets import Document, Splitter
from vizsla.errors import InputError, VizslaError
from vizsla.index.creation import check_documents_read
from vizsla.index.parts.part import ENDING, FORMAT, FinishedPart, PartFacts, PartSettings, Shard, write_part
from vizsla.index.parts.tables import pyarrow, table_of
from vizsla.index.storage.locks import FileLock, LockedError
from vizsla.index.writing.analysis import Analyst, batches, last_of_each
from vizsla.models import Model, check_model, parse_model
from vizsla.plain_data import parse_settings

UNFINISHED = ".unfinished"
_HEADER = struct.Struct("<QQ16s16s")  # bytes of the table, first document, digests of documents and table


@dataclass
class EncodingReport:
    """What an encoding has done."""

    documents: int = 0
    """Documents of the part."""
    resumed: int = 0
    """Those of them that were in the file before."""
    source_documents: int = 0
    """Documents of the whole source."""


def encode_shard(
    documents: Iterable[Document],
    output: str | Path,
    model: str | Model,
    shard: str | Shard = "1/1",
    *,
    name: str | None = None,
    passages: Splitter | int | None = None,
    batch: int | None = None,
    overwrite: bool = False,
) -> EncodingReport:
    """Encode one shard of the documents and write it as a part, a Parquet file; `build_from_parts` reads all parts.

    Every machine is given all documents in the same order and encodes its share of their batches, see `Shard`. The
    same call resumes a stopped run; the result is byte-identical to that of an uninterrupted run.

    `name`: the name by which `build_from_parts` can open the model, if it is not the model's own name.
    `passages`: as for an index. `batch`: how many documents are encoded at once; by default as many as an index does,
    so that vectors are rounded in the same way.
    """
    part = Path(output)
    if not part.name.endswith(ENDING):
        raise VizslaError(f"{part}: a part is a Parquet file; name one that ends in {ENDING}")
    chosen = parse_model(model) if isinstance(model, str) else check_model(model)
    named = name or (model if isinstance(model, str) else chosen.name)
    which = Shard.parse(shard) if isinstance(shard, str) else shard
    splitter = None if passages is None else Splitter.of(passages)
    check_documents_read(chosen, splitter)
    settings = PartSettings.of(chosen, named, which, splitter, batch)
    finished = None if overwrite else _finished(part, settings)
    if finished is not None:
        return finished
    with UnfinishedPart(part, settings, overwrite=overwrite) as file:
        report = None if overwrite else _finished(part, settings)  # another process may have been faster
        if report is None:
            report = _encode(documents, file, chosen, settings)
        file.remove()
    return report


def _finished(part: Path, settings: PartSettings) -> EncodingReport | None:
    """The report of a part that is finished; None if it is not there, and one with other settings is refused."""
    if not part.exists():
        return None
    finished = FinishedPart(part)
    other = finished.settings.difference(settings)
    if other is None and finished.settings.shard != settings.shard:
        other = f"the shard {finished.settings.which}", f"{settings.which}"
    if other is not None:
        raise VizslaError(
            f"{part}: this part was encoded with {other[0]}, and now it is {other[1]}; write to another file, or "
            "replace it with --overwrite"
        )
    facts = finished.facts
    return EncodingReport(facts.documents, facts.documents, facts.source_documents)


def _encode(
    documents: Iterable[Document], file: UnfinishedPart, model: Model, settings: PartSettings
) -> EncodingReport:
    """Encode the batches that the file does not hold, and finish the part."""
    report, source = EncodingReport(), hashlib.sha256()
    splitter, shard = settings.splitter, settings.which
    fields: set[str] = set()
    for number, some in enumerate(batches(documents, settings.batch)):
        assert isinstance(some, list)
        some = last_of_each(some)
        digest = _digest(some)
        source.update(digest)
        if shard.has(number):
            fields |= {name for name in model.fields if any(name in d.with_fields(model.fields).content for d in some)}
            if file.holds(report.source_documents, digest):
                report.resumed += len(some)
            else:
                # A new analyst for each batch: its terms do not depend on the batches that this process has encoded.
                analysed = Analyst(model, splitter, store=True, max_bytes=0).analyse(some)
                passages = splitter is not None
                table = table_of(analysed, model.namespaces, report.source_documents, passages=passages)
                file.append(report.source_documents, digest, table)
            report.documents += len(some)
        report.source_documents += len(some)
    file.check_complete()
    facts = PartFacts(
        settings, report.source_documents, source.hexdigest(), report.documents, file.batches, tuple(sorted(fields))
    )
    schemas = [table.schema for table in file.tables()]
    write_part(file.part.resolve(), facts, file.tables(), schemas)
    return report


def _digest(documents: list[Document]) -> bytes:
    rows = [[d.id, d.content] for d in documents]
    return short_digest(json.dumps(rows, default=str).encode())


def unfinished_file(part: Path) -> Path:
    """The file of a part before it is finished."""
    return part.with_name(part.name + UNFINISHED)


def short_digest(data: bytes) -> bytes:
    """A 16-byte digest of data."""
    return hashlib.blake2b(data, digest_size=16).digest()


@dataclass(frozen=True)
class _Held:
    """A batch in the file."""

    first: int
    digest: bytes
    offset: int
    size: int


class UnfinishedPart:
    """The file of an unfinished part, which one process writes; a run that was stopped goes on after its last batch.

    The first line has the settings as JSON. Each batch follows as a header and a table in Arrow's stream format.

    Batches are passed in the order of the source. `holds` says whether the file has a batch already; from the first
    one that it does not hold, `append` writes. A batch is written at once and synced. What comes after the last whole
    batch of a process that was killed is cut off.
    """

    def __init__(self, part: Path, settings: PartSettings, *, overwrite: bool = False) -> None:
        self.part = part
        self.path = unfinished_file(part.resolve())  # a lock does not follow links
        try:
            self._lock = FileLock(self.path)
        except LockedError:
            raise VizslaError(f"{part}: another vizsla encode is writing this part; wait until it has ended") from None
        self._file: BinaryIO | None = None
        self._held: list[_Held] = []
        self._next = 0
        try:
            self._begin(settings, overwrite)
        except BaseException:
            self.close()
            raise

    def _begin(self, settings: PartSettings, overwrite: bool) -> None:
        self._file = self.path.open("r+b")
        line = self._file.readline()
        if line and not overwrite and (line.endswith(b"\n") or self._file.seek(0, os.SEEK_END) > len(line)):
            self._check(line, settings)
            self._find_batches(len(line))
        else:
            self._write(0, json.dumps({"format": FORMAT, "settings": settings.described()}).encode() + b"\n")
            self._held = []

    def _check(self, line: bytes, settings: PartSettings) -> None:
        try:
            data = parse_settings(line)
            begun = PartSettings.from_data(data["settings"]) if data["format"] == FORMAT else None
        except (ValueError, KeyError, TypeError, VizslaError):
            begun = None
        if begun is None:
            raise InputError(
                "this version cannot go on with this file; remove it, or give --overwrite", file=str(self.path)
            )
        if begun.shard != settings.shard and begun.shards == settings.shards:
            difference: tuple[str, str] | None = f"the shard {begun.which}", f"{settings.which}"
        else:
            difference = begun.difference(settings)
        if difference is not None:
            raise VizslaError(
                f"{self.part}: this part was begun with {difference[0]}, and now it is {difference[1]}; give what it "
                "was begun with to go on, or write to another file"
            )

    def _find_batches(self, offset: int) -> None:
        """Find all whole batches and cut off what follows them."""
        assert self._file is not None
        self._file.seek(offset)
        while len(header := self._file.read(_HEADER.size)) == _HEADER.size:
            size, first, digest, checksum = _HEADER.unpack(header)
            data = self._file.read(size) if size <= os.fstat(self._file.fileno()).st_size else b""
            if len(data) < size or short_digest(data) != checksum:
                break
            self._held.append(_Held(first, digest, offset + _HEADER.size, size))
            offset += _HEADER.size + size
        self._file.truncate(offset)

    def _write(self, offset: int, data: bytes) -> None:
        assert self._file is not None
        try:
            self._file.truncate(offset)
            self._file.seek(offset)
            self._file.write(data)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as e:
            raise VizslaError(
                f"{self.path}: this file cannot be written ({e.strerror or e}); run the same command again to resume, "
                "once it can be"
            ) from None

    @property
    def batches(self) -> int:
        """How many batches the file holds."""
        return len(self._held)

    def holds(self, first: int, digest: bytes) -> bool:
        """Whether the file has the next batch; other documents than those in the file are refused."""
        if self._next == len(self._held):
            return False
        held = self._held[self._next]
        if (held.first, held.digest) != (first, digest):
            raise self._changed()
        self._next += 1
        return True

    def append(self, first: int, digest: bytes, table: Any) -> None:
        """Write the next batch."""
        pa = pyarrow()
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table)
        data = stream.getvalue().to_pybytes()
        assert self._file is not None
        offset = self._file.seek(0, os.SEEK_END)
        self._write(offset, _HEADER.pack(len(data), first, digest, short_digest(data)) + data)
        self._held.append(_Held(first, digest, offset + _HEADER.size, len(data)))
        self._next += 1

    def check_complete(self) -> None:
        """Refuse, at the end of the source, a file with further batches."""
        if self._next < len(self._held):
            raise self._changed()

    def _changed(self) -> VizslaError:
        return VizslaError(
            f"{self.part}: documents of the source were added, removed or changed since this part was started; restore "
            "them to go on, or encode all parts again with --overwrite"
        )

    def tables(self) -> Iterator[Any]:
        """The tables of all batches."""
        assert self._file is not None
        for held in self._held:
            self._file.seek(held.offset)
            with pyarrow().ipc.open_stream(self._file.read(held.size)) as reader:
                yield reader.read_all()

    def remove(self) -> None:
        """Remove the file, after the part is finished."""
        self.path.unlink(missing_ok=True)

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
