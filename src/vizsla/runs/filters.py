"""The notation of filters: a text becomes a tree of conditions.

year >= 1999 and lang = "en"
tag in ["news", "blog"] and not draft = true
exists(author) or source.name != "wire"
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple, NoReturn

from vizsla.errors import VizslaError, kind_of
from vizsla.numbers import short
from vizsla.plain_data import parse_json

Value = str | float | int | bool | None

_NAME = r"[^\W\d][\w-]*(?:\.[\w-]+)*"
_NUMBER = r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_TOKEN = re.compile(
    rf"""\s*(?:
      (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<number>{_NUMBER})
    | (?P<name>{_NAME}|`[^`"]+`)
    | (?P<sign><=|>=|!=|==|[=<>(),\[\]])
    )""",
    re.VERBOSE | re.DOTALL,
)
_PLAIN = r'(?:"[^"\\\x00-\x1f]*"|-?(?:0|[1-9][0-9]*))'
_PLAIN_VALUES = re.compile(rf"{_PLAIN}(?:[ \t\r\n]*,[ \t\r\n]*{_PLAIN})*(?=[ \t\r\n]*\])")
"""Matches lists whose values are all JSON, as most are: parsing them as JSON is faster for long lists."""
_COMPARISONS = {"=": "=", "==": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_WORDS = {"and", "or", "not", "in", "exists", "true", "false", "null"}
_CONSTANTS: dict[str, Value] = {"true": True, "false": False, "null": None}
_MAX_DEPTH = 100
MAX_CONDITIONS = 2000


@dataclass(frozen=True)
class Condition:
    """A node of a filter's tree: `and`, `or` or `not` over other nodes, or a leaf: a comparison, `in` or `exists`."""

    kind: str
    parts: tuple[Condition, ...] = ()
    field: tuple[str, ...] = ()
    values: tuple[Value, ...] = ()
    position: int = 0

    @property
    def is_leaf(self) -> bool:
        return self.kind not in ("and", "or", "not")

    def leaves(self) -> Iterator[Condition]:
        """All leaves, from left to right."""
        stack = [self]
        while stack:
            condition = stack.pop()
            if condition.is_leaf:
                yield condition
            else:
                stack += reversed(condition.parts)


def parse_condition(text: str) -> Condition:
    """The tree of a filter from its text; an error names the character where parsing stopped."""
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise VizslaError(
            f"the filter cannot be read at character {e.start + 1}: half a surrogate pair is not expected here"
        ) from None
    return _Parser(text).parse()


def mapping_as_text(conditions: Mapping[str, object]) -> str:
    """The text of a filter from a mapping of fields to a value, or to a list of possible values.

    >>> mapping_as_text({"year": 1903, "lang": ["en", "de"], "odd name": None})
    'year = 1903 and lang in ["en", "de"] and `odd name` = null'
    """
    return " and ".join(_equation(name, value) for name, value in conditions.items())


def written_field(name: object) -> str:
    """A field as a filter names it: in backquotes where it needs them.

    >>> written_field("source.name"), written_field("odd name")
    ('source.name', '`odd name`')
    """
    if not isinstance(name, str):
        raise VizslaError(f"the fields of a filter are texts, not {value_in_words(name)}")
    if re.fullmatch(_NAME, name) and name.lower() not in _WORDS:
        return name
    bare = name[1:-1] if len(name) > 2 and name[0] == name[-1] == "`" else name
    if not bare or "`" in bare or '"' in bare:
        raise VizslaError(f"a filter cannot name the field {name!r}, which is empty or has a quote in it")
    return f"`{bare}`"


def _equation(field: object, value: object) -> str:
    name = written_field(field)
    if hasattr(value, "tolist"):  # numpy's arrays and scalars
        value = value.tolist()
    if isinstance(value, list | tuple | set | frozenset):
        return f"{name} in [{', '.join(literal(v) for v in value)}]"
    return f"{name} = {literal(value)}"


def literal(value: object) -> str:
    """The text of a value in a filter.

    >>> print(literal('say "no"'), literal(1.5), literal(True), literal(None))
    "say \\"no\\"" 1.5 true null
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if value is None or isinstance(value, bool):
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int | float) and value == value:  # not NaN
        return repr(value).replace("inf", "1e999")
    raise VizslaError(
        f"a filter compares with texts, numbers, true, false and None or with lists of these, not with "
        f"{value_in_words(value)}"
    )


def value_in_words(value: object) -> str:
    """The type of a value in words, for messages about filters."""
    return "a text" if isinstance(value, str) else "bytes" if isinstance(value, bytes) else kind_of(value)


def field_name(field: tuple[str, ...]) -> str:
    """The text of a field in a filter, in backquotes where it needs them."""
    name = ".".join(field)
    plain = len(field) > 1 or "." not in name
    return name if plain and re.fullmatch(_NAME, name) and name.lower() not in _WORDS else f"`{name}`"


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


class _Parser:
    """A recursive descent parser: or, and, not, then leaves."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._tokenize()
        self._at = 0
        self._depth = 0
        self._count = 0

    def _tokenize(self) -> list[_Token]:
        tokens: list[_Token] = []
        text, at, end = self._text, 0, len(self._text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                while text[at].isspace():
                    at += 1
                unexpected = "a quotation mark that is not closed" if text[at] in "\"'" else f"{text[at]!r}"
                raise VizslaError(f"the filter cannot be read at character {at + 1}: {unexpected} is not expected here")
            kind, token, at = str(match.lastgroup), match[match.lastgroup or 0], match.end()
            if kind == "name" and token.lower() in _WORDS:
                kind = token.lower()
            tokens.append(_Token(kind, token, at - len(token)))
            if token == "[" and (plain := _PLAIN_VALUES.match(text, at)):
                tokens.append(_Token("values", plain[0], at))
                at = plain.end()
        tokens.append(_Token("end", "", end))
        return tokens

    @property
    def _current(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._current
        self._at += 1
        return token

    def _fail(self, expected: str) -> NoReturn:
        token = self._current
        if token.kind == "end":
            raise VizslaError(f"the filter ends too early, at character {token.position + 1}: expected {expected}")
        raise VizslaError(
            f"the filter cannot be read at character {token.position + 1}: expected {expected}, not {token.text!r}"
        )

    def parse(self) -> Condition:
        if self._current.kind == "end":
            raise VizslaError('the filter is empty; expected something like year >= 1999 and lang = "en"')
        condition = self._or()
        if self._current.kind != "end":
            self._fail("'and', 'or' or the end")
        return condition

    def _or(self) -> Condition:
        parts = [self._and()]
        while self._current.kind == "or":
            self._take()
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else Condition("or", tuple(parts))

    def _and(self) -> Condition:
        parts = [self._not()]
        while self._current.kind == "and":
            self._take()
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else Condition("and", tuple(parts))

    def _not(self) -> Condition:
        negated = False
        while self._current.kind == "not":
            self._take()
            negated = not negated
        operand = self._group() if self._current.text == "(" else self._leaf()
        return Condition("not", (operand,)) if negated else operand

    def _group(self) -> Condition:
        if self._depth == _MAX_DEPTH:
            raise VizslaError(f"the filter is nested deeper than {_MAX_DEPTH} levels")
        self._take()
        self._depth += 1
        condition = self._or()
        self._depth -= 1
        self._sign(")")
        return condition

    def _leaf(self) -> Condition:
        self._count += 1
        if self._count > MAX_CONDITIONS:
            raise VizslaError(
                f"the filter has more than {MAX_CONDITIONS:,} conditions; many values of a field are one condition "
                'with in, as in lang in ["en", "de"]'
            )
        if self._current.kind == "exists":
            self._take()
            self._sign("(")
            name = self._field()
            self._sign(")")
            return Condition("exists", (), _path(name), (), name.position)
        name = self._field()
        if self._current.kind == "in":
            self._take()
            return Condition("in", (), _path(name), self._list(), name.position)
        if self._current.kind != "sign" or self._current.text not in _COMPARISONS:
            self._fail("a comparison (=, !=, <, <=, >, >=) or 'in'")
        kind = _COMPARISONS[self._take().text]
        value = self._value()
        if kind in ("<", "<=", ">", ">=") and (value is None or isinstance(value, bool)):
            self._at -= 1
            self._fail("a number or a text to compare with")
        return Condition(kind, (), _path(name), (value,), name.position)

    def _field(self) -> _Token:
        if self._current.kind != "name":
            self._fail("a field, 'not', 'exists' or '('")
        return self._take()

    def _sign(self, sign: str) -> None:
        if self._current.kind != "sign" or self._current.text != sign:
            self._fail(repr(sign))
        self._take()

    def _list(self) -> tuple[Value, ...]:
        self._sign("[")
        values: list[Value] = []
        if self._current.kind == "values":
            values = parse_json(f"[{self._take().text}]", parse_int=number)
        while self._current.text != "]":
            values.append(self._value())
            if (sign := self._current.text) == ",":
                self._at += 1
            elif sign != "]":
                self._fail("',' or ']'")
        self._take()
        return tuple(values)

    def _value(self) -> Value:
        kind, text, _ = self._current
        if kind not in ("text", "number", *_CONSTANTS):
            self._fail("a value: a text in quotes, a number, true, false or null")
        self._at += 1
        if kind == "text":
            return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL) if "\\" in text else text[1:-1]
        return number(text) if kind == "number" else _CONSTANTS[kind]


def number(text: str) -> float | int:
    """The number in a text as SQLite reads it: an integer that does not fit in 64 bits becomes a float."""
    try:
        whole = int(text)
    except ValueError:
        return float(text)
    return whole if -(2**63) <= whole < 2**63 else float(text)


def reads_as_number(text: str) -> bool:
    """Whether a text is a number in the notation of filters."""
    return re.fullmatch(_NUMBER, text.strip()) is not None


def _path(token: _Token) -> tuple[str, ...]:
    """The keys that lead to a field: a dot leads into an object, except in backquotes."""
    return (token.text[1:-1],) if token.text.startswith("`") else tuple(token.text.split("."))


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
    def all_of(cls, conditions: Sequence[FilterLike]) -> Filter | None:
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
    leaves = leaf.parts or [leaf]  # leaves of the same field may have been merged into one
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


SAMPLE = 1000
"""How many documents are looked at for the names of fields."""
_SHOWN = 12
_DEEPEST = 8  # levels of nested objects


def field_names(contents: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of the fields of some documents, as filters write them, in order of first occurrence.

    >>> field_names([{"year": 1999}, {"source": {"name": "wire"}, "year": 2001}])
    ['year', 'source.name']
    """
    names: dict[str, None] = {}

    def collect(content: Mapping[str, Any], path: tuple[str, ...]) -> None:
        for key, value in content.items():
            if isinstance(value, Mapping) and value and len(path) < _DEEPEST:
                collect(value, (*path, key))
            else:
                names[field_name((*path, key))] = None

    for content in contents:
        collect(content, ())
    return list(names)


def other_fields(name: str, known: Iterable[str]) -> str:
    """What to write instead of a field that no document has, as the end of a sentence.

    >>> other_fields("yaer", ["year", "lang"]), other_fields("colour", ["year", "lang"]), other_fields("year", [])
    ("did you mean 'year'?", 'fields are lang, year', 'there are no fields yet')
    """
    names = sorted(known)
    if close := get_close_matches(name, names, n=1):
        return f"did you mean {close[0]!r}?"
    if not names:
        return "there are no fields yet"
    return f"fields are {', '.join(names[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''}"


def refuse_unknown_fields(
    condition: Filter, has_field: Callable[[Condition], bool], known: Callable[[], Iterable[str]]
) -> None:
    """Refuse a filter that compares a field which no document has, most likely a misspelt one.

    A field that the filter asks `exists` about may be missing. `has_field`: whether a document has the field of a
    leaf. `known`: gives the names of fields that documents have, for the message.
    """
    leaves = list(condition.root.leaves())
    optional = {leaf.field for leaf in leaves if leaf.kind == "exists"}
    for leaf in leaves:
        if leaf.field not in optional and not has_field(leaf):
            name = ".".join(leaf.field)
            place = f"(character {leaf.position + 1} of the filter)"
            raise VizslaError(f"no document has a field {name!r} {place}; {other_fields(name, known())}")
