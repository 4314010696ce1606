"""Whether a passage holds an answer to a question, matched as DPR does.

A text matches if its words occur in the passage in the same order; both are lower-cased and decomposed (NFD). A word is
a sequence of letters, digits and marks, and every other visible character is a word of its own. A regular expression
matches anywhere in the passage, regardless of case. (An answer without any word matches nothing here; in DPR's own code
it matches every passage.)
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache

import numpy as np


@cache
def _word_pattern() -> re.Pattern[str]:
    """Matches a sequence of letters, digits and marks, or any other single character that is visible.

    Python's regular expressions have no Unicode categories, so the classes are written out as ranges.
    """
    inside: list[str] = []
    outside: list[str] = []
    for first, last, group in _category_ranges():
        text = f"{re.escape(chr(first))}-{re.escape(chr(last))}"
        (inside if group == "word" else outside).append(text)
    return re.compile(f"[{''.join(inside)}]+|[^{''.join(inside)}{''.join(outside)}]")


def _category_ranges() -> Iterable[tuple[int, int, str]]:
    """Ranges of code points that are part of words (L, N, M) or never part of words (Z, C)."""
    start, current = 0, ""
    for code in range(sys.maxunicode + 2):
        category = unicodedata.category(chr(code))[0] if code <= sys.maxunicode else "end"
        group = "word" if category in "LNM" else "none" if category in "ZC" else "sign"
        if group != current or code > sys.maxunicode:
            if current in ("word", "none"):
                yield start, code - 1, current
            start, current = code, group


def words_of(text: str) -> list[str]:
    """The words of a text as DPR's tokenizer finds them, in lower case.

    >>> words_of("Zoe's 2nd dog (1999)")
    ['zoe', "'", 's', '2nd', 'dog', '(', '1999', ')']
    """
    return [word.lower() for word in _word_pattern().findall(unicodedata.normalize("NFD", text))]


@lru_cache(maxsize=50_000)
def _joined(text: str) -> str:
    """A text's words between separators that no word contains, so that a sequence of words is a substring."""
    return "\x00" + "\x00".join(words_of(text)) + "\x00"


def has_answer(text: str, answers: Sequence[str], *, regex: bool = False) -> bool:
    """Whether a text holds one of the answers.

    >>> has_answer("It was built in 1889 by Gustave Eiffel.", ["gustave eiffel", "Eiffel"])
    True
    >>> has_answer("The towers of Paris", ["tower"]), has_answer("The towers", ["tow.r"], regex=True)
    (False, True)
    """
    if regex:
        patterns = [p for p in map(_pattern, answers) if p is not None]
        return any(p.search(unicodedata.normalize("NFD", text)) for p in patterns)
    possible = [answer for answer in answers if _is_possible(text, answer)]
    if not possible:
        return False
    joined = _joined(text)
    return any(wanted != "\x00\x00" and wanted in joined for wanted in map(_joined, possible))


def _is_possible(text: str, answer: str) -> bool:
    """A quick check whether a text may hold an answer: an ASCII text must contain the answer's longest word."""
    longest = _longest_word(answer)
    return not longest or not text.isascii() or longest in text.lower()


@lru_cache(maxsize=50_000)
def _longest_word(answer: str) -> str:
    return max(words_of(answer), key=len, default="") if answer.isascii() else ""


@lru_cache(maxsize=50_000)
def _pattern(answer: str) -> re.Pattern[str] | None:
    """A compiled pattern; None for an invalid one, which matches nothing, as in DPR."""
    try:
        return re.compile(unicodedata.normalize("NFD", answer), re.IGNORECASE | re.UNICODE | re.MULTILINE)
    except re.error:
        return None


def answer_rank(texts: Iterable[str], answers: Sequence[str], *, regex: bool = False) -> int | None:
    """The rank, from 1, of the first text that holds an answer; None if none does.

    >>> answer_rank(["nothing", "in Paris"], ["paris"])
    2
    """
    return next((rank for rank, text in enumerate(texts, 1) if has_answer(text, answers, regex=regex)), None)


def accuracy(ranks: Mapping[str, int | None], depths: Sequence[int]) -> dict[int, float]:
    """The share of questions with an answer within each depth, from the ranks of `answer_rank`.

    >>> accuracy({"a": 1, "b": 7, "c": None, "d": 30}, [5, 20, 100])
    {5: 0.25, 20: 0.5, 100: 0.75}
    """
    reached = np.array([rank or np.inf for rank in ranks.values()])
    return {k: float((reached <= k).mean()) if len(reached) else 0.0 for k in depths}
