"""All parts of a source: checked to belong together, and put together to an index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vizsla.datasets import Origin
from vizsla.errors import InputError, VizslaError
from vizsla.index.index import Index
from vizsla.index.parts.encoding import UNFINISHED
from vizsla.index.parts.part import ENDING, FinishedPart, model_digest
from vizsla.index.parts.tables import BatchReader
from vizsla.index.storage.folder import replace_index
from vizsla.index.writing.analysis import BYTES_PER_TERM, AnalysedBatch
from vizsla.index.writing.transaction import Added
from vizsla.index.writing.writer import DEFAULT_MEMORY
from vizsla.models import Model, check_model, parse_model

Progress = Callable[[int, int], None]
"""A callback that gets the number of documents or passages so far, as both arguments."""


class PartSet:
    """All parts of one index, in the order of their shards."""

    def __init__(self, folder: str | Path) -> None:
        """The parts in a folder; parts that do not belong together, or not all of them, are refused."""
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise InputError("this is not a folder of parts", file=str(folder))
        files = sorted(self.folder.iterdir())
        paths = [f for f in files if f.name.endswith(ENDING)]
        unfinished = [f for f in files if f.name.endswith(UNFINISHED) and f.with_suffix("") not in paths]
        if not paths and not unfinished:
            raise InputError("there are no parts in this folder; vizsla encode writes them", file=str(folder))
        found = [FinishedPart(path) for path in paths]
        _check_alike(found)
        by_shard = {part.settings.shard: part for part in found}
        for part in found:
            other = by_shard[part.settings.shard]
            if other is not part:
                raise InputError(
                    f"this is the shard {part.settings.which}, and so is {other.path}", file=str(part.path)
                )
        if unfinished and (not found or len(found) < found[0].settings.shards):
            raise InputError("this part is not finished; run its vizsla encode again", file=str(unfinished[0]))
        self.settings = found[0].settings
        missing = [n for n in range(1, self.settings.shards + 1) if n not in by_shard]
        if missing:
            raise InputError(_missing(missing, self.settings.shards), file=str(folder))
        self._parts = [by_shard[n] for n in range(1, self.settings.shards + 1)]
        _check_source(self._parts)

    @property
    def rows(self) -> int:
        """How many documents or passages there are."""
        return sum(part.rows for part in self._parts)

    def model(self, model: str | Model | None = None) -> Model:
        """The model of the parts, opened by its recorded name or by `model`; a different model is an error."""
        if model is None:
            try:
                chosen = parse_model(self.settings.model)
            except VizslaError as e:
                raise VizslaError(
                    f"{self.folder}: these parts were encoded with the model {self.settings.model}, which cannot be "
                    f"opened here ({e}); name it with --model"
                ) from None
        else:
            chosen = parse_model(model) if isinstance(model, str) else check_model(model)
        if model_digest(chosen) != self.settings.digest:
            raise VizslaError(
                f"{self.folder}: these parts were encoded with {self._named(chosen)}; name the model that they were "
                "encoded with, or encode them again"
            )
        return chosen

    def _named(self, model: Model) -> str:
        if self.settings.model in (model.name, str(model)):
            return f"a model {model.name}, but not with the one of that name here"
        return f"the model {self.settings.model}, not with {model.name}"

    def batches(self, model: Model, max_bytes: int, progress: Progress | None = None) -> Iterator[AnalysedBatch]:
        """The batches in the order of the source, as an analyst gives them; `max_bytes`: for its terms."""
        reader = self.reader(model, max_bytes)
        rows, documents, before = 0, 0, [0] * len(self._parts)
        for number, size in enumerate(self.batch_rows()):
            which = number % len(self._parts)
            batch, first, last = self._read(number, reader)
            if first != documents:
                raise self._changed(number)
            path = str(self.path(number))
            origins: Sequence[Origin] = [Origin(path, before[which] + i + 1) for i in range(len(batch.ids))]
            yield replace(batch, origins=list(origins))
            rows, documents, before[which] = rows + size, last + 1, before[which] + len(batch.ids)
            if progress is not None:
                progress(rows, rows)

    def batch_rows(self) -> list[int]:
        """How many documents or passages each batch has, in the order of the source."""
        count, shards = sum(part.facts.batches for part in self._parts), len(self._parts)
        try:
            return [self._parts[n % shards].batch_rows(n // shards) for n in range(count)]
        except IndexError:  # a part has too few batches for its place among the others
            raise self._changed(count - 1) from None

    def reader(self, model: Model, max_bytes: int) -> BatchReader:
        """Reads batches of these parts; `max_bytes`: for the terms that it remembers from one to the next."""
        return BatchReader(tuple(part.component for part in model.parts), max(max_bytes // BYTES_PER_TERM, 1))

    def table(self, number: int, columns: list[str] | None = None) -> Any:
        """The table of a batch, counted from 0 in the order of the source, or some of its columns."""
        part = self._parts[number % len(self._parts)]
        return part.table(number // len(self._parts), columns)

    def batch(self, number: int, reader: BatchReader) -> AnalysedBatch:
        """A batch, counted from 0 in the order of the source; its documents have no origins."""
        return self._read(number, reader)[0]

    def path(self, number: int) -> Path:
        """The file of a batch."""
        return self._parts[number % len(self._parts)].path

    @property
    def source_digest(self) -> str:
        """A digest of all documents of the source."""
        return self._parts[0].facts.source_digest

    def _read(self, number: int, reader: BatchReader) -> tuple[AnalysedBatch, int, int]:
        """A batch, and the numbers of its first and its last document in the source."""
        part = self._parts[number % len(self._parts)]
        fields = frozenset(name for some in self._parts for name in some.facts.fields)
        table = self.table(number)
        with part.reading():
            first, last = table["document"][0].as_py(), table["document"][-1].as_py()
            batch = reader.read(table, passages=self.settings.splitter is not None, fields=fields)
        return batch, first, last

    def _changed(self, number: int) -> InputError:
        return InputError("this part was changed after it was written; encode it again", file=str(self.path(number)))


def _check_alike(parts: Sequence[FinishedPart]) -> None:
    for part in parts[1:]:
        difference = part.settings.difference(parts[0].settings)
        if difference is not None:
            raise InputError(
                f"this part was encoded with {difference[0]}, and {parts[0].path} with {difference[1]}; all parts must "
                "be encoded in the same way",
                file=str(part.path),
            )


def _check_source(parts: Sequence[FinishedPart]) -> None:
    first = parts[0].facts
    for part in parts[1:]:
        facts = part.facts
        if facts.source_documents != first.source_documents:
            raise InputError(
                f"this part was encoded from a source of {facts.source_documents:,} documents, and {parts[0].path} "
                f"from one of {first.source_documents:,}; all parts must be encoded from the same source",
                file=str(part.path),
            )
        if facts.source_digest != first.source_digest:
            raise InputError(
                f"this part was encoded from other documents, or another order of them, than {parts[0].path}; all "
                "parts must be encoded from the same source",
                file=str(part.path),
            )


def _missing(missing: Sequence[int], shards: int) -> str:
    if len(missing) == 1:
        return f"shard {missing[0]} of {shards} is missing"
    some = ", ".join(map(str, missing[:12])) + (", ..." if len(missing) > 12 else "")
    return f"{len(missing)} of {shards} shards are missing: {some}"


def build_from_parts(
    parts: str | Path | PartSet,
    path: str | Path,
    model: str | Model | None = None,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Added:
    """Build an index from all parts of a source, equal to one built from the documents.

    `model`: the model of the parts, if it cannot be opened by the name that the parts record. `options`: `memory`,
    `store`, `vector_index` and `positions` as for `Index.create`.
    """
    found = parts if isinstance(parts, PartSet) else PartSet(parts)
    chosen = found.model(model)
    memory = options.pop("memory", DEFAULT_MEMORY)
    with (
        replace_index(Path(path), overwrite=overwrite) as building,
        Index.create(building, chosen, memory=memory, passages=found.settings.splitter, **options) as index,
        index.writer() as writer,
    ):
        added = writer.add_analysed(lambda max_bytes: found.batches(chosen, max_bytes, progress))
        writer.commit()
    return added
