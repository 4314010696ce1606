"""Stop words by language."""

from __future__ import annotations

from functools import cache
from importlib import resources

from vizsla.errors import UnknownNameError


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
