"""Text from outside with its control characters escaped, so that it is safe to print in a terminal or on a page."""

from __future__ import annotations

import re

# Both ranges of control characters (terminals act on the second one, too), marks and overrides of the direction of
# writing, separators that some programs treat as line ends, annotations, and halves of surrogate pairs.
_HARMFUL = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\ud800-\udfff"
_ON_ONE_LINE = re.compile(f"[{_HARMFUL}]")
_ON_LINES = re.compile(f"(?![\t\n])[{_HARMFUL}]")


def harmless(text: str, *, lines: bool = False) -> str:
    r"""A text whose control characters are escaped.

    `lines`: the text may have several lines; tabs and line ends are not escaped.

    >>> print(harmless("a title\x1b[2J\nand \u202eanother"))
    a title\x1b[2J\nand \u202eanother
    >>> harmless("two\nlines", lines=True)
    'two\nlines'
    """
    return (_ON_LINES if lines else _ON_ONE_LINE).sub(_escaped, text)


def harmless_json(text: str) -> str:
    r"""A JSON text with the same characters as JSON escapes, so that it parses to the same data.

    >>> print(harmless_json('["\u202e"]'))
    ["\u202e"]
    """
    return _ON_LINES.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
