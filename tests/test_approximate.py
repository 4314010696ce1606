"""Dense vectors in fewer bits, and structures of faiss's over them: scores are exact, and nothing else is found."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scattered import WIDTH
from vizsla.engine import (
    Query,
    Rows,
    Segment,
    Structure,
    VectorIndex,
    Weighting,
    Weightings,
    build_segment,
    search_many,
    stored,
)
from vizsla.engine.nearest import build_structure
from vizsla.errors import VizslaError

pytestmark = pytest.mark.usefixtures("few_documents")
NOTHING = np.zeros(0, np.int64)
STRUCTURES = (
    "hnsw(least=1)",
    "hnsw(least=1, codes=float32, links=8)",
    "ivf(least=1, lists=4)",
    "ivf(least=1, lists=3, probes=3, codes=float16)",
    "ivf(least=1, lists=2, probes=2, codes=pq, bits=4, parts=4)",
    "pq(least=1, bits=4, parts=8)",
)


def clustered(rng: np.random.Generator, n: int) -> np.ndarray:
    centres = rng.normal(size=(6, WIDTH))
    return (centres[rng.integers(0, 6, n)] + 0.3 * rng.normal(size=(n, WIDTH))).astype(np.float32)


def segment_of(vectors: Any, there: np.ndarray, first: int = 0) -> Segment:
    n = len(vectors)
    rows = np.zeros(n + 1, np.int64), NOTHING, NOTHING.astype(np.uint32)
    sizes = there.astype(np.int64)[None]
    return build_segment(np.arange(first, first + n), np.zeros((1, n), np.int64), sizes, *rows, {0: vectors})


def structure_of(kind: VectorIndex, built: str, rows: Rows) -> Structure:
    pieces: list[bytes] = []
    build_structure(kind, built, rows, pieces.append)
    data = b"".join(pieces)
    return Structure(np.frombuffer(data, np.uint8), hashlib.sha256(data).hexdigest(), built, "built", lambda _: True)


def with_structure(segment: Segment, kind: VectorIndex) -> Segment:
    built = kind.structure(len(segment), WIDTH)
    assert built is not None, "the kind must fit so few vectors"
    return replace(segment, near={0: structure_of(kind, built, segment.dense[0])})


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


@settings(max_examples=50)
@given(data=st.data())
def test_fewer_bits_are_searched_exactly(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    form = data.draw(st.sampled_from(("float16", "sq8")))
    segments, masks, first = [], [], 0
    for n in data.draw(st.lists(st.integers(1, 70), min_size=1, max_size=3)):
        there = rng.random(n) < 0.9
        vectors = clustered(rng, n) * rng.choice([1e-6, 1.0, 50.0], (n, 1)).astype(np.float32) * there[:, None]
        segments.append(segment_of(stored(vectors.astype(np.float32), form), there, first))
        masks.append(None if data.draw(st.booleans()) else rng.random(n) < 0.6)
        first += n
    k = data.draw(st.integers(1, 60))
    asked = rng.normal(size=(data.draw(st.sampled_from((1, 3, 9))), WIDTH))  # the kernel, and the product of matrices
    queries = [Query(NOTHING, NOTHING, np.zeros(0), {0: vector}) for vector in asked]
    hits = search_many(segments, queries, Weightings.pack([Weighting()]), k, masks)
    for vector, found in zip(asked, hits, strict=True):
        pairs = list(zip(found.numbers.tolist(), found.scores.tolist(), strict=True))
        assert pairs == best(scored(segments, vector, masks), k)


@given(st.integers(0, 10_000))
def test_vectors_in_fewer_bits_are_near_what_they_were(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = (rng.normal(size=(20, WIDTH)) * rng.choice([1e-3, 1.0, 100.0], (20, 1))).astype(np.float32)
    rows[3] = 0
    largest = np.abs(rows).max(axis=1, keepdims=True)
    assert (np.abs(stored(rows, "sq8")[:] - rows) <= largest / 127 * 0.5001).all()
    half = stored(rows, "float16")
    assert np.array_equal(half[:].astype(np.float32), rows.astype(np.float16).astype(np.float32))
    assert stored(half, "float16") is half
    with pytest.raises(VizslaError, match="too large for float16"):
        stored(rows * np.float32(1e9), "float16")


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
            segments.append(segment if n < 100 else with_structure(segment, VectorIndex.parse(text)))
            first += n
        made[text] = segments
    return made


@settings(max_examples=80)
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
    asked = rng.normal(size=(3, WIDTH))
    queries = [Query(NOTHING, NOTHING, np.zeros(0), {0: vector}) for vector in asked]
    hits = search_many(segments, queries, Weightings.pack([Weighting()]), k, masks, effort=VectorIndex.parse(kind))
    for vector, found in zip(asked, hits, strict=True):
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
            search_many(built_segments[kind], [query], Weightings.pack([Weighting()]), 10, effort=effort)
            for effort in (None, VectorIndex.parse(kind))
        )
        shares.append(len(np.intersect1d(exact.numbers, found.numbers)) / 10)
    assert np.mean(shares) > (0.8 if VectorIndex.parse(kind).product_codes else 0.95)


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000), rare=st.booleans())
def test_with_enough_effort_everything_is_found(seed: int, rare: bool) -> None:
    """All lists looked through, and as many candidates as there are documents; or so few allowed that all are."""
    rng = np.random.default_rng(seed)
    kind = VectorIndex.parse("pq(least=1, bits=4)" if rare else "ivf(least=1, lists=5, probes=5, oversample=1000)")
    segment = segment_of(clustered(rng, 1500), np.ones(1500, bool))
    masks: list[np.ndarray | None] = [rng.random(1500) < (0.015 if rare else 0.9)]
    asked = rng.normal(size=(3, WIDTH))
    queries = [Query(NOTHING, NOTHING, np.zeros(0), {0: vector}) for vector in asked]
    built = with_structure(segment, kind)
    hits = search_many([built], queries, Weightings.pack([Weighting()]), 10, masks, effort=kind)
    for vector, found in zip(asked, hits, strict=True):
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
    kind = VectorIndex.parse("ivf(least=1, lists=8, probes=1, oversample=1)")
    near = replace(segment, near={1: structure_of(kind, "IVF8,SQ8", vectors)})
    query = Query(np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones(1), {1: rng.normal(size=WIDTH)})
    weightings = Weightings.pack([Weighting(), Weighting()])
    (exact,) = search_many([segment], [query], weightings, 100)
    (found,) = search_many([near], [query], weightings, 100, effort=kind)
    assert found.numbers.tolist() == exact.numbers.tolist()


KIND = st.builds(
    VectorIndex,
    name=st.sampled_from(("exact", "hnsw", "ivf", "pq")),
    ef=st.integers(1, 500),
    probes=st.integers(1, 500),
    lists=st.integers(0, 500),
    store=st.sampled_from(("float32", "float16", "sq8")),
    oversample=st.integers(0, 9),
    codes=st.sampled_from(("float32", "float16", "sq8")),
)


@given(KIND)
def test_a_kind_is_printed_as_it_is_read(kind: VectorIndex) -> None:
    again = VectorIndex.parse(str(kind))
    assert str(again) == str(kind)
    for n in (100, 20_000):
        assert again.structure(n, 384) == kind.structure(n, 384)
    assert again.candidates(10) == kind.candidates(10) or kind.name == "exact"


def test_what_is_no_kind() -> None:
    for text, problem in (
        ("hsnw", "did you mean 'hnsw'"),
        ("hnsw(efs=3)", "no option of hnsw called 'efs'"),
        ("hnsw(ef=many)", "'many' is no whole number for ef"),
        ("hnsw(ef)", "expected name=value"),
        ("ivf(probes=0)", "probes of ivf goes from 1"),
        ("ivf(codes=sq4)", "no codes called 'sq4'"),
        ("hnsw(codes=pq)", "no codes called 'pq'"),
        ("sq8(bits=4)", "sq8 takes no options"),
        ("ivf(store=sq9)", "no form to store vectors in"),
        ("ivf((", "is no kind of dense search"),
        ("ivf(device=tpu)", "no device called 'tpu'"),
    ):
        with pytest.raises(VizslaError, match=problem.replace("(", r"\(")):
            VectorIndex.parse(text)
    with pytest.raises(VizslaError, match="cannot be cut into 7 equal parts"):
        VectorIndex.parse("pq(parts=7)").check_width(16)
    own = VectorIndex.parse("ivf(lists=10)")
    for text, problem in (
        ("hnsw(ef=3)", "cannot be searched by hnsw"),
        ("lists=20", "lists is a matter of how the index is built"),
        ("ef=20", "no option of ivf called 'ef'"),
    ):
        with pytest.raises(VizslaError, match=problem):
            own.asked(text)
    assert own.asked("ivf(lists=10, probes=3)").probes == 3
    assert not own.asked("exact").built
    assert own.structure(389, 8) is None
    assert own.structure(20_000, 8) == "IVF10,SQ8"
    assert VectorIndex.parse("pq(least=1)").structure(9983, 8) is None
