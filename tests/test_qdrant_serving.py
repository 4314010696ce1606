"""A collection in Qdrant behind `vizsla serve`: the same API, less what only an index can answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from qdrant_compared import documents
from qdrant_server import address, nodes
from served import served
from vizsla import Index, VizslaError
from vizsla.backends.qdrant import QdrantIndex
from vizsla.server.hosting import check_hosting
from vizsla.server.settings import Settings, index_names


def test_a_collection_is_served_as_an_index_is(tmp_path: Path, qdrant_command: list[str]) -> None:
    with nodes(tmp_path / "nodes", command=qdrant_command) as (node,), Index.create(tmp_path / "i") as local:
        where = address([node], "dogs")
        for index in (local, QdrantIndex.create(where)):
            index.add(documents(40))
            index.commit()
        assert index_names([where]) == {"dogs": where}
        assert check_hosting(Settings(indexes={"dogs": where}))["dogs"]["documents"] == 40
        with served({"dogs": where}, write=True, state=str(tmp_path / "state")) as client:
            assert client.get("/readyz").status == 200
            info = client.get("/v1/dogs").data
            assert (info["documents"], info["model"], info["index_bytes"]) == (40, "bm25", None)
            body = {"query": "word1 word2", "k": 5, "filter": "year < 2010", "explain": True, "highlight": True}
            answer = client.post("/v1/dogs/search", body).data["results"][0]["hits"]
            expected = local.search("word1 word2", 5, "year < 2010")
            assert [hit["id"] for hit in answer] == [hit.id for hit in expected]
            assert [hit["score"] for hit in answer] == pytest.approx([hit.score for hit in expected], rel=1e-6)
            assert answer[0]["explanation"]["score"] == pytest.approx(expected[0].score, rel=1e-6)
            assert client.get("/v1/dogs/doc/d7").status == 200
            assert client.get("/v1/dogs/terms", text="word1").data["terms"][0]["documents"] > 0
            added = client.add("dogs", [{"id": "new", "text": "word1 newword"}], commit="true")
            assert (added.status, added.data["added"], added.data["committed"]) == (200, 1, True)
            found = client.post("/v1/dogs/search", {"query": "newword", "generation": added.data["generation"]})
            assert [hit["id"] for hit in found.data["results"][0]["hits"]] == ["new"]
            facets = client.post("/v1/dogs/search", {"query": "word1", "facets": {"fields": ["year"]}})
            assert facets.status == 422
            assert "cannot count the values of fields over all documents that match" in facets.error
            counted = {"query": "word1", "facets": {"fields": ["year"], "over": 10}}
            assert client.post("/v1/dogs/search", counted).status == 200
            alike = client.post("/v1/dogs/search", {"like": "d1", "k": 5, "filter": "year < 2010"}).data["results"][0]
            expected = local.similar("d1", 5, "year < 2010")
            assert [hit["id"] for hit in alike["hits"]] == [hit.id for hit in expected]
            assert client.post("/v1/dogs/search", {"like": "nope"}).status == 404
            assert "cannot complete words" in client.get("/v1/dogs/suggest", prefix="wor").error
            assert "compact it themselves" in client.post("/v1/dogs/compact").error
            assert client.get("/metrics").status == 200


def test_a_cluster_that_is_not_there_is_not_served() -> None:
    with pytest.raises(VizslaError, match="cannot be reached"):
        check_hosting(Settings(indexes={"dogs": "qdrant://127.0.0.1:1/dogs"}))
