"""PyTerrier, MTEB, beir and ir_datasets: BM25's figure on SciFact through each of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vizsla import BeirDataset, Index, VizslaError

NDCG = pytest.approx(0.6789, abs=0.00005)
"""BM25's nDCG@10 on SciFact, as Anserini publishes it."""


def test_pyterrier(pets: Index, tmp_path: Path) -> None:
    pt = pytest.importorskip("pyterrier")
    from vizsla.adapters.pyterrier import VizslaIndexer, VizslaRetriever

    found = VizslaRetriever(str(pets.path), fields=["text", "year"]).search("a dog barks at cats")
    hits = pets.search("a dog barks at cats")
    assert found[["docno", "score"]].to_numpy().tolist() == [[hit.id, hit.score] for hit in hits]
    assert found["rank"].tolist() == [0, 1]
    assert found["text"].tolist() == [hit["text"] for hit in hits]
    assert (VizslaRetriever(pets) % 1).search("a dog barks at cats")["docno"].tolist() == ["1"]
    assert (VizslaRetriever(pets) % 1).compile().k == 1
    frame = pt.new.queries(["dogs", "nothing of this", "taxes"])
    assert VizslaRetriever(pets)(frame)[["qid", "docno"]].to_numpy().tolist() == [["1", "1"], ["1", "2"], ["3", "3"]]
    assert VizslaRetriever(pets, filter="year > 2000")(frame)["docno"].tolist() == ["2", "3"]
    indexer = VizslaIndexer(tmp_path / "new.index", "bm25(k1=1.2)")
    made = indexer.index({"docno": h.id, "text": h["text"]} for h in hits)
    assert (len(made.retriever), made.search("purr")["docno"].tolist()) == (2, ["2"])
    pipeline = pt.apply.text(lambda row: row["text"].upper()) >> VizslaIndexer(tmp_path / "loud.index")
    assert pipeline.index([{"docno": "1", "text": "Dogs"}]).retriever.get("1")["text"] == "DOGS"


def test_pyterrier_evaluates_scifact(scifact: BeirDataset, scifact_index: Index) -> None:
    pd, pt = pytest.importorskip("pandas"), pytest.importorskip("pyterrier")
    from vizsla.adapters.pyterrier import VizslaRetriever

    judged = scifact.qrels("test")
    topics = pd.DataFrame(scifact.queries_of(judged).items(), columns=["qid", "query"])
    rows = [(q, d, grade) for q, grades in judged.judgements.items() for d, grade in grades.items()]
    qrels = pd.DataFrame(rows, columns=["qid", "docno", "label"])
    table = pt.Experiment([VizslaRetriever(scifact_index)], topics, qrels, ["ndcg_cut_10"])
    assert table["ndcg_cut_10"][0] == NDCG


def test_beir_evaluates_scifact(scifact: BeirDataset, scifact_index: Index) -> None:
    pytest.importorskip("beir")
    from beir.retrieval.evaluation import EvaluateRetrieval

    from vizsla.adapters.beir import VizslaSearch

    judged = scifact.qrels("test")
    corpus = {d.id: {"title": d["title"], "text": d["text"]} for d in scifact.documents()}
    queries, qrels = scifact.queries_of(judged), judged.judgements
    for search in (VizslaSearch("bm25"), VizslaSearch(retriever=scifact_index.path)):
        evaluation = EvaluateRetrieval(search)
        results = evaluation.retrieve(corpus, queries)
        assert evaluation.evaluate(qrels, results, [10])[0]["NDCG@10"] == NDCG
    with pytest.raises(VizslaError, match="vizsla encode"):
        search.encode(corpus, queries)
    with pytest.raises(VizslaError, match="vector files are not supported"):
        search.search_from_files("", [], 10)


def scifact_task(scifact: BeirDataset) -> Any:
    """SciFact as a task of MTEB whose data are here already."""
    from datasets import Dataset
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
    from mteb.abstasks.task_metadata import TaskMetadata

    judged = scifact.qrels("test")
    queries = [{"id": q, "text": text} for q, text in scifact.queries_of(judged).items()]
    corpus = [{"id": d.id, "title": d["title"], "text": d["text"]} for d in scifact.documents()]

    class LocalSciFact(AbsTaskRetrieval):
        metadata = TaskMetadata(
            name="LocalSciFact", dataset={"path": "local/scifact", "revision": "1"}, description="SciFact here.",
            type="Retrieval", category="t2t", modalities=["text"], eval_splits=["test"], eval_langs=["eng-Latn"],
            main_score="ndcg_at_10", reference=None, date=None, domains=None, task_subtypes=None, license=None,
            annotations_creators=None, dialect=None, sample_creation=None, bibtex_citation=None,
        )  # fmt: skip

        def load_data(self, **_: Any) -> None:
            split = RetrievalSplitData(
                corpus=Dataset.from_list(corpus), queries=Dataset.from_list(queries),
                relevant_docs=judged.judgements, top_ranked=None,
            )  # fmt: skip
            self.dataset = {"default": {"test": split}}
            self.data_loaded = True

    return LocalSciFact()


def test_mteb_evaluates_scifact(scifact: BeirDataset, scifact_index: Index, tmp_path: Path) -> None:
    mteb = pytest.importorskip("mteb")
    from mteb.models.models_protocols import SearchProtocol

    from vizsla.adapters.mteb import VizslaSearch

    search = VizslaSearch("bm25")
    assert isinstance(search, SearchProtocol)
    assert search.mteb_model_meta.name == "vizsla/bm25"
    results = mteb.evaluate(search, scifact_task(scifact), cache=mteb.ResultCache(tmp_path))
    assert results[0].get_score() == NDCG
    there = VizslaSearch(retriever=scifact_index, name="me/scifact")
    query = scifact.queries()["1"]
    hits = scifact_index.search(query, 3)
    found = there.search([{"id": "1", "text": query}], top_k=3)
    assert found == {"1": pytest.approx({hit.id: hit.score for hit in hits}, rel=1e-6)}
    some = [hits[2].id, hits[0].id, "nowhere"]
    reranked = there.search([{"id": "1", "text": query}], top_k=10, top_ranked={"1": some})
    assert list(reranked["1"]) == [hits[0].id, hits[2].id]


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A data set of three documents that ir_datasets knows by name."""
    ir_datasets = pytest.importorskip("ir_datasets")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "docs.tsv").write_text("1\tDogs bark.\n2\tCats purr.\n3\tTaxes on vehicles.\n")
    (tmp_path / "queries.tsv").write_text("q1\tbarking dogs\nq2\tvehicle taxes\n")
    (tmp_path / "qrels").write_text("q1 0 1 1\nq2 0 3 2\nq2 0 1 0\n")
    made = ir_datasets.create_dataset(*(str(tmp_path / name) for name in ("docs.tsv", "queries.tsv", "qrels")))
    name = f"pets-{tmp_path.name}/dev/small"
    ir_datasets.registry.register(name, made)
    return f"irds:{name}"


def test_ir_datasets(registered: str, tmp_path: Path, cli: Any) -> None:
    from vizsla import read_documents
    from vizsla.datasets import open_datasets, read_queries

    assert [d["text"] for d in read_documents(registered)] == ["Dogs bark.", "Cats purr.", "Taxes on vehicles."]
    assert read_queries(Path(registered)) == {"q1": "barking dogs", "q2": "vehicle taxes"}
    group = open_datasets(registered)
    assert group.split(None) == "small"
    assert group.members[0].qrels("small").judgements == {"q1": {"1": 1}, "q2": {"3": 2, "1": 0}}
    folder = str(tmp_path / "i.index")
    assert cli("index", registered, "-o", folder)[0] == 0
    run = tmp_path / "run.txt"
    assert cli("search", folder, "--queries", registered, "-o", run)[0] == 0
    assert [line.split()[2] for line in run.read_text().splitlines()] == ["1", "3"]


def test_ir_datasets_evaluated(registered: str, cli: Any) -> None:
    code, out, err = cli("eval", registered, "--model", "bm25", "--measures", "nDCG@10", "--json")
    assert (code, json.loads(out)["measures"]["nDCG@10"]) == (0, 1.0), err


def test_ir_datasets_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ir_datasets = pytest.importorskip("ir_datasets")
    from vizsla import read_documents

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(VizslaError, match="irds:nobody/has: ir_datasets has no data set of this name"):
        read_documents("irds:nobody/has")
    name = f"gone-{tmp_path.name}"
    ir_datasets.registry.register(name, ir_datasets.create_dataset(str(tmp_path / "missing.tsv")))
    with pytest.raises(VizslaError, match="ir_datasets cannot provide this data set"):
        read_documents(f"irds:{name}")
    assert not (tmp_path / "vizsla" / "irds" / name).exists()


def test_ir_datasets_evaluates_scifact(scifact: BeirDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real thing under a name, its titles and texts as ir_datasets' own BEIR documents have them."""
    ir_datasets = pytest.importorskip("ir_datasets")
    from ir_datasets.datasets.beir import BeirTitleDoc
    from ir_datasets.formats import BaseDocs, BaseQrels, BaseQueries, GenericQuery, TrecQrel

    from vizsla import parse_model
    from vizsla.evaluation import evaluate_model

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    judged = scifact.qrels("test")

    class Documents(BaseDocs):
        def docs_iter(self) -> Any:
            return (BeirTitleDoc(d.id, d["text"], d["title"]) for d in scifact.documents())

    class Queries(BaseQueries):
        def queries_iter(self) -> Any:
            return (GenericQuery(q, text) for q, text in scifact.queries_of(judged).items())

    class Judgements(BaseQrels):
        def qrels_iter(self) -> Any:
            return (
                TrecQrel(q, d, grade, "0") for q, grades in judged.judgements.items() for d, grade in grades.items()
            )

    name = f"local-scifact-{tmp_path.name}/test"
    ir_datasets.registry.register(name, ir_datasets.Dataset(Documents(), Queries(), Judgements()))
    outcome = evaluate_model(parse_model("bm25"), BeirDataset.open(f"irds:{name}"), "test", "nDCG@10")
    assert outcome.evaluation.measures["nDCG@10"] == NDCG
