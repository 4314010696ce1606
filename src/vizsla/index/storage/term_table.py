"""The terms of an index in its database: found, and moved to blocks by a commit; errors name the index."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vizsla.index.storage import database, term_blocks
from vizsla.index.storage.term_blocks import Block, Row, TermBlocks


def _term_number(number: Any, path: Path) -> int:
    """The number of a term, -1 for None; an invalid one is refused."""
    if number is None:
        return -1
    if type(number) is not int or not 0 <= number < 1 << 32:
        raise database.damaged(path, "a term has an invalid number")
    return number


def find_terms(
    connection: sqlite3.Connection, path: Path, namespace: int, terms: Iterable[str], blocks: TermBlocks
) -> list[int]:
    """The numbers of terms; -1 for one that the index does not have."""
    wanted = list(terms)
    with reading_terms(path):
        found = term_blocks.find_terms(connection, namespace, wanted, blocks)
    return [_term_number(found.get(term), path) for term in wanted]


@contextmanager
def reading_terms(path: Path) -> Iterator[None]:
    """A context for reading terms: damage becomes one sentence that names the index."""
    try:
        yield
    except term_blocks.DamagedTermsError:
        raise database.damaged(path, "its terms are not what was written") from None


def fold_terms(
    connection: sqlite3.Connection,
    path: Path,
    new: Iterable[Row] = (),
    packed: Sequence[Block] | None = None,
    *,
    whole: bool,
) -> None:
    """Add new terms, in order, and move all to blocks if they are many, or if `whole`; part of a commit.

    `packed`: the blocks of all terms, if somebody has made them already.
    """
    with reading_terms(path):
        folded = term_blocks.fold_terms(
            connection,
            database.get_meta(connection, "next_term"),
            database.get_meta(connection, term_blocks.FOLDED) or 0,
            new,
            packed,
            whole=whole,
        )
    database.set_meta(connection, term_blocks.FOLDED, folded)
