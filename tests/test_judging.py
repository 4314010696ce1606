"""Evaluating from the shell: runs that are odd, ties, answers, and judgements of one's own."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from conftest import Cli
from vizsla import Qrels

pytestmark = pytest.mark.usefixtures("own_cache")


def test_evaluating_a_run_tells_what_is_odd(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "run.trec"
    run.write_text("q1 Q0 d1 1 2 t\nq1 Q0 lost 2 1 t\nq7 Q0 d1 1 2 t\n")
    code, out, err = cli("eval", dataset, "--run", run, "--convention", "beir", "--measures", "R@10 RR@10")
    assert code == 0
    assert out.splitlines()[1].split()[-2:] == ["0.5000", "0.5000"]
    assert "1 query without judgements left out; 1 document found that the data set does not have" in err
    run.write_text("")
    for verb in (["eval", dataset, "--run", run], ["compare", dataset, "--run", run]):
        assert "the run is empty" in cli(*verb)[2]


def test_own_ids_and_ties_at_the_cut(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "letters"
    (folder / "qrels").mkdir(parents=True)
    letters = "zyxwvutsrqponmlkjihgfedcba"
    records = [{"_id": c, "text": "dog"} for c in letters] + [{"_id": "q1", "text": "dog dog dog"}]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "dog"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\ta\t1\n")
    for convention, expected in (("anserini", 1.0), ("trec", 0.5)):
        for k in (2, 5, 1000):
            out = cli("eval", folder, "--measures", "RR", "--convention", convention, "-k", k, "--json")[1]
            assert json.loads(out)["measures"]["RR"] == expected, (convention, k)
    data = json.loads(cli("compare", folder, "-m", "bm25,bm25(b=1)", "--report", tmp_path / "r.html", "--json")[1])
    assert all(math.isfinite(fact["milliseconds"]) for fact in data["facts"])  # with a single query, too


def test_answers_from_the_shell(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    cli("index", dataset, "-o", tmp_path / "i")
    code, out, _ = cli(
        "eval", dataset / "queries.jsonl", "--index", tmp_path / "i", "--measures", "Acc@1 Acc@4", "--json"
    )
    (result,) = json.loads(out)["results"]
    assert (code, result["questions"], result["accuracy"]) == (0, 2, {"Acc@1": 0.5, "Acc@4": 0.5})
    assert "Acc@20" in cli("eval", dataset / "queries.jsonl", "--index", tmp_path / "i")[1]
    assert cli("eval", dataset / "queries.jsonl", "--index", tmp_path / "i", "--measures", "x")[0] == 2
    run = tmp_path / "run.trec"
    run.write_text("q1 Q0 d1 1 2 t\nq2 Q0 d1 1 1 t\n")
    out = cli(
        "eval", dataset / "queries.jsonl", "--index", tmp_path / "i", "--run", run, "--measures", "Acc@1", "--json"
    )[1]
    assert json.loads(out)["results"][0]["accuracy"] == {"Acc@1": 0.5}
    cli("index", dataset, "-o", tmp_path / "bare", "--no-store")
    assert (
        "has no text to search for answers" in cli("eval", dataset / "queries.jsonl", "--index", tmp_path / "bare")[2]
    )


def test_answers_are_looked_for_in_the_passage_found(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text(
        json.dumps({"_id": "d", "text": "red apples grow here " * 9 + "blue plums fall"}) + "\n"
    )
    rows = [("q1", "apples", "red"), ("q2", "plums", "blue")]
    lines = [json.dumps({"_id": q, "text": text, "answers": [answer]}) for q, text, answer in rows]
    (tmp_path / "q.jsonl").write_text("\n".join(lines) + "\n")
    cli("index", tmp_path / "c.jsonl", "-o", tmp_path / "p", "--passages", "5")
    out = cli("eval", tmp_path / "q.jsonl", "--index", tmp_path / "p", "--measures", "Acc@1", "--json")[1]
    assert json.loads(out)["results"][0]["accuracy"] == {"Acc@1": 1.0}
    (tmp_path / "r").write_text("q1 Q0 d 1 1 t\nq2 Q0 d 1 1 t\n")
    out = cli(
        "eval",
        tmp_path / "q.jsonl",
        "--index",
        tmp_path / "p",
        "--run",
        tmp_path / "r",
        "--measures",
        "Acc@1",
        "--json",
    )[1]
    assert json.loads(out)["results"][0]["accuracy"] == {"Acc@1": 1.0}


def test_judging_what_nobody_judged(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    run, sheet = tmp_path / "run.trec", tmp_path / "sheet.csv"
    run.write_text("q1 Q0 d2 1 3 t\nq1 Q0 d1 2 2 t\nq2 Q0 d2 1 1 t\n")
    code, _, err = cli("qrels", "pool", dataset, run, "-o", sheet)
    assert (code, "1 document to judge for 1 query:" in err) == (0, True)
    rows = list(csv.DictReader(sheet.read_text().splitlines()))
    assert [(r["query-id"], r["corpus-id"], r["title"], r["score"]) for r in rows] == [("q1", "d2", "Cats", "")]
    assert "may hold judgements" in cli("qrels", "pool", dataset, run, "-o", sheet)[2]
    code, _, err = cli("qrels", "eval", dataset, sheet, run)
    assert "0 judgements added; 1 row of the sheet left empty" in err
    sheet.write_text(sheet.read_text().replace("q1,d2,,", "q1,d2,2,"))
    code, out, err = cli(
        "qrels",
        "eval",
        dataset,
        sheet,
        run,
        "--measures",
        "P@1 Hole(judged='query')@1",
        "--output",
        tmp_path / "all.tsv",
    )
    assert out.splitlines()[1].split() == ["run", "0.5000", "1.0000", "0.5000", "0.0000"]
    assert Qrels.read(tmp_path / "all.tsv").judgements["q1"]["d2"] == 2
    assert "this file is also an input" in cli("qrels", "eval", dataset, sheet, run, "--output", sheet)[2]
    (tmp_path / "other").write_text("zzz 0 d1 1\n")
    assert "no query judged here is in this data set" in cli("qrels", "eval", dataset, tmp_path / "other", run)[2]
    (tmp_path / "other").write_text("zzz 0 d1 1\nq1 0 d1 0\n")
    assert (
        "is judged 0 for the query 'q1', the data set has 2"
        in cli("qrels", "eval", dataset, tmp_path / "other", run)[2]
    )
    sheet.write_text("a,b\n")
    assert "expected the columns" in cli("qrels", "eval", dataset, sheet, run)[2]
