"""The values of a field as a column: a code for each document. Counting, sorting and filtering then work on codes."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vizsla import stopping
from vizsla.datasets import document_of
from vizsla.errors import VizslaError
from vizsla.index.reading.snapshot import Snapshot
from vizsla.index.storage import database
from vizsla.lazy import cached_property
from vizsla.runs.filters import SAMPLE, Test, family_of, field_names

MAX_COLUMNS = 16
MAX_CHARACTERS = 16 << 20
"""The maximum total length of a field's distinct texts, which bounds the memory of a column."""
BATCH = 10_000
"""Documents that are read at once: searches wait for the connection meanwhile."""
_NO_CODE = -1
_ORDER = {bool: 2, str: 1}  # numbers, then texts, then booleans

Path = tuple[str, ...]
Scalar = str | int | float | bool
"""What is counted: a text, a number, true or false."""
ABSENT = object()
"""The value of a field that a document does not have."""


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
    """The value of a field by its path of keys; `ABSENT`, not None, if the field is missing."""
    value: Any = content
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return ABSENT
        value = value[key]
    return value


class DocumentRows:
    """The live documents of a snapshot in the order of insertion, and the rows that each of them has.

    A document has one row; in an index of passages one for each of its passages, one after the other.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._alive = list(snapshot.alive)
        self._sizes = [len(segment) for segment in snapshot.segments]
        self.has_passages = snapshot.splitter is not None
        self.row_numbers = snapshot.numbers()
        """The insertion numbers of all live rows."""
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

    def masks(self, rows: np.ndarray) -> list[np.ndarray]:
        """For each segment a mask of its rows, given one of all live rows."""
        masks, first = [], 0
        for size, alive in zip(self._sizes, self._alive, strict=True):
            living = size if alive is None else int(np.count_nonzero(alive))
            part = rows[first : first + living]
            if alive is not None:
                whole = np.zeros(size, np.bool_)
                whole[alive] = part
                part = whole
            masks.append(part)
            first += living
        return masks

    def document_id(self, row_id: str) -> str:
        """The id of a document, given that of one of its rows."""
        return document_of(row_id) if self.has_passages else row_id


class TooLongError(VizslaError):
    """A field has so many long values that its column is not kept in memory."""


@dataclass(frozen=True, eq=False)
class Column:
    """The values of one field over all documents, each value by its code."""

    values: Sequence[Scalar]
    codes: np.ndarray
    """[documents] the code of each document's first value; -1 where it has none."""
    more_documents: np.ndarray
    more_codes: np.ndarray
    """Further values of documents that have several, in the order of the documents."""
    present: np.ndarray
    """[documents] which have the field, with whatever value."""
    null: np.ndarray
    """[documents] in which it is null, or a list with null in it."""
    kinds: frozenset[str]
    """What values and elements are: `text`, `number`, `boolean`, `object`, `array`."""

    @classmethod
    def of(cls, field_values: Iterable[Any], documents: int, name: str) -> Column:
        """A column from the value that the field has in each document; `name` is for messages."""
        builder = ColumnBuilder(documents, name)
        builder.add(field_values)
        return builder.column()

    def part(self, first: int, last: int) -> Column:
        """The column of the documents from `first` to `last`."""
        a, z = np.searchsorted(self.more_documents, [first, last])
        more = self.more_documents[a:z] - first, self.more_codes[a:z]
        rows = slice(first, last)
        return Column(self.values, self.codes[rows], *more, self.present[rows], self.null[rows], self.kinds)

    def passing(self, tests: Sequence[Test]) -> np.ndarray:
        """[documents] which have a value that passes one of some tests, as `runs.filters` defines it."""
        passed: np.ndarray = self.null.copy() if ("=", None) in tests else np.zeros(len(self.codes), np.bool_)
        chosen = self.chosen(tests)
        passed |= chosen[self.codes]
        passed[self.more_documents[chosen[self.more_codes]]] = True
        return passed

    def chosen(self, tests: Sequence[Test]) -> np.ndarray:
        """[values + 1] which values pass one of some tests; the last stands for no value, and is False."""
        chosen = np.zeros(len(self.values) + 1, np.bool_)
        for comparison, value in tests:
            family = family_of(value)
            if family == "boolean":
                chosen[:-1] |= np.array([v is value for v in self.values], np.bool_)
            elif family in self._sorted:
                ordered, codes = self._sorted[family]
                begin = bisect_right(ordered, value) if comparison == ">" else bisect_left(ordered, value)
                end = bisect_left(ordered, value) if comparison == "<" else bisect_right(ordered, value)
                first, last = {"=": (begin, end), "<": (0, end), "<=": (0, end)}.get(comparison, (begin, len(codes)))
                chosen[codes[first:last]] = True
        return chosen

    @cached_property
    def _sorted(self) -> dict[str, tuple[list[Any], np.ndarray]]:
        """The texts, and the numbers as filters compare them, each sorted, with their codes."""
        by_family: dict[str, list[tuple[Any, int]]] = {"text": [], "number": []}
        for code, value in enumerate(self.values):
            if not isinstance(value, bool) and value == value:  # not NaN, which equals nothing
                family = family_of(value)
                by_family[family].append((value if family == "text" else _as_number(value), code))
        found = {}
        for family, pairs in by_family.items():
            pairs.sort()
            found[family] = [value for value, _ in pairs], np.array([code for _, code in pairs], np.int64)
        return found

    def count(self, documents: np.ndarray) -> tuple[np.ndarray, int]:
        """How many of some documents, given as a mask, have each value, and how many have none."""
        size = len(self.values)
        counts = np.bincount(self.codes[documents] + 1, minlength=size + 1)
        missing = int(counts[0])
        further = self.more_codes[documents[self.more_documents]]
        return counts[1:] + np.bincount(further, minlength=size), missing

    def sort_keys(self, *, descending: bool) -> np.ndarray:
        """[documents] whole numbers that sort documents by value: numbers, then texts, then false and true.

        A document with several values sorts by its smallest, or by its largest in descending order; documents without a
        value come last.
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
        """The rank of each value among all values; never empty, so that indexing with the code -1 is valid."""
        places = np.zeros(max(len(self.values), 1), np.int64)
        places[sorted(range(len(self.values)), key=lambda code: value_order(self.values[code]))] = np.arange(
            len(self.values)
        )
        return places


def value_order(value: Scalar) -> tuple[int, Scalar]:
    """What sorts values of all types: numbers, then texts, then booleans."""
    return _ORDER.get(type(value), 0), value


class ColumnBuilder:
    """A column that is filled document by document, and can be filled further after a stop."""

    def __init__(self, documents: int, name: str, *, bounded: bool = True) -> None:
        """`name`: of the field, for messages; `bounded`: raise `TooLongError` when values get too long together."""
        self._name = name
        self._most = MAX_CHARACTERS if bounded else float("inf")
        self._codes = array("i", [_NO_CODE]) * documents
        self._present, self._null = np.zeros(documents, np.bool_), np.zeros(documents, np.bool_)
        self._more: list[tuple[int, int]] = []
        self._known: dict[bool, dict[Scalar, int]] = {False: {}, True: {}}  # 1 and 1.0 are one value, 1 and true two
        self._values: list[Scalar] = []
        self._kinds: set[str] = set()
        self._characters = 0
        self.size = 0
        """How many documents have been added."""

    def add(self, field_values: Iterable[Any]) -> None:
        """Add the value that the field has in each of the next documents; `ABSENT` where there is none."""
        values, codes, known = self._values, self._codes, self._known
        for document, field_value in enumerate(field_values, self.size):
            self.size = document + 1
            if field_value is ABSENT:
                continue
            self._present[document] = True
            self._note(document, field_value)
            for value in scalars_of(field_value):
                code = known[isinstance(value, bool)].setdefault(value, len(values))
                if code == len(values):
                    values.append(value)
                    self._characters += len(value) if isinstance(value, str) else 1
                    if self._characters > self._most:
                        raise TooLongError(
                            f"the field {self._name!r} has too many long values to count or sort them; choose another"
                        )
                if codes[document] == _NO_CODE:
                    codes[document] = code
                else:
                    self._more.append((document, code))

    def _note(self, document: int, field_value: Any) -> None:
        """Remember what kind of value this is."""
        for element in field_value if isinstance(field_value, list) else (field_value,):
            if element is None:
                self._null[document] = True
            else:
                self._kinds.add(_kind_of(element))

    def column(self) -> Column:
        """What was added, as a column."""
        further = np.array(self._more, np.int32).reshape(-1, 2)
        codes = np.array(self._codes, np.int32)
        more = further[:, 0].copy(), further[:, 1].copy()
        return Column(self._values, codes, *more, self._present, self._null, frozenset(self._kinds))


def _kind_of(element: Any) -> str:
    family = family_of(element)
    return family if family != "other" else "array" if isinstance(element, list) else "object"


def _as_number(value: Any) -> float | int:
    """A number as filters compare it: a whole number that does not fit in 64 bits is a float."""
    if isinstance(value, float) or -(2**63) <= value < 2**63:
        return value  # type: ignore[no-any-return]
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


Reader = Callable[[int, int, bool], Sequence[Mapping[str, Any]]]
"""A function that reads the fields of the documents first .. last - 1, with or without the indexed texts."""


class Columns:
    """The columns of some documents; each is read at its first use and kept.

    If a thread is stopped while it reads a column, the next thread continues where it stopped.
    """

    def __init__(self, read: Reader, documents: int, text_fields: Sequence[str]) -> None:
        self._read = read
        self._documents = documents
        self._text_fields = frozenset(text_fields)
        self._lock = threading.Lock()
        self._kept: dict[Path, Column] = {}
        self._unfinished: dict[Path, ColumnBuilder] = {}
        self._too_long: dict[Path, TooLongError] = {}

    def __len__(self) -> int:
        return self._documents

    def column(self, path: Path) -> Column:
        """The column of the field that some keys lead to; `TooLongError` if it is not kept in memory."""
        column = self._kept.get(path)
        if column is None:
            with stopping.holding(self._lock):  # one thread reads; the others wait for what it finds
                column = self._kept.get(path)
                if column is None:
                    column = self._finish(path)
                    if len(self._kept) >= MAX_COLUMNS:
                        self._kept = dict(list(self._kept.items())[1:])
                    self._kept[path] = column
        return column

    def _finish(self, path: Path) -> Column:
        if path in self._too_long:
            raise self._too_long[path]
        builder = self._unfinished.get(path)
        if builder is None:
            if len(self._unfinished) >= MAX_COLUMNS:
                self._unfinished.clear()
            builder = self._unfinished[path] = ColumnBuilder(self._documents, ".".join(path))
        try:
            while builder.size < self._documents:
                builder.add(self.values(path, builder.size, min(builder.size + BATCH, self._documents)))
        except TooLongError as e:
            self._too_long[path] = e
            del self._unfinished[path]
            raise
        del self._unfinished[path]
        return builder.column()

    def field_names(self) -> list[str]:
        """The names of the fields of the first documents, for messages."""
        return field_names(self._read(0, min(SAMPLE, self._documents), True))

    def values(self, path: Path, first: int, last: int) -> list[Any]:
        """The value of a field in the documents from `first` to `last`; `ABSENT` where it has none."""
        stopping.check()
        return [value_at(content, path) for content in self._read(first, last, path[0] in self._text_fields)]


def document_columns(snapshot: Snapshot, rows: DocumentRows) -> Columns:
    """The columns of whole documents, to count and sort them. A split document is represented by its first passage."""
    documents, numbers, text_fields = snapshot.documents, rows.numbers, snapshot.model.fields

    def read(first: int, last: int, with_texts: bool) -> Sequence[Mapping[str, Any]]:
        if not (with_texts and rows.has_passages):
            return documents.contents(numbers[first:last], with_texts)
        starts = np.searchsorted(rows.row_numbers, numbers)  # each passage has its own text; a document has all of it
        ends = np.append(starts, len(rows.row_numbers))
        some = rows.row_numbers[ends[first] : ends[last]].tolist()
        return [document.content for document in documents.all(some)]

    return Columns(read, len(numbers), text_fields)


def row_columns(snapshot: Snapshot, rows: DocumentRows) -> Columns:
    """The columns of rows, to filter them: of documents, or of passages."""
    documents, numbers = snapshot.documents, rows.row_numbers

    def read(first: int, last: int, with_texts: bool) -> Sequence[Mapping[str, Any]]:
        return documents.contents(numbers[first:last], with_texts)

    return Columns(read, len(numbers), snapshot.model.fields)
