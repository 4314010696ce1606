"""Where sentences end."""

from __future__ import annotations

import re

_ABBREVIATIONS = (
    "al approx apr art aug ave ca capt cf cmdr co col corp dec dept dr ed eds eg esp est etc feb fig ft gen gov hon ie "
    "inc jan jr jul jun lt ltd maj mar messrs mr mrs ms mt nd no nov oct op pl pp prof pt rep rev sen sep sept sgt sr "
    "st vol vols vs"
)
_ABBREVIATED = frozenset(_ABBREVIATIONS.split())
_END = re.compile(r"""[.!?]+["'”’)\]]*\s+(?=["'“‘(\[]*[A-Z0-9À-ÖØ-Þ])""")
_LAST = re.compile(r"([^\s(]+?)\.$")


def sentences_of(text: str) -> list[str]:
    """The sentences of an English text: a full stop ends one unless it belongs to an initial or an abbreviation.

    >>> sentences_of("Dr. J. Smith left in 1990. Why? Nobody knows.")
    ['Dr. J. Smith left in 1990.', 'Why?', 'Nobody knows.']
    """
    found, first = [], 0
    for match in _END.finditer(text):
        before = text[first : match.end()].rstrip()
        if _ends_in_abbreviation(before):
            continue
        found.append(before)
        first = match.end()
    return [s for s in [*found, text[first:].strip()] if s]


def _ends_in_abbreviation(text: str) -> bool:
    last = _LAST.search(text)
    if last is None:
        return False
    word = last[1]
    initial = len(word) == 1 and word.isupper() and word != "I"
    return initial or "." in word or word.lower() in _ABBREVIATED
