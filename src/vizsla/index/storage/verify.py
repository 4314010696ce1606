"""Verification of an index: every file against its hash, and the files against each other."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.engine import DamagedSegmentError, PostingLists, Segment, live_frequencies
from vizsla.engine.blocks import RANGE_SIZE
from vizsla.errors import CollectionError, VizslaError
from vizsla.index.storage import (
    arrays,
    checksums,
    database,
    document_ids,
    forking,
    live_documents,
    segment_files,
)
from vizsla.index.storage.folder import absolute, check_model_folder, model_files, recover
from vizsla.index.storage.live_documents import LiveDocuments
from vizsla.index.storage.stored_ids import DamagedTextsError, StoredIds, StoredTexts
from vizsla.index.storage.terms import reading_terms, stored_terms
from vizsla.models import Model
from vizsla.plain_data import parse_json

ATTEMPTS = 5  # while a writer commits again and again


def verify(path: str | Path) -> list[str]:
    """A sentence for each problem of an index; an empty list if it is sound.

    Readers and writers may work at the same time, since everything is read through SQLite or from files that never
    change. The rows of index.db are compared with the checksums of the last commit.
    """
    path = absolute(path)
    recover(path)
    for _ in range(ATTEMPTS):
        problems, generation = _problems(path)
        # A commit in the meantime may have removed files; then the new commit is verified.
        if not problems or generation is None or generation == _generation(path):
            break
    return problems


def _problems(path: Path) -> tuple[list[str], int | None]:
    """The problems, and the generation that was verified."""
    problems: list[str] = []
    generation = None
    try:
        db = database.connect(path, write=False)
    except CollectionError as e:
        return [str(e)], None
    try:
        with database.using_sqlite(path):
            db.execute("BEGIN")
            meta = database.read_meta(db, path)
            generation = meta["generation"]
            for check in (_check_database, _check_model, _check_segments):
                problems += check(path, db, meta)
    except VizslaError as e:
        problems.append(str(e))
    except OSError as e:
        problems.append(f"{path}: cannot be read ({e.filename}: {e.strerror})")
    finally:
        with forking.inside_sqlite:
            db.close()
    return problems, generation


def _generation(path: Path) -> int | None:
    try:
        db = database.connect(path, write=False)
    except CollectionError:
        return None
    with database.using_sqlite(path), closing(db):
        generation: int = database.get_meta(db, "generation")
        return generation


def _check_database(path: Path, db: sqlite3.Connection, meta: dict[str, Any]) -> Iterator[str]:
    for (finding,) in db.execute("PRAGMA integrity_check(5)").fetchall():
        if finding != "ok":
            yield f"{path}: {database.FILE} is damaged ({finding})"
    generation = meta["generation"]
    expected = meta[checksums.KEY]
    with reading_terms(path):
        actual = checksums.compute_checksums(db, generation, stored_terms(db), expected["next_term"])
    for table in checksums.TABLES:
        if actual[table] != expected[table]:
            yield f"{path}: {database.FILE} is damaged: {table} is not what was written"
    for column, table in (("metadata", "documents"), ("fields", "contents")):
        rows = db.execute(f"SELECT number, {column} FROM {table} WHERE number < ?", (meta["next_number"],))
        for number, text in rows:
            try:
                is_valid = isinstance(parse_json(text), dict)
            except (ValueError, TypeError):
                is_valid = False
            if not is_valid:
                yield f"{path}: document number {number} is damaged in {database.FILE}"
    spaces, terms = len(meta["model"].get("parts") or ()), meta["next_term"]
    with reading_terms(path):
        count = sum(
            type(number) is not int or not 0 <= number < terms or namespace not in range(spaces)
            for namespace, _, number in stored_terms(db)
        )
    if count:
        yield f"{path}: {count:,} terms have an invalid number or namespace"


def _check_model(path: Path, db: sqlite3.Connection, meta: dict[str, Any]) -> Iterator[str]:  # noqa: ARG001 (one shape)
    check_model_folder(path / "model")
    expected = meta["model_files"]
    for name, sha256 in expected.items():
        file = path / "model" / name
        if not file.is_file():
            yield f"{path}: model/{name} is missing"
        elif arrays.hash_file(file) != sha256:
            yield f"{path}: model/{name} is damaged: its content is not what was written"
    for name, _ in model_files(path / "model"):
        if name not in expected:
            yield f"{path}: model/{name} does not belong here"


def _check_segments(path: Path, db: sqlite3.Connection, meta: dict[str, Any]) -> Iterator[str]:
    generation, terms = meta["generation"], meta["next_term"]
    segments = database.segment_rows(db, path, generation)
    for name in segment_files.foreign_files(
        path, {name: {f["file"] for f in facts.values()} for name, facts, _ in segments}
    ):
        yield f"{path}: {name} does not belong here"
    namespaces = Model.from_description(meta["model"], path / "model").namespaces
    numbers: list[np.ndarray] = []
    ids: list[StoredTexts] = []
    complete = True
    for name, facts, statistics in segments:
        broken = list(_check_files(path, name, facts))
        yield from broken
        if broken:
            complete = False
            continue
        try:
            segment = segment_files.read_segment(path, name, facts)
            living_files = LiveDocuments(path, name, facts, statistics.get(live_documents.LISTED, ()))
            if not living_files.fits(segment):
                raise CollectionError(f"{path}: the arrays of segment {name} contradict each other")
            alive = living_files.alive
            contradictions = list(_check_arrays(path, name, segment, len(namespaces), terms))
            if contradictions:
                complete = False
                yield from contradictions
                continue
            yield from _check_dense(path, name, segment)
            yield from _check_matches(path, name, segment)
            yield from _check_ngrams(path, name, segment)
            stored = _read_ids(path, name, segment, facts)
            yield from _check_statistics(path, name, segment, living_files, statistics, namespaces)
            rows = np.arange(len(segment)) if alive is None else np.flatnonzero(alive)
            numbers.append(segment.numbers[rows])
            ids.append(stored.copied(rows))
        except CollectionError as e:
            complete = False
            yield str(e)
    if complete:
        yield from _check_documents(path, db, meta, numbers)
        yield from _check_ids(path, StoredTexts.concatenated(ids))


def _check_files(path: Path, name: str, facts: dict[str, arrays.Facts]) -> Iterator[str]:
    for entry in facts.values():
        file = arrays.segment_folder(path, name) / entry["file"]
        try:
            if file.stat(follow_symlinks=False).st_size != entry["bytes"] or arrays.hash_file(file) != entry["sha256"]:
                yield f"{path}: {name}/{entry['file']} is damaged: its content is not what was written"
        except FileNotFoundError:
            yield f"{path}: {name}/{entry['file']} is missing"
        except OSError as e:
            yield f"{path}: {name}/{entry['file']} cannot be read ({e.strerror})"


def _check_arrays(path: Path, name: str, s: Segment, namespaces: int, terms: int) -> Iterator[str]:
    """Check that the arrays of a segment fit together."""
    sound = s.fits() and len(s.sizes) == namespaces and bool((np.diff(s.numbers.astype(np.int64)) > 0).all())
    if not sound or not all(_are_sound(lists, len(s), terms) for lists in (s.small, s.large)):
        yield f"{path}: the arrays of segment {name} contradict each other"


def _check_dense(path: Path, name: str, s: Segment) -> Iterator[str]:
    """Check that vectors are finite, that token vectors lie where they should, and the size of ANN indexes."""
    for space, tokens in s.tokens.items():
        counts = np.diff(np.asarray(tokens.starts, np.int64))
        if (counts < 0).any() or ((counts > 0) != (s.sizes[space] > 0)).any():
            yield f"{path}: the token vectors of segment {name} are not those of its documents"
        elif tokens.lists is not None and not tokens.lists.are_those_of(tokens.starts):
            yield f"{path}: the centroid lists of segment {name} are not those of its token vectors"
    for rows in (*s.dense.values(), *(tokens.vectors for tokens in s.tokens.values())):
        chunks = (rows[a : a + RANGE_SIZE] for a in range(0, len(rows), RANGE_SIZE))
        try:
            if not all(np.isfinite(chunk).all() for chunk in chunks):
                yield f"{path}: the vectors of segment {name} hold numbers that are NaN or infinite"
        except DamagedSegmentError:
            yield f"{path}: the token vectors of segment {name} have centroids that are not there"
    if s.ann and find_spec("faiss") is not None:
        for ann_index in s.ann.values():
            if ann_index.trusted and ann_index.open().ntotal != len(s):
                yield f"{path}: the ANN index of segment {name} has another number of vectors"


def _check_matches(path: Path, name: str, s: Segment) -> Iterator[str]:
    """Check that posting lists with vectors are those of the documents, and that their vectors are finite."""
    for space, lists in s.matches.items():
        has_token = np.zeros(len(s), np.bool_)
        has_token[lists.documents if (sound := lists.is_sound(len(s))) else 0] = True
        if not sound or (has_token != (s.sizes[space] > 0)).any():
            yield f"{path}: the posting lists with vectors of segment {name} are not those of its documents"


def _check_ngrams(path: Path, name: str, s: Segment) -> Iterator[str]:
    """Check that suffix arrays are those of the token sequences."""
    for rows in s.ngrams.values():
        if rows.suffixes is None or not rows.is_sound():
            yield f"{path}: the suffix array of segment {name} is not that of its documents"


def _read_ids(path: Path, name: str, s: Segment, facts: dict[str, arrays.Facts]) -> StoredIds:
    """The ids of the documents of a segment."""
    damage = CollectionError(f"{path}: the ids of segment {name} are not those of its documents")
    ids = document_ids.read_ids(path, name, facts)
    try:
        if len(ids) != len(s) or not ids.is_sound():
            raise damage
        ids.at(np.arange(len(ids)))
    except DamagedTextsError:
        raise damage from None
    return ids


def _check_ids(path: Path, living: StoredTexts) -> Iterator[str]:
    """Check that every live document has an id of its own."""
    if not living.sizes.all() or StoredIds.of(living).overlap():
        yield f"{path}: an id is empty, or stands for more than one document"


def _are_sound(lists: PostingLists, documents: int, terms: int) -> bool:
    """Whether every posting list has documents, each once and in order, and values above 0."""
    try:
        numbers = lists.terms
        pointers, postings, values = lists.unpack(documents)
    except DamagedSegmentError:
        return False
    ascending = np.diff(postings.astype(np.int64)) > 0
    ascending[pointers[1:-1] - 1] = True  # from one list to the next
    return bool(
        (np.diff(numbers.astype(np.int64)) > 0).all()
        and (len(numbers) == 0 or int(numbers[-1]) < terms)
        and (np.diff(pointers) > 0).all()
        and ascending.all()
        and (values > 0).all()
        and (len(lists.maxima) == 0 or (lists.maxima == np.maximum.reduceat(values, pointers[:-1])).all())
    )


def _check_statistics(
    path: Path,
    name: str,
    segment: Segment,
    stored: LiveDocuments,
    statistics: dict[str, Any],
    namespaces: tuple[str, ...],
) -> Iterator[str]:
    counted = {key: value for key, value in statistics.items() if key != live_documents.LISTED}
    if counted != database.count_statistics(namespaces, segment.sizes, stored.alive):
        yield f"{path}: the statistics of segment {name} are not those of its documents"
    before = stored.files.get(live_documents.ALIVE)
    if before is not None and not before[stored.listed].all():
        yield f"{path}: segment {name} lists documents as deleted that had been deleted before"
    if before is None:
        return
    try:
        frequencies = live_frequencies(segment, before)
    except DamagedSegmentError:
        yield f"{path}: the arrays of segment {name} contradict each other"
        return
    if not np.array_equal(frequencies, stored.files[live_documents.FREQUENCIES]):
        yield f"{path}: the term frequencies of segment {name} are not those of its live documents"


def _check_documents(
    path: Path, db: sqlite3.Connection, meta: dict[str, Any], living: list[np.ndarray]
) -> Iterator[str]:
    """Check that the stored documents are the indexed ones, and that none is both stored and deleted."""

    def numbers(table: str, condition: str, value: int) -> np.ndarray:
        rows = db.execute(f"SELECT number FROM {table} WHERE {condition} ORDER BY number", (value,))
        return np.array([number for (number,) in rows], np.int64)

    rows, texts = (numbers(table, "number < ?", meta["next_number"]) for table in ("documents", "contents"))
    indexed = np.sort(np.concatenate([*living, np.zeros(0, np.int64)]))
    unit = "passages" if meta["passages"] else "documents"
    if meta["stored"] and not np.array_equal(texts, indexed):
        yield f"{path}: {len(texts):,} {unit} are stored and {len(indexed):,} indexed, or they are not the same"
    if not np.isin(rows, indexed).all():
        yield f"{path}: metadata is stored for {unit} that are not indexed"
    both = np.intersect1d(rows, numbers("deletions", "generation <= ?", meta["generation"]))
    if len(both):
        yield f"{path}: {len(both):,} documents are both stored and deleted"
