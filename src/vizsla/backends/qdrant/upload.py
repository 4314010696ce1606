"""Upload parts to a cluster: fill a new generation of a collection beside the old one, then replace it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from vizsla.backends.qdrant.connection import Address, Connection, bodies, upsert
from vizsla.backends.qdrant.filling import (
    REWEIGHING,
    Filling,
    FillingRecord,
    Pieces,
    Progress,
    read_record,
)
from vizsla.backends.qdrant.generations import (
    Generations,
    begin_generation,
    check_alias,
    drop_others,
    find_generations,
    generation_status,
    swap,
    take_over,
    version_of,
)
from vizsla.backends.qdrant.layout import FORMAT, check_storable, terms_of
from vizsla.backends.qdrant.lock import DEFAULT_TIMEOUT, WriteLock
from vizsla.backends.qdrant.model_files import DescribedModel
from vizsla.backends.qdrant.points import BatchNumbers, PointEncoder
from vizsla.backends.qdrant.state import (
    BUILDING,
    READY,
    CollectionState,
    NamespaceState,
    read_state,
    with_fitted_weights,
)
from vizsla.backends.qdrant.terms import BLOCK, BLOCK_BATCH, TermBlocks, TermEntry, TermNumbers, block_point, numbered
from vizsla.errors import CollectionError, InputError, VizslaError
from vizsla.index.parts.part_set import PartSet
from vizsla.index.parts.tables import pyarrow
from vizsla.index.writing.term_numbers import MAX_TERMS
from vizsla.models import SAMPLE, CountedStatistics, Model, SparseComponent
from vizsla.plain_data import parse_json
from vizsla.runs.retriever import check_count

_TEXTS = 100_000  # terms that are held as texts at once
_MERGED = 2_000_000  # counts that are gathered before they are added up


@dataclass
class UploadReport:
    """What an upload has done."""

    base: str
    """The collection that was filled."""
    documents: int
    resumed: bool = False
    """Whether it continued an interrupted upload."""
    was_there: bool = False
    """Whether the same parts had been uploaded before, so that there was nothing to do."""
    replaced: str | None = None
    """The collection that the name pointed to before."""
    dropped: tuple[str, ...] = ()
    """The generations that were removed."""


@dataclass(frozen=True)
class UploadOptions:
    """How parts are uploaded.

    `shards` and `replicas`: of the new collection, by default as the servers are set up. `workers`: how many processes
    write. `drop_old`: remove the generations before when the new one is there. `force`: replace a collection whose
    documents were changed since the upload began. `timeout`: how many seconds to wait for another writer.
    """

    shards: int | None = None
    replicas: int | None = None
    workers: int = 1
    drop_old: bool = False
    force: bool = False
    timeout: float = DEFAULT_TIMEOUT


def upload_parts(
    parts: str | Path | PartSet,
    address: str | Address,
    model: str | Model | None = None,
    options: UploadOptions | None = None,
    *,
    connection: Connection | None = None,
    progress: Progress | None = None,
) -> UploadReport:
    """Fill a collection from all parts of a source; the result equals a collection to which they were added.

    The existing collection of that name is searched until all documents are uploaded; then the new one replaces it. The
    old one is kept. The same call continues an interrupted upload. `model`: the folder of the parts' model, if it
    cannot be opened by the name in the parts.
    """
    where = Address.parse(address) if isinstance(address, str) else address
    chosen = options or UploadOptions()
    check_count(chosen.workers, "workers, the number of processes,")
    found = parts if isinstance(parts, PartSet) else PartSet(parts)
    if found.settings.splitter is not None:
        raise VizslaError(
            f"{found.folder}: these documents are split into passages, but a collection in Qdrant has whole documents; "
            "encode them without --passages, or index them with vizsla index --from"
        )
    opened = found.model(model)
    check_storable(opened)
    connected = connection or Connection(where.servers)
    try:
        return _Upload(connected, where.name, found, opened, chosen).run(progress)
    finally:
        if connection is None:
            connected.close()


def sample_of(parts: PartSet) -> list[dict[str, Any]]:
    """The fields of the first documents, which the weights of a sum are fitted to; an index takes the same ones."""
    sample: list[dict[str, Any]] = []
    for batch in range(len(parts.batch_rows())):
        if len(sample) == SAMPLE:
            break
        texts = parts.table(batch, ["fields"])["fields"].to_pylist()
        sample += [parse_json(text or "{}") for text in islice(texts, SAMPLE - len(sample))]
    return sample


def source_digest(parts: PartSet) -> str:
    """A digest of everything that determines the points: the documents, and how they were encoded."""
    text = json.dumps([parts.source_digest, parts.settings.digest, parts.settings.batch, FORMAT])
    return hashlib.sha256(text.encode()).hexdigest()


def is_reweighing(record: FillingRecord) -> bool:
    """Whether a generation was filled from the one before, so that it can be rebuilt."""
    return record.source.startswith(REWEIGHING)


class _Upload:
    """One upload: finds or makes the generation to fill, fills it, and swaps."""

    def __init__(self, connection: Connection, name: str, parts: PartSet, model: Model, options: UploadOptions) -> None:
        self._connection = connection
        self._name = name
        self._parts = parts
        self._model = model
        self._options = options
        self._source = source_digest(parts)

    def run(self, progress: Progress | None) -> UploadReport:
        generations = find_generations(self._connection, self._name)
        check_alias(self._connection, generations)
        filled = self._filled_before(generations)
        if filled is None:
            report = self._fill(generations, progress)
        else:
            report = UploadReport(filled, self._parts.rows, was_there=True)
            if filled != generations.live:  # it was stopped just before the swap
                report.replaced = generations.live
                take_over(self._connection, self._name, filled, generations.live, None)
        if self._options.drop_old:
            report.dropped = tuple(drop_others(self._connection, self._name))
        return report

    def _filled_before(self, generations: Generations) -> str | None:
        """The unchanged generation that was filled from these parts: the live one, or a finished one not yet live."""
        live = generations.live
        for base in (*([live] if live else []), *reversed(generations.others)):
            if generation_status(self._connection, base) != READY:
                continue
            record = read_record(self._connection, base)
            if record is None or record.source != self._source or read_state(self._connection, base).generation != 1:
                continue
            if base == live or self._options.force or record.replaces == self._version(live):
                return base
        return None

    def _fill(self, generations: Generations, progress: Progress | None) -> UploadReport:
        counts = count_parts(self._parts, self._model)
        fresh = FillingRecord(self._source, self._version(generations.live))
        layout = {"shards": self._options.shards, "replicas": self._options.replicas}
        base, resumed = begin_generation(self._connection, self._name, self._model, fresh, is_reweighing, **layout)
        live = None if generations.live == base else generations.live
        report = UploadReport(base, counts.documents, resumed=resumed, replaced=live)
        if generations.live is None:  # so that opening it says "not finished" instead of "not found"
            swap(self._connection, self._name, base)
        with WriteLock(self._connection, base, self._options.timeout) as lock, ExitStack() as stack:
            record, state = read_record(self._connection, base), lock.state()
            if record is None or state.status != BUILDING:
                raise CollectionError(f"the collection {base!r} was finished by another upload meanwhile")
            described = stack.enter_context(DescribedModel(self._model))
            folder = stack.enter_context(TemporaryDirectory(prefix="vizsla-"))
            pieces = PartPieces(self._connection, base, self._parts.folder, described, counts, Path(folder))
            Filling(pieces, record, lock, self._options.workers).run(progress)
            sample = sample_of(self._parts) if self._model.needs_fit else []
            lock.release(with_fitted_weights(finished_state(state, counts, pieces.blocks), self._model, sample))
        take_over(self._connection, self._name, base, live, None if self._options.force else record.replaces)
        return report

    def _version(self, live: str | None) -> str:
        """The version of the live generation, which changes with every commit."""
        return "" if live is None else version_of(read_state(self._connection, live))


def finished_state(state: CollectionState, counts: PartCounts, blocks: TermBlocks) -> CollectionState:
    """The state of a collection whose documents are all there."""
    spaces = {
        name: NamespaceState(c.documents, c.total_length, c.longest, c.documents, c.total_length)
        for name, c in counts.namespaces.items()
    }
    return replace(
        state, status=READY, generation=1, namespaces=spaces, documents=counts.documents,
        next_number=sum(counts.rows), next_term=blocks.end, term_blocks=blocks,
    )  # fmt: skip


class PartPieces(Pieces):
    """The terms and documents of parts. All terms lie in blocks."""

    def __init__(
        self,
        connection: Connection,
        base: str,
        parts: Path,
        model: DescribedModel,
        counts: PartCounts,
        folder: Path,
    ) -> None:
        """`folder`: for a file with all terms, which every process maps into its memory."""
        self.connection = connection
        self.base = base
        self._parts_folder = parts
        self._description, self._files = model.description, model.folder
        self._rows = counts.rows
        self._starts = [0, *accumulate(counts.rows)]
        self._statistics: dict[str, CountedStatistics] = {n: c.statistics for n, c in counts.namespaces.items()}
        self._first_terms = dict(zip(counts.namespaces, accumulate(_sizes(counts), initial=0), strict=False))
        self._term_file = folder / "terms.arrow"
        self.blocks = _write_terms(counts, self._term_file)

    def open(self) -> None:
        pa = pyarrow()
        self._parts = PartSet(self._parts_folder)
        self._model = Model.from_description(self._description, self._files)
        self._encoder = PointEncoder(self._model, self._statistics)
        with pa.memory_map(str(self._term_file)) as source, pa.ipc.open_file(source) as file:
            self._table = file.read_all()
        ends = [*list(self._first_terms.values())[1:], self.blocks.terms]
        bounds = zip(self._first_terms.items(), ends, strict=True)
        terms = self._table["term"].combine_chunks()
        self._places = {name: TermNumbers(terms.slice(first, end - first)) for (name, first), end in bounds}
        self._numbers = self._table["number"].to_numpy()
        self._order = np.lexsort((self._numbers, self._numbers % max(self.blocks.count, 1)))

    def expected(self) -> list[int]:
        return self._rows

    def numbers(self, piece: int) -> range:
        return range(self._starts[piece], self._starts[piece + 1])

    def term_pieces(self) -> list[range]:
        count = self.blocks.count
        return [range(i, min(i + BLOCK_BATCH, count)) for i in range(0, count, BLOCK_BATCH)]

    def write_terms(self, piece: int) -> None:
        some = self.term_pieces()[piece]
        starts = np.searchsorted(self._numbers[self._order] % self.blocks.count, [some.start, some.stop])
        rows = self._table.take(self._order[slice(*starts)]).to_pylist()
        by_block: dict[int, list[TermEntry]] = {block: [] for block in some}
        for row in rows:
            by_block[row["number"] % self.blocks.count].append(TermEntry(**row))
        points = (block_point(block, entries) for block, entries in by_block.items())
        self.connection.send(upsert, terms_of(self.base), bodies(points))

    def write_points(self, piece: int) -> None:
        batch = self._parts.batch(piece, self._parts.reader(self._model, 0))
        numbers = BatchNumbers(self._term_numbers, self._model.namespaces).of(batch)
        self.send(self._encoder.points(batch, self._starts[piece], numbers))

    def _term_numbers(self, namespace: str, terms: Sequence[str]) -> np.ndarray:
        """The numbers of terms; -1 for those that no document has, as in the vocabulary of a network."""
        places = self._places[namespace].of(terms)
        if not len(self._numbers):
            return places
        return np.where(places < 0, -1, self._numbers[places + self._first_terms[namespace]])


def _sizes(counts: PartCounts) -> list[int]:
    return [len(c.terms) for c in counts.namespaces.values()]


def _write_terms(counts: PartCounts, file: Path) -> TermBlocks:
    """Write all terms with their numbers to a file, in the order of namespaces; returns the blocks they lie in."""
    pa = pyarrow()
    total = sum(_sizes(counts))
    count = -(-total // BLOCK)
    blocks = TermBlocks(count)
    hashes = (blocks.block_of(name, term) for name, c in counts.namespaces.items() for term in _texts(c.terms))
    numbers = numbered(np.fromiter(hashes, np.int64, total), count)
    end = int(numbers.max(initial=-1)) + 1
    if end > MAX_TERMS:
        raise VizslaError(f"the collection would have more than {MAX_TERMS:,} terms, which is the maximum")
    schema = pa.schema(
        [
            ("namespace", pa.string()),
            ("term", pa.string()),
            ("number", pa.int64()),
            ("documents", pa.int64()),
            ("occurrences", pa.float64()),
        ]
    )
    with pa.ipc.new_file(str(file), schema) as writer:
        first = 0
        for name, c in counts.namespaces.items():
            own = numbers[first : first + len(c.terms)]
            first += len(own)
            columns = [pa.array([name] * len(own), pa.string()), c.terms, own, c.frequencies, c.occurrences]
            writer.write_table(pa.table(columns, schema=schema))
    return TermBlocks(count, end, total)


def _texts(terms: Any) -> Iterator[str]:
    """The texts of an Arrow array; a few of them are in memory at once."""
    for first in range(0, len(terms), _TEXTS):
        yield from terms.slice(first, _TEXTS).to_pylist()


# Counting


@dataclass(frozen=True, eq=False)
class NamespaceCounts:
    """The documents of one namespace, counted."""

    documents: int
    """The number of documents with a length above 0."""
    total_length: int
    longest: int
    terms: Any
    """An Arrow array of all terms, sorted by their bytes; empty for vectors."""
    frequencies: np.ndarray
    """In how many documents each term is."""
    occurrences: np.ndarray
    """How often it occurs in them, or the sum of its weights."""

    @property
    def statistics(self) -> CountedStatistics:
        """What document weights depend on: lengths, without the terms."""
        return CountedStatistics(self.documents, self.total_length, self.longest, {})


@dataclass(frozen=True, eq=False)
class PartCounts:
    """What is known of all parts before the first document is written elsewhere."""

    rows: list[int]
    """How many documents each batch has, in the order of the source."""
    namespaces: dict[str, NamespaceCounts]

    @property
    def documents(self) -> int:
        """How many documents there are."""
        return sum(self.rows)


def count_parts(parts: PartSet, model: Model) -> PartCounts:
    """Count the documents of all parts; an id that comes twice is refused, since all are written as they are."""
    rows = parts.batch_rows()
    _check_ids(parts, rows)
    counters = {c.namespace: _NamespaceCounter(c.namespace, isinstance(c, SparseComponent)) for _, c in model.parts}
    columns = [name for counter in counters.values() for name in counter.columns]
    for batch in range(len(rows)):
        table = parts.table(batch, columns)
        for counter in counters.values():
            counter.add(table)
    return PartCounts(rows, {name: counter.counts() for name, counter in counters.items()})


def _check_ids(parts: PartSet, rows: list[int]) -> None:
    """Refuse an id that comes twice: documents with equal hashes are looked for first, since ids take much memory."""
    hashes = np.zeros(sum(rows), np.int64)
    place = 0
    for batch, size in enumerate(rows):
        hashes[place : place + size] = [hash(i) for i in _ids(parts, batch)]
        place += size
    ordered = np.sort(hashes)
    suspects = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
    seen = set[str]()
    for batch in range(len(rows)) if suspects else ():
        for doc_id in _ids(parts, batch):
            if hash(doc_id) in suspects:
                if doc_id in seen:
                    twice = f"the id {doc_id!r} appears a second time; every document needs its own"
                    raise InputError(twice, file=str(parts.path(batch)))
                seen.add(doc_id)


def _ids(parts: PartSet, batch: int) -> list[str]:
    ids: list[str] = parts.table(batch, ["id"])["id"].to_pylist()
    return ids


@dataclass
class _NamespaceCounter:
    """Counts one namespace, table by table."""

    namespace: str
    sparse: bool
    _lengths: tuple[int, int, int] = (0, 0, 0)
    _counted: list[Any] = field(default_factory=list)
    _gathered: int = 0

    @property
    def columns(self) -> list[str]:
        """The columns of a part that are counted."""
        names = ["length", "terms", "values"] if self.sparse else ["length"]
        return [f"{self.namespace}.{name}" for name in names]

    def add(self, table: Any) -> None:
        """Count the rows of a table."""
        documents, total, longest = self._lengths
        lengths = table[f"{self.namespace}.length"].to_numpy()
        counted = int(np.count_nonzero(lengths)), int(lengths.sum(dtype=np.int64)), int(lengths.max(initial=0))
        self._lengths = documents + counted[0], total + counted[1], max(longest, counted[2])
        if not self.sparse:
            return
        pa = pyarrow()
        terms = table[f"{self.namespace}.terms"].combine_chunks().flatten().dictionary_encode()
        values = table[f"{self.namespace}.values"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        numbers, size = terms.indices.to_numpy(zero_copy_only=False), len(terms.dictionary)
        frequencies = np.bincount(numbers, minlength=size)
        occurrences = np.bincount(numbers, values.astype(np.float64), minlength=size).astype(np.float64)  # also of none
        columns = {"term": terms.dictionary, "documents": frequencies, "occurrences": occurrences}
        self._counted.append(pa.table(columns))
        self._gathered += size
        if self._gathered > _MERGED:
            self._merge()

    def _merge(self) -> Any:
        """Add up what was gathered."""
        pa = pyarrow()
        sums = [("documents", "sum"), ("occurrences", "sum")]
        merged = pa.concat_tables(self._counted).group_by("term").aggregate(sums) if self._counted else None
        if merged is not None:
            merged = merged.select(["term", "documents_sum", "occurrences_sum"])
            self._counted, self._gathered = [merged.rename_columns(["term", "documents", "occurrences"])], 0
        return self._counted[0] if self._counted else None

    def counts(self) -> NamespaceCounts:
        """What was counted, its terms sorted."""
        pa = pyarrow()
        merged = self._merge()
        if merged is None:
            return NamespaceCounts(*self._lengths, pa.array([], pa.string()), np.zeros(0, np.int64), np.zeros(0))
        merged = merged.sort_by("term")
        frequencies, occurrences = (merged[name].to_numpy() for name in ("documents", "occurrences"))
        return NamespaceCounts(*self._lengths, merged["term"].combine_chunks(), frequencies, occurrences)
