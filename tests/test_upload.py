"""Parts uploaded to Qdrant, and weights renewed there: equal to what was added, without downtime, after kills."""

from __future__ import annotations

import os
import random
import signal
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cluster_crash import killed
from conftest import Cli
from numbered import build
from qdrant_compared import WORDS, contents, differences, documents, encode
from qdrant_server import Node
from scattered import Scattered, ScatteredTokens
from vizsla import BM25, Model, VizslaError
from vizsla import open as open_location
from vizsla.backends.qdrant import QdrantIndex, filling, generations
from vizsla.backends.qdrant import lock as locks
from vizsla.backends.qdrant.connection import Address, Connection
from vizsla.backends.qdrant.filling import FillingRecord
from vizsla.backends.qdrant.generations import find_generations
from vizsla.backends.qdrant.lock import WriteLock
from vizsla.backends.qdrant.points import recount
from vizsla.backends.qdrant.reweighing import error_bound, reweigh
from vizsla.backends.qdrant.terms import TermNumbers, numbered
from vizsla.backends.qdrant.upload import UploadOptions, count_parts, upload_parts
from vizsla.errors import CollectionError, InputError
from vizsla.index import PartSet
from vizsla.models import CountedStatistics
from waiting import LIMIT, eventually

QUERIES = {f"q{i}": " ".join(random.Random(i).choices(WORDS, k=4)) for i in range(12)}
TITLE, TEXT = BM25(fields=("title",), namespace="title", name="title"), BM25(fields=("text",), lengths="exact")
MODELS: dict[str, Model] = {"bm25": BM25(), "all": TITLE + TEXT + 0.3 * Scattered() + 0.1 * ScatteredTokens()}


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dead writers and old generations are not waited for long."""
    monkeypatch.setattr(locks, "DEAD", 1.5)
    monkeypatch.setattr(locks, "BEAT", 0.3)
    monkeypatch.setattr(generations, "GRACE", 1.2)


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces are written in their order."""
    monkeypatch.setattr(filling, "THREADS", 1)


def bases(where: str) -> tuple[str | None, tuple[str, ...]]:
    """The live generation, and the others."""
    place = Address.parse(where)
    connection = Connection(place.servers)
    found = find_generations(connection, place.name)
    connection.close()
    return found.live, found.others


def added(where: str, some: list[dict[str, Any]], model: Model) -> None:
    with QdrantIndex.create(where, model) as index:
        index.add(some)
        index.commit()


# Uploads


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_parts_give_what_documents_give(tmp_path: Path, where: str, model: Model) -> None:
    some = documents(70)
    report = upload_parts(encode(some, tmp_path / "parts", model), where, model)
    assert (report.documents, report.resumed, report.was_there) == (70, False, False)
    added(f"{where}-added", some, model)
    assert contents(where) == contents(f"{where}-added")
    with build(tmp_path / "i", some, model) as local, open_location(where) as cluster:
        assert differences(local, cluster, QUERIES, 20, cancelling=len(model.parts) > 1) == []


@pytest.mark.slow
def test_several_processes_write_the_same(tmp_path: Path, where: str) -> None:
    some = documents(200)
    parts = encode(some, tmp_path / "parts", "bm25", batch=10)
    upload_parts(parts, where)
    upload_parts(parts, f"{where}-2", options=UploadOptions(workers=2, shards=2))
    assert contents(where) == contents(f"{where}-2")


def test_a_fitted_weight_is_that_of_an_index(tmp_path: Path, where: str) -> None:
    from vizsla.models import AutoWeightedSum

    rng = random.Random(3)
    some = [{"id": str(i), "title": "t", "text": " ".join(rng.choices(WORDS, k=30))} for i in range(90)]
    model = AutoWeightedSum((BM25() + BM25(k1=3, variant="atire", namespace="other")).parts, "auto")
    upload_parts(encode(some, tmp_path / "parts", model), where, model)
    with build(tmp_path / "i", some, model) as local, open_location(where) as cluster:
        weights = [part.weight for part in local.model.parts]
        assert weights[1] != 1.0
        assert [part.weight for part in cluster.model.parts] == weights
        assert differences(local, cluster, QUERIES, 20) == []


def test_a_collection_is_replaced_at_once_and_the_old_one_kept(tmp_path: Path, where: str) -> None:
    old, new = encode(documents(60), tmp_path / "old", "bm25"), encode(documents(80, seed=1), tmp_path / "new", "bm25")
    upload_parts(old, where)
    expected = [contents(where)["documents"].keys()]
    sizes, errors, stop = set[int](), list[BaseException](), threading.Event()

    def search() -> None:
        try:
            with open_location(where) as cluster:
                while not stop.is_set():
                    hits = cluster.search("word1 word2", 100)
                    assert hits
                    sizes.add(len(cluster))
        except BaseException as e:
            errors.append(e)

    thread = threading.Thread(target=search)
    thread.start()
    eventually(lambda: sizes or errors)
    report = upload_parts(new, where)
    eventually(lambda: 80 in sizes or errors)
    assert report.replaced == bases(where)[1][0]
    assert bases(where)[0] == report.base
    again = upload_parts(new, where, options=UploadOptions(drop_old=True))
    stop.set()
    thread.join()
    assert errors == []
    assert sizes == {60, 80}
    assert (again.was_there, again.dropped) == (True, (report.replaced,))
    assert bases(where) == (report.base, ())
    expected.append(contents(where)["documents"].keys())
    assert [len(some) for some in expected] == [60, 80]


def test_changes_meanwhile_are_not_lost(tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    upload_parts(encode(documents(30), tmp_path / "old", "bm25"), where)
    parts = encode(documents(40), tmp_path / "new", "bm25")
    run = filling.Filling.run

    def run_and_change(self: Any, progress: Any) -> None:
        run(self, progress)
        with open_location(where) as other:
            other.add([{"id": "late", "text": "a late dog"}])
            other.commit()

    stale = open_location(where)
    changed = r"was changed while its next generation was made.*give --force"
    with monkeypatch.context() as patch:
        patch.setattr(filling.Filling, "run", run_and_change)
        with pytest.raises(CollectionError, match=changed):
            upload_parts(parts, where)
    assert len(contents(where)["documents"]) == 31
    report = upload_parts(parts, where, options=UploadOptions(force=True))
    assert report.was_there
    assert len(contents(where)["documents"]) == 40
    stale.add([{"id": "later", "text": "dog"}])
    stale.commit()  # it has opened the new one by then
    stale.close()
    assert len(contents(where)["documents"]) == 41
    assert upload_parts(parts, where).base != report.base  # since what was added is not in the parts


def test_nobody_writes_to_a_collection_that_was_replaced(tmp_path: Path, where: str) -> None:
    upload_parts(encode(documents(20), tmp_path / "old", "bm25"), where)
    with open_location(where) as index, index.writer() as writer:
        writer.add([{"id": "x", "text": "dog"}])
        upload_parts(encode(documents(25), tmp_path / "new", "bm25"), where)
        with pytest.raises(CollectionError, match="has been replaced by another one; open it again"):
            writer.commit()
        from vizsla.backends.qdrant.writer import QdrantWriter

        with QdrantWriter(index.reader.connection, bases(where)[1][0], index.model) as other:
            other.add([{"id": "x", "text": "dog"}])
            with pytest.raises(CollectionError, match="has been replaced by another one; open it again"):
                other.commit()
    assert len(contents(where)["documents"]) == 25


def stopped_after(monkeypatch: pytest.MonkeyPatch, pieces: int) -> None:
    """Uploads end in an error after so many pieces."""
    write, count = filling.Pieces.write, iter(range(10**6))

    def write_some(self: Any, piece: int) -> int:
        if next(count) == pieces:
            raise VizslaError("stopped")
        return write(self, piece)

    monkeypatch.setattr(filling.Pieces, "write", write_some)


@pytest.mark.usefixtures("one_thread")
def test_half_an_upload_is_refused_and_goes_on(tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    some = documents(100)
    parts = encode(some, tmp_path / "parts", "bm25")
    with monkeypatch.context() as patch:
        stopped_after(patch, 3)
        with pytest.raises(VizslaError, match="stopped"):
            upload_parts(parts, where)
    with pytest.raises(CollectionError, match="is not finished: its upload goes on, or was stopped"):
        open_location(where)
    with pytest.raises(CollectionError, match=r"another upload to .* was begun and is not finished"):
        upload_parts(encode(documents(10, seed=3), tmp_path / "other", "bm25"), where)
    written = []
    write = filling.Pieces.write
    monkeypatch.setattr(filling.Pieces, "write", lambda self, piece: written.append(piece) or write(self, piece))
    report = upload_parts(parts, where)
    assert report.resumed
    assert written == [3, 4, 5]
    added(f"{where}-added", some, BM25())
    assert contents(where) == contents(f"{where}-added")


@pytest.mark.usefixtures("one_thread")
def test_documents_that_servers_lost_are_written_again(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = documents(100)
    parts = encode(some, tmp_path / "parts", "bm25")
    send, calls = filling.Pieces.send, iter(range(10**6))
    monkeypatch.setattr(filling.Pieces, "send", lambda self, points: next(calls) == 1 or send(self, points))
    upload_parts(parts, where)
    assert next(calls) == 6  # five pieces, and one of them again
    added(f"{where}-added", some, BM25())
    assert contents(where) == contents(f"{where}-added")
    monkeypatch.setattr(filling.Pieces, "send", lambda *_: None)
    with pytest.raises(CollectionError, match="lacks documents that its servers have confirmed"):
        upload_parts(parts, f"{where}-2")


@pytest.mark.usefixtures("one_thread")
def test_one_writer_at_a_time_and_told_so(tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = encode(documents(60), tmp_path / "parts", "bm25")
    with monkeypatch.context() as patch:
        stopped_after(patch, 2)
        with pytest.raises(VizslaError, match="stopped"):
            upload_parts(parts, where)
    connection = Connection(Address.parse(where).servers)
    base = bases(where)[0]
    assert base is not None
    monkeypatch.setattr(locks, "DEAD", LIMIT)
    with (
        WriteLock(connection, base),
        pytest.raises(CollectionError, match=rf"is being written to \(process {os.getpid()} on"),
    ):
        upload_parts(parts, where, options=UploadOptions(timeout=0.5))
    assert upload_parts(parts, where).resumed
    connection.close()


@pytest.mark.slow
def test_a_killed_upload_goes_on(tmp_path: Path, where: str) -> None:
    """More moments: make cluster-crash."""
    some = documents(300)
    parts = encode(some, tmp_path / "parts", "bm25", batch=10)
    assert killed("upload", where, parts, pieces=7) == -signal.SIGKILL
    with pytest.raises(CollectionError, match="is not finished"):
        open_location(where)
    assert upload_parts(parts, where).resumed
    added(f"{where}-added", some, BM25())
    assert contents(where) == contents(f"{where}-added")
    assert bases(where)[1] == ()


def test_what_cannot_be_uploaded(tmp_path: Path, where: str, server: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    from vizsla.datasets import documents_from
    from vizsla.index import encode_shard

    def part(name: str, some: list[dict[str, Any]], **options: Any) -> Path:
        (tmp_path / name).mkdir()
        encode_shard(documents_from(some), tmp_path / name / "part.parquet", "bm25", **options)  # type: ignore[arg-type]
        return tmp_path / name

    with pytest.raises(VizslaError, match="split into passages, but a collection in Qdrant has whole documents"):
        upload_parts(part("passages", documents(4), passages=5), where)
    monkeypatch.setattr("vizsla.index.writing.analysis.BATCH_CHARACTERS", 1)  # of a batch the last one stays
    twice = part("twice", [*documents(3), documents(3)[0]])
    with pytest.raises(InputError, match=r"part\.parquet: the id 'd0' appears a second time"):
        upload_parts(twice, where)
    assert bases(where) == (None, ())
    good = part("good", documents(4))
    with pytest.raises(VizslaError, match="is not the address of a collection"):
        upload_parts(good, "http://localhost/x")
    with pytest.raises(VizslaError, match="workers, the number of processes, must be 1 or more"):
        upload_parts(good, where, options=UploadOptions(workers=0))
    connection = Connection(Address.parse(where).servers)
    from vizsla.backends.qdrant.generations import create_collection

    create_collection(connection, Address.parse(where).name, BM25())
    for refused in (lambda: upload_parts(good, where), lambda: reweigh(where)):
        with pytest.raises(CollectionError, match="is a collection itself and no alias"):
            refused()
    connection.close()
    server.kill()
    try:
        with pytest.raises(CollectionError, match="cannot be reached"):
            upload_parts(good, where, connection=Connection(Address.parse(where).servers, patience=0.1))
    finally:
        server.start()


def test_an_upload_of_nothing(tmp_path: Path, where: str) -> None:
    (tmp_path / "parts").mkdir()
    from vizsla.index import encode_shard

    encode_shard([], tmp_path / "parts" / "part.parquet", "bm25")
    assert upload_parts(tmp_path / "parts", where).documents == 0
    with open_location(where) as cluster:
        assert len(cluster) == 0
        assert cluster.search("dog") == []


# Reweighing


def drifted(where: str, model: Model) -> list[dict[str, Any]]:
    """A collection whose documents have become longer; gives those that it has."""
    some = documents(120)
    longer = [{**d, "id": f"x{i}", "text": f"{d['text']} " * 3} for i, d in enumerate(documents(80, seed=9))]
    with QdrantIndex.create(where, model) as index:
        index.add(some)
        index.commit()
        index.delete([d["id"] for d in some[10:40]])
        index.commit()
        index.add(longer)
        index.commit()
    return [*some[:10], *some[40:], *longer]


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_renewed_weights_are_those_of_new_documents(tmp_path: Path, where: str, model: Model) -> None:
    some = drifted(where, model)
    before = contents(where)
    report = reweigh(where)
    assert report.renewed
    assert max(map(abs, report.drift.values())) > 0.01
    added(f"{where}-added", some, model)
    after, expected = contents(where), contents(f"{where}-added")
    assert {i: d["number"] for i, d in after["documents"].items()} == {
        i: d["number"] for i, d in before["documents"].items()
    }
    for found in (after, expected):
        for document in found["documents"].values():
            del document["number"]
        for name, space in found["state.namespaces"].items():
            found["state.namespaces"][name] = (space.documents, space.total_length, space.frozen_average, space.drift)
    assert after == expected
    assert before["documents"].keys() == after["documents"].keys()
    assert reweigh(where).renewed is False
    with build(tmp_path / "i", some, model) as local, open_location(where) as cluster:
        assert differences(local, cluster, QUERIES, 20, cancelling=len(model.parts) > 1) == []
        assert cluster.term_statistics("word1 word7 word57") == local.term_statistics("word1 word7 word57")


def test_counts_that_weights_do_not_give_back(tmp_path: Path, where: str) -> None:
    """With b near 0 a count of many thousands has the weight of one more; it is kept beside the weight."""
    model = BM25(b=0.001)
    some = [*documents(20), {"id": "much", "text": "word7 " * 20_000 + "word8"}]
    upload_parts(encode(some, tmp_path / "parts", model), where, model)
    with open_location(where) as index:
        index.add(documents(20, seed=4))  # of the same ids, in place of the others
        index.commit()
    assert contents(where)["documents"]["much"]["counts"] == {"word7": 20_000}
    assert reweigh(where, threshold=0).renewed
    now = [{"id": "much", "text": some[-1]["text"]}, *documents(20, seed=4)]
    added(f"{where}-added", now, model)
    found, fresh = contents(where), contents(f"{where}-added")
    assert found["terms"] == fresh["terms"]
    assert found["documents"]["much"]["counts"] == fresh["documents"]["much"]["counts"]


def test_below_the_threshold_nothing_is_done(where: str) -> None:
    drifted(where, BM25())
    assert not reweigh(where, threshold=5).renewed
    assert bases(where)[1] == ()
    for wrong in (-1, "much", True, float("nan")):
        with pytest.raises(VizslaError, match="the threshold is a share"):
            reweigh(where, threshold=wrong)  # type: ignore[arg-type]
    with pytest.raises(CollectionError, match="there is no collection"):
        reweigh(f"{where}-nothing")


def test_searches_go_on_while_weights_are_renewed(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old collection is kept until clients have had time to leave it, here until one has."""
    drifted(where, BM25())
    seen, errors, stop = set[tuple[Any, ...]](), list[BaseException](), threading.Event()
    graces: list[float] = []

    def grace(seconds: float) -> None:
        graces.append(seconds)
        eventually(lambda: len(seen) == 2 or errors)

    def search() -> None:
        try:
            with open_location(where) as cluster:
                while not stop.is_set():
                    seen.add(tuple((h.id, h.score) for h in cluster.search("word1 word2 word3", 20)))
        except BaseException as e:
            errors.append(e)

    thread = threading.Thread(target=search)
    thread.start()
    eventually(lambda: seen or errors)
    monkeypatch.setattr(generations, "time", SimpleNamespace(sleep=grace))
    report = reweigh(where, drop_old=True)
    stop.set()
    thread.join()
    assert (errors, graces) == ([], [generations.GRACE])
    assert report.renewed
    assert len(report.dropped) == 1
    assert len(seen) == 2  # the old ranking and the new one, never a mixture


@pytest.mark.usefixtures("one_thread")
def test_a_stopped_reweighing_goes_on(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    some = drifted(where, BM25())
    monkeypatch.setattr("vizsla.backends.qdrant.reweighing.PIECE", 20)
    with monkeypatch.context() as patch:
        stopped_after(patch, 4)
        with pytest.raises(VizslaError, match="stopped"):
            reweigh(where)
    assert len(bases(where)[1]) == 1
    with monkeypatch.context() as patch:  # stopped before the swap
        patch.setattr("vizsla.backends.qdrant.reweighing.swap", lambda *_: (_ for _ in ()).throw(VizslaError("no")))
        with pytest.raises(VizslaError, match="no"):
            reweigh(where)
    report = reweigh(where, drop_old=True)
    assert report.renewed
    assert bases(where) == (report.base, report.dropped[1:])
    added(f"{where}-added", some, BM25())
    assert contents(where)["terms"] == contents(f"{where}-added")["terms"]
    with open_location(where) as cluster, open_location(f"{where}-added") as fresh:
        assert differences(fresh, cluster, QUERIES, 20) == []
    with monkeypatch.context() as patch:  # begun, and then documents are added: it begins again
        with open_location(where) as cluster:
            cluster.add(documents(30, seed=5))
            cluster.commit()
        stopped_after(patch, 1)
        with pytest.raises(VizslaError, match="stopped"):
            reweigh(where, threshold=0)
    with open_location(where) as cluster:
        cluster.add([{"id": "more", "text": "word1 word2"}])
        cluster.commit()
    assert reweigh(where, threshold=0).renewed
    assert "more" in contents(where)["documents"]


def test_a_commit_renews_weights_if_asked(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the bound, in the middle of the life of a writer; one that was stopped goes on at the next commit."""
    monkeypatch.setattr(generations, "GRACE", 0.0)
    monkeypatch.setattr("vizsla.backends.qdrant.reweighing.PIECE", 20)
    longer = [{**d, "id": f"x{i}", "text": f"{d['text']} " * 3} for i, d in enumerate(documents(40, seed=9))]
    late = {"id": "late", "text": "word1 word2 " * 40}
    added(where, documents(60), BM25())
    first = bases(where)[0]
    with QdrantIndex(f"{where}?reweigh=5") as index:
        index.add(longer)
        index.commit()
        facts = index.info()["namespaces"]["words"]
        assert bases(where) == (first, ())
        assert facts["score_error"] > facts["drift"] / 4 > 0.05
    with QdrantIndex(f"{where}?reweigh=auto") as index:
        with monkeypatch.context() as patch:
            stopped_after(patch, 2)
            with pytest.raises(VizslaError, match=r"everything is committed, but .* stopped"):
                index.commit()
        assert bases(where)[0] == first
        index.commit()  # nothing new, but the renewal goes on
        assert bases(where)[1] == ()
        facts = index.info()["namespaces"]["words"]
        assert bases(where)[0] != first
        assert (facts["drift"], facts["score_error"]) == (0, 0)
        index.add([late])  # by the same writer
        index.commit()
        assert index.info()["namespaces"]["words"]["drift"] == 0
        added(f"{where}-added", [*documents(60), *longer, late], BM25())
        with open_location(f"{where}-added") as fresh:
            assert differences(fresh, index, QUERIES, 20) == []
    assert contents(where)["terms"] == contents(f"{where}-added")["terms"]


@given(
    st.sampled_from(["lucene", "bm25l", "bm25+"]),
    st.floats(0, 1),
    st.lists(st.integers(1, 400), min_size=1, max_size=5),
    st.integers(1, 4000),
)
def test_no_weight_is_further_off_than_is_told(variant: str, b: float, lengths: list[int], more: int) -> None:
    model = BM25(b=b, variant=variant)
    before = CountedStatistics(len(lengths), sum(lengths), max(lengths), {})
    after = CountedStatistics(before.documents, before.total_length + more, before.longest, {})
    frozen, now = model.weighting(before), model.weighting(after)
    codes = model.length_codes(np.arange(1, before.longest + 1))
    values = np.arange(1, 300)[:, None]
    old, new = (w.weigh(np.repeat(values, len(codes), 1), codes) for w in (frozen, now))
    worst = np.abs(old / new - 1).max()
    bound = error_bound(frozen, now, int(codes[-1]))
    assert worst <= bound + 1e-12
    if variant == "lucene":  # a larger count is off by less, so the bound is met
        assert bound == pytest.approx(np.maximum(old / new, new / old)[0].max() - 1, abs=1e-9)


@pytest.mark.parametrize("option", ["reweigh=no", "reweigh=0", "reweigh=-1", "reweigh=nan", "drop=auto", ""])
def test_an_unknown_option_of_an_address_is_refused(option: str) -> None:
    with pytest.raises(VizslaError, match="expected reweigh=auto, or a share"):
        Address.parse(f"qdrant://one/dogs?{option}")
    assert str(Address.parse("qdrant://one/dogs?reweigh=0.05")) == "qdrant://one:6333/dogs?reweigh=0.05"


# Blocks of terms


@given(st.lists(st.integers(0, 6), max_size=60))
def test_terms_of_a_block_have_numbers_of_their_own(hashes: list[int]) -> None:
    found = numbered(np.array(hashes, np.int64), 7).tolist()
    assert len(set(found)) == len(hashes)
    for block in range(7):
        assert [n for n, h in zip(found, hashes, strict=True) if h == block] == list(
            range(block, block + 7 * hashes.count(block), 7)
        )


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_terms_in_blocks_and_terms_of_their_own(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch, model: Model
) -> None:
    """An upload, then changes of its terms and new ones; weights renewed, and a writer that died."""
    monkeypatch.setattr("vizsla.backends.qdrant.upload.BLOCK", 8)
    upload_parts(encode(documents(50), tmp_path / "parts", model), where, model)
    new = [{"id": f"n{i}", "text": f"word1 fresh{i} fresh{i + 1} word{i}"} for i in range(20)]
    with QdrantIndex(where) as index:
        uploaded = index.info()["distinct_terms"]
        index.add([*new, *documents(10, seed=3)])
        index.delete(["d20", "d21"])
        index.commit()
        assert index.info()["distinct_terms"] >= uploaded + 21
        state = index.reader.state
        assert state.term_blocks.count == -(-uploaded // 8)
    now = [*(d for d in documents(50)[10:] if d["id"] not in ("d20", "d21")), *new, *documents(10, seed=3)]
    added(f"{where}-added", now, model)
    expected = contents(f"{where}-added")["terms"]
    assert contents(where)["terms"] == expected
    reweigh(where, threshold=0)
    assert contents(where)["terms"] == expected
    with QdrantIndex(where) as index:  # a writer has died after it changed some terms
        connection, state = index.reader.connection, index.reader.state
        terms = list(state.terms(connection).all())
        state.terms(connection).store(replace(entry, documents=99) for entry in terms[::3])
        assert contents(where)["terms"] != expected
        recount(connection, state, index.model)
    assert contents(where)["terms"] == expected
    by_number = state.terms(Connection(Address.parse(where).servers)).numbered([entry.number for entry in terms])
    assert {n: (e.namespace, e.term) for n, e in by_number.items()} == {t.number: (t.namespace, t.term) for t in terms}


# Pieces


@given(st.sets(st.integers(0, 200)))
def test_a_record_comes_back_as_it_was(done: set[int]) -> None:
    record = FillingRecord("source", "live 3", done)
    assert FillingRecord.of(record.payload()) == record
    assert all(a < b for a, b in record.payload()["done"])
    with pytest.raises(CollectionError, match="the record of an upload is damaged"):
        FillingRecord.of({"source": "x"})


@settings(max_examples=15)
@example(texts=[[]], shards=1)
@given(st.lists(st.lists(st.sampled_from(WORDS[:9]), max_size=8), max_size=25), st.integers(1, 3))
def test_parts_are_counted_as_an_index_counts(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[str]], shards: int
) -> None:
    folder = tmp_path_factory.mktemp("counted")
    some = [{"id": str(i), "text": " ".join(words)} for i, words in enumerate(texts)]
    parts = PartSet(encode(some, folder / "parts", "bm25", shards, batch=4))
    counts = count_parts(parts, BM25())
    with build(folder / "i", some, BM25()) as local:
        words = counts.namespaces["words"]
        facts = local.info()["namespaces"]["words"]
        assert (words.documents, words.total_length) == (facts["documents"], facts["tokens"])
        terms = words.terms.to_pylist()
        assert terms == sorted(terms)
        known = {
            s.term: (s.documents, s.occurrences) for s in local.term_statistics(" ".join(WORDS[:9])) if s.documents
        }
        found = zip(words.frequencies.tolist(), words.occurrences.tolist(), strict=True)
        assert dict(zip(terms, found, strict=True)) == known
    assert sum(counts.rows) == counts.documents == len(some)
    assert np.all(words.frequencies > 0)


# The command line


def test_the_commands(tmp_path: Path, where: str, cli: Cli) -> None:
    source, parts = tmp_path / "documents.jsonl", tmp_path / "parts"
    source.write_text('{"id": "1", "text": "dogs bark"}\n{"id": "2", "text": "cats sleep all day long"}\n')
    parts.mkdir()
    assert cli("encode", source, "-o", parts / "part.parquet")[0] == 0
    code, _, words = cli("qdrant", "upload", parts, where)
    assert code == 0
    assert "2 documents in" in words
    assert f"vizsla search {where}" in words
    assert "has these 2 documents already" in cli("qdrant", "upload", parts, where)[2]
    assert "dogs bark" in cli("search", where, "dog")[1]
    assert "nothing to do: the mean length has not changed by 1.00%" in cli("qdrant", "reweigh", where)[2]
    more = tmp_path / "more.jsonl"
    more.write_text('{"id": "3", "text": "' + "dog " * 60 + '"}\n')
    assert cli("add", where, more)[0] == 0
    code, _, words = cli("qdrant", "reweigh", where)
    assert code == 0
    assert "3 documents in" in words
    assert "the old collection is kept" in words
    assert "removed: " in cli("qdrant", "reweigh", where, "--drop-old")[2]
    code, _, words = cli("qdrant", "upload", tmp_path, where)
    assert code == 2
    assert words.startswith(f"vizsla: {tmp_path}: there are no parts in this folder")


@given(st.sets(st.text("abcé", max_size=4), max_size=40), st.lists(st.text("abcé", max_size=4), max_size=40))
@pytest.mark.parametrize(
    "hashed", [hash, len, lambda text: ord(text[0]) if text else 0], ids=["hash", "length", "first"]
)
def test_numbers_of_terms_are_their_places(hashed: Any, terms: set[str], asked: list[str]) -> None:
    """Also where many terms have the same hash."""
    import pyarrow

    ordered = sorted(terms)
    expected = [ordered.index(term) if term in terms else -1 for term in asked]
    assert TermNumbers(pyarrow.array(ordered, pyarrow.string()), hashed).of(asked).tolist() == expected
