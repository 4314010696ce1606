"""Runs, judgements, measures, and figures by Anserini's convention."""

from __future__ import annotations

import lzma
from collections import defaultdict
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from vizsla import BeirDataset, Index, Measure, Qrels, Run, VizslaError, evaluate
from vizsla.errors import InputError
from vizsla.recipes import check, load_recipe, recipe_names, recipe_table
from vizsla.runs import parse_measures

QRELS = Qrels({"q1": {"a": 1, "b": 0}, "q2": {"c": 2, "q2": 1}})


def test_missing_queries_count_zero_and_own_ids_do_not_count() -> None:
    run = Run({"q2": [("q2", 9.0), ("x", 2.0), ("c", 1.0)], "unjudged": [("a", 1.0)]})
    found = evaluate(run, QRELS, parse_measures("RR@10 R@10"))
    assert found.by_query["RR@10"] == {"q1": 0.0, "q2": 0.5}
    assert found.measures == {"RR@10": 0.25, "R@10": 0.25}
    assert evaluate(Run({}), QRELS, parse_measures("RR@10")).measures == {"RR@10": 0.0}


def test_equal_scores_go_by_descending_id_unless_they_are_told_apart() -> None:
    run = Run({"q1": [("b", 1.0), ("a", 1.0)]})
    assert evaluate(run, QRELS, "RR").by_query["RR"]["q1"] == 0.5
    assert evaluate(run.untied(), QRELS, "RR").by_query["RR"]["q1"] == 1.0


def test_no_judgements_are_told() -> None:
    with pytest.raises(VizslaError, match="no judgements"):
        evaluate(Run({}), Qrels({}), parse_measures("RR"))


def test_runs_go_to_disk_and_back(tmp_path: Path) -> None:
    run = Run({"q1": [("d1", 3.25), ("d2", 0.1)], "q2": [("d1", 1e-7)]})
    run.write(tmp_path / "run.trec", tag="x")
    assert (tmp_path / "run.trec").read_text().splitlines()[1] == "q1 Q0 d2 2 0.1 x"
    assert Run.read(tmp_path / "run.trec") == run


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        (Run, "q1 Q0 d1 1 2.0\n", r":1: expected six columns"),
        (Run, "q1 Q0 d1 1 2.0 x\nq1 Q0 d1 1 nan x\n", r":2: 'nan' is not a score"),
        (Qrels, "q1 0 d1 high\n", r":1: 'high' is not a judgement"),
        (Qrels, "q1 d1\n", r":1: expected three columns"),
        (Run, None, "this file does not exist"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, kind: type[Run] | type[Qrels], content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "file").write_text(content)
    with pytest.raises(InputError, match=message):
        kind.read(tmp_path / "file")


def test_trec_judgements_have_four_columns(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("q1 0 d1 2\n")
    assert Qrels.read(tmp_path / "qrels").judgements == {"q1": {"d1": 2}}


def test_measures_are_values() -> None:
    assert [str(m) for m in parse_measures("nDCG@10, R@100 AP")] == ["nDCG@10", "R@100", "AP"]
    assert Measure.parse("RR@10") == Measure.parse("MRR@10")
    with pytest.raises(VizslaError, match="unknown measure 'ndgc'; did you mean"):
        Measure.parse("ndgc@10")
    with pytest.raises(VizslaError, match="'nDCG@@' is not a measure"):
        Measure.parse("nDCG@@")
    with pytest.raises(VizslaError, match="no measure was named"):
        parse_measures(" ")


ALONE = [name for name in recipe_names() if not load_recipe(name).trained]


# A network reads all documents, or many pairs, or statistics are frozen; see `make check`.
SLOW = ("bm25-ce", "bm26", "bm51", "spar-sketch")
MINILM = tuple(name for name in ALONE if "minilm" in name)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n == "bm25" else pytest.mark.slow) for n in ALONE if n not in SLOW + MINILM],
)
def test_every_recipe_reaches_its_figures(name: str, data: Path) -> None:
    """On one set or two; `make check` does all sets, and networks, too. MiniLM is not installed for tests."""
    recipe = load_recipe(name)
    sets = ("scifact", "nfcorpus") if name in ("bm25", "bm25-wp", "bm25-multifield") else ("nfcorpus",)
    here = tuple(t for t in recipe.targets if t.dataset in sets)
    findings = list(check(replace(recipe, targets=here), data))
    assert findings
    assert [f for f in findings if not f.reached] == []


def test_bm51_on_a_part_of_scifact(data: Path, tmp_path: Path) -> None:
    """The whole way of a model with a network, held against what it reached when the whole set reached its figures."""
    dataset = BeirDataset.open(data / "scifact")
    judged = Qrels(dict(islice(dataset.qrels("test").judgements.items(), 25)))
    queries = {q: text for q, text in dataset.queries_of(dataset.qrels("test")).items() if q in judged.judgements}
    wanted = {d for grades in judged.judgements.values() for d in grades}
    with Index.create(tmp_path / "index", "bm51") as index:
        index.add(d for i, d in enumerate(dataset.documents()) if d.id in wanted or i % 150 == 0)
        index.commit()
        figure = evaluate(index.run(queries), judged, "nDCG@10").measures["nDCG@10"]
        assert figure == pytest.approx(0.96, abs=0.015)  # a rank may differ where 8 bits are rounded otherwise


@pytest.mark.parametrize("name", ["scifact", "nfcorpus"])
def test_the_top_thousand_equal_lucenes(name: str, data: Path, reference: Path, tmp_path: Path) -> None:
    """Same documents, scores equal to 1e-5 relative, order equal except inside ties."""
    lucene: dict[str, list[tuple[str, float]]] = defaultdict(list)
    with lzma.open(reference / "lucene-runs" / f"{name}.flat.trec.xz", "rt") as lines:
        for line in lines:
            query, _, document, _, score, _ = line.split()
            lucene[query].append((document, float(score)))
    dataset = BeirDataset.open(data / name)
    with Index.create(tmp_path / "index", store=False) as index:
        index.add(dataset.documents())
        index.commit()
        ours = index.run(dataset.queries_of(dataset.qrels("test")), 1001).without_own_ids().top(1000)
    assert {q for q, ranking in ours.items() if ranking} == set(lucene)
    for query, theirs in lucene.items():
        mine = ours[query]
        assert len(mine) == len(theirs)
        cut = theirs[-1][1] * (1 + 1e-5)  # which of the documents tied at the end are in is anybody's choice
        assert {d for d, s in mine if s > cut} == {d for d, s in theirs if s > cut}
        scores, found = dict(theirs), np.array([s for _, s in mine])
        np.testing.assert_allclose(found, [s for _, s in theirs], rtol=1e-5)
        np.testing.assert_allclose(found, [scores.get(d, s) for d, s in mine], rtol=1e-5)


def test_recipes_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(VizslaError, match="unknown recipe 'bm225'; did you mean 'bm25'"):
        load_recipe("bm225")
    with pytest.raises(InputError, match="no such recipe file"):
        load_recipe("missing.yaml")
    for content in ["name: x", "a: [", "7"]:
        (tmp_path / "r.yaml").write_text(content)
        with pytest.raises(InputError, match=r"r\.yaml: this is"):
            load_recipe(str(tmp_path / "r.yaml"))


def test_a_recipe_without_data_says_where_to_put_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VIZSLA_DATA", str(tmp_path))
    with pytest.raises(InputError, match="this folder does not exist"):
        list(check(load_recipe("bm25"), tmp_path / "nowhere"))
    findings = list(check(load_recipe("bm25"), tmp_path))
    assert [(f.dataset, f.measured, f.reached) for f in findings] == [
        ("nfcorpus", None, False),
        ("scifact", None, False),
        ("wiki-openqa-ds", None, False),
    ]
    assert [f.measured for f in check(load_recipe("bm25"), None)] == [None] * 3


def test_the_docs_table_is_generated_from_the_recipes() -> None:
    page = Path(__file__).parents[1] / "docs" / "recipes.md"
    assert recipe_table() in page.read_text("utf-8"), "vizsla recipes --markdown prints what docs/recipes.md must show"


def test_recipes_can_ask_for_answers(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(
        "name: mine\ntitle: t\nmodel: bm25\nexpected:\n  pets:\n    answers: {q: {Acc@1: 0.5}}\n"
        "    tolerance: 0.01\n    source: us\n"
    )
    (finding,) = check(load_recipe(str(tmp_path / "r.yaml")), dataset.parent)
    assert (finding.measure, finding.measured, finding.reached) == ("q Acc@1", 0.5, True)


def test_what_is_no_number_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mean of it, its test and its place in a report would be none either."""
    ir_measures = pytest.importorskip("ir_measures", reason="it computes the measure")
    measure = ir_measures.parse_measure("Compat(p=0.8)")
    found = [ir_measures.Metric("q1", measure, 0.5), ir_measures.Metric("q2", measure, float("nan"))]
    monkeypatch.setattr(ir_measures, "iter_calc", lambda *_: iter(found))
    run, qrels = Run({"q1": [("a", 1.0)], "q2": [("a", 1.0)]}), Qrels({"q1": {"a": 1}, "q2": {"a": 1}})
    with pytest.raises(VizslaError, match=r"no number for Compat\(p=0.8\) on the query 'q2'"):
        evaluate(run, qrels, "Compat(p=0.8)")
