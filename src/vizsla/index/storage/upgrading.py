"""The way from an earlier format to the present one: a commit of its own before the first change.

It moves ids from the database to the segments, keeps of a row what is metadata, and adds blocks of terms and checksums.
Posting lists stay as they are.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from vizsla.index.storage import checksums, database, id_files, number_files, segment_files
from vizsla.index.storage.schema import DOCUMENTS, FORMAT, TERM_BLOCKS, WITHOUT_BLOCKS
from vizsla.text.stored_ids import StoredIds


def upgrade(db: sqlite3.Connection, path: Path) -> None:
    """Make an index of an earlier format one of this format; the caller holds the lock of the writer.

    Nothing else of an unfinished commit may be in the database.
    """
    version = database.get_meta(db, "format")
    if version == FORMAT:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        generation = database.get_meta(db, "generation") + 1
        _store_ids(db, path, generation)
        db.execute("ALTER TABLE documents RENAME TO earlier")
        db.execute(DOCUMENTS)
        db.execute("INSERT INTO documents SELECT number, metadata FROM earlier WHERE metadata IS NOT NULL")
        db.execute("DROP TABLE earlier")
        if version <= WITHOUT_BLOCKS:
            db.execute(TERM_BLOCKS)
        database.set_meta(db, "format", FORMAT)
        database.set_meta(db, "generation", generation)
        db.execute("DELETE FROM meta WHERE key = ?", (checksums.KEY,))
        checksums.Checksums(db, generation).store(db, generation, database.get_meta(db, "next_term"))
        database.mark_finished(db, generation)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _store_ids(db: sqlite3.Connection, path: Path, generation: int) -> None:
    """Store the ids of all documents with their segments."""
    for name, facts, _ in database.segment_rows(db, path, generation):
        count = facts["sizes"]["shape"][1]
        if id_files.are_findable(facts, count):
            continue
        ids = id_files.read_ids(path, name, facts)
        if ids is None:
            ids = id_files.collect_ids(db, number_files.read_numbers(path, name, facts, count))
        written = segment_files.write_ids(path, name, generation, StoredIds.of(ids.texts))
        db.execute("UPDATE segments SET files = ? WHERE id = ?", (json.dumps(facts | written), name))
