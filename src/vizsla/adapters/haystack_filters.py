"""Haystack's filters as Vizsla's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from vizsla.errors import VizslaError

_COMPARISONS = ("==", "!=", ">", ">=", "<", "<=", "in", "not in")
_LOGIC = {"AND": " and ", "OR": " or ", "NOT": " and "}


def condition_of(filters: Mapping[str, Any]) -> str:
    """The condition that Haystack's filters stand for.

    >>> year = {"field": "meta.year", "operator": ">=", "value": 1999}
    >>> condition_of({"operator": "AND", "conditions": [year, {"field": "lang", "operator": "!=", "value": "en"}]})
    '(year >= 1999) and (not lang = "en")'
    """
    if "field" in filters:
        return _comparison(filters)
    operator = filters.get("operator")
    if operator not in _LOGIC or not filters.get("conditions"):
        raise VizslaError(f"a filter is a comparison of a field, or AND, OR or NOT over conditions, not {filters!r}")
    joined = _LOGIC[operator].join(f"({condition_of(condition)})" for condition in filters["conditions"])
    return f"not ({joined})" if operator == "NOT" else joined


def _comparison(filters: Mapping[str, Any]) -> str:
    field, operator, value = str(filters["field"]).removeprefix("meta."), filters.get("operator"), filters.get("value")
    if operator not in _COMPARISONS:
        raise VizslaError(f"a filter compares by {', '.join(_COMPARISONS)}, not by {operator!r}")
    if value is None and operator in ("==", "!="):
        return f"exists({field})" if operator == "!=" else f"not exists({field})"
    if value is None:
        raise VizslaError(f"the filter on {field} compares with null, which only == and != can")
    text = json.dumps(value, ensure_ascii=False)
    negated = {"!=": f"not {field} = {text}", "not in": f"not {field} in {text}", "==": f"{field} = {text}"}
    return negated.get(operator, f"{field} {operator} {text}")
