"""Is a collection what was written? Every file by its hash, and how the files fit together."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.engine import DamagedSegmentError, DenseKind, Lists, Segment, living_frequencies
from vizsla.engine.lists import WINDOW
from vizsla.errors import CollectionError, VizslaError
from vizsla.index import database, files
from vizsla.models import Model


def verify(path: Path) -> list[str]:
    """A sentence for each thing that is wrong with a collection; none if all is well.

    index.db is compared with its seal where it has one. A writer that was interrupted leaves none; then the
    database is checked for consistency with itself and the segments, which finds less.
    """
    problems = [*_check_seal(path)]
    try:
        db = database.connect(path, write=False)
    except CollectionError as e:
        return [*problems, str(e)]
    try:
        with database.told_plainly(path):
            db.execute("BEGIN")
            return [*problems, *_check_database(path, db), *_check_model(path, db), *_check_segments(path, db)]
    except VizslaError as e:
        return [*problems, str(e)]
    except (ValueError, KeyError, TypeError) as e:  # JSON that is none, or not what it should be
        return [*problems, f"{path}: {database.FILE} is damaged ({type(e).__name__}: {e})"]
    finally:
        db.close()


def _check_seal(path: Path) -> Iterator[str]:
    seal, file = path / database.SEAL, path / database.FILE
    wal = path / (database.FILE + "-wal")
    if not seal.is_file() or not file.is_file() or (wal.is_file() and wal.stat().st_size > 0):
        return
    try:
        facts = json.loads(seal.read_text())
        intact = facts["sha256"] == files.hash_file(file)
    except (ValueError, KeyError, TypeError, OSError):
        yield f"{path}: {database.SEAL} is damaged"
        return
    if not intact:
        yield f"{path}: {database.FILE} is damaged: its content is not what was written"


def _check_database(path: Path, db: sqlite3.Connection) -> Iterator[str]:
    for (finding,) in db.execute("PRAGMA integrity_check(5)").fetchall():
        if finding != "ok":
            yield f"{path}: {database.FILE} is damaged ({finding})"
    generation = database.get_meta(db, "generation")
    stored = "SELECT number, fields, metadata FROM documents LEFT JOIN contents USING (number)"
    if not database.get_meta(db, "stored"):
        stored = "SELECT number, '{}', metadata FROM documents"
    for number, fields, metadata in db.execute(stored):
        try:
            whole = isinstance(json.loads(fields), dict) and isinstance(json.loads(metadata or "{}"), dict)
        except (ValueError, TypeError):
            whole = False
        if not whole:
            yield f"{path}: document number {number} is damaged in {database.FILE}"
    (twice,) = db.execute(
        "SELECT count(*) - count(DISTINCT id) FROM documents WHERE generation <= ?", (generation,)
    ).fetchone()
    if twice:
        yield f"{path}: {twice} ids stand for more than one document"
    (most,) = db.execute("SELECT max(number) FROM terms").fetchone()
    if most is not None and most >= database.get_meta(db, "next_term"):
        yield f"{path}: there are terms beyond the last number given out"


def _check_model(path: Path, db: sqlite3.Connection) -> Iterator[str]:
    expected = database.get_meta(db, "model_files") or {}
    for name, sha256 in expected.items():
        file = path / "model" / name
        if not file.is_file():
            yield f"{path}: model/{name} is missing"
        elif files.hash_file(file) != sha256:
            yield f"{path}: model/{name} is damaged: its content is not what was written"
    for name, _ in files.model_files(path / "model"):
        if name not in expected:
            yield f"{path}: model/{name} does not belong here"


def _check_segments(path: Path, db: sqlite3.Connection) -> Iterator[str]:
    generation = database.get_meta(db, "generation")
    namespaces = Model.from_description(database.get_meta(db, "model"), path / "model").namespaces
    terms = database.get_meta(db, "next_term")
    living: list[np.ndarray] = []
    complete = True
    for name, facts, statistics in database.segment_rows(db, generation):
        broken = list(_check_files(path, name, facts))
        yield from broken
        if broken:
            complete = False
            continue
        try:
            segment = files.read_segment(path, name, facts)
            alive = files.read_array(path, name, facts[files.ALIVE]) if files.ALIVE in facts else None
            yield from _check_arrays(path, name, segment, len(namespaces), terms)
            yield from _check_dense(path, name, segment)
            yield from _check_statistics(path, name, segment, alive, facts, statistics, namespaces)
            living.append(segment.numbers if alive is None else segment.numbers[alive])
        except CollectionError as e:
            complete = False
            yield str(e)
    if complete:
        yield from _check_documents(path, db, generation, living)


def _check_files(path: Path, name: str, facts: dict[str, files.Facts]) -> Iterator[str]:
    missing = [part for part in files.PARTS if part not in facts]
    if missing:
        yield f"{path}: segment {name} has no {missing[0]}"
    for entry in facts.values():
        file = files.segment_folder(path, name) / entry["file"]
        if not file.is_file():
            yield f"{path}: {name}/{entry['file']} is missing"
        elif file.stat().st_size != entry["bytes"] or files.hash_file(file) != entry["sha256"]:
            yield f"{path}: {name}/{entry['file']} is damaged: its content is not what was written"


def _check_arrays(path: Path, name: str, s: Segment, namespaces: int, terms: int) -> Iterator[str]:
    """Whether the arrays of a segment fit together."""
    sound = s.fits() and len(s.sizes) == namespaces and bool((np.diff(s.numbers.astype(np.int64)) > 0).all())
    if not sound or not all(_are_sound(lists, len(s), terms) for lists in (s.small, s.large)):
        yield f"{path}: the arrays of segment {name} contradict each other"


def _check_dense(path: Path, name: str, s: Segment) -> Iterator[str]:
    """Whether dense vectors are numbers, and what was built over them has as many."""
    for rows in s.dense.values():
        blocks = (rows[a : a + WINDOW] for a in range(0, len(rows), WINDOW))
        if not all(np.isfinite(block).all() for block in blocks):
            yield f"{path}: the dense vectors of segment {name} hold numbers that are none"
    if s.near and find_spec("faiss") is not None:
        for structure in s.near.values():
            if structure.opened(DenseKind()).ntotal != len(s):
                yield f"{path}: what was built over the dense vectors of segment {name} has others"


def _are_sound(lists: Lists, documents: int, terms: int) -> bool:
    """Whether every list has documents, each once and in order, and values above 0."""
    try:
        lists.check()
        pointers, found, values = lists.unpack(documents)
    except DamagedSegmentError:
        return False
    ascending = np.diff(found.astype(np.int64)) > 0
    ascending[pointers[1:-1] - 1] = True  # from one list to the next
    return bool(
        (np.diff(lists.terms.astype(np.int64)) > 0).all()
        and (len(lists.terms) == 0 or int(lists.terms[-1]) < terms)
        and (np.diff(pointers) > 0).all()
        and ascending.all()
        and (values > 0).all()
        and (len(lists.tops) == 0 or (lists.tops == np.maximum.reduceat(values, pointers[:-1])).all())
    )


def _check_statistics(
    path: Path,
    name: str,
    segment: Segment,
    alive: np.ndarray | None,
    facts: dict[str, files.Facts],
    statistics: dict[str, Any],
    namespaces: tuple[str, ...],
) -> Iterator[str]:
    if statistics != database.count_statistics(namespaces, segment.sizes, alive):
        yield f"{path}: the statistics of segment {name} are not those of its documents"
    if alive is None:
        return
    try:
        frequencies = living_frequencies(segment, alive)
    except DamagedSegmentError:
        yield f"{path}: the arrays of segment {name} contradict each other"
        return
    if not np.array_equal(frequencies, files.read_array(path, name, facts[files.FREQUENCIES])):
        yield f"{path}: the term frequencies of segment {name} are not those of its living documents"


def _check_documents(path: Path, db: sqlite3.Connection, generation: int, living: list[np.ndarray]) -> Iterator[str]:
    """Whether what is stored is what can be found, and nothing is both there and deleted."""
    rows = db.execute("SELECT number FROM documents WHERE generation <= ? ORDER BY number", (generation,))
    stored = np.array([number for (number,) in rows], np.int64)
    indexed = np.sort(np.concatenate([*living, np.zeros(0, np.int64)]))
    if not np.array_equal(stored, indexed):
        unit = "passages" if database.get_meta(db, "passages") else "documents"
        yield f"{path}: {len(stored):,} {unit} are stored and {len(indexed):,} indexed, or they are not the same"
    deleted = db.execute("SELECT number FROM deletions WHERE generation <= ?", (generation,))
    both = np.intersect1d(stored, np.array([number for (number,) in deleted], np.int64))
    if len(both):
        yield f"{path}: {len(both):,} documents are both stored and deleted"
