"""Filters of Haystack and of LlamaIndex as Vizsla's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vizsla.errors import VizslaError, kind_of
from vizsla.runs.filters import literal, written_field

ALL = "exists(id) or not exists(id)"
"""The condition that every document meets."""


def haystack_condition(filters: Mapping[str, Any]) -> str:
    """The condition that Haystack's filters stand for. A document without a field has None there.

    >>> year = {"field": "meta.year", "operator": ">=", "value": 1999}
    >>> other = {"field": "lang", "operator": "!=", "value": "en"}
    >>> haystack_condition({"operator": "AND", "conditions": [year, other]})
    '(year >= 1999) and (not lang = "en")'
    """
    if not isinstance(filters, Mapping):
        raise VizslaError(f"a filter of Haystack is an object, not {kind_of(filters)}")
    if "field" in filters:
        if "value" not in filters:
            raise VizslaError(f"the filter on {filters['field']} has no value")
        field = filters["field"]
        name = field.removeprefix("meta.") if isinstance(field, str) else field
        return _compared(_HAYSTACK, name, filters.get("operator"), filters["value"])
    operator, conditions = filters.get("operator"), filters.get("conditions")
    if operator not in ("AND", "OR", "NOT") or not isinstance(conditions, list) or not conditions:
        raise VizslaError(f"a filter is a comparison of a field, or AND, OR or NOT over conditions, not {filters!r}")
    joined = f" {'or' if operator == 'OR' else 'and'} ".join(f"({haystack_condition(each)})" for each in conditions)
    return f"not ({joined})" if operator == "NOT" else joined


def llama_index_condition(filters: Mapping[str, Any]) -> str | None:
    """The condition that LlamaIndex's `MetadataFilters` stand for, as plain data; None if there are none of them.

    >>> year, tags = {"key": "year", "operator": ">=", "value": 1999}, {"key": "tag", "operator": "all", "value": ["a"]}
    >>> llama_index_condition({"condition": "or", "filters": [year, tags]})
    '(year >= 1999) or (tag = "a")'
    """
    condition = filters.get("condition") or "and"
    if condition not in ("and", "or", "not"):
        raise VizslaError(f"filters are joined by and, or or not, not by {condition!r}")
    parts = []
    for each in filters["filters"]:
        if "filters" in each:
            parts.append(llama_index_condition(each) or ALL)
        else:
            parts.append(_compared(_LLAMA_INDEX, each["key"], each["operator"], each["value"]))
    joined = f" {'and' if condition == 'and' else 'or'} ".join(f"({part})" for part in parts)
    return f"not ({joined})" if joined and condition == "not" else joined or None  # not: none of them holds


_Comparison = Callable[[str, Any], str]


def _ordered(sign: str) -> _Comparison:
    def comparison(field: str, value: Any) -> str:
        if value is None:
            return f"exists({field}) and not exists({field})"  # nothing is more or less than None
        return f"{field} {sign} {literal(value)}"

    return comparison


def _equal(field: str, value: Any) -> str:
    return f"not exists({field}) or {field} = null" if value is None else f"{field} = {literal(value)}"


def _among(field: str, value: Any) -> str:
    listed = _list(field, value)
    some = f"{field} in [{', '.join(literal(each) for each in listed if each is not None)}]"
    return f"{some} or {_equal(field, None)}" if None in listed else some


def _all_of(field: str, value: Any) -> str:
    return " and ".join(f"({_equal(field, each)})" if each is None else _equal(field, each) for each in value) or ALL


def _list(field: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise VizslaError(f"the filter on {field} needs a list of values, not {kind_of(value)}")
    return value


def _negated(comparison: _Comparison) -> _Comparison:
    def negation(field: str, value: Any) -> str:
        condition = comparison(field, value)
        return f"not ({condition})" if " or " in condition else f"not {condition}"

    return negation


_SIMPLE: dict[str, _Comparison] = {
    "==": _equal, "!=": _negated(_equal), ">": _ordered(">"), ">=": _ordered(">="), "<": _ordered("<"),
    "<=": _ordered("<="), "in": _among,
}  # fmt: skip
_HAYSTACK = {**_SIMPLE, "not in": _negated(_among)}
_LLAMA_INDEX = {
    **_SIMPLE,
    "nin": _negated(_among),
    "any": _among,
    "all": lambda field, value: _all_of(field, _list(field, value)),
    "contains": _equal,
    "is_empty": lambda field, _: _equal(field, None),
}


def _compared(known: Mapping[str, _Comparison], field: object, operator: object, value: Any) -> str:
    if not isinstance(operator, str) or operator not in known:
        shown = getattr(operator, "value", operator)
        raise VizslaError(f"a filter compares by {', '.join(known)}, not by {shown!r}")
    return known[operator](written_field(field), value)
