"""What is done to the words of a text: filters, each a value that prints as it is parsed ("stop:german")."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from vizsla.errors import UnknownNameError, VizslaError
from vizsla.numbers import short, whole_number
from vizsla.text.porter import stem_words
from vizsla.text.stopwords import stop_words
from vizsla.text.words import MARKS, word_classes


class Token(NamedTuple):
    """A term and the characters of the text it came from."""

    term: str
    start: int
    end: int


TermChange = Callable[[Sequence[str]], list[str | None]]
TokenChange = Callable[[list[Token]], list[Token]]


@dataclass(frozen=True, eq=False)
class Filter:
    """One step of an analyzer, by name and option.

    A filter over terms changes or drops (None) each term for itself, so each distinct word is worked out once,
    however often it occurs. A filter over tokens sees a text's tokens in order and may join neighbours.
    """

    name: str
    option: str = ""
    terms: TermChange | None = None
    tokens: TokenChange | None = None

    def __str__(self) -> str:
        return f"{self.name}:{self.option}" if self.option else self.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def apply(self, tokens: list[Token]) -> list[Token]:
        """The tokens of one text, after this filter."""
        if self.tokens is not None:
            return self.tokens(tokens)
        assert self.terms is not None
        changed = self.terms([t.term for t in tokens])
        return [Token(term, t.start, t.end) for term, t in zip(changed, tokens, strict=True) if term is not None]


def _lower(terms: Sequence[str]) -> list[str | None]:
    """Lower case character by character: no Greek final sigma, and I with a dot becomes a plain i."""
    return [t.lower() if t.isascii() else t.replace("\u0130", "i").replace("\u03a3", "\u03c3").lower() for t in terms]


def _possessive(terms: Sequence[str]) -> list[str | None]:
    """Take off an English 's, straight, typographic or full-width."""
    return [t[:-2] if t[-1:] in ("s", "S") and t[-2:-1] in ("'", "\u2019", "\uff07") else t for t in terms]


def _stop(language: str) -> TermChange:
    words = stop_words(language)
    return lambda terms: [None if t in words else t for t in terms]


def _porter(terms: Sequence[str]) -> list[str | None]:
    return list(stem_words(terms))


@cache
def snowball_languages() -> tuple[str, ...]:
    """The languages PyStemmer has a stemmer for."""
    import Stemmer

    return tuple(sorted(set(Stemmer.algorithms()) - {"porter", "dutch_porter"}))


def _snowball(language: str) -> TermChange:
    import Stemmer

    if language not in Stemmer.algorithms():
        raise UnknownNameError("Snowball stemmer", language, snowball_languages())
    stemmer = Stemmer.Stemmer(language, 0)
    return lambda terms: list(stemmer.stemWords(list(terms)))


def _longest(option: str) -> TermChange:
    try:
        most = whole_number(option)
    except ValueError:
        most = 0
    if most < 1:
        raise VizslaError(f"the filter 'longest' wants a number of characters, as in longest:64, not {short(option)}")
    return lambda terms: [t if len(t) <= most else None for t in terms]


_HALF_AND_FULL_WIDTH = re.compile("[\uff01-\uff9f]+")


def _width(terms: Sequence[str]) -> list[str | None]:
    """Full-width Latin letters and half-width katakana in their ordinary forms."""

    def ordinary(match: re.Match[str]) -> str:
        return unicodedata.normalize("NFKC", match[0])

    return [t if t.isascii() else _HALF_AND_FULL_WIDTH.sub(ordinary, t) for t in terms]


def _is_cjk(term: str) -> bool:
    """Whether a word is made of Chinese, Japanese or Korean characters and marks alone."""
    table, numbers = word_classes()
    kinds = {int(table[ord(c)]) for c in term}
    characters = {numbers[n] for n in ("Han", "Hiragana", "Katakana", "Hangul")}
    return bool(kinds & characters) and kinds <= characters | {numbers[n] for n in MARKS}


def _bigrams(tokens: list[Token]) -> list[Token]:
    """Pairs of neighbouring Chinese, Japanese and Korean characters; one alone stays single, other words stay whole."""
    out: list[Token] = []
    run: list[Token] = []

    def flush() -> None:
        if len(run) == 1:
            out.append(run[0])
        out.extend(Token(a.term + b.term, a.start, b.end) for a, b in pairwise(run))
        run.clear()

    for token in tokens:
        if not _is_cjk(token.term):
            flush()
            out.append(token)
            continue
        if run and run[-1].end != token.start:
            flush()
        run.extend(_characters(token))
    flush()
    return out


def _characters(token: Token) -> list[Token]:
    """One token a character. Where the width filter joined characters, each keeps the place of the whole."""
    if token.end - token.start != len(token.term):
        return [Token(c, token.start, token.end) for c in token.term]
    return [Token(c, token.start + i, token.start + i + 1) for i, c in enumerate(token.term)]


def _plain(change: TermChange) -> Callable[[str, str], Filter]:
    """A maker of filters that take no option."""

    def make(name: str, option: str) -> Filter:
        if option:
            raise VizslaError(f"the filter {name!r} takes no option, but got {option!r}")
        return Filter(name, terms=change)

    return make


_MAKERS: dict[str, Callable[[str, str], Filter]] = {
    "lower": _plain(_lower),
    "possessive": _plain(_possessive),
    "porter": _plain(_porter),
    "width": _plain(_width),
    "stop": lambda name, option: Filter(name, option, terms=_stop(option)),
    "snowball": lambda name, option: Filter(name, option, terms=_snowball(option)),
    "longest": lambda name, option: Filter(name, option, terms=_longest(option)),
    "bigrams": lambda name, option: Filter(name, option, tokens=_bigrams),
}


def parse_filter(text: str) -> Filter:
    """A filter from its text form.

    >>> stop = parse_filter("stop:lucene-english")
    >>> str(stop), stop.terms(["the", "dog"])
    ('stop:lucene-english', [None, 'dog'])
    """
    name, _, option = text.strip().partition(":")
    if name not in _MAKERS:
        raise UnknownNameError("filter", name, tuple(_MAKERS))
    return _MAKERS[name](name, option)


def register_filter(name: str, function: Callable[[str], str | None]) -> None:
    """Make a function of your own usable in analyzers; it gives the new term, or None to drop it.

    An index remembers the name only: register the function again before opening the index elsewhere.

    >>> register_filter("no-digits", lambda term: None if term.isdigit() else term)
    >>> parse_filter("no-digits").terms(["7", "seven"])
    [None, 'seven']
    """
    _MAKERS[name] = _plain(lambda terms: [function(t) for t in terms])
