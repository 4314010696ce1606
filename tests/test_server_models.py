"""Serving sums, dense parts, passages and rerankers."""

from __future__ import annotations

from pathlib import Path

import pytest

from served import build, served
from small import small_dense
from vizsla import BM25, Index, Reranker, parse_model
from vizsla.retrievers import rerank_hits

DOCUMENTS = [{"id": str(n), "text": f"dog number{n} barks " + "loudly " * (n % 5), "year": 1990 + n} for n in range(20)]


@pytest.fixture(scope="module")
def sum_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    model = BM25() + 0.5 * small_dense(folder / "network")
    with Index.create(folder / "both.index", model) as index:
        index.add(DOCUMENTS)
        index.commit()
    return folder / "both.index"


def test_a_sum_its_parts_and_other_weights(sum_folder: Path) -> None:
    with served({"both": sum_folder}) as client, Index.open(sum_folder) as index:

        def ids(**body: object) -> list[tuple[str, float]]:
            answer = client.post("/v1/both/search", {"query": "dog number3 barks", **body})
            assert answer.status == 200, answer.body
            return [(h["id"], h["score"]) for h in answer.data["results"][0]["hits"]]

        def own(model: object = None, **options: object) -> list[tuple[str, float]]:
            return [(h.id, h.score) for h in index.search("dog number3 barks", model=model, **options)]  # type: ignore[arg-type]

        bm25, dense = (part.component for part in index.model.parts)
        assert ids() == own()
        assert ids(model="bm25") == own(bm25)
        assert ids(model="dense") == own(dense)
        assert ids(weights=[1, 3]) == own(bm25 + 3.0 * dense)
        assert ids(model="bm25(k1=1.2) + 2 * dense") == own(BM25(k1=1.2) + 2.0 * dense)
        assert ids(combine="rrf") == own(combine="rrf")
        info = client.get("/v1/both").data
        assert [part["kind"] for part in info["parts"]] == ["sparse", "dense"]
        for model in info["models"]:
            assert ids(model=model["name"])
        explanation = client.post("/v1/both/explain", {"query": "dog", "id": "3"}).data["explanation"]
        assert [part["name"] for part in explanation["parts"]] == ["bm25", "dense"]
        assert "cosine" in explanation["parts"][1]
        counted = client.post("/v1/both/search", {"query": "number3", "k": 0, "facets": {"fields": ["year"]}})
        assert counted.data["results"][0]["facets_over"]["documents"] == 20  # a dense part scores all
        assert client.post("/v1/both/search", {"like": "3"}).data["results"][0]["hits"][0]["id"] != "3"


def test_every_model_that_is_offered_is_accepted(tmp_path: Path) -> None:
    model = parse_model("bm25(k1=1.2) + 6 * sketch(lexical=bm25)").fit(DOCUMENTS)
    folder = build(tmp_path / "x.index", DOCUMENTS, model)
    with served({"x": folder}) as client:
        offered = [model["name"] for model in client.get("/v1/x").data["models"]]
        assert "sketch(lexical=bm25)" in offered
        for name in offered:
            answer = client.post("/v1/x/search", {"query": "dog", "model": name})
            assert answer.status == 200, answer.body


def test_passages(tmp_path: Path) -> None:
    text = "a dog barks. " * 30 + "a cat purrs. " * 30
    folder = build(tmp_path / "p.index", [{"id": "1", "text": text}, {"id": "2", "text": "a dog"}], passages=20)
    with served({"p": folder}) as client:
        answer = client.post("/v1/p/search", {"query": "cat purrs", "highlight": True, "explain": True})
        (hit,) = answer.data["results"][0]["hits"]
        assert (hit["id"], hit["passage"] > 0) == ("1", True)
        assert "cat" in hit["highlights"]["text"]["text"]
        counted = client.post("/v1/p/search", {"query": "dog", "k": 0, "facets": {"fields": []}})
        assert counted.data["results"][0]["facets_over"]["documents"] == 2
        assert client.get("/v1/p/doc/1").data["doc"]["text"].count("cat") == 30


def test_a_reranker(tmp_path: Path, trained: Path) -> None:
    folder = build(tmp_path / "dogs.index", DOCUMENTS)
    with served({"dogs": folder}, rerankers={"small": str(trained)}) as client, Index.open(folder) as index:
        assert client.get("/v1/dogs").data["rerankers"] == ["small"]
        body = {"query": "dog barks", "rerank": "small", "depth": 8, "k": 5}
        hits = client.post("/v1/dogs/search", body).data["results"][0]["hits"]
        expected = rerank_hits(index.search("dog barks", 8), "dog barks", Reranker.open(trained))[:5]
        assert [(h["id"], h["rank"]) for h in hits] == [(h.id, h.rank) for h in expected]
        assert [h["score"] for h in hits] == pytest.approx([h.score for h in expected], rel=1e-5)
        refused = client.post("/v1/dogs/search", {**body, "explain": True})
        assert refused.error == "a reranker cannot explain its scores; leave out explain or rerank"


def test_an_index_without_texts(tmp_path: Path) -> None:
    folder = build(tmp_path / "x.index", DOCUMENTS, store=False)
    with served({"x": folder}) as client:
        (hit,) = client.post("/v1/x/search", {"query": "number3", "highlight": True}).data["results"][0]["hits"]
        assert (hit["document"], hit["highlights"]) == ({"year": 1993}, {})
        assert client.get("/v1/x/suggest", prefix="ba").status == 200
        assert client.post("/v1/x/search", {"like": "3"}).status in (200, 400)


def test_an_empty_index(tmp_path: Path) -> None:
    Index.create(tmp_path / "empty.index").close()
    with served({"empty": tmp_path / "empty.index"}) as client:
        assert client.get("/v1/empty/search", query="dog").data["candidates"] == []
        assert client.get("/v1/empty").data["documents"] == 0
        assert client.get("/v1/empty/suggest", prefix="d").data["suggestions"] == []
        body = {"k": 0, "facets": {"fields": []}}
        assert client.post("/v1/empty/search", body).data["results"][0]["facets_over"]["documents"] == 0
