"""Collections in Qdrant, on a server that the tests start, beside an index of the same documents."""

from __future__ import annotations

import json
import pickle
from itertools import islice
from pathlib import Path

import pytest

from conftest import Cli
from qdrant_compared import both, differences, documents, queries
from qdrant_server import Node, address
from scattered import Scattered, ScatteredTokens
from vizsla import BM25, BeirDataset, Filter, Index, Model, VizslaError, evaluate_retriever
from vizsla import open as open_location
from vizsla.backends.qdrant import QdrantIndex
from vizsla.errors import UncommittedChangesWarning
from waiting import eventually

MODELS: dict[str, Model | str] = {
    "bm25": "bm25",
    "fields": "bm25-multifield",
    "variant": "bm25(variant=bm25l, lengths=exact)",
    "dense": Scattered(),
    "tokens": ScatteredTokens(),
    "hybrid": BM25() + 0.3 * Scattered(),
    "three": BM25() + -0.2 * Scattered() + 0.1 * ScatteredTokens(),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_rankings_are_those_of_an_index(tmp_path: Path, where: str, model: Model | str) -> None:
    local, cluster = both(tmp_path, where, model, documents(120))  # three times what a part of a sum names at first
    cancelling = not isinstance(model, str)
    with local, cluster:
        assert len(cluster) == 120
        for k in (1, 10, 50, 200):
            assert differences(local, cluster, queries(8), k, cancelling=cancelling) == []
        condition = "year < 2000 and not tags = 'a'"
        assert differences(local, cluster, queries(8), 20, condition, cancelling=cancelling) == []
        for doc_id in ("d7", "d8"):
            mine, yours = local.explain("word1 word2 word50", doc_id), cluster.explain("word1 word2 word50", doc_id)
            assert str(mine) == str(yours)
        assert cluster.search_many(["", "word1"], 3)[0] == []
        assert [h.document.content for h in cluster.search("word1", 5)] == [
            h.document.content for h in local.search("word1", 5)
        ]


def test_ties_come_in_the_order_of_insertion(tmp_path: Path, where: str) -> None:
    some = [{"id": f"{i * 7919 % 1000}", "text": "dog" if i % 3 else "dog cat"} for i in range(200)]
    local, cluster = both(tmp_path, where, "bm25", some)
    with local, cluster:
        for query in ("dog", "cat dog", "cat"):
            for k in (1, 5, 60, 90, 300):
                assert [h.id for h in cluster.search(query, k)] == [h.id for h in local.search(query, k)]


def test_terms_documents_and_facts_are_those_of_an_index(tmp_path: Path, where: str) -> None:
    local, cluster = both(tmp_path, where, "bm25", documents(80))
    with local, cluster:
        text = "word1 word2 word59 nothing"
        assert cluster.term_statistics(text) == local.term_statistics(text)
        assert [d.id for d in cluster.documents()] == [d.id for d in local.documents()]
        assert cluster.get_many(["d3", "nope", "d1"]) == local.get_many(["d3", "nope", "d1"])
        assert cluster.get("d5") == local.get("d5")
        assert cluster.get("nope") is None
        mine, yours = local.info(), cluster.info()
        for name in ("model", "documents", "generation"):
            assert mine[name] == yours[name]
        assert yours["namespaces"]["words"]["drift"] == 0
        assert mine["namespaces"]["words"]["tokens"] == yours["namespaces"]["words"]["tokens"]
        snippet = cluster.highlighter("word1").snippet(cluster.search("word1")[0].document)
        assert snippet == local.highlighter("word1").snippet(local.search("word1")[0].document)


def test_a_change_is_seen_at_the_commit_and_soon_by_others(where: str) -> None:
    with QdrantIndex.create(where) as writer, open_location(where) as reader:
        assert writer.add([{"id": "1", "text": "a dog"}, {"id": "2", "text": "a cat"}]).replaced == 0
        assert len(writer) == len(reader) == 0
        writer.commit()
        assert [h.id for h in writer.search("dog")] == ["1"]
        assert writer.add([{"id": "1", "text": "a bird"}]).replaced == 1
        assert writer.delete(["2", "2", "nope"]) == 1
        assert writer.delete("2") == 0
        writer.rollback()
        assert writer.delete("2") == 1
        writer.commit()
        eventually(lambda: len(reader) == 1)
        assert reader.search("cat") == []
        assert [h.id for h in reader.search("dog")] == ["1"]


def test_a_wrong_document_changes_nothing(where: str) -> None:
    with QdrantIndex.create(where) as index:
        index.add([{"id": "1", "text": "a dog"}])
        for wrong, message in [
            ([{"id": "4", "text": "far", "n": [1 << 70]}], "'4' has the number 1180.* which needs more than 64 bits"),
            ([{"id": "3", "text": 7}], "the document '3' has"),
        ]:
            with pytest.raises(VizslaError, match=message):
                index.add(wrong)
        index.commit()
        assert len(index) == 1
        added = index.add([{"id": "5", "text": "far"}, {"id": "5", "text": "near"}])
        assert (added.documents, added.repeated) == (1, 1)
        index.commit()
        assert sorted((d.id, d["text"]) for d in index.documents()) == [("1", "a dog"), ("5", "near")]
        assert [h.id for h in index.search("far")] == []


def test_a_copy_is_opened_again(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QDRANT_API_KEY", "secret of the environment")
    with QdrantIndex.create(where) as index:
        index.add(documents(5))
        index.commit()
        index.add(documents(9))
        pickled = pickle.dumps(index)
        assert b"secret" not in pickled
        with pickle.loads(pickled) as again, pickle.loads(pickle.dumps(index.with_model("2 * bm25"))).index as view:
            assert (len(again), len(view)) == (5, 5)
            assert again.search("word1") == index.search("word1")
            again.delete("d1")
            again.commit()
        index.rollback()
        index.refresh()
        assert len(index) == 4


def test_uncommitted_changes_are_told(where: str) -> None:
    with pytest.warns(UncommittedChangesWarning, match="not committed are discarded"), QdrantIndex.create(where) as i:
        i.add([{"id": "1", "text": "dog"}])


def test_other_models_on_the_same_documents(tmp_path: Path, where: str) -> None:
    local, cluster = both(tmp_path, where, BM25() + 0.5 * Scattered(), documents(200))
    with local, cluster:
        for model in ("bm25", "bm25(variant=robertson)", BM25() + 3 * Scattered(), Scattered(), "bm25-rm3"):
            mine, yours = local.with_model(model), cluster.with_model(model)
            cancelling = not isinstance(model, str) or "robertson" in model  # whose idf can be negative
            assert differences(mine, yours, queries(12), 20, cancelling=cancelling) == []
        condition = "year < 2000"
        mine, yours = (i.with_model("bm25-rm3") for i in (local, cluster))
        assert differences(mine, yours, queries(5), 10, condition) == []
        assert str(mine.explain("word3", "d30", condition)) == str(yours.explain("word3", "d30", condition))
        for model, message in [
            ("bm25(k1=1.2)", "another k1, b, delta or variant needs a collection of its own"),
            ("bm25(b=0)", "another k1, b"),
            ("bm25(variant=bm25+)", "variant needs"),
            ("bm25(analyzer=whitespace)", "has nothing that bm25\\(analyzer=whitespace\\) reads"),
            (ScatteredTokens(), "has nothing that scattered-tokens reads"),
        ]:
            with pytest.raises(VizslaError, match=message):
                cluster.with_model(model)
        for option, message in [
            ({"combine": "union"}, "cannot search the union of the best of each part; add the parts up"),
            ({"combine": "rff"}, "unknown way to combine 'rff'; did you mean 'rrf'"),
            ({"combine": "rrf", "model": "bm25"}, "rrf combines the parts of a sum, and this model has only one part"),
            ({"search_params": "ef_search=10"}, "cannot take search parameters"),
            ({"approximate": 0.5}, "cannot search approximately"),
        ]:
            with pytest.raises(VizslaError, match=message):
                cluster.search("word1", **option)  # type: ignore[arg-type]


@pytest.mark.parametrize("combine", ["sum", "rrf", "rrf(k=5, depth=90)", "linear", "mnz(depth=200)", "interleave"])
def test_parts_are_fused_as_in_an_index(tmp_path: Path, where: str, combine: str) -> None:
    local, cluster = both(tmp_path, where, BM25() + 0.5 * Scattered(), documents(150))
    with local, cluster:
        asked = {**queries(12), "none": "unknown", "empty": " "}
        mine, yours = (i.with_model(combine=combine) for i in (local, cluster))
        for condition in (None, "year < 2000"):
            assert differences(mine, yours, asked, 20, condition, cancelling=True) == []
        for text in ("word1 word5", "word7"):
            first, second = (i.search(text, 5) for i in (mine, yours))
            assert [(h.rank, h.document) for h in first] == [(h.rank, h.document) for h in second]
            (bare,) = yours.search_many([text], 5, documents=False)
            assert [(h.id, dict(h.document.content)) for h in bare] == [(h.id, {}) for h in second]


def test_the_mean_length_is_frozen_and_its_drift_is_told(where: str) -> None:
    """Documents that come later are weighted with the mean length of the first ones, which `info` compares."""
    with QdrantIndex.create(where) as index:
        index.add([{"id": str(i), "text": "dog " * (i % 4 + 1)} for i in range(20)])
        index.commit()
        before = index.search("dog", 20)
        index.add([{"id": "long", "text": "cat " * 60}])
        index.commit()
        facts = index.info()["namespaces"]["words"]
        assert facts["frozen_average_length"] == 2.5
        assert facts["average_length"] == pytest.approx(110 / 21)
        assert facts["drift"] == pytest.approx(110 / 21 / 2.5 - 1)
        idf = (
            index.explain("dog", "1").parts[0].facts["query_weight"]
            / index.explain("cat", "long").parts[0].facts["query_weight"]
        )
        assert idf < 1  # document frequencies are those of now
        assert [h.id for h in index.search("dog", 20)] == [h.id for h in before]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("yaer > 1", r"no document has a field 'yaer' \(character 1 of the filter\)"),
        ("title > 'a'", "compares texts only by = and !=, not by >: title"),
        ("year = 9007199254740993", "compares numbers exactly only below 9,007,199,254,740,992"),
        ("year >", "ends too early"),
    ],
)
def test_filters_that_cannot_be_kept_are_refused(server: Node, text: str, message: str) -> None:
    where = address([server], "filters")
    with QdrantIndex.create(where, overwrite=True) as index:
        index.add(documents(5))
        index.commit()
        with pytest.raises(VizslaError, match=message):
            index.search("word1", filter=text)


def test_a_field_that_no_document_has_is_refused_as_in_an_index(where: str) -> None:
    with QdrantIndex.create(where) as index:
        for some, hint in (
            ([], "there are no fields yet"),
            ([{"id": "1", "text": "dog", "year": 1}], "did you mean 'year'"),
        ):
            index.add(some)
            index.commit()
            with pytest.raises(VizslaError, match=rf"no document has a field 'yaer' .*; {hint}"):
                index.search("dog", filter="not yaer = 1")
            assert index.search("dog", filter="exists(yaer) and yaer = 1") == []
            assert len(index.search("dog", filter="not exists(yaer)")) == len(some)


def test_filters_with_odd_names_and_values(where: str) -> None:
    some = [
        {"id": "1", "text": "dog", "it's": 'a "quote"', "a.b": 1, "x": "'; drop", "deep": {"n": [1, None]}},
        {"id": "2", "text": "dog", "a": {"b": 1}, "big": 9007199254740993, "x": [[1]], "deep": [{"n": 1}]},
        {"id": "3", "text": "dog", "x": None, "deep": {"n": []}, "flag": True},
    ]
    with QdrantIndex.create(where) as cluster:
        cluster.add(some)
        cluster.commit()
        for condition in [
            "`it's` = 'a \"quote\"'", "`a.b` = 1", "a.b = 1", 'x = "\'; drop"', "deep.n = 1", "deep.n = null",
            "x = null", "exists(x)", "exists(deep.n)", "x != 3", "not x != 3", "flag = true", "big > 5", "x in []",
            "deep.n in [1, null]", "not (exists(a) or flag = true)",
        ]:  # fmt: skip
            expected = [d["id"] for d in some if Filter.parse(condition).accepts(d)]
            assert [h.id for h in cluster.search("dog", filter=condition)] == expected, condition
            assert cluster.matching_ids(condition) == expected


# On the command line


def test_on_the_command_line(tmp_path: Path, where: str, cli: Cli) -> None:
    QdrantIndex.create(where).close()
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(d) + "\n" for d in documents(40)))
    code, _, said = cli("add", where, corpus)
    assert code == 0
    assert "40 documents in " in said
    assert f"vizsla search {where}" in said
    code, out, _ = cli("search", where, "word1", "--json", "-k", 3)
    local = Index.create(tmp_path / "i")
    local.add(documents(40))
    local.commit()
    assert [hit["id"] for hit in json.loads(out)["results"]] == [h.id for h in local.search("word1", 3)]
    assert cli("search", where, "word1")[0] == 0
    assert cli("search", where, "word1", "--model", "bm25(k1=2)")[0] == 2
    code, out, _ = cli("search", where, "word1", "--expand", "rm3", "--json")
    assert [hit["id"] for hit in json.loads(out)["results"]] == [h.id for h in local.search("word1", model="bm25-rm3")]
    code, out, _ = cli("info", where, "--terms", "word1 nothing")
    assert code == 0
    assert "drift +0.00%" in out
    assert "words: word1" in out
    assert json.loads(cli("info", where, "--json")[1])["documents"] == 40
    assert "word1" in cli("explain", where, "word1", "d1")[1]
    run, texts = tmp_path / "run.txt", tmp_path / "queries.tsv"
    texts.write_text("q1\tword1 word2\n")
    assert cli("search", where, "--queries", texts, "-o", run)[0] == 0
    assert run.read_text().startswith("q1 Q0 ")
    code, _, said = cli("delete", where, "d1", "nope")
    assert (code, said.strip()) == (0, "1 document deleted; 1 of the ids was not there")
    folder = tmp_path / "pets"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(corpus.read_text())
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "word1 word2"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td2\t1\n")
    assert cli("add", where, corpus)[0] == 0
    code, out, _ = cli(
        "compare", folder, "--index", f"local={local.path}", "--index", f"there={where}", "--measures", "RR", "--json"
    )
    assert code == 0
    values = {entry["system"]: entry["value"] for entry in json.loads(out)["figures"]}
    assert values["local"] == values["there"] > 0
    assert cli("eval", folder, "--index", where)[0] == 0
    assert cli("compare", folder, "--index", where)[0] == 2
    assert cli("info", where.replace("qdrant:", "qdrant:/"))[0] == 2
    local.close()


def some_of(whole: BeirDataset, folder: Path, queries: int, documents: int) -> BeirDataset:
    """The first queries of a data set, with the documents that are judged for them and the first of the others."""
    qrels = whole.qrels("test")
    asked = dict(islice(whole.queries_of(qrels).items(), queries))
    judged = {query: qrels.judgements[query] for query in asked}
    wanted = {doc for grades in judged.values() for doc in grades}
    found = [d for i, d in enumerate(whole.documents()) if i < documents or d.id in wanted]
    (folder / "qrels").mkdir(parents=True)
    rows = [f"{query}\t{doc}\t{grade}\n" for query, grades in judged.items() for doc, grade in grades.items()]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    for name, records in (
        ("corpus", [{"_id": d.id, **d.content} for d in found]),
        ("queries", [{"_id": query, "text": text} for query, text in asked.items()]),
    ):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return BeirDataset.open(folder)


def test_evaluated_as_an_index_is(data: Path, tmp_path: Path, where: str) -> None:
    """Some of SciFact: rankings to depth 10 and 100, and the figures. `make cluster` takes all."""
    dataset = some_of(BeirDataset.open(data / "scifact"), tmp_path / "some", queries=60, documents=250)
    local, cluster = Index.create(tmp_path / "i", store=False), QdrantIndex.create(where)
    retrievers: list[Index | QdrantIndex] = [local, cluster]
    for retriever in retrievers:
        retriever.add(dataset.documents())
        retriever.commit()
    with local, cluster:
        texts = dataset.queries_of(dataset.qrels("test"))
        for k in (10, 100):
            assert differences(local, cluster, texts, k) == []
        measures, each = "nDCG@10 R@100 RR@10", (local, cluster)
        mine, yours = (evaluate_retriever(r, dataset, "test", measures, depth=100).evaluation.measures for r in each)
        assert mine == pytest.approx(yours, abs=5e-5)
        assert mine["nDCG@10"] > 0.5
