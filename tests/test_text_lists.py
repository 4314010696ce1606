"""Fields that hold a list of texts, such as generated queries: indexed, shown, filtered, counted, returned as lists."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import Cli
from served import doc_path, served
from small import small_dense
from vizsla import BM25, Index, VizslaError, parse_model
from vizsla.models import Sum, field_text
from vizsla.server.mcp_tools import snippet_fields, whole_text

DOCUMENTS = [
    {"_id": "1", "title": "Dogs", "text": "Dogs bark.", "queries": ["why do canines make noise", "dog sounds"]},
    {"_id": "2", "title": "Cats", "text": "Cats purr.", "queries": ["feline sounds"]},
    {"_id": "3", "title": "Fish", "text": "Fish swim.", "queries": []},
]


@pytest.fixture(params=["doct5query", "doct5query-field(weight=0.5)"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Index:
    return built(tmp_path / "index", request.param)


def built(folder: Path, model: str) -> Index:
    index = Index.create(folder, model)
    index.add(DOCUMENTS)
    index.commit()
    return index


def test_documents_are_found_by_their_queries_and_come_back_as_they_were(index: Index) -> None:
    with index:
        (hit,) = index.search("canines")
        assert hit.id == "1"
        assert {"_id": hit.id, **hit.document.content} == DOCUMENTS[0]
        assert index.explain("canines", "1").score == pytest.approx(hit.score)
        snippet = index.highlighter("canines").snippet(hit.document, "queries")
        assert snippet.text == "why do canines make noise\ndog sounds"
        assert [snippet.text[a:z] for a, z in snippet.matches] == ["canines"]
        assert [h.id for h in index.search("sounds", 10, 'queries = "feline sounds"')] == ["2"]
        assert [h.id for h in index.similar("1")] == ["2"]
        assert index.facets(["queries"])["queries"].missing == 1
        if isinstance(index.model, BM25):  # of a sum the first part completes words
            assert [s.text for s in index.suggest("cani")] == ["canines"]


def test_appended_queries_are_text_of_the_document_and_a_field_has_its_own_statistics() -> None:
    appended = parse_model("doct5query(k1=1.2)")
    assert isinstance(appended, BM25)
    assert (appended.fields, appended.k1) == (("title", "text", "queries"), 1.2)
    assert parse_model("doct5query(fields=abstract)").fields == ("abstract", "queries")
    joined = [{"text": field_text(d, ("title", "text", "queries"))} for d in DOCUMENTS]
    plain = BM25(k1=1.2, fields=("text",))
    queries = ["dog sounds"]
    assert (
        appended.encode_queries(queries, appended.statistics(DOCUMENTS)).dot(appended.encode_documents(DOCUMENTS))
        == plain.encode_queries(queries, plain.statistics(joined)).dot(plain.encode_documents(joined))
    ).all()
    apart = parse_model("doct5query-field(weight=0.5, b=0.3)")
    assert isinstance(apart, Sum)
    assert [(p.weight, p.component.fields, p.component.namespace) for p in apart.parts] == [
        (1.0, ("title", "text"), "words"),
        (0.5, ("queries",), "queries"),
    ]
    assert apart.statistics(DOCUMENTS)["queries"].documents == 2
    for wrong in ("doct5query-field(weight=0)", "doct5query-field(fields=text/queries)"):
        with pytest.raises(VizslaError, match=r"above 0|leave it out of fields"):
            parse_model(wrong)


@pytest.mark.parametrize("model", ["doct5query", "doct5query-field"])
def test_documents_without_the_field_are_refused_at_first(tmp_path: Path, cli: Cli, model: str) -> None:
    file = tmp_path / "documents.jsonl"
    plain = [{name: value for name, value in d.items() if name != "queries"} for d in DOCUMENTS]
    file.write_text("".join(json.dumps(d) + "\n" for d in plain))
    code, _, err = cli("index", file, "-o", tmp_path / "index", "--model", model)
    assert code == 2
    assert err == (
        f"vizsla: {model} reads generated queries, and no document has the field 'queries'; write it with vizsla "
        "queries generate\n"
    )
    assert not (tmp_path / "index").exists()
    with built(tmp_path / "other", model) as index:
        index.add([{"_id": "4", "text": "Birds sing."}])  # some may lack them
        index.commit()
        assert [hit.id for hit in index.search("birds")] == ["4"]


def test_lists_of_anything_else_are_refused(tmp_path: Path) -> None:
    with Index.create(tmp_path / "index", "doct5query") as index:
        with pytest.raises(VizslaError, match="'queries' that is not a text, but a list that is not all text"):
            index.add([{"_id": "1", "text": "a", "queries": ["b", 7]}])
        with pytest.raises(VizslaError, match="'queries' that is not a text, but an object"):
            index.add([{"_id": "1", "text": "a", "queries": {"b": 1}}])


def test_dense_models_read_lists(tmp_path: Path) -> None:
    model = small_dense(tmp_path / "network")
    both = [{"text": ["dogs bark", "cats"]}, {"text": "dogs bark\ncats"}]
    vectors, known = model.document_embeddings(both)
    assert known.all()
    assert (vectors[0] == vectors[1]).all()


def test_passages_export_and_other_models(tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "documents.jsonl"
    file.write_text("".join(json.dumps(d) + "\n" for d in DOCUMENTS))
    assert cli("index", file, "-o", tmp_path / "passages", "--model", "doct5query", "--passages", 1)[0] == 0
    code, out, _ = cli("search", tmp_path / "passages", "canines", "--json")
    assert code == 0
    assert json.loads(out)["results"][0]["document"]["queries"] == DOCUMENTS[0]["queries"]
    assert cli("search", tmp_path / "passages", "canines")[0] == 0
    assert cli("export", tmp_path / "passages", "-o", tmp_path / "vectors.jsonl")[0] == 0
    assert cli("index", file, "-o", tmp_path / "plain")[0] == 0
    with Index.open(tmp_path / "plain") as index:
        assert index.search("canines") == []
        assert index.get("1")["queries"] == DOCUMENTS[0]["queries"]


def test_a_server_and_its_tools(tmp_path: Path) -> None:
    with built(tmp_path / "index", "doct5query") as index:
        document = index.get("1")
    assert snippet_fields(document, ("title", "text", "queries")) == ["text", "queries"]
    assert whole_text(document, ("title", "text", "queries")).endswith(
        "\n\nqueries: why do canines make noise\ndog sounds"
    )
    with served({"dogs": tmp_path / "index"}) as client:
        body = {"query": "canines", "highlight": True, "explain": True, "facets": {"fields": ["queries"]}}
        answer = client.post("/v1/dogs/search", body)
        assert answer.status == 200, answer.body
        (hit,) = answer.data["results"][0]["hits"]
        assert hit["highlights"]["queries"]["matches"] == [[7, 14]]
        assert hit["document"]["queries"] == DOCUMENTS[0]["queries"]
        assert client.get(doc_path("dogs", "1")).data["doc"]["queries"] == DOCUMENTS[0]["queries"]
