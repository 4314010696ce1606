"""How kernels cut words further: runs of scripts without spaces into pieces, neighbouring characters into pairs.

Each character has a number that says what is done to a word that it begins, or is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from vizsla.text.filters import TokenFilter, is_bigrams
from vizsla.text.tokenizers import Tokenizer, Trigrams, Words
from vizsla.text.words import CODE_POINTS, is_cjk_class, is_unspaced_class, word_classes

WHOLE, PAIRED, CHANGED, IN_PIECES = range(4)
"""A word stays whole; characters of pairs; those of pairs that a filter changes, so that Python must look; pieces."""
_JAMO = ((0x1100, 0x1200), (0xA960, 0xA980), (0xD7B0, 0xD800))
"""Parts of Korean characters, which become one where they stand together."""
NO_CUTS = np.zeros(0, np.uint8)


def cuts_of(tokenizer: Tokenizer, filters: Sequence[TokenFilter]) -> np.ndarray | None:
    """The numbers of all characters for an analyzer, none if words are not cut; None if kernels cannot cut for it.

    >>> from vizsla.text import Analyzer
    >>> cuts = Analyzer.parse("cjk").cuts
    >>> [int(cuts[ord(c)]) for c in "a中ｶ"], len(Analyzer.parse("lucene-english").cuts), Analyzer.parse("code").cuts
    ([0, 1, 2], 0, array([], dtype=uint8))
    """
    if tokenizer.segmenter is None:
        return None
    if type(tokenizer) is Trigrams and all(step.of_characters for step in filters):
        return _pieces()
    if all(step.terms is not None for step in filters):
        return NO_CUTS
    places = [i for i, step in enumerate(filters) if step.terms is None]
    before = tuple(filters[: places[0]])
    if type(tokenizer) is not Words or len(places) > 1 or not is_bigrams(filters[places[0]]):
        return None
    return _pairs(before) if all(step.of_characters for step in before) else None


@lru_cache(1)
def _pieces() -> np.ndarray:
    cuts = np.zeros(CODE_POINTS, np.uint8)
    cuts[is_unspaced_class()[word_classes()[0]]] = IN_PIECES
    return cuts


@lru_cache(8)
def _pairs(filters: tuple[TokenFilter, ...]) -> np.ndarray:
    """Numbers for bigrams behind filters; what these change is left to them, such as half-width katakana."""
    codes = np.flatnonzero(is_cjk_class()[word_classes()[0]])
    characters = [chr(c) for c in codes.tolist()]
    changed: Sequence[str | None] = characters
    for step in filters:
        assert step.terms is not None
        changed = step.terms([c or "" for c in changed])
    cuts = np.zeros(CODE_POINTS, np.uint8)
    cuts[codes] = [PAIRED if a == b else CHANGED for a, b in zip(characters, changed, strict=True)]
    for first, end in _JAMO:
        cuts[first:end] = CHANGED
    return cuts
