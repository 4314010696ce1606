"""Haystack's own tests of document stores, and what a store of Vizsla does beyond them."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("haystack")
from haystack import Document, Pipeline
from haystack.components.writers import DocumentWriter
from haystack.dataclasses import ByteStream, SparseEmbedding
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.errors import FilterError
from haystack.testing.document_store import CountDocumentsByFilterTest, DocumentStoreBaseExtendedTests
from haystack.testing.document_store import FilterableDocsFixtureMixin as FilterableDocuments
from haystack.testing.document_store_async import (
    CountDocumentsAsyncTest,
    CountDocumentsByFilterAsyncTest,
    DeleteAllAsyncTest,
    DeleteByFilterAsyncTest,
    DeleteDocumentsAsyncTest,
    FilterDocumentsAsyncTest,
    UpdateByFilterAsyncTest,
    WriteDocumentsAsyncTest,
)

from served import served
from vizsla import Index, VizslaError
from vizsla.adapters.haystack import VizslaDocumentStore, VizslaRetriever
from vizsla.errors import UnsupportedError

TRUSTED = ["vizsla.adapters.haystack", "haystack.components.writers.document_writer"]


@pytest.fixture
def document_store() -> Iterator[VizslaDocumentStore]:
    store = VizslaDocumentStore(":memory:")
    yield store
    store.collection.close()


class TestStandardStore(DocumentStoreBaseExtendedTests, CountDocumentsByFilterTest):
    """What Haystack asks of every document store, and of those that delete, update and count by filters."""

    @pytest.fixture
    def document_store(self, document_store: VizslaDocumentStore) -> VizslaDocumentStore:
        """The one above, in the place of Haystack's, which is to be replaced."""
        return document_store

    def test_write_documents(self, document_store: VizslaDocumentStore) -> None:
        """Without a policy a document that is there already is an error."""
        document = Document(content="Dogs bark.")
        assert document_store.write_documents([document]) == 1
        with pytest.raises(DuplicateDocumentError, match="is in the store already; choose a policy"):
            document_store.write_documents([document])


@pytest.mark.asyncio
class TestStandardAsyncStore(
    CountDocumentsAsyncTest,
    CountDocumentsByFilterAsyncTest,
    DeleteAllAsyncTest,
    DeleteByFilterAsyncTest,
    DeleteDocumentsAsyncTest,
    FilterDocumentsAsyncTest,
    UpdateByFilterAsyncTest,
    WriteDocumentsAsyncTest,
    FilterableDocuments,
):
    """The same for the asynchronous methods."""

    async def test_write_documents_async(self, document_store: VizslaDocumentStore) -> None:
        """Without a policy a document that is there already is an error."""
        document = Document(content="Dogs bark.")
        assert await document_store.write_documents_async([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            await document_store.write_documents_async([document])


DOCUMENTS = [
    Document(id="1", content="Dogs bark at cats.", meta={"year": 1999, "tags": ["a"], "source": {"name": "wire"}}),
    Document(id="2", content="Cats purr.", meta={"year": 2005}),
    Document(id="3", content="Taxes on vehicles.", meta={"year": 2011, "id": "mine", "odd name": True}),
]


@pytest.fixture
def store(document_store: VizslaDocumentStore) -> VizslaDocumentStore:
    assert document_store.write_documents(DOCUMENTS) == 3
    return document_store


def ids(documents: list[Document]) -> list[str]:
    return [document.id for document in documents]


def where(field: str, operator: str, value: Any) -> dict[str, Any]:
    return {"field": field, "operator": operator, "value": value}


def test_a_store_gives_back_what_it_got(document_store: VizslaDocumentStore) -> None:
    documents = [
        Document(content="A picture.", blob=ByteStream(b"\x00\xff", {"a": 1}, "image/png"), embedding=[0.5, 1.0]),
        Document(content=None, blob=ByteStream(b"dogs"), sparse_embedding=SparseEmbedding([1, 7], [0.5, 2.0])),
        Document(content="", meta={"none": None, "list": [1, "a"], "deep": {"x": {"y": 1.5}}}, score=0.25),
    ]
    document_store.write_documents(documents)
    assert document_store.filter_documents() == documents
    (found,) = VizslaRetriever(document_store).run("picture")["documents"]
    assert found.score == document_store.collection.search("picture")[0].score
    found.score = None
    assert found == documents[0]


def test_filters(store: VizslaDocumentStore) -> None:
    for filters, expected in (
        (where("meta.source.name", "==", "wire"), ["1"]),
        (where("source.name", "!=", "wire"), ["2", "3"]),
        (where("meta.tags", "in", ["a", "b"]), ["1"]),
        (where("meta.odd name", "==", True), ["3"]),
        (where("meta.odd name", "in", [None, True]), ["1", "2", "3"]),
        (where("meta.tags", "not in", [None]), ["1"]),
        ({"operator": "NOT", "conditions": [where("year", ">", None)]}, ["1", "2", "3"]),
        ("year > 2000 and not exists(id)", ["2"]),
    ):
        assert ids(store.filter_documents(filters)) == expected
        assert store.count_documents_by_filter(filters) == len(expected)
        assert sorted(ids(VizslaRetriever(store).run("cats dogs taxes", filters)["documents"])) == expected


def test_policies(store: VizslaDocumentStore) -> None:
    other, new, again = (Document(id=i, content=text) for i, text in (("1", "Other."), ("4", "New."), ("4", "Again.")))
    with pytest.raises(DuplicateDocumentError, match="a document with the id '4' is among these twice"):
        store.write_documents([new, again])
    with pytest.raises(DuplicateDocumentError, match="a document with the id '1' is in the store already"):
        store.write_documents([new, other], DuplicatePolicy.FAIL)
    assert store.filter_documents() == DOCUMENTS  # nothing of a call that fails is written
    assert store.write_documents([other, new, again], DuplicatePolicy.SKIP) == 1
    assert store.filter_documents() == [*DOCUMENTS, new]
    assert store.write_documents([other, new, again], DuplicatePolicy.OVERWRITE) == 3
    assert store.filter_documents() == [*DOCUMENTS[1:], other, again]
    assert store.write_documents([]) == 0


def test_pipelines_are_saved_with_their_store(tmp_path: Path) -> None:
    store = VizslaDocumentStore(tmp_path / "i", model="bm25(k1=1.2)")
    writing = Pipeline()
    writing.add_component("writer", DocumentWriter(store, policy=DuplicatePolicy.OVERWRITE))
    reading = Pipeline()
    reading.add_component("retriever", VizslaRetriever(store, top_k=1, filters=where("meta.year", ">", 2000)))
    assert writing.run({"writer": {"documents": DOCUMENTS}})["writer"]["documents_written"] == 3
    again = Pipeline.loads(reading.dumps(), allowed_modules=TRUSTED)
    for pipeline in (reading, again):
        found = pipeline.run({"retriever": {"query": "cats"}})["retriever"]["documents"]
        assert ids(found) == ["2"]
    Pipeline.loads(writing.dumps(), allowed_modules=TRUSTED).run({"writer": {"documents": DOCUMENTS}})
    found = asyncio.run(reading.run_async({"retriever": {"query": "cats"}}))["retriever"]["documents"]
    assert ids(found) == ["2"]
    with pytest.raises(VizslaError, match="a collection that was given as an object cannot be saved"):
        VizslaDocumentStore(store.collection).to_dict()
    store.collection.close()


def test_copies_are_of_the_same_collection(store: VizslaDocumentStore) -> None:
    for again in (pickle.loads(pickle.dumps(store)), copy.deepcopy(store)):
        assert again.filter_documents() == DOCUMENTS
        again.collection.close()


def test_what_is_refused_in_one_sentence(store: VizslaDocumentStore) -> None:
    year = where("meta.year", ">", 2000)
    for filters, sentence in (
        (where("meta.yaer", "==", 1), "no document has a field 'yaer'.*did you mean 'year'"),
        (where("meta.year", "==", "1999"), "no document has a text in the field 'year', only numbers"),
        (where("meta.year", "~", 1), "a filter compares by ==, !="),
        (where("meta.year", ["=="], 1), "a filter compares by ==, !="),
        (where("meta.year", ">", [1]), "a filter compares with texts, numbers"),
        (where("meta.year", "==", {1: 2}), "a filter compares with texts, numbers"),
        (where("year = 1 or `a", "==", 1), "a filter cannot name the field"),
        (where("year = 1 or year", "==", 1), "no document has a field 'year = 1 or year'"),
        (where(5, "==", 1), "the fields of a filter are texts"),  # type: ignore[arg-type]
        ({"operator": "AND", "conditions": []}, "AND, OR or NOT over conditions"),
        ({"operator": "AND", "conditions": year}, "AND, OR or NOT over conditions"),
        ({"operator": "AND", "conditions": [5]}, "a filter of Haystack is an object, not the number 5"),
        (["year > 2000"], "a filter is a text"),
        ("year >", "the filter ends too early"),
    ):
        for call in (store.filter_documents, store.count_documents_by_filter, store.delete_by_filter):
            with pytest.raises(FilterError, match=sentence) as error:
                call(filters)
            assert "\n" not in str(error.value)
    with pytest.raises(FilterError, match="give filters, not null"):
        store.delete_by_filter(None)
    for documents, sentence in (
        ([Document(id="4", content="x", meta={"text": 1})], "has metadata under 'text'"),
        ([Document(id="4", content="x", meta={"a": {1, 2}})], "cannot be stored as JSON"),
        ([Document(id=5, content="x"), Document(id="6", content="x", meta=[1])], "metadata are an object"),  # type: ignore[arg-type]
    ):
        with pytest.raises(VizslaError, match=sentence):
            store.write_documents(documents)
    with pytest.raises(VizslaError, match="1 or more"):
        VizslaRetriever(store).run("cats", top_k=0)
    store.delete_documents(["none"])
    assert store.filter_documents() == DOCUMENTS
    assert VizslaDocumentStore(":memory:").filter_documents(year) == []  # no fields yet


def test_updating_needs_texts() -> None:
    with Index.create(":memory:", store=False) as index:
        store = VizslaDocumentStore(index)
        store.write_documents(DOCUMENTS)
        with pytest.raises(UnsupportedError, match="the texts are not stored"):
            store.update_by_filter("year > 2000", {"new": True})


def test_threads_write_beside_each_other(document_store: VizslaDocumentStore) -> None:
    def write(n: int) -> bool:
        try:
            return document_store.write_documents([Document(id=str(n // 2), content=f"Dog {n}.")]) == 1
        except DuplicateDocumentError:
            return False

    with ThreadPoolExecutor(4) as threads:
        written = list(threads.map(write, range(20)))
    assert [written[n] + written[n + 1] for n in range(0, 20, 2)] == [1] * 10
    assert document_store.count_documents() == 10


def test_a_store_of_a_server(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i") as index, served({"i": index.path}, write=True) as client:
        store = VizslaDocumentStore(f"{client.url}/i")
        assert store.write_documents(DOCUMENTS) == 3
        assert store.write_documents(DOCUMENTS, DuplicatePolicy.SKIP) == 0
        assert store.count_documents_by_filter(where("meta.year", ">", 2000)) == 2
        (found,) = VizslaRetriever(store).run("purr")["documents"]
        assert (found.content, found.meta) == ("Cats purr.", {"year": 2005})
        assert store.delete_by_filter("year > 2010") == 1
        with pytest.raises(UnsupportedError, match="an index of a server cannot list its documents"):
            store.filter_documents()
        store.delete_all_documents()
        assert store.count_documents() == 0
        store.collection.close()
