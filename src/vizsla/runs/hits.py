"""What a search gives back: documents with their scores, best first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vizsla.runs.documents import Document


@dataclass(frozen=True)
class Hit:
    """A document that was found, its score, and its rank from 1.

    `hit["title"]` and `hit.get("title")` are fields of the document; `hit["id"]` is its id, unless it has such a field.

    >>> hit = Hit(1, 2.5, Document("7", {"title": "Dogs"}))
    >>> hit.id, hit["title"], hit.get("year")
    ('7', 'Dogs', None)
    """

    rank: int
    score: float
    document: Document
    passage: int | None = None
    """In an index of passages: the number of the passage that was found, from 0. The document has its text."""

    @property
    def id(self) -> str:
        """The id of the document."""
        return self.document.id

    def __getitem__(self, key: str) -> Any:
        if key == "id" and key not in self.document.content:
            return self.document.id
        return self.document.content[key]

    def __contains__(self, key: object) -> bool:
        return key == "id" or key in self.document.content

    def get(self, key: str, default: Any = None) -> Any:
        """A field of the document, or a default if it has no such field."""
        try:
            return self[key]
        except KeyError:
            return default
