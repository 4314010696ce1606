"""Text to tokens: analyzers, each a value that can be saved and compared."""

from __future__ import annotations

from vizsla.text.analyzer import Analyzer, analyzer_names
from vizsla.text.filters import TOKEN_FILTERS, Token, TokenFilter, register_filter
from vizsla.text.lexicon import Lexicon
from vizsla.text.tokenizers import WordPiece

__all__ = [
    "TOKEN_FILTERS",
    "Analyzer",
    "Lexicon",
    "Token",
    "TokenFilter",
    "WordPiece",
    "analyzer_names",
    "register_filter",
]
