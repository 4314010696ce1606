"""Indexes of earlier formats, made of one of the present format."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.engine import BlockTable, ListDirectory, living_frequencies
from vizsla.engine.blocks import OFFSET_MASK, RANGE_BITS
from vizsla.index.storage import arrays, database, id_files, list_files, living, number_files, segment_files
from vizsla.index.storage.checksums import KEY, Checksums
from vizsla.index.storage.number_files import from_runs
from vizsla.index.storage.schema import EARLIER_DOCUMENTS
from vizsla.index.storage.term_blocks import stored_terms


def make_format(version: int, folder: Path) -> None:
    """Make an index of the present format one of format 3, 4 or 5."""
    with closing(sqlite3.connect(folder / "index.db")) as db, db:
        rows: list[tuple[int, str]] = []
        for segment, files, statistics in db.execute("SELECT id, files, statistics FROM segments").fetchall():
            facts, counted = json.loads(files), json.loads(statistics)
            _write_living(folder, segment, facts, counted.pop(living.LISTED, []))
            db.execute("UPDATE segments SET statistics = ? WHERE id = ?", (json.dumps(counted), segment))
            rows += _take_ids(folder, segment, facts, version)
            _use_plain_blocks(folder, segment, facts)
            if version < 5:
                _use_plain_arrays(folder, segment, facts)
            db.execute("UPDATE segments SET files = ? WHERE id = ?", (json.dumps(facts), segment))
        metadata = dict(db.execute("SELECT number, metadata FROM documents"))
        dead = {number for (number,) in db.execute("SELECT number FROM deletions")}
        terms = list(stored_terms(db))
        db.execute("DROP TABLE documents")
        for statement in EARLIER_DOCUMENTS.split(";"):
            db.execute(statement)
        db.executemany(
            "INSERT INTO documents VALUES (?, ?, ?, ?)",
            ((n, doc_id, 1, metadata.get(n)) for n, doc_id in rows if n not in dead),
        )
        if version < 5:
            db.execute("DROP TABLE IF EXISTS term_blocks")
            db.execute("DELETE FROM terms")
            db.executemany("INSERT INTO terms VALUES (?, ?, ?)", terms)
            db.execute("DELETE FROM meta WHERE key = 'folded_terms'")
        db.execute("UPDATE meta SET value = ? WHERE key = 'format'", (str(version),))
        db.execute("DELETE FROM meta WHERE key = ?", (KEY,))
        generation = database.get_meta(db, "generation")
        Checksums(db, generation).store(db, generation, database.get_meta(db, "next_term"))


def _write_living(folder: Path, segment: str, facts: dict[str, Any], listed: list[int]) -> None:
    """Write the files that say which documents live, in place of a list of deleted rows."""
    if listed:
        opened = segment_files.read_segment(folder, segment, facts)
        alive = living.Living(folder, segment, facts, listed).alive
        assert alive is not None
        frequencies = living_frequencies(opened, alive).astype(np.uint32)
        facts |= segment_files.write_living(folder, segment, 99, {"alive": alive, "frequencies": frequencies})


def _take_ids(folder: Path, segment: str, facts: dict[str, Any], version: int) -> list[tuple[int, str]]:
    """Numbers and ids of the documents of a segment, whose files of ids become those of the format."""
    place = folder / "segments" / segment
    ids = id_files.read_ids(folder, segment, facts)
    assert ids is not None
    numbers = np.array(number_files.read_numbers(folder, segment, facts, len(ids)))
    texts, found = ids.copied(np.arange(len(ids))), ids.at(np.arange(len(ids)))
    kept = {"ids": texts.data, "id_sizes": texts.sizes, "id_starts": texts.starts} if version > 3 else {}
    for kind in [kind for kind in facts if kind in id_files.KINDS]:
        (place / facts.pop(kind)["file"]).unlink()
    for kind, array in kept.items():
        facts[kind] = arrays.write_array(place / f"{kind}-1.npy", array)
    return list(zip(numbers.tolist(), found, strict=True))


def _use_plain_blocks(folder: Path, segment: str, facts: dict[str, Any]) -> None:
    """Give a segment small lists without bitmaps, as format 5 had them."""
    place, lists = folder / "segments" / segment, list_files.read_lists(folder, segment, facts, "small")
    starts, documents, values = lists.unpack(1 << 30)
    term, ranges = np.repeat(np.arange(len(starts) - 1), np.diff(starts)), (documents >> RANGE_BITS).astype(np.int64)
    is_first = np.append(True, (np.diff(term) > 0) | (np.diff(ranges) > 0))[: len(term)]
    firsts = np.append(np.flatnonzero(is_first), len(term))
    postings = ((documents & OFFSET_MASK) | ((values.astype(np.int64) - 1) << RANGE_BITS)).astype(np.uint16)
    table = BlockTable.plain(lists.terms, np.searchsorted(firsts, starts), ranges[firsts[:-1]], firsts)
    directory = ListDirectory.pack(table)
    for part in ("groups", "records"):
        facts[f"small_{part}"] = arrays.write_array(place / f"small_{part}.npy", getattr(directory, part))
    (place / facts.pop("small_blocks")["file"]).unlink()
    facts["small_postings"] = arrays.write_array(place / "small_postings.npy", postings)


def _use_plain_arrays(folder: Path, segment: str, facts: dict[str, Any]) -> None:
    """Give a segment the directories and numbers that format 4 had."""
    place = folder / "segments" / segment
    for kind in ("small", "large"):
        parts = [facts.pop(f"{kind}_{part}") for part in ("groups", "records")]
        table = ListDirectory(*(np.array(arrays.read_array(folder, segment, f)) for f in parts)).unpack()
        for f in parts:
            (place / f["file"]).unlink()
        for part, array, dtype in zip(
            ("terms", "runs", "windows", "starts"), table[:4], ("u4", "u4", "u2", "u4"), strict=True
        ):
            facts[f"{kind}_{part}"] = arrays.write_array(place / f"{kind}_{part}.npy", array.astype(dtype))
    if "number_runs" in facts:
        numbers = from_runs(arrays.read_array(folder, segment, facts["number_runs"]))
        (place / facts.pop("number_runs")["file"]).unlink()
        facts["numbers"] = arrays.write_array(place / "numbers.npy", numbers)
