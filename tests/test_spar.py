"""SPAR: two dense models as one, and how much the second counts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Cli
from small import small_dense
from vizsla import Dense, Index, Model, Qrels, VizslaError, parse_model
from vizsla.evaluation import GRID, QuestionPools, QuestionSet, choose_weight
from vizsla.index import verify
from vizsla.models import Spar, expression
from vizsla.runs import parse_measures

WORDS = ["dog", "cat", "bird", "tax", "car", "rain", "wine", "road", "tree", "stone", "lamp", "ship"]


def documents(count: int, seed: int = 0) -> list[dict[str, str]]:
    rng = np.random.default_rng(seed)
    return [{"id": str(i), "text": " ".join(rng.choice(WORDS, 6))} for i in range(count)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dense, Dense]:
    folder = tmp_path_factory.mktemp("pair")
    return small_dense(folder / "a", seed=1, name="a"), small_dense(folder / "b", seed=2, name="b")


@settings(max_examples=15)
@given(weight=st.floats(0.01, 50), seed=st.integers(0, 5))
def test_vectors_behind_one_another_score_as_the_sum(pair: tuple[Dense, Dense], weight: float, seed: int) -> None:
    first, second = pair
    texts, queries = [d["text"] for d in documents(7, seed)], ["dog rain", "stone", ""]
    spar = Spar(first, second, weight)
    made, there = spar.document_embeddings(texts)
    asked, known = spar.query_embeddings(queries)
    assert (made.shape[1], there.all(), known.tolist()) == (spar.dimensions, True, [True, True, False])
    parts = [m.query_embeddings(queries)[0] @ m.document_embeddings(texts)[0].T for m in pair]
    np.testing.assert_allclose(asked @ made.T, parts[0] + weight * parts[1], rtol=1e-4, atol=1e-4)
    added = Spar(first, second, weight, "sum")
    expected = (first.query_embeddings(queries)[0] + np.float32(weight) * second.query_embeddings(queries)[0]) @ (
        first.document_embeddings(texts)[0] + second.document_embeddings(texts)[0]
    ).T
    np.testing.assert_allclose(
        added.query_embeddings(queries)[0] @ added.document_embeddings(texts)[0].T, expected, rtol=1e-4, atol=1e-4
    )
    assert added.dimensions == first.dimensions


def test_models_saved_without_the_kinds_of_their_parts_open(pair: tuple[Dense, Dense], tmp_path: Path) -> None:
    """Parts were dense models of one kind once."""
    Spar(*pair, 0.5).save(tmp_path)
    file = tmp_path / "model.json"
    told = json.loads(file.read_text())
    assert [told["parts"][0][name].pop("kind") for name in ("first", "second")] == ["dense", "dense"]
    file.write_text(json.dumps(told))
    opened = Model.load(tmp_path)
    assert isinstance(opened, Spar)
    assert isinstance(opened.second, Dense)


def test_one_index_and_any_weight(pair: tuple[Dense, Dense], tmp_path: Path) -> None:
    first, second = pair
    those = documents(30)
    with Index.create(tmp_path / "sum", first + 0.7 * second) as index:
        index.add(those)
        index.commit()
    with Index.create(tmp_path / "spar", Spar(first, second, 0.7)) as index:
        index.add(those)
        index.commit()
    with Index.open(tmp_path / "sum") as both, Index.open(tmp_path / "spar") as one:
        assert isinstance(one.model, Spar)
        for weight in (0.7, 0.1, 5.0):
            for query in ("dog rain", "wine road ship"):
                wanted = [(h.id, h.score) for h in both.search(query, 30, model=first + weight * second)]
                found = [(h.id, h.score) for h in one.search(query, 30, model=Spar(first, second, weight))]
                assert [s for _, s in found] == pytest.approx([s for _, s in wanted], rel=1e-5, abs=1e-5)
        assert one.info()["documents"] == 30
        told, best = one.explain("dog rain", "3"), {h.id: h.score for h in one.search("dog rain", 30)}
        assert told.score == pytest.approx(best["3"], rel=1e-5)
        assert [part.name for part in told.parts] == ["a", "b"]
        assert sum(part.score for part in told.parts) == pytest.approx(told.score)
        assert verify(one.path) == []
        with pytest.raises(VizslaError):
            one.search("dog", model=Spar(first, second, 0.7, "sum"))
        assert len(list((tmp_path / "spar").glob("segments/*/dense_*.npy"))) == 1


def test_spar_by_name_and_what_it_refuses(pair: tuple[Dense, Dense], tmp_path: Path) -> None:
    first, second = pair
    first.save(tmp_path / "a")
    second.save(tmp_path / "b")
    text = f"spar(dense={tmp_path / 'a'}, lexical={tmp_path / 'b'}, mu=0.25)"
    model = parse_model(text)
    assert isinstance(model, Spar)
    assert (model.mu, model.combine, model.name) == (0.25, "concat", text)
    model.save(tmp_path / "both")
    assert Model.load(tmp_path / "both") == model
    assert parse_model(expression(Model.load(tmp_path / "a") + 2 * Model.load(tmp_path / "b"))).parts[1].weight == 2
    wide = small_dense(tmp_path / "wide", seed=3, name="wide", pooling="cls+mean")
    assert wide.dimensions == 2 * first.dimensions
    for problem, message in (
        (lambda: Spar(first, wide, combine="sum"), "cannot be added"),
        (lambda: Spar(first, second, 0.0), "above 0"),
        (lambda: Spar(first, second, 1.0, "mean"), "combination"),
        (lambda: parse_model("spar(dense=bm25)"), "vizsla train lambda"),
        (lambda: parse_model(f"spar(dense=bm25, lexical={tmp_path / 'b'})"), "bm25 is not a dense model"),
    ):
        with pytest.raises(VizslaError, match=message):
            problem()
    assert Spar(first, wide).dimensions == 3 * first.dimensions


@pytest.fixture(scope="module")
def both(pair: tuple[Dense, Dense], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("both") / "index"
    with Index.create(folder, pair[0] + pair[1]) as index:
        index.add(documents(40))
        index.commit()
    return folder


QUERIES = {"1": "dog rain", "2": "stone wine ship", "3": "lamp"}


def test_pools_hold_the_best_of_both_with_their_scores(pair: tuple[Dense, Dense], both: Path) -> None:
    with Index.open(both) as index:
        pools = QuestionPools.search(index, pair[0] + 3 * pair[1], QUERIES, 5)
        alone = [index.run(QUERIES, 40, model=model) for model in pair]
        for query in QUERIES:
            best = {d for run in alone for d in run[query].documents[:5]}
            pool = pools.pools[query]
            assert set(pool.documents) == best
            for run, scores in zip(alone, pool.scores, strict=True):
                assert scores == pytest.approx([dict(run[query])[d] for d in pool.documents], rel=1e-5, abs=1e-5)
        with pytest.raises(VizslaError, match="between two"):
            QuestionPools.search(index, pair[0], QUERIES, 5)


def test_the_weight_that_ranks_best_is_found(pair: tuple[Dense, Dense], both: Path, cli: Cli, tmp_path: Path) -> None:
    with Index.open(both) as index:
        wanted = index.run(QUERIES, 1, model=pair[0] + 0.6 * pair[1])
        qrels = Qrels({q: {wanted[q].documents[0]: 1} for q in QUERIES})
        asked = QuestionSet("made", QUERIES, {}, qrels)
        (measure,) = parse_measures("MRR@10")
        found = choose_weight(index, pair[0] + pair[1], [asked], measure)
        assert set(GRID) <= set(found.tried)
        assert found.value == max(found.tried.values()) == 1.0
        assert found.tried[0.6] == 1.0
        only = index.run(QUERIES, 1, model=pair[0])
        first_only = QuestionSet("first", QUERIES, {}, Qrels({q: {only[q].documents[0]: 1} for q in QUERIES}))
        small = choose_weight(index, pair[0] + pair[1], [first_only], measure)
        assert min(small.tried) < min(GRID)  # the best was at the end, so the grid went on
        own = choose_weight(index, pair[0] + pair[1], [first_only], measure, grid=(10.0, 1.0))
        assert list(own.tried) == [1.0, 10.0]  # but not one's own
        with pytest.raises(VizslaError, match="neither judgements nor answers"):
            choose_weight(index, pair[0] + pair[1], [QuestionSet("none", QUERIES)], measure)
        texts = {q: index.get_many([wanted[q].documents[0]]) for q in QUERIES}
    file = tmp_path / "questions.jsonl"
    lines = [
        {"_id": q, "text": QUERIES[q], "metadata": {"answers": [next(iter(texts[q].values()))["text"]]}}
        for q in QUERIES
    ]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    code, out, said = cli("tune", file, "--index", both, "--measure", "Success@1", "--json")
    assert code == 0, said
    assert json.loads(out)["value"] == 1.0
    own = {q: wanted[q].documents[0] for q in QUERIES}  # questions and passages are numbered alike
    file.write_text("\n".join(json.dumps({**line, "_id": own[line["_id"]]}) for line in lines[:1]) + "\n")
    assert (
        json.loads(cli("tune", file, "--index", both, "--measure", "Success@1", "--weights", "0.6", "--json")[1])[
            "value"
        ]
        == 1.0
    )
    code, out, _ = cli("tune", file, "--index", both, "--weights", "0.5,1", "--depth", "5")
    assert (code, "a + " in out) == (0, True)
    for arguments, message in (
        (["--weights", "0.5,x"], "not weights"),
        (["--depth", "0"], "must be 1 or more"),
        (["-m", "bm25"], "between two"),
        (["--measure", "nDCG@10 R@5"], "one measure"),
    ):
        code, _, said = cli("tune", file, "--index", both, *arguments)
        assert code != 0
        assert message in said
