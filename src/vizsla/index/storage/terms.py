"""The terms of an index and their numbers: a table for new ones, compressed blocks for all others.

A table row takes 17 bytes per term, which is a lot for the vocabulary of a large collection. So a
commit moves terms to compressed *blocks* of 128, sorted by their bytes, when a fifth of all terms are in the table.
A block is text under zlib: for each term a line with the term as JSON and its number. All of it is in the database, so
that a commit stays one transaction and a reader sees the terms of its commit.
"""

from __future__ import annotations

import sqlite3
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from heapq import merge
from itertools import chain, groupby
from json.encoder import encode_basestring as _encode
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vizsla.index.storage import database
from vizsla.index.storage.packed_terms import PackedTerms
from vizsla.index.storage.stored_ids import StoredTexts
from vizsla.plain_data import parse_json

_MOST_BYTES = 1 << 26  # of a block when it is decompressed; no block of ours comes near
_MIN_FOLDED = 4096  # terms that stay in the table
_SHARE = 4  # the table is moved when it has a quarter as many terms as the blocks
_FIND = "SELECT number FROM terms WHERE namespace = ? AND term = ?"
_FEW, _MANY = 16, 500  # up to 16 terms are found one by one; others in batches of 500, by one prepared statement
_FIND_MANY = f"SELECT term, number FROM terms WHERE namespace = ? AND term IN ({','.join('?' * _MANY)})"
_FIRSTS = "SELECT first FROM term_blocks WHERE namespace = ? ORDER BY first"  # by bytes, as by code points
_SOME = f"SELECT term FROM terms WHERE namespace = ? LIMIT {_MIN_FOLDED}"
_BLOCK = "SELECT data FROM term_blocks WHERE namespace = ? AND first = ?"
_FIND_BLOCK = "SELECT data FROM term_blocks WHERE namespace = ? AND first <= ? ORDER BY first DESC LIMIT 1"
_SINGLE = 50  # terms whose blocks are looked for one by one
_KEPT = 1024  # decompressed blocks, of 2 kB each
_AT_ONCE = 1 << 17  # terms that are packed at once when they come from blocks


class DamagedTermsError(Exception):
    """Terms are not what was written; `reading_terms` names the index."""


@contextmanager
def reading_terms(path: Path) -> Iterator[None]:
    """A context for reading terms: damage becomes one sentence that names the index."""
    try:
        yield
    except DamagedTermsError:
        raise database.damaged(path, "its terms are not what was written") from None


class Term(NamedTuple):
    """A term of a namespace, and its number."""

    namespace: int
    term: str
    number: int


Row = tuple[int, str, int]
"""A row of the table `terms`: namespace, term and number."""
Block = tuple[int, str, bytes]
"""A row of the table `term_blocks`: namespace, first term and content."""


def _text_of(block: object) -> str:
    if not isinstance(block, bytes):
        raise DamagedTermsError
    try:
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(block, _MOST_BYTES)
        if not unpacker.eof:
            raise DamagedTermsError
        return text.decode()
    except (zlib.error, UnicodeDecodeError):
        raise DamagedTermsError from None


def unpack_block(block: object) -> Iterator[tuple[str, int]]:
    """The terms of a block and their numbers.

    >>> ((_, first, block),), _ = PackedTerms.of(0, ["bärk", "bark", '"'], 5).blocks()
    >>> first, list(unpack_block(block))
    ('"', [('"', 7), ('bark', 6), ('bärk', 5)])
    """
    text = _text_of(block)
    is_plain = "\\" not in text
    try:
        for line in text[1:-1].split("\n"):
            end = line.rindex('"')
            term = line[1:end] if is_plain else parse_json(line[: end + 1])
            if type(term) is not str:
                raise DamagedTermsError
            yield term, int(line[end + 1 :])
    except ValueError:
        raise DamagedTermsError from None


def _find_in_text(text: str, term: str) -> int | None:
    """The number of a term of a block that is decompressed; None for a term that the block does not have."""
    line = f"\n{_encode(term)}"
    at = text.find(line)
    if at < 0:
        return None
    try:
        return int(text[at + len(line) : text.index("\n", at + 1)])
    except ValueError:
        raise DamagedTermsError from None


class TermBlocks:
    """The blocks of one commit, or of a transaction in which no term is moved; what was read of them is kept."""

    def __init__(self, kept: int = _KEPT) -> None:
        """`kept`: how many decompressed blocks are kept at most."""
        self._most = kept
        self._asked = 0
        self._firsts: dict[int, list[str]] = {}
        self._texts: dict[tuple[int, int], str] = {}

    def find(self, db: sqlite3.Connection, namespace: int, term: str) -> int | None:
        """The number of a term; None for a term that no block has."""
        self._asked += 1
        if self._asked <= _SINGLE:  # for a few terms, as in a shell, the list of all blocks would take longer
            row = db.execute(_FIND_BLOCK, (namespace, term)).fetchone()
            return None if row is None else _find_in_text(_text_of(row[0]), term)
        firsts = self.firsts(db, namespace)
        place = bisect_right(firsts, term) - 1
        if place < 0:
            return None
        text = self._texts.get((namespace, place))
        if text is None:
            if len(self._texts) >= self._most:
                self._texts = {}
            row = db.execute(_BLOCK, (namespace, firsts[place])).fetchone()
            text = self._texts[namespace, place] = _text_of(None if row is None else row[0])
        return _find_in_text(text, term)

    def firsts(self, db: sqlite3.Connection, namespace: int) -> list[str]:
        """The first term of each block of a namespace."""
        if namespace not in self._firsts:
            firsts = [first for (first,) in db.execute(_FIRSTS, (namespace,))]
            if not all(type(first) is str for first in firsts):
                raise DamagedTermsError
            self._firsts[namespace] = firsts
        return self._firsts[namespace]


def _find_stored(db: sqlite3.Connection, namespace: int, terms: Sequence[str], blocks: TermBlocks) -> dict[str, int]:
    """The numbers of those terms that the index has."""
    found: dict[str, int] = {}
    if len(terms) < _FEW:
        for term in terms:
            found.update((term, number) for (number,) in db.execute(_FIND, (namespace, term)))
    else:
        for a in range(0, len(terms), _MANY):
            chunk = terms[a : a + _MANY]
            found.update(db.execute(_FIND_MANY, (namespace, *chunk, *[chunk[0]] * (_MANY - len(chunk)))))
    for term in terms:
        number = None if term in found else blocks.find(db, namespace, term)
        if number is not None:
            found[term] = number
    return found


def find_terms(
    db: sqlite3.Connection, path: Path, namespace: int, terms: Iterable[str], blocks: TermBlocks
) -> list[int]:
    """The numbers of terms; -1 for one that the index does not have."""
    wanted = list(terms)
    with reading_terms(path):
        found = _find_stored(db, namespace, wanted, blocks)
    numbers = [found.get(term, -1) for term in wanted]
    if not all(type(number) is int and -1 <= number < 1 << 32 for number in numbers):
        raise database.damaged(path, "a term has an invalid number")
    return numbers


def some_terms(db: sqlite3.Connection, path: Path, namespace: int, blocks: TermBlocks) -> list[str]:
    """The first term of each block, and terms that are in no block yet."""
    with reading_terms(path):
        new = [term for (term,) in db.execute(_SOME, (namespace,))]
        if not all(type(term) is str for term in new):
            raise DamagedTermsError
        return [*blocks.firsts(db, namespace), *new]


def has_terms(db: sqlite3.Connection, namespace: int) -> bool:
    """Whether an index has any terms of a namespace."""
    tables = "SELECT namespace FROM terms UNION ALL SELECT namespace FROM term_blocks"
    return db.execute(f"SELECT 1 FROM ({tables}) WHERE namespace = ? LIMIT 1", (namespace,)).fetchone() is not None


def _merged(stored: Iterator[Term], new: Iterator[Row]) -> Iterator[Row]:
    """Terms of two sources, both in order."""
    one, other = next(stored, None), next(new, None)
    if other is None:
        return stored if one is None else chain([one], stored)
    if one is None:
        return chain([other], new)
    return merge(chain([one], stored), chain([other], new), key=lambda row: (row[0], row[1].encode()))


def stored_terms(
    db: sqlite3.Connection, namespace: int | None = None, beginning: str = "", end: str | None = None
) -> Iterator[Term]:
    """The terms of one namespace or of all, from `beginning` and before `end` in the order of their UTF-8 bytes."""
    bounds: str = "term >= ?"
    values: list[str | int] = [beginning]
    if namespace is not None:
        bounds, values = f"namespace = ? AND {bounds}", [namespace, *values]
    if end is not None:
        bounds, values = f"{bounds} AND term < ?", [*values, end]
    strange = f"SELECT 1 FROM terms WHERE {bounds} AND NOT (typeof(namespace) = 'integer' AND typeof(term) = 'text')"
    if db.execute(f"{strange} LIMIT 1", values).fetchone() is not None:  # SQLite stores any type anywhere
        raise DamagedTermsError
    rows = db.execute(f"SELECT namespace, term, number FROM terms WHERE {bounds} ORDER BY namespace, term", values)
    new = map(Term._make, rows)
    if db.execute("SELECT 1 FROM term_blocks LIMIT 1").fetchone() is None:
        return new
    return merge(_in_blocks(db, namespace, beginning, end), new, key=lambda t: (t.namespace, t.term.encode()))


def _in_blocks(db: sqlite3.Connection, namespace: int | None, beginning: str, end: str | None) -> Iterator[Term]:
    first, last = beginning.encode(), None if end is None else end.encode()
    find: str = "SELECT namespace, data FROM term_blocks"
    values: list[str | int] = []
    if namespace is not None:
        before = "SELECT max(first) FROM term_blocks WHERE namespace = ? AND first <= ?"
        find += f" WHERE namespace = ? AND first >= ifnull(({before}), '')"
        values = [namespace, namespace, beginning]
    if namespace is not None and end is not None:
        find, values = f"{find} AND first < ?", [*values, end]
    for space, data in db.execute(f"{find} ORDER BY namespace, first", values):
        if type(space) is not int:
            raise DamagedTermsError
        for term, number in unpack_block(data):
            if first <= term.encode() and (last is None or term.encode() < last):
                yield Term(space, term, number)


def insert_terms(db: sqlite3.Connection, terms: Iterable[Row]) -> None:
    """Add terms to the table."""
    db.executemany("INSERT INTO terms VALUES (?, ?, ?)", terms)


def is_foldable(next_term: int, folded: int) -> bool:
    """Whether so many terms are not in blocks yet that a commit moves them there."""
    return next_term - folded >= max(_MIN_FOLDED, folded // _SHARE)


def pack_terms(terms: Iterable[Row]) -> Iterator[Block]:
    """Namespace, first term and content of each block of sorted terms."""
    for namespace, own in groupby(terms, itemgetter(0)):
        left: list[Row] = []
        for row in own:
            left.append(row)
            if len(left) == _AT_ONCE:
                blocks, done = _packed(namespace, left).blocks(whole=False)
                yield from blocks
                del left[:done]
        yield from _packed(namespace, left).blocks()[0]


def _packed(namespace: int, rows: Sequence[Row]) -> PackedTerms:
    try:
        texts = StoredTexts.of([term for _, term, _ in rows])
        return PackedTerms(namespace, texts, np.array([number for _, _, number in rows], np.int64))
    except (TypeError, ValueError, OverflowError, AttributeError) as e:
        raise DamagedTermsError("a term or its number is of another type") from e


def fold_terms(
    db: sqlite3.Connection,
    path: Path,
    next_term: int,
    folded: int,
    new: Iterable[Row] = (),
    packed: Sequence[Block] | None = None,
    *,
    whole: bool,
) -> int:
    """Add new terms, in order, and move all to blocks if they are many, or if `whole`; part of a commit.

    `next_term` and `folded`: how many terms there are with the new ones, and how many of them are in blocks.
    `packed`: the blocks of all terms, if somebody has made them already. Returns how many are in blocks now.
    """
    if next_term == folded or not (whole or is_foldable(next_term, folded)):
        insert_terms(db, new)
    else:
        with reading_terms(path):
            blocks = packed if packed is not None else list(pack_terms(_merged(stored_terms(db), iter(new))))
        db.execute("DELETE FROM term_blocks")
        db.execute("DELETE FROM terms")
        db.executemany("INSERT INTO term_blocks VALUES (?, ?, ?)", blocks)
        folded = next_term
    database.set_meta(db, database.FOLDED, folded)
    return folded
