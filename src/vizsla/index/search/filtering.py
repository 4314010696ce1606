"""Which rows of an index pass a filter: its conditions are evaluated column by column, for all rows at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vizsla import stopping
from vizsla.errors import VizslaError
from vizsla.index.search.columns import BATCH, Column, ColumnBuilder, Columns, Path, TooLongError
from vizsla.runs.filters import (
    Condition,
    Filter,
    Value,
    element_tests,
    family_of,
    field_name,
    literal,
    number,
    reads_as_number,
    refuse_unknown_fields,
)

_FAMILIES = ("boolean", "number", "text")
_ONE = {"text": "a text", "number": "a number", "boolean": "true or false"}
_SEVERAL = {"text": "texts", "number": "numbers", "boolean": "true or false", "object": "objects", "array": "lists"}
_ORDERED = ("<", "<=", ">", ">=")


def passing_rows(columns: Columns, condition: Filter) -> np.ndarray:
    """[rows] which pass a filter.

    Raises an error for a field that no row has, which is most likely misspelt, and for a value of a type that the field
    never has.
    """
    kept: dict[Path, Column] = {}
    too_long: list[Path] = []
    for path in dict.fromkeys(leaf.field for leaf in condition.root.leaves()):
        try:
            kept[path] = columns.column(path)
        except TooLongError:
            too_long.append(path)
    kinds = {path: set(column.kinds) for path, column in kept.items()}
    present = {path for path, column in kept.items() if column.present.any()}
    if not too_long:
        _check(condition, columns, present, kinds)
        return _holds(condition.root, kept)
    parts = []
    for first in range(0, len(columns), BATCH):
        last = min(first + BATCH, len(columns))
        part = {path: column.part(first, last) for path, column in kept.items()}
        for path in too_long:
            part[path] = _column_of_part(columns, path, first, last)
            kinds.setdefault(path, set()).update(part[path].kinds)
            if part[path].present.any():
                present.add(path)
        parts.append(_holds(condition.root, part))
    _check(condition, columns, present, kinds)
    return np.concatenate(parts)


def _column_of_part(columns: Columns, path: Path, first: int, last: int) -> Column:
    """The column of some rows, which is not kept, however long its values are."""
    builder = ColumnBuilder(last - first, ".".join(path), bounded=False)
    builder.add(columns.values(path, first, last))
    return builder.column()


def _holds(condition: Condition, columns: Mapping[Path, Column]) -> np.ndarray:
    """[rows] for which a condition holds."""
    stopping.check()
    if condition.kind == "not":
        negated: np.ndarray = ~_holds(condition.parts[0], columns)
        return negated
    if condition.kind in ("and", "or"):
        combine = np.logical_and if condition.kind == "and" else np.logical_or
        rows = _holds(condition.parts[0], columns).copy()
        for part in condition.parts[1:]:
            combine(rows, _holds(part, columns), out=rows)
        return rows
    column = columns[condition.field]
    if condition.kind == "exists":
        return column.present
    if condition.kind == "!=":
        differing: np.ndarray = column.present & ~column.passing([("=", condition.values[0])])
        return differing
    return column.passing(element_tests(condition))


def _check(condition: Filter, columns: Columns, present: set[Path], kinds: Mapping[Path, set[str]]) -> None:
    """Refuse a field no row has, which is most likely misspelt, and values of a type no row has there."""
    refuse_unknown_fields(condition, lambda leaf: leaf.field in present, columns.field_names)
    for leaf in condition.root.leaves():
        families = {family_of(value) for value in leaf.values} - {"null"}
        there = kinds[leaf.field]
        if families and there and not families & there:
            raise VizslaError(_type_problem(leaf, sorted(families), sorted(there)))


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
    """A value converted to another type; None if that is not possible."""
    if family == "text":
        return None if value is None else value if isinstance(value, str) else literal(value)
    written = value.strip() if isinstance(value, str) else literal(value)
    if family == "boolean":
        return {"true": True, "1": True, "false": False, "0": False}.get(written.lower())
    if isinstance(value, bool):
        return int(value)
    return number(written) if reads_as_number(written) else None
