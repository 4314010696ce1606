"""Generators in torch: as they are trained, and as they write several texts for each input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from vizsla.errors import InputError
from vizsla.neural.beams import BeamStates
from vizsla.neural.chunks import Batch, Chunk
from vizsla.neural.device import torch_device
from vizsla.neural.lazy_torch import F, Module, inference_mode, nn, torch
from vizsla.neural.torch_network import fast_precision, transformers

if TYPE_CHECKING:
    from torch import Tensor

TARGET = 1 << 24
"""Added to the ids of tokens that are to be predicted: inputs and targets share one row."""
_PLAIN_HEADS = ("gpt2", "gpt_neo", "gpt_neox", "llama", "mistral", "opt", "qwen2", "qwen3", "smollm3")
"""Causal models whose logits are just the product of the last state and the output embeddings."""


class Generator(Module):
    """A causal or seq2seq transformers model, and the loss of its target texts."""

    kind = "generator"

    def __init__(self, model: Any, seq2seq: bool) -> None:
        super().__init__()
        self.model, self.seq2seq = model, seq2seq
        self.hidden: int = model.get_input_embeddings().weight.shape[1]

    def forward(self, chunk: Chunk) -> Tensor:
        """[texts, 3] the negative log-likelihood of each target, its tokens, and how many were predicted correctly."""
        ids, mask = chunk.padded()
        wanted = (ids >= TARGET) & mask
        ids = ids & (TARGET - 1)
        rows, targets, logits = self._seq2seq(ids, mask, wanted) if self.seq2seq else self._causal(ids, wanted)
        losses = F.cross_entropy(logits.float(), targets, reduction="none")
        right = (logits.argmax(-1) == targets).float()
        per_token = torch.stack([losses, torch.ones_like(losses), right], 1)
        return losses.new_zeros(len(ids), 3).index_add(0, rows, per_token)

    def vectors(self, outputs: Sequence[Tensor], batch: Batch) -> Tensor:
        """[texts, 3] in the order of the batch."""
        return torch.cat(list(outputs))[torch.argsort(batch.order)]

    def _causal(self, ids: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, columns = wanted.nonzero(as_tuple=True)  # padding is on the right, where a causal model does not look
        if self.model.config.model_type in _PLAIN_HEADS:
            states = self.model.base_model(input_ids=ids, use_cache=False).last_hidden_state
            return rows, ids[rows, columns], self.model.get_output_embeddings()(states[rows, columns - 1])
        logits = self.model(input_ids=ids, use_cache=False).logits
        return rows, ids[rows, columns], logits[rows, columns - 1]

    def _seq2seq(self, ids: Tensor, mask: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sources, source_mask = _split(ids, mask & ~wanted)
        targets, target_mask = _split(ids, wanted)
        first = targets.new_full((len(targets), 1), start_token(self.model))
        logits = self.model(
            input_ids=sources,
            attention_mask=source_mask.long(),
            decoder_input_ids=torch.cat([first, targets[:, :-1]], 1),
            use_cache=False,
        ).logits
        rows = target_mask.nonzero(as_tuple=True)[0]
        return rows, targets[target_mask], logits[target_mask]


def _split(ids: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """The chosen tokens of each row, padded on the right, and their mask."""
    lengths = chosen.sum(1)
    mask = torch.arange(int(lengths.max()), device=ids.device) < lengths[:, None]
    return ids.new_zeros(mask.shape).masked_scatter_(mask, ids[chosen]), mask


def start_token(model: Any) -> int:
    """The token that a seq2seq model's decoder begins with."""
    for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id"):
        number = getattr(model.config, name, None)
        if number is not None:
            return int(number)
    raise InputError("config.json names no decoder_start_token_id", file=str(model.config.name_or_path))


def open_model(folder: str | Path, seq2seq: bool) -> Any:
    """The model in a folder, in 32-bit floats and ready to run."""
    library = transformers()
    library.utils.logging.disable_progress_bar()
    opener = library.AutoModelForSeq2SeqLM if seq2seq else library.AutoModelForCausalLM
    try:
        return opener.from_pretrained(folder, local_files_only=True, dtype=torch.float32).eval()
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as e:
        reason = (str(e) or type(e).__name__).splitlines()[0]
        raise InputError(f"transformers cannot open this generator ({reason})", file=str(folder)) from None


def new_model(config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
    """A seq2seq model that a config.json describes, with these arrays, in 32-bit floats and ready to run."""
    library = transformers()
    model = library.AutoModelForSeq2SeqLM.from_config(library.AutoConfig.for_model(**config)).float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.tensor(arrays[name]))
    return model.eval()


def next_tokens(logits: Tensor, uniform: Tensor, top_k: int, top_p: float, temperature: float) -> Tensor:
    """[texts] the next token of each text, drawn by one uniform random number a text.

    Only the `top_k` likeliest tokens can be drawn (0: all), and of these only the likeliest that have `top_p` of the
    probability together. A temperature of 0 takes the likeliest token.

    >>> logits = torch.tensor([[0.0, 3.0, 2.0], [9.0, 0.0, 0.0]])
    >>> next_tokens(logits, torch.tensor([0.9, 0.2]), 2, 1.0, 1.0).tolist()
    [2, 0]
    """
    if temperature == 0:
        return logits.argmax(-1)
    limited = 0 < top_k < logits.shape[-1]
    if not limited and top_p >= 1:
        choices = None
        probabilities = torch.softmax(logits.float() / temperature, -1)
    else:
        values, choices = logits.topk(top_k, -1) if limited else logits.sort(-1, descending=True)
        probabilities = torch.softmax(values.float() / temperature, -1)
    if top_p < 1:
        before = probabilities.cumsum(-1) - probabilities
        probabilities = probabilities * (before < top_p)
    cumulative = probabilities.cumsum(-1)
    drawn = (cumulative <= uniform[:, None] * cumulative[:, -1:]).sum(-1)
    drawn = drawn.clamp(max=(probabilities > 0).sum(-1) - 1 if choices is not None else logits.shape[-1] - 1)
    return drawn if choices is None else choices.gather(-1, drawn[:, None])[:, 0]


KINDS = ("llama", "mistral", "qwen2")


def can_share(config: Any) -> bool:
    """Whether a model's attention is the plain one that is computed here."""
    sliding = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    return config.model_type in KINDS and not sliding


class SharedPrefix:
    """The states of some texts and of their continuations; each text has the same number of continuations.

    `start` reads the texts; then `step` reads one more token of each continuation. Both give the logits of the token
    that follows. `select` keeps some texts and some of their continuations.
    """

    def __init__(self, model: Any, max_tokens: int) -> None:
        self.decoder, self.head, self.max_tokens = model.model, model.get_output_embeddings(), max_tokens
        first = self.decoder.layers[0].self_attn
        self.size: int = first.head_dim
        self.scaling: float = first.scaling
        self.written = 0
        self._prefix: list[tuple[Tensor, Tensor]] = []
        self._suffix: list[tuple[Tensor, Tensor]] = []

    def start(self, ids: Tensor, lengths: Tensor, continuations: int) -> Tensor:
        """[texts, vocabulary] the logits after each text; `ids` are padded on the right."""
        self.lengths, self.continuations = lengths, continuations
        places = torch.arange(ids.shape[1], device=ids.device)
        self._hidden = (places >= lengths[:, None])[:, None, None, :]  # padding, which continuations must not see
        states = self.decoder.embed_tokens(ids)
        rotation = self.decoder.rotary_emb(states, places[None])
        for layer in self.decoder.layers:
            query, key, value = self._heads(layer, states, rotation)
            mixed = F.scaled_dot_product_attention(
                query, key, value, is_causal=True, scale=self.scaling, enable_gqa=query.shape[1] != key.shape[1]
            )
            self._prefix.append((key, value))
            states = _finish(layer, states, mixed.transpose(1, 2).flatten(2))
        last = states[torch.arange(len(ids), device=ids.device), lengths - 1]
        return self.head(self.decoder.norm(last))  # type: ignore[no-any-return]

    def step(self, tokens: Tensor) -> Tensor:
        """[texts * continuations, vocabulary] the logits after one more token of each continuation."""
        states = self.decoder.embed_tokens(tokens[:, None])
        places = torch.repeat_interleave(self.lengths + self.written, self.continuations)[:, None]
        rotation = self.decoder.rotary_emb(states, places)
        for number, layer in enumerate(self.decoder.layers):
            query, key, value = self._heads(layer, states, rotation)
            states = _finish(layer, states, self._attend(number, query, key, value)[:, None])
        self.written += 1
        return self.head(self.decoder.norm(states[:, 0]))  # type: ignore[no-any-return]

    def select(self, texts: Tensor, continuations: Tensor) -> None:
        """Keep these texts, and of each the continuations in a row of [texts, fewer]."""
        rows = (texts[:, None] * self.continuations + continuations).flatten()
        self._prefix = [(key[texts], value[texts]) for key, value in self._prefix]
        self._suffix = [(key[rows], value[rows]) for key, value in self._suffix]
        self._hidden, self.lengths = self._hidden[texts], self.lengths[texts]
        self.continuations = continuations.shape[1]

    def _heads(self, layer: Any, states: Tensor, rotation: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """[texts, heads, tokens, size] queries, keys and values, the first two with rotary position embeddings."""
        attention, normed = layer.self_attn, layer.input_layernorm(states)
        shape = (*states.shape[:2], -1, self.size)
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        query, key, value = (project(normed).view(shape).transpose(1, 2) for project in projections)
        cos, sin = (part[:, None] for part in rotation)
        return query * cos + _turned(query) * sin, key * cos + _turned(key) * sin, value

    def _attend(self, number: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """[rows, heads * size] attention of the new tokens to their text and to the tokens generated so far."""
        if number == len(self._suffix):
            shape = (len(key), key.shape[1], self.max_tokens, self.size)
            self._suffix.append((key.new_empty(shape), value.new_empty(shape)))
        keys, values = self._suffix[number]
        keys[:, :, self.written], values[:, :, self.written] = key[:, :, 0], value[:, :, 0]
        past = slice(0, self.written + 1)
        prefix_keys, prefix_values = self._prefix[number]
        texts, groups, width, _ = prefix_keys.shape
        own = query.view(len(query), groups, -1, self.size)  # [rows, key heads, query heads of each, size]
        by_text = own.view(texts, self.continuations, groups, -1, self.size).transpose(1, 2)
        prefix_shape = by_text.shape
        by_text = by_text.reshape(texts, groups, -1, self.size)
        of_prefix = (by_text @ prefix_keys.transpose(2, 3) * self.scaling).masked_fill_(self._hidden, float("-inf"))
        of_prefix = of_prefix.view(*prefix_shape[:-1], width).transpose(1, 2).flatten(0, 1)
        of_suffix = own @ keys[:, :, past].transpose(2, 3) * self.scaling
        weights = torch.softmax(torch.cat([of_prefix, of_suffix], -1).float(), -1).to(query.dtype)
        for_prefix = weights[..., :width].view(texts, self.continuations, groups, -1, width).transpose(1, 2)
        seen = for_prefix.reshape(texts, groups, -1, width) @ prefix_values
        seen = seen.view(prefix_shape).transpose(1, 2).flatten(0, 1) + weights[..., width:] @ values[:, :, past]
        return seen.flatten(1)


def _turned(heads: Tensor) -> Tensor:
    left, right = heads.chunk(2, -1)
    return torch.cat([-right, left], -1)


def _finish(layer: Any, states: Tensor, mixed: Tensor) -> Tensor:
    """The rest of a layer after its attention."""
    states = states + layer.self_attn.o_proj(mixed)
    return states + layer.mlp(layer.post_attention_layernorm(states))  # type: ignore[no-any-return]


_TEXTS = 16_384, 160  # written at once by a GPU, and by the processor
_TOKENS = 131_072, 4096  # of inputs, read at once
_BEAMS = 1024, 64  # the same for a beam search, which fetches all logits of a step
_TIDY_STEPS = 4  # between two checks for finished texts


class States(Protocol):
    """The cached keys and values of some inputs and of the texts generated for them."""

    def start(self, ids: Tensor, lengths: Tensor, continuations: int) -> Tensor:
        """[inputs, vocabulary] the logits of the first token after each input."""

    def step(self, tokens: Tensor) -> Tensor:
        """[inputs * continuations, vocabulary] the logits after one more token of each text."""

    def select(self, texts: Tensor, continuations: Tensor) -> None:
        """Keep these inputs, and of each the continuations in a row of [inputs, fewer]."""


class _TorchBeams(BeamStates):
    """The states of some inputs and of the beam of texts of each; the logits stay on the device."""

    def __init__(self, states: States, ids: Tensor, lengths: Tensor, beam: int) -> None:
        self._states, self._ids, self._lengths, self._beam = states, ids, lengths, beam

    @inference_mode
    def start(self) -> Tensor:
        """[inputs, vocabulary] the logits of the first token."""
        return self._states.start(self._ids, self._lengths, self._beam).float()

    @inference_mode
    def step(self, parents: np.ndarray, tokens: np.ndarray) -> Tensor:
        """[inputs, beam, vocabulary] the logits after one more token of each text."""
        device = self._ids.device
        self._states.select(torch.arange(len(parents), device=device), torch.from_numpy(parents).to(device))
        logits = self._states.step(torch.from_numpy(tokens).to(device).flatten())
        return logits.float().view(*tokens.shape, -1)

    @inference_mode
    def log_probabilities(self, logits: Tensor, rows: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """[n] float64: of some tokens, each after the text of a row in [rows, vocabulary] logits."""
        places, chosen = (torch.from_numpy(numbers).to(logits.device) for numbers in (rows, tokens))
        found: np.ndarray = (logits[places, chosen] - logits.logsumexp(-1)[places]).cpu().numpy()
        return found.astype(np.float64)


class TorchGenerator:
    """A generator of the transformers library. It runs in bfloat16 on a GPU and on processors that support it."""

    def __init__(self, model: Any, seq2seq: bool, ends: Sequence[int], device: str | None = None) -> None:
        self.seq2seq = seq2seq
        self.device = torch_device(device or "")
        self.model = model.to(self.device, fast_precision(self.device))
        self.ends = torch.tensor(list(ends), device=self.device)

    @inference_mode
    def generate(
        self, inputs: Sequence[np.ndarray], uniform: np.ndarray, *, top_k: int, top_p: float, temperature: float
    ) -> list[list[list[int]]]:
        """The tokens of several texts for each input.

        `uniform`: [inputs, texts, tokens] the random numbers to sample with; its shape decides how many texts are
        generated and how long they may be.
        """
        written: list[list[list[int]]] = [[] for _ in inputs]
        for chosen in self._batches(inputs, uniform.shape[1]):
            lengths = torch.tensor([len(inputs[i]) for i in chosen], device=self.device)
            mask = torch.arange(int(lengths.max()), device=self.device) < lengths[:, None]
            flat = torch.from_numpy(np.concatenate([inputs[i] for i in chosen]).astype(np.int64)).to(self.device)
            ids = flat.new_zeros(mask.shape).masked_scatter_(mask, flat)
            numbers = torch.from_numpy(uniform[chosen]).to(self.device)
            tokens = self._write(ids, lengths, numbers, (top_k, top_p, temperature)).cpu().numpy()
            ends = set(self.ends.tolist())
            for i, rows in zip(chosen, tokens.tolist(), strict=True):
                written[i] = [_before(row, ends) for row in rows]
        return written

    def beams(self, inputs: Sequence[np.ndarray], beam: int, steps: int) -> BeamStates:
        """The states of some inputs for a beam search of so many steps; see `together` for how many at once."""
        lengths = torch.tensor([len(ids) for ids in inputs], device=self.device)
        ids = nn.utils.rnn.pad_sequence([torch.from_numpy(ids) for ids in inputs], batch_first=True).to(self.device)
        return _TorchBeams(self.states(steps), ids, lengths, beam)

    def together(self, beam: int) -> int:
        """How many inputs are best searched at once."""
        return max(_BEAMS[self.device.type == "cpu"] // beam, 1)

    def _batches(self, inputs: Sequence[np.ndarray], texts: int) -> Iterator[list[int]]:
        """The numbers of inputs that are read together, those of about one length."""
        order = sorted(range(len(inputs)), key=lambda i: len(inputs[i]), reverse=True)
        first = 0
        while first < len(order):
            longest = max(len(inputs[order[first]]), 1)
            on_cpu = self.device.type == "cpu"
            count = max(1, min(_TOKENS[on_cpu] // longest, _TEXTS[on_cpu] // texts))
            yield order[first : first + count]
            first += count

    def states(self, max_tokens: int) -> States:
        """The cache of inputs and texts for this kind of model."""
        if self.seq2seq:
            return _Seq2SeqStates(self.model)
        return SharedPrefix(self.model, max_tokens) if can_share(self.model.config) else _CausalStates(self.model)

    def _write(self, ids: Tensor, lengths: Tensor, uniform: Tensor, sampling: tuple[int, float, float]) -> Tensor:
        """[inputs, texts, tokens] with an end token after each text that is shorter."""
        inputs, texts, steps = uniform.shape
        states, end = self.states(steps), int(self.ends[0])
        written = ids.new_full((inputs, texts, steps), end)
        rows = torch.arange(inputs, device=self.device)  # which input each row of the states is
        slots = torch.arange(texts, device=self.device).expand(inputs, texts)  # which text each place in a row is
        live = torch.ones_like(slots, dtype=torch.bool)
        logits = states.start(ids, lengths, texts).repeat_interleave(texts, 0)
        for step in range(steps):
            numbers = uniform[rows[:, None], slots, step].flatten()
            tokens = next_tokens(logits, numbers, *sampling).view(slots.shape)
            tokens = torch.where(live, tokens, end)
            written[rows[:, None], slots, step] = tokens
            live = live & ~torch.isin(tokens, self.ends)
            if step + 1 == steps or (step % _TIDY_STEPS == 0 and not live.any()):
                break
            if step % _TIDY_STEPS == 0:
                kept = live.any(1).nonzero()[:, 0]
                widest = int(live.sum(1).max())
                if len(kept) < len(rows) or widest < slots.shape[1]:
                    order = torch.argsort((~live[kept]).int(), dim=1, stable=True)[:, :widest]
                    states.select(kept, order)
                    rows = rows[kept]
                    slots, live, tokens = (part[kept].gather(1, order) for part in (slots, live, tokens))
            logits = states.step(tokens.flatten())
        return written


class _Repeated:
    """States in a transformers cache, repeated for each continuation."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.cache: Any = None
        self.continuations = 1

    def _repeat(self, continuations: int) -> None:
        self.cache.batch_repeat_interleave(continuations)
        self.continuations = continuations

    def _select(self, texts: Tensor, continuations: Tensor) -> Tensor:
        rows = (texts[:, None] * self.continuations + continuations).flatten()
        self.cache.batch_select_indices(rows)
        self.continuations = continuations.shape[1]
        return rows


class _CausalStates(_Repeated):
    """The states of a causal model; inputs are padded on the left."""

    def start(self, ids: Tensor, lengths: Tensor, continuations: int) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device) - (ids.shape[1] - lengths)[:, None]
        self.mask = (places >= 0).long()
        moved = ids.gather(1, places.clamp(min=0))
        self.cache = transformers().DynamicCache(config=self.model.config)
        result = self.model(
            input_ids=moved, attention_mask=self.mask, position_ids=places.clamp(min=0), past_key_values=self.cache,
            use_cache=True,
        )  # fmt: skip
        self.cache = result.past_key_values
        self._repeat(continuations)
        self.mask, self.places = (part.repeat_interleave(continuations, 0) for part in (self.mask, lengths[:, None]))
        return result.logits[:, -1]  # type: ignore[no-any-return]

    def step(self, tokens: Tensor) -> Tensor:
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(tokens), 1)], 1)
        result = self.model(
            input_ids=tokens[:, None], attention_mask=self.mask, position_ids=self.places, past_key_values=self.cache,
            use_cache=True,
        )  # fmt: skip
        self.places = self.places + 1
        return result.logits[:, -1]  # type: ignore[no-any-return]

    def select(self, texts: Tensor, continuations: Tensor) -> None:
        rows = self._select(texts, continuations)
        self.mask, self.places = self.mask[rows], self.places[rows]


class _Seq2SeqStates(_Repeated):
    """The states of a seq2seq model: its encoder reads an input once for all continuations."""

    def start(self, ids: Tensor, lengths: Tensor, continuations: int) -> Tensor:
        self.mask = (torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]).long()
        self.encoded = self.model.get_encoder()(input_ids=ids, attention_mask=self.mask)
        library = transformers()
        self.cache = library.EncoderDecoderCache(library.DynamicCache(), library.DynamicCache())
        logits = self._read(ids.new_full((len(ids),), start_token(self.model)))
        self._repeat(continuations)
        self._keep(torch.arange(len(ids), device=ids.device).repeat_interleave(continuations))
        return logits

    def step(self, tokens: Tensor) -> Tensor:
        return self._read(tokens)

    def select(self, texts: Tensor, continuations: Tensor) -> None:
        self._keep(self._select(texts, continuations))

    def _read(self, tokens: Tensor) -> Tensor:
        result = self.model(
            encoder_outputs=self.encoded, attention_mask=self.mask, decoder_input_ids=tokens[:, None],
            past_key_values=self.cache, use_cache=True,
        )  # fmt: skip
        self.cache = result.past_key_values
        return result.logits[:, -1]  # type: ignore[no-any-return]

    def _keep(self, rows: Tensor) -> None:
        self.mask = self.mask[rows]
        # the cache holds the cross-attention keys and values, so of the encoder's states only the shape is still needed
        self.encoded.last_hidden_state = self.encoded.last_hidden_state[:1].expand(len(rows), -1, -1)


def _before(tokens: list[int], ends: set[int]) -> list[int]:
    """The tokens before the first end token."""
    return tokens[: next((i for i, token in enumerate(tokens) if token in ends), len(tokens))]
