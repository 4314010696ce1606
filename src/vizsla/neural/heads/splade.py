"""SPLADE's head, and with it BM26e's: one weight for each word of the vocabulary. SPLADE-doc reads no queries."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vizsla.neural.chunks import SPECIAL_TOKENS, START, Batch, Chunk, packed, split_into_pieces
from vizsla.neural.encoder import PackedBert, Padded
from vizsla.neural.heads.base import HEADS, RULED_OUT, Head, Output
from vizsla.neural.lazy_torch import Module, inference_mode, nn, no_grad, torch
from vizsla.neural.onnx_graph import EncoderGraph, quantise
from vizsla.neural.weights import LOW_RANK, SCALE

if TYPE_CHECKING:
    from torch import Tensor


TABLE = "embeddings.word_embeddings.weight"
_OWN_TABLE = "decoder.weight"  # of heads whose last layer is not tied to the input embeddings
_SLICE = 2000  # terms per matrix product, so that a text's logits are still in the cache when their maximum is taken
_ROWS = 8  # tokens that are compared at once
_KEPT = 0.999  # of the variance of logits: what is lost is less than the noise of 8 bits
_FLOOR = 0.003  # of the mean variance of a channel is added to each: other texts may vary where the sample does not
_NARROW = 0.8  # of the width: what is not narrower than this saves no time
_MULTIPLE = 32  # ranks are multiples of this, as kernels like them


@HEADS.register("splade", help="One weight for each word of the vocabulary.")
class SpladeHead(Head):
    """A masked-language head, and the maximum or the sum over the tokens of a text.

    `pooling` is `max`, `sum`, `max+log1p` or `sum+log1p`; an empty one means `max`. See `SPLADE_POOLINGS`.
    """

    gives: ClassVar[str] = "vectors"

    def outputs(self, graph: EncoderGraph, *, special_tokens: Sequence[int], pooling: str) -> list[Output]:  # noqa: ARG002
        return [Output(_splade(graph, pooling.split("+")), "vectors", graph.words)]

    def module(self, encoder: Any, weights: Mapping[str, np.ndarray], pooling: str) -> nn.Module:
        head = TiedHead(encoder.embeddings.word_embeddings, encoder.hidden, tied=_OWN_TABLE not in weights)
        return Splade(encoder, head, pooling.split("+"))


def _splade(g: EncoderGraph, pooling: Sequence[str]) -> str:
    """One weight a word of the vocabulary."""
    logarithms = 2 if "log1p" in pooling else 1
    table = g.table(_OWN_TABLE) if _OWN_TABLE in g.weights else TABLE
    if "sum" in pooling:
        states = g.norm("norm", g("Gelu", g.product("dense", g.states)))
        present = g("Unsqueeze", g("Cast", g.keep, to=1), g.constant([2]))

        def summed(logits: str) -> str:
            weights = g("Mul", _weights(g, logits, logarithms), present)
            return str(g("ReduceSum", weights, g.constant([1]), keepdims=0))

        return onnx_pooled_logits(g, states, summed, g.vector("decoder.bias"), table)
    states = g.norm("norm", g("Gelu", g.product("dense", without_padding(g))))
    return _weights(g, onnx_highest_logits(g, states, g.vector("decoder.bias"), table), logarithms)


def _weights(g: EncoderGraph, logits: str, logarithms: int) -> str:
    weights = g("Relu", logits)
    for _ in range(logarithms):
        weights = g("Log", g("Add", weights, g.constant(1, np.float32)))
    return str(weights)


def without_padding(g: EncoderGraph) -> str:
    """The states, with those of padding replaced by the first token's, which changes no maximum."""
    return str(g("Where", g("Unsqueeze", g.keep, g.constant([2])), g.states, g.first_state()))


def onnx_highest_logits(g: EncoderGraph, states: str, bias: str = "", table: str = TABLE) -> str:
    """[batch, vocabulary] the highest product of each input embedding with the states of a text, plus a bias.

    A term that the bias rules out gets its bias.
    """

    def highest(logits: str) -> str:
        # a few tokens at a time, which is faster than one by one
        window: dict[str, Any] = {"kernel_shape": [_ROWS, 1], "strides": [_ROWS, 1], "ceil_mode": 1}
        some = g("MaxPool", g("Unsqueeze", logits, g.constant([1])), **window)
        return str(g("ReduceMax", some, g.constant([1, 2]), keepdims=0))

    return onnx_pooled_logits(g, states, highest, bias, table)


def onnx_pooled_logits(g: EncoderGraph, states: str, pool: Callable[[str], str], bias: str, table: str) -> str:
    """[batch, vocabulary] the products of each row of a table with the states of a text, pooled by `pool`.

    Terms that the bias rules out are skipped and get their bias.
    """
    g.compared[table] = states
    terms = np.flatnonzero(g.stored[bias] > RULED_OUT / 2) if bias else np.arange(g.words)
    arrays = [table, *([table + SCALE] if g.int8 else []), *([bias] if bias else [])]
    narrower = _of_low_rank(g, states, table, bias, terms) if g.int8 and table in g.statistics.moments else []
    if narrower:
        states, *arrays = narrower
    elif len(terms) < g.words:
        chosen = g.constant(terms, np.int32)
        arrays = [g("Gather", name, chosen) for name in arrays]
    parts = g("DynamicQuantizeLinear", states, outputs=3) if g.int8 else ()
    cuts = np.linspace(0, len(terms), max(1, len(terms) // _SLICE) + 1).astype(int)
    pooled = []
    for start, end in pairwise(cuts):
        bounds = (g.constant([start]), g.constant([end]))
        rows, *others = [g("Slice", name, *bounds) for name in arrays]
        if g.int8:
            logits = g.multiply(parts, rows, others[0], others[1] if len(others) > 1 else "")
        else:
            product = g("MatMul", states, g.transposed(rows))
            logits = g("Add", product, *others) if others else product
        pooled.append(pool(logits))
    return _with_ruled_out(g, g("Concat", *pooled, axis=1), terms)


def _of_low_rank(g: EncoderGraph, states: str, table: str, bias: str, terms: np.ndarray) -> list[str]:
    """Narrower states, and the table, its scales and a bias for them: nearly the same logits with less work.

    The states of real texts vary in few directions that matter to logits (`low_rank`). Nothing where they do not.
    """
    basis, narrow, shift = low_rank(g.array(table)[terms], g.statistics.moments[table])
    if basis.shape[1] > _NARROW * g.hidden:
        return []
    if bias:
        shift = shift + g.array(bias)[terms]
    values, scale = quantise(narrow)
    projected = g("MatMul", states, g.store(LOW_RANK + "basis", basis))
    return [
        projected,
        g.store(LOW_RANK + "terms", values),
        g.store(LOW_RANK + "terms" + SCALE, scale),
        g.store(LOW_RANK + "bias", shift.astype(np.float32)),
    ]


def low_rank(table: np.ndarray, moments: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`basis`, `narrow` and `shift` so that `states @ basis @ narrow.T + shift` is nearly `states @ table.T`.

    It has the least squared error of its rank over the states of a sample, to whose variance a little in all directions
    is added. `moments`: [channels + 1, channels + 1] their sums of products, those with 1 last (`Statistics`). The rank
    is the lowest multiple of 32 that keeps `_KEPT` of the variance of the products.

    >>> states = np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])
    >>> with_ones = np.column_stack([states, np.ones(3)])
    >>> basis, narrow, shift = low_rank(np.eye(2), with_ones.T @ with_ones)
    >>> basis.shape, narrow.shape, np.allclose(states @ basis @ narrow.T + shift, states)
    ((2, 2), (2, 2), True)
    """
    count = moments[-1, -1]
    mean = moments[:-1, -1] / count
    values, directions = np.linalg.eigh(moments[:-1, :-1] / count - np.outer(mean, mean))
    spread = np.sqrt(np.maximum(values, 0) + _FLOOR * values.mean() + 1e-12)
    # white states: their products with `shaped` are the logits
    whiten, shaped = directions / spread, table.astype(np.float64) @ (directions * spread)
    energy, axes = np.linalg.eigh(shaped.T @ shaped)
    energy, axes = np.maximum(energy[::-1], 0), axes[:, ::-1]
    rank = int(np.searchsorted(np.cumsum(energy), _KEPT * energy.sum()) + 1)
    rank = min(-(-rank // _MULTIPLE) * _MULTIPLE, len(axes)) if len(axes) >= _MULTIPLE else rank
    # 8 bits have one scale a row; after a rotation no channel is larger than others
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(rank, rank)))[0]
    axes = axes[:, :rank] @ rotation
    basis = whiten @ axes
    narrow = shaped @ axes
    return (
        basis.astype(np.float32),
        narrow.astype(np.float32),
        (table @ mean - mean @ basis @ narrow.T).astype(np.float32),
    )


def _with_ruled_out(g: EncoderGraph, logits: str, terms: np.ndarray) -> str:
    """[batch, vocabulary] from [batch, terms]: all other terms get the bias of ruled-out terms."""
    if len(terms) == g.words:
        return logits
    places = np.full(g.words, len(terms))
    places[terms] = np.arange(len(terms))
    wider = g("Pad", logits, g.constant([0, 0, 0, 1]), g.constant(RULED_OUT, np.float32))
    return str(g("Gather", wider, g.constant(places, np.int32), axis=1))


_TOGETHER = 16_384  # tokens whose logits are in memory at once: a gigabyte in 16 bits
_PIECES = 256  # word pieces whose vectors are computed at once
_ENTRIES = 1 << 20  # gradients of single terms that are propagated at once


class TiedHead(Module):
    """A masked-language head for an encoder that came without one: a dense layer, then the tied input embeddings.

    `shift` is subtracted from every logit at first, so that few terms are active before the head has learned anything.
    Unless `tied`, its last layer has its own weights.
    """

    def __init__(self, embeddings: nn.Embedding, hidden: int, shift: float = 0.0, *, tied: bool = True) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden, hidden)
        self.norm = nn.LayerNorm(hidden, eps=1e-12)  # BERT's epsilon: other libraries open the written network with it
        self.decoder = nn.Linear(hidden, embeddings.num_embeddings)
        if tied:
            self.decoder.weight = embeddings.weight  # the same parameter, not a copy
        nn.init.constant_(self.decoder.bias, -shift)

    def transform(self, states: Tensor) -> Tensor:
        """The input of the decoder."""
        normed: Tensor = self.norm(nn.functional.gelu(self.dense(states)))
        return normed

    def forward(self, states: Tensor) -> Tensor:
        """[..., vocabulary] the logits."""
        logits: Tensor = self.decoder(self.transform(states))
        return logits


class Splade(Module):
    """The highest log(1 + ReLU(logit)) of each term over the positions of a text; `pooling`: see `SPLADE_POOLINGS`.

    `by_pieces`: in training, every second query is split into word pieces, each encoded as a text of its own. A table
    of the pieces' vectors can then replace the network for queries (`piece_vectors`).
    """

    kind = "splade"

    def __init__(self, encoder: PackedBert | Padded, head: TiedHead, pooling: Sequence[str] = ("max",)) -> None:
        super().__init__()
        self.encoder, self.head, self.pooling = encoder, head, tuple(pooling)
        self.vocabulary = encoder.vocabulary
        self.by_pieces = False

    def forward(self, chunk: Chunk) -> Tensor:
        """[texts of the chunk, vocabulary] the vectors. The logarithm is taken after the maximum, which is cheaper."""
        if "sum" in self.pooling:
            return self._sums(chunk)
        return pooled_logits(self.highest(chunk)[:, None], self.pooling)

    def _sums(self, chunk: Chunk) -> Tensor:
        """[texts of the chunk, vocabulary] the sums over positions."""
        states = self.head.transform(self.encoder(chunk))
        sums = []
        for rows, lengths in _groups(states, chunk.starts):
            present = torch.arange(rows.shape[1], device=rows.device) < lengths[:, None]
            sums.append(pooled_logits(self.head.decoder(rows) * present[:, :, None], self.pooling))
        return torch.cat(sums)

    def highest(self, chunk: Chunk) -> Tensor:
        """[texts of the chunk, vocabulary] the highest logit of each term."""
        starts = chunk.starts
        if self.by_pieces and self.training and chunk.side == 0:
            every_second = torch.arange(len(starts) - 1, device=starts.device) % 2 == 1
            chunk, starts = split_into_pieces(chunk, every_second)
        states = self.head.transform(self.encoder(chunk))
        return highest_logits(states, self.head.decoder.weight, self.head.decoder.bias, starts)

    @inference_mode
    def piece_vectors(self, most: int) -> tuple[Tensor, Tensor]:
        """[vocabulary, most] the heaviest terms of each word piece by itself, heaviest first, and their weights."""
        decoder = self.head.decoder
        kept = (decoder.bias > RULED_OUT / 2).nonzero()[:, 0]
        table, bias = decoder.weight[kept], decoder.bias[kept]
        terms, weights = [], []
        for pieces in torch.arange(self.vocabulary, device=kept.device).tensor_split(-(-self.vocabulary // _PIECES)):
            text = nn.functional.pad(pieces, (1, 1), value=START)[None]
            together = packed(text, torch.ones_like(text, dtype=torch.bool), text.numel()).chunks[0]
            apart, _ = split_into_pieces(together, torch.ones(1, dtype=torch.bool, device=kept.device))
            logits = nn.functional.linear(self.head.transform(self.encoder(apart)), table, bias)
            vectors = pooled_logits(logits.view(len(pieces), -1, len(kept)), self.pooling).float()
            heaviest = vectors.topk(min(most, len(kept)), 1)
            terms.append(kept[heaviest.indices])
            weights.append(heaviest.values)
        return torch.cat(terms), torch.cat(weights)

    @no_grad
    def keep_terms(self, terms: Tensor) -> None:
        """Rule out all terms but these, [kept] given by number, with a bias that no logit overcomes."""
        ruled_out = torch.ones(self.vocabulary, dtype=torch.bool, device=self.head.decoder.bias.device)
        ruled_out[terms] = False
        self.head.decoder.bias.masked_fill_(ruled_out, RULED_OUT)

    def vectors(self, outputs: Sequence[Tensor], batch: Batch) -> Tensor:
        """[texts, width] in the order of the batch."""
        rows = torch.cat(list(outputs))[torch.argsort(batch.order)]
        return nn.functional.pad(rows, (0, self.encoder.width - self.vocabulary))

    @no_grad
    def sparsify(self, chunks: Sequence[Chunk], terms: int = 100, highest: float = 2.0) -> float:
        """Shift and scale all logits so that about `terms` terms of a text are above 0; returns the shift.

        The highest logit becomes about `highest`. A masked-language head only learns which logits are higher than
        others. Their level is arbitrary and may leave every term of the vocabulary active, and their range leads to
        scores in the hundreds, which a contrastive loss would spend its first steps on bringing down.
        """
        best = torch.cat([self.highest(chunk).float().topk(terms, 1).values for chunk in chunks])
        shift = best[:, -1].median()
        share = highest / (best[:, 0].median() - shift).clamp(min=1e-6)
        self.head.decoder.bias.sub_(shift)
        for part in (self.head.norm.weight, self.head.norm.bias, self.head.decoder.bias):
            part.mul_(share)
        return float(shift)


def pooled_logits(logits: Tensor, pooling: Sequence[str]) -> Tensor:
    """[texts, vocabulary] weights from [texts, tokens, vocabulary] logits, which are 0 for padding.

    >>> pooled_logits(torch.tensor([[[1.0, -1.0], [3.0, 0.0]]]), ("sum",)).exp().tolist()
    [[8.0, 1.0]]
    """
    weights = torch.log1p(torch.relu(logits))
    if "log1p" in pooling:
        weights = torch.log1p(weights)
    return weights.sum(1) if "sum" in pooling else weights.amax(1)


def highest_logits(states: Tensor, weight: Tensor, bias: Tensor, starts: Tensor) -> Tensor:
    """[texts, vocabulary] the highest of `states @ weight.T + bias` in each packed text, in 16 bits under autocast."""
    if torch.is_autocast_enabled(states.device.type):
        kind = torch.get_autocast_dtype(states.device.type)
        states, weight, bias = (x.to(kind) for x in (states, weight, bias))
    logits: Tensor = _highest_logits_function().apply(states, weight, bias, starts)
    return logits


@functools.cache
def _highest_logits_function() -> Any:
    """The function of torch's autograd behind `highest_logits`."""

    class HighestLogits(torch.autograd.Function):
        """The highest of `states @ weight.T + bias` in each text, without the logits of all tokens in memory.

        For the backward pass only the positions of the maxima are kept. Most gradients are 0 there, since ReLU cuts
        off most terms. So a few hundred terms a text go to the states and the embeddings one by one: far less work
        than two products with the whole vocabulary.
        """

        @staticmethod
        def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, starts: Tensor) -> Tensor:
            highest, where = [], []
            for rows, lengths in _groups(states, starts):
                best = nn.functional.linear(rows, weight, bias).max(1)
                highest.append(best.values)
                where.append(torch.where(best.indices < lengths[:, None], best.indices, 0).to(torch.int16))
                del best  # before the next logits are made
            ctx.save_for_backward(states, weight, bias, starts, torch.cat(where))
            return torch.cat(highest)

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
            states, weight, bias, starts, where = ctx.saved_tensors
            to_states, to_weight = (torch.zeros_like(x, dtype=_wide(x)) for x in (states, weight))
            texts, terms = gradients[0].nonzero(as_tuple=True)
            for part in range(0, len(texts), _ENTRIES):
                text, term = texts[part : part + _ENTRIES], terms[part : part + _ENTRIES]
                flow = gradients[0][text, term][:, None]
                token = starts[text] + where[text, term]
                to_states.index_add_(0, token, (flow * weight[term]).to(to_states.dtype))
                to_weight.index_add_(0, term, (flow * states[token]).to(to_weight.dtype))
            to_bias = gradients[0].sum(0, dtype=_wide(bias)).to(bias.dtype)
            return to_states.to(states.dtype), to_weight.to(weight.dtype), to_bias, None

    return HighestLogits


def _groups(states: Tensor, starts: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Some texts at a time: [texts, length, hidden] states padded with each text's first state, and the lengths.

    With this padding the highest logit of a row is that of its text, and nothing has to be masked.
    """
    bounds = starts.tolist()
    first = 0
    while first < len(bounds) - 1:
        last = first + 1
        while last < len(bounds) - 1 and bounds[last + 1] - bounds[first] <= _TOGETHER:
            last += 1
        lengths = starts[first : last + 1].diff()
        at = torch.arange(int(lengths.max()), device=states.device).expand(last - first, -1)
        yield states[starts[first:last, None] + torch.where(at < lengths[:, None], at, 0)], lengths
        first = last


def _wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


_GAIN = 100.0  # so that a table learns at the learning rate of an encoder


class SpladeDoc(Splade):
    """SPLADE's vectors of documents; a query is the set of its word pieces, each with a learned weight.

    All pieces have the weight 1 at first, which is SPLADE-doc.
    """

    def __init__(
        self, encoder: PackedBert | Padded, head: TiedHead, special_tokens: Sequence[int] = SPECIAL_TOKENS
    ) -> None:
        super().__init__(encoder, head)
        self.query_changes = nn.Parameter(torch.zeros(self.vocabulary))
        has_weight = torch.ones(self.vocabulary).index_fill_(0, torch.tensor(list(special_tokens)), 0.0)
        self.register_buffer("has_weight", has_weight, persistent=False)

    @property
    def query_weights(self) -> Tensor:
        """[vocabulary] the weight of each piece of a query, 0 or more."""
        has_weight: Tensor = self.has_weight  # type: ignore[assignment]
        return torch.relu(1 + _GAIN * self.query_changes) * has_weight

    @no_grad
    def start_from(self, weights: Tensor) -> None:
        """Give queries these weights."""
        self.query_changes.copy_((weights - 1) / _GAIN)

    @property
    def documents(self) -> Splade:
        """The network that reads documents."""
        return Splade(self.encoder, self.head, self.pooling)

    def forward(self, chunk: Chunk) -> Tensor:
        """[texts of the chunk, vocabulary] the vectors."""
        if chunk.side != 0:
            return super().forward(chunk)
        texts = torch.repeat_interleave(chunk.starts.diff())
        # in 32 bits, as the vectors of documents are after their logarithm
        present = torch.zeros(len(chunk.starts) - 1, self.vocabulary, device=chunk.ids.device)
        present[texts, chunk.ids] = 1
        return present * self.query_weights
