"""Analyzers: from text to terms. Each is a value that can be printed, parsed, saved and compared."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np

from vizsla.errors import UnknownNameError, VizslaError
from vizsla.lazy import cached_property
from vizsla.text.filters import Token, TokenFilter, parse_token_filter, snowball_languages
from vizsla.text.languages import LUCENE_ENGLISH, PIPELINES, PROBE
from vizsla.text.lexicon import Lexicon, cuts_of
from vizsla.text.plain_forms import PlainSteps
from vizsla.text.scan import find_words
from vizsla.text.tokenizers import TOKENIZERS, Tokenizer, WordPiece, Words, parse_tokenizer

_MAX_CACHED_WORDS = 100_000


@dataclass(frozen=True)
class Analyzer:
    """A tokenizer and the filters its tokens pass through.

    >>> analyzer = Analyzer.parse("lucene-english")
    >>> analyzer("The dogs' bones")
    ['dog', 'bone']
    >>> analyzer.tokens("The dogs' bones")
    [Token(term='dog', start=4, end=8), Token(term='bone', start=10, end=15)]
    >>> analyzer == Analyzer.parse("standard | possessive | lower | stop:lucene-english | porter")
    True
    >>> str(Analyzer.parse("standard | lower | snowball:german"))
    'standard | lower | snowball:german'
    """

    tokenizer: Tokenizer
    filters: tuple[TokenFilter, ...] = ()

    @classmethod
    def parse(cls, text: str, folder: Path | None = None) -> Analyzer:
        """An analyzer from its name or its pipeline; files it names are looked for in `folder` first.

        A text that `save` gave ends in `# fingerprint`, and an analyzer that gives other terms now is refused.
        """
        text, _, fingerprint = (part.strip() for part in text.partition("#"))
        analyzer = cls._parse(text, folder)
        if fingerprint and fingerprint != analyzer.fingerprint:
            raise VizslaError(
                f"the analyzer {text} gives other terms than when this was written: install the PyStemmer, the Python "
                "or the filter of your own of then, or build the index again"
            )
        return analyzer

    @classmethod
    def _parse(cls, text: str, folder: Path | None) -> Analyzer:
        pipeline = _pipeline(text)
        first, *rest = (part.strip() for part in pipeline.split("|"))
        name = first.partition(":")[0]
        if name not in TOKENIZERS:
            raise UnknownNameError("analyzer or tokenizer", name, ["standard", *analyzer_names()])
        return cls(parse_tokenizer(first, folder), tuple(parse_token_filter(part) for part in rest))

    def __str__(self) -> str:
        text = " | ".join([str(self.tokenizer), *map(str, self.filters)])
        return _NAMES.get(text, text)

    def __call__(self, text: str) -> list[str]:
        """The terms of a text, in order."""
        if self._terms_by_word is None or self.tokenizer.segmenter is None:
            return self._joined_terms(text)
        return [term for terms in self.terms_by_word(text) for term in terms]

    def _joined_terms(self, text: str) -> list[str]:
        """The terms of an analyzer that looks at neighbours; without tokens, where its filters can do so."""
        if type(self.tokenizer) is not Words or _joins(self.filters) != 1:
            return [token.term for token in self.tokens(text)]
        places: Sequence[Sequence[int]] = find_words(text, self.tokenizer.segmenter)
        terms = [text[a:b] for a, b in places]
        for step in self.filters:
            if step.terms is None:
                assert step.joined is not None
                terms, places = step.joined(terms, places), ()
                continue
            changed = step.terms(terms)
            if None in changed and places:
                places = [place for place, term in zip(places, changed, strict=True) if term is not None]
            terms = [term for term in changed if term is not None]
        return terms

    def terms_by_word(self, text: str) -> list[tuple[str, ...]]:
        """The terms of each word, none for a word that is dropped. If the analyzer does not work word by word, each
        term counts as a word.

        >>> Analyzer.parse("lucene-english").terms_by_word("state of the art")
        [('state',), (), (), ('art',)]
        """
        known, segmenter = self._terms_by_word, self.tokenizer.segmenter
        if known is None or segmenter is None:
            return [(term,) for term in self(text)]
        words = [text[a:b] for a, b in find_words(text, segmenter)]
        try:
            return [known[word] for word in words]
        except KeyError:
            known = self._learned(words, known)
            return [known[word] for word in words]

    @cached_property
    def _terms_by_word(self) -> dict[str, tuple[str, ...]] | None:
        """A cache of the terms of words, since queries share words; None if words depend on their neighbours."""
        return {} if self.works_word_by_word else None

    def _learned(self, words: Sequence[str], known: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        """The known words and these; when there are too many, a new dict with these alone."""
        if len(known) > _MAX_CACHED_WORDS:
            known = self.__dict__["_terms_by_word"] = {}
        new = [word for word in dict.fromkeys(words) if word not in known]
        terms, counts = self.terms_of_words(new)
        ends = accumulate(counts)
        known.update({w: tuple(terms[end - n : end]) for w, n, end in zip(new, counts, ends, strict=True)})
        return known

    def tokens(self, text: str) -> list[Token]:
        """The terms of a text with the characters each came from."""
        tokens = self.tokenizer.tokens(text)
        for step in self.filters:
            tokens = step.apply(tokens)
        return tokens

    def lexicon(self) -> Lexicon:
        """A fast encoder of many texts into term numbers."""
        return Lexicon(self)

    def save(self, folder: Path) -> str:
        """Write the files the analyzer needs to a folder; gives the text to parse beside them.

        The text ends in a fingerprint, unless nothing but tables of Vizsla and files with a hash decide the terms.
        """
        text = " | ".join([self.tokenizer.save(folder), *map(str, self.filters)])
        fixed = text == LUCENE_ENGLISH or (isinstance(self.tokenizer, WordPiece) and not self.filters)
        return _NAMES.get(text, text) + ("" if fixed else f" # {self.fingerprint}")

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the terms of a fixed text, in which most scripts and languages occur."""
        terms = "\n".join(self(PROBE)).encode("utf-8", "surrogatepass")
        return hashlib.sha256(terms).hexdigest()[:12]

    @cached_property
    def works_word_by_word(self) -> bool:
        """Whether a word's terms depend on nothing but the word."""
        return self.tokenizer.segmenter is not None and all(f.terms is not None for f in self.filters)

    @cached_property
    def cuts(self) -> np.ndarray | None:
        """How kernels cut the words of the segmenter further, see `cuts_of`; None where they cannot do all of it."""
        return cuts_of(self.tokenizer, self.filters)

    @cached_property
    def plain_steps(self) -> PlainSteps | None:
        """What becomes of words of ASCII characters, for a kernel; None where a kernel cannot do all of it."""
        steps = [step.plain for step in self.filters if step.plain is not None]
        cuts_words = type(self.tokenizer).split is not Tokenizer.split
        return None if cuts_words or len(steps) < len(self.filters) else PlainSteps(steps)

    def terms_of_words(self, words: Sequence[str]) -> tuple[list[str], list[int]]:
        """The terms of words as kernels cut them, all in one list, and how many each word has."""
        terms, counts = self.tokenizer.split(words)
        if len(terms) > 2 * len(words) and self.filters:  # pieces of words, the same ones again and again
            pieces = list(dict.fromkeys(terms))
            found = dict(zip(pieces, self._filtered(pieces), strict=True))
            cut = [found[term] for term in terms]
            return [t for t in cut if t is not None], _without_dropped(cut, counts)
        for step in self.filters:
            if step.terms is None:  # pairs of characters come as words
                continue
            changed = step.terms(terms)
            if None in changed:
                counts = _without_dropped(changed, counts)
            terms = [t for t in changed if t is not None]
        return terms, counts

    def _filtered(self, terms: Sequence[str]) -> list[str | None]:
        """What each term becomes, None if it is dropped."""
        found: list[str | None] = list(terms)
        for step in self.filters:
            assert step.terms is not None
            places = [i for i, term in enumerate(found) if term is not None]
            for i, changed in zip(places, step.terms([found[i] or "" for i in places]), strict=True):
                found[i] = changed
        return found


def _joins(filters: Sequence[TokenFilter]) -> int:
    """How many filters join terms; 2 if one of them needs tokens."""
    return sum(0 if f.terms is not None else 1 if f.joined is not None else 2 for f in filters)


def _without_dropped(terms: Sequence[str | None], counts: list[int]) -> list[int]:
    """How many terms each word has left."""
    if len(terms) == len(counts) == sum(counts):
        return [0 if term is None else n for term, n in zip(terms, counts, strict=True)]
    left, at = [], 0
    for n in counts:
        left.append(n - list(terms[at : at + n]).count(None))
        at += n
    return left


def _pipeline(text: str) -> str:
    """The pipeline behind a name, or the pipeline itself."""
    name = text.strip()
    if name in PIPELINES:
        return PIPELINES[name]
    if name.startswith("snowball-"):
        language = name.removeprefix("snowball-")
        if language not in snowball_languages():
            raise UnknownNameError("Snowball stemmer", language, snowball_languages())
        return f"standard | normalize:nfc | lower | stop:{language} | snowball:{language}"
    if not name:
        raise VizslaError(f"an analyzer is a name or a pipeline such as {LUCENE_ENGLISH!r}, not an empty text")
    return name


def analyzer_names() -> list[str]:
    """The analyzers that have a name of their own."""
    fixed = [*PIPELINES, "whitespace", "wordpiece"]
    return fixed + [f"snowball-{language}" for language in snowball_languages()]


_NAMES = {pipeline: name for name, pipeline in PIPELINES.items()}
