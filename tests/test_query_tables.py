"""A SPLADE that reads queries piece by piece: what it is trained with, the table it leaves, and searching with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import Cli
from small import documents_of
from test_training import VOCABULARY, small_bert
from vizsla import Index, LearnedSparse, VizslaError, parse_model
from vizsla.errors import InputError
from vizsla.neural.chunks import (
    packed,
    split_into_pieces,
)
from vizsla.neural.encoder import encoder_of
from vizsla.neural.heads.base import RULED_OUT
from vizsla.neural.heads.splade import Splade, TiedHead
from vizsla.neural.network import write_network
from vizsla.neural.onnx_network import OnnxNetwork
from vizsla.neural.query_tables import PieceVectors
from vizsla.neural.weights import read_weights


def small_splade() -> Splade:
    torch.manual_seed(5)
    encoder = encoder_of(small_bert().eval())
    return Splade(encoder, TiedHead(encoder.embeddings.word_embeddings, 16, shift=0.1)).eval()


def vectors_of(network: Splade, texts: list[list[int]], side: int = 1) -> torch.Tensor:
    """[texts, vocabulary] in the order of the texts."""
    width = max(map(len, texts))
    ids = torch.tensor([text + [0] * (width - len(text)) for text in texts])
    mask = torch.arange(width) < torch.tensor([[len(text)] for text in texts])
    batch = packed(ids, mask, 1000, side)
    return torch.cat([network(chunk) for chunk in batch.chunks])[torch.argsort(batch.order)]


PIECES = st.lists(st.integers(2, 100), max_size=6)


@given(st.lists(st.tuples(PIECES, st.booleans()), min_size=1, max_size=5))
def test_texts_are_taken_apart_as_they_would_be_one_by_one(texts: list[tuple[list[int], bool]]) -> None:
    rows = sorted(([101, *pieces, 102] for pieces, _ in texts), key=len)
    flags = [which for _, which in texts]
    ids = torch.tensor([row + [0] * (8 - len(row)) for row in rows])
    mask = torch.arange(8) < torch.tensor([[len(row)] for row in rows])
    chunk = packed(ids, mask, 1000).chunks[0]
    apart, starts = split_into_pieces(chunk, torch.tensor(flags))
    expected = []
    for row, which in zip(rows, flags, strict=True):
        expected.append([[101, piece, 102] for piece in row[1:-1]] if which and len(row) > 2 else [row])
    texts_apart = [text for group in expected for text in group]
    assert apart.ids.tolist() == [token for text in texts_apart for token in text]
    assert apart.starts.tolist() == np.cumsum([0, *map(len, texts_apart)]).tolist()
    assert apart.positions.tolist() == [i for text in texts_apart for i in range(len(text))]
    assert starts.tolist() == np.cumsum([0, *(sum(map(len, group)) for group in expected)]).tolist()
    assert apart.longest >= max(map(len, texts_apart))


def test_in_training_every_second_query_is_read_piece_by_piece() -> None:
    network = small_splade()
    texts = [[101, 5, 6, 102], [101, 7, 8, 9, 102]]
    whole = vectors_of(network, texts, side=0)
    network.by_pieces = True
    assert torch.equal(vectors_of(network, texts, side=0), whole)  # not in training
    network.train()
    assert torch.allclose(vectors_of(network, texts, side=1), whole, atol=1e-6)  # documents never are
    mixed = vectors_of(network, texts, side=0)
    alone = vectors_of(network.eval(), [[101, piece, 102] for piece in (7, 8, 9)])
    assert torch.allclose(mixed[0], whole[0], atol=1e-6)
    assert torch.allclose(mixed[1], alone.amax(0), atol=1e-6)
    assert not torch.allclose(mixed[1], whole[1], atol=1e-3)


def test_a_table_gives_what_the_network_makes_of_pieces(tmp_path: Path) -> None:
    network = small_splade()
    table = PieceVectors.write(tmp_path, *(v.numpy() for v in network.piece_vectors(VOCABULARY)))
    expected = vectors_of(network, [[101, piece, 102] for piece in (5, 40, 80)]).amax(0)
    (row,) = PieceVectors.open(tmp_path).rows([[5, 40, 80, 5]])
    found = torch.zeros(VOCABULARY)
    found[list(row)] = torch.tensor(list(row.values()))
    step = float(table.arrays["highest"][0]) / 255
    assert found.max() > 10 * step
    assert torch.allclose(found, expected, atol=0.51 * step)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_terms_that_are_ruled_out_are_not_worked_out(precision: str, tmp_path: Path) -> None:
    """A network with few terms left gives them the same weights as before, and the others none."""
    network = small_splade()
    kept = torch.arange(3, VOCABULARY, 5)
    folders = tmp_path / "all", tmp_path / "few"
    for folder in folders:
        weights = {n.removeprefix("encoder.").removeprefix("head."): p for n, p in network.named_parameters()}
        write_network(folder, {n: p.detach().numpy().copy() for n, p in weights.items()}, "splade",
                      attention_heads=2, precision=precision)  # fmt: skip
        network.keep_terms(kept)
    assert (network.head.decoder.bias == RULED_OUT).sum() == VOCABULARY - len(kept)
    every, few = (OnnxNetwork(folder, 1) for folder in folders)
    for length in (1, 2, 15, 16, 17, 33):
        ids = np.random.default_rng(length).integers(2, VOCABULARY, (2, length))
        lengths = np.array([length, max(1, length // 2)])
        expected, found = every.run(ids, lengths), few.run(ids, lengths)
        assert np.array_equal(found[:, kept], expected[:, kept])
        assert (np.delete(found, kept, 1) == 0).all()
        assert (found > 0).any()


def test_training_writes_a_table_and_one_index_serves_both_ways(
    cli: Cli, judged: Path, start: Path, tmp_path: Path
) -> None:
    changes = (f"network.base_model={start}", "training.batch_size=8", "training.steps=2", "training.warmup_steps=1",
               "data.negatives_per_query=2", "training.precision=float32", "masked_lm.steps=1",
               "masked_lm.batch_size=8", "masked_lm.precision=float32", "network.output_terms=300",
               "network.query_table=true", "network.layers=1")  # fmt: skip
    options = [part for change in changes for part in ("--set", change)]
    code, _, said = cli("train", "splade", "--dataset", judged, "-o", tmp_path / "m", *options)
    assert code == 0, said
    (written,) = tmp_path.glob("m/*/network.onnx")
    assert {n for n in read_weights(written.parent) if "encoder.layer." in n and "layer.0." not in n} == set()
    for layers, problem in (("7", "there is no layer 7"), ("a", "are numbers separated by /")):
        code, _, said = cli(
            "train", "splade", "--dataset", judged, "-o", tmp_path / "n", *options, "--set", f"network.layers={layers}"
        )
        assert code != 0
        assert problem in said
    names = [f"bm26e(network={tmp_path / 'm'}{more})" for more in ("", ", inference_free=true")]
    model, free = map(parse_model, names)
    assert isinstance(model, LearnedSparse)
    assert isinstance(free, LearnedSparse)
    assert model.index_signature == free.index_signature
    text = "the dog and the cat"
    (looked_up,) = free.query_terms([text])
    assert "running" not in vars(free.network)  # the network was not even opened
    assert model.query_terms([text]) != [looked_up]
    alone = model.query_terms([model.pieces.vocabulary[i] for i in model.pieces.ids([text])[0]])
    highest = {t: max(terms.get(t, 0) for terms in alone) for t in looked_up}
    assert highest == pytest.approx(looked_up, rel=0.2, abs=0.05)  # 8 bits
    with Index.create(tmp_path / "i", model) as index:
        index.add(documents_of(30))
        index.commit()
        hits = index.with_model(names[1]).search(text, 5)
        assert len(hits) == 5


def test_what_is_wrong_with_a_table_is_said_in_a_sentence(cli: Cli, judged: Path, tmp_path: Path) -> None:
    with pytest.raises(VizslaError, match="bm26 has no table for queries without a network"):
        parse_model("bm26(inference_free=true)")
    with pytest.raises(InputError, match="a row of terms for each piece"):
        PieceVectors.write(tmp_path / "a", np.zeros((2, 3), int), np.zeros((2, 2)))
    with pytest.raises(InputError, match="a number of 0 or more"):
        PieceVectors.write(tmp_path / "a", np.zeros((2, 1), int), np.array([[1.0], [-1.0]]))
    table = PieceVectors.write(tmp_path / "b", np.array([[0], [1]]), np.ones((2, 1)))
    PieceVectors.write(tmp_path / "c", np.array([[0]]), np.ones((1, 1)))
    (tmp_path / "c" / "weights.safetensors").replace(tmp_path / "b" / "weights.safetensors")
    with pytest.raises(InputError, match="there is no table of 2 vectors here"):
        PieceVectors.open(table.folder).rows([[1]])
    code, _, said = cli(
        "train", "unicoil", "--dataset", judged, "-o", tmp_path / "m", "--set", "network.query_table=true"
    )
    assert code == 2
    assert "network.query_table are for the head splade, not unicoil" in said


def test_a_table_keeps_its_hash_when_it_is_copied(tmp_path: Path) -> None:
    table = PieceVectors.write(tmp_path / "a", np.array([[0, 1], [1, 0]]), np.array([[1.0, 0.5], [2.0, 0.1]]))
    copy = PieceVectors.open(tmp_path / "b" / table.save(tmp_path / "b"))
    assert copy == table == PieceVectors.open(tmp_path / "b" / copy.save(tmp_path / "b"))
    assert copy.rows([[0, 1]]) == table.rows([[0, 1]])


def test_seeds_are_averaged(cli: Cli, judged: Path, start: Path, tmp_path: Path) -> None:
    """The mean of two seeds has a table of its own; other shapes, other terms and other models are refused."""
    changes = (f"network.base_model={start}", "training.batch_size=8", "training.steps=1", "masked_lm.steps=0",
               "data.negatives_per_query=2", "training.precision=float32", "network.query_table=true")  # fmt: skip
    options = [part for change in changes for part in ("--set", change)]
    for seed, terms in ((0, 300), (1, 300), (2, 200)):
        told = ("--set", f"training.seed={seed}", "--set", f"network.output_terms={terms}")
        assert cli("train", "splade", "--dataset", judged, "-o", tmp_path / f"s{seed}", *options, *told)[0] == 0
    corpus = ("--corpus", judged / "corpus.jsonl")
    seeds = [tmp_path / "s0", tmp_path / "s1"]
    code, _, said = cli("models", "average", *seeds, *corpus, "-o", tmp_path / "mean")
    assert code == 0, said
    models = [parse_model(str(folder)) for folder in (*seeds, tmp_path / "mean")]
    assert all(isinstance(model, LearnedSparse) and model.query_table is not None for model in models)
    first, second, mean = (read_weights(model.network.folder) for model in models)
    for name, values in mean.items():
        step = np.abs(values).max() / 127
        assert np.allclose(values, (first[name] + second[name]) / 2, rtol=0, atol=step), name
    assert not np.allclose(first["dense.weight"], second["dense.weight"], atol=0.01)
    for arguments, expected in (
        ((seeds[0], *corpus, "-o", tmp_path / "n"), "name two models or more"),
        ((*seeds, "-o", tmp_path / "n"), "Missing option '--corpus'"),
        ((*seeds, *corpus), "Missing option '-o' / '--output'"),
        ((seeds[0], tmp_path / "s2", *corpus, "-o", tmp_path / "n"), "gives weights to other terms"),
    ):
        code, _, said = cli("models", "average", *arguments)
        assert (code, expected in said) == (2, True), said
