"""A retriever of one's own: the lines of a text file that hold a word of the query, at `lines:FILE`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from vizsla import Document, Explanation, Filter, Hit, Retriever
from vizsla.retrievers import LOCATIONS
from vizsla.runs import FilterLike


class Lines(Retriever):
    name = "lines"

    def __init__(self, file: Path) -> None:
        texts = file.read_text("utf-8").splitlines()
        self._documents = {str(n): Document(str(n), {"text": text}) for n, text in enumerate(texts, 1)}

    def search_many(self, queries: Sequence[str], k: int = 10, filter: FilterLike = None) -> list[list[Hit]]:
        condition = Filter.of(filter)
        allowed = [d for d in self._documents.values() if condition is None or condition.accepts(d.content)]
        return [self._hits(query, allowed)[:k] for query in queries]

    def _hits(self, query: str, documents: Iterable[Document]) -> list[Hit]:
        scored = sorted(((self._score(query, d), d) for d in documents), key=lambda pair: -pair[0])
        return [Hit(rank, score, d) for rank, (score, d) in enumerate(scored, 1) if score]

    def _score(self, query: str, document: Document) -> float:
        return float(len(set(query.lower().split()) & set(document["text"].lower().split())))

    def get_many(self, ids: Iterable[str | int]) -> dict[str, Document]:
        return {str(i): self._documents[str(i)] for i in ids if str(i) in self._documents}

    def __len__(self) -> int:
        return len(self._documents)

    def explain(self, query: str, doc_id: str | int, filter: FilterLike = None) -> Explanation:  # noqa: ARG002
        return Explanation("common words", self._score(query, self._documents[str(doc_id)]), {})


@LOCATIONS.register("lines", help="The lines of a text file.")
def open_lines(location: str) -> Lines:
    return Lines(Path(location.removeprefix("lines:")))
