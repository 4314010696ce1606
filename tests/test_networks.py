"""Networks over packed texts, against the plain way."""

from __future__ import annotations

import copy
import os
import subprocess
import sys

import pytest
import torch

from test_training import VOCABULARY, batch, small_bert, small_network, vectors
from vizsla.neural.chunks import packed
from vizsla.neural.encoder import Padded, encoder_of
from vizsla.neural.heads.splade import Splade, TiedHead


def test_packed_texts_are_encoded_as_padded_ones() -> None:
    bert, (ids, mask) = small_bert().double().eval(), batch(8)
    fast, plain = encoder_of(bert), Padded(bert)
    for chunk in packed(ids, mask, 30).chunks:
        assert torch.allclose(fast(chunk), plain(chunk), atol=1e-12)


def test_a_vector_holds_the_highest_weight_of_each_token() -> None:
    network, (ids, mask) = small_network(), batch(3)
    made = vectors(network, ids, mask)
    for row in range(len(ids)):
        (chunk,) = packed(ids[row : row + 1], mask[row : row + 1], 100).chunks
        expected = torch.zeros(network.width, dtype=torch.float64)
        for token, weight in zip(chunk.ids.tolist(), network(chunk), strict=True):
            expected[token] = max(expected[token], weight) if token > 1 else 0.0
        assert torch.allclose(made[row], expected, atol=1e-12)


def test_attention_in_short_texts() -> None:
    """The kernel, interpreted, against the padded way, there and back."""
    pytest.importorskip("triton", reason="kernels for the GPU need triton")
    code = """
import torch
from vizsla.neural.attention import short_attention
from vizsla.neural.encoder import attend
torch.manual_seed(0)
lengths = torch.tensor([1, 3, 17, 30])
starts = torch.cat([torch.zeros(1), lengths.cumsum(0)]).int()
qkv = torch.randn(51, 3, 2, 16, requires_grad=True)
fast, plain = short_attention(qkv, starts, 32), attend(qkv, starts, 32)
assert torch.allclose(fast, plain, atol=1e-5)
gradient = torch.randn_like(fast)
a, b = (torch.autograd.grad(made, qkv, gradient)[0] for made in (fast, plain))
assert torch.allclose(a, b, atol=1e-5)
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "TRITON_INTERPRET": "1"})


def test_splade_pools_the_maximum_over_what_is_there() -> None:
    encoder = encoder_of(small_bert().eval())
    embeddings = encoder.embeddings.word_embeddings
    network = Splade(encoder, TiedHead(embeddings, 16, shift=0.1))
    ids, mask = batch(6, 3)
    made = vectors(network, ids, mask)
    for row in range(3):
        states = Padded(small_bert().eval())(packed(ids[row : row + 1], mask[row : row + 1], 99).chunks[0])
        expected = torch.log1p(torch.relu(network.head(states))).amax(0)
        assert torch.allclose(made[row, :VOCABULARY], expected, atol=1e-5)
        assert (made[row, VOCABULARY:] == 0).all()
    assert network.head.decoder.weight is embeddings.weight
    calm = Splade(encoder, TiedHead(embeddings, 16, shift=100.0))
    assert (vectors(calm, ids, mask) == 0).all()


def test_pooling_without_all_logits_is_plain_pooling(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same values and gradients as with the logits of all tokens in memory, in groups of a few texts."""
    monkeypatch.setattr("vizsla.neural.heads.splade._TOGETHER", 20)
    made = []
    for plain in (False, True):
        encoder = encoder_of(small_bert().double())
        torch.manual_seed(3)
        network = Splade(encoder, TiedHead(encoder.embeddings.word_embeddings, 16).double()).double()
        (chunk,) = packed(*batch(6), 1000).chunks
        if plain:
            logits = network.head(encoder(chunk))
            parts = torch.tensor_split(logits, chunk.starts[1:-1].long())
            values = torch.log1p(torch.relu(torch.stack([part.amax(0) for part in parts])))
        else:
            values = network(chunk)
        (values * torch.arange(values.numel()).view_as(values).cos()).sum().backward()
        made.append([values.detach(), *(p.grad for p in network.parameters() if p.grad is not None)])
    assert len(made[0]) == len(made[1]) > 30
    assert all(torch.allclose(a, b, rtol=0, atol=1e-10) for a, b in zip(*made, strict=True))


def test_a_sparsified_head_has_few_active_terms() -> None:
    encoder = encoder_of(small_bert().eval())
    network = Splade(encoder, TiedHead(encoder.embeddings.word_embeddings, 16, shift=-3.0))
    side = packed(*batch(6), 1000)
    assert (network(side.chunks[0]) > 0).sum(1).float().mean() > 100
    network.sparsify(side.chunks, terms=10)
    assert (network(side.chunks[0]) > 0).sum(1).float().median() <= 10


def test_chunks_are_of_like_length_and_can_be_put_back() -> None:
    ids, mask = batch(5)
    side = packed(ids, mask, 30)
    sizes = [chunk.starts.diff().tolist() for chunk in side.chunks]
    assert all(sum(s) <= 30 for s in sizes)
    assert [n for s in sizes for n in s] == sorted(mask.sum(1).tolist())
    rows = [text for chunk in side.chunks for text in torch.tensor_split(chunk.ids, chunk.starts[1:-1].long())]
    for place, row in zip(side.order.tolist(), rows, strict=True):
        assert torch.equal(ids[place][mask[place]], row)
    assert side.texts.tolist() == [p for p, row in zip(side.order.tolist(), rows, strict=True) for _ in row]
    assert all(chunk.positions.tolist() == [i for s in n for i in range(s)] for chunk, n in zip(side.chunks, sizes))  # noqa: B905


def test_heads_are_known_without_torch() -> None:
    code = "import sys; sys.modules['torch'] = sys.modules['onnx'] = None; from vizsla.neural.heads import HEADS"
    code += "; print(*sorted(HEADS.names()), *{entry.make().gives for entry in HEADS if entry.name == 'splade'})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == [
        "augmenter", "coil", "colbert", "cross", "deepct", "dense", "sparta", "splade", "unicoil", "vectors",
    ]  # fmt: skip


def test_a_network_is_a_module_of_torch() -> None:
    """Its class is defined before torch is loaded; copies and subclasses work as usual."""
    network = small_network()
    again = copy.deepcopy(network)
    assert isinstance(again, torch.nn.Module)
    assert type(again) is type(network)
    assert isinstance(again, type(network).__bases__[0])
    assert again.state_dict().keys() == network.state_dict().keys()
