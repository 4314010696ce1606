"""Foreign text made harmless: names, ids, titles and texts of others reach terminals and pages only through here."""

from __future__ import annotations

import re

# Control characters of both kinds (the second are read as escapes, too), marks and overrides that turn the direction
# of writing, separators that some readers take for line ends, annotations, and halves of characters.
_HARMFUL = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\ud800-\udfff"
_ON_ONE_LINE = re.compile(f"[{_HARMFUL}]")
_ON_LINES = re.compile(f"(?![\t\n])[{_HARMFUL}]")


def harmless(text: str, *, lines: bool = False) -> str:
    r"""A text whose characters do nothing but show: those that would act are spelt out.

    `lines`: it may have several, so that tabs and line ends stay what they are.

    >>> print(harmless("a title\x1b[2J\nand \u202eanother"))
    a title\x1b[2J\nand \u202eanother
    >>> harmless("two\nlines", lines=True)
    'two\nlines'
    """
    return (_ON_LINES if lines else _ON_ONE_LINE).sub(_spelt_out, text)


def harmless_json(text: str) -> str:
    r"""JSON with the same characters as escapes of its own: the data stay what they are.

    >>> print(harmless_json('["\u202e"]'))
    ["\u202e"]
    """
    return _ON_LINES.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _spelt_out(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
