"""Numbers as text: printed so that they read back as the same, and read as what a machine can hold."""

from __future__ import annotations

_MOST_DIGITS = 18  # what fits 64 bits; Python itself refuses thousands of digits, in words of its own


def number_text(value: float) -> str:
    """The shortest text that reads back as the same number.

    >>> number_text(2.0), number_text(1.23456789), number_text(1e-7)
    ('2', '1.23456789', '1e-07')
    """
    return repr(float(value)).removesuffix(".0")


def whole_number(text: str) -> int:
    """A whole number of at most 18 digits; a ValueError for anything else.

    >>> whole_number("1536")
    1536
    """
    if len(text.strip().lstrip("+-")) > _MOST_DIGITS:
        raise ValueError("too many digits")
    return int(text)


def short(text: str, most: int = 80) -> str:
    """A text as it is quoted in a sentence, cut where it is long.

    >>> short("bm25"), short("bm25 + " * 100, 10)
    ("'bm25'", "'bm25 + bm2...'")
    """
    return repr(text if len(text) <= most else f"{text[:most]}...")
