"""Numbers as text, printed so that they read back as the same, and texts quoted in messages."""

from __future__ import annotations

_MAX_DIGITS = 18  # fits in 64 bits; Python's own error for thousands of digits would be confusing


def number_text(value: float) -> str:
    """The shortest text that reads back as the same number.

    >>> number_text(2.0), number_text(1.23456789), number_text(1e-7)
    ('2', '1.23456789', '1e-07')
    """
    return repr(float(value)).removesuffix(".0")


def whole_number(text: str) -> int:
    """The whole number of at most 18 digits in a text; raises a ValueError for anything else.

    >>> whole_number("1536")
    1536
    """
    if len(text.strip().lstrip("+-")) > _MAX_DIGITS:
        raise ValueError("too many digits")
    return int(text)


def short(text: str, max_length: int = 80) -> str:
    """A text in quotes for a message, cut if it is long.

    >>> short("bm25"), short("bm25 + " * 100, 10)
    ("'bm25'", "'bm25 + bm2...'")
    """
    return repr(text if len(text) <= max_length else f"{text[:max_length]}...")
