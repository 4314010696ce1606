"""Tuning: settings that are tried, weights of an index, and fusing, from Python and from the shell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import Cli
from vizsla import BeirDataset, Index, Measure, Run, VizslaError, parse_model
from vizsla.evaluation import Parameter, tunable_parameters, tune
from vizsla.evaluation.tuning import with_parameter
from vizsla.models import expression

pytestmark = pytest.mark.usefixtures("own_cache")


def test_an_index_is_asked_with_other_weights(documents: list[dict[str, object]], tmp_path: Path) -> None:
    with Index.create(tmp_path / "a", "bm25-multifield") as index, Index.create(tmp_path / "b", "bm25(k1=2)") as other:
        for each in (index, other):
            each.add(documents)
            each.commit()
        title = "bm25(fields=title, namespace=title)"
        assert [h.id for h in index.search("dogs", model=title)] == ["d1"]
        assert [h.id for h in index.search("vizsla", model=title)] == []
        both = f"2 * {title} + bm25(fields=text, namespace=text, k1=1.2)"
        with Index.create(tmp_path / "c", both) as alone:
            alone.add(documents)
            alone.commit()
            assert index.search("dogs bark", model=both) == alone.search("dogs bark")
        with pytest.raises(VizslaError, match="does not have what 'bm25' reads"):
            index.search("dogs", model="bm25")
        with pytest.raises(VizslaError, match="does not have what"):
            other.search("dogs", model="bm25 + bm25(namespace=again)")


def test_tuning_finds_what_trying_everything_finds(dataset: Path, tmp_path: Path) -> None:
    opened, model = BeirDataset.open(dataset), parse_model("bm25-multifield")
    qrels = opened.qrels("test")
    with Index.create(tmp_path / "i", model) as index:
        index.add(opened.documents())
        index.commit()
        settings = [Parameter("k1", (0.5, 1.0)), Parameter("title.weight", (0.0, 1.0, 4.0))]
        found = tune(index, model, opened.queries_of(qrels), qrels, Measure.parse("nDCG@10"), settings)
        assert len(found.tried) == 6
        assert found.value == max(value for _, value in found.tried)
        many = tune(index, model, opened.queries_of(qrels), qrels, Measure.parse("nDCG@10"), tunable_parameters(model))
        assert many.value >= many.before
    assert expression(found.model).startswith("bm25(") or " * " in expression(found.model)


def test_counts_are_tuned(cli: Cli, tmp_path: Path) -> None:
    """Before, the shorter document is first; with less length normalisation the higher count is."""
    (tmp_path / "qrels").mkdir()
    counts = {"a": {"dog": 60, "river": 60}, "b": {"dog": 20}, "c": {"cat": 40}}
    lines = [json.dumps({"_id": name, "text": "", "counts": given}) for name, given in counts.items()]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "dogs"}\n')
    (tmp_path / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq\ta\t1\n")
    options = ("tune", tmp_path, "-m", "counts(b=0.8)", "--json", "--measure", "MRR@10")
    code, out, err = cli(*options, "--set", "k1=0.5,60", "--set", "b=0.2,0.9")
    assert code == 0, err
    result = json.loads(out)
    assert (result["model"], result["before"], result["after"], result["tried"]) == ("counts(k1=0.5, b=0.2)", 0.5, 1, 4)
    assert [p.name for p in tunable_parameters(parse_model("counts"))] == ["k1", "b"]
    values = {p.name: p.values for p in tunable_parameters(parse_model("bm25 + counts"))}
    assert list(values) == ["words.k1", "words.b", "counts.k1", "counts.b", "counts.weight"]
    assert max(values["words.k1"]) < 18 < max(values["counts.k1"])
    with pytest.raises(VizslaError, match="unknown parameter 'delta'; known: k1, b, weight"):
        with_parameter(parse_model("counts"), "delta", 1.0)
    both = with_parameter(parse_model("bm25 + counts"), "k1", 7.0)
    assert [part.component.k1 for part in both.parts] == [7.0, 7.0]


def test_expressions_are_read_back() -> None:
    for text in ("bm25", "bm25(k1=1.2, b=0.75)", "bm25-multifield", "0.5 * bm25 + bm25(fields=title, namespace=t)"):
        model = parse_model(text)
        again = parse_model(expression(model))
        assert [(w, c.index_signature, c.k1, c.b, c.namespace) for w, c in again.parts] == [
            (w, c.index_signature, c.k1, c.b, c.namespace) for w, c in model.parts
        ]


@pytest.mark.parametrize(
    ("name", "message"),
    [("k2", "unknown parameter 'k2'"), ("weight", "a weight belongs to a part"), ("texts.b", "did you mean 'text'")],
)
def test_settings_that_are_none(name: str, message: str) -> None:
    with pytest.raises(VizslaError, match=message):
        with_parameter(parse_model("bm25-multifield"), name, 1.0)
    with pytest.raises(VizslaError, match="too many values to try; 10,000 is the limit"):
        Parameter.parse("k1=0:1:0.0000001")
    for text in ("k1", "k1=a,b", "=1", "k1=1:2:0"):
        with pytest.raises(VizslaError, match="is not a parameter"):
            Parameter.parse(text)


def test_tuning_and_fusing_from_the_shell(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    code, out, err = cli("tune", dataset, "--set", "k1=0.5,2", "--set", "b=0:1:0.5", "--test-split", "test")
    assert code == 0
    assert "6 settings tried on dev" in err
    assert out.splitlines()[-1].startswith("bm25")
    result = json.loads(cli("tune", dataset, "--split", "test", "--set", "b=0,1", "--json")[1])
    assert result["after"] >= result["before"]
    for name, model in (("a", "bm25"), ("b", "bm25(fields=title)")):
        assert cli("eval", dataset, "-m", model, "--output", tmp_path / name)[0] == 0
    code, _, err = cli(
        "run",
        "fuse",
        tmp_path / "a",
        tmp_path / "b",
        "-o",
        tmp_path / "c",
        "--combine",
        "linear",
        "--tune",
        dataset,
        "--split",
        "test",
    )
    assert code == 0
    assert "nDCG@10" in err
    assert len(Run.read(tmp_path / "c")) == 2
    assert cli("run", "fuse", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "d", "--weights", "1,x")[0] == 2
    assert cli("run", "fuse", tmp_path / "a", "-o", tmp_path / "d")[0] == 2
    assert "also an input" in cli("run", "fuse", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "a")[2]
    tuned = cli(
        "run", "fuse", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "d", "--combine", "linear", "--tune", dataset
    )
    assert "none of the judged queries of pets dev" in tuned[2]
    (tmp_path / "x").write_text("other Q0 d1 1 1 t\n")
    assert "no query in common" in cli("run", "fuse", tmp_path / "a", tmp_path / "x", "-o", tmp_path / "d")[2]
    for verb in (["eval", dataset, "--run"], ["compare", dataset, "--run"]):
        assert "none of" in cli(*verb, tmp_path / "x")[2]
    assert "is not a model" in cli("eval", dataset, "-m", "")[2]
    assert "at the edge of what was tried" in cli("tune", dataset, "--set", "b=0,1")[2]
