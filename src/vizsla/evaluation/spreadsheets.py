"""Texts in the cells of a spreadsheet: none of them is computed as a formula."""

from __future__ import annotations

_FORMULA = tuple("=+-@'")


def quote_formula(text: str) -> str:
    """A text for a cell, behind a quotation mark if a spreadsheet would compute it; see `unquote_formula`.

    >>> quote_formula("=1+1"), quote_formula("bm25")
    ("'=1+1", 'bm25')
    """
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


def unquote_formula(text: str) -> str:
    """The text that `quote_formula` was given.

    >>> unquote_formula(quote_formula("=1+1")), unquote_formula("'tis")
    ('=1+1', "'tis")
    """
    return text[1:] if text.startswith("'") and text[1:].lstrip().startswith(_FORMULA) else text
