"""SPAR's validation MRR: how highly a model ranks the first document of its teacher, in a pool."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import Cli
from small import documents_of
from vizsla import BM25, Index, VizslaError, parse_model
from vizsla.evaluation import ImitationPool
from vizsla.index import scores_among

TITLES = "bm25(fields=title, namespace=titles)"
QUESTIONS = {f"q{i}": str(d["text"]).split(".")[0] for i, d in enumerate(documents_of(12))}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imitation") / "i"
    documents = [{**d, "title": str(d["text"]).split()[0]} for d in documents_of(60)]
    with Index.create(folder, parse_model(f"bm25 + {TITLES}")) as made:
        made.add(documents)
        made.commit()
    return folder


def test_a_pool_has_the_first_and_one_of_the_last(index: Path) -> None:
    with Index.open(index) as opened:
        pool = ImitationPool.search(opened, "bm25", QUESTIONS, depth=10, last=3)
        assert len(pool.texts) == len(QUESTIONS)
        rankings = opened.with_model("bm25").run(QUESTIONS, 10).values()
        wanted = set()
        for ranking, number in zip(rankings, pool.first, strict=True):
            assert pool.documents[number] == ranking.documents[0]
            wanted |= {ranking.documents[0], *ranking.documents[-3:]}
        assert set(pool.documents) <= wanted
        assert len(set(pool.documents)) == len(pool.documents) <= 2 * len(QUESTIONS)
        same = ImitationPool.search(opened, "bm25", QUESTIONS, depth=10, last=3, seed=1)
        assert pool.documents != same.documents
        with pytest.raises(VizslaError, match="finds 200 documents for none of the questions"):
            ImitationPool.search(opened, "bm25", QUESTIONS, depth=200)
        with pytest.raises(VizslaError, match="expected 1 <= last < depth"):
            ImitationPool.search(opened, "bm25", QUESTIONS, depth=5, last=5)


def test_the_mrr_is_that_of_whole_rankings(index: Path) -> None:
    """The teacher's first document among those of the pool, in rankings of the whole index."""
    with Index.open(index) as opened:
        pool = ImitationPool.search(opened, "bm25", QUESTIONS, depth=10, last=3)
        for model in ("bm25", TITLES, "bm25(k1=0.1, b=1)"):
            run = opened.with_model(model).run({str(i): text for i, text in enumerate(pool.texts)}, 60)
            reciprocal = []
            for i, first in enumerate(pool.first):
                ranking = run[str(i)]
                found = dict(zip(ranking.documents, ranking.scores, strict=True))
                own = found.get(pool.documents[first], 0.0)
                reciprocal.append(1 / sum(found.get(d, 0.0) >= own for d in pool.documents))
            assert pool.mrr(opened, model) == pytest.approx(np.mean(reciprocal))
        assert pool.mrr(opened, TITLES) < pool.mrr(opened, "bm25(k1=0.1, b=1)") <= pool.mrr(opened, "bm25")


def test_scores_of_some_documents_are_those_of_a_search(index: Path) -> None:
    with Index.open(index) as opened:
        hits = opened.search("dog night", 60, model=BM25())
        ids = [*[hit.id for hit in hits][::-1], "no such document"]
        (scores,) = scores_among(opened, ["dog night"], ids, BM25())
        np.testing.assert_allclose(scores[0], [*[hit.score for hit in hits][::-1], 0.0], rtol=1e-6)
        (nothing,) = scores_among(opened, ["dog night"], [], BM25())
        assert nothing.shape == (1, 0)


def test_overlap_prints_it(index: Path, tmp_path: Path, cli: Cli) -> None:
    lines = [json.dumps({"_id": q, "text": f"{text} dog night summer winter"}) for q, text in QUESTIONS.items()]
    for name in ("some", "more"):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    asked = ("run", "overlap", "--index", index, "--queries", tmp_path / "some.jsonl", "-m", f"bm25,{TITLES}")
    code, out, said = cli(*asked, "--pool-mrr", "--json")
    assert code == 0, said
    (result,) = json.loads(out)
    assert 0 < result["figures"]["pool MRR"] < 1
    assert "pool MRR" not in cli(*asked)[1]
    out = cli(*asked, "--queries", tmp_path / "more.jsonl", "--pool-mrr")[1]
    assert "RBO with bm25" in out
    assert "pool MRR with bm25" in out
    code, _, said = cli("run", "overlap", "a.trec", "b.trec", "--pool-mrr")
    assert (code, "name it with --index" in said) == (2, True)


def test_a_network_is_measured_in_the_same_pool() -> None:
    """By scripted vectors: the rank of the teacher's first document, the worst among equals."""
    from vizsla.training import TokenCorpus
    from vizsla.training.kinds.spar import ImitationDev

    collection = TokenCorpus.pack([[200], [201], [202], [203], [204]])
    queries = TokenCorpus.pack([[301], [302], [303]])
    dev = ImitationDev.of("dev", queries, collection, np.array([4, 1, 2]), np.array([2, 2, 1]))
    assert [dev.documents[i].tolist() for i in range(len(dev.documents))] == [[201], [202], [204]]
    assert dev.first.tolist() == [2, 0, 1]
    vectors = {201: [0.0, 1.0], 202: [1.0, 1.0], 204: [2.0, 0.0], 301: [1.0, 0.0], 302: [0.0, 1.0], 303: [1.0, 1.5]}

    def figures(vectors: dict[int, list[float]]) -> dict[str, float]:
        return dev.figures(
            lambda chunk: torch.tensor([vectors[i] for i in chunk.ids[chunk.starts[:-1].long() + 1].tolist()]),
            lambda outputs, batch: torch.cat(outputs)[torch.argsort(batch.order)],
            torch.device("cpu"),
        )

    # 204 is first for 301; for 302 201 and 202 are equal, so 201 is second; 202 is first for 303
    assert figures(vectors) == {"dev MRR": pytest.approx((1 + 1 / 2 + 1) / 3)}
    assert figures({number: [1.0, 1.0] for number in vectors}) == {"dev MRR": pytest.approx(1 / 3)}


def test_dev_questions_go_through_a_folder(tmp_path: Path) -> None:
    from vizsla import Analyzer, Document
    from vizsla.training.kinds.spar import ImitationDev, ImitationSource, imitation_data

    documents = [Document(str(d["id"]), {"text": str(d["text"])}) for d in documents_of(60)]
    (tmp_path / "dev.jsonl").write_text("\n".join(json.dumps({"_id": q, "text": t}) for q, t in QUESTIONS.items()))
    settings = ImitationSource(depth=10, top_positives=2, bottom_negatives=3, dev_questions=f"{tmp_path}/dev.jsonl")
    pieces = Analyzer.parse("wordpiece")
    pairs, (dev,) = imitation_data(documents, BM25(), pieces, settings)
    assert (dev.name, len(dev.queries)) == ("dev", len(QUESTIONS))
    with Index.create(tmp_path / "i", BM25()) as index:
        index.add(documents)
        index.commit()
        firsts = [hits[0].document.content["text"] for hits in index.search_many(list(QUESTIONS.values()), 1)]
    numbers = pieces.tokenizer.ids(firsts)  # type: ignore[attr-defined]
    assert [dev.documents[n].tolist() for n in dev.first.tolist()] == [list(map(int, row)) for row in numbers]
    dev.save(tmp_path / "d")
    again = ImitationDev.open(tmp_path / "d", max_query_length=9)
    assert (again.name, again.max_query_length, again.first.tolist()) == ("dev", 9, dev.first.tolist())
    assert len(pairs.positives[0]) == 2
    with pytest.raises(VizslaError, match="no dev set here"):
        ImitationDev.open(tmp_path)
    with pytest.raises(VizslaError, match="have the same name"):
        ImitationSource(dev_questions="a/dev.jsonl,b/dev.jsonl")
