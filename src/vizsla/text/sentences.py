"""Where sentences end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

_ABBREVIATIONS = (
    "al approx apr art aug ave ca capt cf cmdr co col corp dec dept dr ed eds eg esp est etc feb fig ft gen gov hon ie "
    "inc jan jr jul jun lt ltd maj mar messrs mr mrs ms mt nd no nov oct op pl pp prof pt rep rev sen sep sept sgt sr "
    "st vol vols vs"
)
_ABBREVIATED = frozenset(_ABBREVIATIONS.split())
_END = re.compile(r"""[.!?]+["'”’)\]]*\s+(?=["'“‘(\[]*[A-Z0-9À-ÖØ-ÞΑ-ΩА-Я])|[。！？]+["”’」』）]*\s*(?=\S)""")
_LONGEST = 40  # characters of a word that may be an abbreviation
_LAST = re.compile(r"([^\s(]+?)\.$")


def sentences_of(text: str) -> list[str]:
    """The sentences of a text: a full stop ends one unless it belongs to an initial or an English abbreviation.

    >>> sentences_of("Dr. J. Smith left in 1990. Why? Nobody knows.")
    ['Dr. J. Smith left in 1990.', 'Why?', 'Nobody knows.']
    """
    starts = [0, *sentence_starts(text), len(text)]
    return [s for a, b in pairwise(starts) if (s := text[a:b].strip())]


def sentence_starts(text: str) -> Iterator[int]:
    """Where the second and all further sentences of a text begin.

    >>> list(sentence_starts("Why? Nobody knows."))
    [5]
    """
    first = 0
    for match in _END.finditer(text):
        tail = max(first, match.start() - _LONGEST)
        if not _ends_in_abbreviation(text[tail : match.end()].rstrip()):
            first = match.end()
            yield first


def _ends_in_abbreviation(text: str) -> bool:
    last = _LAST.search(text)
    if last is None:
        return False
    word = last[1]
    initial = len(word) == 1 and word.isupper() and word != "I"
    return initial or "." in word or word.lower() in _ABBREVIATED
