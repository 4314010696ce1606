"""Dense vectors in the same folder as postings: exact alone and in sums, through updates, deletions and filters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vizsla.engine import Query, Segment, Weighting, Weightings, build_segment, search_many


def segments_of(rng: np.random.Generator, sizes: list[int], width: int, terms: int, grid: bool) -> list[Segment]:
    """Segments of two namespaces: counted words, and dense vectors; some documents lack one or the other."""
    made, first = [], 0
    for n in sizes:
        counts = rng.integers(0, 4, n)
        rows = [rng.choice(terms, c, replace=False) for c in counts]
        pointers = np.concatenate([np.cumsum([0, *counts]), np.full(n, counts.sum())])
        vectors = rng.integers(-2, 3, (n, width)).astype(np.float32) if grid else rng.normal(size=(n, width))
        there = rng.random(n) < 0.9
        dense = {1: (vectors * there[:, None]).astype(np.float32)}
        indices = np.concatenate([*rows, np.zeros(0, np.int64)]).astype(np.int64)
        values = rng.integers(1, 9, len(indices))
        made.append(
            build_segment(
                np.arange(first, first + n),
                np.zeros((2, n), np.int64),
                np.stack([counts, there.astype(np.int64)]),
                pointers,
                indices,
                values,
                dense,
            )
        )
        first += n
    return made


def exhaustive(
    segments: list[Segment], query: Query, masks: list[np.ndarray | None], k: int
) -> list[tuple[int, float]]:
    found = []
    for segment, mask in zip(segments, masks, strict=True):
        sums, touched = np.zeros(len(segment)), np.zeros(len(segment), bool)
        for term, weight in zip(query.terms.tolist(), query.weights.tolist(), strict=True):
            documents, values = segment.list_of(term)
            sums[documents] += weight * values.astype(np.float64)
            touched[documents] = True
        for space, vector in query.dense.items():
            sums += np.einsum("ij,j->i", segment.dense[space].astype(np.float64), vector)
            touched |= segment.sizes[space] > 0
        chosen = np.flatnonzero(touched if mask is None else touched & mask).tolist()
        found += [(int(segment.numbers[d]), float(np.float32(sums[d]))) for d in chosen]
    return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:k]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_best_are_those_of_scoring_everything(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    sizes = data.draw(st.lists(st.integers(1, 60), min_size=1, max_size=3))
    grid, width, terms = data.draw(st.booleans()), data.draw(st.integers(1, 9)), 12
    segments = segments_of(rng, sizes, width, terms, grid)
    masks: list[np.ndarray | None] = [
        None if data.draw(st.booleans()) else rng.random(len(segment)) < 0.6 for segment in segments
    ]
    k = data.draw(st.integers(1, 80))
    queries = []
    for _ in range(3):
        n = int(rng.integers(0, 4))
        chosen = rng.choice(terms, n, replace=False)
        vector = rng.integers(-2, 3, width).astype(np.float64) if grid else rng.normal(size=width)
        dense = {1: vector} if rng.random() < 0.8 else {}
        queries.append(Query(chosen, np.zeros(n, np.int64), 1 + rng.random(n), dense))
    weightings = Weightings.pack([Weighting(), Weighting()])
    hits = search_many(segments, queries, weightings, k, masks)
    for query, found in zip(queries, hits, strict=True):
        expected = exhaustive(segments, query, masks, k)
        assert found.numbers.tolist() == [number for number, _ in expected]
        assert found.scores.tolist() == [score for _, score in expected]


def test_many_equal_documents_come_in_their_order() -> None:
    n, width = 30_000, 8
    vectors = np.ones((n, width), np.float32)
    vectors[17_000] = 2.0
    nothing = np.zeros(0, np.int64)
    sizes = np.ones((1, n), np.int64)
    rows = np.zeros(n + 1, np.int64), nothing, nothing.astype(np.uint32)
    segment = build_segment(np.arange(n), np.zeros((1, n), np.int64), sizes, *rows, {0: vectors})
    query = Query(nothing, nothing, np.zeros(0), {0: np.full(width, 0.1)})
    (hits,) = search_many([segment], [query], Weightings.pack([Weighting()]), 10)
    assert hits.numbers.tolist() == [17_000, *range(9)]


DOCUMENTS: list[dict[str, Any]] = [
    {"id": "1", "title": "Dogs", "text": "A dog that points and retrieves birds.", "year": 1920},
    {"id": "2", "title": "Cars", "text": "Taxes on vehicles that are used for business.", "year": 1990},
    {"id": "3", "title": "Puppies", "text": "Young hounds learn to fetch.", "year": 1950},
    {"id": "4", "title": "", "text": " ", "year": 1960},
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A small dense model over BERT's word pieces, its weights at random."""
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    import torch

    from vizsla.models import Dense, Network

    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, max_position_embeddings=64
    )
    model = transformers.BertModel(config, add_pooling_layer=False)
    weights = {name: p.detach().numpy() for name, p in model.named_parameters()}
    folder = tmp_path_factory.mktemp("encoder")
    network = Network.write(
        folder / "n", weights, kind="dense", heads=2, most=1.0, length=64, precision="float32", pooling="mean"
    )
    return Dense(network)


def test_an_index_of_dense_vectors(encoder: Any, tmp_path: Path) -> None:
    from vizsla.index import Index
    from vizsla.models import BM25

    def best(model: Any, contents: list[dict[str, Any]], query: str) -> list[tuple[str, float]]:
        statistics = model.fit(contents)
        (scores,) = model.encode_queries([query], statistics).dot(model.encode_documents(contents, statistics))
        rows = [(d["id"], float(s)) for d, s in zip(contents, scores.tolist(), strict=True) if d["text"].strip()]
        return sorted(rows, key=lambda row: -row[1])

    for model in (encoder, BM25() + 0.5 * encoder, 2.0 * encoder):
        folder = tmp_path / model.name.replace(" ", "")
        with Index.create(folder, model) as index:
            added = index.add(DOCUMENTS)
            assert [d.id for d in added.empty] == ["4"]
            index.commit()
            index.add([{"id": "5", "title": "Hunting", "text": "Dogs and birds in a field.", "year": 2000}])
            index.delete(["3"])
            index.commit()
            living = [d for d in DOCUMENTS if d["id"] not in ("3", "4")]
            living.append({"id": "5", "title": "Hunting", "text": "Dogs and birds in a field."})
            for _ in range(2):
                hits = index.search("dogs that fetch birds", 10)
                expected = best(model, living, "dogs that fetch birds")
                assert [h.id for h in hits] == [d for d, _ in expected]
                assert [h.score for h in hits] == pytest.approx([s for _, s in expected], rel=1e-5)
                explained = index.explain("dogs that fetch birds", hits[0].id)
                assert explained.score == pytest.approx(hits[0].score, rel=1e-5)
                assert [h.id for h in index.search("birds", 10, "year > 1980")] == [
                    h.id for h in index.search("birds", 10) if h.id in ("2", "5")
                ]
                assert index.verify() == []
                index.compact()
        with Index.open(folder) as index:
            assert [h.id for h in index.search("dogs that fetch birds", 10)] == [d for d, _ in expected]
