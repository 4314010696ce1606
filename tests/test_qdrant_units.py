"""Collections in Qdrant without a server: addresses, connections, points, filters, and a client in memory."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from qdrant_compared import documents
from scattered import ScatteredTokens
from vizsla import BM25, Document, Filter, VizslaError, parse_model
from vizsla.backends.qdrant import QdrantIndex, lock
from vizsla.backends.qdrant import connection as connections
from vizsla.backends.qdrant import writer as writing
from vizsla.backends.qdrant.connection import (
    Address,
    Connection,
    LeaderLostError,
    MissingCollectionError,
    bodies,
    query_batch,
)
from vizsla.backends.qdrant.layout import STATE_ID
from vizsla.backends.qdrant.points import BatchNumbers, PointEncoder, StoredPoint, in_nine_digits
from vizsla.backends.qdrant.searching import FoundDocuments, Pending, is_complete, ordered, payload_filter
from vizsla.backends.qdrant.state import CollectionState, NamespaceState
from vizsla.backends.qdrant.writer import Staging
from vizsla.errors import CollectionError
from vizsla.index.writing.analysis import Analyst
from vizsla.models import CountedStatistics

IN_MEMORY = [
    pytest.mark.filterwarnings("ignore:Payload indexes have no effect"),
    pytest.mark.filterwarnings("ignore:Local mode performs exact"),
]


# Addresses


@pytest.mark.parametrize(
    ("text", "servers", "name"),
    [
        ("qdrant://localhost/my", ["http://localhost:6333"], "my"),
        ("qdrant://a:1,b:2,a:1/my", ["http://a:1", "http://b:2"], "my"),
        ("qdrants://example.org:443/my%20dogs", ["https://example.org:443"], "my dogs"),
        ("QDRANT://[::1]:6333/x/", ["http://[::1]:6333"], "x"),
    ],
)
def test_addresses(text: str, servers: list[str], name: str) -> None:
    parsed = Address.parse(text)
    assert (list(parsed.servers), parsed.name) == (servers, name)
    assert Address.parse(str(replace(parsed, name="plain"))).servers == parsed.servers


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("qdrant://localhost", "is not the address of a collection; expected one as in"),
        ("qdrant:///my", "'' in 'qdrant:///my' is not a host with a port"),
        ("qdrant://a,,b/my", "'' in"),
        ("qdrant://a:99999/my", "'a:99999' in"),
        ("qdrant://me:secret@a/my", "has no user or password; give a key in QDRANT_API_KEY"),
        ("qdrant://a/my/other", "cannot be the name of a collection"),
    ],
)
def test_wrong_addresses(text: str, message: str) -> None:
    with pytest.raises(VizslaError, match=message):
        Address.parse(text)


# Connections


class Failing(Connection):
    """Servers that fail in the order of a script: an exception, or None for an answer."""

    def __init__(self, servers: list[str], script: list[Exception | None]) -> None:
        super().__init__(servers, patience=0.05)
        self.script, self.asked = iter(script), list[int]()

    def _client(self, at: int) -> Any:
        self.asked.append(at)
        return None

    def answer(self, _: Any) -> str:
        problem = next(self.script)
        if problem is not None:
            raise problem
        return "fine"


def unreachable() -> Exception:
    return ResponseHandlingException(httpx.ConnectError("refused"))


def status(code: int, text: str = "") -> Exception:
    return UnexpectedResponse(code, "reason", b'{"status": {"error": "%s"}}' % text.encode(), httpx.Headers())


@pytest.mark.parametrize(
    "problem", [unreachable(), status(500), status(503), ResponseHandlingException(httpx.ReadTimeout(""))]
)
def test_the_next_server_is_asked_where_one_fails(problem: Exception) -> None:
    connection = Failing(["a", "b", "c"], [problem, problem, None, None])
    assert connection.call(connection.answer) == "fine"
    assert connection.call(connection.answer) == "fine"
    assert connection.asked == [0, 1, 2, 2]


def test_failures_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_FIRST_WAIT", 0.01)
    for error, kind, message in [
        (unreachable(), CollectionError, r"none of a, b answers; the last one cannot be reached \(refused\); is one"),
        (ResponseHandlingException(httpx.ReadTimeout("")), CollectionError, "does not answer in time"),
        (status(500, "no active replica"), CollectionError, "answers 500: no active replica"),
        (status(500, "leader is not established"), CollectionError, "a, b: the servers could not agree on a change"),
        (status(404, "Not found: Collection `x` doesn't exist!"), MissingCollectionError, "doesn't exist"),
        (status(400, "Wrong input"), CollectionError, r"a, b: the server refuses this \(Wrong input\)"),
        (status(401, "Must provide an API key"), CollectionError, "it asks for a key"),
    ]:
        connection = Failing(["a", "b"], [error] * 100)
        with pytest.raises(kind, match=message) as e:
            connection.call(connection.answer)
        assert "\n" not in str(e.value)


def test_a_lost_leader_is_told_at_once() -> None:
    lost = status(500, "Failed to apply update with Strong ordering via leader peer 7: Unavailable")
    connection = Failing(["a", "b"], [unreachable(), lost, None])
    with pytest.raises(LeaderLostError, match="a, b: Failed to apply update"):
        connection.call(connection.answer)
    assert connection.asked == [0, 1]


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b"{}", b'{"result": null}', b'{"result": [3]}'])
def test_an_answer_that_makes_no_sense(answer: bytes) -> None:
    def respond(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=answer)

    connection = Connection(["http://a"], patience=0.05, options={"transport": httpx.MockTransport(respond)})
    with pytest.raises(CollectionError, match="http://a returns an invalid response"):
        connection.call(query_batch, "dogs", [])


def test_timeouts_are_numbers() -> None:
    with pytest.raises(VizslaError, match="timeout is a number of seconds above 0, not the number 0"):
        Connection(["a"], timeout=0)


def test_all_batches_are_sent_and_an_error_is_raised() -> None:
    connection, sent = Connection(["a"]), []
    connection._clients[0] = object()  # type: ignore[assignment]

    def write(_: Any, name: str, batch: int, wait: bool) -> None:
        assert wait
        if batch == 30:
            raise RuntimeError(name)
        sent.append(batch)

    connection.send(write, "x", range(30))
    assert sorted(sent) == list(range(30))
    with pytest.raises(RuntimeError, match="x"):
        connection.send(write, "x", range(40))


# Points


@given(
    counts=st.lists(st.integers(1, 5000), min_size=1, max_size=30),
    k1=st.floats(0, 5),
    b=st.floats(0, 1),
    variant=st.sampled_from(["lucene", "atire", "bm25l", "bm25+", "bag"]),
    scheme=st.sampled_from(["lucene", "exact"]),
    average=st.integers(1, 3000),
)
def test_counts_come_back_from_points(
    counts: list[int], k1: float, b: float, variant: str, scheme: str, average: int
) -> None:
    """Whatever the weights round to: what they do not give back is kept beside them."""
    model = BM25(k1=k1, b=b, variant=variant, lengths=scheme)
    text = " ".join(" ".join([f"w{i}"] * count) for i, count in enumerate(counts))
    batch = Analyst(model, None, store=True, max_bytes=0).analyse([Document("1", {"text": text})])
    frozen = {"words": CountedStatistics(1, average, 0, {})}
    numbers: dict[str, int] = {}
    given = BatchNumbers(
        lambda _, terms: np.array([numbers.setdefault(t, 7 + 2 * len(numbers)) for t in terms]), ("words",)
    ).of(batch)
    (point,) = PointEncoder(model, frozen).points(batch, 5, given)
    record = models.Record.model_validate(point)
    stored = StoredPoint.of(record)
    values = stored.values({"words": model}, frozen, dict.fromkeys(stored.terms.tolist(), "words"))
    found = dict(zip(stored.terms.tolist(), values.tolist(), strict=True))
    assert found == {numbers[f"w{i}"]: count for i, count in enumerate(counts)}
    assert (stored.doc_id, stored.number, stored.content) == ("1", 5, {"text": text})


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_numbers_of_nine_digits_mean_the_same_32_bits(numbers: list[float]) -> None:
    given = np.array(numbers, np.float32)
    short = in_nine_digits(given)
    assert short.dtype == np.float64
    assert short.astype(np.float32).tobytes() == given.tobytes()
    for number in short.tolist():
        digits = repr(number).lower().partition("e")[0].replace(".", "").strip("-0")
        assert len(digits) <= 9 or abs(number) < 1e-13 or abs(number) >= 1e9


@given(st.lists(st.integers(0, 300), max_size=60), st.integers(100, 3000), st.integers(1, 20))
def test_requests_hold_all_points_and_are_small(sizes: list[int], most: int, count: int) -> None:
    points = [{"id": i, "vector": {"v": [0.5] * n}, "payload": {"id": "\u20ac" * i}} for i, n in enumerate(sizes)]
    made = list(bodies(points, most=most, count=count))
    requests = [json.loads(body)["points"] for body in made]
    assert [point for some in requests for point in some] == points
    assert all(len(some) <= count for some in requests)
    assert all(len(some) == 1 or len(body) <= most for some, body in zip(requests, made, strict=True))


def test_a_point_of_somebody_else_is_refused() -> None:
    with pytest.raises(CollectionError, match="the point 7 of the collection was not written by Vizsla"):
        StoredPoint.of(models.Record(id=7, payload={"text": "dog"}))


def test_a_state_comes_back_from_its_payload() -> None:
    spaces = {"words": NamespaceState(3, 12, 9, 2, 10)}
    state = CollectionState("my", "b", {"name": "bm25"}, {}, "d", spaces, generation=4, documents=3)
    assert CollectionState.from_payload(state.payload()) == state


def test_staged_changes_can_be_taken_back() -> None:
    model = parse_model("bm25")
    staging = Staging()

    def batch(doc_id: str) -> Any:
        return Analyst(model, None, True, 0).analyse([Document(doc_id, {"text": "dog cat"})])

    staging.add(batch("1"), ("words",))
    mark = staging.mark()
    staging.delete(("1",))
    staging.add(batch("2"), ("words",))
    assert staging.there == {"1": False, "2": True}
    assert staging.lengths == {"words": (2, 4, 2)}
    staging.go_back(mark)
    assert [change.ids for change in staging.changes()] == [["1"]]
    assert (staging.there, staging.lengths, len(staging.sample)) == ({"1": True}, {"words": (1, 2, 2)}, 1)
    staging.close()


# What is complete


@pytest.mark.parametrize(
    ("scores", "k", "lasts", "complete"),
    [
        ([9, 8, 7], 2, [4.0, 3.0], True),  # what no part named has 7 at most
        ([9, 7, 6], 2, [4.0, 3.0], False),  # it could tie
        ([9, 7.00001, 6], 2, [4.0, 3.0], False),  # within rounding
        ([9], 2, [1.0, 1.0], False),
        ([9], 2, [], True),  # all parts named all they have
        ([9, 2, 1], 2, [1.0], True),
        ([9, -1, -2], 2, [-3.0], False),  # a document without this vector adds 0
        ([9, 8, 8], 2, [1.0, 1.0], False),  # there may be more of the same score
        ([9, 8, 8], 3, [], False),
        ([9, 8, 7], 2, [], True),
    ],
)
def test_completeness(scores: list[float], k: int, lasts: list[float], complete: bool) -> None:
    one = Pending(0, [], 3, 40)
    assert is_complete(scores, k, one, lasts) is complete
    assert complete or one.depth > 40 or one.limit > 3


# What servers answer


@given(st.lists(st.sampled_from([3.0, 2.5, 2.0, 0.0, -1.0]), max_size=12), st.randoms(), st.booleans())
def test_answers_are_put_in_order(scores: list[float], rng: random.Random, documents: bool) -> None:
    numbers = rng.sample(range(100), len(scores))
    points = [
        {
            "id": str(n),
            "score": s,
            "payload": {"id": f"d{n}", "number": n, **({"document": {"n": n}} if documents else {})},
        }
        for s, n in zip(scores, numbers, strict=True)
    ]
    expected = sorted(zip(scores, numbers, strict=True), key=lambda pair: (-pair[0], pair[1]))
    found = ordered(points)
    assert list(zip(found.scores, found.numbers, strict=True)) == expected
    assert list(found.ids) == [f"d{n}" for _, n in expected]
    assert list(found.contents) == ([{"n": n} for _, n in expected] if documents else [])
    hits = found.top(5).hits({})
    assert [(h.rank, h.score, h.id) for h in hits] == [(i, s, f"d{n}") for i, (s, n) in enumerate(expected[:5], 1)]
    assert [h.document.content for h in hits] == [{"n": n} if documents else {} for _, n in expected[:5]]


def test_hits_of_several_queries_share_their_documents() -> None:
    known: dict[str, Document] = {}
    (first,), (second,) = (FoundDocuments([s], [1], ["d"], []).hits(known) for s in (2.0, 1.0))
    assert first.document.content is second.document.content


@pytest.mark.parametrize("payload", [None, {}, {"id": "a"}, {"id": 3, "number": 1}, {"id": "a", "number": "1"}])
def test_a_point_that_is_not_ours_is_refused(payload: Any) -> None:
    ours = {"id": "x", "score": 2.0, "payload": {"id": "a", "number": 0}}
    with pytest.raises(CollectionError, match="the point 7 was not written by Vizsla; remove it, or build it again"):
        ordered([ours, {"id": 7, "score": 1.0, "payload": payload}])


def test_an_answer_without_scores_is_refused() -> None:
    with pytest.raises(CollectionError, match="a server gives points without a score"):
        ordered([{"id": 7, "payload": {"id": "a", "number": 0}}])


# Filters


def test_every_leaf_of_a_filter_is_translated() -> None:
    text = "a = 1 and not (b.c in ['x', 2, true, null] or d != 'y') and exists(`e.f`) and g >= 0.5 and h in []"
    translated = payload_filter(Filter.parse(text)).model_dump_json(exclude_none=True)
    for part in ('document.\\"b\\".\\"c\\"', 'document.\\"e.f\\"', '"any":["x"]', '"gte":0.5', "must_not"):
        assert part in translated


# A client in memory


@pytest.fixture
def connection() -> Iterator[Connection]:
    made = Connection.of_client(QdrantClient(":memory:"))
    yield made
    made.close()


class TestInMemory:
    pytestmark = IN_MEMORY

    def test_a_commit_while_the_leader_is_down(self, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        """The server that orders changes strongly is gone: another one does it, and the writer looks twice."""
        call, orderings = connection.call, list[str]()

        def led(ask: Any, *arguments: Any, **options: Any) -> Any:
            if "ordering" in options:
                orderings.append(options["ordering"].value)
                if options["ordering"] == models.WriteOrdering.STRONG:
                    raise LeaderLostError("Strong ordering via leader peer 7")
            return call(ask, *arguments, **options)

        with QdrantIndex.create("qdrant://memory/my", connection=connection) as cluster:
            monkeypatch.setattr(connection, "call", led)
            monkeypatch.setattr(lock, "_SETTLE", 0.01)
            cluster.add(documents(5))
            cluster.commit()
            assert len(cluster) == 5
            assert set(orderings) == {"strong", "medium"}

            def stolen(seconds: float) -> None:
                if seconds == lock._SETTLE:
                    payload = {"writer": {"token": "other", "beat": 0}}
                    call(QdrantClient.set_payload, "my@1.terms", payload, [STATE_ID])

            monkeypatch.setattr(lock.time, "sleep", stolen)
            with pytest.raises(CollectionError, match="is being written to"):
                lock.WriteLock(connection, "my@1", timeout=0)

    def test_token_vectors_are_sent_in_small_requests(
        self, connection: Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A commit counts bytes and not documents: those of late interaction are a hundred times as large."""
        sizes: list[tuple[int, int]] = []

        def watched(client: QdrantClient, name: str, body: bytes, *, wait: bool) -> None:
            sizes.append((len(body), len(json.loads(body)["points"])))
            connections.upsert(client, name, body, wait=wait)

        monkeypatch.setattr(writing, "upsert", watched)
        monkeypatch.setattr(connections, "REQUEST_BYTES", 20_000)
        with QdrantIndex.create("qdrant://memory/my", ScatteredTokens(), connection=connection) as cluster:
            cluster.add(documents(60))
            cluster.commit()
            assert len(cluster) == 60
        assert sum(points for _, points in sizes) == 60
        assert len(sizes) > 3
        assert all(size <= 20_000 or points == 1 for size, points in sizes)

    def test_a_model_that_cannot_be_there(self, connection: Connection) -> None:
        from test_coil_index import Words

        with pytest.raises(VizslaError, match="compares equal tokens, which Qdrant cannot do"):
            QdrantIndex.create("qdrant://memory/my", Words(), connection=connection)


@given(st.data())
def test_the_products_of_the_stand_in_are_those_of_the_client(data: st.DataObject) -> None:
    from qdrant_client.local.sparse_distances import calculate_distance_sparse

    import qdrant_stand_in

    weights = st.dictionaries(st.integers(0, 12), st.floats(-9, 9, width=32), max_size=8)
    query, *vectors = (
        models.SparseVector(indices=sorted(one), values=[one[term] for term in sorted(one)])
        for one in data.draw(st.lists(weights, min_size=1, max_size=5))
    )
    for empty_is_zero in (False, True):
        expected = calculate_distance_sparse(query, vectors, empty_is_zero)
        assert np.array_equal(qdrant_stand_in._products(query, vectors, empty_is_zero), expected)
