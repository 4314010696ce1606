"""Filters as conditions on the payload of points, with the meaning they have in an index."""

from __future__ import annotations

from collections.abc import Sequence

from qdrant_client import models

from vizsla.backends.qdrant.layout import DOCUMENT
from vizsla.errors import VizslaError
from vizsla.runs import Filter
from vizsla.runs.filters import Condition, Value, element_tests, family_of, field_name

_EXACT = 1 << 53
"""Below it 64-bit floats, which a server compares numbers in, tell all whole numbers apart."""
_BOUNDS = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
_NOTHING = models.HasIdCondition(has_id=[])


def payload_key(field: Sequence[str]) -> str:
    """The key of a document's field in the payload of its point.

    >>> payload_key(("source", "a.b"))
    'document."source"."a.b"'
    """
    return ".".join([DOCUMENT, *(f'"{part}"' for part in field)])


def payload_filter(condition: Filter) -> models.Filter:
    """A filter for Qdrant that the same documents pass; what cannot be said there is refused."""
    return models.Filter(must=[_translated(condition.root)])


def exists(field: Sequence[str]) -> models.Condition:
    """That a document has a field, be it null or an empty list."""
    return models.FieldCondition(key=payload_key(field), values_count=models.ValuesCount(gte=0))


def _translated(condition: Condition) -> models.Condition:
    if condition.kind == "and":
        return models.Filter(must=[_translated(part) for part in condition.parts])
    if condition.kind == "or":
        return models.Filter(should=[_translated(part) for part in condition.parts])
    if condition.kind == "not":
        return models.Filter(must_not=[_translated(condition.parts[0])])
    if condition.kind == "exists":
        return exists(condition.field)
    if condition.kind == "!=":
        equal = _some_element(condition, [("=", condition.values[0])])
        return models.Filter(must=[exists(condition.field)], must_not=[equal])
    return _some_element(condition, element_tests(condition))


def _some_element(leaf: Condition, tests: Sequence[tuple[str, Value]]) -> models.Condition:
    """That the value of a field, or an element of it, passes one of some tests."""
    key = payload_key(leaf.field)
    texts = [value for comparison, value in tests if comparison == "=" and isinstance(value, str)]
    passed: list[models.Condition] = []
    if texts:
        passed.append(models.FieldCondition(key=key, match=models.MatchAny(any=texts)))
    for comparison, value in tests:
        if not (comparison == "=" and isinstance(value, str)):
            passed += _tested(leaf, key, comparison, value)
    return models.Filter(should=passed) if passed else _NOTHING


def _tested(leaf: Condition, key: str, comparison: str, value: Value) -> list[models.Condition]:
    """The conditions of which one holds if an element passes a test."""
    family = family_of(value)
    if family == "null":  # elements of a list have a key of their own
        fields = [models.PayloadField(key=place) for place in (key, f"{key}[]")]
        return [models.IsNullCondition(is_null=field) for field in fields]
    if family == "boolean":
        return [models.FieldCondition(key=key, match=models.MatchValue(value=bool(value)))]
    if isinstance(value, str):
        raise VizslaError(
            f"a collection in Qdrant compares texts by = and != alone, not by {comparison}: {field_name(leaf.field)} "
            f"(character {leaf.position + 1} of the filter); keep a number to compare with beside it"
        )
    assert isinstance(value, int | float)
    if not abs(value) < _EXACT:
        raise VizslaError(
            f"a collection in Qdrant tells numbers apart below {_EXACT:,} alone, and {field_name(leaf.field)} is "
            f"compared with {value} (character {leaf.position + 1} of the filter); keep such numbers as texts"
        )
    bounds = {"gte": float(value), "lte": float(value)} if comparison == "=" else {_BOUNDS[comparison]: float(value)}
    return [models.FieldCondition(key=key, range=models.Range(**bounds))]
