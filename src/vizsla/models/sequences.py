"""Documents as term sequences: the terms of each field in the order of the text, as a BM25 reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vizsla.engine import TermSequences
from vizsla.models.bm25 import BM25
from vizsla.models.fields import as_text
from vizsla.text import Lexicon


class SequenceEncoder:
    """Encodes documents as term sequences; it numbers terms as it meets them, so use one for all documents.

    >>> encoder = SequenceEncoder(BM25())
    >>> encoder.encode([{"title": "Dogs", "text": "Dogs bark"}]).numbers.tolist(), encoder.lexicon.terms
    ([0, 4294967295, 0, 1], ['dog', 'bark'])
    """

    def __init__(self, bm25: BM25) -> None:
        self._fields = bm25.fields
        self.lexicon = Lexicon(bm25.text_analyzer)

    def encode(self, contents: Sequence[Mapping[str, Any]]) -> TermSequences:
        """The sequences of documents, terms by the numbers of the lexicon."""
        texts = [as_text(content.get(field)) for content in contents for field in self._fields]
        return TermSequences.join(*self.lexicon.sequences(texts), len(self._fields))
