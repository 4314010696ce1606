"""How published systems sample the queries of a document, by name."""

from __future__ import annotations

from vizsla.models.generator import Sampling

PRESETS: dict[str, Sampling] = {
    "doct5query": Sampling(texts=40, top_k=10),
    "doc2query": Sampling(texts=10, top_k=10),
    "beir": Sampling(texts=40, top_k=10, top_p=0.95),
    "genq": Sampling(texts=5, top_k=25, top_p=0.95),
}
"""docT5query; doc2query before it; docT5query in BEIR: 40 queries as its paper says, top-k and top-p of its
example, which draws 3 queries; GenQ, which trains on the queries."""
