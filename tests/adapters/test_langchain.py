"""LangChain's own standard tests of retrievers and vector stores, and what a store of Vizsla does beyond them."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import Any, ClassVar

import numpy as np
import pytest

pytest.importorskip("langchain_tests")
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.indexing import InMemoryRecordManager, index
from langchain_core.vectorstores import VectorStore
from langchain_tests.integration_tests import RetrieversIntegrationTests, VectorStoreIntegrationTests

from served import served
from vizsla import DenseComponent, Index, VizslaError
from vizsla.adapters.langchain import VizslaRetriever, VizslaVectorStore
from vizsla.errors import VizslaWarning
from vizsla.models import MODELS, Fields, field_text


@MODELS.register("letters", help="How often each letter occurs.")
@dataclass(frozen=True)
class Letters(DenseComponent):
    """Counts of letters, as vectors of length 1, so that every document is found; a text is most like itself."""

    fields: tuple[str, ...] = ("text",)
    namespace: str = "letters"
    name: str = "letters"

    kind: ClassVar[str] = "toy-letters"

    @property
    def dimensions(self) -> int:
        return len(ascii_lowercase)

    def document_embeddings(self, documents: Sequence[Fields]) -> tuple[np.ndarray, np.ndarray]:
        return self.query_embeddings([field_text(d, self.fields) for d in documents])

    def query_embeddings(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        rows = np.array([[text.count(letter) for letter in ascii_lowercase] for text in texts], np.float32)
        rows = rows.reshape(-1, self.dimensions)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows / np.maximum(norms, 1e-9), norms[:, 0] > 0


@pytest.mark.asyncio
class TestStandardStore(VectorStoreIntegrationTests):
    """A dense model finds every document, as these tests expect. BM25 finds those with a word of the query."""

    @pytest.fixture
    def vectorstore(self) -> Iterator[VectorStore]:  # type: ignore[override]
        with Index.create(":memory:", "letters") as made:
            yield VizslaVectorStore(made)


@pytest.mark.asyncio
class TestStandardStoreOfAServer(VectorStoreIntegrationTests):
    """The same over HTTP."""

    @pytest.fixture
    def vectorstore(self) -> Iterator[VectorStore]:  # type: ignore[override]
        with Index.create(":memory:", "letters") as made, served({"i": made.path}, write=True) as client:
            yield VizslaVectorStore(f"{client.url}/i")


@pytest.mark.asyncio
class TestStandardRetriever(RetrieversIntegrationTests):
    """Of an index."""

    @pytest.fixture(autouse=True)
    def _an_index(self) -> Iterator[None]:
        with Index.create(":memory:") as made:
            made.add({"id": i, "text": f"Dog {i} barks."} for i in range(5))
            made.commit()
            self.index = made
            yield

    @property
    def retriever_constructor(self) -> type[VizslaRetriever]:
        return VizslaRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"retriever": self.index}

    @property
    def retriever_query_example(self) -> str:
        return "barking dogs"


DOCUMENTS = [
    Document(page_content="Dogs bark at cats.", metadata={"year": 1999, "tags": ["a", "b"]}, id="1"),
    Document(page_content="Cats purr.", metadata={"year": 2005}, id="2"),
    Document(page_content="Taxes on vehicles.", metadata={"year": 2011, "score": 0.5, "id": "mine"}, id="3"),
]


@pytest.fixture
def store() -> Iterator[VizslaVectorStore]:
    made = VizslaVectorStore(":memory:")
    made.add_documents(DOCUMENTS)
    yield made
    made.collection.close()


def ids(documents: list[Document]) -> list[str | None]:
    return [document.id for document in documents]


def test_searching(store: VizslaVectorStore) -> None:
    assert store.similarity_search("taxes") == [DOCUMENTS[2]]  # its metadata as they were
    assert ids(store.similarity_search("cats", k=1)) == ["2"]
    assert ids(store.similarity_search("cats", filter="year < 2000")) == ["1"]
    assert ids(store.similarity_search("cats", filter={"tags": "b"})) == ["1"]
    assert ids(store.similarity_search("+cats -purr", syntax="lucene")) == ["1"]
    found = store.similarity_search_with_score("cats")
    assert [(d.id, score) for d, score in found] == [(h.id, h.score) for h in store.collection.search("cats")]
    assert store.similarity_search(" ") == store.similarity_search("zebra") == []
    assert asyncio.run(store.asimilarity_search_with_score("cats")) == found
    retriever = store.as_retriever(search_kwargs={"k": 1, "filter": "year > 2000"})
    assert ids(retriever.invoke("cats")) == ids(asyncio.run(retriever.ainvoke("cats"))) == ["2"]
    assert ids(store.search("cats", "similarity", k=1)) == ["2"]


def test_adding_and_deleting(store: VizslaVectorStore) -> None:
    made = store.add_texts(["One.", "Two.", "Three."], ids=["7", None, 9])  # type: ignore[list-item]
    assert (made[0], made[2], len(made[1])) == ("7", "9", 36)
    assert ids(store.get_by_ids(["9", "none", "7", "7"])) == ["9", "7"]
    assert store.add_texts([]) == store.add_documents([]) == []
    assert store.delete(["7", "never", "9"]) is True
    assert store.delete(["7"]) is True
    assert store.delete([]) is True
    assert store.get_by_ids(["7"]) == []
    store.delete(filter="year > 2000")
    assert len(store.collection) == 2
    with pytest.raises(VizslaError, match="give either the ids of the documents to delete or a filter"):
        store.delete()


def test_stores_that_are_made_of_texts(tmp_path: Path) -> None:
    folder = tmp_path / "new.index"
    with pytest.raises(VizslaError, match="does not exist"):
        VizslaVectorStore(folder)
    made = VizslaVectorStore.from_texts(["Dogs.", "Cats."], None, [{"n": 1}, {"n": 2}], collection=folder)
    more = VizslaVectorStore.from_documents(DOCUMENTS, None, collection=str(folder))  # type: ignore[arg-type]
    assert [s.collection.name for s in (made, more)] == ["bm25", "bm25"]
    assert len(more.collection) == 5
    with pytest.warns(VizslaWarning, match="the embedding is not used: bm25, the model of the index, reads texts"):
        VizslaVectorStore.from_texts(["Dogs."], DeterministicFakeEmbedding(size=3))
    assert asyncio.run(VizslaVectorStore.afrom_texts(["Dogs."], None)).collection.search("dogs")  # type: ignore[arg-type]
    assert VizslaVectorStore(tmp_path / "other.index", "bm25(k1=1.2)").collection.name == "bm25(k1=1.2)"
    with pytest.raises(VizslaError, match="the index has the model bm25, not letters; leave the model out"):
        VizslaVectorStore(folder, "letters")
    for other in (made, more):
        other.collection.close()


def test_a_field_of_another_name(tmp_path: Path) -> None:
    store = VizslaVectorStore(tmp_path / "i", "bm25(fields=body)", text_field="body")
    document = Document(page_content="Dogs bark.", metadata={"text": "another"}, id="1")
    store.add_documents([document])
    assert store.similarity_search("dogs") == store.get_by_ids(["1"]) == [document]
    store.collection.close()


def test_what_is_refused_in_one_sentence(store: VizslaVectorStore) -> None:
    for call, sentence in (
        (lambda: VizslaVectorStore(7), "expected a Collection, as vizsla.open.location. gives it"),  # type: ignore[arg-type]
        (lambda: store.add_texts(["a", "b"], [{}]), "there are 2 texts, 1 metadatas and 2 ids"),
        (lambda: store.add_texts(["a"], ids=["1", "2"]), "there are 1 texts, 1 metadatas and 2 ids"),
        (lambda: store.add_texts(["a"], ids=[1.5]), "the id must be a text or a whole number"),  # type: ignore[list-item]
        (lambda: store.add_texts(["a"], ids=[""]), "the id must be a text or a whole number"),
        (lambda: store.add_texts([None]), "expected a text"),  # type: ignore[list-item]
        (lambda: store.add_texts(["a"], [[]]), "metadata are an object, not a list"),  # type: ignore[list-item]
        (lambda: store.add_texts(["a"], [{"text": "b"}]), "has metadata under 'text', the field of its text"),
        (lambda: store.add_texts(["a"], [{"x": {1, 2}}]), "cannot be stored as JSON"),
        (lambda: store.delete([None]), "the id must be a text or a whole number"),  # type: ignore[list-item]
        (lambda: store.delete(filter="yaer = 1"), "no document has a field 'yaer'.*did you mean 'year'"),
        (lambda: store.similarity_search("cats", filter="yaer = 1"), "did you mean 'year'"),
        (lambda: store.similarity_search("cats", filter={"year": "1999"}), "no document has a text in the field"),
        (lambda: store.similarity_search("cats", filter=len), "a filter is a text"),  # type: ignore[arg-type]
        (lambda: store.similarity_search(5), "a query is a text|queries are"),  # type: ignore[arg-type]
        (lambda: store.similarity_search("cats", k=0), "1 or more"),
        (lambda: store.similarity_search("cats", fetch_k=3), "fetch_k"),
        (lambda: store.get_by_ids([{}]), "the id must be a text or a whole number"),  # type: ignore[list-item]
        (lambda: store.similarity_search_with_relevance_scores("cats"), "scores have no scale from 0 to 1"),
        (lambda: store.similarity_search_by_vector([1.0]), "searched by a text, not by an embedding"),
        (lambda: store.max_marginal_relevance_search("cats"), "needs embeddings, which are not used"),
        (lambda: store.max_marginal_relevance_search_by_vector([1.0]), "searched by a text"),
    ):
        with pytest.raises(VizslaError, match=sentence) as error:
            call()  # type: ignore[no-untyped-call]
        assert "\n" not in str(error.value)
    assert ids(store.get_by_ids(["1", "2", "3"])) == ["1", "2", "3"]
    assert len(store.collection) == 3  # a call that fails changes nothing
    assert VizslaVectorStore(":memory:").similarity_search("cats", filter="year = 1999") == []  # no fields yet


def test_threads_and_tasks_write_beside_each_other(store: VizslaVectorStore) -> None:
    def life(n: int) -> None:
        store.add_texts([f"Thread {n}."], ids=[f"t{n}"])
        with pytest.raises(VizslaError):
            store.add_texts([None], ids=["bad"])  # type: ignore[list-item]
        assert ids(store.similarity_search(f"+thread +{n}", syntax="lucene")) == [f"t{n}"]
        store.delete([f"t{n - 1}"]) if n % 2 else None

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(life, range(0, 20, 2)))
        list(threads.map(life, range(1, 20, 2)))

    async def tasks() -> None:
        await asyncio.gather(*(store.aadd_texts([f"Task {n}."], ids=[f"a{n}"]) for n in range(10)))
        await store.adelete(["a0"])

    asyncio.run(tasks())
    assert len(store.collection) == 3 + 10 + 9


def test_copies_are_of_the_same_collection(store: VizslaVectorStore) -> None:
    retriever = store.as_retriever(search_kwargs={"k": 1})
    for again in (pickle.loads(pickle.dumps(store)), copy.deepcopy(store)):
        assert again.similarity_search("cats") == store.similarity_search("cats")
        again.add_texts(["A new one."], ids=["new"])
        again.collection.close()
    store.collection.refresh()
    assert ids(store.get_by_ids(["new"])) == ["new"]
    for each in (retriever, VizslaRetriever(retriever=store.collection, k=1)):
        assert ids(pickle.loads(pickle.dumps(each)).invoke("cats")) == ["2"]


def test_the_indexing_api_of_langchain(store: VizslaVectorStore) -> None:
    records = InMemoryRecordManager("pets")
    records.create_schema()

    def indexed(*texts: str) -> dict[str, Any]:
        documents = [Document(page_content=text, metadata={"source": "pets"}) for text in texts]
        return dict(index(documents, records, store, cleanup="full", source_id_key="source", key_encoder="sha256"))

    none = {"num_added": 0, "num_updated": 0, "num_skipped": 0, "num_deleted": 0}
    assert indexed("A hamster.", "A parrot.") == none | {"num_added": 2}
    assert indexed("A hamster.", "A goldfish.") == none | {"num_added": 1, "num_skipped": 1, "num_deleted": 1}
    assert store.similarity_search("parrot") == []
    assert [d.page_content for d in store.similarity_search("hamster goldfish")] == ["A hamster.", "A goldfish."]


def test_an_index_without_texts_finds_documents() -> None:
    with Index.create(":memory:", store=False) as made:
        store = VizslaVectorStore(made)
        store.add_documents(DOCUMENTS)
        (found,) = store.similarity_search("purr")
        assert (found.id, found.page_content, found.metadata) == ("2", "", {"year": 2005})


def test_a_view_cannot_be_written_to(store: VizslaVectorStore) -> None:
    with pytest.raises(VizslaError, match="expected a Collection"):
        VizslaVectorStore(store.collection.with_model("bm25(k1=2)"))  # type: ignore[arg-type]
