"""DeepCT and SPARTA: networks by onnxruntime and torch, scores, training, and searching without a network."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import Cli
from small import documents_of, small_weights
from vizsla import Index, LearnedSparse, Model, VizslaError, parse_model
from vizsla.index import verify
from vizsla.models import DeepCT, Network, expression
from vizsla.neural.onnx_network import OnnxNetwork

pytestmark = pytest.mark.usefixtures("in_floats")

TEXTS = ["Dogs bark at night.", "A cat sleeps; the dog barks, barks and barks.", "", "Quantum chromodynamics!", "the"]


def written(folder: Path, head: str, precision: str = "float32", shift: float = 0.1) -> Network:
    """An untrained network of two layers with DeepCT's or SPARTA's head."""
    weights = small_weights()
    weights["weigh.weight"], weights["weigh.bias"] = weights["weigh.weight"] * 0.4, np.array([shift], np.float32)
    if head == "sparta":
        del weights["weigh.weight"], weights["weigh.bias"]
        weights["shift"] = np.array([shift], np.float32)
    sample = [[101, *range(1000, 1030), 102]] if precision == "int8" else ()
    return Network.write(
        folder, weights, kind=head, heads=4, max_weight=2.0, length=64, precision=precision, sample=sample  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.fixture(scope="module")
def deepct(tmp_path_factory: pytest.TempPathFactory) -> DeepCT:
    return DeepCT(network=written(tmp_path_factory.mktemp("deepct"), "deepct"))


@pytest.fixture(scope="module")
def sparta(tmp_path_factory: pytest.TempPathFactory) -> LearnedSparse:
    return LearnedSparse(
        written(tmp_path_factory.mktemp("sparta"), "sparta", shift=-1.0), name="sparta", namespace="sparta"
    )


def token_weights(model: DeepCT, text: str) -> tuple[list[str], np.ndarray]:
    """The pieces of a text and their weights by the network."""
    tokenizer = model._pieces.tokenizer
    pieces = [token.term for token in tokenizer.tokens(text)]
    ids = np.array([101, *(tokenizer.numbers[p] for p in pieces), 102])  # type: ignore[attr-defined]
    return pieces, model.network.running.weights(ids, np.array([0, len(ids)]))[1:-1]


def test_a_word_counts_what_its_first_piece_weighs(deepct: DeepCT) -> None:
    text = "chromodynamics of dogs, a chromodynamics"
    pieces, weights = token_weights(deepct, text)
    starts = [i for i, piece in enumerate(pieces) if not piece.startswith("##")]
    assert [pieces[i] for i in starts] == ["ch", "of", "dogs", ",", "a", "ch"]
    first, _, dogs, _, _, second = (int(np.rint(100 * max(w, 0))) for w in weights[starts])
    assert first != second
    assert max(first, second) > 0
    expected = {"chromodynam": max(first, second), "dog": dogs}
    assert replace(deepct, keep_all=False).counts([text]) == [{term: n for term, n in expected.items() if n}]
    added = replace(deepct, merge="sum").counts([text])[0]
    assert added == {"chromodynam": max(first, 1) + max(second, 1), "dog": max(dogs, 1)}
    smooth = replace(deepct, smoothing="sqrt", scale=10).counts(["dogs"])[0]["dog"]
    assert smooth == int(np.rint(10 * np.sqrt(token_weights(deepct, "dogs")[1][0])))


def test_words_that_are_not_read_cannot_be_found(deepct: DeepCT) -> None:
    assert set(replace(deepct, length=4).counts(["dog cat river"])[0]) == {"dog", "cat"}
    assert deepct.counts([""]) == deepct.counts(["the, of a"]) == [{}]
    with pytest.raises(VizslaError, match="reads 3 to 64 tokens"):
        replace(deepct, length=65)


def test_no_word_is_lost_by_default(deepct: DeepCT, tmp_path: Path) -> None:
    """Weights lie around 0, so what a network does to them must not decide which words can be found."""
    lower = replace(deepct, network=written(tmp_path, "deepct", shift=-0.4))
    text = "A cat sleeps; the dog barks at quantum chromodynamics."
    assert set(lower.counts([text])[0]) == {"cat", "sleep", "dog", "bark", "quantum", "chromodynam"}
    assert set(replace(lower, keep_all=False).counts([text])[0]) < set(lower.counts([text])[0])


@pytest.mark.parametrize("head", ["deepct", "sparta"])
def test_torch_and_onnxruntime_make_the_same(head: str, tmp_path: Path) -> None:
    """In 32-bit floats exactly; in 8 bits up to a part of the spread, and few weights so far."""
    from vizsla.neural.torch_network import TorchNetwork

    rng = np.random.default_rng(1)
    texts = [np.array([101, *rng.integers(1000, 3000, n), 102]) for n in (1, 40, 0, 13)]
    ids, offsets = np.concatenate(texts), np.cumsum([0, *map(len, texts)])
    for precision, tolerance in (("float32", 1e-4), ("int8", 0.5)):
        folder = written(tmp_path / precision, head, precision, -0.4 if head == "deepct" else -4.0).folder
        torch_network, onnx_network = TorchNetwork(folder, head, 4, device="cpu"), OnnxNetwork(folder)
        if head == "deepct":
            a, b = torch_network.weights(ids, offsets), onnx_network.weights(ids, offsets)
            assert (a < 0).any()
        else:
            a, b = (dense(network.vectors(ids, offsets)) for network in (torch_network, onnx_network))
            assert (a[:, [0, 101, 102, 103]] == 0).all()
            assert 100 < np.count_nonzero(a[1]) < 30_000
        differences, spread = np.abs(a - b)[(a != 0) | (b != 0)], 1 if precision == "float32" else a[a != 0].std()
        assert differences.max() < tolerance * spread
        assert differences.mean() < tolerance * spread / 5


def dense(vectors: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    words, weights, starts = vectors
    rows = np.zeros((len(starts) - 1, 30_522), np.float32)
    rows[np.repeat(np.arange(len(rows)), np.diff(starts)), words] = weights
    return rows


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # some processors multiply 16-bit floats the slow way
def test_spartas_network_is_its_formula() -> None:
    from vizsla.neural.chunks import packed
    from vizsla.neural.torch_network import load

    weights = {n: a for n, a in small_weights().items() if not n.startswith("weigh.")}
    network = load({**weights, "shift": np.array([-3.0], np.float32)}, "sparta", 4)
    ids = torch.tensor([[101, 2000, 2001, 2000, 102], [101, 1500, 102, 0, 0]])
    mask = ids > 0
    (chunk,) = packed(ids, mask, 100, side=1).chunks
    shorter, longer = torch.tensor_split(network.encoder(chunk), chunk.starts[1:-1].long())
    embeddings = network.encoder.embeddings.word_embeddings.weight
    for states, row in ((longer, network(chunk)[1]), (shorter, network(chunk)[0])):
        expected = torch.log1p(torch.relu((states @ embeddings.T).amax(0) - 3.0))
        expected[[0, 101, 102, 103]] = 0
        assert torch.allclose(row, expected, atol=1e-5)
    queries = packed(ids, mask, 100)
    made = network.vectors([network(c) for c in queries.chunks], queries)
    assert [row.nonzero().ravel().tolist() for row in made] == [[2000, 2001], [1500]]
    assert made.max() == 1
    with torch.autocast("cpu", torch.bfloat16):  # both sides in the same precision, or their product is refused
        assert network(chunk).dtype == network(queries.chunks[0]).dtype


@pytest.mark.parametrize("kind", ["deepct", "sparta"])
def test_an_index_scores_as_the_vectors_do(kind: str, deepct: DeepCT, sparta: LearnedSparse, tmp_path: Path) -> None:
    """Also after a document was replaced and another deleted; and the model that the index keeps is the same."""
    model = deepct if kind == "deepct" else sparta
    documents = [{"id": str(i), "text": t} for i, t in enumerate(TEXTS)]
    with Index.create(tmp_path / "i", 2 * model) as index:
        index.add(documents)
        index.commit()
        index.add([{"id": "3", "text": "Nothing but a dog."}])
        index.delete(["0"])
        index.commit()
        alive = [{"text": t} for t in (TEXTS[1], TEXTS[2], "Nothing but a dog.", TEXTS[4])]
        queries = (2 * model).encode_queries(["a barking dog"], model.statistics(alive))
        expected = queries.dot(model.encode_documents(alive, model.statistics(alive)))[0]
        hits = {hit.id: hit.score for hit in index.search("a barking dog")}
        assert hits == pytest.approx({i: s for i, s in zip("1234", expected, strict=True) if s > 0}, rel=1e-5)
        assert "3" in hits
        assert index.explain("a barking dog", "3").score == pytest.approx(hits["3"])
        assert verify(index.path) == []
    with Index.open(tmp_path / "i") as index:
        assert index.model.parts[0].component == model
    model.save(tmp_path / "m")
    assert Model.load(tmp_path / "m") == model
    changed = parse_model(f"{kind}(network={tmp_path / 'm'}, fields=title)")
    assert changed.fields == ("title",)
    assert expression(changed) == f"{model.kind}(network={tmp_path / 'm'}, fields=title)"


def test_sparta_keeps_the_best_terms_of_documents(sparta: LearnedSparse) -> None:
    few, every = replace(sparta, max_terms=5), sparta
    document = [{"text": "the dog barks"}]
    weights = {term: w for (_, term), w in every.encode_documents(document)[0].items()}
    kept = {term: w for (_, term), w in few.encode_documents(document)[0].items()}
    assert len(kept) == 5 < 300 < len(weights)
    assert min(kept.values()) >= max(w for term, w in weights.items() if term not in kept)
    assert all(weights[term] == w for term, w in kept.items())
    assert sparta.query_terms(["the dog, the [SEP] dog"]) == [{"the": 1.0, "dog": 1.0, ",": 1.0}]
    assert few.index_signature != every.index_signature
    with pytest.raises(VizslaError, match="max_terms must be a whole number of 0 or more"):
        replace(sparta, max_terms=-1)


def test_searching_needs_no_network(deepct: DeepCT, sparta: LearnedSparse, tmp_path: Path) -> None:
    """Indexes are made with onnxruntime and searched by a process that does not import it, or torch."""
    for name, model in (("deepct", deepct), ("sparta", sparta)):
        with Index.create(tmp_path / name, model) as index:
            index.add(documents_of(3))
            index.commit()
    code = """
import sys
sys.modules["onnxruntime"] = sys.modules["torch"] = None
import vizsla
for name in ("deepct", "sparta"):
    with vizsla.open(sys.argv[1] + "/" + name) as index:
        assert len(index.search("dogs bark at a river")) == 3, name
        index.explain("dog", "0")
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_without_a_runtime_its_name_is_said(deepct: DeepCT, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vizsla.neural.device.find_spec", lambda _: None)
    with Index.create(tmp_path / "i", deepct) as index, pytest.raises(VizslaError, match="pip install onnxruntime"):
        index.add(documents_of(1))


def test_wrong_networks_and_options(deepct: DeepCT, sparta: LearnedSparse, start: Path) -> None:
    for name in ("deepct", "deepct-beir", "sparta"):
        with pytest.raises(VizslaError, match=f"comes with Vizsla; train one, as in: vizsla train {name}"):
            parse_model(name)
        with pytest.raises(VizslaError, match="this model is something else"):
            parse_model(f"{name}(network={start})")
    with pytest.raises(VizslaError, match="the head deepct, and this one has sparta"):
        DeepCT(network=sparta.network)
    with pytest.raises(VizslaError, match="unknown smoothing"):
        replace(deepct, smoothing="log")
    with pytest.raises(VizslaError, match="scale must be above 0"):
        replace(deepct, scale=0)
    with pytest.raises(VizslaError, match="does not make them"):
        replace(deepct, pieces="whitespace")


def test_targets_are_shares_of_relevant_queries(tmp_path: Path) -> None:
    """Two queries answer one document: a word that both have, in any form, has the target 1, one of one 0.5."""
    from vizsla import Analyzer, BeirDataset
    from vizsla.training.kinds.deepct import term_targets

    (tmp_path / "qrels").mkdir()
    texts = {"a": "The dog's barking annoyed chromodynamics.", "b": "Nobody asks."}
    lines = [json.dumps({"_id": name, "title": "Dogs", "text": text}) for name, text in texts.items()]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    queries = {"1": "the dogs", "2": "bark bark of a dog", "3": "annoyed"}
    asked = [json.dumps({"_id": name, "text": text}) for name, text in queries.items()]
    (tmp_path / "queries.jsonl").write_text("\n".join(asked))
    judged = ["query-id\tcorpus-id\tscore", "1\ta\t1", "2\ta\t2", "3\ta\t0"]
    (tmp_path / "qrels" / "train.tsv").write_text("\n".join(judged) + "\n")
    pieces = Analyzer.parse("wordpiece")
    made = term_targets(BeirDataset.open(tmp_path), pieces, Analyzer.parse("lucene-english"), ("title", "text"))
    assert len(made.documents) == 1
    names = [pieces.tokenizer.vocabulary[i] for i in made.documents[0].tolist()]  # type: ignore[attr-defined]
    told = [None if np.isnan(t) else float(t) for t in made.targets]
    expected = [("dogs", 1.0), ("the", None), ("dog", 1.0), ("'", None), ("s", None), ("barking", 0.5)]
    expected += [("annoyed", 0.0), ("ch", 0.0)]
    assert list(zip(names, told, strict=True))[:8] == expected
    assert set(told[8:]) == {None}


def test_a_query_that_finds_nothing_counts_0_on_dev() -> None:
    """As in an index: documents without any of its words do not fill its ranking."""
    from vizsla.training import CountSettings, TermDev, TokenCorpus

    documents = TokenCorpus.of([np.array([2000, 2001]), np.array([2002])])
    judgements = np.array([[0, 0, 1], [1, 1, 1]])
    dev = TermDev("set", documents, np.array([0, 1, 2]), TokenCorpus.of([np.array([0]), np.array([2])]), judgements)

    def figure(settings: CountSettings) -> float:
        """With a weight of 0.5 for the first document's words, and of 0 for the second's."""
        weights = torch.tensor([[0.0, 0.5, 0.5, 0.0], [0.0, 0.0, 0.0, 0.0]])
        encode, assemble = (lambda _: torch.zeros(1)), (lambda _, __: weights)
        return replace(dev, settings=settings).figures(encode, assemble, torch.device("cpu"))["set nDCG@10"]

    assert figure(CountSettings(keep_all=True)) == 1
    assert figure(CountSettings(keep_all=False)) == 0.5


def test_spartas_dev_figure_is_that_of_the_terms_an_index_keeps() -> None:
    from vizsla.training import DevSet, TokenCorpus

    texts = TokenCorpus.of([np.array([2000, 2001, 2002]), np.array([2002])])
    queries = TokenCorpus.of([np.array([2001])])
    dev = DevSet("set", texts, queries, np.array([[0, 0, 1]]), max_length=4)
    rows = {0: torch.tensor([[0.0, 1.0, 0.0]]), 1: torch.tensor([[3.0, 2.0, 0.0], [0.0, 1.0, 0.0]])}
    lengths = []

    def encode(chunk: Any) -> Any:
        lengths.append(max(chunk.starts.diff().tolist()))
        return chunk.side

    def figure(one: DevSet) -> float:
        made = one.figures(encode, lambda sides, _: rows[sides[0]], torch.device("cpu"))
        return made["set nDCG@10"]

    assert figure(dev) == 1
    assert figure(replace(dev, document_terms=1)) == pytest.approx(1 / np.log2(3))
    assert figure(replace(dev, document_terms=1, sparse=True)) == 0  # not found at all
    assert max(lengths) == 4


def test_training_deepct(cli: Cli, judged: Path, start: Path, tmp_path: Path) -> None:
    from vizsla import BeirDataset, evaluate
    from vizsla.training import resumed_recipe

    changes = (f"network.base_model={start}", "training.epochs=1", "data.max_length=40", "training.precision=float32",
               "training.batch_size=10", "training.learning_rate=0.01", "counts.keep_all=true",
               "counts.b=0")  # fmt: skip
    options = [part for change in changes for part in ("--set", change)]
    code, _, said = cli("train", "deepct", "--dataset", judged, "--dev", judged, "-o", tmp_path / "m", *options)
    assert code == 0, said
    assert "Best at step 3" in said  # 30 documents, 10 a step
    model = parse_model(str(tmp_path / "m"))
    assert isinstance(model, DeepCT)
    assert (model.length, model.keep_all, model.b, model.network.kind) == (40, True, 0.0, "deepct")
    with Index.create(tmp_path / "i", model) as index:
        index.add(BeirDataset.open(judged).documents())
        index.commit()
        dataset = BeirDataset.open(judged)
        qrels = dataset.qrels("dev")
        figures = evaluate(index.run(dataset.queries_of(qrels), 10), qrels, "nDCG@10").measures
    log = [json.loads(line) for line in (tmp_path / "m" / "training" / "log.jsonl").read_text().splitlines()]
    assert log[-1]["loss"] < log[0]["loss"]
    assert figures["nDCG@10"] == pytest.approx(log[-1]["set nDCG@10"], abs=0.05)  # 8 bits there, floats here
    assert resumed_recipe(tmp_path / "m").name == "deepct"
    again = [part for change in (f"network.base_model={tmp_path / 'm'}", *changes[1:]) for part in ("--set", change)]
    code, _, said = cli("train", "deepct", "--dataset", judged, "-o", tmp_path / "n", *again)
    assert code == 0, said
    code, _, said = cli(
        "train", "deepct", "--dataset", judged, "-o", tmp_path / "o", *options, "--set", "training.batch_size=31"
    )
    assert (code, "needs as many documents with a relevant query, and there are 30" in said) == (2, True)


def test_expanded_documents_are_trained_on_and_searched(cli: Cli, judged: Path, start: Path, tmp_path: Path) -> None:
    expanded = tmp_path / "expanded"
    shutil.copytree(judged, expanded)
    documents = [json.loads(line) for line in (expanded / "corpus.jsonl").read_text().splitlines()]
    lines = [json.dumps({**document, "queries": ["a query"]}) for document in documents]
    (expanded / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    changes = (f"network.base_model={start}", "training.batch_size=8", "training.steps=1", "training.warmup_steps=1",
               "data.negatives_per_query=1", "training.precision=float32", "data.fields=text/queries")  # fmt: skip
    options = [part for change in changes for part in ("--set", change)]
    code, _, said = cli("train", "unicoil", "--dataset", expanded, "-o", tmp_path / "m", *options)
    assert code == 0, said
    model = parse_model(str(tmp_path / "m"))
    assert isinstance(model, LearnedSparse)
    assert model.fields == ("text", "queries")
    rows = model.encode_documents([{"text": "dog", "queries": "cat"}])
    assert {term for _, term in rows[0]} <= {"dog", "cat"}
    code, _, said = cli("train", "unicoil", "--dataset", judged, "-o", tmp_path / "n", "--set", "data.fields=text//a")
    assert (code, "data.fields are names of fields separated by /" in said) == (2, True)
