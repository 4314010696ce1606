"""Runs as data: files, ties, fusion."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vizsla import Qrels, Run, VizslaError, fuse
from vizsla.errors import InputError
from vizsla.runs import Fusion, Ranking, read_run
from vizsla.runs.run import read_packed, write_packed

IDS = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=4)
SCORES = st.sampled_from([0.0, 1.0, -2.5, 1.0 + 1e-9, 3e30, 1e-40]) | st.floats(-1e6, 1e6)
RUNS = st.dictionaries(IDS, st.dictionaries(IDS, SCORES, max_size=8), max_size=4)


def run_of(found: dict[str, dict[str, float]]) -> Run:
    return Run({q: list(scores.items()) for q, scores in found.items()}, "some name")


def test_a_ranking_is_two_columns_that_read_as_pairs() -> None:
    ranking = Ranking(["a", "b", "c"], [1.0, 3.0, 1.0])
    assert list(ranking) == [("b", 3.0), ("a", 1.0), ("c", 1.0)]
    assert (ranking[0], ranking[1:], len(ranking)) == (("b", 3.0), [("a", 1.0), ("c", 1.0)], 3)
    assert ranking.without("a").documents == ["b", "c"]
    with pytest.raises(VizslaError, match="not a finite number"):
        Ranking(["a"], [float("nan")])
    with pytest.raises(VizslaError, match="has the document 'a' twice"):
        Run({"q": [("a", 2.0), ("b", 1.0), ("a", 1.0)]})
    assert Ranking(["b", "a"], [1.0, 1.0]).untied(by_id=False).documents == ["b", "a"]
    assert Ranking(["b", "a"], [1e300, 1e300]).untied().documents == ["a", "b"]
    with pytest.raises(ValueError, match="a score for every document"):
        Ranking(["a"], [])


@given(RUNS)
def test_untied_runs_have_one_order_for_every_reader(found: dict[str, dict[str, float]]) -> None:
    run = run_of(found)
    for query, ranking in run.untied().items():
        scores = ranking.scores.astype(np.float32)
        assert (scores[1:] < scores[:-1]).all()
        old = {d: np.float32(s) for d, s in run[query]}
        assert ranking.documents == sorted(old, key=lambda d: (-old[d], d))
        assert np.allclose(scores, [old[d] for d in ranking.documents], rtol=1e-5, atol=1e-37)


@given(RUNS)
def test_runs_survive_files(tmp_path_factory: pytest.TempPathFactory, found: dict[str, dict[str, float]]) -> None:
    folder = tmp_path_factory.mktemp("runs")
    run = run_of(found)
    write_packed(run, folder / "run.npz")
    assert read_packed(folder / "run.npz") == run
    run.write(folder / "run.trec")
    if not any(map(len, run.values())):
        return
    back = Run.read(folder / "run.trec")
    assert {q: r.documents for q, r in back.items()} == {q: r.documents for q, r in run.items() if len(r)}


def test_packed_runs_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"no archive")
    with pytest.raises(InputError, match="not a packed run"):
        read_packed(tmp_path / "x.npz")


def test_compressed_runs_are_read(tmp_path: Path) -> None:
    (tmp_path / "run.trec.gz").write_bytes(gzip.compress(b"q Q0 d 1 2.5 tag\n"))
    assert Run.read(tmp_path / "run.trec.gz")["q"] == [("d", 2.5)]
    (tmp_path / "bad.gz").write_bytes(gzip.compress(b"q Q0 d 1 2.5 tag\n" * 999)[:40])
    with pytest.raises(InputError, match="cannot be decompressed"):
        Run.read(tmp_path / "bad.gz")


def test_runs_of_other_tools_are_read() -> None:
    assert read_run({"q": {"a": 1.0, "b": 2.0}})["q"].documents == ["b", "a"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("q Q0 d 1 1.0 t\nq Q0 d 2 0.5 t\n", r":2: the document 'd' appears a second time under the query 'q'"),
        ("q Q0 d 1 inf t\n", r":1: 'inf' is not a score"),
        ("q Q0 d 1\n", r":1: expected six columns"),
        ("q Q0 d 1 1_0 t\n", r":1: '1_0' is not a score"),
        ("q Q0 d 1 １ t\n", r":1: '１' is not a score"),
        ("my query Q0 d 1 2.5\n", r":1: 'd' is not a rank; expected six columns"),
        ("q Q0 d 1 1 t\n" + "x" * (1 << 21), r":2: this line has more than 1,048,576 characters"),
        ("", r"the run is empty"),
    ],
)
def test_bad_lines_of_runs(tmp_path: Path, lines: str, message: str) -> None:
    (tmp_path / "run").write_text(lines)
    with pytest.raises(InputError, match=message):
        Run.read(tmp_path / "run")


def test_ids_with_blanks_do_not_fit_trecs_format(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot hold an id that is empty or contains whitespace"):
        Run({"q": [("a b", 1.0)]}).write(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_judgements_go_to_both_formats_and_back(tmp_path: Path) -> None:
    qrels = Qrels({"q1": {"a": 2, "b": 0}, "q2": {"c": -1}})
    for name in ("qrels.tsv", "qrels.trec"):
        qrels.write(tmp_path / name)
        assert Qrels.read(tmp_path / name) == qrels
    assert qrels.with_more(Qrels({"q1": {"b": 1}, "q3": {"d": 1}})).judgements == {
        "q1": {"a": 2, "b": 1}, "q2": {"c": -1}, "q3": {"d": 1},
    }  # fmt: skip
    (tmp_path / "twice").write_text("q 0 d 1\nq 0 d 1\nq 0 d 2\n")
    with pytest.raises(InputError, match=r":3: the document 'd' has two different judgements"):
        Qrels.read(tmp_path / "twice")


A = Run({"q": [("x", 9.0), ("y", 8.0), ("w", 1.0)], "only a": [("x", 1.0)]})
B = Run({"q": [("y", 0.4), ("z", 0.2)]})


def test_reciprocal_ranks_are_added() -> None:
    fused = fuse([A, B], "rrf(k=60)")
    expected = {"y": 1 / 62 + 1 / 61, "x": 1 / 61, "z": 1 / 62, "w": 1 / 63}
    assert dict(fused["q"]) == pytest.approx(expected)
    assert fused["only a"].documents == ["x"]
    assert fused.name == "rrf(k=60)"


@pytest.mark.parametrize(
    ("normalise", "expected"),
    [
        ("none", {"x": 9.0, "y": 8.2, "w": 1.0, "z": 0.1}),
        ("minmax", {"x": 1.0, "y": 0.875 + 0.5, "w": 0.0, "z": 0.0}),
        ("centred", {"x": 0.5, "y": 0.375 + 0.25, "w": -0.5, "z": -0.25}),
        ("max", {"x": 1.0, "y": 8 / 9 + 0.5, "w": 1 / 9, "z": 0.25}),
        ("sum", {"x": 8 / 15, "y": 7 / 15 + 0.5, "w": 0.0, "z": 0.0}),
        ("rank", {"x": 1.0, "y": 2 / 3 + 0.5, "w": 1 / 3, "z": 0.25}),
    ],
)
def test_weighted_sums_of_normalised_scores(normalise: str, expected: dict[str, float]) -> None:
    fused = fuse([A, B], f"linear(normalise={normalise}, missing=zero)", [1.0, 0.5])
    assert dict(fused["q"]) == pytest.approx(expected)


def test_z_scores_and_missing_documents() -> None:
    a, b = np.array([9.0, 8.0, 1.0]), np.array([0.4, 0.2])
    za, zb = (a - a.mean()) / a.std(), (b - b.mean()) / b.std()
    fused = dict(fuse([A, B], "linear(normalise=zscore)")["q"])  # missing=min, as 0 would be a middling score
    assert fused == pytest.approx({"x": za[0] - 1, "y": za[1] + zb[0], "w": za[2] - 1, "z": za[2] + zb[1]})
    assert dict(fuse([A, B], "mnz(normalise=none)")["q"])["y"] == pytest.approx(16.8)


def test_interleaving_takes_turns_and_keeps_first_places() -> None:
    assert fuse([A, B], "interleave")["q"].documents == ["x", "y", "z", "w"]
    assert fuse([B, A], "interleave")["q"].documents == ["y", "x", "z", "w"]
    assert fuse([A, B], "interleave", depth=2)["q"].documents == ["x", "y"]


@given(st.lists(RUNS, min_size=1, max_size=3), st.sampled_from(["rrf", "linear", "mnz", "linear(missing=min)"]))
def test_fusing_equals_adding_up_in_dictionaries(given_runs: list[dict[str, dict[str, float]]], how: str) -> None:
    runs, fusion = [run_of(found) for found in given_runs], Fusion.parse(how)
    fused = fusion.fuse(runs)
    for query in fused:
        total: dict[str, float] = {}
        for run in runs:
            ranking = run.get(query) or Ranking([], [])
            for rank, (document, score) in enumerate(ranking, 1):
                low, high = ranking.scores.min(), ranking.scores.max()
                value = 1 / (60 + rank) if how == "rrf" else (score - low) / (high - low) if high > low else 1.0
                total[document] = total.get(document, 0.0) + value
        counts = {d: sum(d in dict(run.get(query) or ()) for run in runs) for d in total}
        if how == "mnz":
            total = {d: value * counts[d] for d, value in total.items()}
        if how.endswith("min)"):  # the lowest normalised score is 0, or 1 where all are equal
            for run in runs:
                ranking = run.get(query) or Ranking([], [])
                flat = len(ranking) > 0 and ranking.scores.min() == ranking.scores.max()
                total = {d: v + (flat and d not in dict(ranking)) for d, v in total.items()}
        assert dict(fused[query]) == pytest.approx(total)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rff", "unknown fusion 'rff'; did you mean 'rrf'"),
        ("linear(normalise=minmx)", "unknown normalisation 'minmx'; did you mean 'minmax'"),
        ("rrf(missing=min)", "rrf does not take the option missing in .*; it takes k"),
        ("rrf(k=many)", "'many' is not a number for k"),
        ("linear(minmax)", "'minmax' in .* is not an option; expected name=value"),
        ("rrf(", "is not a fusion: the bracket at character 4 is never closed"),
    ],
)
def test_fusions_that_are_none(text: str, message: str) -> None:
    with pytest.raises(VizslaError, match=message):
        Fusion.parse(text)


def test_fusing_needs_runs_and_as_many_weights() -> None:
    with pytest.raises(VizslaError, match="no runs"):
        fuse([])
    with pytest.raises(VizslaError, match="as many weights"):
        fuse([A, B], weights=[1.0])
    with pytest.raises(VizslaError, match="interleave does not take weights"):
        fuse([A, B], "interleave", [1.0, 0.5])
    with pytest.raises(VizslaError, match="must be 1 or more"):
        fuse([A, B], depth=0)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("q1 0\td1\t1\n", r":1: the query id 'q1 0' is empty or has a blank in it; are columns separated by both"),
        ("\td1\t1\n", r":1: the query id '' is empty"),
        ("q1\t\t1\n", r":1: the document id '' is empty"),
        ("q1\td1\t1\t2020\n", r":1: expected TREC's four columns .* not 'd1' as the second"),
        ("q1 0 123\n", r":1: expected TREC's four columns .* there is no score"),
        ("q1\td1\t1\nq1\t0\td2\t1\n", r":2: expected 3 columns as in the lines before, not 4"),
        ("q1 0 d1 1_0\n", r":1: '1_0' is not a judgement"),
        ("q1 0 d1 １\n", r":1: '１' is not a judgement"),
        ("q1 0 d1 12345678901\n", r":1: '12345678901' is not a judgement"),
        ("q1 Q0 d1 1 2.5 tag\n", r":1: expected three columns .* or TREC's four, not 6"),
    ],
)
def test_bad_lines_of_judgements(tmp_path: Path, lines: str, message: str) -> None:
    (tmp_path / "qrels").write_text(lines)
    with pytest.raises(InputError, match=message):
        Qrels.read(tmp_path / "qrels")


def test_judgements_that_could_not_be_read_back_are_not_written(tmp_path: Path) -> None:
    for name, judged in (("q.tsv", {"q 1": {"d": 1}}), ("q.tsv", {"q": {"a\tb": 1}}), ("q.trec", {"q": {"a b": 1}})):
        with pytest.raises(InputError, match="cannot hold an id"):
            Qrels(judged).write(tmp_path / name)
        assert not (tmp_path / name).exists()
    Qrels({"q": {"a b": 1}}).write(tmp_path / "q.tsv")
    assert Qrels.read(tmp_path / "q.tsv").judgements == {"q": {"a b": 1}}
