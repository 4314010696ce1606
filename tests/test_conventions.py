"""Figures equal those of trec_eval and of the beir package, on runs made to be difficult."""

from __future__ import annotations

import copy
import string
import sys
from random import Random
from typing import Any

import pytest

from vizsla import Measure, Qrels, Run, VizslaError, evaluate
from vizsla.runs import parse_measures

CUTOFFS = (1, 3, 5, 10, 100)
TREC = {"nDCG": "ndcg_cut", "AP": "map_cut", "R": "recall", "P": "P", "Success": "success"}
Judged = dict[str, dict[str, int]]
Found = dict[str, dict[str, float]]


def difficult(seed: int) -> tuple[Judged, Found]:
    """Judgements and results with ties, missing queries, no positives, negative grades, short lists, own ids.

    (No grade below -1, and no query with nothing but negative grades: pytrec_eval hangs or crashes on some.)
    """
    rng = Random(seed)
    documents = [f"{rng.choice(string.ascii_letters)}{i}" for i in range(rng.choice([3, 20, 150]))] + ["é", "Ω1"]
    queries = [f"q{i}" for i in range(rng.randint(1, 12))]
    documents += rng.sample(queries, len(queries) // 2)  # ids that are queries', too
    grades = rng.choice([[1], [0, 1], [0, 0, 1, 2], [-1, 0, 1, 2, 3], [0], [-1, 0, 0, 4]])
    judged = {
        q: {d: rng.choice(grades) for d in rng.sample(documents, rng.randint(1, min(len(documents), 15)))}
        for q in queries
    }
    for judgements in judged.values():
        if max(judgements.values()) < 0:
            judgements[min(judgements)] = 0
    values = rng.choice(
        [[1.0, 2.0], [rng.random() for _ in range(200)], [1.0, 1.0 + 1e-9, 0.5], [-3.0, 0.0, 1e-30, 7e9]]
    )
    found: Found = {}
    for q in [*queries, "unjudged"]:
        if rng.random() < 0.8:
            some = rng.sample(documents, rng.randint(1, len(documents)))
            found[q] = {d: rng.choice(values) for d in some}
    return judged, found


def run_of(found: Found) -> Run:
    return Run({q: list(scores.items()) for q, scores in found.items()})


def without_own_ids(found: Found) -> Found:
    return {q: {d: s for d, s in scores.items() if d != q} for q, scores in found.items()}


def test_anserinis_convention_is_trec_eval_with_c() -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    for seed in range(80):
        check_anserini(pytrec_eval, seed)


def check_anserini(pytrec_eval: Any, seed: int) -> None:
    judged, found = difficult(seed)
    names = {f"{ours}@{k}": f"{theirs}_{k}" for ours, theirs in TREC.items() for k in CUTOFFS}
    names |= {"AP": "map", "nDCG": "ndcg", "RR": "recip_rank", "Rprec": "Rprec"}
    wanted = {f"{t}.{','.join(map(str, CUTOFFS))}" for t in TREC.values()} | {"map", "ndcg", "recip_rank", "Rprec"}
    evaluator = pytrec_eval.RelevanceEvaluator(judged, wanted)
    for convention, results in (("anserini", without_own_ids(found)), ("trec", found)):
        theirs = evaluator.evaluate(results)
        ours = evaluate(run_of(found), Qrels(judged), parse_measures(list(names)), convention)
        for mine, other in names.items():
            values = {q: theirs[q][other] if q in theirs else 0.0 for q in judged}
            assert ours.by_query[mine] == pytest.approx(values, abs=1e-9), (seed, convention, mine)
            mean = sum(values.values()) / len(judged)
            assert ours.measures[mine] == pytest.approx(mean, abs=1e-9), (seed, convention, mine)


def test_beirs_convention_is_the_packages() -> None:
    pytest.importorskip("beir")
    pytest.importorskip("pytrec_eval")  # which beir asks, and which has no wheel for some machines
    for seed in range(80):
        check_beir(seed)


def check_beir(seed: int) -> None:
    from beir.retrieval.evaluation import EvaluateRetrieval

    judged, found = difficult(seed)
    given, run = copy.deepcopy(found), run_of(found)
    if not any(q in judged for q in given):
        return  # the package divides by zero
    cutoffs = list(CUTOFFS)
    expected = {}
    for ours, figures in zip(("nDCG", "AP", "R", "P"), EvaluateRetrieval.evaluate(judged, given, cutoffs), strict=True):
        expected |= {f"{ours}@{k}": v for k, v in zip(cutoffs, figures.values(), strict=True)}
    given.pop("unjudged", None)  # the package looks its judgements up and fails
    positives = all(any(grade > 0 for grade in judgements.values()) for judgements in judged.values())
    for ours, name in (("RR", "mrr"), ("R_cap", "r_cap"), ("Hole", "hole"), ("Success", "accuracy")):
        if name != "r_cap" or positives:  # the package divides by zero
            figures = EvaluateRetrieval.evaluate_custom(judged, given, cutoffs, name)
            expected |= {f"{ours}@{k}": v for k, v in zip(cutoffs, figures.values(), strict=True)}
    mine = evaluate(run, Qrels(judged), parse_measures(list(expected)), "beir").measures
    assert mine == pytest.approx(expected, abs=0.5001e-5), seed  # it prints five digits
    assert run == run_of(found), seed  # unlike the package's, evaluating leaves the run as it is


def test_where_the_beir_package_fails_ours_counts_nothing() -> None:
    """Three defects of beir 2.2: unjudged queries (KeyError, holes counted), queries without positives (division)."""
    judged: Judged = {"q1": {"a": 1}, "q2": {"b": 0}}
    run = Run({"q1": [("a", 1.0)], "q2": [("b", 1.0)], "unjudged": [("x", 1.0)]})
    figures = evaluate(run, Qrels(judged), "RR@1 R_cap@1 Hole@1", "beir").measures
    assert figures == {"RR@1": 0.5, "R_cap@1": 0.5, "Hole@1": 0.0}


def test_measures_left_to_ir_measures_count_missing_queries() -> None:
    pytest.importorskip("ir_measures")
    pytest.importorskip("pytrec_eval")
    judged: Judged = {"q1": {"a": 2}, "q2": {"b": 1}}
    found = evaluate(Run({"q1": [("a", 1.0)]}), Qrels(judged), "Bpref nDCG(judged_only=True)@10")
    assert found.by_query["nDCG(judged_only=True)@10"] == {"q1": 1.0, "q2": 0.0}
    assert found.measures["nDCG(judged_only=True)@10"] == 0.5
    assert found.facts == {"queries": 2, "missing": 1, "unjudged": 0}


def test_without_ir_measures_its_measures_are_told_from_typing_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes with trec_eval, which has no wheel for some machines."""
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    assert [str(m) for m in parse_measures("nDCG@10 R_cap@5 AP(rel=2)")] == ["nDCG@10", "R_cap@5", "AP(rel=2)"]
    for text, message in (
        ("ERR@10", "need ir_measures, which is not installed"),
        ("IPrec@0.2", "need ir_measures, which is not installed"),
        ("MAP(rel=x)", "need ir_measures, which is not installed"),
        ("Bpref", "'Bpref' is not one of the built-in measures"),
        ("nDCG(judged_only=True)@10", "need ir_measures, which is not installed: pip install ir_measures"),
        ("ndgc@10", "unknown measure 'ndgc'; did you mean 'nDCG'"),
        ("nDCG@@", "'nDCG@@' is not a measure"),
    ):
        with pytest.raises(VizslaError) as told:
            Measure.parse(text)
        assert message in str(told.value)


def test_holes_by_query_and_by_corpus() -> None:
    judged: Judged = {"q1": {"a": 1}, "q2": {"b": 0}}
    run = Run({"q1": [("a", 3.0), ("b", 2.0), ("c", 1.0)]})
    found = evaluate(run, Qrels(judged), "Hole@2 Hole(judged='query')@2 Hole@4 Judged@2", "trec").by_query
    assert found == {
        "Hole@2": {"q1": 0.0, "q2": 0.0},
        "Hole(judged='query')@2": {"q1": 0.5, "q2": 0.0},
        "Hole@4": {"q1": 0.25, "q2": 0.0},
        "Judged@2": {"q1": 0.5, "q2": 0.0},
    }


def test_the_grade_that_counts_can_be_chosen() -> None:
    judged: Judged = {"q": {"a": 1, "b": 2}}
    run = Run({"q": [("a", 2.0), ("b", 1.0)]})
    figures = evaluate(run, Qrels(judged), "P(rel=2)@1 R(rel=2)@2 RR(rel=2) AP(rel=2)").measures
    assert figures == {"P(rel=2)@1": 0.0, "R(rel=2)@2": 1.0, "RR(rel=2)": 0.5, "AP(rel=2)": 0.5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("R", "R needs a cutoff, as in R@10"),
        ("P@0", "a cutoff goes from 1 to 1,000,000,000"),
        ("Hole(x=1)@5", "is not a measure"),
        ("NCDG@10", "did you mean 'nDCG'"),
        ("nDCG@ten", "is not a measure"),
        ("nDCG(rel=2)@10", "is not a measure"),
        ("Rprec@5", "is not a measure"),
        ("nDCG(", "is not a measure"),
        ("P(rel=²)@5", "is not a measure"),
        ("R@99999999999999999999", "a cutoff goes from 1"),
        ("nDCG@" + "1" * 5000, "a cutoff goes from 1"),
        ("ERR@" + "1" * 5000, "is not a measure"),
        ("RBP(p=0.8)", "needs a package that is not installed here"),
    ],
)
def test_measures_that_are_none(text: str, message: str) -> None:
    with pytest.raises(VizslaError, match=message):
        Measure.parse(text)


def test_a_convention_that_is_none() -> None:
    with pytest.raises(VizslaError, match="unknown convention 'bier'; did you mean 'beir'"):
        evaluate(Run({}), Qrels({"q": {"a": 1}}), "RR", "bier")
