"""A sparse model of one's own: letters of words, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from vizsla import SparseComponent
from vizsla.models import MODELS, Fields, SearchContext, SparseDocumentEncoder, TermWeightEncoder, field_text
from vizsla.spec import options_of


@dataclass(frozen=True)
class Letters(SparseComponent):
    """Counts the letters of a text.

    `least`: letters that occur less often are ignored.
    """

    least: int = 1
    fields: tuple[str, ...] = ("title", "text")
    namespace: str = "letters"
    name: str = "letters"

    kind: ClassVar[str] = "toy-letters"

    def document_encoder(self) -> SparseDocumentEncoder:
        return TermWeightEncoder(self.namespace, self._counts)

    def query_terms(self, texts: Sequence[str], context: SearchContext | None = None) -> list[dict[str, float]]:  # noqa: ARG002
        return [{letter: float(n) for letter, n in self._counts(text).items()} for text in texts]

    def _counts(self, document: Fields) -> dict[str, int]:
        counts = Counter(c for c in field_text(document, self.fields).lower() if c.isalpha())
        return {letter: n for letter, n in counts.items() if n >= self.least}


MODELS.register(
    "letters",
    help="Counts letters.",
    options=options_of(Letters, least="how often a letter must occur", namespace="keeps its terms apart"),
)(Letters)
