"""The machinery of training, on small networks and in 64-bit floats where exactness is claimed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")
transformers = pytest.importorskip("transformers", reason="training needs transformers")

from vizsla.errors import InputError, VizslaError  # noqa: E402
from vizsla.networks import Splade, TiedHead, UniCoil  # noqa: E402
from vizsla.training import Chunk, Crops, TokenCorpus, cached_backward, chunked, info_nce  # noqa: E402

VOCABULARY = 60


def small_network(dropout: float = 0.0) -> UniCoil:
    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, max_position_embeddings=64,
    )  # fmt: skip
    return UniCoil(transformers.BertModel(config, add_pooling_layer=False), 16, VOCABULARY, silent=(0, 1)).double()


def batch(seed: int, rows: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, VOCABULARY, (rows, 14), generator=generator)
    mask = torch.arange(14) < torch.randint(3, 15, (rows, 1), generator=generator)
    return torch.where(mask, ids, 0), mask


def test_a_vector_holds_the_highest_weight_of_each_token() -> None:
    network, (ids, mask) = small_network(), batch(3)
    weights, vectors = network.token_weights(ids, mask), network(ids, mask)
    for row in range(len(ids)):
        expected = torch.zeros(VOCABULARY, dtype=torch.float64)
        for token, weight, there in zip(ids[row].tolist(), weights[row], mask[row].tolist(), strict=True):
            if there and token > 1:
                expected[token] = max(expected[token], weight)
        assert torch.equal(vectors[row], expected)


@pytest.mark.parametrize("size", [1, 5, 12, 100])
def test_gradient_caching_is_plain_back_propagation(size: int) -> None:
    """To 1e-12 in 64-bit floats, a regulariser over all vectors included."""

    def loss_of(queries: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
        regulariser = (queries.mean(0) ** 2).sum() + (documents.mean(0) ** 2).sum()
        return info_nce(queries, documents, 0.7) + 0.01 * regulariser

    plain, cached = small_network(), small_network()
    sides = [batch(1), batch(2)]
    loss = loss_of(*(plain(*side) for side in sides))
    loss.backward()
    found = cached_backward(cached, [chunked(*side, size) for side in sides], loss_of)
    assert found.item() == pytest.approx(loss.item(), abs=1e-12)
    for a, b in zip(plain.parameters(), cached.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            assert torch.allclose(a.grad, b.grad, rtol=0, atol=1e-12)


def test_the_second_pass_throws_the_same_dice() -> None:
    network, seen = small_network(dropout=0.3).train(), []

    def encode(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        made = network(ids, mask)
        seen.append(made.detach())
        return made

    side = chunked(*batch(4), 5)
    torch.manual_seed(9)
    cached_backward(encode, [side, side], info_nce)
    first, second = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[0], first[3])  # the two sides had dice of their own


def test_splade_pools_the_maximum_over_what_is_there() -> None:
    torch.manual_seed(2)
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    encoder = transformers.BertModel(config, add_pooling_layer=False).eval()
    network = Splade(encoder, TiedHead(encoder.embeddings.word_embeddings, 16, shift=0.1))
    ids, mask = batch(6, 3)
    vectors = network(ids, mask)
    for row in range(3):
        size = int(mask[row].sum())
        alone = network(ids[row : row + 1, :size], mask[row : row + 1, :size])
        assert torch.allclose(vectors[row], alone[0], atol=1e-5)
    assert network.head.decoder.weight is encoder.embeddings.word_embeddings.weight
    calm = Splade(encoder, TiedHead(encoder.embeddings.word_embeddings, 16, shift=100.0))
    assert (calm(ids, mask) == 0).all()


def test_chunks_are_of_like_length_and_can_be_put_back() -> None:
    ids, mask = batch(5)
    chunks, back = chunked(ids, mask, 4)
    assert all(isinstance(c, Chunk) and c.mask.any(0).all() for c in chunks)
    padded = torch.cat([torch.nn.functional.pad(c.ids, (0, 14 - c.ids.shape[1])) for c in chunks])
    assert torch.equal(padded[back], ids)


def test_crops_are_stretches_of_their_documents() -> None:
    rng = np.random.default_rng(2)
    documents = [np.arange(i * 1000 + 200, i * 1000 + 200 + n) % 60_000 for i, n in enumerate(rng.integers(1, 700, 50))]
    corpus = TokenCorpus.pack(documents)
    crops = Crops(end=102, deletion=0.2)
    ids, offsets = crops.tensors(corpus, "cpu")
    generator = torch.Generator().manual_seed(7)
    chosen = torch.arange(50)
    tokens, mask = crops.crop(ids, offsets, chosen, generator)
    again = crops.crop(ids, offsets, chosen, torch.Generator().manual_seed(7))
    assert torch.equal(tokens, again[0])
    assert not torch.equal(tokens, crops.crop(ids, offsets, chosen, generator)[0][:, : tokens.shape[1]])
    for row in range(50):
        inside = tokens[row][mask[row]].tolist()
        assert (inside[0], inside[-1]) == (101, 102)
        body = inside[1:-1]
        places = [documents[row].tolist().index(t) for t in body]
        assert places == sorted(places)
        assert places[-1] - places[0] < max(128, 4)
        assert body
        assert (tokens[row][~mask[row]] == 0).all()
    with pytest.raises(VizslaError, match="cannot be made"):
        Crops(shortest=0.0)


def test_deletion_takes_its_share() -> None:
    corpus = TokenCorpus.pack([list(range(200, 456))] * 400)
    crops = Crops(shortest=0.5, longest=0.5, deletion=0.1)
    _, mask = crops.crop(*crops.tensors(corpus, "cpu"), torch.arange(400), torch.Generator().manual_seed(1))
    assert mask.sum(1).float().mean().item() - 1 == pytest.approx(0.9 * 128, rel=0.02)


def test_a_packed_corpus_goes_to_disk_and_back(tmp_path: Path) -> None:
    corpus = TokenCorpus.pack([[1, 2], [], [70_000]])
    assert (len(corpus), corpus.ids.dtype) == (2, np.uint32)
    corpus.save(tmp_path / "c")
    opened = TokenCorpus.open(tmp_path / "c")
    assert [d.tolist() for d in (opened[0], opened[1])] == [[1, 2], [70_000]]
    with pytest.raises(InputError, match="no packed corpus here"):
        TokenCorpus.open(tmp_path)
    np.save(tmp_path / "c" / "offsets.npy", np.array([0, 9]))
    with pytest.raises(InputError, match="contradict"):
        TokenCorpus.open(tmp_path / "c")


def test_info_nce_by_hand() -> None:
    queries, documents = torch.eye(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    one = float(np.log(1 + np.exp(-1)))
    assert info_nce(queries, documents).item() == pytest.approx(one)
    assert info_nce(queries, documents, 0.5).item() == pytest.approx(float(np.log(1 + np.exp(-2))))
    more = torch.cat([documents, torch.zeros(1, 2, dtype=torch.float64)])
    assert info_nce(queries, more, symmetric=False).item() == pytest.approx(float(np.log(1 + 2 * np.exp(-1))))


def test_training_imports_where_numba_is_not() -> None:
    """On a machine with torch and transformers, and none of the packages that searching needs."""
    absent = ("numba", "Stemmer", "ir_measures", "scipy", "typer", "rich", "yaml", "zstandard")
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({absent!r}))\n"  # None there makes importing them fail
        "import vizsla.training, vizsla.networks\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
