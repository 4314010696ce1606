"""Runs that a cross-encoder reranks, at one depth and at several."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from conftest import Cli
from vizsla import Index, Qrels, Reranker, Run, evaluate
from vizsla.evaluation import evaluate_at_depths
from vizsla.neural.weights import read_tensors, write_arrays
from vizsla.retrievers import pair_scores, rerank, rerank_by_scores, rerank_hits

WORDS = ("dog", "cat", "river", "stone", "bark", "night")


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("indexed") / "ix"
    rng = np.random.default_rng(1)
    with Index.create(folder, "bm25") as index:
        index.add({"id": str(i), "title": WORDS[i % 6], "text": " ".join(rng.choice(WORDS, 9))} for i in range(30))
        index.add([{"id": "empty", "text": ""}])
        index.commit()
    return folder


QUERIES = {"a": "dog bark", "b": "river of stone", "c": "cat"}


def first_stage(seed: int) -> Run:
    rng = np.random.default_rng(seed)
    ids = [*map(str, range(30)), "empty"]
    return Run({q: [(ids[i], float(31 - r // 2)) for r, i in enumerate(rng.permutation(31))] for q in QUERIES}, "first")


def test_a_run_is_reranked_down_to_a_depth(indexed: Path, trained: Path) -> None:
    run, reranker = first_stage(0), Reranker.open(trained)
    assert reranker.name == "cross-encoder"
    assert (reranker.query_length, reranker.length) == (16, 48)
    with Index.open(indexed) as index:
        found = rerank(index, run, QUERIES, reranker, 7)
        for query, text in QUERIES.items():
            before = run[query].documents
            contents = index.get_many(before[:7])
            texts = ["\n".join(filter(None, (contents[d].get("title"), contents[d]["text"]))) for d in before[:7]]
            scores = reranker.scores(text, texts)
            order = np.argsort(-scores, kind="stable")
            assert found[query].documents == [*(before[i] for i in order), *before[7:]]
            np.testing.assert_allclose(found[query].scores[:7], scores[order])
            assert found[query].scores[7] < found[query].scores[6]
            np.testing.assert_allclose(np.diff(found[query].scores[7:]), np.diff(run[query].scores[7:]))
        whole = rerank(index, run, QUERIES, reranker, 1000)
        assert [sorted(whole[q].documents) for q in QUERIES] == [sorted(run[q].documents) for q in QUERIES]
        hits = rerank_hits(index.search("dog", 5), "dog", reranker)
        assert [hit.rank for hit in hits] == [1, 2, 3, 4, 5]
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_eight_bits_rank_about_as_floats_do(trained: Path) -> None:
    texts = [" ".join(np.random.default_rng(i).choice(WORDS, 12)) for i in range(20)]
    small, large = (Reranker.open(trained, p).scores("dog bark", texts) for p in ("int8", "float32"))  # type: ignore[arg-type]
    assert not np.array_equal(small, large)
    assert np.corrcoef(small, large)[0, 1] > 0.95


def test_torch_and_onnxruntime_agree(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["dog", "", "cat " * 100]
    by_onnx = Reranker.open(trained, "float32").scores("a dog", texts)
    monkeypatch.setenv("VIZSLA_RUNTIME", "torch")
    by_torch = Reranker.open(trained, "float32").scores("a dog", texts)
    np.testing.assert_allclose(by_torch, by_onnx, atol=0.02)  # torch may have run it in 16 bits
    assert len(Reranker.open(trained).scores("a dog", [])) == 0


def test_depths_are_those_of_reranking_each_by_itself(indexed: Path, trained: Path) -> None:
    runs, reranker = {"one": first_stage(0), "two": first_stage(1)}, Reranker.open(trained)
    rng = np.random.default_rng(3)
    qrels = Qrels({q: {str(i): int(g) for i, g in enumerate(rng.integers(0, 3, 30))} for q in QUERIES})
    with Index.open(indexed) as index:
        scores = pair_scores(index, list(runs.values()), QUERIES, reranker, 20)
        pairs = {(q, d) for run in runs.values() for q in QUERIES for d in run[q].documents[:20]}
        assert scores.pairs == len(pairs)
        found = evaluate_at_depths(runs, scores, qrels, "nDCG@10 RR@10", [3, 10, 20])
        assert [(row.run, row.depth) for row in found] == [(n, d) for n in runs for d in (0, 3, 10, 20)]
        for row in found:
            run = runs[row.run]
            again = rerank(index, run, QUERIES, reranker, row.depth) if row.depth else run
            assert row.measures == evaluate(again, qrels, "nDCG@10 RR@10").measures
            if row.depth:
                assert row.recall == evaluate(run, qrels, f"R@{row.depth}").measures[f"R@{row.depth}"]
                assert row.seconds == pytest.approx(scores.seconds / scores.pairs * row.depth)


def test_ties_stay_in_the_order_of_the_run() -> None:
    run = Run({"q": [("c", 5.0), ("a", 4.0), ("b", 3.0), ("z", 2.0), ("y", 2.0)], "none": []})
    found = rerank_by_scores(run, {"q": {"c": 1.0, "a": 1.0, "b": 2.0}, "none": {}}, 3)
    assert found["q"].documents == ["b", "c", "a", "z", "y"]
    assert found.untied(by_id=False)["q"].documents == ["b", "c", "a", "z", "y"]
    assert len(found["none"]) == 0


def test_the_command_writes_runs_and_tables(
    cli: Cli, judged: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    ix, run, out = tmp_path / "ix", tmp_path / "bm25.trec", tmp_path / "out.trec"
    assert cli("index", judged / "corpus.jsonl", "-o", ix)[0] == 0
    assert cli("search", ix, "--queries", judged / "queries.jsonl", "--output", run, "-k", 20)[0] == 0
    told = ["run", "rerank", ix, "--run", run, "--reranker", trained]
    asked = ["--queries", judged / "queries.jsonl"]
    assert cli(*told, *asked, "--depth", 5, "-o", out)[0] == 0
    before, after = Run.read(run), Run.read(out)
    assert all(before[q].documents[5:] == after[q].documents[5:] for q in before)
    assert any(before[q].documents[:5] != after[q].documents[:5] for q in before)
    again = tmp_path / "again.trec"
    assert cli("search", ix, *asked, "--output", again, "-k", 20, "--reranker", trained, "--depth", 5)[0] == 0
    assert [Run.read(again)[q].documents for q in after] == [after[q].documents for q in after]
    code, shown, _ = cli("search", ix, "dog bark", "--reranker", trained, "-k", 2, "--json")
    assert code == 0
    assert len(json.loads(shown)["results"]) == 2
    assert cli("search", ix, "dog bark", "--reranker", trained)[0] == 0
    other = tmp_path / "other.trec"
    assert cli("search", ix, *asked, "--output", other, "-k", 20, "--expand", "rm3")[0] == 0
    reports = [x for ending in ("csv", "md", "json", "html") for x in ("--report", tmp_path / f"t.{ending}")]
    code, shown, _ = cli(*told, "--run", other, "--dataset", judged, "--depths", "10,5", *reports)
    assert code == 0
    assert "nDCG@10 at depth" in shown
    assert "first stage" in shown
    assert len((tmp_path / "t.csv").read_text().splitlines()) == 7
    assert "| nDCG@10 at depth | bm25 | other | s/query |" in " ".join((tmp_path / "t.md").read_text().split())
    assert len(json.loads((tmp_path / "t.json").read_text())) == 6
    page = (tmp_path / "t.html").read_text()
    assert page.count("<polyline") == 6  # two first stages, by two measures and their recall
    assert "Best: <b>" in page
    code, shown, _ = cli(*told, "--dataset", judged, "--depths", "5,10", "--json")
    figures = json.loads(shown)["figures"]
    assert [one["depth"] for one in figures] == [0, 5, 10]
    assert figures[1]["recall"] <= figures[2]["recall"]


def test_what_is_wrong_is_said_in_a_sentence(
    cli: Cli, judged: Path, start: Path, trained: Path, tmp_path: Path
) -> None:
    ix, run = tmp_path / "ix", tmp_path / "run.trec"
    assert cli("index", judged / "corpus.jsonl", "-o", ix)[0] == 0
    bare = tmp_path / "bare"
    assert cli("index", judged / "corpus.jsonl", "-o", bare, "--no-store")[0] == 0
    run.write_text("q1 Q0 3 1 2.0 x\nq1 Q0 4 2 1.0 x\n")
    strange, unknown = tmp_path / "strange.trec", tmp_path / "unknown.trec"
    strange.write_text("q1 Q0 nowhere 1 2.0 x\n")
    unknown.write_text("zz Q0 3 1 2.0 x\n")
    empty, plain = tmp_path / "empty", tmp_path / "plain"
    empty.mkdir()
    save_plain(trained, plain)
    wrong = tmp_path / "wrong"
    shutil.copytree(trained, wrong, ignore=shutil.ignore_patterns("training"))
    (wrong / "reranker.json").write_text('{"length": "long"}')
    asked, out = ["--queries", judged / "queries.jsonl"], ["-o", tmp_path / "o.trec"]
    good = ["--reranker", trained]
    for more, message in (
        ([ix, "--run", run, *good, *out], "texts are needed"),
        ([ix, "--run", run, *good, *asked], "-o FILE"),
        ([ix, "--run", run, *good, *asked, "--depths", "5"], "--dataset"),
        ([ix, "--run", run, *good, "--dataset", judged, "--depths", "5,x"], "no depths"),
        (
            [ix, "--run", run, *good, "--dataset", judged, "--depths", "5", "--report", tmp_path / "x.txt"],
            "ends in .html",
        ),
        ([ix, "--run", run, *good, "--dataset", judged, "--depths", "5"], "none of the judged"),
        ([ix, "--run", run, "--run", run, *good, *asked, *out], "one run"),
        ([ix, "--run", run, *good, *asked, *out, "--depth", "0"], "must be 1 or more"),
        ([ix, "--run", strange, *good, *asked, *out], "'nowhere'"),
        ([ix, "--run", unknown, *good, *asked, *out], "'zz'"),
        ([bare, "--run", run, *good, *asked, *out], "--no-store"),
        ([ix, "--run", run, *good, *asked, *out, "--precision", "int4"], "int4"),
        ([ix, "--run", run, "--reranker", empty, *asked, *out], "no encoder here"),
        ([ix, "--run", run, "--reranker", plain, *asked, *out], "not a reranker"),
        ([ix, "--run", run, "--reranker", start, *asked, *out], "not a reranker"),
        ([ix, "--run", run, "--reranker", wrong, *asked, *out], "does not describe a reranker"),
    ):
        code, _, said = cli("run", "rerank", *more)
        assert code == 2, message
        assert message in said
        assert said.count("\n") == 1
    for more, message in ((["dog"], "--no-store"), ([], "prompt"), (["dog", "--depth", "0"], "1 or more")):
        code, _, said = cli("search", bare, *more, "--reranker", trained)
        assert (code, message in said) == (2, True)


def save_plain(trained: Path, folder: Path) -> None:
    """The encoder of a reranker, without its head."""
    folder.mkdir()
    arrays = read_tensors(trained / "model.safetensors")
    write_arrays(folder / "model.safetensors", {name: a for name, a in arrays.items() if "classifier" not in name})
    shutil.copyfile(trained / "config.json", folder / "config.json")
