"""Filters: conditions on the fields of documents, as expressions.

    year >= 1999 and lang = "en"
    tag in ["news", "blog"] and not draft = true
    exists(author) or source.name != "wire"

A comparison holds if it holds for the field's value or, if that is a list, for any of its elements. Numbers are
compared with numbers, texts with texts. A document without the field fails every comparison, so `not x = 1` keeps it.
A collection refuses a field that no document has, unless the filter asks `exists` about it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vizsla.errors import VizslaError
from vizsla.numbers import short
from vizsla.runs.conditions import Condition, Value, mapping_as_text, number, parse_condition, value_in_words

_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip

Test = tuple[str, Value]
"""A comparison of one element: an operator and a value."""


class Filter:
    """A condition on the fields of a document, parsed from text.

    `filter.accepts({"year": 2001})` says whether a document with these fields meets it.

    >>> str(Filter.parse("year >= 1999  and not (lang in ['en','de'])"))
    "year >= 1999  and not (lang in ['en','de'])"
    >>> Filter.parse("year >= 1999 and").root
    Traceback (most recent call last):
    ...
    vizsla.errors.VizslaError: the filter ends too early, at character 17: expected a field, 'not', 'exists' or '('
    """

    def __init__(self, text: str, root: Condition) -> None:
        self._text = text
        self.root = root

    @classmethod
    def parse(cls, text: str) -> Filter:
        """A filter from its text, as in `year >= 1999 and lang = "en"`."""
        return cls(text, parse_condition(text))

    @classmethod
    def of(cls, condition: FilterLike) -> Filter | None:
        """A filter from its text, or from a mapping of fields to the values they must have; None stays None.

        >>> str(Filter.of({"year": 1903, "lang": ["en", "de"]}))
        'year = 1903 and lang in ["en", "de"]'
        """
        if condition is None or isinstance(condition, Filter):
            return condition
        if isinstance(condition, str):
            return cls.parse(condition)
        if isinstance(condition, Mapping):
            return cls.parse(mapping_as_text(condition)) if condition else None
        raise VizslaError(
            'a filter is a text, as in year >= 1999 and lang = "en", or a mapping of fields to values, '
            f"not {value_in_words(condition)}"
        )

    @classmethod
    def all_of(cls, conditions: Sequence[str | Mapping[str, object]]) -> Filter | None:
        """A filter that holds if all of some filters hold; None if there are none.

        Each is read by itself, so an error counts characters in the text of one of them, and names it.

        >>> str(Filter.all_of(["year < 1950 or year > 1999", {"lang": "en"}]))
        '(year < 1950 or year > 1999) and (lang = "en")'
        """
        parts = []
        for condition in conditions:
            try:
                parts.append(cls.of(condition or None))
            except VizslaError as e:
                if len(conditions) == 1:
                    raise
                raise VizslaError(f"{e} (in the condition {short(str(condition))})") from None
        found = [part for part in parts if part is not None]
        if len(found) < 2:
            return found[0] if found else None
        text = " and ".join(f"({part})" for part in found)
        return cls(text, Condition("and", tuple(part.root for part in found)))

    def __str__(self) -> str:
        return self._text

    def accepts(self, content: Mapping[str, object]) -> bool:
        """Whether a document with these fields meets the condition.

        >>> Filter.parse("year >= 1999").accepts({"year": 2001})
        True
        """
        return condition_holds(self.root, content)


FilterLike = str | Mapping[str, object] | Filter | None
"""A filter, its text, a mapping of fields to the values they must have, or None for all documents."""


def family_of(value: object) -> str:
    """The family of a JSON value: `text`, `number`, `boolean`, `null` or `other`. Only values of one family compare."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return "text" if isinstance(value, str) else "number" if isinstance(value, int | float) else "other"


def element_tests(leaf: Condition) -> list[Test]:
    """The comparisons of a leaf; it holds if one of them holds for one element of its field."""
    leaves = leaf.parts or [leaf]  # leaves of the same field may be one
    return [("=" if part.kind == "in" else part.kind, value) for part in leaves for value in part.values]


def condition_holds(condition: Condition, content: Mapping[str, object]) -> bool:
    """Whether a condition holds for the fields of a document."""
    if condition.kind == "and":
        return all(condition_holds(part, content) for part in condition.parts)
    if condition.kind == "or":
        return any(condition_holds(part, content) for part in condition.parts)
    if condition.kind == "not":
        return not condition_holds(condition.parts[0], content)
    value: Any = content
    for name in condition.field:
        if not isinstance(value, Mapping) or name not in value:
            return False
        value = value[name]
    if condition.kind == "exists":
        return True
    elements = value if isinstance(value, list) else [] if isinstance(value, Mapping) else [value]
    if condition.kind == "!=":
        return not any(_passes(element, ("=", condition.values[0])) for element in elements)
    return any(_passes(element, test) for test in element_tests(condition) for element in elements)


def _passes(element: Any, test: Test) -> bool:
    comparison, value = test
    if family_of(element) != family_of(value):
        return False
    if isinstance(element, int) and not isinstance(element, bool):
        element = number(str(element))
    return bool(element == value) if comparison == "=" else _ORDER[comparison](element, value)
