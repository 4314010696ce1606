"""Partial updates of documents: in an index, over HTTP and by the clients, against a plain dictionary."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from conftest import Cli
from examples import part_of_examples
from served import Client, served
from vizsla import AsyncIndex, Index, RemoteIndex, VizslaError
from vizsla.errors import UnsupportedError
from vizsla.index import verify

WORDS = st.lists(st.sampled_from(["dog", "dogs", "cat", "bark", "the", "fish"]), max_size=9).map(" ".join)
VALUES = st.one_of(st.integers(-2, 3), st.booleans(), st.sampled_from([0.5, "a", ""]), st.lists(st.integers(0, 2)))
IDS = st.sampled_from([f"d{i}" for i in range(6)])
FIELDS = st.fixed_dictionaries({}, optional={"text": WORDS, "title": WORDS, "year": VALUES, "tag": VALUES})
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "text": WORDS, "title": st.one_of(st.none(), WORDS), "year": st.one_of(st.none(), VALUES),
        "tag": st.one_of(st.none(), VALUES), "new": st.one_of(st.none(), VALUES),
    },
)  # fmt: skip
SETTINGS = st.sampled_from(
    [
        ("bm25", None, 1),
        ("bm25", None, 1 << 30),
        ("bm25-multifield", None, 1 << 30),
        ("bm25", 3, 1),
        ("bm25", 3, 1 << 30),
    ]
)


def exactly(value: Any) -> str:
    """JSON tells 1, 1.0 and true apart, as == does not."""
    return json.dumps(value, sort_keys=True)


class Life(RuleBasedStateMachine):
    """A collection whose documents are added, updated, deleted, committed and discarded."""

    @initialize(chosen=SETTINGS)
    def create(self, chosen: tuple[str, int | None, int]) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.model, self.passages, self.memory = chosen
        self.index = Index.create(
            self.folder / "i", self.model, passages=self.passages, memory=self.memory, positions=self.memory == 1
        )
        self.now: dict[str, dict[str, Any]] = {}
        self.committed: dict[str, dict[str, Any]] = {}

    @rule(documents=st.lists(st.tuples(IDS, FIELDS), max_size=4))
    def add(self, documents: list[tuple[str, dict[str, Any]]]) -> None:
        records = [{"_id": doc_id, "text": "", **fields} for doc_id, fields in documents]
        self.index.add(records)
        self.now |= {record["_id"]: {n: v for n, v in record.items() if n != "_id"} for record in records}

    @rule(changes=st.lists(st.tuples(IDS, CHANGES), max_size=5))
    def update(self, changes: list[tuple[str, dict[str, Any]]]) -> None:
        updated = self.index.update([{"_id": doc_id, **fields} for doc_id, fields in changes])
        asked = dict.fromkeys(doc_id for doc_id, _ in changes)
        assert updated.missing == [doc_id for doc_id in asked if doc_id not in self.now]
        assert updated.documents == len(asked) - len(updated.missing)
        for doc_id, fields in changes:
            if doc_id in self.now:
                merged = {**self.now[doc_id], **fields}
                self.now[doc_id] = {name: value for name, value in merged.items() if value is not None}

    @rule(doc_id=IDS, fields=CHANGES)
    def update_that_fails(self, doc_id: str, fields: dict[str, Any]) -> None:
        if self.now:
            bad = {"_id": next(iter(self.now)), "text": 7}
            with pytest.raises(VizslaError):
                self.index.update([{"_id": doc_id, **fields}, bad])

    @rule(ids=st.lists(IDS, max_size=3))
    def delete(self, ids: list[str]) -> None:
        self.index.delete(ids)
        for doc_id in ids:
            self.now.pop(doc_id, None)

    @rule()
    def commit(self) -> None:
        self.index.commit()
        self.committed = dict(self.now)

    @rule()
    def rollback(self) -> None:
        self.index.rollback()
        self.now = dict(self.committed)

    @rule()
    def compact(self) -> None:
        self.index.compact()
        self.committed = dict(self.now)

    @invariant()
    def what_is_committed_is_there(self) -> None:
        found = {document.id: document.content for document in self.index.documents()}
        assert exactly(found) == exactly(self.committed)

    def teardown(self) -> None:
        if not hasattr(self, "index"):
            return
        self.commit()
        self.what_is_committed_is_there()
        with Index.create(self.folder / "fresh", self.model, passages=self.passages) as fresh:
            order = [document.id for document in self.index.documents()]
            fresh.add({"_id": doc_id, **self.committed[doc_id]} for doc_id in order)
            fresh.commit()
            for query in ("dog", "bark the fish", "cat dogs"):
                found = [(hit.id, hit.score) for hit in self.index.search(query)]
                assert found == [(hit.id, hit.score) for hit in fresh.search(query)]
        self.index.close()
        assert verify(self.folder / "i") == []
        shutil.rmtree(self.folder)


TestLife = Life.TestCase
TestLife.settings = part_of_examples(0.5, stateful_step_count=20)


DOGS = [
    {"id": "1", "text": "a dog barks", "year": 1999, "lang": "en"},
    {"id": "2", "text": "a cat", "year": 2001, "lang": "en"},
]


def test_more_documents_than_are_read_at_once(tmp_path: Path) -> None:
    with Index.create(tmp_path / "many", memory=1) as index:
        index.add({"id": str(n), "text": f"dog {n}", "year": n} for n in range(1000))
        index.update({"id": str(n), "text": f"cat {n}"} for n in range(0, 1200, 2))
        index.commit()
        assert index.count("cat") == 500
        assert index.count("dog") == 500
        assert [d["year"] for d in index.get_many(["998", "999"]).values()] == [998, 999]


def test_what_cannot_be_updated(tmp_path: Path) -> None:
    with Index.create(tmp_path / "bare", store=False) as index:
        index.add(DOGS)
        index.commit()
        with pytest.raises(UnsupportedError, match="the texts are not stored, so documents cannot be changed in part"):
            index.update([{"id": "1", "year": 1}])
    with Index.create(tmp_path / "dogs") as index:
        for wrong, sentence in [
            ([{"year": 1}], "a change of a document needs its id, under _id or id"),
            (["1"], "expected a JSON object with an id and the fields that change, not"),
            ({"id": "1"}, "documents come as a list or another iterable"),
        ]:
            with pytest.raises(VizslaError, match=sentence):
                index.update(wrong)  # type: ignore[arg-type]


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


@pytest.fixture
def client(tmp_path: Path) -> Any:
    with served({}, collections=str(tmp_path / "collections"), write=True) as client:
        client.send("PUT", "/v1/dogs", {})
        client.add("dogs", DOGS)
        yield client


def stored(client: Client) -> dict[str, Any]:
    rows = client.post("/v1/dogs/docs", {"ids": ["1", "2", "3"]}).data["documents"]
    return {row["id"]: row["document"] for row in rows}


def test_updates_over_http(client: Client) -> None:
    body = lines({"id": "1", "year": 2000}, {"id": "x", "year": 1}, {"_id": "2", "lang": None})
    answer = client.send("PATCH", "/v1/dogs/documents", body)
    assert {name: answer.data[name] for name in ("updated", "missing", "committed")} == {
        "updated": 2, "missing": ["x"], "committed": True,
    }  # fmt: skip
    assert stored(client) == {
        "1": {"text": "a dog barks", "year": 2000, "lang": "en"}, "2": {"text": "a cat", "year": 2001},
    }  # fmt: skip
    array = client.send("PATCH", "/v1/dogs/documents", [{"id": "1", "text": "a fish"}])
    assert array.data["updated"] == 1
    assert client.get("/v1/dogs/search", query="fish").data["candidates"][0]["doc"]["year"] == 2000
    assert client.get("/v1/dogs/search", query="dog").data["candidates"] == []


def test_staged_updates(client: Client) -> None:
    client.add("dogs", [{"id": "3", "text": "new"}], commit="false")
    staged = client.send("PATCH", "/v1/dogs/documents", lines({"id": "3", "year": 7}, {"id": "4"}), commit="false")
    assert {name: staged.data[name] for name in ("staged", "updated", "missing")} == {
        "staged": 2, "updated": 1, "missing": ["4"],
    }  # fmt: skip
    client.post("/v1/dogs/delete", {"ids": ["1"]}, commit="false")
    late = client.send("PATCH", "/v1/dogs/documents", lines({"id": "1", "year": 7}), commit="false")
    assert late.data["missing"] == ["1"]
    refused = client.send("PATCH", "/v1/dogs/documents", lines({"id": "2", "text": 7}), commit="false")
    assert (refused.status, refused.error.startswith("the change of the document '2' is refused")) == (400, True)
    committed = client.post("/v1/dogs/commit").data
    assert (committed["added"], committed["updated"], committed["missing"]) == (1, 1, ["4", "1"])
    assert stored(client) == {"2": {"text": "a cat", "year": 2001, "lang": "en"}, "3": {"text": "new", "year": 7}}


def test_an_update_that_fails_changes_nothing(client: Client) -> None:
    before = stored(client)
    for body in (lines({"id": "1", "year": 1}, {"id": "2", "text": 7}), lines({"id": "1", "year": 1}) + b"{", b"[1]"):
        assert client.send("PATCH", "/v1/dogs/documents", body).status == 400
    assert client.post("/v1/dogs/commit").data["generation"] == client.get("/v1/dogs").data["generation"]
    assert stored(client) == before


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(DOGS), json.dumps(DOGS, indent=2), "\n".join(map(json.dumps, DOGS)), "  [\n]  ",
        "\ufeff" + json.dumps(DOGS),
    ],
)  # fmt: skip
def test_arrays_and_lines(client: Client, body: str) -> None:
    answer = client.send("POST", "/v1/dogs/documents", body.encode())
    assert (answer.status, answer.data["added"]) == (200, 0 if body.strip() == "[\n]" else 2)


@pytest.mark.parametrize(
    "body", ["[", '[{"id": "3", "text": "a"},]', '[{"id": "3", "text": "a"}] {}', "[7]", '[[{"id": 1}]]']
)
def test_arrays_that_are_refused(client: Client, body: str) -> None:
    answer = client.send("POST", "/v1/dogs/documents", body.encode())
    assert answer.status == 400
    assert answer.error.startswith("documents:1: ")
    assert client.get("/v1/dogs").data["documents"] == 2


def test_the_clients(client: Client, tmp_path: Path) -> None:
    with RemoteIndex(f"{client.url}/dogs") as index:
        updated = index.update([{"id": "1", "year": 5}, {"id": "1", "lang": None}, {"id": 9, "year": 1}])
        assert (updated.documents, updated.missing) == (1, ["9"])
        index.commit()
        assert dict(index.get_many(["1"])["1"].content) == {"text": "a dog barks", "year": 5}

    async def main() -> list[Any]:
        async with await AsyncIndex.create(tmp_path / "async") as index:
            await index.add(DOGS)
            updated = await index.update([{"id": "2", "year": None}, {"id": "3"}])
            await index.commit()
            found = await index.get("2")
            assert found is not None
            return [updated.missing, dict(found.content)]

    assert asyncio.run(main()) == [["3"], {"text": "a cat", "lang": "en"}]


def test_deleting_by_filter_everywhere(client: Client, tmp_path: Path) -> None:
    with Index.create(tmp_path / "dogs") as index, index.writer() as writer:
        writer.add(DOGS)
        writer.commit()
        assert writer.delete(filter="year = 1999") == 1
        writer.commit()
        assert [document.id for document in index.documents()] == ["2"]
        for ids, filter in ((None, None), ("1", "year = 1")):
            with pytest.raises(VizslaError, match="give either the ids of the documents to delete or a filter"):
                writer.delete(ids, filter=filter)
    body = {"filter": ['lang = "en"', {"year": 2001}]}
    assert client.post("/v1/dogs/delete", body).data["deleted"] == 1
    assert set(stored(client)) == {"1"}
    nothing: list[Any] = [[], [""], {}, ""]
    for empty in nothing:
        assert client.post("/v1/dogs/delete", {"filter": empty}).status == 400
    assert set(stored(client)) == {"1"}


def test_on_the_command_line(cli: Cli, tmp_path: Path) -> None:
    folder, changes = tmp_path / "dogs", tmp_path / "changes.json"
    with Index.create(folder) as index:
        index.add(DOGS)
        index.commit()
    changes.write_text(json.dumps([{"id": "1", "year": 1}, {"id": "7", "year": 2}]))
    code, _, err = cli("update", folder, changes)
    assert (code, err) == (0, "1 document changed; there is no document for 1 of the ids: '7'\n")
    changes.write_text('{"id": "1", "year": 3}\n{"year": 4}\n')
    code, _, err = cli("update", folder, changes)
    assert (code, "changes.json:2: a change of a document needs its id, under _id or id" in err) == (2, True)
    with Index.open(folder) as index:
        assert [document["year"] for document in index.documents()] == [2001, 1]
