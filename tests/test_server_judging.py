"""Judging over HTTP: grades in, qrels and measures out, nothing in the index."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from served import Client, build, served

DOCUMENTS = [
    {"id": "long", "text": "dog " + "other words that fill a long text " * 20},
    {"id": "short", "text": "dog"},
    {"id": "twice", "text": "dog dog and more words"},
    {"id": "cat", "text": "a cat"},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build(tmp_path / "pets.index", DOCUMENTS)


def judge(client: Client, query: str, doc_id: str, grade: object) -> int:
    answer = client.send("PUT", "/v1/pets/judgements", {"query": query, "id": doc_id, "grade": grade})
    return answer.data["judged"] if answer.status == 200 else -answer.status


def test_from_grades_to_measures(folder: Path) -> None:
    with served({"pets": folder}) as client:
        assert client.get("/v1/pets/judgements").data == {"queries": []}
        assert client.get("/v1/pets/judgements", query="dog").data == {"query": "dog", "qid": None, "grades": {}}
        assert judge(client, "dog", "short", 3) == 1
        assert judge(client, "dog", "long", 0) == 2
        assert judge(client, "dog", "twice", 1) == 3
        assert judge(client, "dog", "twice", None) == 2
        assert judge(client, "cat", "cat", 1) == 1
        assert client.get("/v1/pets/judgements", query=" dog ").data["grades"] == {"short": 3, "long": 0}
        (dog, cat) = client.get("/v1/pets/judgements").data["queries"]
        assert (dog["query"], dog["judged"], dog["relevant"], cat["qid"]) == ("dog", 2, 1, "q2")
        qrels = client.get("/v1/pets/judgements/qrels")
        assert qrels.body.decode().split("\n")[:-1] == ["q1 0 long 0", "q1 0 short 3", "q2 0 cat 1"]
        assert qrels.headers["content-disposition"] == 'attachment; filename="pets.qrels"'
        beir = client.get("/v1/pets/judgements/qrels", format="beir").body.decode()
        assert "q1\tshort\t3" in beir
        lines = client.get("/v1/pets/judgements/queries").body.splitlines()
        assert [json.loads(line) for line in lines] == [{"_id": "q1", "text": "dog"}, {"_id": "q2", "text": "cat"}]
        asked = {"models": ["bm25", {"model": "bm25(b=0)"}], "measures": ["nDCG@10", "RR"]}
        data = client.post("/v1/pets/judgements/measures", asked).data
        assert data["queries"] == 2
        assert [m["model"] for m in data["models"]] == ["bm25", "bm25(b=0)"]
        own = data["models"][0]
        assert own["mean"]["nDCG@10"] == pytest.approx(sum(q["nDCG@10"] for q in own["per_query"].values()) / 2)
        assert own["unjudged"] == pytest.approx(1 / 4)
    with served({"pets": folder}) as client:  # kept, and not in the index
        assert len(client.get("/v1/pets/judgements").data["queries"]) == 2
    assert (folder.with_name("pets.index.serve") / "judgements.db").is_file()


def test_what_is_refused(folder: Path) -> None:
    with served({"pets": folder}) as client:
        assert judge(client, "dog", "nobody", 1) == -404
        assert judge(client, "dog", "short", 4) == -400
        assert judge(client, "dog", "short", True) == -400
        assert judge(client, " ", "short", 1) == -400
        measured = client.post("/v1/pets/judgements/measures", {"models": ["bm25"]})
        assert (measured.status, measured.error[:33]) == (400, "no query has judgements yet; mark")
    with served({"pets": folder}, judging=False) as client:
        assert judge(client, "dog", "short", 1) == -403
        assert client.get("/v1/indexes").data["judging"] is False


def test_a_folder_that_cannot_be_written(folder: Path) -> None:
    folder.with_name("pets.index.serve").write_text("a file where a folder should be")
    with served({"pets": folder}) as client:
        answer = client.send("PUT", "/v1/pets/judgements", {"query": "dog", "id": "short", "grade": 1})
        assert answer.status >= 400
        assert str(folder.parent) not in answer.error
        assert client.get("/v1/pets/search", query="dog").status == 200
