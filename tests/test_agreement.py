"""Rank-biased overlap against its definition, and agreement of models and runs on several sets of questions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Cli
from vizsla import Run, VizslaError
from vizsla.evaluation import rank_biased_overlap, rbo
from vizsla.runs import Ranking

LETTERS = "abcdefghij"
LISTS = st.lists(st.sampled_from(LETTERS), unique=True, max_size=10)
ENDLESS = 4000  # ranks after which nothing is left of p <= 0.97


def first(found: list[str] | Ranking, d: int) -> set[str]:
    """The documents at ranks up to d, those with equal scores all at the first of their ranks."""
    if isinstance(found, Ranking):
        return {x for x, score in found if sum(s > score for s in found.scores.tolist()) < d}
    return {*found[:d]}


def summed(a: list[str] | Ranking, b: list[str] | Ranking, p: float) -> float:
    """Extrapolated RBO as an endless sum: what both would agree on at every depth if they went on as they ended.

    Agreement is twice the common documents over those of both, as Webber and others propose for ties. Beyond its end
    the short list is taken to agree as much as it did at its end, with one document more at each depth; beyond the
    end of the long one the agreement stays what it was.
    """
    short, long = sorted((a, b), key=len)
    s, n = len(short), len(long)
    at_end = 2 * len(first(short, s) & first(long, s)) / (s + len(first(long, s)))
    total, agreement = 0.0, 0.0
    for d in range(1, ENDLESS):
        if d <= n:
            more = max(d - s, 0)
            x, y = first(short, d), first(long, d)
            agreement = 2 * (len(x & y) + at_end * more) / (len(x) + more + len(y))
        total += (1 - p) * p ** (d - 1) * agreement
    return total


@given(LISTS, LISTS, st.floats(0.05, 0.97), st.integers(1, 12))
def test_extrapolated_rbo_is_an_endless_sum(a: list[str], b: list[str], p: float, depth: int) -> None:
    found = rbo(a, b, p, depth)
    assert rbo(b, a, p, depth) == found
    if a and b:
        assert found == pytest.approx(summed(a[:depth], b[:depth], p), abs=1e-9)
    else:
        assert found == (1.0 if a == b else 0.0)
    assert -1e-12 <= rbo(a, b, p, depth, extrapolated=False) <= found + 1e-12 <= 1 + 1e-9


@given(LISTS, LISTS, st.floats(0.05, 0.97))
def test_truncated_rbo_counts_nothing_beyond_the_lists(a: list[str], b: list[str], p: float) -> None:
    deepest = max(len(a), len(b)) if a and b else 0
    expected = sum((1 - p) * p ** (d - 1) * len({*a[:d]} & {*b[:d]}) / d for d in range(1, deepest + 1))
    assert rbo(a, b, p, extrapolated=False) == pytest.approx(expected)


TIED = st.lists(st.sampled_from(LETTERS), unique=True, min_size=1, max_size=8).flatmap(
    lambda found: st.lists(st.integers(1, 4), min_size=len(found), max_size=len(found)).map(
        lambda scores: Ranking(found, scores)
    )
)


@given(TIED, TIED, st.floats(0.05, 0.97))
def test_equal_scores_share_a_rank(a: Ranking, b: Ranking, p: float) -> None:
    assert rbo(a, b, p) == pytest.approx(summed(a, b, p), abs=1e-9)
    if len(a) == len(b):
        parts = [
            2 * len(first(a, d) & first(b, d)) / (len(first(a, d)) + len(first(b, d))) for d in range(1, len(a) + 1)
        ]
        total = sum((1 - p) * p**i * part for i, part in enumerate(parts))
        assert rbo(a, b, p, extrapolated=False) == pytest.approx(total)
    assert rbo(a, b, p) == pytest.approx(rbo(b, a, p))
    assert -1e-12 <= rbo(a, b, p) <= 1 + 1e-12
    assert rbo(a, a, p) == pytest.approx(1)
    reordered = Ranking(a.documents[::-1], a.scores[::-1])  # equal scores the other way round
    assert rbo(reordered, b, p) == pytest.approx(rbo(a, b, p))


@given(LISTS, LISTS)
def test_without_ties_a_ranking_is_a_list(a: list[str], b: list[str]) -> None:
    runs = [Run({"q": Ranking(x, [-float(i) for i in range(len(x))])}) for x in (a, b)]
    assert rank_biased_overlap(*runs)["q"] == rbo(a, b)


def test_what_cannot_be_compared() -> None:
    with pytest.raises(VizslaError, match="must be 1 or more, not 0"):
        rbo(["a"], ["a"], depth=0)
    with pytest.raises(VizslaError, match="without repetitions"):
        rbo(["a", "a"], ["a"])


@pytest.fixture
def index(cli: Cli, dataset: Path, tmp_path: Path) -> Path:
    model = "bm25 + bm25(fields=title, namespace=titles)"
    assert cli("index", dataset, "-o", tmp_path / "i", "--model", model)[0] == 0
    return tmp_path / "i"


def test_an_index_is_asked_as_its_runs_say(cli: Cli, dataset: Path, index: Path, tmp_path: Path) -> None:
    """Models asked on two sets of questions give what runs of theirs in files give."""
    (tmp_path / "more.tsv").write_text("a\tdogs and cats\nb\tfish that purr\nc\tnowhere\n")
    models = ("bm25", "bm25(fields=title, namespace=titles)")
    runs = []
    for asked, file in (("pets", dataset / "queries.jsonl"), ("more", tmp_path / "more.tsv")):
        for name, model in zip(("words", "titles"), models, strict=True):
            run = tmp_path / f"{asked}-{name}"
            assert cli("search", index, "--queries", file, "--output", run, "-m", model)[0] == 0
            runs.append(f"{name}@{asked}={run}")
    from_files = json.loads(cli("run", "overlap", *runs, "--json")[1])
    questions = ("--queries", dataset / "queries.jsonl", "--queries", tmp_path / "more.tsv")
    code, out, err = cli("run", "overlap", "--index", index, *questions, "-m", ",".join(models), "--json")
    assert code == 0, err
    live = json.loads(out)
    assert [r["figures"] for r in live] == [r["figures"] for r in from_files]
    assert [(r["query_set"], r["queries"]) for r in live] == [("queries", 1), ("more", 2)]
    assert {r["reference"] for r in live} == {"bm25"}
    out, err = cli("run", "overlap", *runs)[1:]
    assert "RBO with words" in out
    assert "pets" in out
    assert "RBO(p=0.9), extrapolated at depth 100" in err
    assert "on pets" in cli("run", "overlap", *runs[:2])[1]
    assert cli("run", "overlap", "--index", index, "--queries", dataset, "-m", ",".join(models))[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give runs, or --index"),
        (["a", "--index", "i"], "give runs, or --index"),
        (["a", "b", "-m", "bm25"], "name it with --index"),
        (["a", "b", "--rbo-depth", "0"], "--pool-depth must be 1 or more"),
        (["a", "b", "-p", "1"], "between 0 and 1, not 1"),
        (["a", "a"], "two runs are called 'a'"),
        (["a@x=a", "b@x=b", "b@y=b", "c@y=a"], "no run of a on y"),
        (["a@x=a", "b@x=b", "a@y=a"], "at least two runs on y"),
        (["a", "c"], "a and c have no query in common"),
        (["--index", "i"], "with --queries"),
        (["--index", "i", "--queries", "q.tsv"], "at least two models"),
        (["--index", "i", "--queries", "q.tsv", "-m", "bm25"], "at least two models"),
        (["--index", "i", "--queries", "none.tsv", "-m", "bm25,bm25-wp"], "this file does not exist"),
        (["--index", "i", "--queries", "q.tsv", "--queries", "q.tsv", "-m", "bm25,bm25(k1=2)"], "the same name"),
        (["--index", "nowhere", "--queries", "q.tsv", "-m", "bm25,bm25(k1=2)"], "this folder does not exist"),
        (["--index", "i", "--queries", "q.tsv", "-m", "bm25,bm25"], "named twice"),
    ],
)
def test_mistakes_are_one_sentence(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, query in (("a", "q"), ("b", "q"), ("c", "r")):
        (tmp_path / name).write_text(f"{query} Q0 x 1 2 t\n")
    (tmp_path / "q.tsv").write_text("q\tdogs\n")
    code, out, err = cli("run", "overlap", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_agreement_from_the_shell(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("q Q0 x 1 2 t\nq Q0 y 2 1 t\n")
    (tmp_path / "b").write_text("q Q0 y 1 2 t\nq Q0 z 2 1 t\n")
    ((result,),) = (json.loads(cli("run", "overlap", tmp_path / "a", tmp_path / "b", "-k", "2", "--json")[1]),)
    assert result["figures"]["overlap@2"] == result["figures"]["consistency@2"] == 0.5
    assert 0 < result["figures"]["RBO(p=0.9)"] < 1
    assert "consistency@10" in cli("run", "overlap", tmp_path / "a", tmp_path / "b")[1]
    (tmp_path / "c").write_text("other Q0 y 1 2 t\n")
    assert "no query in common" in cli("run", "overlap", tmp_path / "a", tmp_path / "c")[2]
    assert cli("run", "overlap", tmp_path / "a")[0] == 2
