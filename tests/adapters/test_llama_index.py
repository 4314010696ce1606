"""LlamaIndex: nodes in a collection, found by texts and by metadata filters."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llama_index.core")
from llama_index.core import Document, MockEmbedding, StorageContext, VectorStoreIndex
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import IndexNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters, VectorStoreQuery
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQueryMode

from served import served
from vizsla import Index, VizslaError
from vizsla.adapters.llama_index import VizslaRetriever, VizslaVectorStore
from vizsla.errors import UnsupportedError

MOCK = MockEmbedding(1)


def node(node_id: str, text: str, source: str | None = None, **metadata: Any) -> TextNode:
    related = {} if source is None else {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=source)}
    return TextNode(id_=node_id, text=text, metadata=metadata, relationships=related)


NODES = [
    node("1", "Dogs bark at cats.", "pets", year=1999, tags=["a", "b"], title="Dogs"),
    node("2", "Cats purr.", "pets", year=2005, tags=["b"]),
    node("3", "Taxes on vehicles.", "law", year=2011, none=None),
    node("4", "Nobody knows where this is from."),
]


@pytest.fixture
def store() -> Iterator[VizslaVectorStore]:
    made = VizslaVectorStore(":memory:")
    assert made.add(NODES) == ["1", "2", "3", "4"]
    yield made
    made.client.close()


def filtered(*filters: tuple[str, str, Any], condition: str = "and") -> MetadataFilters:
    made = [MetadataFilter(key=key, operator=operator, value=value) for key, operator, value in filters]  # type: ignore[arg-type]
    return MetadataFilters(filters=made, condition=condition)  # type: ignore[arg-type]


def ids(store: VizslaVectorStore, query: str = "cats taxes knows", **options: Any) -> list[str]:
    found = store.query(VectorStoreQuery(query_str=query, similarity_top_k=10, **options))
    assert found.ids == [each.node_id for each in found.nodes or ()]
    return sorted(found.ids or ())


def test_nodes_come_back_as_they_were(store: VizslaVectorStore) -> None:
    assert isinstance(store, BasePydanticVectorStore)
    assert store.get_nodes() == NODES
    assert store.get_nodes(["4", "none", "1"]) == [NODES[3], NODES[0]]
    found = store.query(VectorStoreQuery(query_str="purring cats", similarity_top_k=1))
    assert (found.nodes, found.ids) == ([NODES[1]], ["2"])
    assert found.similarities == [store.client.search("purring cats")[0].score]
    linked = IndexNode(id_="5", text="A link.", index_id="elsewhere", embedding=[0.5])
    store.add([linked])
    (again,) = store.get_nodes(["5"])
    assert isinstance(again, IndexNode)
    assert (again.index_id, again.text, again.embedding) == ("elsewhere", "A link.", None)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (filtered(("year", "==", 1999)), ["1"]),
        (filtered(("year", "!=", 1999)), ["2", "3", "4"]),
        (filtered(("year", ">", 1999)), ["2", "3"]),
        (filtered(("year", ">=", 1999), ("year", "<", 2011)), ["1", "2"]),
        (filtered(("year", "<=", 1999), ("year", "==", 2011), condition="or"), ["1", "3"]),
        (filtered(("year", "<=", 1999), ("year", "==", 2011), condition="not"), ["2", "4"]),
        (filtered(("year", "in", [1999, 2011])), ["1", "3"]),
        (filtered(("year", "nin", [1999, 2011])), ["2", "4"]),
        (filtered(("tags", "contains", "b")), ["1", "2"]),
        (filtered(("tags", "any", ["a", "c"])), ["1"]),
        (filtered(("tags", "all", ["b", "a"])), ["1"]),
        (filtered(("tags", "all", [])), ["1", "2", "3", "4"]),
        (filtered(("tags", "is_empty", None)), ["3", "4"]),
        (filtered(("none", "is_empty", None)), ["1", "2", "3", "4"]),
        (filtered(("year", ">", None)), []),
        (MetadataFilters(filters=[]), ["1", "2", "3", "4"]),
        (
            MetadataFilters(
                filters=[
                    filtered(("year", "==", 1999), ("year", "==", 2005), condition="or"),
                    *filtered(("tags", "contains", "a")).filters,
                    MetadataFilters(filters=[]),
                ],
            ),
            ["1"],
        ),
    ],
)
def test_filters(store: VizslaVectorStore, filters: MetadataFilters, expected: list[str]) -> None:
    assert ids(store, filters=filters) == expected
    assert [each.node_id for each in store.get_nodes(filters=filters)] == expected
    found = VizslaRetriever(store.client, filter=filters).retrieve("cats taxes knows")
    assert sorted(each.node.node_id for each in found) == expected


def test_queries_within_nodes_and_documents(store: VizslaVectorStore) -> None:
    assert ids(store, doc_ids=["pets"]) == ["1", "2"]
    assert ids(store, doc_ids=["pets", "law"], filters=filtered(("year", ">", 2000))) == ["2", "3"]
    assert ids(store, node_ids=["1", "4", "none"]) == ["1", "4"]
    assert ids(store, node_ids=["1", "4"], doc_ids=["pets"]) == ["1"]
    assert ids(store, node_ids=[]) == ["1", "2", "3", "4"]  # as an index gives it
    assert ids(store, doc_ids=["nothing"]) == []
    assert ids(store, " ") == []


def test_deleting(store: VizslaVectorStore) -> None:
    store.delete("nothing")
    store.delete("pets")
    assert store.get_nodes() == NODES[2:]
    store.delete("pets")
    store.add(NODES)
    assert len(store.client) == 4
    store.delete_nodes(["1", "none", "1"])
    store.delete_nodes([])
    store.delete_nodes(["2", "3"], filtered(("year", ">", 2010)))
    store.delete_nodes([], filtered(("year", ">", 1)))
    assert [each.node_id for each in store.get_nodes()] == ["2", "4"]
    store.delete_nodes(filters=filtered(("year", "==", 2005)))
    with pytest.raises(VizslaError, match="give the ids of the nodes to delete, filters, or both"):
        store.delete_nodes()
    store.clear()
    store.clear()
    store.delete("pets")
    assert store.get_nodes() == []


def test_an_index_over_a_store(tmp_path: Path) -> None:
    store = VizslaVectorStore(tmp_path / "i", model="bm25(k1=1.2)")
    context = StorageContext.from_defaults(vector_store=store)
    index = VectorStoreIndex(NODES[:2], storage_context=context, embed_model=MOCK)
    index.insert(Document(text="A hamster runs. " * 3, id_="hamster", metadata={"year": 2020}))
    retriever = index.as_retriever(similarity_top_k=5, filters=filtered(("year", ">", 2000)))
    (found,) = retriever.retrieve("hamster dogs")
    assert (found.node.ref_doc_id, found.node.metadata) == ("hamster", {"year": 2020})
    assert asyncio.run(retriever.aretrieve("hamster dogs")) == [found]
    assert index.as_query_engine(llm=_llm()).query("cats").source_nodes[0].node == NODES[1]
    again = VectorStoreIndex.from_vector_store(store, embed_model=MOCK)
    again.insert_nodes([IndexNode(id_="link", text="A link to cats.", index_id="elsewhere")])
    again.delete_ref_doc("hamster")
    asyncio.run(again.adelete_nodes(["1"]))
    assert sorted(each.node_id for each in store.get_nodes()) == ["2", "link"]
    pipeline = IngestionPipeline(transformations=[], vector_store=store)
    pipeline.run(documents=[Document(text="A parrot.", id_="parrot", embedding=[0.0])])
    assert [each.node.node_id for each in index.as_retriever().retrieve("parrots")] == ["parrot"]
    store.client.close()


def _llm() -> Any:
    from llama_index.core.llms import MockLLM

    return MockLLM()


def test_a_reader_gives_nodes_of_a_store_and_documents_of_others(store: VizslaVectorStore) -> None:
    store.client.add([{"id": "doc", "text": "A zebra.", "year": 1}])
    store.client.commit()
    reader = VizslaRetriever(store.client, k=3)
    assert [each.node for each in reader.retrieve("purr")] == [NODES[1]]
    (found,) = asyncio.run(reader.aretrieve("zebras"))
    assert (found.node.node_id, found.node.text, found.node.metadata) == ("doc", "A zebra.", {"year": 1})
    assert [each.node.node_id for each in pickle.loads(pickle.dumps(reader)).retrieve("purr")] == ["2"]
    store.client.add([{"id": "bad", "text": "A quagga.", "_node_content": '{"text": 5}'}])
    store.client.commit()
    with pytest.raises(VizslaError, match="the document 'bad' has a field '_node_content' that is no node"):
        reader.retrieve("quagga")


def test_what_is_refused_in_one_sentence(store: VizslaVectorStore) -> None:
    def query(**options: Any) -> Any:
        return store.query(VectorStoreQuery(**{"query_str": "cats", **options}))

    calls: list[tuple[Any, str]] = [
        (lambda: store.add(["a text"]), "a store takes nodes of LlamaIndex, not the text 'a text'"),  # type: ignore[list-item]
        (
            lambda: store.add([TextNode(text="x", metadata={"text": 1})]),
            "has metadata under 'text', the field of its text",
        ),
        (lambda: query(query_str=None, query_embedding=[1.0]), "searched by a text, not by an embedding"),
        (lambda: query(mode=VectorStoreQueryMode.MMR), "the query mode 'mmr' is not supported"),
        (lambda: query(mode="hybrid"), "the query mode 'hybrid' is not supported"),
        (lambda: query(similarity_top_k=0), "1 or more"),
        (lambda: query(filters=filtered(("yaer", "==", 1))), "no document has a field 'yaer'.*did you mean 'year'"),
        (lambda: query(filters=filtered(("year", "==", "1999"))), "no document has a text in the field 'year'"),
        (lambda: query(filters=filtered(("year", "in", 1999))), "the filter on year needs a list of values"),
        (lambda: query(filters=filtered(("title", "text_match", "D"))), "a filter compares by .*, not by 'text_match'"),
        (lambda: query(filters=filtered(('a"b', "==", 1))), "a filter cannot name the field"),
        (lambda: query(filters=5), "a filter is a text"),
        (lambda: store.get_nodes([{}]), "the id must be a text or a whole number"),  # type: ignore[list-item]
        (lambda: store.delete_nodes(filters=filtered(("yaer", "==", 1))), "did you mean 'year'"),
        (lambda: VizslaVectorStore(7), "expected a Collection"),  # type: ignore[arg-type]
        (lambda: VizslaVectorStore("/nowhere/at.all"), "does not exist"),
    ]
    for call, sentence in calls:
        with pytest.raises(VizslaError, match=sentence) as error:
            call()
        assert "\n" not in str(error.value)
    assert store.get_nodes() == NODES
    assert VizslaVectorStore(":memory:").get_nodes(filters=filtered(("year", "==", 1))) == []  # no fields yet


def test_threads_and_tasks_write_beside_each_other(store: VizslaVectorStore) -> None:
    def life(n: int) -> None:
        store.add([node(f"t{n}", f"Thread number {n}.", f"d{n}")])
        assert ids(store, "thread", node_ids=[f"t{n}"]) == [f"t{n}"]
        if n % 2:
            store.delete(f"d{n}")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(life, range(20)))

    async def tasks() -> None:
        await asyncio.gather(*(store.async_add([node(f"a{n}", f"Task {n}.", "tasks")]) for n in range(9)))
        await asyncio.gather(store.adelete_nodes(["a0"]), store.adelete("nothing"))
        assert len(await store.aget_nodes(filters=filtered(("ref_doc_id", "==", "tasks")))) == 8
        assert len((await store.aquery(VectorStoreQuery(query_str="task", similarity_top_k=9))).ids or ()) == 8

    asyncio.run(tasks())
    assert len(store.client) == 4 + 10 + 8
    asyncio.run(store.aclear())
    assert len(store.client) == 0


def test_copies_are_of_the_same_collection(store: VizslaVectorStore) -> None:
    for again in (pickle.loads(pickle.dumps(store)), copy.deepcopy(store)):
        assert again.get_nodes() == NODES
        again.client.close()
    store.client.close()
    with pytest.raises(VizslaError, match="the index has been closed"):
        pickle.dumps(store)


def test_a_store_of_a_server(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i") as index, served({"i": index.path}, write=True) as client:
        store = VizslaVectorStore(f"{client.url}/i")
        store.add(NODES)
        assert store.get_nodes(["3"]) == [NODES[2]]
        assert ids(store, doc_ids=["pets"]) == ["1", "2"]
        store.delete("pets")
        assert ids(store) == ["3", "4"]
        with pytest.raises(UnsupportedError, match="an index of a server cannot list its documents"):
            store.get_nodes()
        store.clear()
        assert len(store.client) == 0
        store.client.close()
