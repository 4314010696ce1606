"""Dense vectors in fewer bits, and faiss over them: scores are exact, and nothing else is found."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scattered import WIDTH
from vizsla import VectorIndex, VizslaError
from vizsla.engine import (
    VECTOR_INDEXES,
    AnnIndex,
    Exact,
    Query,
    Segment,
    VectorRows,
    Weighting,
    Weightings,
    build_ann_index,
    build_segment,
    convert_rows,
    search_many,
)
from vizsla.engine.vector_indexes import HNSW, IVF, PQ

pytestmark = pytest.mark.usefixtures("few_documents")
NOTHING = np.zeros(0, np.int64)
STRUCTURES = (
    "hnsw(min_documents=1)",
    "hnsw(min_documents=1, codes=float32, M=8)",
    "ivf(min_documents=1, nlist=4)",
    "ivf(min_documents=1, nlist=3, nprobe=3, codes=float16)",
    "ivf(min_documents=1, nlist=2, nprobe=2, codes=pq, nbits=4, m=4)",
    "pq(min_documents=1, nbits=4, m=8)",
)


def clustered(rng: np.random.Generator, n: int) -> np.ndarray:
    centres = rng.normal(size=(6, WIDTH))
    return (centres[rng.integers(0, 6, n)] + 0.3 * rng.normal(size=(n, WIDTH))).astype(np.float32)


def segment_of(vectors: Any, there: np.ndarray, first: int = 0) -> Segment:
    n = len(vectors)
    rows = np.zeros(n + 1, np.int64), NOTHING, NOTHING.astype(np.uint32)
    sizes = there.astype(np.int64)[None]
    return build_segment(np.arange(first, first + n), np.zeros((1, n), np.int64), sizes, *rows, {0: vectors})


def ann_index_of(built: str, rows: VectorRows) -> AnnIndex:
    pieces: list[bytes] = []
    build_ann_index(built, rows, pieces.append)
    data = b"".join(pieces)
    return AnnIndex(np.frombuffer(data, np.uint8), hashlib.sha256(data).hexdigest(), built, "built", lambda _: True)


def with_ann_index(segment: Segment, kind: VectorIndex) -> Segment:
    built = kind.factory(len(segment), WIDTH)
    assert built is not None, "the kind must fit so few vectors"
    return replace(segment, ann={0: ann_index_of(built, segment.dense[0])})


def scored(segments: Sequence[Segment], vector: np.ndarray, masks: Sequence[np.ndarray | None]) -> dict[int, float]:
    """Every document that can be found and its score, by the plainest way there is."""
    found = {}
    for segment, mask in zip(segments, masks, strict=True):
        values = np.einsum("ij,j->i", segment.dense[0][:].astype(np.float64), vector).astype(np.float32)
        allowed = (segment.sizes[0] > 0) & (True if mask is None else mask)
        found |= {int(segment.numbers[d]): float(values[d]) for d in np.flatnonzero(allowed)}
    return found


def best(scores: dict[int, float], k: int) -> list[tuple[int, float]]:
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:k]


@given(data=st.data())
def test_fewer_bits_are_searched_exactly(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    form = data.draw(st.sampled_from(("float16", "sq8")))
    segments, masks, first = [], [], 0
    for n in data.draw(st.lists(st.integers(1, 70), min_size=1, max_size=3)):
        there = rng.random(n) < 0.9
        vectors = clustered(rng, n) * rng.choice([1e-6, 1.0, 50.0], (n, 1)).astype(np.float32) * there[:, None]
        segments.append(segment_of(convert_rows(vectors.astype(np.float32), form), there, first))
        masks.append(None if data.draw(st.booleans()) else rng.random(n) < 0.6)
        first += n
    k = data.draw(st.integers(1, 60))
    vectors = rng.normal(size=(data.draw(st.sampled_from((1, 3, 9))), WIDTH))  # the kernel, and the product of matrices
    queries = [Query(NOTHING, NOTHING, np.zeros(0), {0: vector}) for vector in vectors]
    hits = search_many(segments, queries, Weightings.pack([Weighting()]), k, masks)
    for vector, found in zip(vectors, hits, strict=True):
        pairs = list(zip(found.numbers.tolist(), found.scores.tolist(), strict=True))
        assert pairs == best(scored(segments, vector, masks), k)


@given(st.integers(0, 10_000))
def test_vectors_in_fewer_bits_are_near_what_they_were(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = (rng.normal(size=(20, WIDTH)) * rng.choice([1e-3, 1.0, 100.0], (20, 1))).astype(np.float32)
    rows[3] = 0
    largest = np.abs(rows).max(axis=1, keepdims=True)
    assert (np.abs(convert_rows(rows, "sq8")[:] - rows) <= largest / 127 * 0.5001).all()
    half = convert_rows(rows, "float16")
    assert np.array_equal(half[:].astype(np.float32), rows.astype(np.float16).astype(np.float32))
    assert convert_rows(half, "float16") is half
    with pytest.raises(VizslaError, match="too large for float16"):
        convert_rows(rows * np.float32(1e9), "float16")


@pytest.fixture(scope="module")
def built_segments() -> dict[str, list[Segment]]:
    """For each kind three segments, the middle one too small for a structure; some documents have no vector."""
    rng, made = np.random.default_rng(0), {}
    for text in STRUCTURES:
        segments, first = [], 0
        for n in (900, 40, 700):
            there = rng.random(n) < 0.95
            vectors = clustered(rng, n) * there[:, None]
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
            segment = segment_of(vectors, there, first)
            segments.append(segment if n < 100 else with_ann_index(segment, VectorIndex.parse(text)))
            first += n
        made[text] = segments
    return made


@given(data=st.data())
def test_a_structure_finds_what_may_be_found_with_its_own_score(
    data: st.DataObject, built_segments: dict[str, list[Segment]]
) -> None:
    """Through masks of all sizes, those that name few documents and those that are searched by faiss."""
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    kind = data.draw(st.sampled_from(STRUCTURES))
    segments = built_segments[kind]
    masks: list[np.ndarray | None] = [
        None if data.draw(st.booleans()) else rng.random(len(segment)) < data.draw(st.sampled_from((0.02, 0.3, 0.9)))
        for segment in segments
    ]
    k = data.draw(st.sampled_from((1, 10, 50)))
    vectors = rng.normal(size=(3, WIDTH))
    queries = [Query(NOTHING, NOTHING, np.zeros(0), {0: vector}) for vector in vectors]
    hits = search_many(
        segments, queries, Weightings.pack([Weighting()]), k, masks, search_params=VectorIndex.parse(kind)
    )
    for vector, found in zip(vectors, hits, strict=True):
        scores = scored(segments, vector, masks)
        pairs = list(zip(found.numbers.tolist(), found.scores.tolist(), strict=True))
        assert all(scores[number] == score for number, score in pairs)  # no other document, no other score
        assert pairs == best(dict(pairs), k)
        assert len(pairs) == min(k, len(scores)) or kind.startswith(("ivf", "pq"))  # lists may be all masked


@pytest.mark.parametrize("kind", STRUCTURES)
def test_most_of_the_best_are_found(kind: str, built_segments: dict[str, list[Segment]]) -> None:
    rng, shares = np.random.default_rng(1), []
    for _ in range(60):
        vector = rng.normal(size=WIDTH)
        query = Query(NOTHING, NOTHING, np.zeros(0), {0: vector})
        (exact,), (found,) = (
            search_many(built_segments[kind], [query], Weightings.pack([Weighting()]), 10, search_params=search_params)
            for search_params in (None, VectorIndex.parse(kind))
        )
        shares.append(len(np.intersect1d(exact.numbers, found.numbers)) / 10)
    assert np.mean(shares) > (0.8 if ",PQ" in str(VectorIndex.parse(kind).factory(1000, WIDTH)) else 0.95)


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000), rare=st.booleans())
def test_with_enough_effort_everything_is_found(seed: int, rare: bool) -> None:
    """All lists looked through, and as many candidates as there are documents; or so few allowed that all are."""
    rng = np.random.default_rng(seed)
    kind = VectorIndex.parse(
        "pq(min_documents=1, nbits=4)" if rare else "ivf(min_documents=1, nlist=5, nprobe=5, oversample=1000)"
    )
    segment = segment_of(clustered(rng, 1500), np.ones(1500, bool))
    masks: list[np.ndarray | None] = [rng.random(1500) < (0.015 if rare else 0.9)]
    vectors = rng.normal(size=(3, WIDTH))
    queries = [Query(NOTHING, NOTHING, np.zeros(0), {0: vector}) for vector in vectors]
    built = with_ann_index(segment, kind)
    hits = search_many([built], queries, Weightings.pack([Weighting()]), 10, masks, search_params=kind)
    for vector, found in zip(vectors, hits, strict=True):
        expected = best(scored([segment], vector, masks), 10)
        assert list(zip(found.numbers.tolist(), found.scores.tolist(), strict=True)) == expected


def test_terms_beside_vectors_are_searched_exactly() -> None:
    rng = np.random.default_rng(0)
    vectors = clustered(rng, 500)
    nothing = np.zeros(500, np.int64)
    pointers = np.concatenate([np.arange(501), np.full(500, 500)])
    rows = pointers, nothing, np.ones(500, np.int64)
    segment = build_segment(
        np.arange(500), np.zeros((2, 500), np.int64), np.ones((2, 500), np.int64), *rows, {1: vectors}
    )
    kind = VectorIndex.parse("ivf(min_documents=1, nlist=8, nprobe=1, oversample=1)")
    ann = replace(segment, ann={1: ann_index_of("IVF8,SQ8", vectors)})
    query = Query(np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones(1), {1: rng.normal(size=WIDTH)})
    weightings = Weightings.pack([Weighting(), Weighting()])
    (exact,) = search_many([segment], [query], weightings, 100)
    (found,) = search_many([ann], [query], weightings, 100, search_params=kind)
    assert found.numbers.tolist() == exact.numbers.tolist()


STORE = st.sampled_from(("float32", "float16", "sq8"))
SHARED = {"store": STORE, "oversample": st.integers(0, 9), "min_documents": st.integers(1, 30_000)}
KIND = st.one_of(
    st.builds(Exact, store=STORE),
    st.builds(HNSW, ef_search=st.integers(1, 500), M=st.integers(2, 64), codes=STORE, **SHARED),
    st.builds(IVF, nprobe=st.integers(1, 500), nlist=st.integers(0, 500), codes=STORE, **SHARED),
    st.builds(PQ, nbits=st.integers(4, 8), **SHARED),
)


@given(KIND)
def test_a_kind_is_printed_as_it_is_read(kind: VectorIndex) -> None:
    again = VectorIndex.parse(str(kind))
    assert again == kind
    for n in (100, 20_000):
        assert again.factory(n, 384) == kind.factory(n, 384)


def test_what_is_no_kind() -> None:
    for text, problem in (
        ("hsnw", "did you mean 'hnsw'"),
        ("hnsw(efs=3)", "hnsw does not take the option efs"),
        ("hnsw(ef_search=many)", "'many' is not a whole number for ef_search"),
        ("hnsw(ef)", "expected name=value"),
        ("ivf(nprobe=0)", "nprobe of ivf goes from 1"),
        ("ivf(codes=sq4)", "unknown codes 'sq4'"),
        ("hnsw(codes=pq)", "unknown codes 'pq'"),
        ("sq8(nbits=4)", "sq8 does not take the option nbits"),
        ("ivf(store=sq9)", "unknown storage type of vectors"),
        ("ivf((", "is not a vector index"),
        ("ivf(device=tpu)", "unknown device 'tpu'"),
    ):
        with pytest.raises(VizslaError, match=problem.replace("(", r"\(")):
            VectorIndex.parse(text)
    with pytest.raises(VizslaError, match="cannot be cut into 7 equal parts"):
        VectorIndex.parse("pq(m=7)").check_width(16)
    own = VectorIndex.parse("ivf(nlist=10)")
    for text, problem in (
        ("hnsw(ef_search=3)", "cannot be searched by hnsw"),
        ("nlist=20", "nlist takes effect when the index is built"),
        ("ef_search=20", "ivf does not take the option ef_search"),
    ):
        with pytest.raises(VizslaError, match=problem):
            own.with_search_params(text)
    assert own.with_search_params("ivf(nlist=10, nprobe=3)") == IVF(nlist=10, nprobe=3)
    assert not own.with_search_params("exact").is_approximate
    assert own.factory(389, 8) is None
    assert own.factory(20_000, 8) == "IVF10,SQ8"
    assert VectorIndex.parse("pq(min_documents=1)").factory(9983, 8) is None


def test_every_kind_says_what_its_options_are() -> None:
    assert VECTOR_INDEXES.names() == ["exact", "float16", "sq8", "plaid", "hnsw", "ivf", "pq"]
    for entry in VECTOR_INDEXES:
        assert entry.help
        assert all(option.help and option.default is not None for option in entry.options)
        assert entry.needs == (("faiss",) if entry.name in ("hnsw", "ivf", "pq") else ())


class SlowGpu:
    """Stands for a faiss index on a GPU: `nprobe` is a setting that all searches share."""

    ntotal = 5000
    nprobe = 0

    def __init__(self) -> None:
        self.seen: list[int] = []

    def search(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        before = self.nprobe
        time.sleep(0.001)
        assert self.nprobe == before
        self.seen.append(before)
        return np.zeros((len(queries), count)), np.zeros((len(queries), count), np.int64)


def test_threads_on_a_gpu_keep_their_own_nprobe() -> None:
    ann_index = AnnIndex(np.zeros(1, np.uint8), "", "IVF4,SQ8", "built", lambda _: True)
    gpu = SlowGpu()
    ann_index._open["gpu"] = gpu
    kinds = [IVF(nprobe=n, device="gpu") for n in range(1, 9)] * 4
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda kind: ann_index.candidates(np.zeros((1, WIDTH), np.float32), 10, None, kind), kinds))
    assert sorted(gpu.seen) == sorted(kind.nprobe for kind in kinds)
