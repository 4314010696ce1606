"""The values of a field as a column: a code for each document. Counting values is then counting codes."""

from __future__ import annotations

import json
import threading
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vizsla.datasets import document_of
from vizsla.errors import VizslaError
from vizsla.index.reading.snapshot import Snapshot
from vizsla.index.search.sql_filter import json_place, table_of
from vizsla.index.storage import database
from vizsla.index.storage.stored_json import parse_stored

MAX_COLUMNS = 16
MAX_CHARACTERS = 16 << 20
"""How long all different texts of a field may be together, so that a column has its bounds in memory."""
_BATCH = 10_000  # documents that are read at once: searches wait for the connection meanwhile
_MISSING = -1
_NOTHING = (None,)
_ORDER = {bool: 2, str: 1}  # numbers, then texts, then booleans

Path = tuple[str, ...]
Scalar = str | int | float | bool
"""What is counted: a text, a number, true or false."""


def scalars_of(value: Any) -> list[Scalar]:
    """The different texts, numbers and booleans of a field's value: itself, or its elements if it is a list.

    >>> scalars_of(["a", "b", "a", 1, 1.0, True, None, {}])
    ['a', 'b', 1, True]
    """
    if isinstance(value, str | int | float):
        return [value]
    if not isinstance(value, list):
        return []
    different: dict[tuple[bool, Scalar], Scalar] = {}
    for element in value:
        if isinstance(element, str | int | float):
            different.setdefault((isinstance(element, bool), element), element)
    return list(different.values())


def value_at(content: Mapping[str, Any], path: Path) -> Any:
    """The value of a field by its path of keys, or None."""
    value: Any = content
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return value


class DocumentRows:
    """The living documents of a snapshot in the order of insertion, and the rows that each of them has.

    A document has one row; in an index of passages one for each of its passages, one after the other.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._alive = list(snapshot.alive)
        self.has_passages = snapshot.splitter is not None
        self.row_numbers = snapshot.numbers()
        """The insertion numbers of all living rows."""
        self._starts: np.ndarray | None = None
        if self.has_passages:
            first = snapshot.documents.first_passages()
            self._starts = np.flatnonzero(np.isin(self.row_numbers, first, assume_unique=True))
            if len(self.row_numbers) and (not len(self._starts) or self._starts[0] != 0):
                raise database.damaged(snapshot.path, "a document lacks its first passage")
        self.numbers = self.row_numbers if self._starts is None else self.row_numbers[self._starts]
        """The insertion number of each document, or of its first passage."""

    def __len__(self) -> int:
        return len(self.numbers)

    def matching_documents(self, masks: Sequence[np.ndarray]) -> np.ndarray:
        """Which documents have a row that matches, given a mask of the rows of each segment."""
        pairs = zip(masks, self._alive, strict=True)
        living = [mask if alive is None else mask[alive] for mask, alive in pairs]
        rows = np.concatenate([*living, np.zeros(0, np.bool_)])
        return rows if self._starts is None or not len(rows) else np.logical_or.reduceat(rows, self._starts)

    def document_id(self, row_id: str) -> str:
        """The id of a document, given that of one of its rows."""
        return document_of(row_id) if self.has_passages else row_id


@dataclass(frozen=True, eq=False)
class Column:
    """The values of one field over all documents, each value by its code."""

    values: Sequence[Scalar]
    codes: np.ndarray
    """[documents] the code of each document's first value; -1 where it has none."""
    more_documents: np.ndarray
    more_codes: np.ndarray
    """Further values of documents that have several."""

    @classmethod
    def of(cls, field_values: Iterable[Any], documents: int, name: str) -> Column:
        """A column from the value that the field has in each document; `name` is for messages."""
        codes = array("i", [_MISSING]) * documents
        more: list[tuple[int, int]] = []
        known: dict[bool, dict[Scalar, int]] = {False: {}, True: {}}  # 1 and 1.0 are one value, 1 and true are two
        values: list[Scalar] = []
        characters = 0
        for document, field_value in enumerate(field_values):
            for value in scalars_of(field_value):
                code = known[isinstance(value, bool)].setdefault(value, len(values))
                if code == len(values):
                    values.append(value)
                    characters += len(value) if isinstance(value, str) else 1
                    if characters > MAX_CHARACTERS:
                        raise VizslaError(
                            f"the field {name!r} has too many long values to count or sort them; choose another"
                        )
                if codes[document] == _MISSING:
                    codes[document] = code
                else:
                    more.append((document, code))
        further = np.array(more, np.int32).reshape(-1, 2)
        return cls(values, np.array(codes, np.int32), further[:, 0].copy(), further[:, 1].copy())

    def count(self, documents: np.ndarray) -> tuple[np.ndarray, int]:
        """How many of some documents, given as a mask, have each value, and how many have none."""
        size = len(self.values)
        counts = np.bincount(self.codes[documents] + 1, minlength=size + 1)
        missing = int(counts[0])
        further = self.more_codes[documents[self.more_documents]]
        return counts[1:] + np.bincount(further, minlength=size), missing

    def sort_keys(self, *, descending: bool) -> np.ndarray:
        """[documents] whole numbers that sort documents by value: numbers, then texts, then false and true.

        A document with several values sorts by its least, or by its greatest in descending order; one without by none,
        behind all others.
        """
        return self._descending if descending else self._ascending

    @cached_property
    def _ascending(self) -> np.ndarray:
        keys = np.where(self.codes < 0, len(self.values), self._order[self.codes])
        np.minimum.at(keys, self.more_documents, self._order[self.more_codes])
        return keys

    @cached_property
    def _descending(self) -> np.ndarray:
        order = len(self.values) - 1 - self._order
        keys = np.where(self.codes < 0, len(self.values), order[self.codes])
        np.minimum.at(keys, self.more_documents, order[self.more_codes])
        return keys

    @cached_property
    def _order(self) -> np.ndarray:
        """The place of each value among all values; at least one number, so that a code of -1 has one to ignore."""
        places = np.zeros(max(len(self.values), 1), np.int64)
        places[sorted(range(len(self.values)), key=lambda code: value_order(self.values[code]))] = np.arange(
            len(self.values)
        )
        return places


def value_order(value: Scalar) -> tuple[int, Scalar]:
    """What sorts values of all types: numbers, then texts, then booleans."""
    return _ORDER.get(type(value), 0), value


class Columns:
    """The columns of a snapshot; each is read at its first use and kept."""

    def __init__(self, snapshot: Snapshot, rows: DocumentRows) -> None:
        self._snapshot = snapshot
        self._rows = rows
        self._lock = threading.Lock()
        self._kept: dict[Path, Column] = {}

    def column(self, path: Path) -> Column:
        """The column of the field that some keys lead to."""
        column = self._kept.get(path)
        if column is None:
            with self._lock:  # one thread reads; the others wait for what it finds
                column = self._kept.get(path)
                if column is None:
                    column = Column.of(self._read(path), len(self._rows), ".".join(path))
                    if len(self._kept) >= MAX_COLUMNS:
                        self._kept = dict(list(self._kept.items())[1:])
                    self._kept[path] = column
        return column

    def _read(self, path: Path) -> Iterable[Any]:
        """The value of a field in each document; None where it has none."""
        if path == ("text",) and self._rows.has_passages:  # each passage has its own; their documents have all of it
            whole = self._snapshot.documents.all(self._rows.row_numbers.tolist())
            yield from (document.get("text") for document in whole)
            return
        column, place = json_place(path, self._snapshot.model.fields)
        # Of two places json_extract makes a list, in which true stays true; the second one is never there.
        find = (
            f"SELECT json_group_array(number), json_group_array(json_extract({column}, ?, '$[0]')) "
            f"FROM {table_of([column])} WHERE "
        )
        numbers: list[int] = self._rows.numbers.tolist()
        for a in range(0, len(numbers), _BATCH):
            batch = numbers[a : a + _BATCH]
            if batch[-1] - batch[0] == len(batch) - 1:  # all in between
                which: tuple[str, list[Any]] = "number BETWEEN ? AND ?", [batch[0], batch[-1]]
            else:
                which = "number IN (SELECT value FROM json_each(?))", [json.dumps(batch)]
            ((found, pairs),) = self._snapshot.connection.rows(find + which[0], [place, *which[1]])
            by_number = dict(zip(*(parse_stored(text, self._snapshot.path) for text in (found, pairs)), strict=True))
            yield from (by_number.get(number, _NOTHING)[0] for number in batch)
