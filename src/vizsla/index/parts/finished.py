"""A finished part: a Parquet file with a row group for each batch, and beside it the counts of its terms."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.described import check_type, fields_from_data
from vizsla.errors import InputError, VizslaError
from vizsla.index.parts.settings import FORMAT, PartSettings
from vizsla.index.parts.tables import common_schema, pyarrow
from vizsla.index.storage import arrays
from vizsla.models import CountedStatistics
from vizsla.plain_data import parse_settings

ENDING = ".parquet"
TERMS_ENDING = ".terms.parquet"
_KEY = b"vizsla.part"
_BASE = ("document", "id", "metadata", "fields")


def terms_file(part: Path) -> Path:
    """The file with the counts of a part's terms."""
    return part.with_name(part.name.removesuffix(ENDING) + TERMS_ENDING)


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
    lengths: Mapping[str, list[int]] = field(default_factory=dict)
    """By namespace: documents of any length, the sum of lengths, the longest."""

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
        checked = fields_from_data(cls, {**values, "settings": {}}, settings="dict", lengths="dict")
        return cls(**{**checked, "settings": settings, "fields": tuple(checked["fields"])})


class TermCounter:
    """Counts in how many documents each term occurs, and how long documents are."""

    def __init__(self, namespaces: Iterable[str]) -> None:
        self._counts: dict[str, Counter[str]] = {namespace: Counter() for namespace in namespaces}
        self.lengths: dict[str, list[int]] = {namespace: [0, 0, 0] for namespace in self._counts}

    def add(self, table: Any) -> None:
        """Count the rows of a table."""
        for namespace, counts in self._counts.items():
            lengths = table[f"{namespace}.length"].to_numpy()
            known, total, longest = self.lengths[namespace]
            self.lengths[namespace] = [
                known + int(np.count_nonzero(lengths)),
                total + int(lengths.sum(dtype=np.int64)),
                max(longest, int(lengths.max(initial=0))),
            ]
            if f"{namespace}.terms" in table.column_names:
                terms = table[f"{namespace}.terms"].combine_chunks().flatten().dictionary_encode()
                found = np.bincount(terms.indices.to_numpy(), minlength=len(terms.dictionary))
                counts.update(dict(zip(terms.dictionary.to_pylist(), found.tolist(), strict=True)))

    def table(self) -> Any:
        """The counts as a table, sorted by namespace and term."""
        pa = pyarrow()
        rows = [(n, term, count) for n, counts in self._counts.items() for term, count in sorted(counts.items())]
        columns = tuple(zip(*rows, strict=True)) or ((), (), ())
        schema = pa.schema([("namespace", pa.string()), ("term", pa.string()), ("documents", pa.int64())])
        return pa.table(list(columns), schema=schema)


def write_part(
    part: Path, facts: PartFacts, namespaces: Iterable[str], tables: Iterable[Any], schemas: list[Any]
) -> None:
    """Write the term counts of a part and then the part itself, atomically; lengths are counted here."""
    pa = pyarrow()
    counter = TermCounter(namespaces)
    base = pa.schema([pa.field(n, pa.int64() if n == "document" else pa.string()) for n in _BASE])
    schema = common_schema(schemas) if schemas else base
    with _replacing(part) as file:
        with pa.parquet.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as writer:
            for table in tables:
                counter.add(table)
                writer.write_table(table.cast(schema), row_group_size=max(len(table), 1))
            writer.add_key_value_metadata({_KEY: replace(facts, lengths=counter.lengths).described()})
        with _replacing(terms_file(part)) as terms:
            pa.parquet.write_table(counter.table(), terms, compression="zstd")


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

    def statistics(self) -> dict[str, CountedStatistics]:
        """The statistics of its documents by namespace."""
        file = terms_file(self.path)
        if not file.is_file():
            raise InputError("this file is missing; encode the part again", file=str(file))
        counts: dict[str, dict[str, int]] = {namespace: {} for namespace in self.facts.lengths}
        with self.reading() as parquet:
            table = parquet.read_table(file)
            columns = (table[n].to_pylist() for n in ("namespace", "term", "documents"))
            for namespace, term, count in zip(*columns, strict=True):
                counts[namespace][term] = count
        return {n: CountedStatistics(a, b, c, counts[n]) for n, (a, b, c) in self.facts.lengths.items()}
