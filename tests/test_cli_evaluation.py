"""Evaluating and checking recipes from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import vizsla
from conftest import Cli


@pytest.fixture
def dataset(corpus: Path) -> Path:
    folder = corpus.parent
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "vizsla"}\n{"_id": "q2", "text": "xyzzy"}\n')
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td3\t1\nq2\td1\t1\n")
    return folder


def test_eval(cli: Cli, dataset: Path, index: Path) -> None:
    code, out, _ = cli("eval", dataset, "--json", "--output", dataset / "run.trec")
    found = json.loads(out)
    assert code == 0
    assert found["measures"] == {"nDCG@10": 0.5, "R@100": 0.5}
    assert (found["model"], found["dataset"], found["queries"], found["missing"]) == ("bm25", dataset.name, 2, 1)
    assert json.loads(cli("eval", dataset, "--index", index, "--json")[1])["measures"] == found["measures"]
    by_run = json.loads(cli("eval", dataset, "--run", dataset / "run.trec", "--measures", "RR", "--json")[1])
    assert by_run["measures"] == {"RR": 0.5}
    code, out, err = cli("eval", dataset, "--model", "bm25-multifield")
    assert code == 0
    assert "0.5000" in out
    assert "1 of them with nothing found" in err


def test_recipes(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    assert "bm25-multifield" in cli("recipes")[1]
    recipe = tmp_path / "mine.yaml"
    expected = "{%s: {figures: {nDCG@10: %s}, tolerance: 0.01, source: here}}"
    for figure, code in [(0.5, 0), (0.9, 1)]:
        recipe.write_text(f"name: mine\ntitle: t\nmodel: bm25\nexpected: {expected % (dataset.name, figure)}\n")
        found, out, _ = cli("recipes", "check", recipe, "--data", dataset.parent)
        assert found == code
        assert ("ok" in out) == (code == 0)
    recipe.write_text(f"name: mine\ntitle: t\nmodel: bm25(k1=-1)\nexpected: {expected % (dataset.name, 0.5)}\n")
    found, out, err = cli("recipes", "check", recipe, "--data", dataset.parent)
    assert found == 1  # what cannot be checked has not passed
    assert "cannot be checked" in out
    assert "k1 must be 0 or more" in err


def test_recipes_of_models_that_are_trained(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    recipe, models = tmp_path / "mine.yaml", tmp_path / "models"
    expected = f"{{{dataset.name}: {{figures: {{nDCG@10: 0.5}}, tolerance: 0.01, source: here}}}}"
    recipe.write_text(
        "name: mine\ntitle: t\ntrained: {my-bm: train bm26 --corpus x}\n"
        f"model: bm25(namespace=other) + 0.5 * my-bm\nexpected: {expected}\n"
    )
    code, out, err = cli("recipes", "check", recipe, "--data", dataset.parent, "--models", models)
    assert code == 0
    assert "not here" in out
    assert f"there is no {models / 'my-bm'}; to make it: vizsla train bm26 --corpus x" in " ".join(err.split())
    vizsla.BM25(k1=2.0).save(models / "my-bm")
    code, out, _ = cli("recipes", "check", recipe, "--data", dataset.parent, "--models", models)
    assert code == 0
    assert "ok" in out


def test_standard_output_is_for_one_thing(cli: Cli, dataset: Path) -> None:
    code, out, err = cli("eval", dataset, "--output", "-")
    assert (code, out) == (2, "")
    assert "figures go to standard output; name a file" in err
