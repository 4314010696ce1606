"""How many tokens a text has for a language model, about."""

from __future__ import annotations

import re
from functools import lru_cache

from vizsla.errors import VizslaError, kind_of

_PIECE = re.compile(
    r"(?P<latin>[A-Za-z]+)|(?P<digits>[0-9]+)|(?P<wide>[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af])"
    r"|(?P<letters>[^\W\d_]+)|(?P<marks>(?P<mark>[^\w\s]|_)(?P=mark)*)|(?P<other>\S)"
)
_PER_TOKEN = {"latin": 6, "digits": 3, "wide": 1, "letters": 3, "marks": 4, "other": 1}
"""Characters of one token, in a run of characters of one kind."""


def count_tokens(text: str) -> int:
    """About how many tokens a text has for a language model. Vocabularies differ; this is on the high side for English.

    A run of letters counts a token for each 6 characters (3 outside of ASCII), a run of digits one for each 3, and each
    Chinese, Japanese or Korean character one. White space counts nothing, so texts joined by blanks add up.

    >>> count_tokens("Vizslas point and retrieve."), count_tokens("19 June 2024"), count_tokens("")
    (7, 4, 0)
    """
    if not isinstance(text, str):
        raise VizslaError(f"tokens are counted in a text, not in {kind_of(text)}")
    return sum(map(word_tokens, text.split()))


@lru_cache(1 << 16)
def word_tokens(word: str) -> int:
    """About how many tokens a word without white space has; see `count_tokens`."""
    return sum(-(-len(m[0]) // _PER_TOKEN[m.lastgroup or "other"]) for m in _PIECE.finditer(word))
