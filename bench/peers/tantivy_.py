"""tantivy: a Rust library in Lucene's manner, searched with block-max WAND."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import tantivy
from protocol import Hits, Peer, Rows, read_texts

HEAP = 3_000_000_000  # bytes for all writers together, so that each flushes once
CHAIN = "english"
NAMES = "ids.json"
SIGNS = re.compile(r"[^\w\s']|(?<!\w)'|'(?!\w)")


def chain() -> tantivy.TextAnalyzer:
    """Words at non-alphanumerics, lower case, tantivy's English stop words (Lucene's 33), Snowball English stems."""
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple()).filter(tantivy.Filter.remove_long(255))
    builder = builder.filter(tantivy.Filter.lowercase()).filter(tantivy.Filter.stopword("english"))
    return builder.filter(tantivy.Filter.stemmer("english")).build()


class Tantivy(Peer):
    name = "tantivy"
    package = "tantivy"
    notes = (
        "k1 1.2 and b 0.75 are built in and cannot be changed; document lengths are rounded to one byte. Frequencies, "
        "no positions; no total count asked for, so that block-max WAND may skip. Queries are Boolean queries of term "
        "queries made beforehand, a repeated term as a repeated clause. No batch call: a loop. Analysed data is "
        "written by one writer thread into one segment; text by as many writer threads as asked plus one that feeds "
        "them, with one segment each. Text: parse_query_lenient after taking out punctuation; row numbers in a fast "
        "field, turned into ids with a list read when the index is opened, instead of ids in tantivy's document store."
    )

    def __init__(self) -> None:
        super().__init__()
        self.index: tantivy.Index | None = None
        self.searcher: tantivy.Searcher | None = None
        self.rows: list[np.ndarray] = []
        self.names: list[str] = []

    def build(self, data: Path, folder: Path, threads: int) -> dict[str, Any]:  # noqa: ARG002
        documents = Rows.load(data / "documents")
        index = self._create(folder, "whitespace")
        writer = index.writer(heap_size=HEAP, num_threads=1)
        for number in range(len(documents)):
            self._add(writer, number, documents.words(number))
        return self._finish(index, writer)

    def build_from_text(self, files: list[Path], folder: Path, threads: int) -> dict[str, Any]:
        index = self._create(folder, CHAIN)
        index.register_tokenizer(CHAIN, chain())
        writer = index.writer(heap_size=HEAP, num_threads=threads)
        names = []
        for number, (name, text) in enumerate(read_texts(files)):
            names.append(name)
            self._add(writer, number, text)
        (folder / NAMES).write_text(json.dumps(names), encoding="utf-8")
        return self._finish(index, writer)

    def _create(self, folder: Path, tokenizer: str) -> tantivy.Index:
        schema = tantivy.SchemaBuilder()
        schema.add_text_field("body", tokenizer_name=tokenizer, index_option="freq")
        schema.add_unsigned_field("row", fast=True)
        return tantivy.Index(schema.build(), path=str(folder), reuse=False)

    def _add(self, writer: tantivy.IndexWriter, number: int, text: str) -> None:
        document = tantivy.Document()
        document.add_text("body", text)
        document.add_unsigned("row", number)
        writer.add_document(document)

    def _finish(self, index: tantivy.Index, writer: tantivy.IndexWriter) -> dict[str, Any]:
        writer.commit()
        writer.wait_merging_threads()
        index.reload()
        searcher = index.searcher()
        return {"documents": searcher.num_docs, "segments": searcher.num_segments}

    def open(self, folder: Path) -> None:
        self.index = tantivy.Index.open(str(folder))
        self.index.register_tokenizer(CHAIN, chain())
        self.index.reload()
        self.searcher = self.index.searcher()
        self.rows = self._read_rows(self.searcher)
        self.names = json.loads((folder / NAMES).read_text()) if (folder / NAMES).exists() else []

    def _read_rows(self, searcher: tantivy.Searcher) -> list[np.ndarray]:
        """Row numbers by segment and place in it; a search that matches everything lists all places."""
        found = searcher.search(tantivy.Query.all_query(), limit=max(1, searcher.num_docs), count=False).hits
        places = [place for _, place in found]
        values = np.array(searcher.fast_field_values("row", places), dtype=np.int64)
        segments = np.array([place.segment_ord for place in places], dtype=np.int64)
        inside = np.array([place.doc for place in places], dtype=np.int64)
        rows = []
        for segment in range(searcher.num_segments):
            chosen = segments == segment
            order = np.empty(int(chosen.sum()), dtype=np.int64)
            order[inside[chosen]] = values[chosen]
            rows.append(order)
        return rows

    def prepare(self, queries: Rows) -> list[tantivy.Query]:
        assert self.index is not None
        schema, should = self.index.schema, tantivy.Occur.Should
        prepared = []
        for number in range(len(queries)):
            terms = [f"t{t}" for t in queries.row(number).tolist()]
            clauses = [(should, tantivy.Query.term_query(schema, "body", t, index_option="freq")) for t in terms]
            prepared.append(tantivy.Query.boolean_query(clauses))
        return prepared

    def one(self, query: tantivy.Query, k: int) -> Any:
        assert self.searcher is not None
        found = self.searcher.search(query, limit=k, count=False).hits
        if len(self.rows) == 1:
            return self.rows[0][[place.doc for _, place in found]], [score for score, _ in found]
        return [self.rows[place.segment_ord][place.doc] for _, place in found], [score for score, _ in found]

    def ask(self, text: str, k: int) -> Hits:
        assert self.index is not None
        query, _ = self.index.parse_query_lenient(SIGNS.sub(" ", text), ["body"])
        rows, scores = self.one(query, k)
        return [self.names[row] for row in rows], scores


PEER = Tantivy
