"""One notation for everything that has a name and options.

    sum    = term { "+" term }
    term   = [ weight "*" ] call
    call   = name [ "(" [ option { "," option } ] ")" ]
    option = [ key "=" ] value

A value is any text with balanced brackets, so a value may be a call or a sum itself:
`spar(dense=minilm, lexical=sketch(width=1536), mu=0.025)`. Values without a key are for what takes a list,
such as `auto(bm25, minilm)`; everything else refuses them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from vizsla.errors import VizslaError
from vizsla.numbers import number_text, short

MAX_DEPTH = 50
"""The maximum nesting depth of brackets."""
MAX_TERMS = 10_000
_BLANKS = re.compile(r"\s*")
_BRACKET = re.compile(r"[()]")
_WEIGHT = re.compile(r"\s*(?P<weight>[0-9.eE+-]+)\s*\*\s*")
_NAME = re.compile(r"\s*(?P<name>(?:hf:)?[\w'./~-]*\w)\s*")  # hf: before a name on the model hub


class Call(NamedTuple):
    """A name and its options as they were written: `rrf(k=60)`."""

    name: str
    options: dict[str, str]
    text: str
    """The whole text the call stands in, for messages."""
    written: str = ""
    """The options as the user wrote them."""
    unnamed: tuple[str, ...] = ()
    """Values without a key."""

    def without_unnamed(self) -> Call:
        """The call itself, if all its values have a key."""
        if self.unnamed:
            raise VizslaError(f"{short(self.unnamed[0])} in {short(self.text)} is not an option; expected name=value")
        return self


class WeightedCall(NamedTuple):
    """A term of a sum: `0.5 * bm25(k1=1.2)`."""

    weight: float | None
    call: Call


def parse_call(text: str, what: str, example: str) -> Call:
    """The name and options in a text that holds one call; `what` and `example` are for the error message.

    >>> call = parse_call("spar(dense=minilm, lexical=sketch(width=64))", "model", "bm25(k1=1.2)")
    >>> call.name, call.options
    ('spar', {'dense': 'minilm', 'lexical': 'sketch(width=64)'})
    """
    call, end = _call_at(text, 0, what, example)
    if end < len(text):
        raise VizslaError(f"{short(text)} is not a {what}: expected nothing after character {end}, as in {example}")
    return call.without_unnamed()


def parse_sum(text: str, what: str, example: str) -> list[WeightedCall]:
    """The terms of a weighted sum.

    >>> [(term.weight, term.call.name) for term in parse_sum("bm25 + 0.5 * minilm", "model", "bm25")]
    [(None, 'bm25'), (0.5, 'minilm')]
    """
    terms: list[WeightedCall] = []
    at = 0
    while True:
        match = _WEIGHT.match(text, at)
        weight = None
        if match is not None:
            weight, at = _weight(match["weight"], text), match.end()
        call, at = _call_at(text, at, what, example)
        terms.append(WeightedCall(weight, call))
        if at == len(text):
            return terms
        if text[at] != "+":
            raise VizslaError(f"{short(text)} is not a {what}: expected + at character {at + 1}, not {text[at]!r}")
        if len(terms) == MAX_TERMS:
            raise VizslaError(f"{short(text)} has too many terms; a sum has at most {MAX_TERMS:,}")
        at += 1


def parse_options(options: str, text: str) -> dict[str, str]:
    """Options by name, with unparsed values; `text` is the whole call, for messages.

    >>> parse_options("k1=1.2, fields=title/text", "bm25(k1=1.2, fields=title/text)")
    {'k1': '1.2', 'fields': 'title/text'}
    """
    found, _ = _options_of(options, text, unnamed=False)
    return found


def _options_of(options: str, text: str, *, unnamed: bool) -> tuple[dict[str, str], tuple[str, ...]]:
    """Options by name, and values without a name where there may be some."""
    found: dict[str, str] = {}
    values = []
    for item in split_options(options, ","):
        key, equals, value = (part.strip() for part in item.partition("="))
        if unnamed and ("(" in key or not equals):
            values.append(item)
            continue
        if not equals or not key or not value:
            raise VizslaError(f"{short(item)} in {short(text)} is not an option; expected name=value")
        if key in found:
            raise VizslaError(f"the option {key} appears twice in {short(text)}")
        found[key] = value
    return found, tuple(values)


def split_options(text: str, separators: str) -> list[str]:
    """The parts of a text between separators, ignoring separators inside brackets.

    >>> split_options("P(rel=2, x=1)@5 R@10", " ,")
    ['P(rel=2, x=1)@5', 'R@10']
    """
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char in separators and depth <= 0:
            parts.append(text[start:at])
            start = at + 1
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


def format_call(name: str, options: Mapping[str, object]) -> str:
    """A call as text that reads back as the same call.

    >>> format_call("rrf", {"k": 60.0}), format_call("bm25", {"fields": ("title", "text")}), format_call("sum", {})
    ('rrf(k=60)', 'bm25(fields=title/text)', 'sum')
    """
    listed = ", ".join(f"{key}={format_value(value)}" for key, value in options.items())
    return f"{name}({listed})" if listed else name


def format_value(value: object) -> str:
    """A value of an option as text.

    >>> format_value(1e-7), format_value(True), format_value(("title", "text"))
    ('1e-07', 'true', 'title/text')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, tuple):
        return "/".join(map(str, value))
    return str(value)


def _weight(written: str, text: str) -> float:
    try:
        weight = float(written)
    except ValueError:
        weight = math.nan
    if not math.isfinite(weight):
        raise VizslaError(f"{short(written)} in {short(text)} is not a weight; expected a number")
    return weight


def _call_at(text: str, at: int, what: str, example: str) -> tuple[Call, int]:
    """The call that starts at a character, and where it ends."""
    match = _NAME.match(text, at)
    if match is None:
        raise VizslaError(f"{short(text)} is not a {what}: expected a name at character {at + 1}, as in {example}")
    end, written = match.end(), ""
    if text[end : end + 1] == "(":
        start, end = end, _closing_bracket(text, end, what)
        written = text[start + 1 : end - 1].strip()
        end = _BLANKS.match(text, end).end()  # type: ignore[union-attr]
    options, unnamed = _options_of(written, text, unnamed=True)
    return Call(match["name"], options, text, written, unnamed), end


def _closing_bracket(text: str, start: int, what: str) -> int:
    """The position after the bracket that closes the one at `start`."""
    depth = 0
    for bracket in _BRACKET.finditer(text, start):
        depth += 1 if bracket[0] == "(" else -1
        if depth == 0:
            return bracket.end()
        if depth > MAX_DEPTH:
            raise VizslaError(f"{short(text)} is not a {what}: brackets nest at most {MAX_DEPTH} deep")
    raise VizslaError(f"{short(text)} is not a {what}: the bracket at character {start + 1} is never closed")
