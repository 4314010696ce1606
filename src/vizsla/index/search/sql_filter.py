"""Filters as SQL over the documents of an index; every name and value is bound, never pasted."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.errors import VizslaError
from vizsla.index.storage.stored_json import parse_stored, stored_fields
from vizsla.runs.conditions import Condition, Value, field_name, literal, number, reads_as_number
from vizsla.runs.field_names import SAMPLE, field_names, refuse_unknown_fields
from vizsla.runs.filters import Filter, Test, condition_holds, element_tests, family_of

_MOST_LEVELS = 8  # of one statement, for SQLite's parser
_MOST_LEAVES = 200
_NUL = "\\u0000"  # as JSON has it; SQLite cuts a text there
_FAMILIES = {"text": ("text",), "number": ("integer", "real"), "boolean": ("true", "false")}
_FAMILY = {kind: family for family, kinds in _FAMILIES.items() for kind in kinds}
_ONE = {"text": "a text", "number": "a number", "boolean": "true or false"}
_SEVERAL = {"text": "texts", "number": "numbers", "boolean": "true or false", "object": "objects", "array": "lists"}
_ORDERED = ("<", "<=", ">", ">=")

Statement = tuple[str, list[Value]]
"""An expression of SQL and its bound values."""


class DocumentTable:
    """The documents of a snapshot as filters see them; remembers what it has learnt of their fields."""

    def __init__(
        self,
        read: Callable[[str, Sequence[Any]], list[Any]],
        living: Callable[[], np.ndarray],
        next_number: int,
        model_fields: Sequence[str],
        path: Path,
    ) -> None:
        """`read`: gives all rows of the database for a statement and its values. `living`: gives all insertion numbers.

        `next_number`: rows from this number on are of an unfinished commit. `path`: the folder, for messages.
        """
        self._read = read
        self._living = living
        self._end = next_number
        self._model_fields = model_fields
        self._path = path
        self._known: dict[tuple[tuple[str, ...], str], bool] = {}
        self._with_nul: dict[str, frozenset[int]] = {}

    def numbers(self, condition: Filter) -> np.ndarray:
        """The insertion numbers of the documents that meet a filter, ascending."""
        refuse_unknown_fields(condition, self._has_field, self.field_names)
        for leaf in condition.root.leaves():
            self._check_types(leaf)
        return self.select(condition.root)

    def _rows(self, columns: str, table: str, where: str, values: Sequence[Value] = ()) -> list[Any]:
        sql = f"SELECT {columns} FROM {table} WHERE number < ? AND {where}"
        return self._read(sql, (self._end, *values))

    @cached_property
    def _without_metadata(self) -> np.ndarray:
        """The insertion numbers of documents without a row in the table `documents`."""
        ((count,),) = self._rows("count(*)", "documents", "1")
        living = self._living()
        if count == len(living):
            return np.zeros(0, np.int64)
        ((found,),) = self._rows("json_group_array(number)", "documents", "1")
        return np.setdiff1d(living, np.array(parse_stored(found, self._path), np.int64), assume_unique=True)

    # What the fields hold

    def field_names(self) -> list[str]:
        """The names of the fields of the first documents."""
        texts = self._rows("fields", "contents", "1 LIMIT ?", [SAMPLE])
        metadata = self._rows("metadata", "documents", "metadata IS NOT NULL LIMIT ?", [SAMPLE])
        return field_names(stored_fields(text, self._path) for (text,) in (*texts, *metadata))

    def _has_field(self, leaf: Condition) -> bool:
        """Whether a document has the field of a leaf; asked for a value first, which most often the first ones have."""
        return any(self._has(leaf.field, family) for family in (*_asked(leaf), "anything"))

    def _check_types(self, leaf: Condition) -> None:
        """Refuse values of a type no document has in the field where documents have others."""
        families = _asked(leaf)
        if not families or any(self._has(leaf.field, family) for family in families):
            return
        if there := self._types(leaf.field):
            raise VizslaError(_type_problem(leaf, families, there))

    def _has(self, field: tuple[str, ...], family: str) -> bool:
        """Whether a document has the field, with a value of some type; most often the first ones answer it."""
        known = self._known.get((field, family))
        if known is None:
            column, path = self._place(field)
            if family == "anything":
                found = self._rows("1", table_of([column]), f"json_type({column}, ?) IS NOT NULL LIMIT 1", [path])
            else:
                kinds = ", ".join(f"'{kind}'" for kind in _FAMILIES[family])
                some, bound = _some_element(column, path, f"type IN ({kinds})")
                found = self._rows("1", table_of([column]), f"{some} LIMIT 1", bound)
            known = self._known[field, family] = bool(found)
        return known

    def _types(self, field: tuple[str, ...]) -> list[str]:
        """The types of a field's values, those of elements where they are lists; null is none."""
        column, path = self._place(field)
        find = (
            f"SELECT DISTINCT ifnull(e.type, 'object') FROM {table_of([column])} "
            f"LEFT JOIN json_each(CASE json_type({column}, ?) WHEN 'object' THEN '{{}}' ELSE {column} END, ?) AS e "
            f"WHERE number < ? AND json_type({column}, ?) IS NOT NULL "
            f"AND (e.type IS NOT NULL OR json_type({column}, ?) = 'object')"
        )
        rows = self._read(find, (path, path, self._end, path, path))
        return sorted({_FAMILY.get(kind, kind) for (kind,) in rows} - {"null"})

    # Which documents meet a condition

    def select(self, condition: Condition) -> np.ndarray:
        """The insertion numbers of the documents that meet a condition, ascending.

        SQLite answers for all but those with a NUL in their JSON, where it would cut texts.
        """
        columns = sorted({self._place(leaf.field)[0] for leaf in condition.leaves()})
        apart = sorted(frozenset().union(*(self._numbers_with_nul(column) for column in columns)))
        found = self._select(_simplified(condition), np.array(apart, np.int64))
        here = [n for n in apart if condition_holds(condition, self._content(n))]
        return np.sort(np.concatenate([found, np.array(here, np.int64)]))

    def _numbers_with_nul(self, column: str) -> frozenset[int]:
        if column not in self._with_nul:
            rows = self._rows("number", table_of([column]), f"instr({column}, ?) > 0", [_NUL])
            self._with_nul[column] = frozenset(number for (number,) in rows)
        return self._with_nul[column]

    def _content(self, number: int) -> dict[str, Any]:
        find = (
            "SELECT (SELECT metadata FROM documents WHERE number = ?), (SELECT fields FROM contents WHERE number = ?)"
        )
        ((metadata, fields),) = self._read(find, (number, number))
        return {**stored_fields(fields or "{}", self._path), **stored_fields(metadata or "{}", self._path)}

    def _select(self, condition: Condition, apart: np.ndarray) -> np.ndarray:
        """Of all documents but some those that meet a condition; what is too large for a statement takes several."""
        if _levels(condition) <= _MOST_LEVELS and sum(1 for _ in condition.leaves()) <= _MOST_LEAVES:
            return self._ask(*self._compile(condition), condition, apart)
        if condition.kind == "not":
            return np.setdiff1d(np.setdiff1d(self._living(), apart), self._select(condition.parts[0], apart))
        combine = np.intersect1d if condition.kind == "and" else np.union1d
        return reduce(combine, (self._select(part, apart) for part in _batches(condition)))

    def _ask(self, sql: str, values: list[Value], condition: Condition, apart: np.ndarray) -> np.ndarray:
        table = table_of([self._place(leaf.field)[0] for leaf in condition.leaves()])
        rows = self._rows("number", table, f"({sql})", values)
        found = np.fromiter((number for (number,) in rows), np.int64, len(rows))
        if table == "documents":
            ((holds_for_nothing,),) = self._read(f"SELECT {sql} FROM (SELECT NULL AS metadata)", values)
            if holds_for_nothing:
                found = np.concatenate([found, self._without_metadata])
        return np.setdiff1d(found, apart) if len(apart) else np.sort(found)

    def _place(self, field: tuple[str, ...]) -> tuple[str, str]:
        return json_place(field, self._model_fields)

    def _compile(self, condition: Condition) -> Statement:
        """A condition as SQL and its bound values; every leaf is 0 or 1, never NULL."""
        if condition.kind == "not":
            inside, values = self._compile(condition.parts[0])
            return f"NOT ({inside})", values
        if condition.kind in ("and", "or"):
            compiled = [self._compile(part) for part in condition.parts]
            joined = f" {condition.kind.upper()} ".join(f"({sql})" for sql, _ in compiled)
            return joined, [v for _, some in compiled for v in some]
        column, path = self._place(condition.field)
        if condition.kind == "exists":
            return f"json_type({column}, ?) IS NOT NULL", [path]
        some, values = _any_of(element_tests(condition))
        sql, places = _some_element(column, path, some)
        return sql, [*places, *values]


def _asked(leaf: Condition) -> list[str]:
    """The types of values that a leaf compares with; null is none."""
    return sorted({family_of(value) for value in leaf.values} - {"null"})


def json_place(field: tuple[str, ...], model_fields: Sequence[str]) -> tuple[str, str]:
    """The column a field is in and its path there."""
    column = "fields" if field[0] in model_fields else "ifnull(metadata, '{}')"
    return column, "$" + "".join("." + json.dumps(part, ensure_ascii=False) for part in field)


def table_of(columns: Sequence[str]) -> str:
    """What to select from: the texts lie apart, so that filters on other things need not read them."""
    return "contents LEFT JOIN documents USING (number)" if "fields" in columns else "documents"


def _some_element(column: str, path: str, test: str) -> Statement:
    """That the value of a field, or one of its elements, passes a test."""
    some = f"EXISTS (SELECT 1 FROM json_each({column}, ?) WHERE {test})"
    return f"(json_type({column}, ?) != 'object') IS 1 AND {some}", [path, path]


def _any_of(tests: Sequence[Test]) -> Statement:
    """That an element passes one of some tests: those for equality as one list, of the others the widest."""
    equal = [value for comparison, value in tests if comparison == "="]
    sql: list[str] = []
    bound: list[Value] = []
    for family in ("text", "number"):
        kinds = ", ".join(f"'{kind}'" for kind in _FAMILIES[family])
        if listed := [v for v in equal if family_of(v) == family and not (isinstance(v, str) and "\0" in v)]:
            sql.append(f"(type IN ({kinds}) AND value IN (SELECT value FROM json_each(?)))")
            bound.append(f"[{', '.join(map(_as_json, listed))}]")
        for comparison, value in _widest([test for test in tests if family_of(test[1]) == family]):
            sql.append(f"(type IN ({kinds}) AND value {comparison} ?)")
            bound.append(value)
    sql += [f"type = '{_as_json(value)}'" for value in (True, False, None) if any(value is v for v in equal)]
    return " OR ".join(sql) or "0", bound


def _widest(tests: Sequence[Test]) -> list[Test]:
    """Of bounds below and above the one that lets most pass."""
    below = [(value, comparison) for comparison, value in tests if comparison in (">", ">=")]
    above = [(value, comparison) for comparison, value in tests if comparison in ("<", "<=")]
    chosen: list[Any] = []
    if below:
        chosen.append(min(below, key=lambda pair: (pair[0], pair[1] == ">")))
    if above:
        chosen.append(max(above, key=lambda pair: (pair[0], pair[1] == "<=")))
    return [(comparison, value) for value, comparison in chosen]


def _as_json(value: Value) -> str:
    """A value as JSON; what is beyond all numbers as one SQLite reads as such."""
    return json.dumps(value).replace("Infinity", "9e999") if isinstance(value, float) else json.dumps(value)


def _simplified(condition: Condition) -> Condition:
    """The same condition with less: no `!=`, no negation of a negation, no chain in a chain of its kind.

    What `or` asks of one field is one leaf, and negations in a chain of `and` are one.
    """
    if condition.kind == "!=":
        equal = Condition("=", (), condition.field, condition.values)
        return Condition("and", (Condition("exists", (), condition.field), Condition("not", (equal,))))
    if condition.is_leaf:
        return condition
    parts = [_simplified(part) for part in condition.parts]
    return _negated(parts[0]) if condition.kind == "not" else _chained(condition.kind, parts)


def _negated(condition: Condition) -> Condition:
    return condition.parts[0] if condition.kind == "not" else Condition("not", (condition,))


def _chained(kind: str, parts: Sequence[Condition]) -> Condition:
    """`and` or `or` of parts that are simplified."""
    flat = [inner for part in parts for inner in (part.parts if part.kind == kind else (part,))]
    merged = _with_one_negation(flat) if kind == "and" else _by_field(flat)
    return merged[0] if len(merged) == 1 else Condition(kind, tuple(merged))


def _with_one_negation(parts: Sequence[Condition]) -> list[Condition]:
    """Parts of an `and`, `exists` of a field once; that none of some holds is one negation."""
    negated = [part.parts[0] for part in parts if part.kind == "not"]
    others = [part for part in parts if part.kind not in ("not", "exists")]
    exist = {part.field: part for part in parts if part.kind == "exists"}
    none = [_negated(_chained("or", negated))] if negated else []
    return [*exist.values(), *others, *none]


def _by_field(parts: Sequence[Condition]) -> list[Condition]:
    """Parts of an `or`, the comparisons of one field as one leaf."""
    others: list[Condition] = []
    by_field: dict[tuple[str, ...], list[Condition]] = {}
    for part in parts:
        if part.is_leaf and part.kind != "exists":
            by_field.setdefault(part.field, []).extend(part.parts or [part])
        else:
            others.append(part)
    return [*(Condition("any", tuple(leaves), field) for field, leaves in by_field.items()), *others]


def _levels(condition: Condition) -> int:
    """How deep a condition is nested."""
    return 1 if condition.is_leaf else 1 + max(map(_levels, condition.parts))


def _batches(condition: Condition) -> list[Condition]:
    """The parts of a chain, as many together as fit into a statement."""
    batches: list[list[Condition]] = [[]]
    room = _MOST_LEAVES
    for part in condition.parts:
        leaves = sum(1 for _ in part.leaves())
        if _levels(part) >= _MOST_LEVELS or leaves > _MOST_LEAVES:
            batches.insert(0, [part])
            continue
        if leaves > room:
            batches.append([])
            room = _MOST_LEAVES
        batches[-1].append(part)
        room -= leaves
    return [b[0] if len(b) == 1 else Condition(condition.kind, tuple(b)) for b in batches if b]


def _type_problem(leaf: Condition, families: Sequence[str], there: Sequence[str]) -> str:
    """Why a comparison can hold for no document, and what to write instead."""
    name, place = field_name(leaf.field), f"(character {leaf.position + 1} of the filter)"
    asked = " or ".join(_ONE[family] for family in families)
    only = " and ".join(_SEVERAL[kind] for kind in there)
    family = next((kind for kind in there if kind in _FAMILIES), None)
    if family is None:
        advice = f"name a field in it, as in {name}.name" if "object" in there else "nothing can be compared with it"
    elif family == "boolean" and leaf.kind in _ORDERED:
        advice = f"write {name} = true or {name} = false"
    else:
        values = [_converted(value, family) for value in leaf.values[:3]]
        more = ", ..." if len(leaf.values) > 3 else ""
        shown = f"[{', '.join(map(literal, values))}{more}]" if leaf.kind == "in" else literal(values[0])
        advice = f"compare with {_ONE[family]}" if None in values else f"write {name} {leaf.kind} {shown}"
    return f"no document has {asked} in the field {'.'.join(leaf.field)!r}, only {only}; {advice} {place}"


def _converted(value: Value, family: str) -> Value:
    """A value as the type that is meant; None where it has no such form."""
    if family == "text":
        return None if value is None else value if isinstance(value, str) else literal(value)
    written = value.strip() if isinstance(value, str) else literal(value)
    if family == "boolean":
        return {"true": True, "1": True, "false": False, "0": False}.get(written.lower())
    if isinstance(value, bool):
        return int(value)
    return number(written) if reads_as_number(written) else None
