"""Token filters: what an analyzer does to the words of a text. Each is a value that prints as it is parsed.

A filter may have one option after a colon, as in `stop:german`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import resources
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from vizsla.errors import UnknownNameError, VizslaError
from vizsla.numbers import short, whole_number
from vizsla.spec import Option, Registry
from vizsla.text import normalizing, plain_forms
from vizsla.text.plain_forms import PlainStep
from vizsla.text.porter import stem_words
from vizsla.text.stemmers import language_stemmer
from vizsla.text.words import MARKS, is_cjk_class, word_classes


@cache
def _lists() -> dict[str, frozenset[str]]:
    source = resources.files("vizsla.text").joinpath("data/stopwords.txt").read_text("utf-8")
    lines = (line.split() for line in source.splitlines() if not line.startswith("#"))
    return {language: frozenset(words) for language, *words in lines}


def stop_words(language: str) -> frozenset[str]:
    """The stop words of a language, or Lucene's English ones.

    >>> "the" in stop_words("lucene-english"), len(stop_words("lucene-english"))
    (True, 33)
    """
    lists = _lists()
    if language not in lists:
        raise UnknownNameError("list of stop words", language, tuple(lists))
    return lists[language]


def has_stop_words(language: str) -> bool:
    """Whether there is a list of stop words of this name."""
    return language in _lists()


class Token(NamedTuple):
    """A term and the characters of the text it came from."""

    term: str
    start: int
    end: int


TermChange = Callable[[Sequence[str]], Sequence[str | None]]
TokenChange = Callable[[list[Token]], list[Token]]
TermJoin = Callable[[Sequence[str], Sequence[Sequence[int]]], list[str]]


@dataclass(frozen=True, eq=False)
class TokenFilter:
    """One step of an analyzer, by name and option.

    A filter over terms changes or drops (None) each term by itself, so each distinct word is worked on once,
    however often it occurs. A filter over tokens sees a text's tokens in order and may join neighbours.
    """

    name: str
    option: str = ""
    terms: TermChange | None = None
    tokens: TokenChange | None = None
    joined: TermJoin | None = None
    """What `tokens` does, for a caller who needs the terms alone: terms and their places to terms."""
    of_characters: bool = False
    """Whether it only replaces characters, each by itself or with the marks and letters that belong to it."""
    plain: PlainStep | None = None
    """What `terms` does to words of ASCII characters, as a kernel does it."""

    def __str__(self) -> str:
        return f"{self.name}:{self.option}" if self.option else self.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenFilter) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def apply(self, tokens: list[Token]) -> list[Token]:
        """The tokens of one text, after this filter."""
        if self.tokens is not None:
            return self.tokens(tokens)
        assert self.terms is not None
        changed = self.terms([t.term for t in tokens])
        return [Token(term, t.start, t.end) for term, t in zip(changed, tokens, strict=True) if term is not None]


TOKEN_FILTERS = Registry[TokenFilter]("token filter", example="stop:german", separator=":")


_LOWER = {"": normalizing.lower, "greek": normalizing.lower_greek, "turkish": normalizing.lower_turkish}


@TOKEN_FILTERS.register(
    "lower",
    help="Lower case.",
    options=(Option("language", default="", help="greek or turkish, whose letters differ"),),
)
def lower_filter(language: str = "") -> TokenFilter:
    if language not in _LOWER:
        raise UnknownNameError("lower case of its own", language, tuple(filter(None, _LOWER)))
    plain = PlainStep(plain_forms.LOWER) if language != "turkish" else None
    return replace(_of_characters("lower", _LOWER[language], language), plain=plain)


def _possessive(terms: Sequence[str]) -> list[str | None]:
    """Take off an English 's, straight, typographic or full-width."""
    return [t[:-2] if t[-1:] in ("s", "S") and t[-2:-1] in ("'", "\u2019", "\uff07") else t for t in terms]


@TOKEN_FILTERS.register("possessive", help="Takes off an English 's.")
def possessive_filter() -> TokenFilter:
    return TokenFilter("possessive", terms=_possessive, plain=PlainStep(plain_forms.POSSESSIVE))


def _stop(language: str) -> TermChange:
    words = stop_words(language)
    return lambda terms: [None if t in words else t for t in terms]


@TOKEN_FILTERS.register(
    "stop", help="Drops stop words.", options=(Option("language", help="lucene-english, or a language such as german"),)
)
def stop_filter(language: str) -> TokenFilter:
    plain = PlainStep(plain_forms.STOP, stop_words(language))
    return TokenFilter("stop", language, terms=_stop(language), plain=plain)


@TOKEN_FILTERS.register("porter", help="The Porter stemmer.")
def porter_filter() -> TokenFilter:
    return TokenFilter("porter", terms=stem_words, plain=PlainStep(plain_forms.PORTER))


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


@TOKEN_FILTERS.register(
    "snowball", help="A Snowball stemmer.", options=(Option("language", help="a language such as german"),)
)
def snowball_filter(language: str) -> TokenFilter:
    return TokenFilter("snowball", language, terms=_snowball(language))


@TOKEN_FILTERS.register(
    "stem",
    help="The stemmer of Lucene's analyzer of a language.",
    options=(Option("language", help="a language such as arabic or french"),),
)
def stem_filter(language: str) -> TokenFilter:
    return TokenFilter("stem", language, terms=language_stemmer(language))


@TOKEN_FILTERS.register(
    "normalize",
    help="Spellings that differ in nothing but form, as one.",
    options=(Option("name", help="arabic, bengali, german, hindi, indic, persian, romanian, telugu, nfc or nfkc"),),
)
def normalize_filter(name: str) -> TokenFilter:
    change = normalizing.normalizer(name)
    if name == "nfc":
        return TokenFilter("normalize", name, normalizing.nfc, of_characters=True)
    return _of_characters("normalize", change, name)


@TOKEN_FILTERS.register("fold", help="Takes off accents, points and vowel signs.")
def fold_filter() -> TokenFilter:
    return _of_characters("fold", normalizing.fold)


@TOKEN_FILTERS.register("digits", help="Decimal digits of any script as 0 to 9.")
def digits_filter() -> TokenFilter:
    return _of_characters("digits", normalizing.digits)


@TOKEN_FILTERS.register(
    "elision",
    help="Takes off an article before an apostrophe.",
    options=(Option("language", help="french or italian"),),
)
def elision_filter(language: str) -> TokenFilter:
    return TokenFilter("elision", language, terms=normalizing.elision(language))


@TOKEN_FILTERS.register("apostrophe", help="Takes off an apostrophe and what follows.")
def apostrophe_filter() -> TokenFilter:
    return TokenFilter("apostrophe", terms=normalizing.before_apostrophe)


def _of_characters(name: str, change: Callable[[str], str], option: str = "") -> TokenFilter:
    return TokenFilter(name, option, terms=normalizing.over_all(change), of_characters=True)


def _longest(length: str) -> TermChange:
    try:
        limit = whole_number(length)
    except ValueError:
        limit = 0
    if limit < 1:
        raise VizslaError(f"the filter 'longest' takes a number of characters, as in longest:64, not {short(length)}")
    return lambda terms: [t if len(t) <= limit else None for t in terms]


@TOKEN_FILTERS.register(
    "longest", help="Drops words that are too long.", options=(Option("length", help="the most characters of a word"),)
)
def longest_filter(length: str) -> TokenFilter:
    return TokenFilter("longest", length, terms=_longest(length))


_HALF_AND_FULL_WIDTH = re.compile("[\u30a6-\u30fd]?[\uff01-\uff9f]+")


def _width(text: str) -> str:
    """Full-width Latin letters and half-width katakana in their ordinary forms."""
    return text if text.isascii() else _HALF_AND_FULL_WIDTH.sub(lambda m: unicodedata.normalize("NFKC", m[0]), text)


@TOKEN_FILTERS.register("width", help="Full-width Latin letters and half-width katakana in their ordinary forms.")
def width_filter() -> TokenFilter:
    return _of_characters("width", _width)


@lru_cache(1 << 14)
def _is_cjk(term: str) -> bool:
    """Whether a word is made of Chinese, Japanese or Korean characters and marks alone."""
    table, numbers = word_classes()
    classes = {int(table[ord(c)]) for c in term}
    characters = set(np.flatnonzero(is_cjk_class()).tolist())
    return bool(classes & characters) and classes <= characters | {numbers[n] for n in MARKS}


def _bigrams(tokens: list[Token]) -> list[Token]:
    """Pairs of neighbouring Chinese, Japanese and Korean characters; one alone stays single, other words stay whole."""
    out: list[Token] = []
    neighbours: list[Token] = []

    def flush() -> None:
        if len(neighbours) == 1:
            out.append(neighbours[0])
        out.extend(Token(a.term + b.term, a.start, b.end) for a, b in pairwise(neighbours))
        neighbours.clear()

    for token in tokens:
        if not _is_cjk(token.term):
            flush()
            out.append(token)
            continue
        if neighbours and neighbours[-1].end != token.start:
            flush()
        neighbours.extend(_characters(token))
    flush()
    return out


@TOKEN_FILTERS.register("bigrams", help="Pairs of neighbouring Chinese, Japanese and Korean characters.")
def bigrams_filter() -> TokenFilter:
    return TokenFilter("bigrams", tokens=_bigrams, joined=_bigram_terms)


def is_bigrams(step: TokenFilter) -> bool:
    """Whether a filter is that of bigrams."""
    return step.tokens is _bigrams


def _bigram_terms(terms: Sequence[str], places: Sequence[Sequence[int]]) -> list[str]:
    """As `_bigrams`, without a token for each character."""
    out: list[str] = []
    last, last_end, is_alone = "", -1, False  # the character before, and whether it is in no pair yet
    for term, (start, end) in zip(terms, places, strict=True):
        if not _is_cjk(term):
            out += (last, term) if is_alone else (term,)
            last, is_alone = "", False
            continue
        if last and last_end != start:
            if is_alone:
                out.append(last)
            last = ""
        for character in term:
            is_alone = not last
            if last:
                out.append(last + character)
            last = character
        last_end = end
    return [*out, last] if is_alone else out


def _characters(token: Token) -> list[Token]:
    """One token a character. Where the width filter joined characters, each keeps the place of the whole."""
    if token.end - token.start != len(token.term):
        return [Token(c, token.start, token.end) for c in token.term]
    return [Token(c, token.start + i, token.start + i + 1) for i, c in enumerate(token.term)]


def parse_token_filter(text: str) -> TokenFilter:
    """A token filter from its text form: a name, optionally with a colon and an option.

    >>> stop = parse_token_filter("stop:lucene-english")
    >>> str(stop), stop.terms(["the", "dog"])
    ('stop:lucene-english', [None, 'dog'])
    """
    name, _, value = text.strip().partition(":")
    entry = TOKEN_FILTERS[name]
    if value and not entry.options:
        raise VizslaError(f"the token filter {name!r} takes no option, but got {value!r}")
    if not entry.options:
        return entry.make()
    (option,) = entry.options
    try:
        return entry.make(option.read(value))
    except ValueError:
        raise VizslaError(f"{short(value)} is not {option.expected} for the token filter {name}") from None


def register_filter(name: str, function: Callable[[str], str | None]) -> None:
    """Make a function of your own usable in analyzers; it returns the new term, or None to drop the term.

    An index remembers the name only: register the function again before you open the index elsewhere. The name of a
    built-in filter is refused.

    >>> register_filter("no-digits", lambda term: None if term.isdigit() else term)
    >>> parse_token_filter("no-digits").terms(["7", "seven"])
    [None, 'seven']
    """

    def make() -> TokenFilter:
        return TokenFilter(name, terms=lambda terms: [function(term) for term in terms])

    make.__module__ = getattr(function, "__module__", None) or "builtins"  # never replaces that of another module
    TOKEN_FILTERS.register(name, help=function.__doc__ or "A filter of your own.")(make)
