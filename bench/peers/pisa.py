"""PISA through pyterrier-pisa: C++, compressed postings, dynamic pruning; BM25 and learned-sparse vectors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from protocol import K1, B, Hits, Peer, Refused, Rows, counted, read_texts
from pyterrier_pisa import PisaIndex, PisaRetrieve, _pisathon

# Needed while building, not for searching.
LEFTOVERS = ("fwd", "fwd.documents", "fwd.terms", "fwd.sizes", "inv.docs", "inv.freqs", "inv.sizes")
ANALYSED = "analysed.json"

Query = tuple[dict[str, float], bool]  # tokens with counts or weights, and whether any is not 1
Part = tuple[np.ndarray, np.ndarray, np.ndarray]  # query numbers, document names, scores


class Pisa(Peer):
    name = "pisa"
    package = "pyterrier-pisa"
    notes = (
        "BM25 with k1 0.9 and b 0.4, PISA's own idf (never below a small positive value), exact document lengths, "
        "floating-point scores (no precomputed impacts, which would round them), SIMD-BP128 postings, blocks of 64. "
        "Algorithm: {algorithms}. Queries are dictionaries of tokens with counts, made beforehand, given to the "
        "binding's own retrieve call, which makes document names as strings. Indexing uses one feeding thread and "
        "one more than asked inside PISA. Stop words stay in an index built from text and are taken out of queries. "
        "Text: PISA's tokenizer, Porter 2 stems, Lucene's stop words; a PyTerrier retriever with a data frame as "
        "result, in which a repeated word of a question counts once. "
        "Files only needed while building are deleted and counted as leftover_bytes."
    )
    algorithms: dict[int, str] = {100: "block_max_maxscore", 1000: "maxscore"}  # noqa: RUF012  # up to k

    def __init__(self) -> None:
        super().__init__()
        self.settings = {"algorithm": ""}
        self.notes = self.notes.format(algorithms=", ".join(f"{a} to k={k}" for k, a in self.algorithms.items()))
        self.index: PisaIndex | None = None
        self.retriever: PisaRetrieve | None = None
        self.askers: dict[int, PisaRetrieve] = {}

    def algorithm(self, k: int) -> str:
        if self.settings["algorithm"]:
            return self.settings["algorithm"]
        return next((a for most, a in self.algorithms.items() if k <= most), list(self.algorithms.values())[-1])

    def build(self, data: Path, folder: Path, threads: int) -> dict[str, Any]:
        documents = Rows.load(data / "documents")
        rows = ({"docno": str(n), "text": documents.words(n)} for n in range(len(documents)))
        index = PisaIndex(str(folder), text_field="text", stemmer="none", stops="none", threads=threads, overwrite=True)
        index.index(rows)
        (folder / ANALYSED).write_text(json.dumps(True))
        return self._finish(folder, len(documents))

    def build_from_text(self, files: list[Path], folder: Path, threads: int) -> dict[str, Any]:
        count = 0

        def rows() -> Iterator[dict[str, str]]:
            nonlocal count
            for name, text in read_texts(files):
                count += 1
                yield {"docno": name, "text": text}

        index = PisaIndex(
            str(folder), text_field="text", stemmer="porter2", stops="lucene", threads=threads, overwrite=True
        )
        index.index(rows())
        return self._finish(folder, count)

    def _finish(self, folder: Path, documents: int) -> dict[str, Any]:
        """Compress the postings, which PISA does when an index is first opened, and delete what is left over."""
        self.open(folder)
        files = [folder / name for name in LEFTOVERS if (folder / name).exists()]
        size = sum(file.stat().st_size for file in files)
        for file in files:
            file.unlink()
        return {"documents": documents, "leftover_bytes": size}

    def open(self, folder: Path) -> None:
        analysed = (folder / ANALYSED).exists()
        self.index = PisaIndex(str(folder), stops="none" if analysed else "lucene")
        self.retriever = self._retriever(10)
        self.askers = {}

    def _retriever(self, k: int) -> PisaRetrieve:
        assert self.index is not None
        return self.index.bm25(k1=K1, b=B, num_results=k, threads=1, query_algorithm=self.algorithm(k))

    def prepare(self, queries: Rows) -> list[Query]:
        rows = (counted(queries.row(number)) for number in range(len(queries)))
        return [({f"t{t}": float(count) for t, count in row.items()}, max(row.values(), default=1) > 1) for row in rows]

    def batch(self, queries: list[Query], k: int) -> Any:
        """Queries that repeat a term go apart from the others, which need no multiplication by counts."""
        parts = []
        for weighted in (False, True):
            chosen = [(number, terms) for number, (terms, repeats) in enumerate(queries) if repeats == weighted]
            if chosen:
                parts.append(self._retrieve(chosen, k, weighted))
        return len(queries), parts

    def _retrieve(self, queries: list[tuple[int, dict[str, float]]], k: int, weighted: bool) -> Part:
        assert self.retriever is not None
        size = len(queries) * k
        numbers, ranks = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.int32)
        names, scores = np.empty(size, dtype=object), np.empty(size, dtype=np.float32)
        found = _pisathon.retrieve(
            self.retriever._ctxt,
            self.algorithm(k),
            queries,
            k=k,
            threads=1,
            query_weighted=int(weighted),
            pretokenised=True,
            result_qidxs=numbers,
            result_docnos=names,
            result_ranks=ranks,
            result_scores=scores,
        )
        return numbers[:found], names[:found], scores[:found]

    def one(self, query: Query, k: int) -> Any:
        terms, repeats = query
        return 1, [self._retrieve([(0, terms)], k, repeats)]

    def hits(self, results: Any) -> list[Hits]:
        if isinstance(results, list):
            return [hit for result in results for hit in self.hits(result)]
        count, parts = results
        found: list[Hits] = [([], [])] * count
        for numbers, names, scores in parts:
            ends = np.searchsorted(numbers, np.arange(count + 1))
            for number, (a, b) in enumerate(pairwise(ends)):
                if a < b:
                    found[number] = (names[a:b].astype(np.int64), scores[a:b])
        return found

    def ask(self, text: str, k: int) -> Hits:
        if k not in self.askers:
            self.askers[k] = self._retriever(k)
        found = self.askers[k].search(text)
        return found["docno"].to_numpy(), found["score"].to_numpy()


class PisaSparse(Pisa):
    name = "pisa-sparse"
    kind = "sparse"
    algorithms = {1000: "maxscore"}  # noqa: RUF012
    notes = (
        "PISA's quantized scorer: the exact dot product of integer weights, SIMD-BP128 postings, blocks of 64. "
        "Algorithm: {algorithms}. The binding repeats a query term as often as its weight says and counts the "
        "repeats again, so its time grows with the sum of the query weights. Documents in the order given. Files "
        "only needed while building are deleted and counted as leftover_bytes."
    )

    def build(self, data: Path, folder: Path, threads: int) -> dict[str, Any]:
        documents = Rows.load(data / "documents")
        rows = ({"docno": str(n), "toks": self._weighted(documents, n)} for n in range(len(documents)))
        index = PisaIndex(str(folder), text_field="toks", stemmer="none", stops="none", threads=threads)
        index.toks_indexer(scale=1.0, mode="overwrite").index(rows)
        (folder / ANALYSED).write_text(json.dumps(True))
        return self._finish(folder, len(documents))

    def build_from_text(self, files: list[Path], folder: Path, threads: int) -> dict[str, Any]:  # noqa: ARG002
        raise Refused("learned-sparse vectors are not made from text here")

    def _weighted(self, rows: Rows, number: int) -> dict[str, float]:
        pairs = zip(rows.row(number).tolist(), rows.row_weights(number).tolist(), strict=True)
        return {f"t{t}": float(w) for t, w in pairs}

    def _retriever(self, k: int) -> PisaRetrieve:
        assert self.index is not None
        return self.index.quantized(num_results=k, threads=1, query_algorithm=self.algorithm(k), toks_scale=1.0)

    def prepare(self, queries: Rows) -> list[Query]:
        return [(self._weighted(queries, number), True) for number in range(len(queries))]

    def ask(self, text: str, k: int) -> Hits:  # noqa: ARG002
        raise Refused("learned-sparse vectors are not made from text here")


PEER = Pisa
SPARSE = PisaSparse
