"""retrievalx: BM25 in Rust with several retrieval strategies."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from protocol import K1, B, Hits, Peer, Rows, read_texts
from retrievalx import BM25Config, BM25Index, Filter, RetrievalStrategy, ScoringVariant, Stemmer, Tokenizer
from retrievalx.config import TokenizerConfig

INDEX = "index.bin"


class Retrievalx(Peer):
    name = "retrievalx"
    package = "retrievalx"
    notes = (
        "Okapi with k1 0.9, b 0.4 and MaxScore, exact document lengths. Ids are strings. No batch call: a loop. Text: "
        "words, lower case, English stop words, Porter's stemmer."
    )

    def __init__(self) -> None:
        super().__init__()
        self.index: Any = None

    def build(self, data: Path, folder: Path, threads: int) -> dict[str, Any]:  # noqa: ARG002
        documents = Rows.load(data / "documents")
        rows = ((str(number), documents.words(number)) for number in range(len(documents)))
        return self._index(rows, folder, TokenizerConfig(Tokenizer.WHITESPACE, [], Stemmer.NOOP))

    def build_from_text(self, files: list[Path], folder: Path, threads: int) -> dict[str, Any]:  # noqa: ARG002
        filters = [Filter.LOWERCASE, Filter.stopwords("en")]
        return self._index(read_texts(files), folder, TokenizerConfig(Tokenizer.UNICODE, filters, Stemmer.PORTER))

    def _index(self, rows: Iterable[tuple[str, str]], folder: Path, analysis: TokenizerConfig) -> dict[str, Any]:
        config = BM25Config(ScoringVariant.okapi(k1=K1, b=B), analysis, RetrievalStrategy.max_score())
        documents = list(rows)
        BM25Index.from_documents(documents, config=config).save(str(folder / INDEX))
        return {"documents": len(documents)}

    def open(self, folder: Path) -> None:
        self.index = BM25Index.load(str(folder / INDEX))

    def prepare(self, queries: Rows) -> list[str]:
        return [queries.words(number) for number in range(len(queries))]

    def one(self, query: str, k: int) -> Any:
        return self.index.search(query, k)

    def hits(self, results: Any) -> list[Hits]:
        return [([int(hit.doc_id) for hit in found], [hit.score for hit in found]) for found in results]

    def ask(self, text: str, k: int) -> Hits:
        found = self.index.search(text, k)
        return [hit.doc_id for hit in found], [hit.score for hit in found]


PEER = Retrievalx
