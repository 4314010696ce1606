"""Runs interleaved two by two, and consistency with a reference: the RepBERT paper's tables 3 and 4 and figure 2."""

from __future__ import annotations

import csv
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Cli
from vizsla import Index, Qrels, Run, VizslaError, evaluate
from vizsla.evaluation import (
    answer_accuracy,
    answer_qrels,
    compare_values,
    consistency_curve,
    consistency_factor,
    consistency_of,
    corrected,
    interleave_all,
)
from vizsla.reports.interleaved import interleaved_rows
from vizsla.runs import Ranking, parse_measures

DOCUMENTS = "abcdefgh"
RANKINGS = st.lists(st.sampled_from(DOCUMENTS), unique=True, max_size=8)
RUNS = st.dictionaries(st.sampled_from(["q1", "q2", "q3"]), RANKINGS, min_size=1)


def run_of(lists: dict[str, list[str]]) -> Run:
    return Run({q: Ranking(list(found), [1 / (i + 1) for i in range(len(found))]) for q, found in lists.items()})


def taking_turns(a: list[str], b: list[str], depth: int) -> list[str]:
    """Equation 6 word by word: merge, drop what came before, cut."""
    merged = []
    for i in range(max(len(a), len(b))):
        merged += a[i : i + 1]
        merged += b[i : i + 1]
    kept: list[str] = []
    for document in merged:
        if document not in kept:
            kept.append(document)
    return kept[:depth]


@given(RUNS, RUNS, RUNS, st.integers(1, 10), st.dictionaries(st.sampled_from(DOCUMENTS), st.integers(0, 2)))
def test_every_ordered_pair_is_merged_filtered_and_cut(
    a: dict[str, list[str]], b: dict[str, list[str]], c: dict[str, list[str]], depth: int, grades: dict[str, int]
) -> None:
    lists = {"a": a, "b": b, "c": c}
    for found in lists.values():
        found.setdefault("q1", [])  # a query in common
    qrels = Qrels(dict.fromkeys(("q1", "q2"), grades))
    found = interleave_all({n: run_of(x) for n, x in lists.items()}, qrels, parse_measures("RR@3 R@8"), depth=depth)
    relevant = {d for d, grade in grades.items() if grade > 0}
    for first, x in lists.items():
        for second, y in lists.items():
            reciprocal, recall = [], []
            for q in ("q1", "q2"):
                merged = x.get(q, []) if first == second else taking_turns(x.get(q, []), y.get(q, []), depth)
                ranks = [i for i, d in enumerate(merged, 1) if d in relevant]
                reciprocal.append(1 / ranks[0] if ranks and ranks[0] <= 3 else 0)
                recall.append(sum(r <= 8 for r in ranks) / len(relevant) if relevant else 0)
            assert found.value(first, second, "RR@3") == pytest.approx(sum(reciprocal) / 2)
            assert found.value(first, second, "R@8") == pytest.approx(sum(recall) / 2)


def test_the_papers_example_and_the_order_of_ties() -> None:
    a, b = run_of({"q": list("acd")}), run_of({"q": list("bac")})
    found = interleave_all({"a": a, "b": b}, Qrels({"q": {"d": 1}}), parse_measures("RR@10"))
    assert found.rows["a"].results["judgements", "b"].run["q"].documents == list("abcd")
    assert found.rows["b"].results["judgements", "a"].run["q"].documents == list("bacd")
    tied = Run({"q": [("x", 1.0), ("y", 1.0), ("q", 2.0)]})  # trec_eval reads y before x; own ids are left out
    other = Run({"q": [("z", 1.0)]})
    both = interleave_all({"tied": tied, "z": other}, Qrels({"q": {"x": 1}}), parse_measures("RR@10"))
    assert both.rows["tied"].results["judgements", "z"].run["q"].documents == ["y", "z", "x"]
    assert (both.value("tied", "tied", "RR@10"), both.value("tied", "z", "RR@10")) == (0.5, pytest.approx(1 / 3))
    assert both.gain("z", "z", "RR@10") is None


def test_marks_are_of_paired_tests_corrected_in_each_row() -> None:
    queries = [f"q{i}" for i in range(12)]
    good = run_of({q: ["right", "wrong"] for q in queries})
    bad = run_of({q: ["other", "wrong"] for q in queries})
    mixed = run_of({q: ["right" if i % 2 else "none"] for i, q in enumerate(queries)})
    qrels = Qrels({q: {"right": 1} for q in queries})
    runs = {"good": good, "bad": bad, "mixed": mixed}
    found = interleave_all(runs, qrels, parse_measures("RR@10"), correction="bonferroni")
    assert [found.mark("bad", b, "RR@10") for b in ("bad", "good", "mixed")] == ["", "+", "+"]
    assert found.mark("good", "bad", "RR@10") == ""
    base = evaluate(bad, qrels, "RR@10").by_query["RR@10"]
    after = found.rows["bad"].results["judgements", "mixed"].evaluation.by_query["RR@10"]
    p = compare_values(base, after).p
    assert found.difference("bad", "mixed", "RR@10")[1] == corrected([p, p], "bonferroni")[0]
    (_, cells, best), *_ = interleaved_rows(found, "RR@10")
    assert (cells, best) == (["1.0000", "1.0000 (+0%)", "1.0000 (+0%)"], [True, True, True])
    assert interleaved_rows(found, "RR@10")[1][1][0] == "0.5000+ (from 0)"


@given(RUNS, RUNS, st.lists(st.integers(1, 9), min_size=1), st.integers(1, 8))
def test_consistency_is_its_definition(
    a: dict[str, list[str]], b: dict[str, list[str]], depths: list[int], pool: int
) -> None:
    curve = consistency_curve(run_of(a), run_of(b), depths, pool)
    for n in depths:
        shares = [len({*a[q][:n]} & {*b[q][:pool]}) / len(a[q][:n]) for q in a if q in b and a[q]]
        assert curve[n] == pytest.approx(sum(shares) / len(shares) if shares else 0)
        assert consistency_factor(run_of(a), run_of(b), n, pool) == curve[n]


def test_consistency_leaves_the_reference_out() -> None:
    a, b = run_of({"q": ["x", "y"], "r": ["x"]}), run_of({"q": ["y"]})
    found = consistency_of({"a": a, "b": b}, "a", a, [1, 2])
    assert (found.curves, found.queries) == ({"b": {1: 1.0, 2: 1.0}}, {"b": 1})
    with pytest.raises(VizslaError, match="b and other have no query in common"):
        consistency_of({"b": b}, "other", run_of({"s": ["x"]}), [1])
    with pytest.raises(VizslaError, match="depths of 1 or more"):
        consistency_curve(a, b, [0])


def test_judgements_by_answers_are_answer_accuracy(dataset: Path, tmp_path: Path, cli: Cli) -> None:
    assert cli("index", dataset, "-o", tmp_path / "i")[0] == 0
    runs = [run_of({"q1": ["d4", "d1", "d2"], "q2": ["d2"]}), run_of({"q1": ["d3"], "q2": ["d4", "gone"]})]
    questions, answers = {"q1": "barking dogs", "q2": "purr"}, {"q1": ["other dogs"], "q2": ["may purr", "zebra"]}
    with Index.open(tmp_path / "i") as index:
        qrels = answer_qrels(index, runs, answers, 3)
        for run in runs:
            figures = answer_accuracy(index, questions, answers, [1, 2, 3], run=run)
            measures = evaluate(run, qrels, "Success@1 Success@2 Success@3").measures
            assert list(figures.values()) == list(measures.values())
    assert qrels.judgements["q1"] == {"d4": 0, "d1": 1, "d2": 0, "d3": 0}


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    made = []
    for name, found in (("bm25", ["d1", "d2"]), ("dense", ["d3", "d2", "d1"]), ("third", ["d4", "d1"])):
        run_of({"q1": found, "q2": found[:1]}).write(tmp_path / f"{name}.trec")
        made.append(tmp_path / f"{name}.trec")
    return made


class _Balanced(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        self.seen.append(tag)
        if tag not in ("meta", "polyline", "line", "circle"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("polyline", "line", "circle"):
            assert self.open.pop() == tag


def test_interleave_from_the_shell(cli: Cli, files: list[Path], dataset: Path, tmp_path: Path) -> None:
    reports = [option for e in ("html", "md", "csv", "json") for option in ("--report", tmp_path / f"r.{e}")]
    code, out, err = cli("run", "interleave", *files, "--qrels", dataset, "--cutoffs", "1,2,5", *reports)
    assert code == 0, err
    assert "RR@10" in out
    assert "R@1000" in out
    assert "C(n) with bm25" in out
    assert "Convention: anserini" in err
    with (tmp_path / "r.csv").open() as file:
        rows = {(r["first"], r["second"], r["measure"]): float(r["value"]) for r in csv.DictReader(file)}
    assert len(rows) == 9 * 2 + 2 * 3
    assert rows["dense", "bm25", "C@1"] == 0
    assert rows["dense", "bm25", "C@2"] == 0.25  # half of the first query's two, none of the second's one
    assert rows["bm25", "dense", "RR@10"] == 0.5  # d1 d3 d2 for the first query, d1 d3 for the second
    assert rows["dense", "bm25", "R@1000"] == 0.5
    kept = json.loads((tmp_path / "r.json").read_text())
    assert kept == json.loads(cli("run", "interleave", *files, "--qrels", dataset, "--cutoffs", "1,2,5", "--json")[1])
    assert kept["consistency"]["runs"][0] == {"run": "dense", "queries": 2, "values": {"1": 0, "2": 0.25, "5": 1 / 3}}
    assert "| bm25 | **0.5000** |" in (tmp_path / "r.md").read_text()
    page = _Balanced()
    page.feed((tmp_path / "r.html").read_text())
    assert (page.open, page.seen.count("polyline"), page.seen.count("table")) == ([], 2, 3)


def test_a_reference_of_its_own_and_names(cli: Cli, files: list[Path], dataset: Path) -> None:
    bm25, dense, third = files
    named = [f"one={dense}", f"two={third}"]
    qrels = dataset / "qrels" / "test.tsv"
    code, out, err = cli("run", "interleave", *named, "--qrels", qrels, "--reference", f"teacher={bm25}", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["runs"], found["consistency"]["reference"]) == (["one", "two"], "teacher")
    assert [r["run"] for r in found["consistency"]["runs"]] == ["one", "two"]
    again = json.loads(cli("run", "interleave", *named, "--qrels", qrels, "--reference", "two", "--json")[1])
    assert [r["run"] for r in again["consistency"]["runs"]] == ["one"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bm25.trec"], "at least two runs"),
        (["bm25.trec", "missing.trec"], "this file does not exist"),
        (["bm25.trec", "empty.trec"], "the run is empty"),
        (["bm25.trec", "other.trec"], "bm25 and other have no query in common"),
        (["bm25.trec", "twice.trec"], "appears a second time"),
        (["bm25.trec", "bm25.trec"], "two runs are called 'bm25'"),
        (["a@x=bm25.trec", "a@y=dense.trec"], "two runs have the same name"),
        (["=bm25.trec", "dense.trec"], "does not name a run"),
        (["bm25.trec", "dense.trec", "-k", "0"], "must be 1 or more, not 0"),
        (["bm25.trec", "dense.trec", "-k", "5"], "RR@10 needs more than the 5 documents of interleaved runs"),
        (["bm25.trec", "dense.trec", "--cutoffs", "0,5"], "are not depths"),
        (["bm25.trec", "dense.trec", "--pool-depth", "0"], "--pool-depth"),
        (["bm25.trec", "dense.trec", "--report", "a.txt"], "ends in .html"),
        (["bm25.trec", "dense.trec", "--reference", "bm2"], "did you mean 'bm25'?"),
        (["bm25.trec", "dense.trec", "--reference", "bm25=dense.trec"], "two runs are called 'bm25'"),
        (["bm25.trec", "dense.trec", "--test", "z"], "unknown significance test"),
        (["bm25.trec", "dense.trec", "--split", "nope"], "unknown split 'nope'"),
        (["bm25.trec", "dense.trec", "--split", "dev"], "bm25 has none of the queries"),
    ],
)
def test_mistakes_are_one_sentence(
    cli: Cli, files: list[Path], dataset: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    folder = files[0].parent
    (folder / "empty.trec").write_text("")
    (folder / "other.trec").write_text("elsewhere Q0 d1 1 1 t\n")
    (folder / "twice.trec").write_text("q1 Q0 d1 1 2 t\nq1 Q0 d1 2 1 t\n")
    monkeypatch.chdir(folder)
    code, out, err = cli("run", "interleave", *arguments, "--qrels", dataset)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("vizsla: ")
    assert err.count("\n") == 1


def test_judgements_must_be_there(cli: Cli, files: list[Path], tmp_path: Path) -> None:
    two = files[:2]
    (tmp_path / "none.tsv").write_text("query-id\tcorpus-id\tscore\n")
    assert "Missing option '--qrels'" in cli("run", "interleave", *two)[2]
    assert "there are no judgements here" in cli("run", "interleave", *two, "--qrels", tmp_path / "none.tsv")[2]
    assert "has no splits" in cli("run", "interleave", *two, "--qrels", tmp_path / "none.tsv", "--split", "dev")[2]
