"""Filters: conditions on what is known of documents, as safe expressions.

    year >= 1999 and lang = "en"
    tag in ["news", "blog"] and not draft = true
    exists(author) or source.name != "wire"

A comparison holds if it holds for the field's value or, where that is a list, for any of its elements; numbers are
compared with numbers, texts with texts. A document without the field meets no comparison, so `not x = 1` keeps it.
Expressions are parsed here and become SQL with every name and value bound, never pasted.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from vizsla.errors import VizslaError

Value = str | float | int | bool | None

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<name>[^\W\d][\w-]*(?:\.[\w-]+)*|`[^`"]+`)
    | (?P<sign><=|>=|!=|==|[=<>(),\[\]])
    )""",
    re.VERBOSE,
)
_COMPARISONS = {"=": "=", "==": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_WORDS = {"and", "or", "not", "in", "exists", "true", "false", "null"}
_DEEPEST = 100


@dataclass(frozen=True)
class Condition:
    """A node: `and`, `or`, `not` over others, or a leaf: a comparison, `in`, or `exists` on a field."""

    kind: str
    parts: tuple[Condition, ...] = ()
    field: tuple[str, ...] = ()
    values: tuple[Value, ...] = ()
    position: int = 0


class Filter:
    """A parsed filter.

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
        return cls(text, _Parser(text).parse())

    def __str__(self) -> str:
        return self._text

    def numbers(self, db: sqlite3.Connection, generation: int, model_fields: Sequence[str]) -> np.ndarray:
        """The insertion numbers of the documents that meet the condition."""
        for leaf in _leaves(self.root):
            self._check_field(db, generation, leaf, model_fields)
        sql, values = _compile(self.root, model_fields)
        table = _table(any(_place(leaf.field, model_fields)[0] == "fields" for leaf in _leaves(self.root)))
        rows = db.execute(f"SELECT number FROM {table} WHERE generation <= ? AND ({sql})", (generation, *values))
        return np.fromiter((number for (number,) in rows), np.int64)

    def _check_field(
        self, db: sqlite3.Connection, generation: int, leaf: Condition, model_fields: Sequence[str]
    ) -> None:
        """A field no document has is most likely misspelt."""
        column, path = _place(leaf.field, model_fields)
        known = f"FROM {_table(column == 'fields')} WHERE generation <= ? AND json_type({column}, ?) IS NOT NULL"
        some = db.execute("SELECT 1 FROM documents WHERE generation <= ? LIMIT 1", (generation,)).fetchone()
        if some and not db.execute(f"SELECT 1 {known} LIMIT 1", (generation, path)).fetchone():
            name = ".".join(leaf.field)
            raise VizslaError(f"no document has a field {name!r} (character {leaf.position + 1} of the filter)")


def _table(with_fields: bool) -> str:
    """What to select from: the texts lie apart, so that filters on other things need not read them."""
    return "documents JOIN contents USING (number)" if with_fields else "documents"


def _leaves(condition: Condition) -> list[Condition]:
    if condition.kind in ("and", "or", "not"):
        return [leaf for part in condition.parts for leaf in _leaves(part)]
    return [condition]


def _place(field: tuple[str, ...], model_fields: Sequence[str]) -> tuple[str, str]:
    """The column a field is in and its path there."""
    column = "fields" if field[0] in model_fields else "ifnull(metadata, '{}')"
    return column, "$" + "".join(f'."{part}"' for part in field)


_TYPES: list[tuple[type | tuple[type, ...], str]] = [
    (bool, "('true', 'false')"),
    (str, "('text')"),
    ((int, float), "('integer', 'real')"),
    (type(None), "('null')"),
]


def _types_of(value: Value) -> str:
    return next(names for kind, names in _TYPES if isinstance(value, kind))


def _compile(condition: Condition, model_fields: Sequence[str]) -> tuple[str, list[Value]]:
    """A condition as SQL and its bound values; every leaf is 0 or 1, never NULL."""
    if condition.kind in ("and", "or", "not"):
        compiled = [_compile(part, model_fields) for part in condition.parts]
        values = [v for _, some in compiled for v in some]
        if condition.kind == "not":
            return f"NOT ({compiled[0][0]})", values
        return f" {condition.kind.upper()} ".join(f"({sql})" for sql, _ in compiled), values
    column, path = _place(condition.field, model_fields)
    if condition.kind == "exists":
        return f"json_type({column}, ?) IS NOT NULL", [path]
    if condition.kind == "!=":
        equal, values = _compile(Condition("=", (), condition.field, condition.values), model_fields)
        return f"json_type({column}, ?) IS NOT NULL AND NOT ({equal})", [path, *values]
    operator = "=" if condition.kind == "in" else condition.kind
    tests, bound = [], []
    for value in condition.values:
        if value is None:
            tests.append("type = 'null'")
        else:
            tests.append(f"(type IN {_types_of(value)} AND value {operator} ?)")
            bound.append(value)
    some = " OR ".join(tests) or "0"
    no_object = f"json_type({column}, ?) != 'object'"
    return f"({no_object}) IS 1 AND EXISTS (SELECT 1 FROM json_each({column}, ?) WHERE {some})", [path, path, *bound]


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    position: int


class _Parser:
    """Recursive descent: or, and, not, then leaves."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._cut()
        self._at = 0
        self._depth = 0

    def _cut(self) -> list[_Token]:
        tokens, at = [], 0
        while self._text[at:].strip():
            match = _TOKEN.match(self._text, at)
            if match is None:
                at += len(self._text[at:]) - len(self._text[at:].lstrip())
                what = "a text that is not closed" if self._text[at] in "\"'" else f"{self._text[at]!r}"
                raise VizslaError(f"the filter cannot be read at character {at + 1}: {what} is not expected here")
            kind = str(match.lastgroup)
            token = match[kind]
            if kind == "name" and token in _WORDS:
                kind = token
            tokens.append(_Token(kind, token, match.start(kind if kind in match.groupdict() else "name")))
            at = match.end()
        tokens.append(_Token("end", "", len(self._text.rstrip())))
        return tokens

    @property
    def _now(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._now
        self._at += 1
        return token

    def _fail(self, expected: str) -> NoReturn:
        token = self._now
        if token.kind == "end":
            raise VizslaError(f"the filter ends too early, at character {token.position + 1}: expected {expected}")
        raise VizslaError(
            f"the filter cannot be read at character {token.position + 1}: expected {expected}, not {token.text!r}"
        )

    def parse(self) -> Condition:
        if self._now.kind == "end":
            raise VizslaError('the filter is empty; expected something like year >= 1999 and lang = "en"')
        condition = self._or()
        if self._now.kind != "end":
            self._fail("'and', 'or' or the end")
        return condition

    def _chain(self, word: str, inner: Callable[[], Condition]) -> Condition:
        parts = [inner()]
        while self._now.kind == word:
            self._take()
            parts.append(inner())
        return parts[0] if len(parts) == 1 else Condition(word, tuple(parts))

    def _or(self) -> Condition:
        return self._chain("or", self._and)

    def _and(self) -> Condition:
        return self._chain("and", self._not)

    def _not(self) -> Condition:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise VizslaError(f"the filter is nested deeper than {_DEEPEST} levels")
        try:
            if self._now.kind == "not":
                self._take()
                return Condition("not", (self._not(),))
            return self._leaf()
        finally:
            self._depth -= 1

    def _leaf(self) -> Condition:
        if self._now.text == "(":
            self._take()
            inside = self._or()
            self._sign(")")
            return inside
        if self._now.kind == "exists":
            self._take()
            self._sign("(")
            name = self._field()
            self._sign(")")
            return Condition("exists", (), _path(name), (), name.position)
        name = self._field()
        if self._now.kind == "in":
            self._take()
            return Condition("in", (), _path(name), self._list(), name.position)
        if self._now.kind != "sign" or self._now.text not in _COMPARISONS:
            self._fail("a comparison (=, !=, <, <=, >, >=) or 'in'")
        kind = _COMPARISONS[self._take().text]
        value = self._value()
        if kind in ("<", "<=", ">", ">=") and (value is None or isinstance(value, bool)):
            self._at -= 1
            self._fail("a number or a text to compare with")
        return Condition(kind, (), _path(name), (value,), name.position)

    def _field(self) -> _Token:
        if self._now.kind != "name":
            self._fail("a field, 'not', 'exists' or '('")
        return self._take()

    def _sign(self, sign: str) -> None:
        if self._now.kind != "sign" or self._now.text != sign:
            self._fail(repr(sign))
        self._take()

    def _list(self) -> tuple[Value, ...]:
        self._sign("[")
        values = []
        while not (self._now.kind == "sign" and self._now.text == "]"):
            values.append(self._value())
            if self._now.text == ",":
                self._take()
            elif self._now.text != "]":
                self._fail("',' or ']'")
        self._take()
        return tuple(values)

    def _value(self) -> Value:
        token = self._now
        if token.kind == "number":
            self._take()
            return _number(token.text)
        if token.kind == "text":
            self._take()
            return re.sub(r"\\(.)", r"\1", token.text[1:-1], flags=re.DOTALL)
        if token.kind in ("true", "false", "null"):
            self._take()
            return {"true": True, "false": False, "null": None}[token.kind]
        return self._fail("a value: a text in quotes, a number, true, false or null")


def _number(text: str) -> float | int:
    try:
        whole = int(text)
    except ValueError:
        return float(text)
    return whole if -(2**63) <= whole < 2**63 else float(text)


def _path(token: _Token) -> tuple[str, ...]:
    """A field's way in: a dot leads into an object, unless the name stands in backquotes."""
    return (token.text[1:-1],) if token.text.startswith("`") else tuple(token.text.split("."))
