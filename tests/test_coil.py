"""COIL: the model, its network in torch and in onnxruntime, its scores in training, and training itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from small import documents_of, small_weights
from vizsla import Index, Model, VizslaError, parse_model
from vizsla.index import verify
from vizsla.models import Coil, Network, expression
from vizsla.neural.onnx_network import OnnxNetwork

TOKEN, TEXT = 5, 7


def written(folder: Path, cls: int = TEXT, precision: str = "float32") -> Network:
    rng = np.random.default_rng(3)
    weights = {n: array for n, array in small_weights().items() if not n.startswith("weigh.")}
    for name, width in (("tok_proj", TOKEN), *([("cls_proj", cls)] if cls else [])):
        weights[f"{name}.weight"] = rng.normal(0, 0.3, (width, 32)).astype(np.float32)
        weights[f"{name}.bias"] = rng.normal(0, 0.3, width).astype(np.float32)
    return Network.write(folder, weights, kind="coil", heads=4, max_weight=1.0, length=64, precision=precision)  # type: ignore[arg-type]


@pytest.mark.parametrize("cls", [0, TEXT])
def test_torch_and_onnxruntime_make_the_same(cls: int, tmp_path: Path) -> None:
    from vizsla.neural.torch_network import TorchNetwork

    network = written(tmp_path, cls)
    assert (network.width, network.cls_width) == (TOKEN, cls)
    rng = np.random.default_rng(1)
    texts = [np.array([101, *rng.integers(1000, 3000, n), 102]) for n in (1, 40, 0, 13)]
    ids, offsets = np.concatenate(texts), np.cumsum([0, *map(len, texts)])
    opened: tuple[Any, ...] = TorchNetwork(tmp_path, "coil", 4, device="cpu"), OnnxNetwork(tmp_path)
    opened[0].precision = torch.float32
    (a, x), (b, y) = (one.coil_vectors(ids, offsets) for one in opened)
    assert a.shape == (len(ids), TOKEN)
    assert x.shape == (4, cls)
    assert np.allclose(a, b, atol=1e-4)
    assert np.allclose(x, y, atol=1e-4)
    with pytest.raises(VizslaError, match="head coil, and only colbert gives token_vectors"):
        opened[1].token_vectors(ids, offsets)


def test_a_text_is_read_as_it_should_be(tmp_path: Path) -> None:
    """Special and unknown tokens match nothing, lengths cut texts, and the special tokens around them count."""
    coil = Coil(written(tmp_path), length=6, query_length=4)
    texts = coil.query_embeddings(["dogs bark loudly", "\u2042\u2042", "", "\u2042 dog"])
    names = [[coil.token_name(int(term)) for term in some] for some in texts.terms]
    assert names == [["dogs", "bark"], [], [], ["dog"]]
    assert [rows.shape for rows in texts.vectors] == [(2, TOKEN), (0, TOKEN), (0, TOKEN), (1, TOKEN)]
    assert (texts.texts[[1, 2]] == 0).all()
    assert texts.texts[[0, 3]].any(axis=1).all()
    documents = coil.document_embeddings([{"text": "dogs bark loudly at the night"}, {"title": "dogs", "text": "bark"}])
    assert [len(some) for some in documents.terms] == [4, 2]
    ids = np.array([101, *coil.pieces.ids(["dogs bark"])[0], 102])
    tokens, whole = coil.network.running.coil_vectors(ids, np.array([0, 4]))
    assert np.allclose(documents.vectors[1], tokens[1:3], atol=1e-6)
    assert np.allclose(documents.texts[1], whole[0], atol=1e-6)


@pytest.mark.parametrize("cls", [0, TEXT])
def test_an_index_scores_as_the_vectors_do(cls: int, tmp_path: Path) -> None:
    coil = Coil(written(tmp_path / "n", cls))
    documents = [*documents_of(30), {"id": "empty", "text": ""}]
    coil.save(tmp_path / "m")
    loaded = Model.load(tmp_path / "m")
    assert loaded.parts[0].component.index_signature == coil.index_signature
    assert parse_model(expression(loaded)) == loaded
    renamed = parse_model(f"coil(network={tmp_path / 'm'}, namespace=other, query_length=9)")
    assert expression(renamed) == f"coil(network={tmp_path / 'm'}, query_length=9, namespace=other)"
    query = "the dog at night, dog"
    with Index.create(tmp_path / "i", parse_model(f"bm25 + 0.2 * {tmp_path / 'm'}")) as index:
        index.add(documents)
        index.commit()
        scores = coil.encode_queries([query], coil.statistics(documents)).dot(coil.encode_documents(documents))[0]  # type: ignore[arg-type,union-attr]
        found = {hit.id: hit.score for hit in index.search(query, 50, model=loaded)}
        shares = [{"dog", "night"} & set(d["text"].split()) for d in documents]
        expected = {
            d["id"]: s for d, s, own in zip(documents, scores, shares, strict=True) if own or (cls and d["text"])
        }
        assert found == pytest.approx(expected, rel=2e-2, abs=2e-2)  # stored in 16 bits
        explained = index.explain(query, "3", model=loaded)
        assert explained.score == pytest.approx(found["3"], rel=1e-5)
        assert [part.name for part in explained.parts].count("dog") == 2 * ("dog" in shares[3])
        assert verify(index.path) == []


def test_wrong_networks_and_options(tmp_path: Path, start: Path) -> None:
    network = written(tmp_path)
    with pytest.raises(VizslaError, match="reads 3 to 64 tokens, not 65"):
        Coil(network, length=65)
    with pytest.raises(VizslaError, match="does not make them"):
        Coil(network, analyzer="lucene-english")
    with pytest.raises(VizslaError, match="needs a network with the head coil, and this one has unicoil"):
        Coil(Model.load(start).network)  # type: ignore[attr-defined]
    with pytest.raises(VizslaError, match="no COIL comes with Vizsla"):
        parse_model("coil")
    with pytest.raises(VizslaError, match="this model is something else"):
        parse_model(f"coil(network={start})")


def vectors_of(rng: np.random.Generator, texts: int, cls: int, scale: int = 4) -> Any:
    from vizsla.neural.heads.coil import CoilVectors

    owners = rng.permutation(np.repeat(np.arange(texts), rng.integers(0, 9, texts)))
    rows = rng.integers(-scale, scale + 1, (len(owners), TOKEN)) / 2
    whole = rng.normal(size=(texts, cls))
    return CoilVectors(
        torch.tensor(rows, requires_grad=True),
        torch.tensor(rng.integers(0, 12, len(owners))),
        torch.tensor(owners),
        torch.tensor(whole, requires_grad=True),
    )


@pytest.mark.parametrize("cls", [0, 3])
def test_the_scores_of_training_are_those_of_the_definition(cls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients included; a limit on pairs at once changes nothing."""
    from vizsla.training.kinds import coil

    rng = np.random.default_rng(6)
    for pairs in (1, 7, 1 << 20):
        monkeypatch.setattr(coil, "_PAIRS", pairs)
        queries, documents = vectors_of(rng, 6, cls), vectors_of(rng, 9, cls)
        scores = coil.coil_scores(queries, documents)
        expected = queries.cls @ documents.cls.T
        for i in range(len(queries.ids)):
            for d in range(9):
                equal = torch.flatten(torch.nonzero((documents.ids == queries.ids[i]) & (documents.texts == d)))
                if len(equal):
                    products = documents.tokens[equal] @ queries.tokens[i]
                    expected[queries.texts[i], d] = expected[queries.texts[i], d] + products[products.argmax()]
        assert torch.allclose(scores, expected)
        weights = torch.tensor(rng.normal(size=scores.shape))
        leaves = [queries.tokens, documents.tokens, *([queries.cls, documents.cls] if cls else [])]
        for a, b in zip(
            torch.autograd.grad((scores * weights).sum(), leaves),
            torch.autograd.grad((expected * weights).sum(), leaves),
            strict=True,
        ):
            assert torch.allclose(a, b)


CHANGES = ["training.batch_size=8", "training.warmup_steps=1", "training.precision=float32",
           "training.learning_rate=3e-3", "training.eval_steps=4", "training.save_steps=4",
           "data.negatives_per_query=2", "network.token_dimensions=6"]  # fmt: skip


@pytest.mark.parametrize(("recipe", "cls"), [("coil", 10), ("coil-tok", 0)])
def test_training_learns(judged: Path, start: Path, tmp_path: Path, recipe: str, cls: int) -> None:
    from vizsla import BeirDataset
    from vizsla.training import TrainingInputs, load_training_recipe, resumed_recipe, train

    dataset = BeirDataset.open(judged)
    inputs = TrainingInputs(datasets=[dataset], dev=[dataset])
    changes = [*CHANGES, f"network.base_model={start}", f"network.cls_dimensions={cls}", "training.steps=8"]
    model, result = train(load_training_recipe(recipe).with_changes(changes), tmp_path / "m", inputs)
    losses = [line["loss"] for line in result.log]
    assert np.mean(losses[-3:]) < np.mean(losses[:3])
    assert isinstance(model, Coil)
    assert (model.dimensions, model.cls_dimensions) == (6, cls)
    with Index.create(tmp_path / "i", model) as index:
        index.add(documents_of(5))
        index.commit()
        assert index.search("dog bark")
    if not cls:  # as if it had been stopped before it was written
        (tmp_path / "m" / "model.json").unlink()
        continued, more = train(resumed_recipe(tmp_path / "m", ["training.steps=9"]), tmp_path / "m", resume=True)
        assert (more.step, len(more.log)) == (9, 1)
        assert isinstance(continued, Coil)


def test_training_refuses_what_it_cannot_do() -> None:
    from vizsla.training import load_training_recipe

    with pytest.raises(VizslaError, match="is for models with one vector a text"):
        load_training_recipe("coil").with_changes(["data.refresh_steps=5"])
    with pytest.raises(VizslaError, match=r"network.token_dimensions must be 1 or more, not 0"):
        load_training_recipe("coil").with_changes(["network.token_dimensions=0"])
