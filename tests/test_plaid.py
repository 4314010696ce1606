"""Token vectors around centroids: codes mean what they say, and search by lists finds what exact search finds."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from test_late_interaction import WordVectors
from vizsla import Index, VectorIndex, VizslaError
from vizsla.engine import (
    DamagedSegmentError,
    Plaid,
    Query,
    ResidualCodec,
    ResidualRows,
    Segment,
    TokenLists,
    TokenQuery,
    TokenRows,
    Weighting,
    Weightings,
    build_segment,
    build_token_index,
    convert_rows,
    learn_codec,
    max_sim,
    search_many,
    token_search,
)
from vizsla.engine.centroids import NearestCentroids, learn_centroids
from vizsla.engine.threads import in_threads
from vizsla.index import measure_recall, verify

NOTHING = np.zeros(0, np.int64)
WEIGHTINGS = Weightings.pack([Weighting()])
ALL = {"nprobe": 1 << 18, "depth": 1 << 30, "oversample": 1000}


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)  # type: ignore[no-any-return]


def segment_of(tokens: TokenRows, first: int = 0) -> Segment:
    n, counts = len(tokens), np.diff(tokens.starts)[None]
    rows = np.zeros(n + 1, np.int64), NOTHING, NOTHING.astype(np.uint32)
    return build_segment(np.arange(first, first + n), np.zeros((1, n), np.int64), counts, *rows, {}, {0: tokens})


def clustered(rng: np.random.Generator, counts: np.ndarray, width: int = 16, store: str = "float16") -> TokenRows:
    """Documents of words, each with a vector that changes a little from document to document."""
    words = unit(rng.normal(size=(200, width)))
    rows = unit(words[rng.integers(0, 200, counts.sum())] + 0.15 * unit(rng.normal(size=(counts.sum(), width))))
    return TokenRows(convert_rows(rows, store), np.cumsum([0, *counts]))


def queries_of(rng: np.random.Generator, rows: TokenRows, count: int, size: int = 8) -> list[Query]:
    made = []
    for _ in range(count):
        tokens = np.asarray(rows.vectors[rng.integers(0, len(rows.vectors), size)], np.float32)
        vectors = unit(tokens + 0.1 * unit(rng.normal(size=tokens.shape)))
        made.append(Query(NOTHING, NOTHING, np.zeros(0), {}, {0: TokenQuery(vectors)}))
    return made


def found(segments: list[Segment], queries: list[Query], k: int, masks: Any = None, **options: Any) -> list[Any]:
    hits = search_many(segments, queries, WEIGHTINGS, k, masks, **options)
    return [list(zip(h.numbers.tolist(), h.scores.tolist(), strict=True)) for h in hits]


@given(st.integers(0, 10_000), st.sampled_from((2, 4)), st.integers(1, 19), st.integers(1, 40))
def test_codes_stand_for_what_numpy_makes_of_them(seed: int, bits: int, width: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, width)).astype(np.float32)
    codec = ResidualCodec.learn(learn_centroids(rows, 5), rows, bits)
    coded = codec.encode(rows)
    assert coded.ndim == 2
    shifts = np.arange(0, 8, bits)
    codes = ((coded.codes[:, :, None] >> shifts) & ((1 << bits) - 1)).reshape(count, -1)[:, :width]
    plain = codec.centroids.astype(np.float32)[coded.assigned] + codec.means[codes]
    assert np.array_equal(coded[:], plain * coded.scales[:, None])
    assert np.linalg.norm(coded[:], axis=1) == pytest.approx(np.linalg.norm(rows, axis=1), rel=1e-4)
    distances = ((rows[:, None] - codec.centroids.astype(np.float32)) ** 2).sum(axis=2)
    assert np.allclose(distances[np.arange(count), coded.assigned], distances.min(axis=1), atol=1e-4)
    assert np.linalg.norm(coded[:], axis=1).max() <= coded.max_norm


@given(data=st.data())
def test_with_all_centroids_and_documents_the_search_is_exhaustive(data: st.DataObject) -> None:
    """Documents of no token, filters, several segments of which some have no lists, fewer tokens than centroids."""
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    bits, threads = data.draw(st.sampled_from((0, 2, 4))), data.draw(st.integers(1, 3))
    store = data.draw(st.sampled_from(("float16", "sq8"))) if bits == 0 else "float16"
    segments, first = [], 0
    for n in data.draw(st.lists(st.integers(1, 60), min_size=1, max_size=3)):
        rows = clustered(rng, np.maximum(rng.integers(-1, 6, n), 0), 9, store)
        if len(rows.vectors) and data.draw(st.booleans()):
            rows = build_token_index(rows, learn_codec([rows], data.draw(st.integers(1, 64)), bits))
        segments.append(segment_of(rows, first))
        first += n
    masks = [None if data.draw(st.booleans()) else rng.random(len(segment)) < 0.6 for segment in segments]
    vectors = unit(rng.normal(size=(data.draw(st.integers(1, 3)), 5, 9)))
    weight = data.draw(st.sampled_from((1.0, 0.25, -1.0)))
    queries = [Query(NOTHING, NOTHING, np.zeros(0), {}, {0: TokenQuery(v, weight)}) for v in vectors]
    k = data.draw(st.integers(1, 80))
    by_lists = found(segments, queries, k, masks, search_params=Plaid(nbits=bits, **ALL), threads=threads)
    assert by_lists == found(segments, queries, k, masks)


@pytest.mark.parametrize("bits", [0, 2, 4])
def test_few_probes_find_nearly_everything_where_there_are_clusters(bits: int) -> None:
    rng = np.random.default_rng(5)
    plain = clustered(rng, rng.integers(5, 40, 1500))
    rows = build_token_index(plain, learn_codec([plain], 256, bits))
    segments, queries = [segment_of(rows)], queries_of(rng, plain, 40)
    exact = [{d for d, _ in hits} for hits in found(segments, queries, 10)]
    recalls = []
    for nprobe, depth in ((1, 20), (8, 300)):
        params = Plaid(nbits=bits, nprobe=nprobe, depth=depth)
        hits = found(segments, queries, 10, search_params=params, threads=2)
        recalls.append(np.mean([len({d for d, _ in h} & e) / 10 for h, e in zip(hits, exact, strict=True)]))
        assert hits == [found(segments, [q], 10, search_params=params)[0] for q in queries]
        scores = [dict(h) for h in found(segments, queries, 1500)]
        assert all(scores[i][d] == score for i, h in enumerate(hits) for d, score in h)
    assert recalls[1] > 0.97
    assert recalls[1] > recalls[0]


def test_two_bits_lose_less_than_a_point() -> None:
    """Of nDCG@10, each query being made of a document's tokens and noise; the same bits without centroids lose more."""
    rng = np.random.default_rng(11)
    plain = clustered(rng, rng.integers(10, 40, 600), width=128)
    owners, queries = rng.integers(0, 600, 300).tolist(), []
    for d in owners:
        own = plain.of(d).astype(np.float32)
        tokens = own[rng.integers(0, len(own), 8)]
        vectors = tokens + 2.8 * unit(rng.normal(size=tokens.shape))
        queries.append(Query(NOTHING, NOTHING, np.zeros(0), {}, {0: TokenQuery(vectors)}))

    def gain(rows: TokenRows) -> float:
        hits = [[d for d, _ in some] for some in found([segment_of(rows)], queries, 10)]
        pairs = zip(owners, hits, strict=True)
        return float(np.mean([1 / np.log2(some.index(d) + 2) if d in some else 0.0 for d, some in pairs]))

    whole, coded, alone = map(gain, (plain, *(build_token_index(plain, learn_codec([plain], n, 2)) for n in (256, 1))))
    assert 0.9 < whole < 1
    assert coded > whole - 0.01
    assert alone < coded - 0.01


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_MULTIPLIED", "_PROBING", "_SUMMED", "_REFINED"):
        monkeypatch.setattr(token_search, name, 3)
    monkeypatch.setattr(max_sim, "_SCORED", 3)
    rng = np.random.default_rng(9)
    plain = clustered(rng, rng.integers(0, 9, 400))
    segments = [segment_of(build_token_index(plain, learn_codec([plain], 64, 2)))]
    queries, params = queries_of(rng, plain, 10, 13), Plaid(nbits=2, nprobe=5, depth=60)
    for query in queries:
        one = found(segments, [query], 10, search_params=params)
        assert one == found(segments, [query], 10, search_params=params, threads=4)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own() -> None:
    assert in_threads(lambda a, z: z - a, 10, 2, 1) == [5, 5]
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        os._exit(0 if in_threads(lambda a, z: z - a, 10, 2, 1) == [5, 5] else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_long_document_and_one_of_no_token_among_others() -> None:
    rng = np.random.default_rng(6)
    plain = clustered(rng, np.array([10_000, 0, 3, 30, 0, 1]))
    rows = build_token_index(plain, learn_codec([plain], 64, 4))
    assert rows.nbytes < 0.6 * plain.nbytes
    queries = queries_of(rng, plain, 3)
    by_lists = found([segment_of(rows)], queries, 6, search_params=Plaid(**ALL))
    assert by_lists == found([segment_of(rows)], queries, 6)
    assert {d for d, _ in by_lists[0]} == {0, 2, 3, 5}


def test_near_centroids_are_found_by_way_of_coarse_ones() -> None:
    rng = np.random.default_rng(7)
    centroids = unit(rng.normal(size=(64, 8)))[rng.integers(0, 64, 4096)] + 0.1 * rng.normal(size=(4096, 8))
    rows = (centroids[rng.integers(0, 4096, 500)] + 0.01 * rng.normal(size=(500, 8))).astype(np.float32)
    found_ones = NearestCentroids(centroids.astype(np.float32))(rows)
    nearest = (rows @ centroids.T - (centroids**2).sum(axis=1) / 2).argmax(axis=1)
    assert (found_ones == nearest).mean() > 0.95


def test_damaged_lists_and_codes_are_refused() -> None:
    rng = np.random.default_rng(8)
    plain = clustered(rng, np.full(100, 5))
    rows = build_token_index(plain, learn_codec([plain], 16, 4))
    lists, vectors, (query,) = rows.lists, rows.vectors, queries_of(rng, plain, 1)
    assert lists is not None
    assert isinstance(vectors, ResidualRows)
    beyond = np.full_like(lists.assigned, 60_000)
    for damaged in (
        TokenLists(lists.centroids, lists.assigned, lists.starts, lists.documents + np.uint32(1 << 30)),
        TokenLists(lists.centroids, beyond, lists.starts, lists.documents),
        TokenLists(lists.centroids, lists.assigned, lists.starts[[0, *range(16, 0, -1)]], lists.documents),
    ):
        broken = TokenRows(rows.vectors, rows.starts, damaged)
        assert not damaged.are_those_of(rows.starts)
        with pytest.raises(DamagedSegmentError):
            found([segment_of(broken)], [query], 3, search_params=Plaid(nprobe=16, depth=50))
    with pytest.raises(DamagedSegmentError):
        ResidualRows(vectors.codec, beyond, vectors.codes, vectors.scales)[:5]


def test_settings_are_checked() -> None:
    assert str(VectorIndex.parse("plaid(nbits=2)").with_search_params("nprobe=8")) == "plaid(nbits=2, nprobe=8)"
    for wrong, message in (("plaid(nbits=3)", "nbits of plaid are 2 or 4"), ("plaid(nprobe=0)", "nprobe of plaid")):
        with pytest.raises(VizslaError, match=message):
            VectorIndex.parse(wrong)
    with pytest.raises(VizslaError, match="takes effect when the index is built"):
        VectorIndex.parse("plaid").with_search_params("nbits=2")


def documents(rng: np.random.Generator, first: int, count: int) -> list[dict[str, Any]]:
    texts = [" ".join(f"w{w}" for w in rng.integers(0, 60, rng.integers(1, 9))) for _ in range(count)]
    return [{"id": f"d{i}", "text": text, "year": i % 5} for i, text in enumerate(texts, first)]


QUERIES = ["w1 w2 w3", "w7", "w10 w20 w30 w40"]


def check(index: Index, **options: Any) -> None:
    """Lists find what an exact search of the same stored vectors finds."""
    everything = {"search_params": "nprobe=1000, depth=100000, oversample=1000"}
    for query in QUERIES:
        exact = [(h.id, h.score) for h in index.search(query, 8, search_params="exact", **options)]
        assert [(h.id, h.score) for h in index.search(query, 8, **everything, **options)] == exact
        assert exact


@pytest.mark.parametrize("bits", [0, 2, 4])
def test_an_index_is_updated_filtered_compacted_and_verified(tmp_path: Path, bits: int) -> None:
    rng = np.random.default_rng(bits)
    spec, path = f"plaid(nbits={bits}, nlist=32, min_documents=50)", tmp_path / "i"
    with Index.create(path, WordVectors(), vector_index=spec) as index:
        index.add(documents(rng, 0, 20))
        index.commit()
        assert index.info()["token_vectors"]["built_segments"] == 0
        check(index)
        index.add([*documents(rng, 20, 150), {"id": "empty", "text": ""}])
        index.commit()
        facts = index.info()["token_vectors"]
        assert (facts["built_segments"], facts["exact_segments"], facts["centroids"]) == (1, 1, 32)
        check(index)
        check(index, filter="year = 3")
        index.add(documents(rng, 100, 20))
        index.delete(["d30", "d31"])
        index.commit()
        check(index)
        assert verify(path) == []
        before = {h.id: h.score for h in index.search("w1 w2 w3", 300, search_params="exact")}
        index.compact()
        facts = index.info()["token_vectors"]
        assert (facts["built_segments"], facts["exact_segments"]) == (1, 0)
        assert facts["store"] == (f"residual{bits}" if bits else "float16")
        check(index)
        check(index, filter="year >= 2")
        old = {d: s for d, s in before.items() if int(d[1:]) >= 120}  # codes are copied by a merge
        after = {h.id: h.score for h in index.search("w1 w2 w3", 300, search_params="exact")}
        assert {d: after[d] for d in old} == old
        assert verify(path) == []
        assert {h.id for h in index.search("w5", 300)} == {h.id for h in index.search("w5", 300)}
        assert index.explain("w7", index.search("w7", 1)[0].id).score == pytest.approx(index.search("w7", 1)[0].score)
    with Index.open(path) as index:
        check(index)
        exact, by_lists = measure_recall(index, QUERIES, ["nprobe=1000, depth=1000, oversample=1000"], 5)
        assert exact.recall == by_lists.recall == 1.0
        if bits:
            with pytest.raises(VizslaError, match=r"stored in \d bits"):
                index.compact(vector_index="exact")
        else:
            index.compact(vector_index="exact")
            assert index.info()["token_vectors"]["built_segments"] == 0
            assert verify(path) == []


def test_options_change_by_compaction_and_damage_is_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    with Index.create(tmp_path / "i", WordVectors()) as index:
        index.add(documents(rng, 0, 200))
        index.commit()
        for spec, store in (("plaid(min_documents=9)", "residual4"), ("plaid(nbits=2, min_documents=9)", "residual2")):
            index.compact(vector_index=spec)
            assert index.info()["token_vectors"]["store"] == store
            check(index)
            assert verify(tmp_path / "i") == []
        index.compact(vector_index="plaid(nbits=2, nlist=8, min_documents=9)")
        assert index.info()["token_vectors"]["centroids"] == 8
    (file,) = (tmp_path / "i").rglob("lists_0-*.npy")
    content = bytearray(file.read_bytes())
    content[-1] ^= 0x7F
    file.write_bytes(content)
    assert "is damaged" in verify(tmp_path / "i")[0]
    with pytest.raises(VizslaError, match="is for token vectors"):
        Index.create(tmp_path / "j", vector_index="plaid")


def test_an_empty_index_has_nothing_to_find(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", WordVectors(), vector_index="plaid(min_documents=1)") as index:
        assert index.search("w1") == []
        index.add([{"id": "a", "text": ""}])
        index.commit()
        assert index.search("w1") == []
        index.add([{"id": "b", "text": "w1"}])
        index.commit()
        index.compact()
        assert [hit.id for hit in index.search("w1")] == ["b"]
