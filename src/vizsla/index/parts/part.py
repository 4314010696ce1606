"""A finished part: a Parquet file with a row group for each batch of a shard, and the settings that all parts share."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vizsla.datasets import Splitter
from vizsla.errors import InputError, VizslaError
from vizsla.index.parts.tables import common_schema, pyarrow
from vizsla.index.storage import arrays
from vizsla.index.storage.folder import model_files
from vizsla.models import Model
from vizsla.plain_data import check_type, fields_from_data, parse_settings

FORMAT = 2
ENDING = ".parquet"
_KEY = b"vizsla.part"
_BASE = ("document", "id", "metadata", "fields")


@dataclass(frozen=True)
class Shard:
    """One of several shards, counted from 1.

    Documents are taken in batches in the order of the source. Batch 1 belongs to shard 1, batch 2 to shard 2, and
    after the last shard it begins again, so that each machine knows its batches without asking others.

    >>> shard = Shard.parse("3/20")
    >>> [batch for batch in range(100) if shard.has(batch)]
    [2, 22, 42, 62, 82]
    """

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise VizslaError(f"a shard is a number from 1 to the number of shards, as in 3/20, not {self}")

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The shard in a text such as 3/20."""
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text, re.ASCII)
        if match is None:
            raise VizslaError(f"{text!r} is not a shard; expected something like 3/20, the third of twenty")
        return cls(int(match[1]), int(match[2]))

    def has(self, batch: int) -> bool:
        """Whether a batch of the source, counted from 0, belongs to this shard."""
        return batch % self.count == self.number - 1


@dataclass(frozen=True)
class PartSettings:
    """What decides the bytes of a part, given the documents of the source."""

    model: str
    """The model as it was named."""
    digest: str
    """Of the model's description and its files."""
    shard: int
    shards: int
    batch: int
    """How many documents are encoded at once, at most: rounding depends on the texts of a call."""
    passages: dict[str, Any] | None = None
    """How documents are cut into passages; None if they are not."""

    @classmethod
    def of(cls, model: Model, name: str, shard: Shard, splitter: Splitter | None, batch: int | None) -> PartSettings:
        """The settings for a model under the name it was given by; its own batch size if `batch` is None."""
        if model.needs_corpus_statistics:
            raise VizslaError(
                f"{model.name} needs the statistics of all documents before it encodes the first, so it cannot be "
                "encoded by shards; build the whole index with vizsla index"
            )
        if batch is not None and batch < 1:
            raise VizslaError(f"a batch has 1 document or more, not {batch}")
        size = batch or min(part.component.batch_size for part in model.parts)
        cut = None if splitter is None else asdict(splitter)
        return cls(name, model_digest(model), shard.number, shard.count, size, cut)

    @property
    def which(self) -> Shard:
        """The shard that the part holds."""
        return Shard(self.shard, self.shards)

    @property
    def splitter(self) -> Splitter | None:
        """Cuts documents into passages; None if they stay whole."""
        return None if self.passages is None else Splitter.from_data(self.passages)

    def difference(self, other: PartSettings) -> tuple[str, str] | None:
        """The first difference other than the shard number, described for this and for the other; None if equal."""
        if self.digest != other.digest:
            if self.model != other.model:
                return f"the model {self.model}", f"the model {other.model}"
            return f"a model {self.model}", "another one of that name"
        if self.shards != other.shards:
            return f"{self.shards} shards", f"{other.shards}"
        if self.passages != other.passages:
            return self._cut, other._cut
        if self.batch != other.batch:
            return f"batches of {self.batch}", f"{other.batch} (--batch)"
        return None

    @property
    def _cut(self) -> str:
        return "whole documents" if self.splitter is None else str(self.splitter)

    def described(self) -> dict[str, Any]:
        """The settings as plain data."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: object) -> PartSettings:
        """The settings that plain data describe."""
        check_type("the settings", data, "dict")
        made = cls(**fields_from_data(cls, data))
        _ = made.which, made.splitter
        return made


def model_digest(model: Model) -> str:
    """A digest of what a model computes: its description without names, and its files."""
    with TemporaryDirectory(prefix="vizsla-") as folder:
        described = model.describe(Path(folder))
        parts = [{k: v for k, v in part.items() if k != "name"} for part in described.pop("parts")]
        described.pop("name")
        files = {name: arrays.hash_file(file) for name, file in model_files(Path(folder))}
    text = json.dumps([described, parts, files], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class PartFacts:
    """What a part says about itself."""

    settings: PartSettings
    source_documents: int
    """How many documents the whole source has."""
    source_digest: str
    documents: int
    """How many documents the part has."""
    batches: int
    fields: tuple[str, ...] = ()
    """The fields of the model that some document has."""

    def described(self) -> bytes:
        """The facts as JSON."""
        return json.dumps({"format": FORMAT, **asdict(self)}).encode()

    @classmethod
    def read(cls, data: bytes) -> PartFacts | None:
        """The facts in JSON; None for those of another version."""
        values = parse_settings(data)
        check_type("the file", values, "dict")
        if values.pop("format", None) != FORMAT:
            return None
        settings = PartSettings.from_data(values.pop("settings", None))
        checked = fields_from_data(cls, {**values, "settings": {}}, settings="dict")
        return cls(**{**checked, "settings": settings, "fields": tuple(checked["fields"])})


def write_part(part: Path, facts: PartFacts, tables: Iterable[Any], schemas: list[Any]) -> None:
    """Write a part, atomically."""
    pa = pyarrow()
    base = pa.schema([pa.field(n, pa.int64() if n == "document" else pa.string()) for n in _BASE])
    schema = common_schema(schemas) if schemas else base
    with (
        _replacing(part) as file,
        pa.parquet.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as writer,
    ):
        for table in tables:
            writer.write_table(table.cast(schema), row_group_size=max(len(table), 1))
        writer.add_key_value_metadata({_KEY: facts.described()})


@contextmanager
def _replacing(file: Path) -> Iterator[Path]:
    """A context with a file to write, which gets its name at the end."""
    new = file.with_name(file.name + ".new")
    try:
        yield new
        with new.open("rb") as stream:
            os.fsync(stream.fileno())
        new.replace(file)
        arrays.sync_folder(file.parent)
    except OSError as e:
        raise VizslaError(
            f"{file}: this file cannot be written ({e.strerror or e}); run the same command again to resume, once it "
            "can be"
        ) from None
    finally:
        new.unlink(missing_ok=True)


class FinishedPart:
    """A finished part that can be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self.reading() as parquet:
            self._metadata = parquet.read_metadata(path)
            stored = (self._metadata.metadata or {}).get(_KEY)
            facts = None if stored is None else PartFacts.read(stored)
        if stored is None:
            raise InputError("this Parquet file is not a part; vizsla encode writes parts", file=str(path))
        if facts is None:
            raise InputError("another version of Vizsla wrote this part; encode it again", file=str(path))
        self.facts = facts
        self.settings = facts.settings
        if facts.batches != self._metadata.num_row_groups:
            raise InputError("this part was changed after it was written; encode it again", file=str(path))

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """A context with pyarrow's reader of Parquet; errors of a damaged file become one sentence."""
        parquet = pyarrow().parquet
        try:
            yield parquet
        except (VizslaError, MemoryError) as e:
            if isinstance(e, InputError | MemoryError):
                raise
            raise InputError(f"this part is damaged ({e})", file=str(self.path)) from None
        except Exception as e:
            detail = " ".join(str(e).split())[:200]
            raise InputError(f"this file is damaged or not a part ({detail})", file=str(self.path)) from None

    @property
    def rows(self) -> int:
        """How many documents or passages it has."""
        return int(self._metadata.num_rows)

    def batch_rows(self, batch: int) -> int:
        """How many documents or passages a batch of this part has."""
        return int(self._metadata.row_group(batch).num_rows)

    def table(self, batch: int, columns: list[str] | None = None) -> Any:
        """The table of a batch of this part, or some of its columns."""
        options = {"metadata": self._metadata, "page_checksum_verification": True}
        with self.reading() as parquet, parquet.ParquetFile(self.path, **options) as file:
            return file.read_row_group(batch, columns=columns)
