"""Text to tokens: analyzers, each a value that can be saved and compared."""

from __future__ import annotations

from vizsla.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vizsla.text.analyzer import Analyzer, analyzer_names
    from vizsla.text.filters import TOKEN_FILTERS, Token, TokenFilter, register_filter
    from vizsla.text.lexicon import CountedTexts, Lexicon
    from vizsla.text.tokenizers import WordPiece
    from vizsla.text.tokens import count_tokens

_HOMES = {
    "TOKEN_FILTERS": "filters",
    "Analyzer": "analyzer",
    "CountedTexts": "lexicon",
    "Lexicon": "lexicon",
    "Token": "filters",
    "TokenFilter": "filters",
    "WordPiece": "tokenizers",
    "analyzer_names": "analyzer",
    "count_tokens": "tokens",
    "register_filter": "filters",
}

__all__ = [
    "TOKEN_FILTERS",
    "Analyzer",
    "CountedTexts",
    "Lexicon",
    "Token",
    "TokenFilter",
    "WordPiece",
    "analyzer_names",
    "count_tokens",
    "register_filter",
]

__getattr__ = lazy_names(__name__, _HOMES)
