"""Cross-encoders that others exported to ONNX, as rerankers and as teachers."""

from __future__ import annotations

import json
import pickle
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from conftest import Cli
from onnx_cross import WORDS, by_hand, quantise, save_network, save_tokenizer
from vizsla import Index, RerankedRetriever, Reranker, VizslaError
from vizsla.cache import file_digest
from vizsla.neural.checkpoints import packages
from vizsla.neural.checkpoints.onnx_cross_encoder import OnnxPairSession
from vizsla.neural.checkpoints.packages import CROSS_ENCODER, package_of
from vizsla.recipes import check, load_recipe

RNG = np.random.default_rng(5)
TEXTS = [" ".join(RNG.choice([*WORDS[:7], "dogs", "zebra"], n)) for n in (3, 40, 1, 9, 100, 17, 2, 60)] + [""]
QUERIES = [" ".join(RNG.choice(WORDS[:7], 1 + i % 5)) for i in range(len(TEXTS))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_tokenizer(tmp_path / "ce", truncation=48)
    save_network(tmp_path / "ce" / "model.onnx")
    return tmp_path / "ce"


def test_scores_are_those_of_onnxruntime_by_hand(folder: Path) -> None:
    reranker = Reranker.open(folder)
    assert (reranker.name, reranker.query_length, reranker.length) == ("ce", 64, 48)
    expected = by_hand(folder / "model.onnx", folder, QUERIES, TEXTS, 48)[:, 0]
    np.testing.assert_allclose(reranker.pair_scores(QUERIES, TEXTS), expected, atol=1e-5)
    assert np.ptp(expected) > 1
    again = pickle.loads(pickle.dumps(reranker))
    assert again == reranker
    assert hash(again) == hash(reranker)
    np.testing.assert_array_equal(again.pair_scores(QUERIES, TEXTS), reranker.pair_scores(QUERIES, TEXTS))
    assert len(reranker.scores("dog", [])) == 0
    assert reranker.scores("dog \ud800", ["\udfff cat"]).shape == (1,)


def test_eight_bits_do_not_depend_on_the_batch(folder: Path) -> None:
    (folder / "onnx").mkdir()
    quantise(folder / "model.onnx", folder / "onnx" / "model_quantized.onnx")
    reranker = Reranker.open(folder)
    whole = reranker.pair_scores(QUERIES, TEXTS)
    expected = by_hand(folder / "onnx" / "model_quantized.onnx", folder, QUERIES, TEXTS, 48)[:, 0]
    np.testing.assert_allclose(whole, expected, atol=1e-5)
    assert not np.allclose(whole, Reranker.open(folder, "float32").pair_scores(QUERIES, TEXTS), atol=1e-5)
    for i, (query, text) in enumerate(zip(QUERIES, TEXTS, strict=True)):
        assert reranker.scores(query, [text])[0] == whole[i]
    rows = [([2, *range(5, 5 + n), 3], [0] * (n + 2)) for n in (7, 1, 4)]
    file = folder / "onnx" / "model_quantized.onnx"
    one, many = (OnnxPairSession(file, threads).scores(rows).tolist() for threads in (1, 3))
    assert one == many


def test_inputs_and_outputs_of_several_kinds(tmp_path: Path) -> None:
    save_tokenizer(tmp_path)
    file = tmp_path / "model.onnx"
    for options in (
        {"labels": 2},
        {"inputs": ("input_ids", "attention_mask"), "kind": TensorProto.INT32},
        {"inputs": ("input_ids",), "name": "score", "output": ("batch", "scores")},
    ):
        save_network(file, **options)  # type: ignore[arg-type]
        found = by_hand(file, tmp_path, QUERIES, TEXTS, 512)
        expected = found[:, -1] - (found[:, 0] if found.shape[1] == 2 else 0)
        np.testing.assert_allclose(Reranker.open(tmp_path).pair_scores(QUERIES, TEXTS), expected, atol=1e-5)


def test_a_fixed_length_is_filled_up(folder: Path) -> None:
    free = Reranker.open(folder, length=20).pair_scores(QUERIES, TEXTS)
    save_network(folder / "model.onnx", shape=(1, 20))
    reranker = Reranker.open(folder)
    assert reranker.length == 20
    np.testing.assert_allclose(reranker.pair_scores(QUERIES, TEXTS), free, atol=1e-5)


def test_how_much_is_read(folder: Path) -> None:
    assert Reranker.open(folder).length == 48
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 40}')
    assert Reranker.open(folder).length == 40
    (folder / "config.json").write_text('{"model_type": "roberta", "max_position_embeddings": 34, "pad_token_id": 1}')
    assert Reranker.open(folder).length == 32
    (folder / "reranker.json").write_text('{"query_length": 4, "length": 12, "name": "mine"}')
    reranker = Reranker.open(folder)
    assert (reranker.name, reranker.query_length, reranker.length) == ("mine", 4, 12)
    long, cut = "dog cat river stone", "dog cat"
    assert reranker.scores(long, [TEXTS[1]]) == reranker.scores(cut, [" ".join(TEXTS[1].split()[:20])])
    with pytest.raises(VizslaError, match="reads 4 to 32 tokens of a pair, not 33"):
        Reranker.open(folder, length=33)


def test_which_file_is_taken(folder: Path) -> None:
    plain = Reranker.open(folder).network
    inner = folder / "onnx"
    save_network(inner / "model_quantized.onnx", labels=2)
    assert Reranker.open(folder) == Reranker.open(inner / "model_quantized.onnx") == Reranker.open(folder, "int8")
    assert Reranker.open(folder, "float32").network == plain
    shutil.copy(folder / "model.onnx", inner)
    with pytest.raises(VizslaError, match=r"give the path of one: model.onnx, onnx/model.onnx, onnx/model_quant"):
        Reranker.open(folder, "float32")
    shutil.rmtree(inner)
    (folder / "model.onnx").rename(folder / "model_O2.onnx")
    assert Reranker.open(folder).scores("dog", ["cat"]).shape == (1,)
    with pytest.raises(VizslaError, match="has its precision already, so int8 cannot be chosen"):
        Reranker.open(folder, "int8")
    save_network(folder / "model_O3.onnx")
    with pytest.raises(VizslaError, match=r"several ONNX files here.*: model_O2.onnx, model_O3.onnx"):
        Reranker.open(folder)
    assert Reranker.open(folder / "model_O3.onnx").name == "ce"


def test_word_pieces_alone_are_a_tokenizer(folder: Path) -> None:
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    expected = Reranker.open(folder).pair_scores(QUERIES[:3], TEXTS[:3])
    (folder / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.get)) + "\n")
    (folder / "tokenizer.json").unlink()
    np.testing.assert_array_equal(Reranker.open(folder).pair_scores(QUERIES[:3], TEXTS[:3]), expected)


def test_what_is_no_cross_encoder_is_refused(folder: Path) -> None:
    file = folder / "model.onnx"

    def refused(match: str, **options: object) -> None:
        if options:
            save_network(file, **options)  # type: ignore[arg-type]
        with pytest.raises(VizslaError, match=match) as error:
            Reranker.open(folder)
        assert "\n" not in str(error.value)

    refused(r"gives 384 numbers: it is of another task", labels=384)
    refused(r"gives tokens x 16 numbers: it is of another task", labels=16, states=True, output=("batch", "tokens", 16))
    refused(r"gives 5 numbers: it is of another task", labels=5, output=("batch", "width"))
    refused("this network reads ids, attention_mask", inputs=("ids", "attention_mask"))
    refused("reads input_ids, pixel_values", inputs=("input_ids", "pixel_values"))
    refused("attention_mask must be rows of whole numbers", mask=TensorProto.FLOAT)
    refused("reads 4 pairs at once", shape=(4, "tokens"))
    refused("export it with a free length", shape=(1, 9), inputs=("input_ids",))
    save_network(file)
    file.write_bytes(file.read_bytes()[:300])
    refused("onnxruntime cannot open this file")
    file.write_bytes(b"")
    refused("onnxruntime cannot open this file")
    save_network(file)
    (folder / "tokenizer.json").write_text("{}")
    refused("this is not a tokenizer.json")
    (folder / "tokenizer.json").unlink()
    refused(r"no tokenizer here \(no tokenizer.json\)")
    with pytest.raises(VizslaError, match="this file does not exist"):
        Reranker.open(folder / "other.onnx")


def test_a_token_that_the_network_does_not_have(folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["zebra"] = 999
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(VizslaError, match="does not read a pair of 5 tokens"):
        Reranker.open(folder).scores("dog", ["zebra"])


def test_a_package_of_weights_is_found_by_name(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = package_of(CROSS_ENCODER)
    assert package is not None
    assert package is package_of("cross-encoder/ms-marco-MiniLM-L12-v2")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, package.module, raising=False)
    (tmp_path / package.module).mkdir()
    (tmp_path / package.module / "__init__.py").write_text("raise ImportError('only its files are read')")
    assert package.path() is None
    shutil.copytree(folder, tmp_path / package.module / package.folder)
    with pytest.raises(VizslaError, match="a file of this model has changed"):
        Reranker.open(f"cross-encoder/{CROSS_ENCODER}")
    here = {name: file_digest(folder / name) for name in package.sha256}
    monkeypatch.setattr(packages, "_PACKAGES", (replace(package, sha256=here),))
    reranker = Reranker.open(f"cross-encoder/{CROSS_ENCODER}")
    assert reranker.name == CROSS_ENCODER
    assert reranker.network == Reranker.open(folder).network


def test_a_recipe_with_a_reranker(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "set" / "qrels").mkdir(parents=True)
    documents = [{"_id": f"d{i}", "text": text} for i, text in enumerate(TEXTS[:8])]
    (tmp_path / "set" / "corpus.jsonl").write_text("".join(json.dumps(d) + "\n" for d in documents))
    (tmp_path / "set" / "queries.jsonl").write_text('{"_id": "q", "text": "dog river"}\n')
    with Index.create(tmp_path / "ix") as index:
        index.add([{"id": d["_id"], "text": d["text"]} for d in documents])
        index.commit()
        first = [hit.id for hit in index.search("dog river", 3)]
        best = RerankedRetriever(index, Reranker.open(folder), 3).search("dog river", 3)[0].id
    assert best != first[0]
    (tmp_path / "set" / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\nq\t{best}\t1\n")
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        f"name: mine\ntitle: t\nmodel: bm25\nreranker: {folder}\ndepth: 3\nexpected:\n  set:\n"
        "    figures: {RR@10: 1, R@3: 1}\n    tolerance: 0.001\n    source: us\n"
    )
    assert [(f.measure, f.measured) for f in check(load_recipe(str(recipe)), tmp_path)] == [
        ("RR@10", 1.0),
        ("R@3", 1.0),
    ]
    recipe.write_text(recipe.read_text().replace("depth: 3", "depth: 1"))
    assert [f.measured for f in check(load_recipe(str(recipe)), tmp_path)] == [0.0, 0.0]
    recipe.write_text(recipe.read_text().replace("depth: 1", "depth: deep"))
    with pytest.raises(VizslaError, match="this is no recipe"):
        load_recipe(str(recipe))
    shipped = load_recipe("bm25-ce")
    assert (shipped.model, shipped.reranker, shipped.depth) == ("bm25", CROSS_ENCODER, 100)


def test_search_rerank_teach_and_filter(folder: Path, tmp_path: Path, cli: Cli) -> None:
    documents = [{"id": str(i), "text": text} for i, text in enumerate(TEXTS[:8])]
    with Index.create(tmp_path / "ix") as index:
        index.add(documents)
        index.commit()
        reranker = Reranker.open(folder)
        expected = [hit.id for hit in RerankedRetriever(index, reranker).search("dog river", 8)]
        (tmp_path / "run.trec").write_text(
            "".join(f"q Q0 {hit} {n} {9 - n} x\n" for n, hit in enumerate(expected[::-1], 1))
        )
    code, out, _ = cli("search", tmp_path / "ix", "dog river", "--reranker", folder, "-k", "8", "--json")
    assert code == 0
    assert [hit["id"] for hit in json.loads(out)["results"]] == expected
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "dog river"}\n')
    arguments = ["--run", tmp_path / "run.trec", "--queries", tmp_path / "queries.jsonl", "-o", tmp_path / "out.trec"]
    assert cli("run", "rerank", tmp_path / "ix", *arguments, "--reranker", folder / "model.onnx")[0] == 0
    assert [line.split()[2] for line in (tmp_path / "out.trec").read_text().splitlines()] == expected

    from vizsla import Document
    from vizsla.training.sources.teacher import open_teacher, teacher_scores

    for name in (str(folder), str(folder / "model.onnx")):
        taught = teacher_scores(
            open_teacher(name), [Document(d["id"], {"text": d["text"]}) for d in documents], ["dog", "cat"],
            np.array([0, 1, 1]), np.array([2, 5, 0]),
        )  # fmt: skip
        np.testing.assert_array_equal(
            taught, reranker.pair_scores(["dog", "cat", "cat"], [TEXTS[i] for i in (2, 5, 0)])
        )

    expanded = [{**d, "_id": d["id"], "queries": ["dog", "night stone", "cat"]} for d in documents]
    (tmp_path / "expanded.jsonl").write_text("".join(json.dumps(d) + "\n" for d in expanded))
    files = tmp_path / "expanded.jsonl", "-o", tmp_path / "kept.jsonl"
    assert cli("queries", "filter", *files, "--reranker", folder, "--keep", 0.5, "--scores")[0] == 0
    kept = [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()]
    assert sum(len(d["queries"]) for d in kept) == 12
    for d in kept:
        scores = reranker.pair_scores(d["queries"], [d["text"]] * len(d["queries"]))
        np.testing.assert_allclose(d["query_scores"], scores, atol=1e-4)
