"""LangChain, LlamaIndex and Haystack: the hits of the index, in the framework's own words."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vizsla import Index, Retriever, VizslaError

QUERY = "a dog barks at cats"


def hits(retriever: Retriever, **options: Any) -> list[tuple[str, float]]:
    return [(hit.id, hit.score) for hit in retriever.search(QUERY, **options)]


@pytest.fixture
def address(pets: Index) -> Iterator[str]:
    """Where a server serves the three documents."""
    pytest.importorskip("uvicorn")
    pytest.importorskip("httpx2")
    from served import served

    with served({"pets": pets.path}) as client:
        yield f"{client.url}/pets"


def test_langchain(pets: Index) -> None:
    pytest.importorskip("langchain_core")
    from langchain_core.runnables import RunnableLambda

    from vizsla.adapters.langchain import VizslaRetriever

    for given in (pets, str(pets.path), pets.path):
        retriever = VizslaRetriever(retriever=given, k=2)
        found = retriever.invoke(QUERY)
        assert [(d.id, d.metadata["score"]) for d in found] == hits(pets, k=2)
    assert found[0].page_content == "Dogs bark at cats."
    assert found[0].metadata == {"title": "Dogs", "year": 1999, "id": "1", "score": hits(pets)[0][1], "rank": 1}
    assert asyncio.run(retriever.ainvoke(QUERY)) == found
    assert retriever.batch([QUERY, "taxes"])[1][0].id == "3"
    assert (retriever | RunnableLambda(len)).invoke(QUERY) == 2
    assert retriever.invoke(" ") == []
    later = VizslaRetriever(retriever=pets, filter="year > 2000", text_field="title")
    assert [(d.id, d.page_content) for d in later.invoke(QUERY)] == [("2", "Cats")]
    with pytest.raises(VizslaError, match="this must be a Retriever"):
        VizslaRetriever(retriever=7)


def test_llama_index(pets: Index) -> None:
    pytest.importorskip("llama_index.core")
    from vizsla.adapters.llama_index import VizslaRetriever

    for given in (pets, str(pets.path)):
        retriever = VizslaRetriever(given, k=2)
        found = retriever.retrieve(QUERY)
        assert [(n.node.node_id, n.score) for n in found] == hits(pets, k=2)
    assert (found[0].text, found[0].metadata["title"]) == ("Dogs bark at cats.", "Dogs")
    assert [n.node.node_id for n in asyncio.run(retriever.aretrieve(QUERY))] == ["1", "2"]
    assert [n.node.node_id for n in VizslaRetriever(pets, filter={"year": 2005}).retrieve(QUERY)] == ["2"]


def test_haystack(pets: Index) -> None:
    pytest.importorskip("haystack")
    from haystack import Pipeline
    from haystack.components.joiners import DocumentJoiner
    from haystack.core.errors import DeserializationError

    from vizsla.adapters.haystack import VizslaRetriever

    pipeline = Pipeline()
    pipeline.add_component("retriever", VizslaRetriever(pets.path, top_k=2))
    pipeline.add_component("joiner", DocumentJoiner())
    pipeline.connect("retriever.documents", "joiner.documents")
    # As YAML, through to_dict and from_dict. Haystack opens only what its user trusts, and the adapter leaves it so.
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["vizsla.adapters.haystack"])
    with pytest.raises(DeserializationError, match="not on the trusted-module allowlist"):
        Pipeline.loads(pipeline.dumps())
    for each in (pipeline, again):
        each.warm_up()
        found = each.run({"retriever": {"query": QUERY}})["joiner"]["documents"]
        assert [(d.id, d.score) for d in found] == hits(pets, k=2)
    assert (found[0].content, found[0].meta["title"]) == ("Dogs bark at cats.", "Dogs")
    component = VizslaRetriever(pets, filters={"field": "meta.year", "operator": ">", "value": 2000})
    assert [d.id for d in component.run(query=QUERY)["documents"]] == ["2"]
    assert [d.id for d in component.run(query=QUERY, filters="year < 2000", top_k=1)["documents"]] == ["1"]
    with pytest.raises(VizslaError, match="give its location instead"):
        component.to_dict()


def test_a_server_is_a_retriever_like_any_other(pets: Index, address: str) -> None:
    pytest.importorskip("langchain_core")
    from vizsla.adapters.haystack import VizslaRetriever as Component
    from vizsla.adapters.langchain import VizslaRetriever
    from vizsla.adapters.llama_index import VizslaRetriever as NodeRetriever

    expected = [i for i, _ in hits(pets)]
    assert [d.id for d in VizslaRetriever(retriever=address).invoke(QUERY)] == expected
    assert [n.node.node_id for n in NodeRetriever(address).retrieve(QUERY)] == expected
    assert [d.id for d in Component(address).run(query=QUERY)["documents"]] == expected


def test_a_cluster_is_a_retriever_like_any_other(pets: Index, tmp_path: Path) -> None:
    pytest.importorskip("langchain_core")
    pytest.importorskip("qdrant_client")
    from qdrant_server import address, nodes
    from vizsla.adapters.haystack import VizslaRetriever as Component
    from vizsla.adapters.langchain import VizslaRetriever
    from vizsla.adapters.llama_index import VizslaRetriever as NodeRetriever
    from vizsla.backends.qdrant import QdrantIndex

    expected = [i for i, _ in hits(pets)]
    with nodes(tmp_path / "cluster") as running:
        where = address(running, "pets")
        with QdrantIndex.create(where) as index:
            index.add([{"id": d.id, **d.content} for d in pets.get_many(["1", "2", "3"]).values()])
            index.commit()
        assert [d.id for d in VizslaRetriever(retriever=where).invoke(QUERY)] == expected
        assert [n.node.node_id for n in NodeRetriever(where).retrieve(QUERY)] == expected
        assert [d.id for d in Component(where).run(query=QUERY)["documents"]] == expected


def test_a_cluster_is_a_store_like_any_other(tmp_path: Path) -> None:
    pytest.importorskip("haystack")
    pytest.importorskip("qdrant_client")
    from haystack import Document
    from haystack.document_stores.types import DuplicatePolicy

    from qdrant_server import address, nodes
    from vizsla.adapters.haystack import VizslaDocumentStore
    from vizsla.backends.qdrant import QdrantIndex

    documents = [Document(id=str(n), content=f"Dog {n}.", meta={"n": n, "name": "x"}) for n in range(4)]
    with nodes(tmp_path / "cluster") as running:
        QdrantIndex.create(where := address(running, "stored")).close()
        store = VizslaDocumentStore(where)
        assert store.filter_documents("n = 1") == []
        assert store.write_documents(documents) == 4
        assert store.write_documents(documents, DuplicatePolicy.SKIP) == 0
        assert store.filter_documents() == documents
        assert store.update_by_filter("n > 2", {"name": "y"}) == 1
        assert [document.id for document in store.filter_documents('name = "y"')] == ["3"]
        assert store.delete_by_filter("n > 2") == store.count_documents_by_filter("n = 0") == 1
        store.delete_documents(["0", "none"])
        assert pickle.loads(pickle.dumps(store)).filter_documents() == documents[1:3]
        store.delete_all_documents()
        assert store.count_documents() == 0
        store.collection.close()
